"""Which removals of unneeded nodes a schedule let go, for what is saved."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from chalicelib.model.group import Pool
from chalicelib.model.memory import Memory
from chalicelib.model.operation import OperationKind, OperationSpec
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.open_schedules import apply_schedules
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.settings.schedules import Schedule
from tests.builders import ClusterBuilder

HOUR = 3600.0
EIGHT = datetime(2026, 11, 18, 8, 0, tzinfo=UTC).timestamp()
EVENING = EIGHT + 12.5 * HOUR
AT_ONCE = Options(scale_down_unneeded_time=0.0, scale_down_delay_after_add=0.0)
WORKDAY = Schedule("workday", "0 8 * * *", 12 * HOUR, groups=("g",), min=4)
NIGHT = Schedule("night", "0 20 * * *", 12 * HOUR, groups=("g",), max=1)


def removed(
    now: float,
    *schedules: Schedule,
    nodes: int = 5,
    least: int = 0,
    pool: Pool | None = None,
    **policy: Any,
) -> list[OperationSpec]:
    """The removals of a group of empty nodes, as they are planned."""
    builder = ClusterBuilder()
    for at in range(nodes):
        builder.node(f"n-{at}", "4", "16Gi", group="g", created=now - 48 * HOUR)
    builder.group("g", min=least, max=9, target=nodes, pool=pool)
    snapshot = msgspec.structs.replace(builder.snapshot(), taken_at=now)
    rules = Policy("test", options=AT_ONCE, schedules=schedules, **policy)
    plan, _ = plan_cluster(snapshot, apply_schedules(rules, now), Memory(), now, seed=0)
    specs = [operation.spec for operation in plan.operations]
    return [spec for spec in specs if spec.kind is OperationKind.DELETE_NODES]


def names(specs: list[OperationSpec]) -> list[str]:
    return [spec.schedule for spec in specs]


def test_nodes_below_the_minimum_of_a_closed_schedule_were_let_go_by_it() -> None:
    specs = removed(EVENING, WORKDAY)
    assert names(specs) == ["", *["workday"] * 4]
    assert {spec.scheduled_at for spec in specs} == {0.0, EIGHT + 12 * HOUR}


def test_nodes_above_the_minimum_of_an_open_schedule_go_for_themselves() -> None:
    assert names(removed(EIGHT + HOUR, WORKDAY)) == [""]


def test_nodes_go_for_themselves_a_day_after_a_schedule_has_closed() -> None:
    tuesdays = msgspec.structs.replace(WORKDAY, cron="0 8 * * 2")
    assert names(removed(EVENING, tuesdays)) == [""] * 5


@pytest.mark.parametrize("own", ["group", "policy"])
def test_open_schedule_lets_go_what_the_own_minimum_kept(own: str) -> None:
    bounds = (GroupPolicy("test", "g", min=3),) if own == "policy" else ()
    specs = removed(EVENING, NIGHT, least=3 if own == "group" else 0, node_groups=bounds)
    assert names(specs) == ["", "", "night", "night"] + ([] if own == "group" else ["night"])
    assert specs[-1].scheduled_at == EIGHT + 12 * HOUR


def test_schedule_of_other_groups_lets_nothing_go_here() -> None:
    others = msgspec.structs.replace(WORKDAY, groups=("x",))
    assert names(removed(EVENING, others)) == [""] * 5
    everywhere = msgspec.structs.replace(WORKDAY, groups=())
    assert names(removed(EVENING, everywhere)) == ["", *["workday"] * 4]


def test_schedule_of_a_pool_lets_go_what_its_minimum_kept() -> None:
    of_pool = msgspec.structs.replace(WORKDAY, groups=("p",))
    specs = removed(EVENING, of_pool, pool=Pool("p", elsewhere=1))
    assert names(specs) == ["", "", *["workday"] * 3]


def test_removals_without_schedules_have_no_name() -> None:
    assert names(removed(EVENING)) == [""] * 5
