"""A pass renews its lease while it lives: a killed one blocks its cluster for half a minute, a
suspended one saves nothing."""

from __future__ import annotations

import dataclasses
import threading
from contextlib import nullcontext
from typing import Any

import pytest

from chalicelib.model.errors import OutscalerError
from chalicelib.passes.lease_renewal import LEASE_FOR, RENEW_EVERY, HeldLease, in_thread
from chalicelib.passes.reconciler import handle
from chalicelib.runtime.messages import ReconcileMessage, encode
from chalicelib.store.errors import LeaseHeld, LeaseLost
from infra.emulators.aws_faults import FunctionKilled, Life, Mortal
from tests.functional.operations.harness import OperationHarness
from tests.functional.operations.test_reconcile_idle_cost import Costs

OBSERVED, SAVED = "reconcile:observed", "reconcile:saved"
BLIND = 40.0
"""Seconds after a kill within which another pass begins."""


@pytest.fixture
def stage(stage: OperationHarness) -> OperationHarness:
    """A cluster with one group."""
    stage.policy()
    stage.group(1)
    stage.clock.advance(10)
    return stage


def run_pass(stage: OperationHarness, reason: str = "schedule", **message: Any) -> None:
    """A pass now."""
    handle(
        encode(ReconcileMessage(stage.name, reason, stage.clock(), **message)).decode(),
        stage.runtime,
    )


def advance_at(stage: OperationHarness, place: str, seconds: float) -> None:
    """Lets so much time pass at that checkpoint."""
    stage.at_checkpoint[place] = lambda: stage.clock.advance(seconds)


def items_written(stage: OperationHarness, seconds: float) -> int:
    """The rows that a scheduled pass writes which needs that much time to read."""
    stage.clock.advance(60)
    advance_at(stage, OBSERVED, seconds)
    with Costs(stage) as costs:
        run_pass(stage)
    return costs.items


def killed_pass(stage: OperationHarness, reason: str, place: str, lasted: float) -> None:
    """A pass that is killed at that checkpoint after so many seconds."""
    process = Life(lambda at: at == place)

    def die(at: str) -> None:
        if at == place:
            stage.clock.advance(lasted)
        process.checkpoint(at)

    store = stage.new_store(wrap=lambda client: Mortal(client, process))
    runtime = dataclasses.replace(stage.runtime, store=store, checkpoint=die)
    with pytest.raises(FunctionKilled):
        handle(encode(ReconcileMessage(stage.name, reason, stage.clock())).decode(), runtime)


@pytest.mark.parametrize(
    ("seconds", "renewals"), [(0.0, 0), (9.0, 0), (10.0, 1), (35.0, 3), (115.0, 11)]
)
def test_pass_renews_its_lease_every_ten_seconds_and_a_quiet_one_never(
    stage: OperationHarness, seconds: float, renewals: int
) -> None:
    items_written(stage, 0.0)
    quiet = items_written(stage, 0.0)
    assert items_written(stage, seconds) == quiet + renewals
    assert SAVED in stage.checkpoints


def test_pass_of_two_minutes_is_not_taken_over(stage: OperationHarness) -> None:
    held = list[float]()

    def others_try() -> None:
        for _ in range(23):
            stage.clock.advance(5)
            with pytest.raises(LeaseHeld) as raised:
                stage.store.leases.acquire(stage.name, f"other-{len(held)}", LEASE_FOR)
            held.append(raised.value.until - stage.clock())

    stage.at_checkpoint[OBSERVED] = others_try
    run_pass(stage)
    assert SAVED in stage.checkpoints
    assert min(held) >= LEASE_FOR - 2 * RENEW_EVERY


@pytest.mark.parametrize("reason", ["schedule", "webhook"])
@pytest.mark.parametrize("place", [OBSERVED, SAVED])
@pytest.mark.parametrize("lasted", [0.0, 9.0, 35.0])
def test_killed_pass_blinds_its_cluster_for_forty_seconds_at_most(
    stage: OperationHarness, reason: str, place: str, lasted: float
) -> None:
    killed_pass(stage, reason, place, lasted)
    died = stage.clock()
    if reason == "schedule":
        stage.clock.advance(1.0)
        run_pass(stage)  # finds the lease of the dead pass
    while SAVED not in stage.checkpoints:
        message = stage.pass_watches.pop(0)
        stage.clock.advance(max(0.0, message["due"] - stage.clock()))
        handle(
            encode(ReconcileMessage(message["cluster"], at=message["at"])).decode(), stage.runtime
        )
    assert stage.clock() - died <= BLIND


@pytest.mark.parametrize("lasted", [2.0, 9.0, 19.0, 31.0, 75.0])
def test_scheduled_pass_killed_after_two_seconds_needs_no_other_message(
    stage: OperationHarness, lasted: float
) -> None:
    killed_pass(stage, "schedule", OBSERVED, lasted)
    died = stage.clock()
    assert len(stage.pass_watches) == 1
    while SAVED not in stage.checkpoints:
        message = stage.pass_watches.pop(0)
        stage.clock.advance(max(0.0, message["due"] - stage.clock()))
        handle(
            encode(ReconcileMessage(message["cluster"], at=message["at"])).decode(), stage.runtime
        )
    assert stage.clock() - died <= BLIND


@pytest.mark.parametrize(("lasted", "watches"), [(0.0, 0), (1.9, 0), (2.0, 1), (35.0, 1)])
def test_scheduled_pass_sends_one_watch_from_two_seconds_on(
    stage: OperationHarness, lasted: float, watches: int
) -> None:
    advance_at(stage, OBSERVED, lasted)
    run_pass(stage)
    assert SAVED in stage.checkpoints
    assert len(stage.pass_watches) == watches


def test_watch_of_a_pass_that_ended_requests_nothing(stage: OperationHarness) -> None:
    run_pass(stage, "webhook")
    (message,) = stage.pass_watches
    stage.checkpoints.clear()
    stage.clock.advance(message["due"] - stage.clock())
    handle(encode(ReconcileMessage(message["cluster"], at=message["at"])).decode(), stage.runtime)
    assert stage.checkpoints == []


def test_scheduled_message_that_meets_a_living_pass_requests_nothing_after_it(
    stage: OperationHarness,
) -> None:
    def meet() -> None:
        del stage.at_checkpoint[OBSERVED]
        stage.clock.advance(20)
        run_pass(stage)

    stage.at_checkpoint[OBSERVED] = meet
    run_pass(stage)
    stage.checkpoints.clear()
    messages = sorted(stage.pass_watches, key=lambda message: message["due"])
    assert len(messages) == 2, "its own watch, and the message that met it"
    for message in messages:
        stage.clock.advance(message["due"] - stage.clock())
        handle(
            encode(ReconcileMessage(message["cluster"], at=message["at"])).decode(), stage.runtime
        )
    assert stage.checkpoints == []


def test_suspended_pass_stops_before_it_saves(stage: OperationHarness) -> None:
    # nothing runs while a machine is suspended
    stage.replace(repeat=lambda seconds, work: nullcontext())
    advance_at(stage, OBSERVED, LEASE_FOR + 1)
    with pytest.raises(OutscalerError, match="not in force"):
        run_pass(stage)
    assert SAVED not in stage.checkpoints


def test_pass_suspended_and_resumed_does_not_renew_an_ended_lease(stage: OperationHarness) -> None:
    lease = stage.store.leases.acquire(stage.name, "mine", LEASE_FOR)
    held = HeldLease(lease, stage.store.leases, stage.clock)
    stage.clock.advance(LEASE_FOR + 1)
    assert not held.renew()
    with pytest.raises(LeaseLost):
        held.check()


def test_pass_that_cannot_renew_stops_before_it_saves(stage: OperationHarness) -> None:
    faulty = stage.new_store()
    lease = faulty.leases.acquire(stage.name, "mine", LEASE_FOR)
    clients = dataclasses.replace(stage.runtime, store=faulty)
    held = HeldLease(lease, faulty.leases, clients.clock)
    faulty.table.name = "no-such-table"
    for _ in range(2):
        stage.clock.advance(RENEW_EVERY)
        assert held.renew(), "it is tried again"
        assert held.check() == lease
    stage.clock.advance(RENEW_EVERY)
    assert not held.renew()
    with pytest.raises(LeaseLost):
        held.check()


@pytest.mark.parametrize("skew", [-3600.0, 0.0, 3600.0])
def test_pass_with_a_wrong_clock_renews_and_saves(stage: OperationHarness, skew: float) -> None:
    ahead = stage.new_store()
    wrong = ahead.leases
    wrong._clock = lambda: stage.clock() + skew
    held = HeldLease(
        wrong.acquire(stage.name, "mine", LEASE_FOR), wrong, lambda: stage.clock() + skew
    )
    for _ in range(5):
        stage.clock.advance(RENEW_EVERY)
        assert held.renew()
    assert held.check().until == stage.clock() + skew + LEASE_FOR


def test_lease_of_a_dead_pass_with_an_impossible_end_does_not_block(
    stage: OperationHarness,
) -> None:
    store = stage.new_store()
    store.leases._clock = lambda: stage.clock() + 86400.0
    store.leases.acquire(stage.name, "from the future", LEASE_FOR)
    run_pass(stage)
    assert SAVED in stage.checkpoints


def test_pass_whose_lease_was_taken_over_neither_saves_nor_renews(stage: OperationHarness) -> None:
    def overtaken() -> None:
        store = stage.new_store()
        store.leases._clock = lambda: stage.clock() + LEASE_FOR + 1
        store.leases.acquire(stage.name, "whose clock is ahead", LEASE_FOR)
        stage.clock.advance(RENEW_EVERY)

    stage.at_checkpoint[OBSERVED] = overtaken
    with pytest.raises(OutscalerError, match="not in force"):
        run_pass(stage)
    assert SAVED not in stage.checkpoints


def test_renewals_of_a_pass_that_hangs_end(stage: OperationHarness) -> None:
    held = HeldLease(
        stage.store.leases.acquire(stage.name, "hangs", LEASE_FOR), stage.store.leases, stage.clock
    )
    with stage.clock.repeat(RENEW_EVERY, held.renew):
        stage.clock.advance(200.0)
        assert stage.store.leases.acquire(stage.name, "next", LEASE_FOR).token == 2


def test_thread_renews_until_its_context_ends() -> None:
    called, go_on = [], threading.Semaphore(0)
    done = threading.Semaphore(0)

    def wait(ended: threading.Event, seconds: float) -> bool:
        assert seconds == RENEW_EVERY
        go_on.acquire()
        return ended.is_set()

    def work() -> bool:
        called.append(threading.current_thread().name)
        done.release()
        return True

    with in_thread(RENEW_EVERY, work, wait):
        for _ in range(3):
            go_on.release()
            done.acquire()
    go_on.release()
    assert called == ["lease renewal"] * 3
