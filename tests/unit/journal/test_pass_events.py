"""Events of a pass that are not about unschedulable pods."""

from __future__ import annotations

from chalicelib.journal.events import PODS_TOLD
from chalicelib.model.node import Node
from chalicelib.model.operation import OperationKind, RemovalTarget
from chalicelib.model.plan import Health, Plan, Removal, Repair, ScaleUp, TaintUpdate
from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import Snapshot
from tests.cases import each_row
from tests.unit.journal.support import NOW, RecordFixture, ended, plan

STATUS = "cluster-autoscaler-status"


@each_row(
    ("health", "from_zero", "words"),
    [
        (Health(healthy=False, registered=9, ready=1), True, "Cluster is unhealthy"),
        (Health(), False, "Cluster has no nodes."),
        (Health(registered=2), False, "Cluster has no ready nodes."),
        (Health(), True, ""),
        (Health(registered=2, ready=1), False, ""),
    ],
)
def test_pass_events_unscalable_cluster_is_posted_on_the_status(
    health: Health, *, from_zero: bool, words: str
) -> None:
    scene = RecordFixture(scale_up_from_zero=from_zero)
    scene.passes(plan(health=health))
    assert scene.reported() == ([(STATUS, "ClusterUnhealthy", "Warning", words)] if words else [])


def test_pass_events_started_operation_is_reported_once_saved() -> None:
    scene = RecordFixture()
    decided = plan(
        scale_ups=(ScaleUp("g", "clusterapi", 1, 3, 5), ScaleUp("h", "clusterapi", 0, 1, 2)),
        removals=(
            Removal("n1", "w", "empty"),
            Removal("n2", "w", "drain", ("a/p", "a/q")),
            Removal("n3", "w", "empty"),
        ),
        operations=(
            ended(OperationKind.SCALE_UP, from_size=1, to_size=3),
            ended(OperationKind.DELETE_NODES, targets=(RemovalTarget("n1", "i"),)),
            ended(
                OperationKind.DELETE_NODES,
                targets=(RemovalTarget("n2", "i", evict=("a/p", "a/q")),),
            ),
        ),
    )
    room = {"cpu": 4000, "memory": 8 * 2**30}
    cls = PodClass(namespace="a", labels={}, requests={"cpu": 1000, "memory": 2**30})
    snapshot = Snapshot(
        "c",
        NOW,
        nodes=(Node("n2", {}, room),),
        classes=(cls,),
        pods=(Pod("a", "p", "u", 0, node="n2"), Pod("a", "q", "v", 0, node="n2")),
    )
    scene.passes(decided, snapshot=snapshot)
    assert [event[1:] for event in scene.reported()] == [
        ("ScaledUpGroup", "Normal", "Scale-up: setting group g size to 3 instead of 1 (max: 5)"),
        ("ScaleDownEmpty", "Normal", 'Scale-down: removing empty node "n1"'),
        (
            "ScaleDown",
            "Normal",
            (
                "Scale-down: removing node n2, utilization: {cpu 50%, memory 25%}, pods to "
                "reschedule: a/p,a/q"
            ),
        ),
    ]


def repaired(code: ReasonCode, kind: str, **params: str | float) -> Plan:
    reason = Reason.of(code, **params)
    return plan(
        repairs=(Repair("g", kind, 5, 3, reason, ("i-1", "i-2") if kind == "discard" else ()),)
    )


def test_pass_events_nodes_that_never_came_are_reported_with_the_wait() -> None:
    scene = RecordFixture()
    scene.passes(repaired(ReasonCode.SCALE_UP_TIMED_OUT, "shrink", nodes=2, since=NOW - 930))
    assert scene.reported() == [
        (
            STATUS,
            "ScaleUpTimedOut",
            "Warning",
            "Nodes added to group g failed to register within 15m30s",
        )
    ]
    assert scene.left.counts["failed_scale_ups_total;reason=timeout"] == 1


def test_pass_events_failed_instances_are_reported_with_class_and_code() -> None:
    scene = RecordFixture()
    scene.passes(
        repaired(
            ReasonCode.CREATION_FAILED,
            "discard",
            instance="i-1",
            error="OutOfStock.NoHosts",
            detail="sorry",
        )
    )
    assert scene.reported() == [
        (
            STATUS,
            "ScaleUpFailed",
            "Warning",
            "Failed adding 2 nodes to group g due to OutOfStock.NoHosts; source errors: sorry",
        )
    ]
    assert scene.left.counts["failed_node_creations_total;reason=OutOfStock"] == 2


def test_pass_events_removed_taint_is_reported_on_the_node() -> None:
    scene = RecordFixture()
    scene.passes(
        plan(),
        marks=(
            TaintUpdate("n1", "cleanup"),
            TaintUpdate("n2", "soften"),
            TaintUpdate("n3", "unsoften"),
        ),
    )
    assert scene.reported() == [
        (
            "n1",
            "ClusterAutoscalerCleanup",
            "Normal",
            "removed ToBeDeletedByClusterAutoscaler taint from node n1",
        )
    ]


def test_pass_events_priority_errors_are_reported_on_their_config_map() -> None:
    scene = RecordFixture()
    scene.passes(
        plan(
            notes=(
                Reason.of(ReasonCode.PRIORITY_NOT_MATCHED, group="g"),
                Reason.of(ReasonCode.PRIORITY_NOT_MATCHED, group="h"),
                Reason.of(ReasonCode.PRIORITY_NO_MATCH),
                Reason.of(ReasonCode.PRIORITY_CONFIG_INVALID, detail="not YAML"),
            )
        )
    )
    reported = scene.reported()
    assert {name for name, *_ in reported} == {"cluster-autoscaler-priority-expander"}
    assert [(reason, words) for _, reason, _, words in reported] == [
        ("PriorityConfigMapNotMatchedGroup", "no priority rule matches node group g"),
        ("PriorityConfigMapNotMatchedGroup", "no priority rule matches node group h"),
        ("PriorityConfigMapNoGroupMatched", "no priority rule matches any node group"),
        ("PriorityConfigMapInvalid", "priorities of the priority expander are invalid (not YAML)"),
    ]


def test_pass_events_each_rest_of_a_group_is_reported_once_a_day() -> None:
    def rest(until: float, renewed: str = "drifted") -> Plan:
        fields: dict[str, str | float] = {
            "group": "g",
            "renewed": renewed,
            "until": until,
            "node": "n2",
            "detail": "differs in the same: type",
        }
        return plan(notes=(Reason.of(ReasonCode.RENEWAL_RESTS, **fields),))

    scene = RecordFixture()
    for shown in (rest(NOW + 60), rest(NOW + 60), rest(NOW + 60, "expired"), rest(NOW + 120)):
        scene.passes(shown)
    reported = scene.reported()
    assert [(name, reason, kind) for name, reason, kind, _ in reported] == [
        (STATUS, "RenewalRests", "Warning")
    ] * 3
    assert all("n2" in words and "differs in the same: type" in words for *_, words in reported)


def unhealthy(at: float) -> Plan:
    return plan(at, health=Health(healthy=False, registered=9))


def growing(at: float, size: int) -> Plan:
    return plan(
        at,
        scale_ups=(ScaleUp("g", "clusterapi", 1, size, 9),),
        operations=(ended(OperationKind.SCALE_UP, from_size=1, to_size=size),),
    )


def test_pass_events_on_the_default_status_are_deduplicated_by_message() -> None:
    scene = RecordFixture()
    for at, size in ((0, 2), (10, 2), (20, 3)):
        scene.passes(growing(NOW + at, size))
    assert len(scene.reported()) == 2


def test_pass_events_on_a_renamed_status_are_deduplicated_by_reason() -> None:
    scene = RecordFixture(status_config_map_name="mine")
    for at, size in ((0, 2), (10, 2), (20, 3)):
        scene.passes(growing(NOW + at, size))
    assert [(name, words[-24:]) for name, _, _, words in scene.reported()] == [
        ("mine", "to 2 instead of 1 (max: 9)"[-24:])
    ]


def test_pass_events_without_a_status_are_not_posted_on_it() -> None:
    scene = RecordFixture(write_status_configmap=False)
    scene.passes(unhealthy(NOW))
    assert scene.wall.calls == []


def test_pass_events_most_important_come_first_and_none_uses_all_the_time() -> None:
    scene = RecordFixture()
    many = tuple(TaintUpdate(f"n{number:03d}", "cleanup") for number in range(200))
    scene.passes(plan(health=Health(healthy=False)), marks=many)
    reasons = [reason for _, reason, _, _ in scene.reported()]
    assert reasons == ["ClusterUnhealthy"] + ["ClusterAutoscalerCleanup"] * PODS_TOLD
