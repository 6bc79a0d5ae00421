"""Limits of groups and of the cluster, and the reasons reported when they apply."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.group import GroupOptions
from chalicelib.model.memory import GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.scale_up.scale_up_limits import ResourceLimiter
from chalicelib.plan.state.cluster_state import ClusterState, build_cluster_state
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.reasons.text import sentence, text
from tests.builders import NOW, ClusterBuilder, cluster, growth, node

ATOMIC = GroupOptions(zero_or_max=True)


def world_of(build: ClusterBuilder, memory: Memory | None = None, **options: Any) -> ClusterState:
    policy = Policy(name="test", options=msgspec.structs.replace(Options(), **options))
    return build_cluster_state(build.snapshot(), policy, memory or Memory(), NOW)


def allowed(
    build: ClusterBuilder,
    group: str = "g",
    grown: int = 0,
    memory: Memory | None = None,
    **options: Any,
) -> tuple[int, str]:
    """How many more nodes a group may get, and the reason against more."""
    world = world_of(build, memory, **options)
    found = ResourceLimiter(world).allowance(world.groups[group], grown)
    return found.nodes, text(found.stop)


def test_cores_total_counts_all_nodes_with_and_without_a_group() -> None:
    for group in ("g", ""):
        build = cluster().node("a", "2", group="g").node("b", "4", group=group).group("g", max=10)
        build.running("a", 1, "2").running("b", 1, "4").pending(2, "2")
        assert growth(build.plan(cores_total=(0, 9)))["g"][0] == 1


def test_memory_total_limits_new_nodes() -> None:
    build = cluster().node("a", "1", "1100Mi", group="g").running("a", 1, "1", "1100Mi")
    build.group("g", template=node("t", "1", "100Mi")).group("h", template=node("t", "1", "100Mi"))
    build.groups = build.groups[1:]
    assert growth(build.pending(3, "1", "100Mi").plan(memory_total=(0, 1300 * 2**20))) == {
        "h": (2, 2)
    }


def test_limit_without_room_for_one_node_names_the_resource() -> None:
    build = (
        cluster()
        .node("a", "6")
        .running("a", 1, "6")
        .group("g", template=node("t", "2"))
        .pending(1, "2")
    )
    plan = build.plan(cores_total=(0, 7))
    assert growth(plan) == {}
    assert [text(r) for r in plan.unschedulable[0].reasons["g"]] == [
        'exceeded quota: "cluster-wide", resources: cpu'
    ]


def test_max_nodes_total_counts_every_node() -> None:
    build = (
        cluster().node("a", "1", group="g").node("b", "1").running("a", 1, "1").running("b", 1, "1")
    )
    assert growth(build.group("g").pending(3, "1").plan(max_nodes_total=3)) == {"g": (1, 1)}


def test_limit_message_uses_upstreams_wording() -> None:
    build = (
        cluster()
        .group("small-1", template=node("t", "1"))
        .group("small-2", template=node("t", "1"))
    )
    build.group("full", max=0, template=node("t", "8")).pending(1, "4")
    verdict = build.plan().unschedulable[0]
    assert {g: [text(r) for r in rs] for g, rs in verdict.reasons.items()} == {
        "small-1": ["Insufficient cpu"],
        "small-2": ["Insufficient cpu"],
        "full": ["max node group size reached"],
    }


def test_one_pass_uses_several_groups_when_the_first_reaches_its_maximum() -> None:
    build = (
        cluster()
        .group("best", max=2, template=node("t", "2"))
        .group("other", template=node("t", "4", "64Gi"))
    )
    assert growth(build.pending(6, "2").plan()) == {"best": (2, 2), "other": (2, 4)}


def test_group_that_is_unreadable_or_has_no_template_stops_no_other_group() -> None:
    build = (
        cluster()
        .group("broken", error="403 Forbidden")
        .group("unknown", template_error="no capacity annotations")
    )
    build.group("good", template=node("t", "2")).pending(2, "1")
    plan = build.plan()
    assert growth(plan) == {"good": (1, 2)}
    skipped = {g.group: g.skipped.code for g in plan.groups if g.skipped}
    assert skipped == {"broken": ReasonCode.GROUP_UNREADABLE, "unknown": ReasonCode.NO_TEMPLATE}


# -- combination of limits


@pytest.mark.parametrize(
    ("cluster_limit", "per_scale_up", "nodes"),
    [
        pytest.param(5, 10, 0, id="E11-a-limit-that-is-passed-outweighs-all"),
        pytest.param(0, 10, 10, id="E11-zero-is-no-limit"),
        pytest.param(15, 10, 5, id="E11-the-smaller-holds"),
        pytest.param(0, 0, 90, id="E11-no-limits-but-the-groups-own"),
        pytest.param(10, 0, 0, id="E14-nothing-left"),
        pytest.param(12, 0, 2, id="E14-two-left"),
    ],
)
def test_smallest_of_several_limits_applies(
    cluster_limit: int, per_scale_up: int, nodes: int
) -> None:
    build = cluster()
    for at in range(10):
        build.node(f"n{at}", group="g")
    build.group("g", max=100)
    assert (
        allowed(build, max_nodes_total=cluster_limit, max_nodes_per_scale_up=per_scale_up)[0]
        == nodes
    )


def test_max_nodes_per_scale_up_is_exhausted_after_three_nodes() -> None:
    build = cluster().group("g", template=node("t"))
    left = [allowed(build, grown=grown, max_nodes_per_scale_up=3) for grown in range(5)]
    assert [nodes for nodes, _ in left] == [3, 2, 1, 0, 0]
    assert left[3][1] == "max nodes per scale-up reached"


@pytest.mark.parametrize(
    ("target", "beside", "nodes"),
    [
        pytest.param(10, 57, 67, id="E13-its-own-room-and-that-of-similar-groups"),
        pytest.param(25, 5, 5, id="E13-over-its-maximum-it-takes-nothing-away"),
        pytest.param(25, 0, 0, id="E13-no-room-at-all"),
    ],
)
def test_similar_groups_extend_the_allowance_of_a_balanced_scale_up(
    target: int, beside: int, nodes: int
) -> None:
    world = world_of(cluster().group("g", max=20, target=target, template=node("t")))
    assert ResourceLimiter(world).allowance(world.groups["g"], 0, beside).nodes == nodes


def test_limit_quota_is_spent_once_and_copies_are_independent() -> None:
    world = world_of(cluster().group("g", template=node("t", "2")), cores_total=(0, 8))
    ledger, facts = ResourceLimiter(world), world.groups["g"]
    trial = ledger.copy()
    trial.take(node("t", "2"), 3)
    assert (trial.allowance(facts, 3).nodes, ledger.allowance(facts, 0).nodes) == (1, 4)
    ledger.take(node("t", "2"), 4)
    assert ledger.allowance(facts, 4).nodes == 0


def test_limits_count_upcoming_nodes_and_exclude_virtual_kubelets() -> None:
    build = (
        cluster()
        .node("virtual", "1000", labels={"type": "virtual-kubelet"})
        .group("g", target=2, template=node("t", "4"))
    )
    asked = Memory(
        groups={"g": GroupMemory(target=2, request=ScaleUpRequest(2, NOW - 60, NOW + 840))}
    )
    assert allowed(build, memory=asked, cores_total=(0, 16))[0] == 2
    assert allowed(build, memory=asked, max_nodes_total=5)[0] == 3


def test_limits_count_whole_cores_of_node_capacity() -> None:
    template = node("t", capacity={"cpu": 1500, "memory": 1}, allocatable={"cpu": 900, "memory": 1})
    assert allowed(cluster().group("g", template=template), cores_total=(0, 9))[0] == 4


@pytest.mark.parametrize(
    ("cores", "gib", "words"),
    [
        pytest.param(7, 100, "cpu", id="L3-cpu"),
        pytest.param(100, 7, "memory", id="L3-memory"),
        pytest.param(7, 7, "cpu, memory", id="L3-both-are-named"),
    ],
)
def test_every_exhausted_resource_limit_is_named(cores: int, gib: int, words: str) -> None:
    build = cluster().node("a", "6", "6Gi").group("g", template=node("t", "2", "2Gi"))
    limits: dict[str, Any] = {"cores_total": (0, cores), "memory_total": (0, gib * 2**30)}
    assert allowed(build, **limits) == (0, f'exceeded quota: "cluster-wide", resources: {words}')


# -- GPUs, for every provider


@pytest.mark.parametrize(
    ("labels", "resource", "limit", "nodes"),
    [
        pytest.param(
            {"cluster-api/accelerator": "t4"}, "nvidia.com/gpu", "t4", 3, id="cluster-api-label"
        ),
        pytest.param(
            {"nvidia.com/gpu.product": "Tesla-T4"},
            "nvidia.com/gpu",
            "Tesla-T4",
            3,
            id="nvidia-label",
        ),
        pytest.param(
            {"cloud.google.com/gke-accelerator": "t4"}, "nvidia.com/gpu", "t4", 3, id="gke-label"
        ),
        pytest.param(
            {"k8s.amazonaws.com/accelerator": "t4"}, "nvidia.com/gpu", "t4", 3, id="aws-label"
        ),
        pytest.param(
            {"aliyun.accelerator/nvidia_name": "t4"}, "nvidia.com/gpu", "t4", 3, id="alibaba-label"
        ),
        pytest.param(
            {}, "nvidia.com/gpu", "nvidia.com/gpu", 3, id="no-label-the-resource-is-the-type"
        ),
        pytest.param(
            {"cluster-api/accelerator": "t4"},
            "nvidia.com/gpu",
            "nvidia.com/gpu",
            3,
            id="resource-and-label",
        ),
        pytest.param(
            {"cluster-api/accelerator": "mi300"}, "amd.com/gpu", "mi300", 3, id="another-vendor"
        ),
        pytest.param(
            {}, "huawei.com/ascend-310", "huawei.com/ascend-310", 3, id="any-resource-by-its-name"
        ),
        pytest.param(
            {"cluster-api/accelerator": "a100"}, "nvidia.com/gpu", "t4", 100, id="another-type"
        ),
        pytest.param({}, "nvidia.com/gpu", "t4", 100, id="no-label-and-no-such-resource"),
    ],
)
def test_gpu_total_counts_by_label_or_by_resource(
    labels: dict[str, str], resource: str, limit: str, nodes: int
) -> None:
    template = node("t", labels=labels, extra={resource: 2})
    build = cluster().node("a", labels=labels, extra={resource: 2}).group("g", template=template)
    found, words = allowed(build, gpu_total=((limit, 0, 9),))
    assert found == nodes
    assert words == (
        "max node group size reached"
        if nodes == 100
        else f'exceeded quota: "cluster-wide", resources: {limit}'
    )


def test_gpu_total_of_one_type_does_not_limit_other_groups() -> None:
    build = cluster().group("cpu", template=node("t"))
    build.group(
        "gpu",
        template=node("t", labels={"cluster-api/accelerator": "t4"}, extra={"nvidia.com/gpu": 4}),
    )
    assert allowed(build, "gpu", gpu_total=(("t4", 0, 3),))[0] == 0
    assert allowed(build, "cpu", gpu_total=(("t4", 0, 3),))[0] == 100


def test_node_waiting_for_its_gpu_driver_counts_with_its_expected_gpus() -> None:
    label = {"cluster-api/accelerator": "t4"}
    build = cluster().node("new", group="g", labels=label)
    build.group("g", template=node("t", labels=label, extra={"nvidia.com/gpu": 2}))
    assert allowed(build, gpu_total=(("t4", 0, 4),))[0] == 1


@pytest.mark.parametrize(
    ("gpus", "nodes"),
    [
        pytest.param(1, 3, id="L7-one-each"),
        pytest.param(2, 2, id="L7-two-each"),
        pytest.param(4, 1, id="L7-four-each"),
    ],
)
def test_three_pods_with_one_gpu_each_within_gpu_total(gpus: int, nodes: int) -> None:
    build = cluster().group("g", template=node("t", extra={"nvidia.com/gpu": gpus}))
    assert growth(build.pending(3, extra={"nvidia.com/gpu": 1}).plan()) == {"g": (nodes, 3)}


# -- all or nothing


@pytest.mark.parametrize(
    ("group", "used", "options", "nodes", "words"),
    [
        pytest.param(5, 0, {}, 5, "max node group size reached", id="L6-all-five"),
        pytest.param(
            3,
            1,
            {"cores_total": (0, 3)},
            0,
            'exceeded quota: "cluster-wide", resources: cpu',
            id="L6-cpu",
        ),
        pytest.param(
            3, 1, {"cores_total": (0, 4)}, 3, "max node group size reached", id="L6-cpu-just-enough"
        ),
        pytest.param(
            3,
            1,
            {"memory_total": (0, 3 * 4 * 2**30)},
            0,
            'exceeded quota: "cluster-wide", resources: memory',
            id="L6-memory",
        ),
        pytest.param(
            5,
            2,
            {"max_nodes_total": 5},
            0,
            "atomic scale-up exceeds cluster node count limit",
            id="L6-nodes",
        ),
        pytest.param(
            5,
            2,
            {"max_nodes_total": 7},
            5,
            "max node group size reached",
            id="L6-nodes-just-enough",
        ),
        pytest.param(
            5,
            0,
            {"max_nodes_per_scale_up": 2},
            5,
            "max node group size reached",
            id="not-cut-per-scale-up",
        ),
    ],
)
def test_zero_or_max_group_needs_limit_room_for_all_its_nodes(
    group: int, used: int, options: dict[str, Any], nodes: int, words: str
) -> None:
    build = cluster()
    for at in range(used):
        build.node(f"other-{at}")
    build.group("g", max=group, template=node("t"), options=ATOMIC)
    assert allowed(build, **options) == (nodes, words)


def test_refused_zero_or_max_increase_reports_its_numbers() -> None:
    build = cluster().node("a").node("b").group("g", max=5, template=node("t"), options=ATOMIC)
    world = world_of(build, max_nodes_total=5)
    reason = ResourceLimiter(world).atomic_stop(world.groups["g"], 0)
    assert reason is not None
    assert (
        sentence(reason)
        == "atomic scale-up exceeds cluster node count limit (7 nodes, maxNodesTotal 5)"
    )


def test_full_zero_or_max_group_has_reached_its_maximum() -> None:
    build = cluster().group("g", max=2, target=2, template=node("t"), options=ATOMIC)
    assert allowed(build) == (0, "max node group size reached")
    assert allowed(cluster().group("g", max=2, template=node("t"), options=ATOMIC), grown=2)[0] == 0


# -- orchestration


def test_each_group_scales_up_for_pods_that_fit_and_the_rest_have_reasons() -> None:
    build = (
        cluster()
        .group("ng1", template=node("t", "500m", "1000"))
        .group("ng2", template=node("t", "1", "100"))
    )
    build.pending(1, "900m", name="p1", owner="p1").pending(1, "2", name="p2", owner="p2")
    plan = build.pending(1, 0, 200, name="p3", owner="p3").plan()
    assert {up.group: up.pods for up in plan.scale_ups} == {
        "ng1": ("default/p3-00002",),
        "ng2": ("default/p1-00000",),
    }
    assert [verdict.pods for verdict in plan.unschedulable] == [("default/p2-00001",)]
