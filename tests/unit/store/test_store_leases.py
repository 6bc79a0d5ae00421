"""One pass per cluster at a time; an overtaken pass can do no harm."""

from __future__ import annotations

import pytest

from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.store import Lease
from chalicelib.store.errors import LeaseHeld, LeaseLost, StoreUnavailable
from chalicelib.store.leases import LastPass
from infra.emulators.aws_faults import lost_answer
from tests.unit.store.support import READS, START, RequestCounter, StoreFixture, all_at_once


def test_lease_goes_to_exactly_one_of_eight_concurrent_requests(bench: StoreFixture) -> None:
    calls = [
        lambda n=n: bench.store.leases.acquire(bench.cluster, f"owner-{n}", 60) for n in range(8)
    ]
    results = all_at_once(calls)
    leases = [result for result in results if isinstance(result, Lease)]
    assert len(leases) == 1
    others = [result for result in results if isinstance(result, LeaseHeld)]
    assert len(others) == 7
    assert {other.owner for other in others} == {leases[0].owner}
    assert {other.until for other in others} == {leases[0].until}


def test_lease_can_be_taken_exactly_when_it_expires(bench: StoreFixture) -> None:
    first = bench.lease("a")
    bench.clock.advance(60.0)
    with pytest.raises(LeaseHeld):
        bench.lease("b")
    bench.clock.advance(0.25)
    assert bench.lease("b").token == first.token + 1


def test_lease_tokens_grow_through_releases_and_takeovers(bench: StoreFixture) -> None:
    tokens = []
    for number in range(4):
        lease = bench.lease(f"owner-{number}")
        tokens.append(lease.token)
        if number % 2:
            assert bench.store.leases.release(lease)
        else:
            bench.clock.advance(61)
    assert tokens == [1, 2, 3, 4]


def test_pass_without_its_lease_neither_releases_nor_saves(bench: StoreFixture) -> None:
    zombie = bench.lease("zombie")
    bench.clock.advance(61)
    bench.lease("newer")
    assert not bench.store.leases.release(zombie)
    with pytest.raises(LeaseLost):
        bench.store.memory.save(bench.cluster, Memory(), Memory(last_scale_up=1), (), zombie)
    assert bench.load() == Memory()


def test_lease_loss_is_reported_to_a_holder_with_nothing_to_save(bench: StoreFixture) -> None:
    zombie = bench.lease("zombie")
    bench.clock.advance(61)
    bench.lease("newer")
    with pytest.raises(LeaseLost):
        bench.store.memory.save(bench.cluster, Memory(), Memory(), (), zombie)


def test_lease_expired_but_not_overtaken_holder_may_continue(bench: StoreFixture) -> None:
    lease = bench.lease()
    bench.clock.advance(300)
    bench.store.memory.save(
        bench.cluster, Memory(), Memory(groups={"g": GroupMemory(target=1)}), (), lease
    )
    assert bench.load().groups == {"g": GroupMemory(target=1)}


def test_lease_after_its_release_allows_no_save(bench: StoreFixture) -> None:
    lease = bench.lease()
    bench.store.leases.release(lease)
    with pytest.raises(LeaseLost):
        bench.store.memory.save(bench.cluster, Memory(), Memory(last_scale_up=1), (), lease)


def test_lease_renewed_lasts_as_long_again_and_keeps_its_token(bench: StoreFixture) -> None:
    lease = bench.lease("a")
    bench.clock.advance(50.0)
    renewed = bench.store.leases.renew(lease, 60.0)
    assert (renewed.token, renewed.until) == (lease.token, bench.clock() + 60.0)
    bench.clock.advance(60.0)
    with pytest.raises(LeaseHeld):
        bench.lease("b")


@pytest.mark.parametrize("lost", ["taken over", "released"])
def test_lease_that_is_lost_is_not_renewed(bench: StoreFixture, lost: str) -> None:
    lease = bench.lease("a")
    if lost == "taken over":
        bench.clock.advance(61)
        bench.lease("b")
    else:
        bench.store.leases.release(lease)
    with pytest.raises(LeaseLost):
        bench.store.leases.renew(lease, 60.0)


def test_lease_renewal_with_a_lost_answer_is_repeated_without_harm(bench: StoreFixture) -> None:
    lease = bench.lease("a")
    bench.faults.after("update_item", lost_answer())
    with pytest.raises(StoreUnavailable):
        bench.store.leases.renew(lease, 90.0)
    assert bench.store.leases.renew(lease, 90.0).until == START + 90.0


@pytest.mark.parametrize("late", [0.0, 0.25])
def test_lease_that_ends_goes_to_its_holder_or_to_one_other(
    bench: StoreFixture, late: float
) -> None:
    lease = bench.lease("holder")
    bench.clock.advance(60.0 + late)
    others = [
        lambda n=n: bench.fresh().leases.acquire(bench.cluster, f"owner-{n}", 60.0)
        for n in range(4)
    ]
    renewed, *results = all_at_once([lambda: bench.fresh().leases.renew(lease, 60.0), *others])
    winners = [result for result in (renewed, *results) if isinstance(result, Lease)]
    assert len(winners) == 1
    assert isinstance(renewed, Lease | LeaseLost)
    assert all(isinstance(result, Lease | LeaseHeld) for result in results)
    bench.store.memory.save(bench.cluster, Memory(), Memory(last_scale_up=1), (), winners[0])


@pytest.mark.parametrize(
    ("ahead", "blocks"), [(900.0, True), (960.0, True), (961.0, False), (1e9, False)]
)
def test_lease_whose_end_no_correct_clock_has_set_is_over(
    bench: StoreFixture, ahead: float, *, blocks: bool
) -> None:
    first = bench.store.leases.acquire(bench.cluster, "a", ahead)
    if blocks:
        with pytest.raises(LeaseHeld):
            bench.lease("b")
    else:
        assert bench.lease("b").token == first.token + 1


def test_lease_is_separate_for_each_cluster(bench: StoreFixture) -> None:
    bench.lease()
    assert bench.store.leases.acquire(bench.cluster + "-other", "x", 60).token == 1


def test_lease_request_with_a_lost_answer_finds_its_own_lease(bench: StoreFixture) -> None:
    first = bench.lease("a")
    again = bench.lease("a")
    assert again == first


def test_lease_lost_answer_is_reported_as_such(bench: StoreFixture) -> None:
    bench.faults.after("update_item", lost_answer())
    with pytest.raises(StoreUnavailable):
        bench.lease("a")
    assert bench.lease("a").token == 1


def test_lease_passes_carry_over_to_the_next_holder_at_no_cost(bench: StoreFixture) -> None:
    lease = bench.lease("a")
    assert (lease.decision, lease.carry_over) == ("", b"")
    with RequestCounter(bench) as counter:
        bench.store.leases.release(lease, passed_at=START, decision="d1", carry_over=b"\x00left")
        lease = bench.fresh().leases.acquire(bench.cluster, "b", 60.0)
    assert (lease.decision, lease.carry_over, counter.items_written) == ("d1", b"\x00left", 2)
    assert not READS & {name for name, _ in counter.requests}
    bench.store.leases.release(lease)
    assert bench.lease("c").decision == "d1", "who leaves nothing leaves what there is"


def test_lease_overtaken_pass_leaves_no_carry_over(bench: StoreFixture) -> None:
    zombie = bench.lease("zombie")
    bench.clock.advance(61)
    newer = bench.lease("newer")
    assert not bench.store.leases.release(
        zombie, passed_at=bench.clock(), decision="old", carry_over=b"old"
    )
    bench.store.leases.release(newer, decision="new", carry_over=b"new")
    assert bench.lease("next").carry_over == b"new"


def test_lease_carry_over_is_visible_to_readers(bench: StoreFixture) -> None:
    other = bench.cluster + "-other"
    bench.store.leases.release(bench.lease(), passed_at=START, carry_over=b"left")
    bench.store.leases.acquire(other, "x", 60)
    found = bench.store.scan_states.passed_by([bench.cluster, other, "nobody"])
    assert {
        name: (each.last_pass, each.carry_over)
        for name, each in found.items()
        if isinstance(each, LastPass)
    } == {
        bench.cluster: (START, b"left"),
        other: (0.0, b""),
    }
