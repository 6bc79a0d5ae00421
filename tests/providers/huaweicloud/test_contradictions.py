"""Contradictory numbers of one pool: nothing is bought and nothing is removed on their basis."""

from __future__ import annotations

import pytest

from chalicelib.model.outcome import Failed, InProgress
from chalicelib.providers.kit.errors import Conflict
from tests.cases import each_row
from tests.providers.huaweicloud.emulated import POOL, A, B, EmulatedCce, grow, shrink, uid


def contradictory(
    desired: int | None, first: tuple[int, int], second: tuple[int, int]
) -> EmulatedCce:
    """A pool of three and two nodes, of which CCE says these sizes. first,
    second: desired and existing."""
    cce = EmulatedCce(3, 2, most=20)
    for group, (target, existing) in ((A, first), (B, second)):
        cce.status(group, desiredNodeCount=target, existingNodeCount={"total": existing})
    cce.answers[POOL] |= {
        "spec.initialNodeCount": desired,
        "status.currentNode": first[1] + second[1],
    }
    return cce


@each_row(
    ("desired", "first", "second", "why"),
    [
        (4, (3, 3), (3, 3), "add up to 6"),  # the pool already shows a concurrent removal
        (0, (3, 3), (2, 2), "add up to 5"),
        (9, (3, 3), (2, 2), "add up to 5"),
        (None, (3, 5), (2, 2), "more than"),
        (5, (3, 3), (2, 9), "more than"),
        (5, (3, 7), (2, 0), "more than"),
    ],
)
def test_CCE_DANGER_1_CCE_18_contradictory_numbers_cause_no_request(
    desired: int | None, first: tuple[int, int], second: tuple[int, int], why: str
) -> None:
    cce = contradictory(desired, first, second)
    operation, waits = grow(cce, 3, 4), 0
    while isinstance(outcome := cce.step(operation), InProgress):
        operation = operation.with_status(step=outcome.step, data=outcome.data)
        waits += 1
        assert waits < 20
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, why in outcome.message, waits, cce.changes()) == (
        "Unknown",
        True,
        12,
        [],
    )


def test_CCE_18_pool_ahead_of_its_groups_is_awaited() -> None:
    cce = contradictory(7, (3, 3), (2, 2))
    operation = cce.next(grow(cce, 3, 4))
    cce.answers.clear()  # the groups were right
    operation = cce.next(operation)
    assert (operation.status.data["base"], operation.status.data["total"], cce.changes()) == (
        "5",
        "6",
        [],
    )


def test_CCE_19_contradictory_numbers_cause_no_lower_size() -> None:
    """6 - 1 would exceed the desired 4 by one."""
    cce = contradictory(4, (3, 1), (3, 1))
    for number in (1, 2, 3):
        cce.cloud.vanish(uid(number))
    with pytest.raises(Conflict):
        cce.step(shrink(cce, 3, 2))
    assert cce.changes() == []


def test_huawei_pool_with_consistent_numbers_again_is_scaled_up() -> None:
    cce = contradictory(4, (3, 3), (3, 3))
    operation = cce.next(grow(cce, 3, 5))
    cce.answers.clear()
    operation = cce.next(cce.next(operation))
    assert operation.status.data["sent"] == "yes"
    assert cce.changes() == ["scale 7 default"]
