"""Pending pods and pods of nodes that are being drained go to nodes that stay anyway before nodes that may go."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.node import SCALE_DOWN_DISABLED, TO_BE_DELETED, Taint
from tests.builders import NOW, ClusterBuilder, cluster, expected


def two(**more: Any) -> ClusterBuilder:
    """`a` is empty and may go; `b` is what the keywords make of it; `g` may shrink to none."""
    build = cluster().node("a", "4", group="g").node("b", "4", group="g", **more)
    return build.group("g", max=2)


@pytest.mark.parametrize("drained", [False, True])
def test_a_pod_goes_to_a_node_that_is_held_and_the_empty_one_may_go(drained: bool) -> None:
    build = two(annotations={SCALE_DOWN_DISABLED: "true"})
    if drained:
        build.node("c", "4", group="h", taints=[Taint(TO_BE_DELETED, "NoSchedule", str(int(NOW)))])
        build.running("c", 1, "1").group("h", max=1)
    else:
        build.pending(1, "1")
    plan = build.plan(unneeded=3600.0)
    assert set(expected(plan).values()) == {"b"}
    assert "a" in plan.unneeded


def test_a_node_in_use_takes_the_pod_before_an_empty_one() -> None:
    plan = two().running("b", 1, "2500m").pending(1, "1").plan(unneeded=3600.0)
    assert set(expected(plan).values()) == {"b"}
    assert plan.unneeded == ("a",)


def test_where_only_a_node_that_may_go_has_room_it_stays() -> None:
    plan = two().running("b", 1, "3500m").pending(1, "1").plan(unneeded=3600.0)
    assert set(expected(plan).values()) == {"a"}
    assert plan.unneeded == ()


def test_nobody_is_left_without_a_node_for_the_sake_of_a_removal() -> None:
    plan = two(annotations={SCALE_DOWN_DISABLED: "true"}).pending(5, "1").plan(unneeded=3600.0)
    assert len(plan.fits_existing) == 5
    assert set(expected(plan).values()) == {"a", "b"}
