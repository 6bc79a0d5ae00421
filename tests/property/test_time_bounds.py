"""A pass always ends with a plan, whatever the pods and nodes look like: between two
looks at the clock there is never more work than one look at every object, and what there
was no time for says so.

The clock advances by one with each reading, so no test depends on the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from chalicelib.model.plan import Plan
from chalicelib.model.reason import ReasonCode
from tests.property import hostile_tenants
from tests.property.hostile_objects import GROUPS, VICTIMS, Json, affinity, node, pod

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


class CountingClock:
    """Advances by a step with each reading. work: the most function calls between two readings."""

    def __init__(self, step: float = 1.0) -> None:
        self.now, self.work, self._step, self._calls = 0.0, 0, step, 0

    def __call__(self) -> float:
        self.now += self._step
        self.work, self._calls = max(self.work, self._calls), 0
        return self.now

    def count(self, frame: FrameType, event: str, argument: Any) -> None:
        self._calls += event in ("call", "c_call")


def _own(at: int, key: str, kind: str = "podAntiAffinity") -> Json:
    labels = {"app": f"a{at}"}
    return pod(
        f"p{at}",
        labels=labels,
        **affinity({"topologyKey": key, "labelSelector": {"matchLabels": labels}}, kind=kind),
    )


def _spread(at: int, key: str) -> Json:
    labels = {"app": f"a{at % 7}", "x": str(at)}
    rule = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return pod(
        f"p{at}",
        labels=labels,
        topologySpreadConstraints=[{**rule, "labelSelector": {"matchLabels": labels}}],
    )


def _many_values(at: int) -> Json:
    values = [f"a{at + each}" for each in range(40)]
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
    return pod(
        f"p{at}",
        labels={"app": f"a{at}"},
        **affinity({"topologyKey": HOST, "labelSelector": selector}),
    )


def _without_label(at: int) -> Json:
    selector = {"matchExpressions": [{"key": f"k{at}", "operator": "DoesNotExist"}]}
    return pod(f"p{at}", **affinity({"topologyKey": HOST, "labelSelector": selector}))


def _port(at: int) -> Json:
    ports = [{"hostPort": 1_000 + at % 50, "protocol": "TCP"}]
    return pod(
        f"p{at}", containers=[{"ports": ports, "resources": {"requests": {"cpu": f"{100 + at}m"}}}]
    )


def _labelled_node(at: int) -> Json:
    made = node(at)
    made["metadata"]["labels"] |= {f"l{at}": "x", "group": f"g{at % 8}"}
    return made


SHAPES: dict[str, Callable[[int], list[Json]]] = {
    "anti-affinity with itself by host": lambda n: [_own(at, HOST) for at in range(n)],
    "anti-affinity with itself by zone": lambda n: [_own(at, ZONE) for at in range(n)],
    "anti-affinity with all": lambda n: [_without_label(at) for at in range(n)],
    "anti-affinity with forty values": lambda n: [_many_values(at) for at in range(n)],
    "affinity with itself": lambda n: [_own(at, HOST, "podAffinity") for at in range(n)],
    "spread by host": lambda n: [_spread(at, HOST) for at in range(n)],
    "spread by zone": lambda n: [_spread(at, ZONE) for at in range(n)],
    "host ports": lambda n: [_port(at) for at in range(n)],
    "own requests": lambda n: [
        pod(f"p{at}", containers=[{"resources": {"requests": {"cpu": f"{at + 1}m"}}}])
        for at in range(n)
    ],
    "node labels": lambda n: [
        *(_labelled_node(at + 100) for at in range(n)),
        *(pod(f"p{at}") for at in range(40)),
    ],
    "running anti-affinity": lambda n: [
        {
            **each,
            "spec": {**each["spec"], "nodeName": f"n{at % 80}"},
            "status": {"phase": "Running"},
        }
        for at, each in enumerate(_own(at, HOST) for at in range(n))
    ],
}


def _measured(shape: str, count: int, within: float) -> tuple[Plan, CountingClock]:
    objects, clock = SHAPES[shape](count), CountingClock()
    before = sys.getprofile()
    sys.setprofile(clock.count)
    try:
        return hostile_tenants.planned(objects, clock, within), clock
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("shape", SHAPES)
def test_work_between_two_looks_at_the_clock_is_proportional_to_the_objects(shape: str) -> None:
    small, large = (_measured(shape, count, 1e9)[1].work for count in (60, 240))
    # Four times the objects: four times the work; a loop over pairs that looks at no
    # clock would be sixteen times.
    assert large < 8 * max(small, 2_000)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("within", [1.0, 40.0, 400.0, 4_000.0])
def test_pass_ends_soon_after_its_time_with_a_plan_for_every_pod(shape: str, within: float) -> None:
    objects, clock = SHAPES[shape](150), CountingClock()
    plan = hostile_tenants.planned(objects, clock, within)
    # What must be completed after the end looks at the clock a few times for each pod and group.
    assert clock.now < within + 40 * (150 + GROUPS)
    waiting = {
        each["metadata"]["name"]
        for each in objects
        if each["kind"] == "Pod" and "nodeName" not in each["spec"]
    }
    judged = {
        key.partition("/")[2]
        for keys in (
            plan.fits_existing,
            *(each.pods for each in plan.scale_ups),
            *(each.pods for each in plan.unschedulable),
            *(each.pods for each in plan.ignored),
        )
        for key in keys
    }
    assert waiting <= judged


def test_pods_that_were_not_judged_say_that_the_time_was_over() -> None:
    plan = hostile_tenants.planned(SHAPES["anti-affinity with all"](100), CountingClock(), 1.0)
    reasons = {
        reason.code
        for each in plan.unschedulable
        for found in each.reasons.values()
        for reason in found
    }
    assert reasons == {ReasonCode.TIME_BUDGET}
    assert plan.scale_ups == ()
    assert {each.reason.code for each in plan.unremovable} == {ReasonCode.NOT_EVALUATED}


def test_pass_that_ends_in_time_plans_as_without_a_clock() -> None:
    objects, clock = SHAPES["anti-affinity with itself by host"](150), CountingClock(1e-6)
    plan = hostile_tenants.planned(objects, clock, 1.0)
    assert plan == hostile_tenants.planned(objects)
    assert hostile_tenants.served(plan) == VICTIMS
