"""For any scheduler queue and ties, pods with a definite placement get a place, and
few new nodes stay empty.

`python -m tests.property.checker --seeds 0-500 --draws 6 [--settled]`
counts the same for any seeds.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.amounts import examples
from tests.property.checker import plan_for
from tests.property.clusters import make
from tests.property.plan_check import Trial
from tests.property.scheduled_cluster import settled
from tests.property.scheduler_draws import Tally

SEED, EACH, DRAWS = 20_271_121, examples(30, 200), 4
PROMISED = 5 * EACH  # placements at least, so that the limits below mean something
LONG_RUN, CHUNK = 10_000, 250
# Rehearsals are samples of what the scheduler may do, and so are the draws; therefore the limits
# are shares of placements and of new nodes.
UNKEPT, SHORT, EMPTY, EMPTY_SETTLED = 0.001, 0.002, 0.015, 0.007


def played(first: int, count: int, draws: int = DRAWS, *, at_rest: bool = False) -> Tally:
    """Results of draws with the plans for some clusters. at_rest: pods that fit
    existing nodes are bound before."""
    total = Tally()
    for seed in range(first, first + count):
        cluster = settled(make(seed), seed) if at_rest else make(seed)
        total.add(Trial(cluster, plan_for(cluster)).drawn(draws))
    return total


def kept(total: Tally, empty: float = EMPTY) -> bool:
    """Whether nearly all placements were kept and nearly all new nodes used."""
    return (
        total.unkept <= UNKEPT * total.promised + 1
        and total.among <= SHORT * total.sure + 1
        and total.empty <= empty * total.nodes + 1
    )


@pytest.mark.more
def test_placed_pods_find_places_in_any_scheduler_order() -> None:
    total = played(SEED, EACH)
    assert total.promised > PROMISED
    # placements without information are always kept
    assert total.sure > 0.9 * total.bound, str(total)
    assert kept(total), str(total)


@pytest.mark.more
def test_no_new_node_stays_empty_after_the_scheduler_rejected_all_pending_pods() -> None:
    """A pending pod that fits an existing node is rare, because the scheduler
    has tried all pods before."""
    total = played(SEED, EACH, at_rest=True)
    assert total.promised > PROMISED
    assert kept(total, EMPTY_SETTLED), str(total)


def _chunk(first: int) -> Tally:
    return played(first, CHUNK, draws=6)


@pytest.mark.slow
def test_placements_of_ten_thousand_plans_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """Starts at the seed OUTSCALER_SEED; the final line is used in release notes."""
    first, total = int(os.environ.get("OUTSCALER_SEED", SEED)), Tally()
    with ProcessPoolExecutor() as workers:
        for found in workers.map(_chunk, range(first, first + LONG_RUN, CHUNK)):
            total.add(found)
    with capsys.disabled():
        print(f"\nOUTSCALER_SEED={first}: {LONG_RUN} clusters, {total}")
    assert kept(total), str(total)
