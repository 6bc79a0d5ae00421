from __future__ import annotations

import json

import msgspec
import pytest

from chalicelib.kube.errors import Forbidden
from chalicelib.model.plan import Health, NodeVerdict, Plan, Removal, ScaleUp
from chalicelib.model.reason import Code, Reason
from chalicelib.record.record import record_plan
from tests.unit.record.support import NOW, Scene, plan, refused


def waiting(at: float, since: float) -> Plan:
    """A node that is not unneeded long enough yet."""
    reason = Reason.of(Code.NOT_UNNEEDED_LONG_ENOUGH, since=since, needs=600)
    return plan(at, unneeded=("n1",), unremovable=(NodeVerdict("n1", reason),))


def test_a_decision_is_one_entry_however_often_it_is_taken() -> None:
    scene = Scene()
    for second in range(0, 600, 10):
        record_plan(waiting(NOW + second, since=NOW), scene.recorder, seconds=0.1)
    assert len(scene.journal.entries) == 1


def test_a_quiet_pass_writes_nothing() -> None:
    scene = Scene()
    record_plan(plan(unschedulable=(refused("a/p"),)), scene.recorder, seconds=0.1)
    entries, posted, used = len(scene.journal.entries), len(scene.wall.posted), set(scene.used)
    record_plan(plan(NOW + 10, unschedulable=(refused("a/p"),)), scene.recorder, seconds=0.1)
    assert (len(scene.journal.entries), len(scene.wall.posted), scene.used) == (entries, posted, used)


@pytest.mark.parametrize(
    "other",
    [
        plan(NOW + 10, scale_ups=(ScaleUp("g", "clusterapi", 1, 2, 5, ("a/p",)),)),
        plan(NOW + 10, unschedulable=(refused("a/p", "a/q"),)),
        plan(NOW + 10, unschedulable=(refused("a/p", groups=3),)),
        plan(NOW + 10, removals=(Removal("n1", "g", "empty"),)),
        plan(NOW + 10, unneeded=("n1",)),
        plan(NOW + 10, health=Health(healthy=False)),
        plan(NOW + 10, notes=(Reason.of(Code.IN_COOLDOWN, which="x", until=1.0),)),
    ],
)
def test_any_other_decision_is_a_new_entry_and_so_is_the_way_back(other: Plan) -> None:
    scene = Scene()
    first = plan(unschedulable=(refused("a/p"),))
    for each in (first, other, msgspec.structs.replace(first, at=NOW + 20)):
        record_plan(each, scene.recorder, seconds=0.1)
    assert len(scene.journal.entries) == 3


def test_the_entry_holds_counts_and_the_whole_plan() -> None:
    scene = Scene()
    decided = plan(unschedulable=(refused("a/p", "a/q"),), health=Health(registered=7))
    record_plan(decided, scene.recorder, seconds=0.1)
    entry = scene.journal.entries[0]
    assert (entry.kind, entry.plan, entry.facts["unschedulable"], entry.facts["nodes"]) == ("plan", decided.id, 2, 7)
    assert msgspec.json.decode(entry.body, type=Plan) == decided


def test_a_pod_that_fits_nowhere_is_told_how_many_groups_have_which_reason() -> None:
    scene = Scene()
    record_plan(plan(unschedulable=(refused("a/p", groups=4),)), scene.recorder, seconds=0.1)
    event = scene.wall.posted[0]
    assert (event.namespace, event.name, event.uid, event.reason) == ("a", "p", "uid-p", "NotTriggerScaleUp")
    assert event.message == "pod didn't trigger scale-up: 3 max node group size reached, 1 Insufficient cpu"


def test_a_changed_reason_is_told_at_once_an_unchanged_one_is_not_repeated() -> None:
    scene = Scene()
    for at, groups in enumerate((2, 2, 3)):
        record_plan(plan(NOW + at, unschedulable=(refused("a/p", groups=groups),)), scene.recorder, seconds=0.1)
    assert len(scene.wall.posted) == 2


def test_duplicates_are_told_where_the_option_asks_for_them() -> None:
    scene = Scene(repeat_events=True)
    for at in range(3):
        record_plan(plan(NOW + at, unschedulable=(refused("a/p"),)), scene.recorder, seconds=0.1)
    assert len(scene.wall.posted) == 3


def test_no_more_than_fifty_pods_are_told_in_one_pass() -> None:
    scene = Scene()
    many = tuple(refused(*(f"a/p-{n}-{m}" for m in range(20))) for n in range(10))
    record_plan(plan(unschedulable=many), scene.recorder, seconds=0.1)
    assert len(scene.wall.posted) == 50


def test_a_pod_that_is_gone_meanwhile_is_passed_over() -> None:
    scene = Scene()
    scene.wall.gone.add("p")
    assert record_plan(plan(unschedulable=(refused("a/p", "a/q"),)), scene.recorder, seconds=0.1) == ""
    assert [event.name for event in scene.wall.posted] == ["q"]


def test_a_cluster_that_takes_no_events_is_said_and_stops_nothing() -> None:
    scene = Scene()
    scene.wall.error = Forbidden("events is forbidden")
    answer = record_plan(plan(unschedulable=(refused("a/p"),)), scene.recorder, seconds=0.1)
    assert answer == "Forbidden: events is forbidden"
    assert len(scene.journal.entries) == 1


def test_a_cluster_that_is_not_to_be_touched_gets_no_event() -> None:
    scene = Scene(events=None)
    record_plan(plan(unschedulable=(refused("a/p"),)), scene.recorder, seconds=0.1)
    assert scene.used == set()
    assert len(scene.journal.entries) == 1


def test_metrics_are_one_line_with_the_cluster_as_the_only_dimension() -> None:
    scene = Scene()
    decided = plan(unschedulable=(refused("a/p", "a/q"),), unneeded=("n1",), health=Health(registered=7, ready=6))
    record_plan(decided, scene.recorder, seconds=0.25)
    (line,) = (json.loads(line) for line in scene.lines)
    metrics = line["_aws"]["CloudWatchMetrics"][0]
    assert (metrics["Namespace"], metrics["Dimensions"]) == ("Outscaler", [["cluster"]])
    assert all(metric["Name"] in line for metric in metrics["Metrics"])
    assert line["_aws"]["Timestamp"] == int(NOW * 1000)
    assert line["cluster_autoscaler_unschedulable_pods_count"] == 2
    assert line["cluster_autoscaler_nodes_count"] == 7
    assert line["cluster_autoscaler_unneeded_nodes_count"] == 1
    assert line["cluster_autoscaler_function_duration_seconds"] == 0.25
    assert line["nodes_ready"] == "6"
