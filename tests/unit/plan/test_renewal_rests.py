"""Renewals that do not help, over a day and more
(docs/reference/node-lifecycle.md "Rest of a group").
"""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import GroupMemory, GroupRenewal
from chalicelib.plan.state.renewals import fields_of
from chalicelib.policy.settings.node_lifecycle import DriftAction, NodeLifecycle
from chalicelib.reasons.text import sentence
from tests.builders import cluster
from tests.builders import node as built
from tests.cases import each_row
from tests.unit.plan.day_of_life import DayOfLife, StoryNode, StoryPod
from tests.unit.plan.lifecycle_fixture import DAY, DEADLOCK, HOUR, OLD_NODE, decide

DRIFT = NodeLifecycle(drift=DriftAction.REPLACE)
AGE = NodeLifecycle(max_node_age=30 * DAY, jitter=0.0, drift=DriftAction.OFF)
REPAIR = NodeLifecycle(repair=(DEADLOCK,), max_unhealthy=1.0, drift=DriftAction.OFF)
SAYS = "flavour c6.large, new nodes have c7.large"


def never_agree(text: str = SAYS, nodes: int = 2, scan: float = 300.0) -> DayOfLife:
    def made(node: StoryNode) -> None:
        node.outdated = text.replace("N", node.name)

    story = DayOfLife(DRIFT, nodes, made=made, scan=scan)
    for node in story.nodes.values():
        node.outdated = text.replace("N", node.name)
    return story


def until(story: DayOfLife, why: str = "drifted") -> float:
    """Hours until the end of the rest."""
    return (story.group.renewals[why].until - story.now) / HOUR


def test_a_vendor_whose_two_answers_never_agree_costs_few_nodes() -> None:
    story = never_agree(scan=60.0).play(5)
    assert story.bought <= 2
    assert story.evicted == 0, "the successor is judged before the old node goes"
    story.scan = 300.0
    story.play(24)
    assert story.bought <= 4
    assert story.evicted <= 12, "after a rest, pods move into the room of its successors"


def test_drift_rests_for_six_hours_then_twelve_and_at_most_a_day() -> None:
    story, lengths = never_agree(scan=900.0), list[float]()
    for _ in range(95 * 4):
        before = (
            story.memory.groups.get("g", GroupMemory())
            .renewals.get("drifted", GroupRenewal())
            .times
        )
        story.step()
        known = story.group.renewals.get("drifted", GroupRenewal())
        if known.times > before:
            lengths.append(round((known.until - story.now) / HOUR))
    assert lengths[:5] == [6, 12, 24, 24, 24]


def test_each_node_whose_answer_names_itself_is_the_same_field() -> None:
    assert (
        never_agree(text="MachineSet N of revision 1, new Machines are of 2").play(24).bought <= 6
    )


def test_the_group_says_why_it_rests() -> None:
    story = never_agree().play(1)
    assert story.plan is not None
    assert story.notes("RenewalRests") == [f"differs in the same: {SAYS}"]
    assert {verdict.held.code.value for verdict in story.plan.lifecycle if verdict.held} == {
        "RenewalRests"
    }
    assert 5.0 < until(story) < 6.0


def test_drift_goes_on_at_once_when_the_vendors_answer_or_the_template_changes() -> None:
    story = never_agree().play(1)
    assert story.bought == 2
    for node in story.nodes.values():
        node.outdated = "flavour c6.large, new nodes have c8.large"
    story.made = lambda _: None
    story.play(2)
    assert {node.outdated for node in story.nodes.values()} == {""}
    story = never_agree().play(1)
    story.template = {"image": "v2"}
    story.made = lambda _: None
    story.play(2)
    assert {node.outdated for node in story.nodes.values()} == {""}


def test_an_answer_that_changes_all_the_time_ends_few_rests_early() -> None:
    story = never_agree()
    for hour in range(24):
        story.template = {"digest": f"{hour}"}
        story.play(1)
    assert story.bought <= 7


def retry(story: DayOfLife) -> None:
    """What `outscaler retry` changes in a group that rests (Retries in store/memory.py)."""
    renewals = {
        why: msgspec.structs.replace(known, until=story.now)
        for why, known in story.group.renewals.items()
    }
    group = msgspec.structs.replace(story.group, renewals=renewals)
    story.memory = msgspec.structs.replace(story.memory, groups={**story.memory.groups, "g": group})


def test_a_retry_ends_the_rest_and_the_next_one_is_longer() -> None:
    story = never_agree().play(1)
    retry(story)
    story.play(2)
    assert story.bought == 3
    assert 9.0 < until(story) < 12.0


def test_a_pool_whose_definition_changes_is_renewed_without_a_rest() -> None:
    story = DayOfLife(DRIFT, 4)
    for node in story.nodes.values():
        node.outdated = SAYS
    story.play(4)
    assert set(story.nodes) == {f"new-{at:03}" for at in range(1, 5)}
    assert story.bought == 4
    assert story.notes("RenewalRests") == []


def test_a_definition_that_changes_again_and_back_is_followed_each_time() -> None:
    story = DayOfLife(DRIFT, 2)
    for hour, (own, new) in enumerate([("v1", "v2"), ("v2", "v1"), ("v1", "v2"), ("v2", "v3")]):
        for node in story.nodes.values():
            node.outdated = f"template {own}, new nodes have {new}"
        story.play(3)
        assert story.bought == 2 * (hour + 1)
        assert {node.outdated for node in story.nodes.values()} == {""}
    assert story.notes("RenewalRests") == []


def test_a_vendor_that_was_mended_is_tried_with_one_node_and_then_all() -> None:
    story = never_agree(nodes=6).play(1)
    story.made = lambda _: None
    before = story.bought
    story.play(12)
    assert {node.outdated for node in story.nodes.values()} == {""}
    assert story.bought - before <= 6
    assert story.group.renewals.get("drifted", GroupRenewal()).times == 0


def test_a_successor_that_its_vendor_calls_old_rests_the_age() -> None:
    def made(node: StoryNode) -> None:
        node.born = node.created - 40 * DAY

    story = DayOfLife(AGE, 2, made=made).play(24)
    assert story.bought <= 4
    assert story.notes("RenewalRests") == ["is older than maxNodeAge by its vendor's word"]


def test_nodes_that_grow_old_again_are_renewed_again() -> None:
    lifecycle = msgspec.structs.replace(AGE, max_node_age=6 * HOUR)
    story = DayOfLife(lifecycle, 2).play(24)
    assert story.notes("RenewalRests") == []
    assert 6 <= story.bought <= 8


def poisoned(node: StoryNode, pods: list[StoryPod]) -> bool:
    del node
    return any(pod.owner == "app-old-0" for pod in pods)


def test_a_pod_that_makes_each_of_its_nodes_sick_costs_few_nodes() -> None:
    story = DayOfLife(REPAIR, 2, sickens=poisoned).play(24)
    assert story.bought <= 6
    [detail] = story.notes("RenewalRests")
    assert detail.startswith("fell sick as well (KernelDeadlock=True); pods of default/")
    assert detail.endswith("app-old-0 ran on both")


def test_a_pod_that_makes_its_nodes_sick_costs_few_of_a_full_group() -> None:
    story = DayOfLife(REPAIR, 2, sickens=poisoned, group={"max": 2}).play(24)
    assert story.bought <= 6


def rests_of_repair(story: DayOfLife) -> int:
    group = story.memory.groups.get("g", GroupMemory())
    return group.renewals.get("repair", GroupRenewal()).times


def play_until_rest(story: DayOfLife, times: int, passes: int = 60) -> None:
    """Plays until the group's repairs rest for the nth time in a row."""
    for _ in range(passes):
        if rests_of_repair(story) == times:
            return
        story.step()
    raise AssertionError(f"no rest {times} within {passes} passes")


@each_row("most", [3, 2])
def test_a_retry_ends_a_rest_of_repairs_for_one_node_and_the_next_one_is_longer(most: int) -> None:
    story = DayOfLife(REPAIR, 2, sickens=poisoned, group={"max": most})
    play_until_rest(story, 1)
    bought = story.bought
    for times, hours in ((2, 2), (3, 4), (4, 8)):
        story.step()
        assert story.bought == bought, "it rests"
        retry(story)
        play_until_rest(story, times)
        bought += 1
        assert story.bought == bought
        assert hours - 0.5 < until(story, "repair") <= hours
        [detail] = story.notes("RenewalRests")
        assert "fell sick as well" in detail


def test_a_retry_after_the_cause_of_a_rest_was_removed_repairs_and_rests_no_more() -> None:
    story = DayOfLife(REPAIR, 2, sickens=poisoned)
    play_until_rest(story, 1)
    sick = next(node.name for node in story.nodes.values() if node.sick_since)
    story.sickens = lambda node, _: node.name == sick
    retry(story)
    story.said.clear()
    story.play(3)
    assert sick not in story.nodes
    assert story.notes("RenewalRests") == []
    story.play(26)
    assert rests_of_repair(story) == 0


def test_nodes_that_fall_sick_whatever_runs_there_cost_few() -> None:
    story = DayOfLife(
        REPAIR, 2, sickens=lambda node, _: node.name == "old-0" or node.name.startswith("new")
    ).play(24)
    assert story.bought <= 6


def test_a_successor_that_stays_sound_rests_nothing() -> None:
    story = DayOfLife(REPAIR, 3, sickens=lambda node, _: node.name.startswith("old")).play(24)
    assert (story.bought, story.notes("RenewalRests")) == (3, [])


def test_another_node_that_falls_sick_by_itself_is_repaired_at_once() -> None:
    story = DayOfLife(REPAIR, 3, sickens=lambda node, _: node.name == "old-0").play(2)
    story.sickens = lambda node, _: node.name == "old-1"
    story.play(1)
    assert set(story.nodes) == {"old-2", "new-001", "new-002"}


def test_a_rest_that_a_wrong_clock_wrote_ends_within_a_day() -> None:
    story = never_agree().play(1)
    far = msgspec.structs.replace(story.group.renewals["drifted"], until=story.now + 1000 * DAY)
    group = msgspec.structs.replace(story.group, renewals={"drifted": far})
    story.memory = msgspec.structs.replace(story.memory, groups={"g": group})
    story.step()
    assert until(story) <= 24.0


@each_row(
    ("answer", "fields"),
    [
        ("scaling configuration asc-1, the group's is asc-2", {"scaling", "group's"}),
        ("flavour a, new nodes have b, AZ x, new nodes have y", {"flavour", "nodes", "az"}),
        ("a spot server, the group's are not", {"spot", "group's"}),
        ("", set()),
    ],
)
def test_the_fields_of_an_answer_are_its_first_words(answer: str, fields: set[str]) -> None:
    assert fields_of(answer) == fields


def test_old_empty_node_whose_successor_has_no_room_for_daemons_says_so() -> None:
    build = cluster().node("a", "4", "16Gi", group="g", created=OLD_NODE)
    build.daemonset("agent", "5", priority_class="system-node-critical")
    build.group("g", min=1, template=built("new", "4", "16Gi"))
    result = decide(build)
    assert (result.goes, result.bought) == ({}, {})
    held = result.plan.lifecycle[0].held
    assert held is not None
    assert sentence(held).endswith("(those that each node has: no group fits)")
