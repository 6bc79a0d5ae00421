"""Scale-up of all pending pods in one pass: limits, several groups, all-or-nothing groups,
minimum sizes and balancing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from chalicelib.model.group import GroupOptions
from chalicelib.model.memory import Backoff, GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.node import HOSTNAME_LABEL, Node, Taint
from chalicelib.model.operation import OperationKind
from chalicelib.model.plan import Plan
from chalicelib.model.pod import HostPort
from chalicelib.model.reason import ReasonCode
from tests.builders import (
    NOW,
    ZONE,
    ClusterBuilder,
    cluster,
    even,
    expected,
    growth,
    having,
    near,
    node,
    verdict,
    words,
)
from tests.operations import new_operation

ATOMIC = GroupOptions(zero_or_max=True)
QUOTA = 'exceeded quota: "cluster-wide", resources: '


def _two(first: dict[str, Any] | None = None) -> ClusterBuilder:
    """Two groups of 2-cpu nodes; a wastes less memory, so it is chosen first."""
    build = cluster().group("a", template=node("t", "2", "4Gi"), **(first or {}))
    return build.group("b", template=node("t", "2", "64Gi"))


def _new(plan: Plan) -> dict[str, int]:
    return {group: nodes for group, (nodes, _) in growth(plan).items()}


# -- limits, and use of further groups


@pytest.mark.parametrize(
    ("pods", "first", "options", "found"),
    [
        pytest.param(10, {"max": 3}, {}, {"a": 3, "b": 2}, id="the-groups-maximum"),
        pytest.param(10, {"max": 0}, {}, {"b": 5}, id="full-from-the-start"),
        pytest.param(10, None, {"max_nodes_per_scale_up": 2}, {"a": 2, "b": 2}, id="per-scale-up"),
        pytest.param(10, None, {"max_nodes_total": 4}, {"a": 4}, id="the-clusters-nodes"),
        pytest.param(
            10,
            {"max": 3},
            {"max_nodes_total": 4},
            {"a": 3, "b": 1},
            id="the-clusters-nodes-over-two-groups",
        ),
        pytest.param(
            10, {"max": 1}, {"cores_total": (0, 7)}, {"a": 1, "b": 2}, id="cores-over-two-groups"
        ),
        pytest.param(
            10,
            {"max": 1},
            {"memory_total": (0, 70 * 2**30)},
            {"a": 1, "b": 1},
            id="memory-over-two-groups",
        ),
    ],
)
def test_next_group_takes_what_one_group_may_not_within_cluster_limits(
    pods: int, first: dict[str, Any] | None, options: dict[str, Any], found: dict[str, int]
) -> None:
    plan = _two(first).pending(pods, "1", "1Mi").plan(**options)
    assert _new(plan) == found
    placed = sum(count for _, count in growth(plan).values())
    assert placed == min(pods, 2 * sum(found.values()))
    assert sum(len(each.pods) for each in plan.unschedulable) == pods - placed


def test_pods_left_pending_by_a_limit_name_that_limit() -> None:
    plan = _two({"max": 1}).pending(5, "1", "1Mi").plan(max_nodes_total=2)
    assert words(plan) == {
        "a": ["max node group size reached"],
        "b": ["max total nodes in cluster reached"],
    }
    plan = _two().pending(9, "1", "1Mi").plan(max_nodes_per_scale_up=1)
    assert words(plan) == {group: ["max nodes per scale-up reached"] for group in "ab"}
    plan = _two().pending(9, "1", "1Mi").plan(cores_total=(0, 3))
    assert words(plan) == {group: [f"{QUOTA}cpu"] for group in "ab"}


def test_full_cluster_is_reported_without_an_estimate() -> None:
    build = cluster()
    for at in range(100):
        build.node(f"n{at:03d}", "0")
    plan = build.group("g", template=node("t", "8")).pending(1, "1").plan(max_nodes_total=100)
    assert growth(plan) == {}
    assert words(plan) == {"g": ["max total nodes in cluster reached"]}
    assert plan.groups[0].option_nodes == 0
    assert growth(build.plan(max_nodes_total=101)) == {"g": (1, 1)}


def test_each_group_is_a_separate_operation_so_one_failure_stops_no_other_group() -> None:
    """Upstream stops at the first error. Here the next pass finds ng1 upcoming and ng2
    backed off, and chooses ng3."""
    build = cluster()
    for name, label in (("ng1", "x"), ("ng2", "y"), ("ng3", "y")):
        build.group(name, template=node("t", "2", labels={"kind": label}))
    build.pending(1, "1", name="x", owner="x", node_selector={"kind": "x"})
    build.pending(1, "1", name="y", owner="y", node_selector={"kind": "y"})
    plan = build.plan()
    assert [(op.spec.kind, op.spec.group) for op in plan.operations] == [
        (OperationKind.SCALE_UP, "ng1"),
        (OperationKind.SCALE_UP, "ng2"),
    ]
    after = Memory(
        groups={
            "ng1": GroupMemory(target=1, request=ScaleUpRequest(1, NOW - 5, NOW + 895)),
            "ng2": GroupMemory(
                backoff=Backoff(
                    duration=300, until=NOW + 295, last_failed=NOW - 5, cls="OutOfStock"
                )
            ),
        }
    )
    build.groups[0] = msgspec.structs.replace(build.groups[0], target=1)
    again = build.plan(after)
    assert growth(again) == {"ng3": (1, 1)}
    assert expected(again)["default/x-00000"] == "upcoming-0-for-ng1"


def test_group_with_an_open_scale_up_is_not_scaled_up_again() -> None:
    growing = Memory(
        operations=(
            new_operation(
                id="op",
                cluster="test",
                group="a",
                provider="test",
                kind=OperationKind.SCALE_UP,
                from_size=0,
                to_size=1,
                plan="p",
                created_at=NOW - 10,
            ),
        )
    )
    plan = _two().pending(5, "1", "1Mi").plan(growing)
    assert _new(plan) == {"b": 2}
    assert sum(place == "upcoming-0-for-a" for place in expected(plan).values()) == 2
    assert next(each.skipped for each in plan.groups if each.group == "a") is not None


def test_blocked_group_does_not_block_other_groups() -> None:
    build = (
        cluster()
        .node("sick-0", group="sick")
        .group("sick", target=9)
        .group("unread", error="403 Forbidden")
    )
    build.group("blank", template_error="no annotations").group("failed", template=node("t", "8"))
    build.group("full", max=0, template=node("t", "8")).group("small", template=node("t", "500m"))
    build.group("good", template=node("t", "8")).running("sick-0", 1, "1", owner="filler").pending(
        2, "4"
    )
    failed = Backoff(
        duration=300, until=NOW + 60, last_failed=NOW - 240, cls="OutOfStock", message="sold out"
    )
    memory = Memory(groups={"failed": GroupMemory(backoff=failed), "sick": GroupMemory(target=9)})
    assert growth(build.plan(memory)) == {"good": (1, 2)}
    build.groups = [group for group in build.groups if group.id != "good"]
    assert words(build.plan(memory)) == {
        "sick": ["Insufficient cpu"],
        "unread": ["not ready for scale-up"],
        "blank": ["not ready for scale-up"],
        "failed": ["in backoff after failed scale-up"],
        "full": ["max node group size reached"],
        "small": ["Insufficient cpu"],
    }


def test_cluster_without_groups_gives_an_empty_scale_up_without_reasons() -> None:
    plan = cluster().node("full", "0").pending(1, "1").plan()
    assert growth(plan) == {}
    assert words(plan) == {}


def test_no_pending_pods_give_no_scale_up() -> None:
    assert growth(_two().plan()) == {}


def test_unhealthy_cluster_is_not_scaled_up() -> None:
    build = _two().pending(1, "1")
    for at in range(9):
        build.node(f"sick{at}", group="sick", ready=False)
    plan = build.group("sick").plan()
    assert growth(plan) == {}
    assert [each.reason.code for each in plan.ignored] == [ReasonCode.CLUSTER_UNHEALTHY]


# -- GPUs


def test_gpu_total_limit_ends_a_scale_up_and_is_reported() -> None:
    label = {"cluster-api/accelerator": "t4"}
    build = cluster().group(
        "gpu", template=node("t", "8", "64Gi", labels=label, extra={"nvidia.com/gpu": 2})
    )
    build.pending(9, "1", extra={"nvidia.com/gpu": 1})
    plan = build.plan(gpu_total=(("t4", 0, 5),))
    assert growth(plan) == {"gpu": (2, 4)}
    assert words(plan) == {"gpu": [f"{QUOTA}t4"]}


def test_gpu_total_limit_does_not_affect_pods_without_gpus() -> None:
    build = cluster().group("gpu", template=node("t", "8", "64Gi", extra={"nvidia.com/gpu": 2}))
    build.group("plain", template=node("t", "8", "64Gi"))
    build.pending(1, "1", name="g", owner="g", extra={"nvidia.com/gpu": 1})
    plan = build.pending(3, "1", name="p", owner="p").plan(gpu_total=(("nvidia.com/gpu", 0, 1),))
    assert growth(plan) == {"plain": (1, 3)}


# -- all or nothing


@pytest.mark.parametrize(
    ("group", "used", "options", "why"),
    [
        pytest.param({"max": 5}, 0, {}, "", id="L6-one-pod-brings-all-five"),
        pytest.param({"max": 3}, 1, {"cores_total": (0, 3)}, f"{QUOTA}cpu", id="L6-cpu"),
        pytest.param(
            {"max": 3}, 1, {"memory_total": (0, 3 * 4 * 2**30)}, f"{QUOTA}memory", id="L6-memory"
        ),
        pytest.param(
            {"max": 5},
            2,
            {"max_nodes_total": 5},
            "atomic scale-up exceeds cluster node count limit",
            id="L6-nodes",
        ),
        pytest.param({"max": 5}, 0, {"max_nodes_per_scale_up": 1}, "", id="not-cut-per-scale-up"),
    ],
)
def test_zero_or_max_group_is_bought_whole_or_not_at_all(
    group: dict[str, Any], used: int, options: dict[str, Any], why: str
) -> None:
    build = cluster()
    for at in range(used):
        build.node(f"other-{at}").running(f"other-{at}", 1, "1", owner="filler")
    plan = (
        build.group("g", template=node("t"), options=ATOMIC, **group)
        .pending(1, "1")
        .plan(**options)
    )
    assert growth(plan) == ({} if why else {"g": (group["max"], 1)})
    if why:
        assert words(plan) == {"g": [why]}


def test_unusable_zero_or_max_group_does_not_block_other_groups() -> None:
    build = cluster().group("all", max=4, template=node("t", "1", "1Gi"), options=ATOMIC)
    build.group("one", template=node("t", "1", "64Gi"))
    assert growth(build.pending(6, "1", "1Mi").plan()) == {"all": (4, 4), "one": (2, 2)}
    assert growth(build.plan(max_nodes_total=3)) == {"one": (3, 3)}


# -- minimum sizes


def test_pods_use_nodes_added_by_min_size_enforcement() -> None:
    build = (
        cluster()
        .group("a", template=node("t", "2", "4Gi"))
        .group("low", min=2, template=node("t", "2", "64Gi"))
    )
    build.pending(3, "1", "1Mi")
    assert growth(build.plan()) == {"a": (2, 3)}, "a wastes less"
    plan = build.plan(enforce_node_group_min_size=True)
    assert growth(plan) == {"low": (2, 3)}
    assert set(expected(plan).values()) == {"low/1", "low/2"}


def test_group_below_its_minimum_is_raised_without_pending_pods() -> None:
    build = cluster().group("low", min=3, template=node("t", "2")).pending(1, "1")
    assert growth(build.plan(enforce_node_group_min_size=True)) == {"low": (3, 1)}
    assert growth(
        cluster()
        .group("low", min=3, template=node("t", "2"))
        .plan(enforce_node_group_min_size=True)
    ) == {"low": (3, 0)}


@pytest.mark.parametrize(("limit", "found"), [(0, (4, 7)), (3, (3, 6))])
def test_pods_scale_a_group_beyond_its_minimum(limit: int, found: tuple[int, int]) -> None:
    build = cluster().group("low", min=2, template=node("t", "2")).pending(7, "1")
    plan = build.plan(enforce_node_group_min_size=True, max_nodes_total=limit)
    assert max(Counter(expected(plan).values()).values()) <= 2, (
        "a node of 2 cpu is promised more than two pods of 1"
    )
    assert growth(plan) == {"low": found}


# -- balancing


def _similar(sizes: tuple[int, ...], kinds: str, **taints: tuple[Taint, ...]) -> ClusterBuilder:
    """Full groups ng1, ng2 … of 1-cpu nodes, each with a GPU type, and room for ten nodes
    each; six pods are pending."""
    build = cluster()

    def machine(name: str, at: int, **more: Any) -> Node:
        return node(
            name,
            labels={"cluster-api/accelerator": kinds[at]},
            extra={"nvidia.com/gpu": 1},
            taints=taints.get(f"ng{at + 1}", ()),
            **more,
        )

    for at, size in enumerate(sizes):
        group = f"ng{at + 1}"
        for number in range(size):
            build.nodes.append(machine(f"{group}-{number}", at, group=group))
            build.running(f"{group}-{number}", 1, "1", owner="filler")
        build.group(group, max=10, template=machine("t", at))
    return build.pending(6, "1")


def _sizes(
    build: ClusterBuilder, limits: dict[str, int] | None = None, memory: Memory | None = None
) -> dict[str, int]:
    """Group sizes after the pass."""
    plan = build.plan(
        memory,
        balance_similar_node_groups=True,
        balancing_ignore_label=("cluster-api/accelerator",),
        gpu_total=tuple((kind, 0, most) for kind, most in (limits or {}).items()),
    )
    more = _new(plan)
    return {group.id: group.target + more.get(group.id, 0) for group in build.groups}


@pytest.mark.parametrize(
    ("sizes", "kinds", "limits", "after"),
    [
        pytest.param((1, 1, 1), "aaa", {}, (3, 3, 3), id="evenly"),
        pytest.param(
            (1, 1, 1),
            "aba",
            {"b": 2},
            (4, 2, 3),
            id="B8-what-ng2-loses-goes-to-others-in-the-next-round",
        ),
        pytest.param(
            (1, 1, 1), "aba", {"b": 1}, (4, 1, 4), id="B8-ng2-without-room-for-one-is-left-out"
        ),
        pytest.param(
            (1, 2, 2),
            "aaa",
            {"a": 6},
            (2, 2, 2),
            id="B9-a-shared-limit-leaves-one-for-the-smallest",
        ),
        pytest.param(
            (1, 1, 2),
            "abb",
            {"b": 4},
            (6, 2, 2),
            id="B9-two-share-a-limit-and-the-third-takes-the-rest",
        ),
    ],
)
def test_increase_is_distributed_over_similar_groups(
    sizes: tuple[int, ...], kinds: str, limits: dict[str, int], after: tuple[int, ...]
) -> None:
    """Upstream ends after one round and leaves the remaining pods pending; here
    the same pass continues."""
    assert tuple(_sizes(_similar(sizes, kinds), limits).values()) == after


def test_increase_is_not_distributed_without_the_balancing_option() -> None:
    assert _new(_similar((1, 1, 1), "aaa").plan()) == {"ng1": 6}


def test_balancing_skips_groups_that_do_not_fit_the_pods_or_are_backed_off() -> None:
    tainted = _similar((1, 1, 1), "aaa", ng2=(Taint("dedicated", "NoSchedule"),))
    assert _sizes(tainted) == {"ng1": 4, "ng2": 1, "ng3": 4}
    failed = Backoff(duration=300, until=NOW + 60, last_failed=NOW - 240)
    assert _sizes(
        _similar((1, 1, 1), "aaa"), memory=Memory(groups={"ng2": GroupMemory(backoff=failed)})
    ) == {
        "ng1": 4,
        "ng2": 1,
        "ng3": 4,
    }


def test_balancing_uses_the_room_of_all_similar_groups_at_once() -> None:
    build = cluster()
    for name in "abc":
        build.group(name, max=2, template=node("t"))
    assert growth(build.pending(6, "1").plan(balance_similar_node_groups=True)) == dict.fromkeys(
        "abc", (2, 2)
    )


# -- placement of pods


def test_higher_priority_pods_get_limited_capacity_first() -> None:
    build = cluster().node("n", "2").group("g", max=1, template=node("t", "2"))
    build.pending(3, "1", name="low", owner="low", priority=0).pending(
        3, "1", name="top", owner="top", priority=9
    )
    plan = build.plan()
    assert sorted(pod for pod in expected(plan) if "top" in pod) == [
        f"default/top-0000{at}" for at in (3, 4, 5)
    ]
    assert plan.fits_existing == ("default/top-00003", "default/top-00004")
    assert plan.scale_ups[0].pods == ("default/low-00000", "default/top-00005")
    assert [each.pods for each in plan.unschedulable] == [
        ("default/low-00001", "default/low-00002")
    ]


def test_host_ports_of_different_classes_conflict_on_new_nodes() -> None:
    build = cluster().group("g", template=node("t", "8", "64Gi"))
    build.pending(2, "1", name="a", owner="a", ports=(HostPort(80),))
    build.pending(2, "1", name="b", owner="b", ports=(HostPort(80, "TCP", "10.0.0.1"),))
    assert growth(
        build.pending(2, "1", name="c", owner="c", ports=(HostPort(80, "UDP"),)).plan()
    ) == {"g": (4, 6)}


def test_unschedulable_pod_takes_no_room_from_other_pods() -> None:
    build = (
        cluster()
        .group("g", template=node("t", "2"))
        .pending(1, "99", name="huge", owner="huge", priority=9)
    )
    plan = build.pending(2, "1", name="p", owner="p").plan()
    assert growth(plan) == {"g": (1, 2)}
    assert verdict(plan).pods == ("default/huge-00000",)


def test_balancing_does_not_bypass_max_nodes_per_scale_up() -> None:
    build = (
        cluster()
        .group("g0", max=1, template=node("t"))
        .group("g1", max=9, template=node("t"))
        .pending(9, "1")
    )
    plan = build.plan(balance_similar_node_groups=True, max_nodes_per_scale_up=3)
    assert max(nodes for nodes, _ in growth(plan).values()) <= 3


def test_nodes_raised_to_the_minimum_are_treated_as_new_nodes() -> None:
    """low/3 is full and has no u; it joins with low/1 and low/2, so that no host
    may have more than one u."""
    build = cluster().group("low", min=2, template=node("t", "8", "64Gi"))
    build.pending(6, "100m", name="u", owner="u", spread=(even(HOSTNAME_LABEL, having(app="u")),))
    plan = build.pending(1, "8", name="whole", owner="whole").plan(enforce_node_group_min_size=True)
    hosts = {
        f"{up.group}/{number}": 0
        for up in plan.scale_ups
        for number in range(1, up.to_size - up.from_size + 1)
    }
    for pod, host in expected(plan).items():
        hosts[host] += "/u-" in pod
    assert max(hosts.values()) - min(hosts.values()) <= 1


def test_young_pod_does_not_take_the_place_of_an_older_pod_of_its_class() -> None:
    """`old` waits for x, which is placed after it; `young`, of the same class, is tried next
    and finds the last room."""
    build = cluster().node("n", "2", zone="a").group("g", template=node("t", "2", zone="a"))
    to_x = (near(ZONE, having(app="x")),)
    build.pending(1, "1", name="old", owner="c", created=NOW - 900, pod_affinity=to_x)
    build.pending(1, "1", name="x", owner="x", created=NOW - 800)
    build.pending(1, "1", name="young", owner="c", created=NOW - 10, pod_affinity=to_x)
    plan = build.plan(new_pod_scale_up_delay=60.0)
    assert growth(plan) == {}
    assert plan.fits_existing == ("default/old-00000", "default/x-00001")
