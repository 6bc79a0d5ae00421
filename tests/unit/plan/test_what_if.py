"""What-if changes: the same cluster with added pods, removed nodes or other bounds."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.errors import BadInput
from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import GroupMemory, Memory, NodeMemory, ScaleUpRequest
from chalicelib.model.operation import OperationKind, RemovalTarget
from chalicelib.model.pod import Pod, PodClass, Volume
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.storage import Claim
from chalicelib.plan.what_if import (
    AddedPods,
    GroupBounds,
    as_new,
    with_bounds,
    with_pods,
    without_nodes,
)
from chalicelib.policy.settings.cluster_options import Options
from tests.builders import NOW, ClusterBuilder, cluster, node
from tests.operations import new_operation

ZONE = "topology.kubernetes.io/zone"
OPTIONS = Options()


def two_nodes() -> ClusterBuilder:
    build = cluster().node("n-1", "4", group="g", zone="z").node("n-2", "4", group="g", zone="z")
    build.running("n-1", 2, "1", name="web", labels={"app": "web", ZONE: "z"}, owner="web")
    build.running("n-1", 1, "1", name="bare", owner=None).running(
        "n-1", 1, name="logs", kind="DaemonSet", owner="logs"
    )
    return build.group("g", max=5)


def added(
    snapshot: Snapshot, *wanted: AddedPods, options: Options = OPTIONS
) -> tuple[Snapshot, list[Pod]]:
    after, names = with_pods(snapshot, wanted, NOW, options)
    keys = {name for each in names for name in each}
    return after, [pod for pod in after.pods if pod.key in keys]


def group(snapshot: Snapshot) -> NodeGroup:
    return next(each for each in snapshot.groups if each.id == "g")


# -- pods


def test_added_pods_are_unschedulable_and_share_one_class() -> None:
    before = two_nodes().snapshot()
    web = before.classes[before.pods[0].cls]
    after, pods = added(before, AddedPods("default", "web", web, 3))
    assert [pod.name for pod in pods] == ["web-added-1", "web-added-2", "web-added-3"]
    assert {(pod.scheduled, pod.scheduled_reason, pod.node) for pod in pods} == {
        ("False", "Unschedulable", "")
    }
    assert after.classes == before.classes, "an equal class is the same class"
    assert len({pod.uid for pod in after.pods}) == len(after.pods)


def test_new_pod_class_is_appended_to_the_classes() -> None:
    before = two_nodes().snapshot()
    new = PodClass("default", {}, {"cpu": 7})
    after, (pod,) = added(before, AddedPods("default", "x", new))
    assert after.classes == (*before.classes, new)
    assert after.cls(pod) == new


def test_names_of_added_pods_are_unique() -> None:
    before = two_nodes().snapshot()
    cls = PodClass("default", {}, {})
    once, _ = added(
        before, AddedPods("default", "x", cls, keep_name=True), AddedPods("default", "x", cls, 2)
    )
    twice, pods = added(once, AddedPods("default", "x", cls, keep_name=True))
    assert [pod.name for pod in pods] == ["x-added-3"]
    assert len({pod.key for pod in twice.pods}) == len(before.pods) + 4


@pytest.mark.parametrize(
    ("cls", "options", "older"),
    [
        (PodClass("default", {}, {"nvidia.com/gpu": 1}), OPTIONS, 30.0),
        (PodClass("default", {}, {}), Options(new_pod_scale_up_delay=600.0), 600.0),
        (PodClass("default", {}, {}, scale_up_delay="20m"), OPTIONS, 1200.0),
        (PodClass("default", {}, {}, scale_up_delay="nonsense"), OPTIONS, 30.0),
    ],
)
def test_added_pods_are_old_enough_to_count(cls: PodClass, options: Options, older: float) -> None:
    _, (pod,) = added(two_nodes().snapshot(), AddedPods("default", "x", cls), options=options)
    assert NOW - pod.created > older


def test_scheduling_gate_keeps_an_added_pod_from_being_pending() -> None:
    _, (pod,) = added(
        two_nodes().snapshot(),
        AddedPods("default", "x", PodClass("default", {}, {}, gates=("quota",))),
    )
    assert pod.scheduled_reason == "SchedulingGated"


def test_labels_copied_by_binding_are_not_labels_of_an_added_pod() -> None:
    own = PodClass("default", {"app": "web", ZONE: "z"}, {})
    assert as_new(own, node("n", zone="z")).labels == {"app": "web"}
    assert as_new(own, node("n", zone="elsewhere")) == own, "it was there before"
    assert as_new(own, None) == own


def test_ephemeral_volume_of_an_added_pod_gets_its_own_claim() -> None:
    scratch = Volume("v", "ephemeral", claim="web-1-v", template=Claim("default", "v"))
    kept = Volume("w", "persistentVolumeClaim", claim="data")
    cls = as_new(PodClass("default", {}, {}, volumes=(scratch, kept)), None)
    assert [volume.claim for volume in cls.volumes] == ["", "data"]


# -- nodes


def test_removing_a_node_removes_its_instance_and_lowers_the_target_by_one() -> None:
    after, _, (loss,) = without_nodes(two_nodes().snapshot(), Memory(), ["n-1"], NOW, OPTIONS)
    assert [each.name for each in after.nodes] == ["n-2"]
    assert (group(after).target, [each.node for each in group(after).instances]) == (1, ["n-2"])
    assert (loss.node, loss.group) == ("n-1", "g")


def test_recreated_pods_of_a_removed_node_are_pending_and_other_pods_are_gone() -> None:
    before = two_nodes()
    before.running("n-1", 1, name="static", owner="n-1", kind="Node", mirror=True)
    before.running("n-1", 1, name="leaving", pod={"deleted": NOW - 5})
    after, _, (loss,) = without_nodes(before.snapshot(), Memory(), ["n-1"], NOW, OPTIONS)
    assert {pod.name[:3] for pod in after.pods} == {"web"}
    assert {(pod.node, pod.scheduled_reason) for pod in after.pods} == {("", "Unschedulable")}
    assert all(after.cls(pod).labels == {"app": "web"} for pod in after.pods), (
        "no longer labelled with its zone"
    )
    assert [len(loss.again), len(loss.lost)] == [2, 1]
    assert loss.lost[0].startswith("default/bare")


def test_pod_nominated_to_a_removed_node_loses_its_nomination() -> None:
    build = two_nodes().pending(1, "1", name="next")
    build.pods[-1] = msgspec.structs.replace(build.pods[-1], nominated="n-1")
    after, _, _ = without_nodes(build.snapshot(), Memory(), ["n-1"], NOW, OPTIONS)
    assert {pod.nominated for pod in after.pods} == {""}


def test_memory_of_a_removed_node_is_dropped_and_its_learnt_template_is_kept() -> None:
    removal = new_operation(
        "remove-1",
        "test",
        "test",
        "g",
        OperationKind.DELETE_NODES,
        "plan",
        NOW,
        targets=(RemovalTarget("n-1", "i"),),
    )
    other = removal.with_spec(id="remove-2", targets=(RemovalTarget("n-2", "i"),))
    memory = Memory(
        nodes={"n-1": NodeMemory(5.0), "n-2": NodeMemory(6.0)}, operations=(removal, other)
    )
    _, after, _ = without_nodes(two_nodes().snapshot(), memory, ["n-1", "n-2"], NOW, OPTIONS)
    assert (after.nodes, after.operations) == ({}, ())
    assert after.templates["g"].node.allocatable["cpu"] == 4000
    _, after, _ = without_nodes(two_nodes().snapshot(), memory, ["n-1"], NOW, OPTIONS)
    assert ([*after.nodes], [op.spec.id for op in after.operations]) == (["n-2"], ["remove-2"])


def test_node_without_a_group_may_be_removed() -> None:
    after, _, (loss,) = without_nodes(
        two_nodes().node("own").snapshot(), Memory(), ["own"], NOW, OPTIONS
    )
    assert (loss.group, group(after).target) == ("", 2)


# -- bounds


def test_changed_bounds_leave_other_group_fields_unchanged() -> None:
    before = two_nodes().snapshot()
    after, memory = with_bounds(before, Memory(), "g", GroupBounds(max=50), NOW, OPTIONS)
    assert group(after) == msgspec.structs.replace(group(before), max=50)
    assert memory == Memory()


def test_size_above_the_present_one_is_an_open_scale_up_request() -> None:
    grow = new_operation(
        "grow-1", "test", "test", "g", OperationKind.SCALE_UP, "plan", NOW, from_size=2, to_size=9
    )
    after, memory = with_bounds(
        two_nodes().snapshot(), Memory(operations=(grow,)), "g", GroupBounds(size=4), NOW, OPTIONS
    )
    assert group(after).target == 4
    assert memory.groups["g"].request == ScaleUpRequest(2, NOW, NOW + 900.0)
    assert memory.operations == (), "exactly that is asked for, and nothing else"


def test_size_equal_to_the_present_one_leaves_no_open_request() -> None:
    memory = Memory(groups={"g": GroupMemory(request=ScaleUpRequest(3, NOW, NOW))})
    after, memory = with_bounds(
        two_nodes().snapshot(), memory, "g", GroupBounds(size=2), NOW, OPTIONS
    )
    assert (group(after).target, memory.groups["g"].request) == (2, None)


@pytest.mark.parametrize(
    "bounds", [GroupBounds(min=6), GroupBounds(size=1), GroupBounds(min=3, max=2)]
)
def test_impossible_bounds_are_rejected(bounds: GroupBounds) -> None:
    with pytest.raises(BadInput, match="--group g: "):
        with_bounds(two_nodes().snapshot(), Memory(), "g", bounds, NOW, OPTIONS)
