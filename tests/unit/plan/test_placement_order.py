"""Pending pods and pods of draining nodes go to nodes that stay anyway before nodes that may be removed."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.node import SCALE_DOWN_DISABLED, TO_BE_DELETED, Taint
from chalicelib.plan.scale_up.placement.every_order import _RandomNumbers
from tests.builders import NOW, ClusterBuilder, cluster, expected


def two(**more: Any) -> ClusterBuilder:
    """`a` is empty and removable; the keywords describe `b`; `g` may shrink to zero."""
    build = cluster().node("a", "4", group="g").node("b", "4", group="g", **more)
    return build.group("g", max=2)


@pytest.mark.parametrize("drained", [False, True])
def test_pod_goes_to_a_blocked_node_so_the_empty_node_can_be_removed(drained: bool) -> None:
    build = two(annotations={SCALE_DOWN_DISABLED: "true"})
    if drained:
        build.node("c", "4", group="h", taints=[Taint(TO_BE_DELETED, "NoSchedule", str(int(NOW)))])
        build.running("c", 1, "1").group("h", max=1)
    else:
        build.pending(1, "1")
    plan = build.plan(unneeded=3600.0)
    assert set(expected(plan).values()) == {"b"}
    assert "a" in plan.unneeded


def test_pod_goes_to_a_node_in_use_before_an_empty_one() -> None:
    plan = two().running("b", 1, "2500m").pending(1, "1").plan(unneeded=3600.0)
    assert set(expected(plan).values()) == {"b"}
    assert plan.unneeded == ("a",)


def test_removable_node_with_the_only_room_stays() -> None:
    plan = two().running("b", 1, "3500m").pending(1, "1").plan(unneeded=3600.0)
    assert set(expected(plan).values()) == {"a"}
    assert plan.unneeded == ()


def test_no_pod_stays_pending_for_the_sake_of_a_removal() -> None:
    plan = two(annotations={SCALE_DOWN_DISABLED: "true"}).pending(5, "1").plan(unneeded=3600.0)
    assert len(plan.fits_existing) == 5
    assert set(expected(plan).values()) == {"a", "b"}


def test_orders_are_drawn_with_splitmix64() -> None:
    """The same draws on every machine and in every release: Vigna's reference values for the state 0."""
    numbers = _RandomNumbers(7)
    numbers._state = 0
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [numbers.random() for _ in expected] == [(value >> 11) / 2**53 for value in expected]
