from __future__ import annotations

from typing import Any

from chalicelib.kube.errors import Unavailable
from chalicelib.model.operation import OperationKind, OperationState, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.record.event_dedup import APART
from chalicelib.record.operation_events import ENDS, triggered
from chalicelib.store.errors import StoreUnavailable
from tests.cases import each_row
from tests.unit.record.support import NOW, RecordFixture, ended

STATUS = "cluster-autoscaler-status"
TARGETS = (RemovalTarget("n1", "i-1", evict=("a/p",)), RemovalTarget("n2", "i-2"))


def test_a_growth_is_told_to_its_pods_and_on_the_status_as_upstream_does() -> None:
    scene = RecordFixture()
    grown = ended(OperationKind.SCALE_UP, from_size=1, to_size=3, pods=("a/p", "a/q"))
    scene.ends(grown, Succeeded({"from": 1, "to": 3}), largest=5)
    words = "pod triggered scale-up: [{g 1->3 (max: 5)}]"
    assert scene.told("Pod") == [("p", "TriggeredScaleUp", "Normal", words), ("q", "TriggeredScaleUp", "Normal", words)]
    assert scene.told("ConfigMap") == [
        (STATUS, "ScaledUpGroup", "Normal", "Scale-up: group g size set to 3 instead of 1 (max: 5)")
    ]
    assert scene.values("scaled_up_nodes_total") == {"": 2}
    assert scene.journal.book.counts == {"scaled_up_nodes_total": 2}


def test_an_unknown_maximum_is_left_out() -> None:
    assert triggered("g", 1, 3, None) == "pod triggered scale-up: [{g 1->3}]"


def test_CA_8817_a_failed_growth_is_told_to_the_pods_that_wanted_it_with_the_vendors_words() -> None:
    scene = RecordFixture()
    failed = Failed("OutOfStock", "none left", code="STOCK")
    scene.ends(ended(OperationKind.SCALE_UP, OperationState.FAILED, pods=("a/p",)), failed)
    facts = scene.journal.entries[0].facts
    assert (facts["state"], facts["class"], facts["code"], facts["message"], facts["seconds"]) == (
        "failed",
        "OutOfStock",
        "STOCK",
        "none left",
        30.0,
    )
    words = "Scale-up failed for group g: OutOfStock.STOCK: none left"
    assert scene.told() == [
        (STATUS, "FailedToScaleUpGroup", "Warning", words),
        ("p", "FailedToScaleUpGroup", "Warning", words),
    ]
    assert scene.values("failed_scale_ups_total") == {"OutOfStock": 1}
    assert (scene.lines[0]["code"], scene.lines[0]["node_group"]) == ("STOCK", "g")


def test_a_class_that_nobody_knows_is_counted_as_other_and_makes_no_series_of_its_own() -> None:
    scene = RecordFixture()
    for code in range(20):
        scene.ends(ended(OperationKind.SCALE_UP, OperationState.FAILED), Failed(f"Odd{code}", "x", code=f"c{code}"))
    assert scene.journal.book.counts == {
        "failed_operations_total;kind=grow": 20,
        "failed_scale_ups_total;reason=Other": 20,
    }


def test_what_we_called_off_ourselves_counts_as_no_failure() -> None:
    scene = RecordFixture()
    scene.ends(
        ended(OperationKind.SCALE_UP, OperationState.ABANDONED), Failed("Abandoned", "the cluster's mode is shadow")
    )
    assert (scene.journal.book.counts, scene.lines) == ({}, [])


@each_row(
    ("evict", "words"),
    [(("a/p",), "failed to drain and delete node"), ((), "failed to delete empty node")],
)
def test_a_failed_removal_is_a_warning_on_the_node(evict: tuple[str, ...], words: str) -> None:
    scene = RecordFixture()
    operation = ended(
        OperationKind.DELETE_NODES, OperationState.FAILED, targets=(RemovalTarget("n1", "i-1", evict=evict),)
    )
    scene.ends(operation, Failed("EvictionBlocked", "pod a/p cannot be evicted"))
    assert scene.told() == [("n1", "ScaleDownFailed", "Warning", f"{words}: pod a/p cannot be evicted")]
    assert scene.values("failed_operations_total") == {"remove": 1}
    assert len(scene.lines) == 1


def test_a_removal_that_fails_again_within_five_minutes_is_not_told_again() -> None:
    scene = RecordFixture()
    operation = ended(OperationKind.DELETE_NODES, OperationState.FAILED, targets=(RemovalTarget("n1", "i-1"),))
    for later in (0.0, 200.0, APART):
        scene.now = NOW + later
        scene.ends(operation, Failed("EvictionBlocked", f"pod a/p, attempt at {later}"))
    assert len(scene.told("Node")) == 2


def test_of_several_nodes_each_is_told_its_own_end() -> None:
    scene = RecordFixture()
    scene.ends(
        ended(OperationKind.DELETE_NODES, targets=TARGETS),
        Succeeded({"removed": 1, "nodes": "n1", "kept n2": "pod a/p holds it"}),
    )
    assert scene.told("Node") == [
        ("n1", "ScaleDown", "Normal", "nodes removed by cluster autoscaler"),
        ("n2", "ScaleDownFailed", "Warning", "failed to delete empty node: pod a/p holds it"),
    ]
    assert scene.told("ConfigMap") == [(STATUS, "ScaleDown", "Normal", "Scale-down: node n1 removed with drain")]
    assert scene.values("scaled_down_nodes_total") == {"underutilized": 1}


@each_row(("unready", "reason"), [((), "empty"), (("n2",), "unready")])
def test_an_empty_node_and_an_unready_one_are_counted_as_such(unready: tuple[str, ...], reason: str) -> None:
    scene = RecordFixture()
    scene.ends(
        ended(OperationKind.DELETE_NODES, targets=TARGETS[1:]), Succeeded({"removed": 1}), unready=frozenset(unready)
    )
    assert scene.told("ConfigMap") == [(STATUS, "ScaleDownEmpty", "Normal", "Scale-down: empty node n2 removed")]
    assert scene.values("scaled_down_nodes_total") == {reason: 1}


def test_instances_that_never_became_nodes_are_told_by_name() -> None:
    scene = RecordFixture()
    scene.ends(
        ended(OperationKind.DELETE_INSTANCES, targets=(RemovalTarget("", "i-1"), RemovalTarget("", "i-2"))), Succeeded()
    )
    assert scene.told() == [
        (STATUS, "DeleteUnregistered", "Normal", "Removed unregistered node i-1"),
        (STATUS, "DeleteUnregistered", "Normal", "Removed unregistered node i-2"),
    ]
    assert scene.journal.book.counts == {"old_unregistered_nodes_removed_count": 2}


@each_row(
    ("kind", "reason", "words"),
    [
        (OperationKind.DELETE_INSTANCES, "DeleteUnregisteredFailed", "Failed to remove node i-1: Transient: no answer"),
        (
            OperationKind.DECREASE_TARGET,
            "FailedToRevertScaleUp",
            "Failed to decrease target size for group g after scale-up timeout: Transient: no answer",
        ),
    ],
)
def test_repairs_that_fail_are_warnings_on_the_status(kind: OperationKind, reason: str, words: str) -> None:
    scene = RecordFixture()
    scene.ends(
        ended(kind, OperationState.FAILED, targets=(RemovalTarget("", "i-1"),)), Failed("Transient", "no answer")
    )
    assert scene.told() == [(STATUS, reason, "Warning", words)]
    assert scene.values("errors_total") == {"cloudProviderError": 1}


def test_there_is_an_event_for_every_end_but_a_target_lowered() -> None:
    told = {(kind, outcome) for _, kind, outcome, _ in ENDS}
    assert {(kind, outcome) for kind in OperationKind for outcome in (Succeeded, Failed)} - told == {
        (OperationKind.DECREASE_TARGET, Succeeded)
    }


# -- steps


def removal(step: str, **parts: Any) -> Any:
    return ended(OperationKind.DELETE_NODES, OperationState.WAITING, step=step, targets=TARGETS, **parts)


def test_a_marked_node_is_told_and_its_end_is_another_fact() -> None:
    scene = RecordFixture()
    scene.steps(removal("taint"), InProgress(5.0, "recheck"))
    scene.ends(removal("confirm"), Succeeded({"removed": 2}))
    assert [words for name, _, _, words in scene.told("Node") if name == "n1"] == [
        "marked the node as toBeDeleted/unschedulable",
        "nodes removed by cluster autoscaler",
    ]


def test_a_node_that_could_not_be_marked_is_a_warning_that_says_why() -> None:
    scene = RecordFixture()
    scene.steps(removal("taint"), InProgress(0.0, "undo"), "Forbidden: nodes is forbidden")
    assert scene.told("Node")[0] == (
        "n1",
        "ScaleDownFailed",
        "Warning",
        "failed to mark the node as toBeDeleted/unschedulable: Forbidden: nodes is forbidden",
    )


def test_evicted_pods_are_told_and_counted() -> None:
    scene = RecordFixture()
    scene.steps(removal("evict"), InProgress(5.0, "evict", evicted=("a/p", "a/q"), refused=("a/r",)))
    assert scene.told() == [
        ("p", "ScaleDown", "Normal", "deleting pod for node scale down"),
        ("q", "ScaleDown", "Normal", "deleting pod for node scale down"),
    ]
    assert scene.journal.book.counts == {"evicted_pods_total;eviction_result=succeeded": 2}


def test_pods_that_were_refused_are_told_when_the_drain_gives_up() -> None:
    scene = RecordFixture()
    for step in ("evict", "evict", "undo"):
        scene.steps(removal("evict"), InProgress(10.0, step, refused=("a/r",)))
    assert scene.told() == [("r", "ScaleDownFailed", "Warning", "failed to delete pod for ScaleDown")]
    assert scene.values("evicted_pods_total") == {"failed": 1}


@each_row("step", ["look", "gone", "delay", "poll"])
def test_a_step_that_nobody_is_told_of_neither_reads_nor_writes(step: str) -> None:
    scene = RecordFixture()
    scene.steps(removal(step), InProgress(5.0, "poll"))
    assert (scene.journal.reads, scene.journal.writes, scene.wall.calls, scene.lines) == (0, 0, [], [])


# -- the ledger


def test_counters_and_events_of_an_end_are_one_read_and_one_write_beside_the_entry() -> None:
    scene = RecordFixture()
    scene.ends(ended(OperationKind.SCALE_UP, from_size=1, to_size=3, pods=("a/p",)), Succeeded())
    assert (scene.journal.reads, scene.journal.writes) == (1, 2)


def test_executors_that_write_at_the_same_time_lose_no_count_and_no_event() -> None:
    scene = RecordFixture()
    scene.journal.overtaken = 99
    scene.ends(ended(OperationKind.SCALE_UP, from_size=1, to_size=3, pods=("a/p",)), Succeeded())
    assert scene.journal.book.counts == {"scaled_up_nodes_total": 2}
    assert len(scene.told()) == 2


def test_a_ledger_that_fails_costs_counts_but_no_event() -> None:
    scene = RecordFixture()
    entries = scene.journal.entries
    scene.journal.append = lambda cluster, entry: entries.append(entry)  # type: ignore[method-assign]
    scene.journal.error = StoreUnavailable("down")
    answer = scene.ends(ended(OperationKind.SCALE_UP, from_size=1, to_size=3, pods=("a/p",)), Succeeded())
    assert answer == "ledger: StoreUnavailable: down"
    assert len(scene.told()) == 2


def test_an_api_that_does_not_answer_costs_the_event_and_nothing_else() -> None:
    scene = RecordFixture()
    scene.wall.errors["*"] = Unavailable("no answer")
    assert scene.ends(ended(OperationKind.SCALE_UP, pods=("a/p",)), Succeeded()) == "events: Unavailable: no answer"
    assert len(scene.journal.entries) == 1


def test_a_cluster_that_is_not_to_be_touched_gets_no_event_but_is_counted() -> None:
    scene = RecordFixture(wall=False)
    scene.ends(ended(OperationKind.SCALE_UP, from_size=1, to_size=2, pods=("a/p",)), Succeeded())
    assert (scene.told(), scene.journal.book.counts) == ([], {"scaled_up_nodes_total": 1})


def test_without_a_status_there_is_nothing_to_put_its_events_on() -> None:
    scene = RecordFixture(write_status_configmap=False)
    scene.ends(ended(OperationKind.SCALE_UP, from_size=1, to_size=3, pods=("a/p",)), Succeeded())
    assert [name for name, *_ in scene.told()] == ["p"]
