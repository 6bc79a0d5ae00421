"""Each arrow of the state machine is taken once, by one, and no other arrow exists."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.operation import Operation, OperationState
from chalicelib.store.errors import (
    IllegalTransition,
    OperationClaimed,
    OperationFinished,
    OperationNotDue,
    StaleWrite,
    StoreUnavailable,
)
from chalicelib.store.operation_rows import KEPT
from chalicelib.store.tables import OVER
from infra.emulators.aws_faults import lost_answer
from tests.unit.store.support import START, RequestCounter, StoreFixture, all_at_once

replace = msgspec.structs.replace
ENDS = (OperationState.SUCCEEDED, OperationState.FAILED, OperationState.ABANDONED)


def claimed(bench: StoreFixture, name: str = "a", owner: str = "act-1") -> Operation:
    """A new operation in the hands of an executor."""
    bench.planned(bench.operation(name))
    return bench.store.operations.claim(bench.cluster, f"grow-{name}", owner, 30)


def test_of_eight_executors_exactly_one_gets_the_claim(bench: StoreFixture) -> None:
    bench.planned(bench.operation("a"))
    calls = [lambda n=n: bench.store.operations.claim(bench.cluster, "grow-a", f"act-{n}", 30) for n in range(8)]
    results = all_at_once(calls)
    winners = [result for result in results if isinstance(result, Operation)]
    losers = [result for result in results if isinstance(result, OperationClaimed)]
    assert (len(winners), len(losers)) == (1, 7)
    assert {loser.holder for loser in losers} == {winners[0].status.claimed_by}
    assert {loser.until for loser in losers} == {bench.clock() + 30}
    assert bench.store.operations.get(bench.cluster, "grow-a") == winners[0]


def test_a_claim_is_a_step_of_its_own(bench: StoreFixture) -> None:
    bench.clock.advance(5)
    operation = claimed(bench)
    assert operation == bench.operation("a").with_status(
        state=OperationState.RUNNING,
        attempt=1,
        claimed_by="act-1",
        claimed_until=START + 35,
        updated_at=START + 5,
    )


def test_what_waits_cannot_be_claimed_before_it_is_due(bench: StoreFixture) -> None:
    bench.planned(bench.operation("a", due_at=START + 10))
    with pytest.raises(OperationNotDue) as early:
        bench.store.operations.claim(bench.cluster, "grow-a", "act-1", 30)
    assert early.value.due_at == START + 10
    bench.clock.advance(10)
    assert bench.store.operations.claim(bench.cluster, "grow-a", "act-1", 30).status.state is OperationState.RUNNING


def test_a_dead_executors_claim_runs_out(bench: StoreFixture) -> None:
    claimed(bench, owner="dead")
    bench.clock.advance(30)
    with pytest.raises(OperationClaimed) as taken:
        bench.store.operations.claim(bench.cluster, "grow-a", "next", 30)
    assert (taken.value.holder, taken.value.until) == ("dead", START + 30)
    bench.clock.advance(0.25)
    again = bench.store.operations.claim(bench.cluster, "grow-a", "next", 30)
    assert (again.status.claimed_by, again.status.attempt) == ("next", 2)


def test_a_dead_executor_that_wakes_up_writes_nothing(bench: StoreFixture) -> None:
    before = claimed(bench, owner="dead")
    bench.clock.advance(31)
    now_held = bench.store.operations.claim(bench.cluster, "grow-a", "next", 30)
    with pytest.raises(OperationClaimed):
        bench.store.operations.advance(before, before.with_status(state=OperationState.SUCCEEDED), "dead")
    assert bench.store.operations.get(bench.cluster, "grow-a") == now_held


def test_an_attempt_is_not_taken_for_a_later_one_of_the_same_name(bench: StoreFixture) -> None:
    first = claimed(bench, owner="same")
    bench.clock.advance(31)
    second = bench.store.operations.claim(bench.cluster, "grow-a", "same", 30)
    with pytest.raises(StaleWrite):
        bench.store.operations.advance(first, first.with_status(state=OperationState.FAILED), "same")
    assert bench.store.operations.get(bench.cluster, "grow-a") == second


def test_waiting_and_claiming_again_until_it_is_done(bench: StoreFixture) -> None:
    operation = claimed(bench)
    waiting = operation.with_status(
        state=OperationState.WAITING, step="confirm", data={"request": "r-1"}, due_at=START + 20
    )
    stored = bench.store.operations.advance(operation, waiting, "act-1")
    assert (stored.status.claimed_by, stored.status.claimed_until) == ("", 0.0)
    assert bench.store.operations.list_open(bench.cluster) == (stored,)
    with pytest.raises(OperationNotDue):
        bench.store.operations.claim(bench.cluster, "grow-a", "act-2", 30)
    bench.clock.advance(20)
    second = bench.store.operations.claim(bench.cluster, "grow-a", "act-2", 30)
    assert (second.status.step, second.status.data, second.status.attempt) == ("confirm", {"request": "r-1"}, 2)
    ended = bench.store.operations.advance(
        second, second.with_status(state=OperationState.SUCCEEDED, outcome="2 nodes"), "act-2"
    )
    assert bench.store.operations.get(bench.cluster, "grow-a") == ended
    assert ended.status.outcome == "2 nodes"


@pytest.mark.parametrize("end", ENDS)
def test_what_is_over_is_out_of_the_list_but_can_still_be_read(bench: StoreFixture, end: OperationState) -> None:
    operation = claimed(bench)
    ended = bench.store.operations.advance(operation, operation.with_status(state=end, error_class="Unknown"), "act-1")
    assert bench.store.operations.list_open(bench.cluster) == ()
    assert bench.load().operations == ()
    assert bench.fresh().operations.get(bench.cluster, "grow-a") == ended
    with pytest.raises(OperationFinished) as over:
        bench.store.operations.claim(bench.cluster, "grow-a", "act-2", 30)
    assert over.value.state == end.value


def test_what_is_over_is_tidied_away_some_day(bench: StoreFixture) -> None:
    operation = claimed(bench)
    bench.store.operations.advance(operation, operation.with_status(state=OperationState.FAILED), "act-1")
    (row,) = bench.store.table.query(bench.cluster, OVER)
    assert row["expires_at"] == {"N": str(int(START + KEPT))}


ILLEGAL = [
    (before, after)
    for before in OperationState
    for after in OperationState
    if before is not OperationState.RUNNING or after in (OperationState.PLANNED, OperationState.RUNNING)
]


@pytest.mark.parametrize(("before", "after"), ILLEGAL)
def test_no_other_arrow_can_be_taken_by_a_step(
    bench: StoreFixture, before: OperationState, after: OperationState
) -> None:
    operation = bench.operation("a", state=before, claimed_by="act-1", attempt=1)
    with pytest.raises(IllegalTransition):
        bench.store.operations.advance(operation, operation.with_status(state=after), "act-1")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("after", [OperationState.WAITING, *ENDS])
def test_no_arrow_leads_out_of_an_end(bench: StoreFixture, end: OperationState, after: OperationState) -> None:
    """Not even for an executor who believes that he still has it in hand."""
    operation = claimed(bench)
    ended = bench.store.operations.advance(operation, operation.with_status(state=end, outcome="first"), "act-1")
    with pytest.raises(OperationFinished):
        bench.store.operations.advance(operation, operation.with_status(state=after), "act-1")
    assert bench.store.operations.get(bench.cluster, "grow-a") == ended


@pytest.mark.parametrize("after", [OperationState.WAITING, *ENDS])
@pytest.mark.parametrize("in_the_table", [OperationState.PLANNED, OperationState.WAITING])
def test_what_is_in_nobodys_hands_cannot_be_advanced(
    bench: StoreFixture, in_the_table: OperationState, after: OperationState
) -> None:
    operation = bench.operation("a", state=in_the_table, attempt=1)
    bench.planned(operation)
    believed = operation.with_status(state=OperationState.RUNNING, claimed_by="act-1")
    with pytest.raises(StaleWrite):
        bench.store.operations.advance(believed, believed.with_status(state=after, step="next"), "act-1")
    assert bench.store.operations.get(bench.cluster, "grow-a") == operation


@pytest.mark.parametrize(
    "change",
    [{"spec": {"to_size": 9}}, {"spec": {"group": "other"}}, {"spec": {"id": "grow-b"}}, {"status": {"attempt": 7}}],
)
def test_a_step_cannot_change_what_the_operation_does(
    bench: StoreFixture, change: dict[str, dict[str, object]]
) -> None:
    operation = claimed(bench)
    changed = operation.with_status(state=OperationState.WAITING, **change.get("status", {})).with_spec(
        **change.get("spec", {})
    )
    with pytest.raises(IllegalTransition):
        bench.store.operations.advance(operation, changed, "act-1")


def test_an_executor_cannot_advance_what_another_claimed(bench: StoreFixture) -> None:
    operation = claimed(bench)
    with pytest.raises(IllegalTransition):
        bench.store.operations.advance(operation, operation.with_status(state=OperationState.WAITING), "act-2")


def test_the_same_thing_is_never_planned_twice(bench: StoreFixture) -> None:
    running = claimed(bench)
    bench.planned(bench.operation("a"), bench.operation("b"))
    assert bench.store.operations.get(bench.cluster, "grow-a") == running
    bench.store.operations.advance(running, running.with_status(state=OperationState.SUCCEEDED), "act-1")
    bench.planned(bench.operation("a"), bench.operation("b"))
    assert [operation.spec.id for operation in bench.store.operations.list_open(bench.cluster)] == ["grow-b"]


def test_an_unknown_operation_is_nobodys(bench: StoreFixture) -> None:
    assert bench.store.operations.get(bench.cluster, "grow-x") is None
    with pytest.raises(OperationFinished):
        bench.store.operations.claim(bench.cluster, "grow-x", "act-1", 30)
    assert not bench.store.operations.mark_sent(bench.cluster, "grow-x", START)


def test_that_a_message_was_sent_is_not_forgotten_by_a_step(bench: StoreFixture) -> None:
    """The pass marks what it sent while the executor is already at work."""
    operation = claimed(bench)
    assert bench.store.operations.mark_sent(bench.cluster, "grow-a", START + 1)
    stored = bench.store.operations.advance(operation, operation.with_status(state=OperationState.WAITING), "act-1")
    assert stored.status.sent_at == 0.0
    (listed,) = bench.store.operations.list_open(bench.cluster)
    assert listed.status.sent_at == START + 1


def test_listing_what_is_open_does_not_read_what_is_over(bench: StoreFixture) -> None:
    for name in "abc":
        operation = claimed(bench, name)
        bench.store.operations.advance(operation, operation.with_status(state=OperationState.SUCCEEDED), "act-1")
    bench.planned(bench.operation("d"))
    with RequestCounter(bench) as counter:
        assert [each.spec.id for each in bench.store.operations.list_open(bench.cluster)] == ["grow-d"]
    assert [name for name, _ in counter.requests].count("Query") == 1
    assert counter.items_read == 3  # the operation, and the gate before and after


@pytest.mark.parametrize("after", [OperationState.WAITING, OperationState.SUCCEEDED])
def test_a_step_whose_answer_was_lost_is_recognised_when_it_is_repeated(
    bench: StoreFixture, after: OperationState
) -> None:
    operation = claimed(bench)
    bench.faults.after("update_item", lost_answer())
    bench.faults.after("transact_write_items", lost_answer())
    step = operation.with_status(state=after, step="confirm")
    with pytest.raises(StoreUnavailable):
        bench.store.operations.advance(operation, step, "act-1")
    again = bench.store.operations.advance(operation, step, "act-1")
    assert (again.status.state, again.status.step) == (after, "confirm")


def test_a_claim_whose_answer_was_lost_is_found_again_by_its_owner(bench: StoreFixture) -> None:
    first = claimed(bench)
    assert bench.store.operations.claim(bench.cluster, "grow-a", "act-1", 30) == first
