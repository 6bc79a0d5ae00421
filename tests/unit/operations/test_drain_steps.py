from __future__ import annotations

from chalicelib.kube import errors as kube
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.model.policy import Options
from chalicelib.operations.registry import give_up
from chalicelib.operations.steps.drain import EVICTIONS_PER_STEP
from tests.cases import each_row
from tests.unit.operations.harness import START, Story, remove
from tests.unit.operations.test_removal_steps import kept


def drained(story: Story, pods: int, **fields: object) -> Operation:
    """One node with that many pods, planned to be drained."""
    story.group(1)
    keys = tuple(f"default/p-{n:02}" for n in range(pods))
    for key in keys:
        story.cluster.add_pod(key, "g-1", **fields)
    return remove("g-1", evict={"g-1": keys})


def evicted(story: Story) -> list[str]:
    return [name for verb, name in story.cluster.calls if verb == "evict"]


def test_drain_evicts_and_waits_for_pods_before_the_machine_is_deleted() -> None:
    story = Story()
    operation = story.play_until(drained(story, 3), "gone")
    assert len(evicted(story)) == 3
    assert story.provider.deleted == []
    assert isinstance(story.play(operation), Succeeded)
    assert story.provider.deleted == ["g-1"]
    assert story.now == START + 5.0 + 30.0 + 2.0  # the poll after the last of them must have ended


@each_row(("own", "most", "given"), [(30.0, 600, 30.0), (900.0, 600, 600.0), (5.0, 600, 5.0)])
def test_drain_grace_is_the_pods_own_up_to_the_option(own: float, most: int, given: float) -> None:
    story = Story(options=Options(max_graceful_termination_sec=most))
    operation = story.play_until(drained(story, 1, grace=own), "gone")
    assert story.cluster.pods()[0].deleted == story.now + given
    assert isinstance(story.play(operation), Succeeded)


def test_drain_blocked_by_a_budget_returns_the_node_and_names_the_budget() -> None:
    story = Story()
    operation = drained(story, 3)
    story.cluster.add_budget("web", ["default/p-01"], room=0)
    outcome = story.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "EvictionBlocked"
    assert outcome.message == (
        "node g-1: pod default/p-01 cannot be evicted: The disruption budget web needs all its pods (tried for 120 s)"
    )
    assert kept(story, "g-1")
    assert story.provider.deleted == []
    assert evicted(story).count("default/p-01") == 13  # at once, then every 10 s for two minutes


def test_drain_deadline_before_the_eviction_limit_names_the_budget() -> None:
    story = Story()
    operation = drained(story, 1)
    story.cluster.add_budget("web", ["default/p-00"], room=0)
    operation = operation.with_spec(deadline=START + 60.0)
    outcome = story.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "DeadlineExceeded"
    assert "disruption budget web" in outcome.message
    assert kept(story, "g-1")


def test_drain_succeeds_once_the_budget_has_room() -> None:
    story = Story()
    operation = drained(story, 2)
    budget = story.cluster.add_budget("web", ["default/p-00", "default/p-01"], room=1)
    operation = story.play_until(operation, "evict")
    for _ in range(3):
        operation, _ = story.step(operation)
    budget.room = 1
    assert isinstance(story.play(operation), Succeeded)


def test_drain_of_fifty_pods_takes_several_short_steps() -> None:
    story = Story()
    operation = drained(story, 50)
    before, most = 0, 0
    while not story.provider.deleted:
        operation, _ = story.step(operation)
        most = max(most, len(evicted(story)) - before)
        before = len(evicted(story))
    assert most == EVICTIONS_PER_STEP
    assert len(evicted(story)) == 50
    assert [step for step, _ in story.steps].count("evict") == 3


def test_drain_refused_evictions_do_not_delay_other_pods() -> None:
    story = Story()
    operation = drained(story, 30)
    first = [f"default/p-{n:02}" for n in range(EVICTIONS_PER_STEP + 2)]
    story.cluster.add_budget("web", first, room=0)
    operation = story.play_until(operation, "evict")
    story.step(story.step(operation)[0])
    assert "default/p-29" in evicted(story)


def test_drain_api_error_for_one_pod_counts_as_a_refusal_of_that_pod() -> None:
    story = Story()
    operation = drained(story, 2)
    story.cluster.fail_next("evict", kube.Unavailable("more than one PodDisruptionBudget", status=500))
    assert isinstance(story.play(operation), Succeeded)


def test_drain_pod_that_never_ends_keeps_the_node() -> None:
    story = Story()
    operation = drained(story, 2)
    story.cluster.stuck.add("default/p-01")
    outcome = story.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "PodNotGone"
    assert "default/p-01" in outcome.message
    assert kept(story, "g-1")


def test_drain_pod_scheduled_during_the_drain_keeps_the_node() -> None:
    story = Story()
    operation = story.play_until(drained(story, 2), "gone")
    story.cluster.add_pod("default/stranger", "g-1")
    outcome = story.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.message == "node g-1: pod default/stranger was bound to it during the drain"
    assert kept(story, "g-1")


@each_row(
    ("options", "annotation", "pods", "goes"),
    [
        (Options(), "", 1, True),  # occupied: evicted by default
        (Options(daemonset_eviction_for_occupied_nodes=False), "", 1, False),
        (Options(), "false", 1, False),  # the annotation overrides
        (Options(), "", 0, False),  # empty: not evicted by default
        (Options(daemonset_eviction_for_empty_nodes=True), "", 0, True),
        (Options(), "true", 0, True),
    ],
)
def test_drain_daemonset_pods_follow_the_options(options: Options, annotation: str, pods: int, goes: bool) -> None:
    story = Story(options=options)
    operation = drained(story, pods)
    story.cluster.add_pod("kube-system/ds", "g-1", daemonset=True, enable_ds_eviction=annotation)
    assert isinstance(story.play(operation), Succeeded)
    assert ("kube-system/ds" in evicted(story)) == goes


def test_drain_refused_daemonset_eviction_delays_nothing() -> None:
    story = Story()
    operation = drained(story, 1)
    story.cluster.add_pod("kube-system/ds", "g-1", daemonset=True)
    story.cluster.add_budget("ds", ["kube-system/ds"], room=0)
    assert isinstance(story.play(operation), Succeeded)
    assert evicted(story).count("kube-system/ds") == 1


def test_cancelled_drain_is_rolled_back() -> None:
    story = Story()
    operation = story.play_until(drained(story, 3), "gone")
    outcome = give_up(operation, story.world(), story.now, "Abandoned", "the policy is gone")
    assert isinstance(outcome, InProgress)
    operation = operation.with_status(step=outcome.step, data=outcome.data)
    ended = story.play(operation)
    assert isinstance(ended, Failed)
    assert ended.error_class == "Abandoned"
    assert kept(story, "g-1")


def test_drain_cancelled_before_any_change_just_ends() -> None:
    story = Story()
    operation = drained(story, 3)
    assert give_up(operation, story.world(), story.now, "Abandoned", "off") == Failed("Abandoned", "off")
    assert story.cluster.calls == []
