from __future__ import annotations

import msgspec

from chalicelib.cluster.errors import Forbidden
from chalicelib.journal.events import APART, PODS_TOLD
from chalicelib.model.plan import (
    Health,
    NodeVerdict,
    Plan,
    Removal,
    Repair,
    ScaleUp,
    UnschedulablePods,
)
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.store.errors import StoreUnavailable
from tests.cases import each_row
from tests.unit.journal.support import NOW, RecordFixture, plan, refused


def waiting(at: float, since: float) -> Plan:
    """A node that has not been unneeded for long enough."""
    reason = Reason.of(ReasonCode.NOT_UNNEEDED_LONG_ENOUGH, since=since, needs=600)
    return plan(at, unneeded=("n1",), unremovable=(NodeVerdict("n1", reason),))


def test_record_repeated_decision_is_one_journal_entry() -> None:
    scene = RecordFixture()
    for second in range(0, 600, 10):
        scene.passes(waiting(NOW + second, since=NOW))
    assert (len(scene.journal.entries), scene.journal.reads, scene.journal.writes) == (1, 0, 1)


def test_record_pass_dying_before_releasing_the_lease_adds_at_most_one_entry() -> None:
    scene = RecordFixture()
    scene.passes(waiting(NOW, since=NOW))
    scene.decision = ""  # what the dead pass would have left
    for second in (10, 20, 30):
        scene.passes(waiting(NOW + second, since=NOW))
    assert len(scene.journal.entries) == 2


@each_row(
    "other",
    [
        plan(NOW + 10, scale_ups=(ScaleUp("g", "clusterapi", 1, 2, 5, ("a/p",)),)),
        plan(NOW + 10, unschedulable=(refused("a/p", "a/q"),)),
        plan(NOW + 10, unschedulable=(refused("a/p", groups=3),)),
        plan(NOW + 10, removals=(Removal("n1", "g", "empty"),)),
        plan(NOW + 10, unneeded=("n1",)),
        plan(NOW + 10, health=Health(healthy=False)),
        plan(NOW + 10, notes=(Reason.of(ReasonCode.IN_COOLDOWN, which="x", until=1.0),)),
        plan(NOW + 10, paused=Reason.of(ReasonCode.IN_COOLDOWN, which="x", until=1.0)),
        plan(
            NOW + 10,
            repairs=(Repair("g", "shrink", 3, 2, Reason.of(ReasonCode.SIZE_ABOVE_REALITY)),),
        ),
    ],
)
def test_record_each_changed_decision_and_its_reversal_is_a_new_entry(other: Plan) -> None:
    scene = RecordFixture()
    first = plan(unschedulable=(refused("a/p"),))
    for each in (first, other, msgspec.structs.replace(first, at=NOW + 20)):
        scene.passes(each)
    assert len(scene.journal.entries) == 3


def test_record_entry_contains_counts_and_the_complete_plan() -> None:
    scene = RecordFixture()
    decided = plan(unschedulable=(refused("a/p", "a/q"),), health=Health(registered=7))
    scene.passes(decided)
    entry = scene.journal.entries[0]
    assert (entry.kind, entry.plan, entry.facts["unschedulable"], entry.facts["nodes"]) == (
        "plan",
        decided.id,
        2,
        7,
    )
    assert msgspec.json.decode(entry.body, type=Plan) == decided


def test_record_journal_failure_is_reported_and_retried_in_the_next_pass() -> None:
    scene = RecordFixture()
    scene.journal.error = StoreUnavailable("down")
    scene.passes(plan(unschedulable=(refused("a/p"),)))
    assert scene.trouble == "journal: StoreUnavailable: down"
    assert len(scene.reported("Pod")) == 1
    scene.journal.error = None
    scene.passes(plan(NOW + 10, unschedulable=(refused("a/p"),)))
    assert len(scene.journal.entries) == 1


# -- events about pods


def test_event_of_pods_without_a_place_names_the_nearest_group_and_counts_others() -> None:
    scene = RecordFixture()
    scene.passes(plan(unschedulable=(refused("a/p", groups=4),)))
    [event] = [event for event in scene.wall.posted if event.kind == "Pod"]
    assert (event.namespace, event.name, event.uid, event.reason) == (
        "a",
        "p",
        "uid-p",
        "NotTriggerScaleUp",
    )
    assert event.message == (
        "pod didn't trigger scale-up: g1, g2, g3: max node group size reached (max 3); "
        "1 other group: too little cpu 1"
    )


def test_record_full_cluster_is_reported_on_the_pod_and_on_the_status() -> None:
    scene = RecordFixture(max_nodes_total=9)
    full: dict[str, tuple[Reason, ...]] = {
        group: (Reason.of(ReasonCode.MAX_NODES_TOTAL, max=9),) for group in ("g", "h")
    }
    scene.passes(plan(unschedulable=(UnschedulablePods(("a/p",), full),)))
    full_line = "g, h: max total nodes in cluster reached (maxNodesTotal 9)"
    assert scene.reported("Pod") == [
        (
            "p",
            "NotTriggerScaleUp",
            "Normal",
            f"pod didn't trigger scale-up: {full_line}",
        )
    ]
    assert scene.reported("ConfigMap") == [
        (
            "cluster-autoscaler-status",
            "MaxNodesTotalReached",
            "Warning",
            "Max total nodes in cluster reached: 9",
        )
    ]


def test_record_pod_event_repeats_after_five_minutes_whatever_its_words() -> None:
    scene = RecordFixture()
    for at in (0.0, 10.0, APART - 1):
        scene.passes(plan(NOW + at, unschedulable=(refused("a/p", groups=2 + int(at)),)))
    assert len(scene.reported("Pod")) == 1
    scene.passes(plan(NOW + APART, unschedulable=(refused("a/p"),)))
    assert len(scene.reported("Pod")) == 2


def test_record_new_pod_is_reported_without_repeating_earlier_ones() -> None:
    scene = RecordFixture()
    scene.passes(plan(unschedulable=(refused("a/p"),)))
    scene.passes(plan(NOW + 10, unschedulable=(refused("a/p", "a/q"),)))
    assert [name for name, *_ in scene.reported("Pod")] == ["p", "q"]


def test_record_duplicate_events_are_posted_if_the_option_asks() -> None:
    scene = RecordFixture(record_duplicated_events=True)
    for at in range(3):
        scene.passes(plan(NOW + at, unschedulable=(refused("a/p"),)))
    assert len(scene.reported("Pod")) == 3


def test_record_storm_of_pods_is_fifty_events_and_no_extra_row() -> None:
    scene = RecordFixture()
    many = tuple(refused(*(f"a/p-{n:03d}-{m:02d}" for m in range(20))) for n in range(50))
    for at in (0, 10, 20):
        scene.passes(plan(NOW + at, unschedulable=many))
    assert len(scene.reported("Pod")) == PODS_TOLD
    assert (scene.journal.reads, scene.journal.writes) == (0, 1)  # the decision's own entry
    assert len(scene.left.told) == 10 * PODS_TOLD


def test_record_pod_that_vanished_is_skipped() -> None:
    scene = RecordFixture()
    scene.wall.gone.add("p")
    scene.passes(plan(unschedulable=(refused("a/p", "a/q"),)))
    assert scene.trouble == ""
    assert [name for name, *_ in scene.reported("Pod")] == ["q"]


def test_record_cluster_refusing_events_is_called_once_per_pass() -> None:
    scene = RecordFixture()
    scene.wall.errors["*"] = Forbidden("events is forbidden")
    scene.passes(plan(unschedulable=(refused("a/p", "a/q", "a/r"),)))
    assert scene.trouble == "events: Forbidden: events is forbidden"
    assert scene.wall.calls.count("post") == 1
    assert len(scene.journal.entries) == 1


def test_record_pod_that_refuses_events_does_not_block_other_events() -> None:
    scene = RecordFixture()
    scene.wall.errors["p"] = Forbidden("namespace a is being terminated")
    for at in (0, 10):
        scene.passes(plan(NOW + at, unschedulable=(refused("a/p", "b/q"),)))
    assert [name for name, *_ in scene.reported("Pod")] == ["q"]


def test_record_slow_cluster_gets_few_events_and_the_pass_ends_in_time() -> None:
    scene = RecordFixture()
    post = scene.wall.post

    def slow(event: object, now: float) -> None:
        scene.now += 4.0
        post(event, now)  # type: ignore[arg-type]

    scene.wall.post = slow  # type: ignore[method-assign]
    scene.passes(plan(unschedulable=(refused(*(f"a/p{n}" for n in range(9))),)))
    assert scene.trouble == "events: no time left after 4 events"
    scene.passes(plan(NOW + 60, unschedulable=(refused(*(f"a/p{n}" for n in range(9))),)))
    assert len(scene.reported("Pod")) == 8


def test_record_plan_without_cluster_writes_still_emits_metrics() -> None:
    scene = RecordFixture(wall=False)
    scene.passes(plan(unschedulable=(refused("a/p"),)))
    assert scene.wall.calls == []
    assert len(scene.journal.entries) == 1
    assert scene.values("unschedulable_pods_count") == {
        "unschedulable": 1,
        "scheduler_unprocessed": 0,
    }
