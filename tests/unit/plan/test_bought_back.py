"""Removals that were bought back are not repeated at once (tests/faults, seed 4730).

Each test plays passes: a node is drained, the scheduler places its pods in another way than the
planner, and a pod of `web` remains without a place.
"""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.memory import HOUR, DrainedOwner, GroupMemory, Memory
from chalicelib.model.plan import Plan
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_prices import NodePrices
from tests.builders import NOW, ClusterBuilder, cluster, growth, node, stays

WEB, TINY = "default/ReplicaSet/web", "default/ReplicaSet/tiny"
CPU = "1900m"
EMPTY = Memory()
UNNEEDED: dict[str, Any] = {
    "scale_down_utilization_threshold": 0.8,
    "scale_down_delay_after_add": 0.0,
}


def _world(pods: dict[str, tuple[int, int]], *, waiting: int = 0) -> ClusterBuilder:
    """A cluster. pods: node -> its pods of `web` and of `tiny`. waiting: pods
    of `web` without a node."""
    build = cluster()
    for name, (web, tiny) in pods.items():
        build.node(name, CPU, group="g")
        build.running(name, web, "700m", owner="web").running(name, tiny, "250m", owner="tiny")
    return build.pending(waiting, "700m", owner="web").group(
        "g", template=node("t", CPU, group="g")
    )


def _before() -> ClusterBuilder:
    """`b` can be removed if its pods go where the planner wants."""
    return _world({"a": (2, 0), "b": (1, 3), "c": (1, 0)})


def _after(*, waiting: int = 1) -> ClusterBuilder:
    """`b` has gone, and the scheduler has placed all small pods on the emptiest node."""
    return _world({"a": (2, 0), "c": (1, 3)}, waiting=waiting)


def _pass(build: ClusterBuilder, memory: Memory, now: float) -> tuple[Plan, Memory]:
    return build.decide(memory, now=now, unneeded=9999.0, **UNNEEDED)


def _drained(memory: Memory = EMPTY, now: float = NOW) -> Memory:
    """The memory after a pass that drains `b`."""
    plan, memory = _pass(_before(), memory, now)
    assert [(removal.node, len(removal.evict)) for removal in plan.removals] == [("b", 4)]
    return memory


def _bought_back(memory: Memory = EMPTY, now: float = NOW) -> Memory:
    """The memory after `b` was drained and a node was bought for one of its pods a minute later."""
    plan, memory = _pass(_after(), _drained(memory, now), now + 60)
    assert growth(plan) == {"g": (1, 1)}
    return memory


def test_removal_that_was_bought_back_is_not_repeated_for_an_hour() -> None:
    memory, until = _bought_back(), NOW + 60 + HOUR
    again = _world({"a": (2, 0), "c": (1, 3), "d": (1, 0)})
    plan, memory = _pass(again, memory, NOW + 300)
    assert plan.removals == ()
    [reason] = [verdict.reason for verdict in plan.unremovable if verdict.node == "c"]
    assert reason == Reason.of(ReasonCode.BOUGHT_BACK, owner=WEB, until=until)
    assert _pass(again, memory, until - 1)[0].removals == ()
    assert [removal.node for removal in _pass(again, memory, until)[0].removals] == ["c"]


def test_wait_is_twice_as_long_after_each_further_repetition_up_to_a_day() -> None:
    memory, now, waits = EMPTY, NOW, list[float]()
    for _ in range(7):
        memory = _bought_back(memory, now)
        until = memory.groups["g"].drained[WEB].until
        waits.append((until - now - 60) / HOUR)
        now = until + 1
    assert waits == [1, 2, 4, 8, 16, 24, 24]


def test_nodes_without_pods_of_that_owner_still_go() -> None:
    memory = _bought_back()
    build = _world({"c": (1, 0), "tiny": (0, 1), "empty": (0, 0)}).node("elsewhere", "64")

    def goes(memory: Memory) -> set[str]:
        plan, _ = build.decide(
            memory, now=NOW + 300, unneeded=9999.0, max_drain_parallelism=9, **UNNEEDED
        )
        return {removal.node for removal in plan.removals}

    assert goes(EMPTY) == {"c", "tiny", "empty"}
    assert goes(memory) == {"tiny", "empty"}
    plan, _ = _pass(build, memory, NOW + 300)
    assert stays(plan)["c"] == "RemovalBoughtBack"


def test_consolidation_moves_no_pods_of_that_owner_either() -> None:
    build = _world({"c": (1, 0), "tiny": (0, 1)}).node("elsewhere", "64")
    settings = Consolidation(
        ConsolidationMode.REMOVE, quiet_time=0.0, min_node_age=0.0, confirm_after=0.0
    )
    options = Options(scale_down_utilization_threshold=0.0, max_drain_parallelism=9)
    policy = Policy(
        "test",
        mode=Mode.ACTIVE,
        options=options,
        prices=NodePrices(cpu=1.0),
        consolidation=settings,
    )

    def consolidated(memory: Memory) -> tuple[set[str], dict[str, str]]:
        plan, _ = plan_cluster(build.snapshot(), policy, memory, NOW + 300, 0)
        assert plan.consolidation is not None
        verdicts = {
            verdict.node: verdict.reason.code.value for verdict in plan.consolidation.verdicts
        }
        return {removal.node for removal in plan.removals}, verdicts

    assert consolidated(EMPTY)[0] == {"c"}, "the budget of one node"
    goes, verdicts = consolidated(_bought_back())
    assert (goes, verdicts["c"]) == ({"tiny"}, "RemovalBoughtBack")


@pytest.mark.parametrize(
    ("build", "after"),
    [
        pytest.param(
            _world({"a": (2, 0), "b": (1, 3), "c": (1, 3)}, waiting=1),
            60.0,
            id="the-node-is-still-there",
        ),
        pytest.param(_after(waiting=2), 60.0, id="the-owner-has-more-pods-than-before"),
        pytest.param(_after(), 1800.0, id="half-an-hour-later"),
        pytest.param(_after(), -1800.0, id="by-a-wrong-clock"),
    ],
)
def test_growth_that_does_not_undo_a_drain_delays_no_removal(
    build: ClusterBuilder, after: float
) -> None:
    plan, memory = _pass(build, _drained(), NOW + after)
    assert growth(plan)["g"][0] >= 1
    assert not any(drained.until for drained in memory.groups["g"].drained.values())


def test_growth_smaller_than_the_removals_before_it_delays_none() -> None:
    memory = Memory(
        groups={"g": GroupMemory(drained={WEB: DrainedOwner(NOW - 60, ("x", "y", "z"), 0, 4)})}
    )
    waits = list[float]()
    for minute in range(3):
        _, memory = _pass(_after(), memory, NOW + 60 * minute)
        waits.append(memory.groups["g"].drained[WEB].until)
    assert waits == [0, 0, NOW + 120 + HOUR], "all three were bought back in the end"


def test_drain_after_a_growth_is_judged_by_itself() -> None:
    saved = DrainedOwner(NOW - 60, ("x", "y", "z"), 1, 4)
    memory = _drained(Memory(groups={"g": GroupMemory(drained={WEB: saved})}))
    assert memory.groups["g"].drained[WEB] == DrainedOwner(NOW, ("b",), 0, 4)


def test_wait_further_away_than_the_longest_comes_from_a_wrong_clock() -> None:
    far = DrainedOwner(until=NOW + 25 * HOUR, times=1)
    memory = _drained(Memory(groups={"g": GroupMemory(drained={WEB: far})}))
    assert memory.groups["g"].drained[WEB].until == 0.0


def test_drains_are_forgotten_a_day_after_the_wait() -> None:
    memory = _bought_back()
    assert set(memory.groups["g"].drained) == {WEB, TINY}
    quiet = cluster().node("a", group="g").group("g", min=1)
    _, memory = _pass(quiet, memory, NOW + 2 * HOUR)
    assert set(memory.groups["g"].drained) == {WEB}
    assert _pass(quiet, memory, NOW + 26 * HOUR)[1].groups["g"].drained == {}


def test_memory_of_drains_is_bounded() -> None:
    build = cluster().node("a", "64", group="g").node("b", "64", group="g").running("a", 1, "32")
    for number in range(70):
        build.running("b", 1, "1m", owner=f"rs-{number:02d}")
    known = DrainedOwner(NOW - 60, tuple(f"n-{number}" for number in range(40)), 0, 1)
    memory = Memory(groups={"g": GroupMemory(drained={"default/ReplicaSet/rs-69": known})})
    plan, memory = _pass(build.group("g"), memory, NOW)
    assert [removal.node for removal in plan.removals] == ["b"]
    drained = memory.groups["g"].drained
    assert len(drained) == 50
    assert len(drained["default/ReplicaSet/rs-69"].nodes) == 20
    assert drained["default/ReplicaSet/rs-69"].nodes[-1] == "b"
