"""Ordering of operations: changes of a pool's total size run one after another, oldest first."""

from __future__ import annotations

from itertools import permutations, product
from types import SimpleNamespace
from typing import Any

import msgspec

from chalicelib.model.operation import Operation, OperationKind, OperationSpec, OperationState
from chalicelib.model.outcome import ABANDONED, Failed, InProgress
from chalicelib.operations.ordering import (
    AFTER,
    SOON,
    WAITED,
    blocked_by_other_operation,
    deadline_of,
)
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.timeouts import interruption_deadline, operation_timeout
from tests.cases import each_row
from tests.operations import new_operation

NOW = 1000.0


def operation(
    id: str,  # noqa: A002
    kind: OperationKind,
    group: str = "p/a",
    *,
    pool: str = "p",
    created: float = NOW,
    step: str = "",
    attempt: int = 1,
) -> Operation:
    return new_operation(
        id,
        "ours",
        "huaweicloud",
        group,
        kind,
        "plan",
        created,
        pool=pool,
        step=step,
        attempt=attempt,
        deadline=NOW + 600.0,
    )


def ask(asked: Operation, *others: Operation, now: float = NOW) -> InProgress | Failed | None:
    stored = {other.spec.id: other for other in others}
    listed = SimpleNamespace(
        list_open=lambda cluster: (asked, *(other for other in others if other.is_open)),
        get=lambda cluster, name: stored.get(name),
    )
    rt: Any = SimpleNamespace(clock=lambda: now, store=SimpleNamespace(operations=listed))
    return blocked_by_other_operation(asked, Options(), rt)


@each_row("attempt", [0, 1])
@each_row(
    ("kind", "step"),
    [
        (OperationKind.SCALE_UP, ""),
        (OperationKind.SCALE_UP, "request"),
        (OperationKind.DECREASE_TARGET, "lower"),
        (OperationKind.DELETE_INSTANCES, "delete"),
    ],
)
def test_CCE_18_scale_up_waits_for_an_older_change_of_its_pools_total(
    kind: OperationKind, step: str, attempt: int
) -> None:
    older = operation("x", kind, "p/b", created=NOW - 1, step=step, attempt=attempt)
    found = ask(operation("g", OperationKind.SCALE_UP, step="request"), older)
    assert isinstance(found, InProgress)
    assert (found.after, found.step) == (SOON, "request")


@each_row(
    ("kind", "step"),
    [
        (OperationKind.SCALE_UP, "poll"),
        (OperationKind.DECREASE_TARGET, "poll"),
        (OperationKind.DELETE_INSTANCES, "poll"),
        (OperationKind.DELETE_INSTANCES, "release"),
        (OperationKind.DELETE_NODES, "delete"),
    ],
)
def test_scale_up_waits_for_no_operation_the_vendor_has_accepted(
    kind: OperationKind, step: str
) -> None:
    assert (
        ask(
            operation("g", OperationKind.SCALE_UP),
            operation("x", kind, "p/b", created=NOW - 1, step=step),
        )
        is None
    )


@each_row(
    ("kind", "step"),
    [
        (OperationKind.SCALE_UP, "request"),
        (OperationKind.DECREASE_TARGET, "lower"),
        (OperationKind.DELETE_INSTANCES, "delete"),
    ],
)
def test_CCE_18_pool_total_is_not_set_while_a_removal_of_the_pool_deletes(
    kind: OperationKind, step: str
) -> None:
    """5 is read, one node is deleted, 5 + 1 is requested: two nodes are bought."""
    mine = operation("g", kind, "p/a", step=step)
    removal = operation("r", OperationKind.DELETE_NODES, "p/b", created=NOW + 1, step="delete")
    deletes = removal.with_status(state=OperationState.RUNNING, claimed_until=NOW + 90.0)
    found = ask(mine, deletes)
    assert isinstance(found, InProgress)
    assert (found.after, found.step, found.data) == (SOON, step, {})
    only_waits = removal.with_status(state=OperationState.WAITING, claimed_until=NOW + 90.0)
    died = deletes.with_status(claimed_until=NOW - 30.0)
    drains = deletes.with_status(step="drain")
    elsewhere = deletes.with_spec(pool="q")
    assert [ask(mine, each) for each in (only_waits, died, drains, elsewhere)] == [None] * 4


def test_operations_of_one_plan_are_ordered_by_id() -> None:
    first, second = (
        operation("grow-1", OperationKind.SCALE_UP, "p/a"),
        operation("grow-2", OperationKind.SCALE_UP, "p/b"),
    )
    assert ask(first, second) is None
    assert ask(second, first) is not None


def test_operations_of_other_pools_or_without_a_pool_block_nothing() -> None:
    older = operation("x", OperationKind.SCALE_UP, "q/a", pool="q", created=NOW - 1)
    assert ask(operation("g", OperationKind.SCALE_UP), older) is None
    alone = operation("x", OperationKind.SCALE_UP, "b", pool="", created=NOW - 1)
    assert ask(operation("g", OperationKind.SCALE_UP, "a", pool=""), alone) is None


def test_scale_up_being_polled_waits_for_no_operation() -> None:
    assert (
        ask(
            operation("g", OperationKind.SCALE_UP, step="poll"),
            operation("x", OperationKind.SCALE_UP, "p/b", created=NOW - 1),
        )
        is None
    )


def test_removal_waits_until_concurrent_scale_ups_are_sent_and_recorded() -> None:
    removal = operation("r", OperationKind.DELETE_NODES, step="delete")
    beside = operation("g", OperationKind.SCALE_UP, "p/b", step="request", created=NOW + 1)
    found = ask(removal, beside)
    assert isinstance(found, InProgress)
    assert found.after == AFTER
    assert ask(removal, operation("g", OperationKind.SCALE_UP, "p/b", step="poll")) is None
    assert ask(removal, operation("g", OperationKind.SCALE_UP, "p/a", step="poll")) is not None
    assert ask(removal, operation("g", OperationKind.SCALE_UP, "p/a", step="", attempt=0)) is None


def test_delete_instances_waits_for_a_younger_scale_up_only_once_polled() -> None:
    discard = operation("d", OperationKind.DELETE_INSTANCES, created=NOW - 1)
    assert ask(discard, operation("g", OperationKind.SCALE_UP, step="request")) is None
    assert ask(discard, operation("g", OperationKind.SCALE_UP, step="poll")) is not None


def test_operation_past_its_deadline_waits_for_nothing() -> None:
    older = operation("x", OperationKind.SCALE_UP, "p/b", created=NOW - 1)
    assert ask(operation("g", OperationKind.SCALE_UP), older, now=NOW + 600.0) is None


STEPS = [
    (OperationKind.SCALE_UP, "request"),
    (OperationKind.SCALE_UP, "poll"),
    (OperationKind.DELETE_INSTANCES, ""),
    (OperationKind.DELETE_INSTANCES, "poll"),
    (OperationKind.DECREASE_TARGET, ""),
    (OperationKind.DECREASE_TARGET, "poll"),
    (OperationKind.DELETE_NODES, "delete"),
    (OperationKind.DELETE_NODES, "poll"),
]


def test_some_operation_of_a_pool_may_always_proceed() -> None:
    places = (("p/a", "p/a", "p/a"), ("p/a", "p/b", "p/a"), ("p/a", "p/b", "p/c"))
    for kinds, groups in product(permutations(STEPS, 3), places):
        all_ = [
            operation(f"op-{n}", kind, group, step=step)
            for n, ((kind, step), group) in enumerate(zip(kinds, groups, strict=True))
        ]
        free = [
            each
            for each in all_
            if ask(each, *(other for other in all_ if other is not each)) is None
        ]
        assert free, kinds
        assert (
            sum(
                each.spec.kind is not OperationKind.DELETE_NODES and each.status.step != "poll"
                for each in free
            )
            <= 1
        ), kinds


# -- what an operation is to start after

WAITS, STARTS, CALLED_OFF = "waits", "starts", "called off"
OPEN, DONE = OperationState.WAITING, OperationState.SUCCEEDED


@each_row(
    ("states", "fate"),
    [
        ((), STARTS),
        ((DONE,), STARTS),
        ((DONE, DONE), STARTS),
        ((OperationState.PLANNED,), WAITS),
        ((OperationState.RUNNING,), WAITS),
        ((OPEN,), WAITS),
        ((DONE, OPEN), WAITS),
        ((OPEN, DONE), WAITS),
        ((OperationState.FAILED,), CALLED_OFF),
        ((OperationState.ABANDONED,), CALLED_OFF),
        ((None,), CALLED_OFF),
        ((OPEN, OperationState.FAILED), CALLED_OFF),
        ((None, OPEN), CALLED_OFF),
        ((DONE, None), CALLED_OFF),
    ],
)
@each_row("kind", list(OperationKind))
@each_row("attempt", [1, 4])
def test_operation_starts_after_others_have_succeeded_and_is_called_off_otherwise(
    states: tuple[OperationState | None, ...], fate: str, kind: OperationKind, attempt: int
) -> None:
    names = tuple(f"other-{at}" for at in range(len(states)))
    others = [
        operation(name, OperationKind.SCALE_UP, "h", pool="q").with_status(
            state=state, outcome="none left"
        )
        for name, state in zip(names, states, strict=True)
        if state is not None
    ]
    mine = operation("mine", kind, pool="p", attempt=attempt).with_spec(after=names)
    blocked = ask(mine, *others)
    match fate:
        case "starts":
            assert blocked is None
        case "waits":
            waited = {WAITED: "1"} if attempt == 1 else {}
            awaited = names[states.index(next(state for state in states if state is not DONE))]
            assert blocked == InProgress(AFTER, "", waited, f"until {awaited} has succeeded")
        case _:
            assert isinstance(blocked, Failed)
            assert blocked.error_class == ABANDONED
            at, state = next(
                (at, state) for at, state in enumerate(states) if state not in (OPEN, DONE)
            )
            ended = (
                "is not known" if state is None else f"did not succeed ({state.value}: none left)"
            )
            assert (
                blocked.message == f"called off: it was to start after {names[at]}, which {ended}"
            )


@each_row("step", ["taint", "drain", "delete", "poll", "undo"])
def test_operation_that_has_begun_asks_no_more_what_it_was_to_start_after(step: str) -> None:
    begun = operation("r", OperationKind.DELETE_NODES, step=step).with_spec(after=("unknown",))
    assert ask(begun) is None


def test_operation_that_waits_for_itself_ends_at_its_deadline() -> None:
    mine = operation("r", OperationKind.DELETE_NODES).with_spec(after=("r",))
    assert isinstance(ask(mine, mine, now=NOW + 599.0), InProgress)
    assert ask(mine, mine, now=NOW + 600.0) is None


def test_operation_stored_without_after_waits_for_nothing() -> None:
    stored = msgspec.json.encode(operation("r", OperationKind.DELETE_NODES).spec)
    assert b"after" not in stored
    assert msgspec.json.decode(stored, type=OperationSpec).after == ()


def test_evacuation_waits_for_nobody_but_at_the_vendor() -> None:
    growth = operation("g", OperationKind.SCALE_UP, step="request", created=NOW - 9)
    others = (growth, operation("r", OperationKind.DELETE_NODES, step="poll", created=NOW - 9))
    evacuation = operation("x", OperationKind.DELETE_NODES)
    asked = {
        step: Operation(_interrupted(evacuation.spec), evacuation.with_status(step=step).status)
        for step in EVACUATION
    }
    assert {step: ask(each, *others) is None for step, each in asked.items()} == {
        "": True,
        "look": True,
        "taint": True,
        "evict": True,
        "delete": False,  # a size that is being raised must be recorded first
        "leave": True,
    }


EVACUATION = ("", "look", "taint", "evict", "delete", "leave")


def _interrupted(spec: OperationSpec) -> OperationSpec:
    return msgspec.structs.replace(spec, reason="interrupted", leaves_at=NOW + 60.0)


@each_row(
    ("kind", "reason", "deadline"),
    [
        (OperationKind.DELETE_NODES, "", 600.0),
        (OperationKind.DELETE_NODES, "interrupted", 600.0),
        (OperationKind.RESTART_NODE, "repair", 600.0),
    ],
)
def test_deadline_of_a_drain_is_that_of_its_plan(
    kind: OperationKind, reason: str, deadline: float
) -> None:
    planned = operation("x", kind)
    spec = msgspec.structs.replace(planned.spec, reason=reason, leaves_at=NOW + 60.0)
    assert deadline_of(Operation(spec, planned.status), Options()) == NOW + deadline
    long = Options(drain_priority_config=((0, 600), (1000, 600)))
    further = deadline_of(Operation(spec, planned.status), long) - NOW - deadline
    assert (further > 0.0) == (reason != "interrupted")
    unknown = msgspec.structs.replace(spec, deadline=0.0)
    expected = (
        interruption_deadline(spec)
        if reason == "interrupted"
        else NOW + operation_timeout(kind, Options())
    )
    assert deadline_of(Operation(unknown, planned.status), Options()) == expected
