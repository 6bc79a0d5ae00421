"""The operator's override of the circuit breaker: no save overwrites it,
and it makes no save stale.
"""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.memory import BreakerState, GroupMemory, Memory
from chalicelib.store.errors import StoreUnavailable
from chalicelib.store.tables import BREAKER_OVERRIDE, BreakerOverrideRow
from infra.emulators.aws_faults import lost_answer
from tests.unit.store.support import START, RequestCounter, StoreFixture, full_memory

replace = msgspec.structs.replace
PULLED = Memory(
    breaker=BreakerState(tripped_at=START, wanted=12), groups={"g": GroupMemory(target=3)}
)


def test_breaker_override_is_loaded_with_the_memory(bench: StoreFixture) -> None:
    bench.save(Memory(), full_memory())
    bench.store.breaker_overrides.release(bench.cluster, START + 3600.5)
    with RequestCounter(bench) as counter:
        assert bench.load() == replace(full_memory(), released_until=START + 3600.5)
    assert [name for name, _ in counter.requests].count("Query") == 1


def test_breaker_override_works_without_any_memory(bench: StoreFixture) -> None:
    bench.store.breaker_overrides.release(bench.cluster, START)
    assert bench.load() == Memory(released_until=START)


def test_breaker_override_last_one_applies(bench: StoreFixture) -> None:
    for until in (START + 3600, START + 60):
        bench.store.breaker_overrides.release(bench.cluster, until)
    assert bench.load().released_until == START + 60


def test_breaker_override_given_during_a_pass_is_kept_and_blocks_nothing(
    bench: StoreFixture,
) -> None:
    bench.save(Memory(), PULLED)
    seen, lease = bench.load(), bench.lease()
    bench.store.breaker_overrides.release(bench.cluster, START + 3600)
    bench.store.memory.save(
        bench.cluster,
        seen,
        replace(seen, breaker=BreakerState(((START, 1, 1),), START, 12)),
        (),
        lease,
    )
    assert bench.load() == replace(
        PULLED, breaker=BreakerState(((START, 1, 1),), START, 12), released_until=START + 3600
    )


@pytest.mark.parametrize("planned", [0.0, START + 9999])
def test_breaker_override_is_never_written_by_a_save(bench: StoreFixture, planned: float) -> None:
    bench.store.breaker_overrides.release(bench.cluster, START + 3600)
    seen = bench.load()
    lease = bench.lease()
    with RequestCounter(bench) as counter:
        bench.store.memory.save(
            bench.cluster, seen, replace(seen, released_until=planned), (), lease
        )
    assert counter.items_written == 0
    assert bench.load().released_until == START + 3600


def test_breaker_override_is_not_touched_by_a_large_save(bench: StoreFixture) -> None:
    bench.store.breaker_overrides.release(bench.cluster, START + 3600)
    seen, lease = bench.load(), bench.lease()
    after = replace(
        seen,
        groups={f"g{n}": GroupMemory(target=n) for n in range(120)},
        breaker=BreakerState(((START, 1, 1),)),
    )
    bench.store.memory.save(bench.cluster, seen, after, (), lease)
    assert bench.load() == after


def test_breaker_override_with_a_lost_answer_can_be_repeated(bench: StoreFixture) -> None:
    bench.faults.instead("put_item", lost_answer())
    with pytest.raises(StoreUnavailable):
        bench.store.breaker_overrides.release(bench.cluster, START + 60)
    bench.fresh().breaker_overrides.release(bench.cluster, START + 60)
    assert bench.load().released_until == START + 60


def test_breaker_override_row_of_another_release_can_be_read(bench: StoreFixture) -> None:
    bench.client.put_item(
        TableName=bench.table,
        Item={
            "cluster": {"S": bench.cluster},
            "item": {"S": BREAKER_OVERRIDE},
            "until": {"N": "12.5"},
            "by": {"S": "somebody"},
        },
    )
    assert bench.load().released_until == 12.5


def test_breaker_override_row_expires_long_after_its_end(bench: StoreFixture) -> None:
    bench.store.breaker_overrides.release(bench.cluster, START + 60)
    row = bench.store.table.get(BreakerOverrideRow, bench.cluster, BREAKER_OVERRIDE)
    assert row is not None
    assert row.expires_at > START + 3600
