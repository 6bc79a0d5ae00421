"""Groups below their minimum are raised to it as far as limits allow
(docs/reference/scale-up.md "Minimum sizes").
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.group import GroupOptions, Pool
from chalicelib.model.memory import Backoff, GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.operation import OperationKind
from chalicelib.plan.scale_up.scale_up_limits import ResourceLimiter, enforce_min_size
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from tests.builders import NOW, ClusterBuilder, cluster, node
from tests.operations import new_operation


def raised(
    build: ClusterBuilder,
    memory: Memory | None = None,
    grown: dict[str, int] | None = None,
    **options: Any,
) -> dict[str, int]:
    wanted = msgspec.structs.replace(Options(), **{"enforce_node_group_min_size": True, **options})
    world = build_cluster_state(
        build.snapshot(), Policy(name="test", options=wanted), memory or Memory(), NOW
    )
    return dict(enforce_min_size(world, ResourceLimiter(world), grown or {}))


def small(**group: Any) -> ClusterBuilder:
    """A group of one node with a minimum of three."""
    return cluster().node("n", "16", group="g").group("g", **{"min": 3, **group})


def test_group_below_its_minimum_is_raised_only_if_the_option_is_on() -> None:
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
def test_raise_to_the_minimum_by_group_size_and_bounds(
    group: dict[str, int], lacks: dict[str, int]
) -> None:
    assert raised(small(**group)) == lacks


def test_raise_to_the_minimum_respects_resource_limits() -> None:
    build = cluster().node("n", "16", group="g").node("other", "16").group("g", min=3)
    assert raised(build, cores_total=(0, 48)) == {"g": 1}
    assert raised(build, cores_total=(0, 47)) == {}


@pytest.mark.parametrize(
    "why", ["", "backoff", "unhealthy", "unreadable", "growing", "no-template", "cluster-unhealthy"]
)
def test_group_that_may_not_scale_up_is_raised_to_its_minimum_later(why: str) -> None:
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


def test_max_nodes_total_counts_the_whole_cluster_when_raising_to_a_minimum() -> None:
    build = small()
    for at in range(9):
        build.node(f"other-{at}")
    assert raised(build, max_nodes_total=10) == {}, (
        "upstream would compare 10 with the group's one node and add two"
    )
    assert raised(build, max_nodes_total=11) == {"g": 1}


def test_groups_raised_to_their_minimums_share_one_limit_quota() -> None:
    build = cluster().group("b", min=3, template=node("t")).group("a", min=3, template=node("t"))
    assert raised(build, max_nodes_total=4) == {"a": 3, "b": 1}


def test_raise_to_the_minimum_counts_nodes_already_planned_in_the_pass() -> None:
    assert raised(small(), grown={"g": 1}) == {"g": 1}
    assert raised(small(), grown={"g": 2}) == {}


def pooled(
    sizes: dict[str, int],
    *,
    least: int,
    most: int = -1,
    elsewhere: int = 0,
    **groups: dict[str, Any],
) -> ClusterBuilder:
    """A vendor's pool of groups without minimums of their own. groups: further fields by group."""
    build, pool = cluster(), Pool("p", "pool", min=least, max=most, elsewhere=elsewhere)
    for name, size in sizes.items():
        for at in range(size):
            build.node(f"{name}-{at}", group=name)
        build.group(name, pool=pool, **groups.get(name, {}))
    return build


@pytest.mark.parametrize(
    ("build", "lacks"),
    [
        pytest.param(
            pooled({"a": 1, "b": 1}, least=5, b={"rank": 1}), {"b": 3}, id="highest-rank-first"
        ),
        pytest.param(pooled({"b": 1, "a": 1}, least=5), {"a": 3}, id="equal-ranks-by-name"),
        pytest.param(
            pooled({"a": 1, "b": 1}, least=5, b={"rank": 1, "max": 2}),
            {"a": 2, "b": 1},
            id="best-is-full",
        ),
        pytest.param(pooled({"a": 3, "b": 2}, least=5), {}, id="at-its-minimum"),
        pytest.param(
            pooled({"a": 1, "b": 1}, least=5, most=4), {"a": 2}, id="never-over-its-maximum"
        ),
        pytest.param(
            pooled({"a": 1, "b": 1}, least=5, elsewhere=2), {"a": 1}, id="counts-nodes-elsewhere"
        ),
        pytest.param(
            pooled({"a": 1, "b": 1}, least=6, b={"min": 3}),
            {"a": 2, "b": 2},
            id="counts-own-minimums",
        ),
        pytest.param(
            pooled({"a": 1, "b": 1}, least=5, b={"error": "403"}), {}, id="unreadable-member"
        ),
        pytest.param(pooled({"a": 1}, least=5), {}, id="one-member-has-its-own-minimum"),
    ],
)
def test_pool_below_its_minimum_is_raised_by_its_best_groups(
    build: ClusterBuilder, lacks: dict[str, int]
) -> None:
    assert raised(build) == lacks


def test_pool_is_raised_to_its_minimum_where_every_group_enforces_its_own() -> None:
    enforced = {"options": GroupOptions(enforce_min=True)}
    both = pooled({"a": 1, "b": 1}, least=5, a=enforced, b=enforced)
    one = pooled({"a": 1, "b": 1}, least=5, a=enforced)
    assert raised(both, enforce_node_group_min_size=False) == {"a": 3}
    assert raised(one, enforce_node_group_min_size=False) == {}


def test_pool_raised_to_its_minimum_counts_nodes_already_planned_in_the_pass() -> None:
    build = pooled({"a": 1, "b": 1}, least=5)
    assert raised(build, grown={"b": 2}) == {"a": 1}
    assert raised(build, grown={"b": 3}) == {}


def test_raise_to_the_minimum_gives_a_zero_or_max_group_all_nodes_or_none() -> None:
    build = cluster().group(
        "g", min=1, max=5, template=node("t"), options=GroupOptions(zero_or_max=True)
    )
    assert raised(build) == {"g": 5}
    assert raised(build, max_nodes_total=4) == {}
