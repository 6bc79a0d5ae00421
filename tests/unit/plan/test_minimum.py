"""Groups below their minimum are raised to it (scale-up.md §9), as far as limits allow."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.group import GroupOptions
from chalicelib.model.memory import Backoff, GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.operation import OperationKind
from chalicelib.model.policy import Options, Policy
from chalicelib.plan.scale_up.limits import ResourceLimiter
from chalicelib.plan.scale_up.min_size import enforce_min_size
from chalicelib.plan.state.cluster_state import build_cluster_state
from tests.builders import NOW, ClusterBuilder, cluster, node
from tests.operations import new_operation


def raised(
    build: ClusterBuilder, memory: Memory | None = None, grown: dict[str, int] | None = None, **options: Any
) -> dict[str, int]:
    wanted = msgspec.structs.replace(Options(), **{"enforce_node_group_min_size": True, **options})
    world = build_cluster_state(build.snapshot(), Policy(name="test", options=wanted), memory or Memory(), NOW)
    return dict(enforce_min_size(world, ResourceLimiter(world), grown or {}))


def small(**group: Any) -> ClusterBuilder:
    """A group of one node, at least three."""
    return cluster().node("n", "16", group="g").group("g", **{"min": 3, **group})


def test_a_group_gets_what_it_lacks_only_if_that_is_wanted() -> None:
    assert raised(small()) == {"g": 2}
    assert raised(small(), enforce_node_group_min_size=False) == {}


@pytest.mark.parametrize(
    ("group", "lacks"),
    [
        pytest.param({"min": 1}, {}, id="at-its-minimum"),
        pytest.param({"min": 0}, {}, id="above-its-minimum"),
        pytest.param({"min": 5, "max": 2}, {"g": 1}, id="never-over-its-maximum"),
    ],
)
def test_bounds(group: dict[str, int], lacks: dict[str, int]) -> None:
    assert raised(small(**group)) == lacks


def test_L8_resource_limits_hold() -> None:
    build = cluster().node("n", "16", group="g").node("other", "16").group("g", min=3)
    assert raised(build, cores_total=(0, 48)) == {"g": 1}
    assert raised(build, cores_total=(0, 47)) == {}


@pytest.mark.parametrize(
    "why", ["", "backoff", "unhealthy", "unreadable", "growing", "no-template", "cluster-unhealthy"]
)
def test_L8_a_group_that_may_not_be_grown_is_left_for_later(why: str) -> None:
    build, memory = cluster(), Memory()
    if why == "cluster-unhealthy":
        for at in range(9):
            build.node(f"bad-{at}", group="bad", ready=False)
        build.group("bad")
    build.group(
        "g",
        min=12,
        target=9 if why == "unhealthy" else 1,
        error="403" if why == "unreadable" else "",
        template=None if why == "no-template" else node("t"),
    )
    known = GroupMemory(request=ScaleUpRequest(1, NOW - 60, NOW + 840))
    if why == "backoff":
        known = GroupMemory(backoff=Backoff(duration=300, until=NOW + 60, last_failed=NOW - 240))
    if why == "growing":
        memory = Memory(
            operations=(
                new_operation(
                    id="op",
                    cluster="test",
                    group="g",
                    provider="test",
                    kind=OperationKind.SCALE_UP,
                    from_size=1,
                    to_size=2,
                    plan="p",
                    created_at=NOW - 10,
                ),
            )
        )
    if why != "unhealthy":
        memory = msgspec.structs.replace(memory, groups={"g": known})
    assert raised(build, memory) == ({} if why else {"g": 11})


def test_the_size_of_the_cluster_counts_for_max_nodes_total_not_that_of_the_group() -> None:
    build = small()
    for at in range(9):
        build.node(f"other-{at}")
    assert raised(build, max_nodes_total=10) == {}, "upstream would compare 10 with the group's one node and add two"
    assert raised(build, max_nodes_total=11) == {"g": 1}


def test_groups_spend_the_same_room_only_once() -> None:
    build = cluster().group("b", min=3, template=node("t")).group("a", min=3, template=node("t"))
    assert raised(build, max_nodes_total=4) == {"a": 3, "b": 1}


def test_what_the_pass_already_gave_counts() -> None:
    assert raised(small(), grown={"g": 1}) == {"g": 1}
    assert raised(small(), grown={"g": 2}) == {}


def test_a_zero_or_max_group_gets_all_its_nodes_or_none() -> None:
    build = cluster().group("g", min=1, max=5, template=node("t"), options=GroupOptions(zero_or_max=True))
    assert raised(build) == {"g": 5}
    assert raised(build, max_nodes_total=4) == {}
