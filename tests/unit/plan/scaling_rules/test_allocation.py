"""Distribution of a rule's nodes over the flavours and zones of a pool
(docs/reference/scaling-rules.md "Allocation to groups")."""

from __future__ import annotations

import pytest

from chalicelib.model.group import GroupOptions
from chalicelib.model.reason import ReasonCode
from chalicelib.model.scaling_rules import Rule
from tests.unit.plan.scaling_rules.rule_harness import (
    MINUTE,
    Site,
    VendorPool,
    cron,
    grown,
    said,
    why,
)

TYPE = "node.kubernetes.io/instance-type"
POOL = VendorPool("pool", name="web", max=100)


def zones(add: int, first: int, second: int, **more: object) -> Site:
    """A pool with one flavour in two zones."""
    site = Site(cron(add=add, groups=("pool",)), **more)  # type: ignore[arg-type]
    for name, count in (("pool/az1", first), ("pool/az2", second)):
        site.group(name, count, pool=POOL, node={"labels": {TYPE: "c7.xlarge"}, "zone": name[-3:]})
    return site.group("calm", 1)


def due(site: Site) -> dict[str, int]:
    """Returns what the rule adds when it is due."""
    site.plan()
    return grown(site.plan(site.now + MINUTE))


@pytest.mark.parametrize(
    ("add", "outcome"),
    [
        (10, {"pool/az2": 10}),
        (20, {"pool/az1": 5, "pool/az2": 15}),
        (3, {"pool/az2": 3}),
        (11, {"pool/az1": 1, "pool/az2": 10}),
    ],
)
def test_CCE_A6_7_rule_balances_zones_of_a_flavour(add: int, outcome: dict[str, int]) -> None:
    assert due(zones(add, 10, 0)) == outcome


def test_CCE_A6_7_full_zone_leaves_its_share_to_other_zones() -> None:
    site = zones(10, 10, 0)
    site.groups["pool/az2"].more["max"] = 4
    assert due(site) == {"pool/az1": 6, "pool/az2": 4}
    cooling = zones(4, 2, 2)
    cooling.plan()
    plan = cooling.sold_out("pool/az2", until=cooling.now + 3600.0).plan(cooling.now + MINUTE)
    assert grown(plan) == {"pool/az1": 4}


@pytest.mark.parametrize(
    ("limit", "stop"),
    [
        ({"max_nodes_total": 9}, ReasonCode.MAX_NODES_TOTAL),
        ({"cores_total": (0, 36)}, ReasonCode.RESOURCE_LIMIT),
    ],
)
def test_CCE_A6_7_nodes_left_by_a_shared_limit_are_balanced_too(
    limit: dict[str, object], stop: ReasonCode
) -> None:
    site = zones(10, 2, 2, **limit)
    site.plan()
    plan = site.plan(site.now + MINUTE)
    assert (grown(plan), why(plan, "evening"), said(plan, "evening").nodes) == (
        {"pool/az1": 2, "pool/az2": 2},
        stop,
        4,
    )


def test_CCE_A6_1_pool_bounds_apply_to_all_its_flavours_together() -> None:
    site = zones(10, 2, 2)
    for kept in site.groups.values():
        kept.more["pool"] = (
            VendorPool("pool", name="web", max=9, elsewhere=2) if kept.more["pool"] else None
        )
    site.plan()
    plan = site.plan(site.now + MINUTE)
    assert (sum(grown(plan).values()), why(plan, "evening")) == (3, ReasonCode.POOL_MAX_SIZE)


def test_CCE_A6_3_highest_ranked_flavour_comes_first_within_its_own_bounds() -> None:
    site = Site(cron(add=6, groups=("web",)))
    for name, rank, most in (("pool/default", 0, 50), ("pool/best", 9, 3), ("pool/good", 5, 2)):
        site.group(name, 1, f"{2 + rank}", pool=POOL, rank=rank, max=most)
    assert due(site) == {"pool/best": 2, "pool/good": 1, "pool/default": 3}


def test_CCE_A6_5_smaller_group_of_equally_ranked_flavours_comes_first() -> None:
    site = Site(cron(add=2, groups=("pool",)))
    site.group("pool/a", 3, "4", pool=POOL).group("pool/b", 1, "8", pool=POOL).group(
        "pool/c", 1, "16", pool=POOL
    )
    assert due(site) == {"pool/b": 2}


def test_CCE_A6_5_next_flavour_is_used_if_the_preferred_one_cannot_grow() -> None:
    site = (
        Site(cron(add=2, groups=("pool",)))
        .group("pool/best", 1, pool=POOL, rank=9)
        .group("pool/b", 1, pool=POOL)
    )
    site.plan()
    assert grown(site.sold_out("pool/best", until=site.now + 600.0).plan(site.now + MINUTE)) == {
        "pool/b": 2
    }


def test_CCE_11_next_flavour_of_the_pool_is_used_after_a_sold_out_one() -> None:
    site = (
        Site(cron(add=4, groups=("pool",)))
        .group("pool/best", 1, pool=POOL, rank=9)
        .group("pool/b", 1, pool=POOL)
    )
    site.plan()
    plan = site.plan(site.now + MINUTE)
    assert grown(plan) == {"pool/best": 4}
    assert grown(site.sold_out("pool/best").plan(site.now + MINUTE)) == {"pool/b": 4}


def test_rule_on_one_group_of_a_pool_scales_up_only_that_group() -> None:
    site = zones(1, 2, 2)
    site.rules = (Rule("one", ("pool/az1",), cron="47 20 * * *", add=4),)
    assert due(site) == {"pool/az1": 4}


@pytest.mark.parametrize(("limit", "outcome"), [(0, {"g": 7}), (5, {})])
def test_rule_gives_a_zero_or_max_group_all_its_nodes_or_none(
    limit: int, outcome: dict[str, int]
) -> None:
    site = Site(cron(add=2), max_nodes_total=limit)
    site.group("g", 0, max=7, options=GroupOptions(zero_or_max=True)).group("calm", 1)
    assert due(site) == outcome
    if not outcome:
        # a limit is not a reason to wait
        assert why(site.plan(), "evening") is ReasonCode.RULE_NOT_DUE
