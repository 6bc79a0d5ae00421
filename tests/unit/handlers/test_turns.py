"""Turns of a pool: who sets its total goes one after the other, by age (huaweicloud-cce.md B6)."""

from __future__ import annotations

from itertools import permutations, product
from types import SimpleNamespace
from typing import Any

import pytest

from chalicelib.model.operation import Kind, Operation, State
from chalicelib.model.outcome import Pending
from chalicelib.model.policy import Options
from chalicelib.operations.ordering import AFTER, SOON, waits
from tests.operations import new_operation

NOW = 1000.0


def operation(
    id: str,  # noqa: A002
    kind: Kind,
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


def ask(asked: Operation, *others: Operation, now: float = NOW) -> Pending | None:
    listed = SimpleNamespace(list_open=lambda cluster: (asked, *others))
    rt: Any = SimpleNamespace(clock=lambda: now, store=SimpleNamespace(operations=listed))
    return waits(asked, Options(), rt)


@pytest.mark.parametrize("attempt", [0, 1])
@pytest.mark.parametrize(
    ("kind", "step"), [(Kind.GROW, ""), (Kind.GROW, "request"), (Kind.SHRINK, "lower"), (Kind.DISCARD, "delete")]
)
def test_CCE_18_a_growth_waits_for_an_older_change_of_its_pools_total(kind: Kind, step: str, attempt: int) -> None:
    older = operation("x", kind, "p/b", created=NOW - 1, step=step, attempt=attempt)
    found = ask(operation("g", Kind.GROW, step="request"), older)
    assert found is not None
    assert (found.after, found.step) == (SOON, "request")


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        (Kind.GROW, "poll"),
        (Kind.SHRINK, "poll"),
        (Kind.DISCARD, "poll"),
        (Kind.DISCARD, "release"),
        (Kind.REMOVE, "delete"),
    ],
)
def test_a_growth_waits_for_nothing_that_has_been_taken_up(kind: Kind, step: str) -> None:
    assert ask(operation("g", Kind.GROW), operation("x", kind, "p/b", created=NOW - 1, step=step)) is None


@pytest.mark.parametrize(("kind", "step"), [(Kind.GROW, "request"), (Kind.SHRINK, "lower"), (Kind.DISCARD, "delete")])
def test_CCE_18_a_total_is_not_set_in_the_moments_in_which_a_removal_of_the_pool_deletes(kind: Kind, step: str) -> None:
    """5 is read, one is deleted, 5 + 1 is asked for: two are bought."""
    mine = operation("g", kind, "p/a", step=step)
    removal = operation("r", Kind.REMOVE, "p/b", created=NOW + 1, step="delete")
    deletes = removal.with_status(state=State.RUNNING, claimed_until=NOW + 90.0)
    found = ask(mine, deletes)
    assert found is not None
    assert (found.after, found.step, found.data) == (SOON, step, {})
    only_waits = removal.with_status(state=State.WAITING, claimed_until=NOW + 90.0)
    died = deletes.with_status(claimed_until=NOW)
    drains = deletes.with_status(step="drain")
    elsewhere = deletes.with_spec(pool="q")
    assert [ask(mine, each) for each in (only_waits, died, drains, elsewhere)] == [None] * 4


def test_of_one_plan_the_ids_decide() -> None:
    first, second = operation("grow-1", Kind.GROW, "p/a"), operation("grow-2", Kind.GROW, "p/b")
    assert ask(first, second) is None
    assert ask(second, first) is not None


def test_another_pool_and_no_pool_at_all_hold_nothing_up() -> None:
    older = operation("x", Kind.GROW, "q/a", pool="q", created=NOW - 1)
    assert ask(operation("g", Kind.GROW), older) is None
    alone = operation("x", Kind.GROW, "b", pool="", created=NOW - 1)
    assert ask(operation("g", Kind.GROW, "a", pool=""), alone) is None


def test_a_growth_itself_being_polled_waits_for_nobody() -> None:
    assert ask(operation("g", Kind.GROW, step="poll"), operation("x", Kind.GROW, "p/b", created=NOW - 1)) is None


def test_a_removal_lets_a_growth_of_its_pool_be_taken_and_one_of_its_group_be_recorded() -> None:
    removal = operation("r", Kind.REMOVE, step="delete")
    beside = operation("g", Kind.GROW, "p/b", step="request", created=NOW + 1)
    found = ask(removal, beside)
    assert found is not None
    assert found.after == AFTER
    assert ask(removal, operation("g", Kind.GROW, "p/b", step="poll")) is None
    assert ask(removal, operation("g", Kind.GROW, "p/a", step="poll")) is not None
    assert ask(removal, operation("g", Kind.GROW, "p/a", step="", attempt=0)) is None


def test_what_discards_waits_for_a_younger_growth_of_its_own_group_only_once_that_is_polled() -> None:
    discard = operation("d", Kind.DISCARD, created=NOW - 1)
    assert ask(discard, operation("g", Kind.GROW, step="request")) is None
    assert ask(discard, operation("g", Kind.GROW, step="poll")) is not None


def test_past_its_deadline_nobody_waits() -> None:
    older = operation("x", Kind.GROW, "p/b", created=NOW - 1)
    assert ask(operation("g", Kind.GROW), older, now=NOW + 600.0) is None


STEPS = [
    (Kind.GROW, "request"),
    (Kind.GROW, "poll"),
    (Kind.DISCARD, ""),
    (Kind.DISCARD, "poll"),
    (Kind.SHRINK, ""),
    (Kind.SHRINK, "poll"),
    (Kind.REMOVE, "delete"),
    (Kind.REMOVE, "poll"),
]


def test_whatever_is_under_way_in_a_pool_somebody_may_go_on() -> None:
    places = (("p/a", "p/a", "p/a"), ("p/a", "p/b", "p/a"), ("p/a", "p/b", "p/c"))
    for kinds, groups in product(permutations(STEPS, 3), places):
        all_ = [
            operation(f"op-{n}", kind, group, step=step)
            for n, ((kind, step), group) in enumerate(zip(kinds, groups, strict=True))
        ]
        free = [each for each in all_ if ask(each, *(other for other in all_ if other is not each)) is None]
        assert free, kinds
        assert sum(each.spec.kind is not Kind.REMOVE and each.status.step != "poll" for each in free) <= 1, kinds
