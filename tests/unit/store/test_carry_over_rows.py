"""State for the next pass is in the lease's row while it is small, otherwise in its own
row; releases may alternate.
"""

from __future__ import annotations

import pytest

from chalicelib.store.leases import LARGEST_IN_LEASE_ROW, join_carry_over
from chalicelib.store.table_client import ConditionFailed
from chalicelib.store.tables import CARRY_OVER, LEASE, CarryOverRow, LeaseRow
from infra.emulators.aws_faults import lost_answer
from tests.unit.store.support import START, RequestCounter, StoreFixture

SMALL, LARGE, LARGER = b"s" * LARGEST_IN_LEASE_ROW, b"l" * (LARGEST_IN_LEASE_ROW + 1), b"m" * 5000


def _last(bench: StoreFixture) -> tuple[float, bytes]:
    """The instant of the last pass, and what it carried over."""
    found = bench.store.scan_states.last(bench.cluster)
    assert found is not None
    return found.last_pass, found.carry_over


def leave(bench: StoreFixture, left: bytes, owner: str) -> None:
    """Runs a pass that leaves this state."""
    bench.store.leases.release(bench.lease(owner), passed_at=START, carry_over=left)


def inside(bench: StoreFixture) -> bytes | None:
    """Returns the content of the lease's own row."""
    row = bench.store.table.get(LeaseRow, bench.cluster, LEASE)
    assert row is not None
    return row.left


@pytest.mark.parametrize(
    "order",
    [
        (SMALL, LARGE),
        (LARGE, SMALL),
        (LARGE, LARGER, LARGE),
        (SMALL, LARGE, SMALL, LARGER, SMALL),
    ],
    ids=["grows", "shrinks", "stays large", "to and fro"],
)
def test_carry_over_is_found_whatever_its_size(
    bench: StoreFixture, order: tuple[bytes, ...]
) -> None:
    for number, left in enumerate(order):
        leave(bench, left, f"pass-{number}")
        assert _last(bench) == (START, left)
        lease = bench.fresh().leases.acquire(bench.cluster, f"looks-{number}", 60.0)
        assert lease.carry_over == left
        bench.store.leases.release(lease)
        assert (inside(bench) is None) == (len(left) > LARGEST_IN_LEASE_ROW)


def test_carry_over_of_a_release_knowing_only_the_lease_row_is_newer(bench: StoreFixture) -> None:
    leave(bench, LARGE, "new release")
    lease = bench.lease("old release")
    of_the_old = LeaseRow.left.set(LARGER), LeaseRow.owner.remove(), LeaseRow.until.remove()
    bench.store.table.write(bench.store.table.update(bench.cluster, LEASE, list(of_the_old)))
    assert lease.carry_over == LARGE
    assert bench.lease("new release again").carry_over == LARGER


def test_carry_over_of_an_overtaken_pass_does_not_replace_a_later_one(bench: StoreFixture) -> None:
    zombie = bench.lease("zombie")
    bench.clock.advance(61)
    newer = bench.lease("newer")
    bench.store.leases.release(newer, carry_over=LARGER)
    assert not bench.store.leases.release(zombie, carry_over=LARGE)
    assert bench.lease("next").carry_over == LARGER


def test_carry_over_keeps_the_older_value_if_the_process_dies_between_rows(
    bench: StoreFixture,
) -> None:
    leave(bench, SMALL, "first")
    lease = bench.lease("dies")
    bench.store.table.write(
        bench.store.table.put(
            CarryOverRow(bench.cluster, CARRY_OVER, left=LARGE, token=lease.token)
        )
    )
    bench.clock.advance(61)
    assert bench.lease("next").carry_over == SMALL


def test_carry_over_growth_keeps_the_lease_row_within_one_capacity_unit(
    bench: StoreFixture,
) -> None:
    leave(bench, LARGER, "x")
    with pytest.raises(ConditionFailed) as refused:
        bench.store.table.write(
            bench.store.table.update(
                bench.cluster, LEASE, [LeaseRow.until.remove()], LeaseRow.token == -1
            )
        )
    assert len(str(refused.value.old)) < 1000


def test_carry_over_writes_only_the_changed_part_of_a_joined_value(bench: StoreFixture) -> None:
    leave(bench, join_carry_over(b"o1", LARGE), "first")
    lease = bench.lease("second")
    assert lease.carry_over == join_carry_over(b"o1", LARGE)
    with RequestCounter(bench) as counter:
        bench.store.leases.release(lease, passed_at=START, carry_over=join_carry_over(b"o2", LARGE))
    assert counter.items_written == 1
    assert _last(bench) == (START, join_carry_over(b"o2", LARGE))


@pytest.mark.parametrize(
    "order",
    [
        (SMALL, join_carry_over(b"o", b"s"), SMALL),
        (LARGE, join_carry_over(b"o", LARGER), LARGE),
        (join_carry_over(b"", b""), join_carry_over(b"o", b"")),
        (join_carry_over(b"o", LARGE), LARGER, join_carry_over(b"o", LARGE)),
    ],
)
def test_carry_over_joined_and_plain_values_may_alternate(
    bench: StoreFixture, order: tuple[bytes, ...]
) -> None:
    for number, left in enumerate(order):
        leave(bench, left, f"pass-{number}")
        lease = bench.lease(f"looks-{number}")
        assert lease.carry_over == left
        bench.store.leases.release(lease)


def test_carry_over_write_failure_does_not_keep_the_lease(bench: StoreFixture) -> None:
    lease = bench.lease("first")
    bench.faults.instead("put_item", *[lost_answer()] * 9)
    assert bench.store.leases.release(lease, passed_at=START, carry_over=LARGE)
    assert bench.lease("next").token == lease.token + 1
