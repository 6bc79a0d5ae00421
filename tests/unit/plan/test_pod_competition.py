"""Placements in a plan: which pods get a place, and what is reported for pods
that compete for places.
"""

from __future__ import annotations

import pytest

from chalicelib.cli import plan_document, plan_output
from chalicelib.cli.output import Table
from chalicelib.model.plan import Plan, PodPlacement, UnschedulablePods
from tests.builders import ClusterBuilder, cluster, node

TIMES = {"decode": 0.0, "plan": 0.0}


def shop(most: int) -> ClusterBuilder:
    """Five equal pods, each of which fills a node, and a group with that maximum size."""
    return (
        cluster()
        .group("g", max=most, template=node("t", "2"))
        .pending(5, "1500m", name="web", owner="web")
    )


def entries(plan: Plan) -> list[PodPlacement | UnschedulablePods]:
    return [*plan.promises, *plan.unschedulable]


def promised(plan: Plan) -> dict[str, bool]:
    return {pod: each.promised for each in plan.promises for pod in each.pods}


def test_pods_get_definite_placements_where_all_fit() -> None:
    plan = shop(5).plan()
    assert len(promised(plan)) == 5
    assert all(promised(plan).values())
    assert not any(each.one_place_among for each in plan.promises)


@pytest.mark.parametrize("most", [1, 3, 4])
def test_pods_beyond_a_limit_are_reported_as_competing_for_places(most: int) -> None:
    plan = shop(most).plan()
    assert len(promised(plan)) == most
    assert not any(promised(plan).values())
    for each in entries(plan):
        assert each.one_place_among is not None
        assert each.one_place_among.places == most
        assert len(each.one_place_among.among) == 5


def test_large_plan_names_the_class_with_too_few_places() -> None:
    build = shop(3)
    for at in range(600):
        build.node(f"full-{at:03d}", "0")
    plan = build.plan()
    assert not any(promised(plan).values())
    assert {each.one_place_among.places for each in plan.promises if each.one_place_among} == {3}


def test_two_classes_that_need_the_same_place_compete_together() -> None:
    build = cluster().group("g", max=1, template=node("t", "2"))
    plan = (
        build.pending(1, "1500m", name="web", owner="web")
        .pending(1, "1600m", name="api", owner="api")
        .plan()
    )
    sets = {
        each.one_place_among.among: each.one_place_among.places
        for each in plan.promises
        if each.one_place_among
    }
    assert list(sets.values()) == [1]
    assert [len(among) for among in sets] == [2]


def test_higher_priority_pods_get_the_last_place_for_certain() -> None:
    build = (
        cluster()
        .group("g", max=1, template=node("t", "2"))
        .pending(1, "1500m", name="vip", priority=10)
    )
    plan = build.pending(1, "1500m", name="web").plan()
    assert list(promised(plan).values()) == [True]
    assert "vip" in next(iter(promised(plan)))


def test_plan_json_and_tables_show_competing_pods() -> None:
    plan = shop(3).plan()
    document = plan_document.as_document(plan, TIMES)
    contest = {"places": 3, "among": sorted(pod for each in entries(plan) for pod in each.pods)}
    for entry in (*document["promises"], *document["unschedulable"]):
        assert (entry["promised"], entry["onePlaceAmong"]) == (False, contest)
    table = next(
        each
        for each in plan_output.as_blocks(plan, TIMES)
        if isinstance(each, Table) and each.title == "Pods that compete for places"
    )
    assert [row[:2] for row in table.rows] == [("3", "5")]


def test_placement_stored_by_an_older_release_is_a_definite_placement() -> None:
    assert PodPlacement(("shop/a",), node="n-1").promised


def test_equal_pods_and_nodes_get_equal_placements_for_any_seed() -> None:
    assert len({shop(3).plan(seed=seed).promises for seed in range(4)}) == 1
