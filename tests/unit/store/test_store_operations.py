"""Each transition of the operation state machine is made once, by one executor, and no
other transition exists.
"""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.operation import BROKEN, Operation, OperationState
from chalicelib.store.errors import (
    IllegalTransition,
    OperationClaimed,
    OperationFinished,
    OperationNotDue,
    StaleWrite,
    StoreUnavailable,
)
from chalicelib.store.memory_rows import KEPT, PRICED_KEPT
from chalicelib.store.operations import CLOCKS
from chalicelib.store.tables import ENDED, OperationRow
from infra.emulators.aws_faults import lost_answer
from tests.unit.store.support import START, RequestCounter, StoreFixture, all_at_once

replace = msgspec.structs.replace
ENDS = (OperationState.SUCCEEDED, OperationState.FAILED, OperationState.ABANDONED)


def claimed(bench: StoreFixture, name: str = "a", owner: str = "act-1") -> Operation:
    """A new operation claimed by an executor."""
    bench.planned(bench.operation(name))
    return bench.store.operations.claim(bench.cluster, f"grow-{name}", owner, 30)


def test_operation_claim_goes_to_exactly_one_of_eight_executors(bench: StoreFixture) -> None:
    bench.planned(bench.operation("a"))
    calls = [
        lambda n=n: bench.store.operations.claim(bench.cluster, "grow-a", f"act-{n}", 30)
        for n in range(8)
    ]
    results = all_at_once(calls)
    winners = [result for result in results if isinstance(result, Operation)]
    losers = [result for result in results if isinstance(result, OperationClaimed)]
    assert (len(winners), len(losers)) == (1, 7)
    assert {loser.holder for loser in losers} == {winners[0].status.claimed_by}
    assert {loser.until for loser in losers} == {bench.clock() + 30}
    assert bench.store.operations.get(bench.cluster, "grow-a") == winners[0]


def test_operation_claim_is_a_transition_of_its_own(bench: StoreFixture) -> None:
    bench.clock.advance(5)
    operation = claimed(bench)
    assert operation == bench.operation("a").with_status(
        state=OperationState.RUNNING,
        attempt=1,
        claimed_by="act-1",
        claimed_until=START + 35,
        updated_at=START + 5,
    )


def test_operation_that_waits_cannot_be_claimed_before_it_is_due(bench: StoreFixture) -> None:
    bench.planned(bench.operation("a", due_at=START + 10))
    with pytest.raises(OperationNotDue) as early:
        bench.store.operations.claim(bench.cluster, "grow-a", "act-1", 30)
    assert early.value.due_at == START + 10
    bench.clock.advance(10)
    assert (
        bench.store.operations.claim(bench.cluster, "grow-a", "act-1", 30).status.state
        is OperationState.RUNNING
    )


def test_operation_claim_of_a_dead_executor_expires(bench: StoreFixture) -> None:
    claimed(bench, owner="dead")
    bench.clock.advance(30 + CLOCKS)
    with pytest.raises(OperationClaimed) as taken:
        bench.store.operations.claim(bench.cluster, "grow-a", "next", 30)
    assert (taken.value.holder, taken.value.until) == ("dead", START + 30)
    assert str(taken.value) == f"claimed by dead until {START + 30:.3f}"
    bench.clock.advance(0.25)
    again = bench.store.operations.claim(bench.cluster, "grow-a", "next", 30)
    assert (again.status.claimed_by, again.status.attempt, again.status.data) == (
        "next",
        2,
        {BROKEN: "2"},
    )


def test_operation_is_taken_over_at_once_by_who_knows_that_the_claim_is_over(
    bench: StoreFixture,
) -> None:
    dead = claimed(bench, owner="dead")
    bench.clock.advance(5)
    again = bench.store.operations.take_over(dead, "next", 30)
    assert (again.status.claimed_by, again.status.claimed_until) == ("next", START + 35)
    assert (again.status.attempt, again.status.data) == (2, {BROKEN: "2"})
    assert bench.store.operations.take_over(dead, "next", 30) == again  # its answer was lost
    with pytest.raises(OperationClaimed):
        bench.store.operations.take_over(dead, "third", 30)
    assert bench.store.operations.extend(again, 30) == START + 35


def test_operation_whose_claim_was_extended_is_not_taken_over(bench: StoreFixture) -> None:
    alive = claimed(bench, owner="slow")
    bench.clock.advance(20)
    assert bench.store.operations.extend(alive, 30) == START + 50
    with pytest.raises(OperationClaimed) as taken:
        bench.store.operations.take_over(alive, "next", 30)
    assert (taken.value.holder, taken.value.until) == ("slow", START + 50)
    ended = bench.store.operations.advance(
        alive, alive.with_status(state=OperationState.SUCCEEDED), "slow"
    )
    with pytest.raises(OperationFinished):
        bench.store.operations.take_over(alive, "next", 30)
    with pytest.raises(OperationFinished):
        bench.store.operations.extend(ended, 30)


def test_operation_claim_that_was_taken_over_cannot_be_extended(bench: StoreFixture) -> None:
    frozen = claimed(bench, owner="frozen")
    bench.store.operations.take_over(frozen, "next", 30)
    with pytest.raises(OperationClaimed) as taken:
        bench.store.operations.extend(frozen, 30)
    assert taken.value.holder == "next"


def test_operation_executor_with_an_expired_claim_writes_nothing(bench: StoreFixture) -> None:
    before = claimed(bench, owner="dead")
    bench.clock.advance(31 + CLOCKS)
    now_held = bench.store.operations.claim(bench.cluster, "grow-a", "next", 30)
    with pytest.raises(OperationClaimed):
        bench.store.operations.advance(
            before, before.with_status(state=OperationState.SUCCEEDED), "dead"
        )
    assert bench.store.operations.get(bench.cluster, "grow-a") == now_held


def test_operation_attempt_is_not_confused_with_a_later_one_of_the_same_name(
    bench: StoreFixture,
) -> None:
    first = claimed(bench, owner="same")
    bench.clock.advance(31 + CLOCKS)
    second = bench.store.operations.claim(bench.cluster, "grow-a", "same", 30)
    with pytest.raises(StaleWrite):
        bench.store.operations.advance(
            first, first.with_status(state=OperationState.FAILED), "same"
        )
    assert bench.store.operations.get(bench.cluster, "grow-a") == second


def test_operation_waits_and_is_claimed_again_until_it_is_done(bench: StoreFixture) -> None:
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
    assert (second.status.step, second.status.data, second.status.attempt) == (
        "confirm",
        {"request": "r-1"},
        2,
    )
    ended = bench.store.operations.advance(
        second, second.with_status(state=OperationState.SUCCEEDED, outcome="2 nodes"), "act-2"
    )
    assert bench.store.operations.get(bench.cluster, "grow-a") == ended
    assert ended.status.outcome == "2 nodes"


@pytest.mark.parametrize("end", ENDS)
def test_operation_that_ended_is_not_listed_but_can_be_read(
    bench: StoreFixture, end: OperationState
) -> None:
    operation = claimed(bench)
    ended = bench.store.operations.advance(
        operation, operation.with_status(state=end, error_class="Unknown"), "act-1"
    )
    assert bench.store.operations.list_open(bench.cluster) == ()
    assert bench.load().operations == ()
    assert bench.fresh().operations.get(bench.cluster, "grow-a") == ended
    with pytest.raises(OperationFinished) as over:
        bench.store.operations.claim(bench.cluster, "grow-a", "act-2", 30)
    assert over.value.state == end.value


def test_operation_that_ended_expires_eventually(bench: StoreFixture) -> None:
    operation = claimed(bench)
    bench.store.operations.advance(
        operation, operation.with_status(state=OperationState.FAILED), "act-1"
    )
    (row,) = bench.store.table.query(bench.cluster, ENDED)
    assert row["expires_at"] == {"N": str(int(START + KEPT))}


ILLEGAL = [
    (before, after)
    for before in OperationState
    for after in OperationState
    if before is not OperationState.RUNNING
    or after in (OperationState.PLANNED, OperationState.RUNNING)
]


@pytest.mark.parametrize(("before", "after"), ILLEGAL)
def test_operation_step_can_make_no_other_transition(
    bench: StoreFixture, before: OperationState, after: OperationState
) -> None:
    operation = bench.operation("a", state=before, claimed_by="act-1", attempt=1)
    with pytest.raises(IllegalTransition):
        bench.store.operations.advance(operation, operation.with_status(state=after), "act-1")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("after", [OperationState.WAITING, *ENDS])
def test_operation_final_states_have_no_transitions(
    bench: StoreFixture, end: OperationState, after: OperationState
) -> None:
    """This also applies to an executor that still considers the operation claimed."""
    operation = claimed(bench)
    ended = bench.store.operations.advance(
        operation, operation.with_status(state=end, outcome="first"), "act-1"
    )
    with pytest.raises(OperationFinished):
        bench.store.operations.advance(operation, operation.with_status(state=after), "act-1")
    assert bench.store.operations.get(bench.cluster, "grow-a") == ended


@pytest.mark.parametrize("after", [OperationState.WAITING, *ENDS])
@pytest.mark.parametrize("in_the_table", [OperationState.PLANNED, OperationState.WAITING])
def test_operation_that_is_not_claimed_cannot_be_advanced(
    bench: StoreFixture, in_the_table: OperationState, after: OperationState
) -> None:
    operation = bench.operation("a", state=in_the_table, attempt=1)
    bench.planned(operation)
    believed = operation.with_status(state=OperationState.RUNNING, claimed_by="act-1")
    with pytest.raises(StaleWrite):
        bench.store.operations.advance(
            believed, believed.with_status(state=after, step="next"), "act-1"
        )
    assert bench.store.operations.get(bench.cluster, "grow-a") == operation


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"to_size": 9}},
        {"spec": {"group": "other"}},
        {"spec": {"id": "grow-b"}},
        {"status": {"attempt": 7}},
    ],
)
def test_operation_step_cannot_change_the_operations_intent(
    bench: StoreFixture, change: dict[str, dict[str, object]]
) -> None:
    operation = claimed(bench)
    changed = operation.with_status(
        state=OperationState.WAITING, **change.get("status", {})
    ).with_spec(**change.get("spec", {}))
    with pytest.raises(IllegalTransition):
        bench.store.operations.advance(operation, changed, "act-1")


def test_operation_claimed_by_another_executor_cannot_be_advanced(bench: StoreFixture) -> None:
    operation = claimed(bench)
    with pytest.raises(IllegalTransition):
        bench.store.operations.advance(
            operation, operation.with_status(state=OperationState.WAITING), "act-2"
        )


def test_operation_is_never_planned_twice(bench: StoreFixture) -> None:
    running = claimed(bench)
    bench.planned(bench.operation("a"), bench.operation("b"))
    assert bench.store.operations.get(bench.cluster, "grow-a") == running
    bench.store.operations.advance(
        running, running.with_status(state=OperationState.SUCCEEDED), "act-1"
    )
    bench.planned(bench.operation("a"), bench.operation("b"))
    assert [operation.spec.id for operation in bench.store.operations.list_open(bench.cluster)] == [
        "grow-b"
    ]


def test_operation_that_is_unknown_cannot_be_claimed(bench: StoreFixture) -> None:
    assert bench.store.operations.get(bench.cluster, "grow-x") is None
    with pytest.raises(OperationFinished):
        bench.store.operations.claim(bench.cluster, "grow-x", "act-1", 30)
    assert not bench.store.operations.mark_sent(bench.cluster, "grow-x", START)


def test_operation_step_keeps_the_record_that_a_message_was_sent(bench: StoreFixture) -> None:
    """The pass records the sent message while the executor is already working."""
    operation = claimed(bench)
    assert bench.store.operations.mark_sent(bench.cluster, "grow-a", START + 1)
    stored = bench.store.operations.advance(
        operation, operation.with_status(state=OperationState.WAITING), "act-1"
    )
    assert stored.status.sent_at == 0.0
    (listed,) = bench.store.operations.list_open(bench.cluster)
    assert listed.status.sent_at == START + 1


def test_operation_list_of_open_ones_does_not_read_ended_ones(bench: StoreFixture) -> None:
    for name in "abc":
        operation = claimed(bench, name)
        bench.store.operations.advance(
            operation, operation.with_status(state=OperationState.SUCCEEDED), "act-1"
        )
    bench.planned(bench.operation("d"))
    with RequestCounter(bench) as counter:
        assert [each.spec.id for each in bench.store.operations.list_open(bench.cluster)] == [
            "grow-d"
        ]
    assert [name for name, _ in counter.requests].count("Query") == 1
    assert counter.items_read == 3  # the operation, and the save marker before and after


@pytest.mark.parametrize("after", [OperationState.WAITING, OperationState.SUCCEEDED])
def test_operation_step_with_a_lost_answer_is_recognized_when_repeated(
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


def test_operation_claim_with_a_lost_answer_is_found_again_by_its_owner(
    bench: StoreFixture,
) -> None:
    first = claimed(bench)
    assert bench.store.operations.claim(bench.cluster, "grow-a", "act-1", 30) == first


def test_ended_operations_are_listed_oldest_first_without_unreadable_rows(
    bench: StoreFixture,
) -> None:
    for created_at, name in enumerate(("b", "a", "bad"), start=-2):
        bench.planned(bench.operation(name, created_at=START - created_at))
        running = bench.store.operations.claim(bench.cluster, f"grow-{name}", "act-1", 30)
        bench.store.operations.advance(
            running, running.with_status(state=OperationState.SUCCEEDED), "act-1"
        )
        bench.clock.advance(1)
    claimed(bench, "open")
    table = bench.store.table
    table.write(table.update(bench.cluster, f"{ENDED}grow-bad", [OperationRow.text.set("{")]))
    assert [operation.spec.id for operation in bench.store.operations.ended(bench.cluster)] == [
        "grow-a",
        "grow-b",
    ]


def test_ended_operation_with_a_price_is_stored_for_a_month_of_savings(bench: StoreFixture) -> None:
    operation = bench.operation("a").with_spec(price=100_000, currency="EUR")
    bench.planned(operation)
    running = bench.store.operations.claim(bench.cluster, "grow-a", "act-1", 30)
    bench.store.operations.advance(
        running, running.with_status(state=OperationState.FAILED), "act-1"
    )
    row = bench.store.table.find(bench.cluster, f"{ENDED}grow-a")
    assert row is not None
    assert row["expires_at"] == {"N": str(int(START + PRICED_KEPT))}
    assert PRICED_KEPT > KEPT
