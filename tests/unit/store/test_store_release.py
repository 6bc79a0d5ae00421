"""A person's word about the brake: no save overwrites it, and it makes no save stale."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.memory import BreakerState, GroupMemory, Memory
from chalicelib.store.errors import StoreUnavailable
from chalicelib.store.tables import RELEASE, ReleaseRow
from infra.emulators.aws_faults import lost_answer
from tests.unit.store.support import START, RequestCounter, StoreFixture, full_memory

replace = msgspec.structs.replace
PULLED = Memory(breaker=BreakerState(tripped_at=START, wanted=12), groups={"g": GroupMemory(target=3)})


def test_the_word_comes_with_the_memory(bench: StoreFixture) -> None:
    bench.save(Memory(), full_memory())
    bench.store.breaker_overrides.release(bench.cluster, START + 3600.5)
    with RequestCounter(bench) as counter:
        assert bench.load() == replace(full_memory(), released_until=START + 3600.5)
    assert [name for name, _ in counter.requests].count("Query") == 1


def test_a_cluster_without_any_memory_can_be_released(bench: StoreFixture) -> None:
    bench.store.breaker_overrides.release(bench.cluster, START)
    assert bench.load() == Memory(released_until=START)


def test_the_last_word_counts(bench: StoreFixture) -> None:
    for until in (START + 3600, START + 60):
        bench.store.breaker_overrides.release(bench.cluster, until)
    assert bench.load().released_until == START + 60


def test_a_word_given_while_a_pass_plans_is_neither_lost_nor_in_its_way(bench: StoreFixture) -> None:
    bench.save(Memory(), PULLED)
    seen, lease = bench.load(), bench.lease()
    bench.store.breaker_overrides.release(bench.cluster, START + 3600)
    bench.store.memory.save(
        bench.cluster, seen, replace(seen, breaker=BreakerState(((START, 1, 1),), START, 12)), (), lease
    )
    assert bench.load() == replace(
        PULLED, breaker=BreakerState(((START, 1, 1),), START, 12), released_until=START + 3600
    )


@pytest.mark.parametrize("planned", [0.0, START + 9999])
def test_a_save_never_writes_it(bench: StoreFixture, planned: float) -> None:
    bench.store.breaker_overrides.release(bench.cluster, START + 3600)
    seen = bench.load()
    lease = bench.lease()
    with RequestCounter(bench) as counter:
        bench.store.memory.save(bench.cluster, seen, replace(seen, released_until=planned), (), lease)
    assert counter.items_written == 0
    assert bench.load().released_until == START + 3600


def test_a_large_save_goes_by_it_too(bench: StoreFixture) -> None:
    bench.store.breaker_overrides.release(bench.cluster, START + 3600)
    seen, lease = bench.load(), bench.lease()
    after = replace(
        seen, groups={f"g{n}": GroupMemory(target=n) for n in range(120)}, breaker=BreakerState(((START, 1, 1),))
    )
    bench.store.memory.save(bench.cluster, seen, after, (), lease)
    assert bench.load() == after


def test_a_lost_answer_can_be_repeated(bench: StoreFixture) -> None:
    bench.faults.instead("put_item", lost_answer())
    with pytest.raises(StoreUnavailable):
        bench.store.breaker_overrides.release(bench.cluster, START + 60)
    bench.fresh().breaker_overrides.release(bench.cluster, START + 60)
    assert bench.load().released_until == START + 60


def test_a_row_of_another_release_can_be_read(bench: StoreFixture) -> None:
    bench.client.put_item(
        TableName=bench.table,
        Item={"cluster": {"S": bench.cluster}, "item": {"S": RELEASE}, "until": {"N": "12.5"}, "by": {"S": "somebody"}},
    )
    assert bench.load().released_until == 12.5


def test_it_is_tidied_away_long_after_its_end(bench: StoreFixture) -> None:
    bench.store.breaker_overrides.release(bench.cluster, START + 60)
    row = bench.store.table.get(ReleaseRow, bench.cluster, RELEASE)
    assert row is not None
    assert row.expires_at > START + 3600
