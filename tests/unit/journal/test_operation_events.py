from __future__ import annotations

from typing import Any

from chalicelib.cluster.errors import Unavailable
from chalicelib.journal.events import APART
from chalicelib.journal.operation_events import ENDS, triggered
from chalicelib.model.operation import OperationKind, OperationState, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.store.errors import StoreUnavailable
from tests.cases import each_row
from tests.unit.journal.support import NOW, RecordFixture, ended

STATUS = "cluster-autoscaler-status"
TARGETS = (RemovalTarget("n1", "i-1", evict=("a/p",)), RemovalTarget("n2", "i-2"))


def test_record_scale_up_is_reported_on_pods_and_status_as_upstream_does() -> None:
    scene = RecordFixture()
    grown = ended(OperationKind.SCALE_UP, from_size=1, to_size=3, pods=("a/p", "a/q"))
    scene.ends(grown, Succeeded({"from": 1, "to": 3}), largest=5)
    words = "pod triggered scale-up: [{g 1->3 (max: 5)}]"
    assert scene.reported("Pod") == [
        ("p", "TriggeredScaleUp", "Normal", words),
        ("q", "TriggeredScaleUp", "Normal", words),
    ]
    assert scene.reported("ConfigMap") == [
        (STATUS, "ScaledUpGroup", "Normal", "Scale-up: group g size set to 3 instead of 1 (max: 5)")
    ]
    assert scene.values("scaled_up_nodes_total") == {"": 2}
    assert scene.journal.book.counts == {"scaled_up_nodes_total": 2}


def test_record_scale_up_omits_an_unknown_maximum() -> None:
    assert triggered("g", 1, 3, None) == "pod triggered scale-up: [{g 1->3}]"


def test_record_failed_scale_up_is_reported_to_its_pods_in_the_vendors_words() -> None:
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
    assert scene.reported() == [
        (STATUS, "FailedToScaleUpGroup", "Warning", words),
        ("p", "FailedToScaleUpGroup", "Warning", words),
    ]
    assert scene.values("failed_scale_ups_total") == {"OutOfStock": 1}
    assert (scene.lines[0]["code"], scene.lines[0]["node_group"]) == ("STOCK", "g")


def test_record_unknown_error_class_is_counted_as_other_without_its_own_series() -> None:
    scene = RecordFixture()
    for code in range(20):
        scene.ends(
            ended(OperationKind.SCALE_UP, OperationState.FAILED),
            Failed(f"Odd{code}", "x", code=f"c{code}"),
        )
    assert scene.journal.book.counts == {
        "failed_operations_total;kind=grow": 20,
        "failed_scale_ups_total;reason=Other": 20,
    }


def test_record_cancelled_operation_is_not_counted_as_failure() -> None:
    scene = RecordFixture()
    scene.ends(
        ended(OperationKind.SCALE_UP, OperationState.ABANDONED),
        Failed("Abandoned", "the cluster's mode is shadow"),
    )
    assert (scene.journal.book.counts, scene.lines) == ({}, [])


@each_row(
    ("evict", "words"),
    [(("a/p",), "failed to drain and delete node"), ((), "failed to delete empty node")],
)
def test_record_failed_removal_is_a_warning_on_the_node(evict: tuple[str, ...], words: str) -> None:
    scene = RecordFixture()
    operation = ended(
        OperationKind.DELETE_NODES,
        OperationState.FAILED,
        targets=(RemovalTarget("n1", "i-1", evict=evict),),
    )
    scene.ends(operation, Failed("EvictionBlocked", "pod a/p cannot be evicted"))
    assert scene.reported() == [
        ("n1", "ScaleDownFailed", "Warning", f"{words}: pod a/p cannot be evicted")
    ]
    assert scene.values("failed_operations_total") == {"remove": 1}
    assert len(scene.lines) == 1


def test_record_removal_failing_again_within_five_minutes_is_not_repeated() -> None:
    scene = RecordFixture()
    operation = ended(
        OperationKind.DELETE_NODES, OperationState.FAILED, targets=(RemovalTarget("n1", "i-1"),)
    )
    for later in (0.0, 200.0, APART):
        scene.now = NOW + later
        scene.ends(operation, Failed("EvictionBlocked", f"pod a/p, attempt at {later}"))
    assert len(scene.reported("Node")) == 2


def test_record_each_of_several_nodes_gets_its_own_end() -> None:
    scene = RecordFixture()
    scene.ends(
        ended(OperationKind.DELETE_NODES, targets=TARGETS),
        Succeeded({"removed": 1, "nodes": "n1", "kept n2": "pod a/p holds it"}),
    )
    assert scene.reported("Node") == [
        ("n1", "ScaleDown", "Normal", "nodes removed by cluster autoscaler"),
        ("n2", "ScaleDownFailed", "Warning", "failed to delete empty node: pod a/p holds it"),
    ]
    assert scene.reported("ConfigMap") == [
        (STATUS, "ScaleDown", "Normal", "Scale-down: node n1 removed with drain")
    ]
    assert scene.values("scaled_down_nodes_total") == {"underutilized": 1}


@each_row(("unready", "reason"), [((), "empty"), (("n2",), "unready")])
def test_record_empty_and_unready_nodes_are_counted_separately(
    unready: tuple[str, ...], reason: str
) -> None:
    scene = RecordFixture()
    scene.ends(
        ended(OperationKind.DELETE_NODES, targets=TARGETS[1:]),
        Succeeded({"removed": 1}),
        unready=frozenset(unready),
    )
    assert scene.reported("ConfigMap") == [
        (STATUS, "ScaleDownEmpty", "Normal", "Scale-down: empty node n2 removed")
    ]
    assert scene.values("scaled_down_nodes_total") == {reason: 1}


def test_record_deleted_unregistered_instances_are_named() -> None:
    scene = RecordFixture()
    scene.ends(
        ended(
            OperationKind.DELETE_INSTANCES,
            targets=(RemovalTarget("", "i-1"), RemovalTarget("", "i-2")),
        ),
        Succeeded(),
    )
    assert scene.reported() == [
        (STATUS, "DeleteUnregistered", "Normal", "Removed unregistered node i-1"),
        (STATUS, "DeleteUnregistered", "Normal", "Removed unregistered node i-2"),
    ]
    assert scene.journal.book.counts == {"old_unregistered_nodes_removed_count": 2}


@each_row(
    ("kind", "reason", "words"),
    [
        (
            OperationKind.DELETE_INSTANCES,
            "DeleteUnregisteredFailed",
            "Failed to remove node i-1: Transient: no answer",
        ),
        (
            OperationKind.DECREASE_TARGET,
            "FailedToRevertScaleUp",
            (
                "Failed to decrease target size for group g after scale-up timeout: Transient: no "
                "answer"
            ),
        ),
    ],
)
def test_record_failed_repairs_are_warnings_on_the_status(
    kind: OperationKind, reason: str, words: str
) -> None:
    scene = RecordFixture()
    scene.ends(
        ended(kind, OperationState.FAILED, targets=(RemovalTarget("", "i-1"),)),
        Failed("Transient", "no answer"),
    )
    assert scene.reported() == [(STATUS, reason, "Warning", words)]
    assert scene.values("errors_total") == {"cloudProviderError": 1}


def test_record_every_end_except_a_target_decrease_has_an_event() -> None:
    reported = {(row.kind, outcome) for row in ENDS for outcome in row.outcomes}
    assert {
        (kind, outcome) for kind in OperationKind for outcome in (Succeeded, Failed)
    } - reported == {(OperationKind.DECREASE_TARGET, Succeeded)}


# -- steps


def removal(step: str, **parts: Any) -> Any:
    return ended(
        OperationKind.DELETE_NODES, OperationState.WAITING, step=step, targets=TARGETS, **parts
    )


def test_record_tainted_node_and_its_removal_are_separate_events() -> None:
    scene = RecordFixture()
    scene.steps(removal("taint"), InProgress(5.0, "recheck"))
    scene.ends(removal("confirm"), Succeeded({"removed": 2}))
    assert [words for name, _, _, words in scene.reported("Node") if name == "n1"] == [
        "marked the node as toBeDeleted/unschedulable",
        "nodes removed by cluster autoscaler",
    ]


def test_record_node_that_could_not_be_tainted_is_a_warning_with_the_reason() -> None:
    scene = RecordFixture()
    scene.steps(removal("taint"), InProgress(0.0, "undo"), "Forbidden: nodes is forbidden")
    assert scene.reported("Node")[0] == (
        "n1",
        "ScaleDownFailed",
        "Warning",
        "failed to mark the node as toBeDeleted/unschedulable: Forbidden: nodes is forbidden",
    )


def test_record_evicted_pods_are_reported_and_counted() -> None:
    scene = RecordFixture()
    scene.steps(
        removal("evict"), InProgress(5.0, "evict", evicted=("a/p", "a/q"), refused=("a/r",))
    )
    assert scene.reported() == [
        ("p", "ScaleDown", "Normal", "deleting pod for node scale down"),
        ("q", "ScaleDown", "Normal", "deleting pod for node scale down"),
    ]
    assert scene.journal.book.counts == {"evicted_pods_total;eviction_result=succeeded": 2}


def test_record_refused_evictions_are_reported_when_the_drain_fails() -> None:
    scene = RecordFixture()
    for step in ("evict", "evict", "undo"):
        scene.steps(removal("evict"), InProgress(10.0, step, refused=("a/r",)))
    assert scene.reported() == [
        ("r", "ScaleDownFailed", "Warning", "failed to delete pod for ScaleDown")
    ]
    assert scene.values("evicted_pods_total") == {"failed": 1}


@each_row("step", ["look", "gone", "delay", "poll"])
def test_record_step_without_events_neither_reads_nor_writes(step: str) -> None:
    scene = RecordFixture()
    scene.steps(removal(step), InProgress(5.0, "poll"))
    assert (scene.journal.reads, scene.journal.writes, scene.wall.calls, scene.lines) == (
        0,
        0,
        [],
        [],
    )


# -- the ledger


def test_record_end_costs_one_read_and_one_write_besides_its_entry() -> None:
    scene = RecordFixture()
    scene.ends(ended(OperationKind.SCALE_UP, from_size=1, to_size=3, pods=("a/p",)), Succeeded())
    assert (scene.journal.reads, scene.journal.writes) == (1, 2)


def test_record_concurrent_writers_lose_no_count_and_no_event() -> None:
    scene = RecordFixture()
    scene.journal.overtaken = 99
    scene.ends(ended(OperationKind.SCALE_UP, from_size=1, to_size=3, pods=("a/p",)), Succeeded())
    assert scene.journal.book.counts == {"scaled_up_nodes_total": 2}
    assert len(scene.reported()) == 2


def test_record_failed_ledger_loses_counts_but_no_event() -> None:
    scene = RecordFixture()
    entries = scene.journal.entries
    scene.journal.append = lambda cluster, entry: entries.append(entry)  # type: ignore[method-assign]
    scene.journal.error = StoreUnavailable("down")
    answer = scene.ends(
        ended(OperationKind.SCALE_UP, from_size=1, to_size=3, pods=("a/p",)), Succeeded()
    )
    assert answer == "ledger: StoreUnavailable: down"
    assert len(scene.reported()) == 2


def test_record_silent_api_loses_only_the_event() -> None:
    scene = RecordFixture()
    scene.wall.errors["*"] = Unavailable("no answer")
    assert (
        scene.ends(ended(OperationKind.SCALE_UP, pods=("a/p",)), Succeeded())
        == "events: Unavailable: no answer"
    )
    assert len(scene.journal.entries) == 1


def test_record_without_cluster_writes_still_counts_an_operations_end() -> None:
    scene = RecordFixture(wall=False)
    scene.ends(ended(OperationKind.SCALE_UP, from_size=1, to_size=2, pods=("a/p",)), Succeeded())
    assert (scene.reported(), scene.journal.book.counts) == ([], {"scaled_up_nodes_total": 1})


def test_record_without_a_status_posts_no_status_events() -> None:
    scene = RecordFixture(write_status_configmap=False)
    scene.ends(ended(OperationKind.SCALE_UP, from_size=1, to_size=3, pods=("a/p",)), Succeeded())
    assert [name for name, *_ in scene.reported()] == ["p"]
