"""The bill from a pass to its readers: what a removal saves, in the read route and on the page
of metrics (docs/bill.md)."""

from __future__ import annotations

import json
from typing import Any

from infra.emulators.controllers import objects
from tests.scenario.policies import document
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld

PRICES = {"cpu": 0.1, "memory": 0.0, "currency": "EUR"}


def cost_of(world: ScenarioWorld) -> Any:
    return json.loads(world.get("/clusters/shop")["body"])["cost"]


@scenario(grain=60.0)
def test_removal_of_an_unneeded_node_is_a_saving(world: ScenarioWorld) -> None:
    """Two nodes of which one is not needed: it is removed, and its price is saved
    in each hour that follows."""
    world.apply_policy(document(prices=PRICES))
    world.seed(objects.machine_deployment("workers", 2, 1, 5))
    world.minutes(1.5)
    world.seed(objects.deployment("web", replicas=1, cpu="500m"))
    world.minutes(6)
    [before] = cost_of(world)["bills"]
    world.step_until(lambda: bool(world.ended("remove")), limit=1200, every=60)
    world.minutes(130)

    cost = cost_of(world)
    [bill], [savings] = cost["bills"], cost["savings"]
    price = before["perHour"]["paid"] / 2
    assert bill["currency"] == "EUR"
    assert abs(bill["perHour"]["paid"] - price) < 1e-6
    assert savings["perHour"] == price
    assert price < savings["today"] < 3 * price
    assert bill["lowerBound"] <= bill["perHour"]["paid"]
    assert (
        sum(value for name, value in bill["perHour"].items() if name != "paid")
        == bill["perHour"]["paid"]
    )
    [operation] = [
        item for item in world.store.operations.ended("shop") if item.spec.kind == "remove"
    ]
    assert (operation.spec.price, operation.spec.currency) == (round(price * 1e6), "EUR")
    page = world.get("/metrics")["body"]
    assert f'outscaler_cost_per_hour{{cluster="shop",currency="EUR"}} {price:g}' in page
    assert 'outscaler_savings_total{cluster="shop",currency="EUR"}' in page


@scenario(grain=60.0)
def test_burst_that_comes_and_goes_is_given_back_and_its_peak_stays(world: ScenarioWorld) -> None:
    """Pods need three nodes for half an hour: these save nothing when they go. The page has the
    peak of the waiting pods, which was over before the next point of the charts."""
    world.apply_policy(document(prices=PRICES))
    world.seed(objects.machine_deployment("workers", 1, 1, 5))
    world.minutes(6)
    world.seed(objects.deployment("burst", replicas=6, cpu="1500m"))
    world.minutes(30)
    assert world.ended("grow")
    world.scale("burst", 0)
    world.step_until(lambda: len(world.ended("remove")) >= 2, limit=3600, every=60)
    world.minutes(130)

    [savings] = cost_of(world)["savings"]
    assert (savings["perHour"], savings["today"], savings["sevenDays"]) == (0.0, 0.0, 0.0)
    assert savings["givenBackToday"] > 0
    page = world.get("/metrics")["body"]
    assert "outscaler_savings_total" not in page
    passed = world.store.scan_states.last("shop", points=True)
    assert passed is not None
    assert max(point.bounds.pending for point in passed.points) == 4
    assert max(hour.bounds.pending for hour in passed.hours) == 4
