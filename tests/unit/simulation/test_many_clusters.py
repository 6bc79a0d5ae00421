"""A simulated deployment shows which passes are late, and what makes them so."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from infra.aws.cost_count import Counts
from infra.simulation.many_clusters import (
    IDLE_FOR,
    LambdaPool,
    Outcome,
    PoolProcess,
    SeenLists,
    SimulatedDeployment,
    dollars,
    simulated,
)

COUNTS = Counts(
    calls={},
    reads=10.0,
    writes=4.0,
    sent=1,
    log=1_000,
    series=0,
    secret_reads=1,
    lists=1_000_000,
    packed=100_000,
    written={},
)


def quick(**changed: Any) -> SimulatedDeployment:
    """Return a small deployment that is simulated for a short time."""
    return msgspec.structs.replace(
        SimulatedDeployment(clusters=60, minutes=16, unmeasured=4), **changed
    )


@pytest.fixture(scope="module")
def usual() -> Outcome:
    return simulated(quick())


def test_every_cluster_has_a_pass_a_minute_and_none_is_a_minute_late(usual: Outcome) -> None:
    assert usual.passes == 60 * 12
    assert usual.late_at(1.0) < 60.0


def test_shared_lists_make_most_passes_read_changes(usual: Outcome) -> None:
    shared = simulated(quick(shared=True))
    assert usual.followed < 0.5 < 0.85 < shared.followed
    ours, theirs = (dollars(quick(), each, COUNTS)[1] for each in (usual, shared))
    assert theirs < ours / 2


def test_too_little_concurrency_shows_as_late_and_missing_passes() -> None:
    slow = simulated(quick(concurrency=2, full=5.0, changes=5.0))
    assert slow.late_at(0.5) > 60.0
    assert slow.passes < 60 * 12 / 2
    assert slow.peak == 2


def test_no_partition_of_the_tables_is_near_its_limit(usual: Outcome) -> None:
    assert [each.key for each in usual.keys if not each.key.startswith("!")] != []
    assert all(each.share < 0.05 for each in usual.keys)


def test_tick_takes_the_time_of_its_requests() -> None:
    short, long = (simulated(quick(clusters=20, tick_call=each)).tick for each in (0.01, 0.02))
    assert long == pytest.approx(2 * short)


def test_same_seed_gives_the_same_outcome(usual: Outcome) -> None:
    assert simulated(quick()) == usual


def test_clusters_with_a_shorter_interval_have_more_passes() -> None:
    assert simulated(quick(clusters=10, interval="20s")).passes == 3 * 10 * 12


def test_cost_of_a_cluster_grows_with_its_passes_and_its_traffic(usual: Outcome) -> None:
    slow = simulated(quick(full=6.0, changes=6.0))
    ours, theirs = (dollars(quick(), each, COUNTS) for each in (usual, slow))
    assert ours[0] < theirs[0]
    assert ours[1] == pytest.approx(theirs[1], rel=0.5)


def test_idle_processes_end_and_lists_used_longest_ago_are_dropped() -> None:
    pool = LambdaPool(2, 1, random.Random(0))
    first = pool.take(0.0)
    assert first is not None
    assert first[1]
    pool.give_back(first[0], 1.0)
    again = pool.take(2.0)
    assert again == (first[0], False)
    pool.give_back(first[0], 3.0)
    later = pool.take(3.0 + IDLE_FOR)
    assert later is not None
    assert later[0] is not first[0]
    process = PoolProcess(1)
    for name in ("a", "b"):
        process.keep(name, SeenLists(0.0, 0.0))
    assert process.lists("a") is None
    assert process.lists("b") is not None
