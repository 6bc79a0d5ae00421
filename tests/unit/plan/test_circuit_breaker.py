"""Circuit breaker: limits per rolling hour, a maximum share of nodes that stops all removals, and
its release by an operator."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.group import GroupOptions
from chalicelib.model.memory import BreakerState, Memory
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.settings.mode import Mode
from tests.builders import NOW
from tests.unit.plan.selection_builder import Picked, SelectionBuilderPool, counts, goes, why

ATOMIC = GroupOptions(zero_or_max=True)
FIVE = MaxDisruption(nodes_per_hour=5)
QUARTER = MaxDisruption(share=0.25)


def limited(what: str, limit: int, until: float) -> Reason:
    return Reason.of(ReasonCode.DISRUPTION_LIMIT, what=what, limit=limit, until=until)


# --- limits per hour


def test_nodes_per_hour_are_counted_when_removals_are_planned() -> None:
    before = Memory(breaker=BreakerState(((NOW - 3000, 2, 9), (NOW - 100, 1, 0))))
    picked = SelectionBuilderPool().group("g", 3, 1).pick(before, max_disruption=FIVE)
    assert goes(picked) == ["g-e00", "g-e01"]
    assert (
        picked.refused["g-e02"]
        == picked.refused["g-d00"]
        == limited("nodes per hour", 5, NOW + 600)
    )
    assert picked.breaker == BreakerState(((NOW - 3000, 2, 9), (NOW - 100, 1, 0), (NOW, 2, 0)))
    assert picked.paused is None


def test_pods_per_hour_limit_blocks_drains_but_not_empty_nodes() -> None:
    pool = SelectionBuilderPool().group("g", 2, 3, pods=40)
    picked = pool.pick(max_disruption=MaxDisruption(pods_per_hour=100), max_drain_parallelism=9)
    assert counts(picked) == (2, 2)
    assert picked.refused == {"g-d02": limited("pods per hour", 100, NOW + 3600)}
    assert picked.breaker.removals == ((NOW, 4, 80),)


def test_hourly_removal_limits_hold_over_many_passes() -> None:
    pool, memory = SelectionBuilderPool().group("g", 0, 40, pods=3), Memory()
    allowed = MaxDisruption(nodes_per_hour=4, pods_per_hour=11)
    planned: list[tuple[float, int, int]] = []
    for step in range(3 * 60):
        now = NOW + step * 60
        picked = pool.pick(memory, now=now, since=NOW - 7200, max_disruption=allowed)
        gone = set(goes(picked))
        pool.candidates = [each for each in pool.candidates if each.node.name not in gone]
        memory = msgspec.structs.replace(memory, breaker=picked.breaker)
        planned += [(now, len(gone), sum(len(each.evict) for each in picked.chosen))]
    for start, _, _ in planned:
        hour = [(nodes, pods) for at, nodes, pods in planned if start <= at < start + 3600]
        assert sum(nodes for nodes, _ in hour) <= 4
        assert sum(pods for _, pods in hour) <= 11
    assert sum(nodes for _, nodes, _ in planned) == 9, (
        "three drains of three pods in each of three hours"
    )


def test_reported_time_of_free_hourly_quota_is_correct() -> None:
    memory = Memory(breaker=BreakerState(((NOW - 3000, 2, 0), (NOW - 1000, 3, 0))))
    pool = SelectionBuilderPool().group("g", 9)
    until = next(iter(pool.pick(memory, max_disruption=FIVE).refused.values())).params["until"]
    assert until == NOW + 600
    assert goes(pool.pick(memory, now=NOW + 599.5, max_disruption=FIVE)) == []
    assert goes(pool.pick(memory, now=NOW + 600, max_disruption=FIVE)) == ["g-e00", "g-e01"]


def test_node_with_more_pods_than_the_hourly_limit_goes_when_the_hour_is_empty() -> None:
    allowed = MaxDisruption(pods_per_hour=100)
    pool = SelectionBuilderPool().group("g", 0, 1, pods=150)
    busy = Memory(breaker=BreakerState(((NOW - 10, 1, 1),)))
    assert pool.pick(busy, max_disruption=allowed).refused == {
        "g-d00": limited("pods per hour", 100, NOW + 3590)
    }
    assert goes(pool.pick(max_disruption=allowed)) == ["g-d00"]
    only_empty = Memory(breaker=BreakerState(((NOW - 10, 7, 0),)))
    assert goes(pool.pick(only_empty, max_disruption=allowed)) == ["g-d00"], (
        "empty nodes moved no pod"
    )


def test_small_nodes_do_not_starve_a_large_node_under_the_hourly_pod_limit() -> None:
    pool = SelectionBuilderPool().group("large", 0, 1, pods=150).group("small", 1, 3, pods=1)
    picked = pool.pick(
        Memory(breaker=BreakerState(((NOW - 10, 1, 1),))),
        max_disruption=MaxDisruption(pods_per_hour=100),
    )
    assert goes(picked) == ["small-e00"]
    assert why(picked) == {ReasonCode.DISRUPTION_LIMIT}


def test_hourly_limit_must_fit_a_whole_zero_or_max_group() -> None:
    pool = SelectionBuilderPool().group("a", 4, options=ATOMIC).group("g", 1)
    busy = Memory(breaker=BreakerState(((NOW - 600, 2, 0),)))
    assert goes(pool.pick(busy, max_disruption=FIVE)) == []
    assert set(goes(pool.pick(max_disruption=FIVE))) == {*(f"a-e0{at}" for at in range(4)), "g-e00"}
    assert (
        len(goes(SelectionBuilderPool().group("a", 9, options=ATOMIC).pick(max_disruption=FIVE)))
        == 9
    ), "it would never go else"


def test_removals_blocked_by_parallelism_use_no_hourly_quota() -> None:
    picked = (
        SelectionBuilderPool()
        .group("g", 0, 4)
        .pick(max_disruption=MaxDisruption(nodes_per_hour=3), max_drain_parallelism=1)
    )
    assert goes(picked) == ["g-d00"]
    assert why(picked) == {ReasonCode.PARALLELISM}
    assert picked.breaker.removals == ((NOW, 1, 1),)


@pytest.mark.parametrize("allowed", [FIVE, QUARTER, MaxDisruption(pods_per_hour=1)])
def test_pass_without_removals_leaves_breaker_state_unchanged(allowed: MaxDisruption) -> None:
    before = BreakerState(((NOW - 30, 1, 1),))
    assert (
        SelectionBuilderPool()
        .group("g", 0, others=3)
        .pick(Memory(breaker=before), max_disruption=allowed)
        .breaker
        == before
    )


def test_removals_over_an_hour_ago_are_forgotten() -> None:
    before = Memory(breaker=BreakerState(((NOW - 3600, 3, 3), (NOW - 3599, 1, 1))))
    assert SelectionBuilderPool().group("g").pick(
        before, max_disruption=FIVE
    ).breaker == BreakerState(((NOW - 3599, 1, 1),))


def test_clock_set_back_blocks_removals_no_longer_than_its_error() -> None:
    ahead = Memory(breaker=BreakerState(((NOW + 86400, 5, 5), (NOW + 60, 4, 4))))
    picked = SelectionBuilderPool().group("g", 2).pick(ahead, max_disruption=FIVE)
    assert goes(picked) == ["g-e00"]
    assert picked.refused["g-e01"].params["until"] == NOW + 3600
    assert picked.breaker.removals == ((NOW + 60, 4, 4), (NOW, 1, 0))


def test_cluster_without_max_disruption_keeps_no_breaker_state() -> None:
    before = Memory(breaker=BreakerState(((NOW - 10, 99, 99),), tripped_at=NOW - 10, wanted=9))
    picked = SelectionBuilderPool().group("g", 3).pick(before)
    assert len(picked.chosen) == 3
    assert picked.breaker == BreakerState()


# --- maximum share


def pulled(picked: Picked, wanted: int, of: int, at: float = NOW) -> bool:
    """Checks that no node is removed, every candidate names the circuit breaker as its
    reason, and the state is saved."""
    reason = Reason.of(ReasonCode.DISRUPTION_BRAKE, nodes=wanted, of=of, share=0.25)
    return (
        picked.chosen == ()
        and set(map(str, picked.refused.values())) == {str(reason)}
        and picked.paused == reason
        and (picked.breaker.tripped_at, picked.breaker.wanted) == (at, wanted)
    )


def test_plan_above_the_share_removes_nothing_and_trips_the_breaker() -> None:
    assert (
        len(SelectionBuilderPool().group("g", 5, others=15).pick(max_disruption=QUARTER).chosen)
        == 5
    )
    assert pulled(
        SelectionBuilderPool().group("g", 6, others=14).pick(max_disruption=QUARTER), 6, 20
    )


def test_disruption_share_is_checked_before_parallelism_and_hourly_limits() -> None:
    both = MaxDisruption(nodes_per_hour=1, share=0.25)
    assert pulled(
        SelectionBuilderPool()
        .group("g", 6, others=14)
        .pick(max_disruption=both, max_scale_down_parallelism=1),
        6,
        20,
    )


def test_disruption_share_is_checked_after_every_eligibility_check() -> None:
    young = GroupOptions(scale_down_cooldown=86400.0)
    pool = (
        SelectionBuilderPool()
        .group("a", 5, others=5)
        .group("b", 10, min=10)
        .group("c", 10, options=young)
    )
    picked = pool.pick(max_disruption=QUARTER)
    assert len(picked.chosen) == 5
    assert why(picked) == {ReasonCode.GROUP_MIN_SIZE, ReasonCode.NODE_COOLDOWN}


def test_removals_in_flight_count_towards_the_disruption_share() -> None:
    pool = SelectionBuilderPool().group("g", 4, others=16).going("g", "g-o00", "g-o01")
    assert pulled(pool.pick(max_disruption=QUARTER), 6, 20)
    assert len(pool.pick(max_disruption=QUARTER, only=["g-e00", "g-e01", "g-e02"]).chosen) == 3


def test_removals_of_deregistered_nodes_do_not_count_towards_the_disruption_share() -> None:
    pool = (
        SelectionBuilderPool()
        .group("g", 5, others=15)
        .going("g", *(f"gone{at}" for at in range(9)))
    )
    assert why(pool.pick(max_disruption=QUARTER, max_scale_down_parallelism=99)) == set()


def test_disruption_share_always_allows_one_node() -> None:
    assert (
        len(SelectionBuilderPool().group("g", 1, others=1).pick(max_disruption=QUARTER).chosen) == 1
    )
    assert pulled(SelectionBuilderPool().group("g", 2).pick(max_disruption=QUARTER), 2, 2)


def test_single_node_next_to_removals_in_flight_waits_without_tripping_the_breaker() -> None:
    picked = (
        SelectionBuilderPool()
        .group("g", 1, others=3)
        .going("g", "g-o00")
        .pick(max_disruption=QUARTER)
    )
    assert picked.refused == {"g-e00": Reason.of(ReasonCode.PARALLELISM, limit=1)}
    assert (picked.breaker, picked.paused) == (BreakerState(), None)


def test_unreadable_groups_are_excluded_from_the_total_of_the_disruption_share() -> None:
    picked = (
        SelectionBuilderPool()
        .group("g", 2, others=6)
        .group("dark", 0, others=30, error="403")
        .pick(max_disruption=QUARTER)
    )
    assert len(picked.chosen) == 2
    assert pulled(
        SelectionBuilderPool()
        .group("g", 3, others=5)
        .group("dark", 0, others=30, error="403")
        .pick(max_disruption=QUARTER),
        3,
        8,
    )


def test_disruption_share_without_exact_binary_form_is_computed_correctly() -> None:
    picked = (
        SelectionBuilderPool()
        .group("g", 29, others=71)
        .pick(max_disruption=MaxDisruption(share=0.29), max_scale_down_parallelism=99)
    )
    assert len(picked.chosen) == 29


def test_tripped_breaker_stays_tripped_until_an_operator_releases_it() -> None:
    many, few = (
        SelectionBuilderPool().group("g", 6, others=14),
        SelectionBuilderPool().group("g", 1, others=19),
    )
    first = many.pick(max_disruption=QUARTER)
    memory = Memory(breaker=first.breaker)
    for hours in (1, 30):
        later = NOW + hours * 3600
        again = few.pick(memory, now=later, max_disruption=QUARTER)
        assert pulled(again, 6, 20)
        assert again.breaker == first.breaker, "nothing to write"
    nothing_removable = (
        SelectionBuilderPool().group("g", 0, others=20).pick(memory, max_disruption=QUARTER)
    )
    assert nothing_removable.paused == first.paused

    let_go = msgspec.structs.replace(memory, released_until=NOW + 7200)
    assert pulled(many.pick(let_go, now=NOW + 7200, max_disruption=QUARTER), 6, 20)
    released = many.pick(let_go, now=NOW + 7199, max_disruption=QUARTER)
    assert (len(released.chosen), released.refused, released.paused) == (6, {}, None)
    assert released.breaker == BreakerState(((NOW + 7199, 6, 0),))


def test_next_plan_above_the_share_after_a_release_trips_the_breaker_again() -> None:
    memory = Memory(breaker=BreakerState(), released_until=NOW - 1)
    assert pulled(
        SelectionBuilderPool().group("g", 6, others=14).pick(memory, max_disruption=QUARTER), 6, 20
    )


def test_release_lifts_hourly_limits_while_removals_are_still_counted() -> None:
    memory = Memory(breaker=BreakerState(((NOW - 60, 5, 5),)), released_until=NOW + 1)
    picked = SelectionBuilderPool().group("g", 7).pick(memory, max_disruption=FIVE)
    assert len(picked.chosen) == 7
    assert picked.breaker.removals[-1] == (NOW, 7, 0)
    after = msgspec.structs.replace(memory, breaker=picked.breaker)
    assert why(
        SelectionBuilderPool().group("g", 1).pick(after, now=NOW + 2, max_disruption=FIVE)
    ) == {ReasonCode.DISRUPTION_LIMIT}


def test_policy_without_a_share_has_no_tripped_breaker() -> None:
    memory = Memory(breaker=BreakerState(((NOW - 60, 1, 1),), tripped_at=NOW - 60, wanted=9))
    picked = SelectionBuilderPool().group("g", 2).pick(memory, max_disruption=FIVE)
    assert (len(picked.chosen), picked.paused) == (2, None)
    assert picked.breaker == BreakerState(((NOW - 60, 1, 1), (NOW, 2, 0)))


def test_breaker_does_not_trip_while_removals_are_paused() -> None:
    memory = Memory(last_scale_up=NOW)
    picked = SelectionBuilderPool().group("g", 6, others=2).pick(memory, max_disruption=QUARTER)
    assert (why(picked), picked.breaker) == ({ReasonCode.IN_COOLDOWN}, BreakerState())


# --- the whole planner


def test_planner_carries_breaker_state_from_pass_to_pass() -> None:
    pool = SelectionBuilderPool().group("g", 6, others=14)
    snapshot = pool.build.snapshot()
    policy = Policy(name="test", mode=Mode.ACTIVE, max_disruption=QUARTER)
    memory, now = Memory(), NOW
    for _ in range(3):
        plan, memory = plan_cluster(snapshot, policy, memory, now, 0, assume_unneeded_for=7200)
        assert plan.removals == ()
        assert memory.breaker == BreakerState(tripped_at=NOW, wanted=20), (
            "every node of this cluster is empty"
        )
        now += 60
    memory = msgspec.structs.replace(memory, released_until=now + 1)
    plan, memory = plan_cluster(snapshot, policy, memory, now, 0, assume_unneeded_for=7200)
    assert len(plan.removals) == 10
    assert memory.breaker == BreakerState(((now, 10, 0),))
    assert memory.released_until == now + 1
