"""Hours in which bought machines never join: each purchase is judged by its own date, and
nothing is bought from a group that is backed off, for whatever purpose
(docs/reference/node-groups.md "Scale-up requests")."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import NodeGroup
from chalicelib.model.plan import Plan
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.node_lifecycle import DriftAction, NodeLifecycle, RepairRule
from chalicelib.policy.settings.node_limit import NodeLimit
from tests.unit.plan.hour_of_joins import (
    HOUR,
    MINUTE,
    START,
    Group,
    HourOfJoins,
    Json,
    instant,
    node_object,
)

JOIN_TIME = 15 * MINUTE
ALL = DisruptionBudget("all", NodeLimit(share=1.0), reasons=tuple(DisruptionReason)[:-1])
QUICK = Consolidation(
    max_surge=NodeLimit(share=0.5),
    max_replacements=20,
    replace_timeout=2 * MINUTE,
    confirm_after=0.0,
    quiet_time=0.0,
)
BACKED_OFF = ReasonCode.GROUP_BACKOFF.value


def _backoffs(story: HourOfJoins, group: str = "g") -> list[Reason]:
    """The back-offs of a group, one per pass in which it was backed off."""
    verdicts = (
        verdict for plan in story.plans for verdict in plan.groups if verdict.group == group
    )
    return [verdict.backoff for verdict in verdicts if verdict.backoff is not None]


def _is_backed_off(plan: Plan, group: str) -> bool:
    return any(verdict.group == group and verdict.backoff is not None for verdict in plan.groups)


def _bought_in_backoff(story: HourOfJoins, group: str = "g") -> list[float]:
    """When the group was backed off and something was bought from it all the same."""
    return [
        plan.at - START
        for plan in story.plans
        if _is_backed_off(plan, group) and any(growth.group == group for growth in plan.scale_ups)
    ]


def _first_backoff(story: HourOfJoins, group: str = "g") -> float:
    """Seconds from the first purchase until the group was backed off."""
    bought = min(at for at, name, _ in story.bought if name == group)
    return min(plan.at for plan in story.plans if _is_backed_off(plan, group)) - bought


def test_purchases_stop_when_the_oldest_is_late_however_often_more_was_bought() -> None:
    story = HourOfJoins()
    story.group("g", size=1, joins_after=math.inf, template=node_object("t"))
    for _ in range(14):
        story.deploy("web", 1, cpu="3")
        story.play(MINUTE)
    bought_in_time = story.bought_nodes()
    story.play(HOUR - 14 * MINUTE)

    assert bought_in_time > 5, "purchases that are not late do not hold each other up"
    assert JOIN_TIME <= _first_backoff(story) <= JOIN_TIME + MINUTE
    assert _bought_in_backoff(story) == []
    assert "did not join in time" in str(_backoffs(story)[0].params["error"])


def test_nodes_that_join_fulfil_the_oldest_purchase_and_its_rest_is_late_alone() -> None:
    story = HourOfJoins()
    group = story.group("g", size=1, joins_after=math.inf, template=node_object("t"))
    story.deploy("web", 3, cpu="3")
    story.play(MINUTE)
    assert story.bought_nodes() == 2, "one pod fits the node that exists"
    _let_join(group, 1, after=2 * MINUTE)
    story.play(4 * MINUTE)
    story.deploy("more", 2, cpu="3")
    story.play(MINUTE)
    assert story.bought_nodes() == 4
    _let_join(group, 2, after=13 * MINUTE)
    story.play(HOUR / 3)

    assert JOIN_TIME <= _first_backoff(story) <= JOIN_TIME + MINUTE
    assert str(_backoffs(story)[0].params["error"]) == "1 nodes did not join in time"
    failures = {str(backoff.params["until"]) for backoff in _backoffs(story)}
    assert len(failures) == 1, "the second purchase has come in time"


def _let_join(group: Group, count: int, after: float) -> None:
    """Let the last machines of a group join that long after they were bought."""
    for machine in group.machines[-count:]:
        machine.joins_at = machine.bought_at + after


class _Outdated(HourOfJoins):
    """A cluster whose vendor says that each of its old machines is outdated."""

    def _reading(self, group: Group) -> NodeGroup:
        reading = super()._reading(group)
        instances = (
            msgspec.structs.replace(one, outdated="image" if one.created < START else "")
            for one in reading.instances
        )
        return msgspec.structs.replace(reading, instances=tuple(instances))


def _sick(name: str, age: float) -> Json:
    node = node_object(name)
    since = instant(START - HOUR)
    conditions = [("Ready", "True"), ("KernelDeadlock", "True")]
    node["status"]["conditions"] = [
        {"type": kind, "status": status, "lastTransitionTime": since} for kind, status in conditions
    ]
    return node


LIFECYCLES: Mapping[str, tuple[type[HourOfJoins], NodeLifecycle, Any]] = {
    "age": (HourOfJoins, NodeLifecycle(max_node_age=HOUR, jitter=0.0, drift=DriftAction.OFF), None),
    "drift": (_Outdated, NodeLifecycle(drift=DriftAction.REPLACE), None),
    "repair": (
        HourOfJoins,
        NodeLifecycle(
            repair=(RepairRule("KernelDeadlock", MINUTE),), max_unhealthy=1.0, drift=DriftAction.OFF
        ),
        _sick,
    ),
}


@pytest.mark.parametrize("why", LIFECYCLES)
def test_successors_that_never_join_back_their_group_off(why: str) -> None:
    kind, lifecycle, shape = LIFECYCLES[why]
    policy = {"node_lifecycle": lifecycle, "consolidation": QUICK, "disruption_budgets": (ALL,)}
    story = kind(policy=policy, max_drain_parallelism=100, max_scale_down_parallelism=100)
    story.group("g", shape, size=6, joins_after=math.inf, template=node_object("t"), max=60)
    for at in range(6):
        story.deploy(f"web-{at}", 1, cpu="3", on=f"g-{at + 1}")
    story.play(4 * HOUR)

    assert story.bought, "successors are bought"
    assert _first_backoff(story) <= 2 * MINUTE + 60.0, "not ready in the time of a replacement"
    assert _bought_in_backoff(story) == []
    assert story.bought_nodes() <= 3 * 9, "maxSurge in each of the times between back-offs"
    held = [
        verdict.held
        for plan in story.plans
        for verdict in plan.lifecycle
        if _is_backed_off(plan, "g")
    ]
    assert BACKED_OFF in {reason.code.value for reason in held if reason is not None}


def test_cheaper_successors_that_never_join_back_their_group_off() -> None:
    full = msgspec.structs.replace(QUICK, mode=ConsolidationMode.FULL, min_node_age=0.0)
    policy = {"consolidation": full, "disruption_budgets": (ALL,)}
    story = HourOfJoins(policy=policy, max_drain_parallelism=100, max_scale_down_parallelism=100)
    big = node_object("t", "16", "64Gi")
    story.group(
        "big", lambda name, age: node_object(name, "16", "64Gi"), size=6, template=big, price=1.0
    )
    story.group("g", joins_after=math.inf, template=node_object("t"), price=0.2)
    for at in range(6):
        story.deploy(f"web-{at}", 3, cpu="1", on=f"big-{at + 1}")
    story.play(4 * HOUR)

    assert story.bought_nodes("g") > 0
    assert _bought_in_backoff(story) == []
    assert story.bought_nodes("g") <= 3 * 9
    assert _backoffs(story)
