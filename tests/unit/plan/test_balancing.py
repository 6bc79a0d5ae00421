"""Similarity of groups, and distribution of new nodes over similar groups."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.group import GroupOptions
from chalicelib.model.memory import Backoff, GroupMemory, Memory
from chalicelib.model.node import Node, Taint
from chalicelib.plan.predicates import untolerated
from chalicelib.plan.scale_up.balancing import Likeness, balance, free_capacity, split
from chalicelib.plan.scale_up.scale_up_limits import ResourceLimiter
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState, build_cluster_state
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from tests.builders import NOW, ClusterBuilder, cluster, node

KI = 1024


def world_of(build: ClusterBuilder, memory: Memory | None = None, **options: Any) -> ClusterState:
    policy = Policy(name="test", options=msgspec.structs.replace(Options(), **options))
    return build_cluster_state(build.snapshot(), policy, memory or Memory(), NOW)


def alike(build: ClusterBuilder, memory: Memory | None = None, **options: Any) -> list[str]:
    """Returns the groups similar to the first one built."""
    world = world_of(build, memory, **options)
    best, *others = world.groups.values()
    return [
        facts.id for facts in Likeness(world.snapshot.classes, world.options).similar(best, others)
    ]


def pair(left: Node, right: Node, **options: Any) -> bool:
    return bool(
        alike(cluster().group("ng1", template=left).group("ng2", template=right), **options)
    )


def sized(name: str, **amounts: int) -> Node:
    """A template of 1000/2000 with these changes; alloc_cpu and alloc_memory
    change only allocatable."""
    capacity = {"cpu": 1000, "memory": 2000, "pods": 110}
    capacity |= {key: amount for key, amount in amounts.items() if not key.startswith("alloc_")}
    allocatable = capacity | {
        key[6:]: amount for key, amount in amounts.items() if key.startswith("alloc_")
    }
    return node(name, capacity=capacity, allocatable=allocatable)


# -- similarity


@pytest.mark.parametrize(
    ("left", "right", "similar"),
    [
        pytest.param({}, {"cpu": 1001, "alloc_cpu": 1000}, False, id="B4-capacity"),
        pytest.param({"alloc_cpu": 1000}, {"alloc_cpu": 999}, True, id="B4-allocatable-1000-999"),
        pytest.param({"alloc_cpu": 1000}, {"alloc_cpu": 500}, False, id="B4-allocatable-1000-500"),
        pytest.param({}, {"nvidia.com/gpu": 1}, False, id="B4-gpu-on-one-side"),
        pytest.param({"nvidia.com/gpu": 1}, {}, False, id="B4-gpu-on-the-other-side"),
        pytest.param(
            {"memory": 16116152 * KI}, {"memory": 15944120 * KI}, True, id="B5-16116152-15944120"
        ),
        pytest.param(
            {"memory": 16116152 * KI}, {"memory": 16438475 * KI}, False, id="B5-16116152-16438475"
        ),
        pytest.param(
            {"memory": 259970052 * KI},
            {"memory": 257217528 * KI},
            True,
            id="B5-259970052-257217528",
        ),
        pytest.param(
            {"memory": 259970052 * KI},
            {"memory": 265169453 * KI},
            False,
            id="B5-259970052-265169453",
        ),
        pytest.param({"memory": 1000}, {"memory": 985}, True, id="exactly-the-ratio-of-the-larger"),
        pytest.param(
            {"memory": 1000}, {"memory": 984}, False, id="just-over-the-ratio-of-the-larger"
        ),
        pytest.param(
            {"alloc_cpu": 950},
            {"alloc_cpu": 1000},
            True,
            id="allocatable-exactly-5-percent-of-the-larger",
        ),
        pytest.param(
            {"alloc_cpu": 949},
            {"alloc_cpu": 1000},
            False,
            id="allocatable-over-5-percent-of-the-larger",
        ),
    ],
)
def test_similarity_compares_resource_amounts(
    left: dict[str, int], right: dict[str, int], similar: bool
) -> None:
    assert pair(sized("t", **left), sized("t", **right)) is similar


def test_resource_that_only_one_group_has_makes_groups_dissimilar() -> None:
    plain, pages = sized("t"), {"hugepages-2Mi": 0}
    offered = msgspec.structs.replace(plain, allocatable=plain.allocatable | pages)
    built_in = msgspec.structs.replace(plain, capacity=plain.capacity | pages)
    for other in (offered, built_in):
        assert not pair(plain, other)
        assert not pair(other, plain)
        assert pair(other, other)


@pytest.mark.parametrize(
    ("option", "left", "right"),
    [
        pytest.param(
            "memory_difference_ratio",
            {"memory": 1000, "alloc_memory": 900},
            {"memory": 940, "alloc_memory": 900},
            id="memory",
        ),
        pytest.param(
            "max_allocatable_difference_ratio",
            {"alloc_cpu": 1000},
            {"alloc_cpu": 940},
            id="allocatable",
        ),
    ],
)
def test_similarity_ratios_are_configurable(
    option: str, left: dict[str, int], right: dict[str, int]
) -> None:
    assert not pair(sized("t", **left), sized("t", **right))
    assert pair(
        sized("t", **left), sized("t", **right), **{option: 0.1, "max_free_difference_ratio": 0.1}
    )


def loaded(
    left: tuple[int, int], right: tuple[int, int], right_cpu: int = 1000, **options: Any
) -> bool:
    """Two groups of 1000/2000, each with its own DaemonSet that requests that much."""
    build = cluster()
    for name, (cpu, memory) in (("ng1", left), ("ng2", right)):
        build.daemonset(name, f"{cpu}m", memory, node_selector={"agent": name})
    tell = {"ng1": {"agent": "ng1"}, "ng2": {"agent": "ng2"}}
    for name, cpu in (("ng1", 1000), ("ng2", right_cpu)):
        model = sized(name, alloc_cpu=cpu)
        build.group(
            name, template=msgspec.structs.replace(model, labels={**model.labels, **tell[name]})
        )
    return bool(alike(build, balancing_ignore_label=("agent",), **options))


def test_similarity_compares_free_room_after_template_pods() -> None:
    assert loaded((500, 1000), (501, 1001))
    assert not loaded((500, 1000), (600, 1000))
    assert loaded((500, 1000), (600, 1000), max_free_difference_ratio=0.2)


def test_similarity_counts_what_a_daemonset_requests_and_the_node_lacks() -> None:
    """One unit of difference, of 20 that are lacking, is the whole permitted ratio."""

    def pair_with(left: int, right: int) -> list[str]:
        build = cluster()
        for name, amount in (("ng1", left), ("ng2", right)):
            build.daemonset(name, extra={"example.com/port": amount}, node_selector={"agent": name})
            model = sized(name)
            build.group(
                name,
                template=msgspec.structs.replace(model, labels={**model.labels, "agent": name}),
            )
        return alike(build, balancing_ignore_label=("agent",))

    assert pair_with(20, 21)
    assert not pair_with(19, 20)


def test_equal_free_room_does_not_make_groups_with_unlike_allocatable_similar() -> None:
    assert not loaded((500, 1000), (0, 1000), right_cpu=500)


@pytest.mark.parametrize(
    ("left", "right", "options", "similar"),
    [
        pytest.param({"character": "thing"}, {}, {}, False, id="B7-one-side-lacks-a-label"),
        pytest.param({}, {"character": "thing"}, {}, False, id="B7-the-other-side-lacks-it"),
        pytest.param({"character": "a"}, {"character": "b"}, {}, False, id="B7-another-value"),
        pytest.param(
            {"character": "a"},
            {"character": "b"},
            {"balancing_ignore_label": ("character",)},
            True,
            id="B7-ignored-by-option",
        ),
        pytest.param(
            {"kubernetes.io/hostname": "a"},
            {"kubernetes.io/hostname": "b"},
            {},
            True,
            id="B7-hostname",
        ),
        pytest.param(
            {"topology.kubernetes.io/zone": "a"},
            {"topology.kubernetes.io/zone": "b"},
            {},
            True,
            id="B7-zone",
        ),
        pytest.param(
            {"topology.kubernetes.io/region": "a"}, {}, {}, True, id="B7-region-missing-on-one-side"
        ),
        pytest.param(
            {"beta.kubernetes.io/fluentd-ds-ready": "true"}, {}, {}, True, id="B7-fluentd-ds-ready"
        ),
        pytest.param(
            {"kops.k8s.io/instancegroup": "a"},
            {"kops.k8s.io/instancegroup": "b"},
            {},
            True,
            id="B7-kops",
        ),
        pytest.param(
            {"topology.diskplugin.csi.alibabacloud.com/zone": "a"},
            {},
            {},
            True,
            id="seed-alibaba-csi-zone",
        ),
        pytest.param(
            {"topology.ebs.csi.aws.com/zone": "a"},
            {"topology.ebs.csi.aws.com/zone": "b"},
            {},
            True,
            id="seed-aws-csi-zone",
        ),
        pytest.param({"agentpool": "a"}, {"agentpool": "b"}, {}, True, id="seed-azure-pool"),
        pytest.param(
            {"ibm-cloud.kubernetes.io/worker-id": "a"}, {}, {}, True, id="seed-ibm-worker"
        ),
        pytest.param(
            {"pool": "x", "disk": "ssd"},
            {"pool": "x", "disk": "hdd"},
            {"balancing_label": ("pool",)},
            True,
            id="balancing-label-equal",
        ),
        pytest.param(
            {"pool": "x"},
            {"pool": "y"},
            {"balancing_label": ("pool",)},
            False,
            id="balancing-label-unequal",
        ),
        pytest.param(
            {}, {}, {"balancing_label": ("pool",)}, False, id="balancing-label-on-neither"
        ),
        pytest.param(
            {"pool": "x", "tier": "1"},
            {"pool": "x"},
            {"balancing_label": ("pool", "tier")},
            False,
            id="one-of-two-balancing-labels-missing",
        ),
        pytest.param(
            {"topology.kubernetes.io/zone": "a"},
            {"topology.kubernetes.io/zone": "b"},
            {"balancing_label": ("topology.kubernetes.io/zone",)},
            False,
            id="balancing-label-is-never-ignored",
        ),
    ],
)
def test_similarity_compares_labels(
    left: dict[str, str], right: dict[str, str], options: dict[str, Any], similar: bool
) -> None:
    assert pair(node("t", labels=left), node("t", labels=right), **options) is similar


@pytest.mark.parametrize(
    "label",
    [
        "topology.k8s.aws/zone-id",
        "eks.amazonaws.com/nodegroup",
        "eks.amazonaws.com/sourceLaunchTemplateId",
        "aksEngineVersion",
        "creationSource",
        "poolName",
        "resourceNameSuffix",
        "kubernetes.azure.com/node-image-version",
        "kubernetes.azure.com/consolidated-additional-properties",
        "alibabacloud.com/ecs-instance-id",
        "alibabacloud.com/nodepool-id",
        "node.alibabacloud.com/nodepool-id",
        "node.exoscale.net/nodepool-id",
        "cce.cloud.com/cce-nodepool",
        "kubernetes.io/availablezone",
        "node.kubernetes.io/subnetid",
        "node.cluster.x-k8s.io/esxi-host",
        "node.gardener.cloud/machine-name",
        "topology.cinder.csi.openstack.org/zone",
        "topology.manila.csi.openstack.org/zone",
        "topology.csi.exoscale.com/zone",
        "topology.csi.vmware.com/k8s-zone",
        "topology.hostpath.csi/node",
        "topology.diskplugin.csi.alibabacloud.com/zone",
        "csi.hetzner.cloud/location",
    ],
)
def test_zone_and_provider_labels_do_not_make_groups_dissimilar(label: str) -> None:
    assert pair(node("t", labels={label: "a"}), node("t", labels={label: "b"}))
    assert pair(node("t", labels={label: "a"}), node("t"))


@pytest.mark.parametrize(
    "label",
    [
        "pool",
        "topology.example.com/rack",
        "csi.example.com/driver",
        "topology.csix.example.com/zone",
        "kubernetes.io/os",
        "node.csi.alibabacloud.com/disktype.cloud_essd",
        "alibabacloud.com/gpu-card-type",
        "os.name",
    ],
)
def test_labels_that_describe_the_node_make_groups_dissimilar(label: str) -> None:
    assert not pair(node("t", labels={label: "a"}), node("t", labels={label: "b"}))
    assert pair(
        node("t", labels={label: "a"}),
        node("t", labels={label: "b"}),
        balancing_ignore_label=(label,),
    )


def test_balancing_label_alone_decides_similarity_whatever_the_size() -> None:
    left, right = node("t", "2", labels={"pool": "x"}), node("t", "64", "1Ti", labels={"pool": "x"})
    assert pair(left, right, balancing_label=("pool",))
    assert not pair(left, right)


def test_similarity_ignores_taints() -> None:
    assert pair(node("t"), node("t", taints=[Taint("dedicated", "NoSchedule")]))


def test_zero_or_max_group_is_similar_to_no_group() -> None:
    atomic = GroupOptions(zero_or_max=True)
    assert (
        alike(
            cluster().group("a", template=node("t")).group("b", template=node("t"), options=atomic)
        )
        == []
    )
    assert (
        alike(
            cluster().group("a", template=node("t"), options=atomic).group("b", template=node("t"))
        )
        == []
    )


def test_balancing_skips_a_similar_group_that_the_pods_do_not_fit() -> None:
    build = cluster().group("n1", template=node("t")).group("n3", template=node("t"))
    build.group("n2", template=node("t", taints=[Taint("dedicated", "NoSchedule")]))
    world = world_of(build)

    def takes(facts: NodeGroupState) -> bool:
        assert facts.template is not None
        return untolerated((), facts.template.node.taints) is None

    found = Likeness((), world.options).similar(
        world.groups["n1"], tuple(world.groups.values()), takes
    )
    assert [facts.id for facts in found] == ["n3"]


@pytest.mark.parametrize("why", ["backoff", "unhealthy", "unreadable", "no-template"])
def test_balancing_skips_a_similar_group_that_may_not_scale_up(why: str) -> None:
    build = cluster().group("n1", template=node("t"))
    build.group(
        "n2",
        template=None if why == "no-template" else node("t"),
        error="403 Forbidden" if why == "unreadable" else "",
        target=9 if why == "unhealthy" else 0,
    )
    failed = Backoff(duration=300, until=NOW + 60, last_failed=NOW - 240)
    memory = Memory(groups={"n2": GroupMemory(backoff=failed)}) if why == "backoff" else None
    assert alike(build, memory) == []


def test_similar_groups_are_sorted_by_name_for_any_input_order() -> None:
    for order in (("a", "d", "b", "c"), ("a", "c", "b", "d")):
        build = cluster()
        for name in order:
            build.group(name, template=node("t"))
        assert alike(build) == ["b", "c", "d"]


# -- distribution


@pytest.mark.parametrize(
    ("total", "after"),
    [
        pytest.param(1, [2, 3, 5, 5], id="B1-1"),
        pytest.param(2, [3, 3, 5, 5], id="B1-2"),
        pytest.param(4, [4, 4, 5, 5], id="B1-4"),
        pytest.param(5, [4, 5, 5, 5], id="B1-5"),
        pytest.param(10, [6, 6, 6, 6], id="B1-10"),
    ],
)
def test_balancing_gives_the_next_node_to_the_smallest_group(total: int, after: list[int]) -> None:
    assert sorted(split(total, [(1, 10), (3, 10), (5, 10), (5, 10)])) == after


NG1, NG2, NG3, NG4, NG5 = (1, 1), (1, 3), (3, 10), (5, 7), (6, 3)


@pytest.mark.parametrize(
    ("groups", "total", "after"),
    [
        pytest.param([NG1], 1, [1], id="B2-full"),
        pytest.param([NG1, NG2], 1, [1, 2], id="B2-1"),
        pytest.param([NG1, NG2], 5, [1, 3], id="B2-5"),
        pytest.param([NG2, NG3], 4, [3, 5], id="B3-4"),
        pytest.param([NG2, NG3, NG4], 9, [3, 8, 7], id="B3-9"),
        pytest.param([NG2, NG3, NG4], 900, [3, 10, 7], id="B3-900"),
        pytest.param([NG2, NG5], 1, [2, 6], id="B3-one-group-is-over-its-maximum"),
        pytest.param([], 3, [], id="no-group"),
    ],
)
def test_balancing_never_exceeds_a_group_maximum(
    groups: list[tuple[int, int]], total: int, after: list[int]
) -> None:
    assert split(total, groups) == after


@pytest.mark.parametrize(
    ("sizes", "free"),
    [
        pytest.param([(10, 20), (5, 10), (50, 100), (3, 5)], 67, id="E13-all-have-room"),
        pytest.param(
            [(10, 5), (5, 10), (11, 10), (5, 0)],
            5,
            id="E13-those-over-their-maximum-take-nothing-away",
        ),
        pytest.param([(10, 5), (5, 5), (11, 10)], 0, id="E13-no-room"),
    ],
)
def test_balancing_counts_free_capacity_of_similar_groups(
    sizes: list[tuple[int, int]], free: int
) -> None:
    assert free_capacity(sizes) == free


def spread(
    total: int, sizes: dict[str, int], kinds: dict[str, str], limits: dict[str, int], **options: Any
) -> dict[str, int]:
    """Sizes after distributing `total` nodes. A limit for some groups only: GPUs of their type."""
    build = cluster()
    for group, size in sizes.items():
        labels = {"cluster-api/accelerator": kinds[group]}
        for at in range(size):
            build.node(f"{group}-{at}", group=group, labels=labels, extra={"nvidia.com/gpu": 1})
        build.group(group, max=10)
    limited = tuple((kind, 0, most) for kind, most in limits.items())
    world = world_of(
        build, balancing_ignore_label=("cluster-api/accelerator",), gpu_total=limited, **options
    )
    best, *others = world.groups.values()
    similar = Likeness(world.snapshot.classes, world.options).similar(best, others)
    assert len(similar) == len(others)
    return sizes | {
        group: sizes[group] + more
        for group, more in balance(total, best, similar, ResourceLimiter(world))
    }


@pytest.mark.parametrize(
    ("sizes", "kinds", "limits", "after"),
    [
        pytest.param(
            (1, 1, 1), "aba", {"b": 2}, (3, 2, 3), id="B8-what-ng2-loses-is-not-given-to-others"
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
        pytest.param((1, 1, 2), "abb", {"b": 4}, (4, 2, 2), id="B9-two-share-a-limit"),
    ],
)
def test_balancing_caps_each_groups_share_in_turn(
    sizes: tuple[int, ...], kinds: str, limits: dict[str, int], after: tuple[int, ...]
) -> None:
    names = ("ng1", "ng2", "ng3")
    found = spread(
        6, dict(zip(names, sizes, strict=True)), dict(zip(names, kinds, strict=True)), limits
    )
    assert tuple(found.values()) == after


def test_max_nodes_total_caps_the_increase_before_it_is_distributed() -> None:
    assert spread(
        6,
        {"ng1": 1, "ng2": 1, "ng3": 1},
        dict.fromkeys(("ng1", "ng2", "ng3"), "a"),
        {},
        max_nodes_total=5,
    ) == {"ng1": 2, "ng2": 2, "ng3": 1}


def test_nodes_already_planned_in_this_pass_count_as_group_size() -> None:
    build = cluster().group("a", max=4, template=node("t")).group("b", max=4, template=node("t"))
    world = world_of(build)
    shares = balance(3, world.groups["a"], [world.groups["b"]], ResourceLimiter(world), {"a": 2})
    assert dict(shares) == {"a": 1, "b": 2}


def test_balancing_alone_uses_up_no_limits() -> None:
    world = world_of(
        cluster().group("a", template=node("t")).group("b", template=node("t")), max_nodes_total=4
    )
    ledger = ResourceLimiter(world)
    assert dict(balance(9, world.groups["a"], [world.groups["b"]], ledger)) == {"a": 2, "b": 2}
    assert ledger.allowance(world.groups["a"], 0).nodes == 4


def test_zero_or_max_group_is_never_balanced_or_cut() -> None:
    build = cluster().group("a", max=3, template=node("t"), options=GroupOptions(zero_or_max=True))
    build.group("b", template=node("t"))
    for most, expected in ((3, [("a", 3)]), (2, [])):
        world = world_of(build, max_nodes_total=most)
        assert (
            balance(3, world.groups["a"], [world.groups["b"]], ResourceLimiter(world)) == expected
        )
