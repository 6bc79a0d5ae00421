"""The rows of the comparison with another autoscaler."""

from __future__ import annotations

import random

from chalicelib.shadow.records import KEPT, REMOVAL, Ledger, Match, Observation, ShadowVerdict
from chalicelib.store.tables import SHADOW, ShadowRow
from tests.unit.store.support import START, RequestCounter, StoreFixture

MATCH = Match("1f0c9a2e", REMOVAL, START, ShadowVerdict.ONLY_OURS, "worker-17")
FULL = Ledger(
    START, Observation(START, {"web": 3}, {"web": ("a", "b")}, {"a": 5}), matches=(MATCH,)
)


def test_comparison_is_one_read_and_one_write(bench: StoreFixture) -> None:
    rows = bench.store.shadow()
    assert rows.load(bench.cluster) is None
    with RequestCounter(bench) as counter:
        rows.save(bench.cluster, FULL, 1)
        assert rows.load(bench.cluster) == FULL
    assert (len(counter.requests), counter.items_written) == (2, 1)


def test_comparison_of_an_overtaken_pass_is_not_stored(bench: StoreFixture) -> None:
    rows = bench.store.shadow()
    rows.save(bench.cluster, FULL, 2)
    rows.save(bench.cluster, Ledger(START, Observation(START)), 1)
    assert rows.load(bench.cluster) == FULL


def test_comparison_is_kept_for_30_days_after_its_last_write(bench: StoreFixture) -> None:
    rows = bench.store.shadow()
    rows.save(bench.cluster, FULL, 1)
    bench.clock.advance(KEPT - 1)
    assert rows.load(bench.cluster) == FULL
    bench.clock.advance(2)
    assert rows.load(bench.cluster) is None


def test_comparison_that_cannot_be_read_counts_as_missing(bench: StoreFixture) -> None:
    table, late = bench.store.table, int(START + KEPT)
    table.write(
        table.put(
            ShadowRow(bench.cluster, SHADOW, blob=b"not compressed", token=1, expires_at=late)
        )
    )
    assert bench.store.shadow().load(bench.cluster) is None


def test_comparison_that_is_too_large_loses_its_list_first(bench: StoreFixture) -> None:
    chance = random.Random(1)
    names = tuple(f"{chance.getrandbits(256):064x}" for _ in range(12_000))
    large = Ledger(START, Observation(START, {"web": 3}, {"web": names}), matches=(MATCH,))
    bench.store.shadow().save(bench.cluster, large, 1)
    found = bench.store.shadow().load(bench.cluster)
    assert found is not None
    assert (found.first, found.seen.nodes, found.matches) == (START, {}, ())


def test_accepted_results_are_independent_of_the_passes(bench: StoreFixture) -> None:
    rows = bench.store.shadow()
    rows.accept(bench.cluster, "node.with.dots", START)
    rows.save(bench.cluster, FULL, 1)
    rows.accept(bench.cluster, "1f0c9a2e", START + 5)
    assert rows.accepted(bench.cluster) == {"node.with.dots": START, "1f0c9a2e": START + 5}
    assert rows.load(bench.cluster) == FULL
