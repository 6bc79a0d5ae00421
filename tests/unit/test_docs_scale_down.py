"""The worked removal examples of docs/reference: their numbers equal the planner's. The table of
checks is in code order."""

from __future__ import annotations

import re

import msgspec
import pytest

from chalicelib.model.memory import BreakerState, Memory, NodeMemory
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.removal.methods.unneeded import paused_timer, unneeded_timer
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.timeouts import retry_delay
from chalicelib.reasons.text import sentence
from tests.builders import NOW, cluster
from tests.unit.plan.instances_builder import world_of
from tests.unit.plan.selection_builder import SelectionBuilderPool, goes, why
from tests.unit.test_docs import NODE_GROUPS, SCALE_DOWN, rows

TEXT = NODE_GROUPS.read_text("utf-8")
MINUTE = 60.0


def test_docs_eligibility_lists_every_node_reason_code() -> None:
    section = (
        SCALE_DOWN.read_text("utf-8").partition("\n## Removal selection\n")[2].partition("\n## ")[0]
    )
    stages = section.partition("\n1. ")[2]
    codes = [code for code in re.findall(r"`(\w+)`", stages) if code in set(ReasonCode)]
    assert [ReasonCode(code) for code in codes] == [
        ReasonCode.NOT_UNNEEDED_LONG_ENOUGH,
        ReasonCode.NOT_UNREADY_LONG_ENOUGH,
        ReasonCode.BOUGHT_BACK,
        ReasonCode.REMOVAL_FAILED,
        ReasonCode.BLOCKED_BY_ON_COMPLETION_POD,
        ReasonCode.NODE_COOLDOWN,
        ReasonCode.GROUP_MIN_SIZE,
        ReasonCode.POOL_MIN_SIZE,
        ReasonCode.MINIMAL_RESOURCE_LIMIT,
        ReasonCode.RULE_NEEDS_NODE,
        ReasonCode.SCALE_DOWN_DISABLED,
        ReasonCode.CLUSTER_UNHEALTHY,
        ReasonCode.WAITING_FOR_MORE,
        ReasonCode.WAITING_FOR_SCHEDULER,
        ReasonCode.PAUSED,
        ReasonCode.OUTSIDE_WINDOW,
        ReasonCode.IN_COOLDOWN,
        ReasonCode.ATOMIC_FAILED,
        ReasonCode.DISRUPTION_BRAKE,
        ReasonCode.DISRUPTION_BUDGET,
        ReasonCode.DISRUPTION_LIMIT,
        ReasonCode.PARALLELISM,
    ]


def test_docs_repairs_are_listed_in_code_order() -> None:
    assert [ReasonCode(row[0].strip("`")) for row in rows(NODE_GROUPS, "Repairs")] == [
        ReasonCode.CREATION_FAILED,
        ReasonCode.LONG_UNREGISTERED,
        ReasonCode.SCALE_UP_TIMED_OUT,
        ReasonCode.SIZE_ABOVE_REALITY,
        ReasonCode.MARK_LEFT,
    ]


def test_docs_repair_backoff_delays_equal_the_code() -> None:
    [reported] = re.findall(r"retried after ([\d, ]+), then (\d+) minutes", TEXT)
    assert [float(each) for each in (*reported[0].split(","), reported[1])] == [
        retry_delay(failures, Options()) / MINUTE for failures in (1, 2, 3, 4)
    ]


def test_docs_hourly_disruption_limit_example() -> None:
    at = {"12:00": NOW - 50 * MINUTE, "12:45": NOW - 5 * MINUTE, "13:00": NOW + 10 * MINUTE}
    before = Memory(breaker=BreakerState(((at["12:00"], 2, 0), (at["12:45"], 1, 0))))
    picked = (
        SelectionBuilderPool()
        .group("g", 3)
        .pick(before, max_disruption=MaxDisruption(nodes_per_hour=5))
    )
    assert len(goes(picked)) == 2
    room = Reason.of(ReasonCode.DISRUPTION_LIMIT, what="nodes per hour", limit=5, until=at["13:00"])
    assert picked.refused == {"g-e02": room}


def test_docs_percentage_disruption_limit_example() -> None:
    pool = SelectionBuilderPool().group("g", 30, others=10)
    picked = pool.pick(max_disruption=MaxDisruption(share=0.25))
    assert goes(picked) == []
    assert why(picked) == {ReasonCode.DISRUPTION_BRAKE}
    assert "30 of 40 nodes at once, share 25%" in sentence(picked.refused["g-e00"])
    on = Memory(breaker=picked.breaker)
    assert goes(pool.pick(on, only=["g-e00"], max_disruption=MaxDisruption(share=0.25))) == []
    released = msgspec.structs.replace(on, released_until=NOW + 3600)
    assert (
        len(goes(pool.pick(released, max_disruption=MaxDisruption(share=0.25))))
        == Options().max_scale_down_parallelism
    )


def test_docs_example_of_a_paused_unneeded_timer() -> None:
    ten, build = NOW - 30 * MINUTE, cluster().node("n").group("g")
    node = build.snapshot().nodes[0]
    known = NodeMemory(unneeded_since=ten, confirmed_at=ten)
    for minute in range(1, 31):
        now = ten + minute * MINUTE
        if 6 < minute <= 26:
            after = paused_timer(known, now)
            assert after is not None
            known = after
        else:
            known = unneeded_timer(node, known, world_of(build, now=now), None)
    assert (NOW - known.unneeded_since) / MINUTE == 10


@pytest.mark.parametrize(
    ("in_a", "in_b", "healthy", "frozen"),
    [
        (4, 0, True, {"a1", "a2"}),
        (5, 4, True, {"a1", "a2"}),
        (5, 5, False, {"a1", "a2"}),
    ],
)
def test_docs_cluster_health_example(
    in_a: int, in_b: int, *, healthy: bool, frozen: set[str]
) -> None:
    build = cluster()
    for name, zone, count, bad in (
        ("a1", "a", 4, in_a - in_a // 2),
        ("a2", "a", 4, in_a // 2),
        ("b", "b", 12, in_b),
    ):
        for number in range(count):
            build.node(f"{name}-{number}", group=name, zone=zone, ready=number >= bad)
        build.group(name)
    world = world_of(build)
    assert world.health.healthy is healthy
    assert {name for name, facts in world.groups.items() if facts.frozen} == frozen
