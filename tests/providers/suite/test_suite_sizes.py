"""Tests of the rule by which a size is changed: read; done if it is that size; a conflict at
another; refused; written.

Each row is one call against a group of `size` running machines. A row that is not a change of the
group must send no write, whatever the vendor is: that is what makes the call safe to repeat after
a crash or a lost answer.
"""

from __future__ import annotations

import pytest

from chalicelib.model.operation import OperationKind
from tests.providers.suite.operations import OperationDriver, class_of
from tests.providers.suite.provider_fixture import Misfortune

#: Title -> size of the group, from_size, to_size, possible answers. The group's maximum is 6.
SCALE_UPS_WITHOUT_WRITE: dict[str, tuple[int, int, int, set[str]]] = {
    "already that size": (3, 1, 3, {"Done", "Pending"}),
    "already that size, and the maximum": (6, 4, 6, {"Done", "Pending"}),
    "smaller than planned": (1, 3, 5, {"Conflict"}),
    "between the planned sizes": (3, 2, 5, {"Conflict"}),
    "larger than requested": (5, 2, 4, {"Conflict"}),
    "no increase": (3, 3, 3, {"InvalidRequest"}),
    "a decrease": (3, 3, 2, {"InvalidRequest"}),
    "above the maximum": (3, 3, 7, {"InvalidRequest"}),
    "above the maximum, and smaller than planned": (1, 3, 7, {"Conflict", "InvalidRequest"}),
}
DECREASES_WITHOUT_WRITE: dict[str, tuple[int, int, int, set[str]]] = {
    "has that size": (3, 5, 3, {"Done"}),
    "already smaller": (2, 5, 3, {"Done"}),
    "between the planned sizes": (4, 5, 3, {"Conflict", "InvalidRequest"}),
    "larger than planned": (5, 4, 3, {"Conflict", "InvalidRequest"}),
    "machines exist": (4, 4, 3, {"InvalidRequest"}),
    "machines exist, to the minimum": (4, 4, 1, {"InvalidRequest"}),
    "below zero": (2, 2, -1, {"InvalidRequest"}),
}

#: Where a contract differs: (provider, row) -> its answers.
DIFFERENT_ANSWERS: dict[tuple[str, str], set[str]] = {
    # Servers bear the operation that has bought them: others are not its result.
    ("cherryservers", "already that size"): {"Conflict"},
    ("cherryservers", "already that size, and the maximum"): {"Conflict"},
    # The size is a field that another party has written: the reason is recorded.
    ("clusterapi", "already smaller"): {"Conflict"},
}


def _answers(yard: OperationDriver, row: str, answers: set[str]) -> set[str]:
    if yard.bench.name == "memory" and "InvalidRequest" in answers:
        pytest.skip("the suite's own double checks no input of a plan")
    return DIFFERENT_ANSWERS.get((yard.bench.name, row), answers)


@pytest.mark.parametrize("row", SCALE_UPS_WITHOUT_WRITE)
def test_provider_scale_up_that_changes_nothing_sends_no_write(
    yard: OperationDriver, row: str
) -> None:
    size, from_size, to_size, possible = SCALE_UPS_WITHOUT_WRITE[row]
    answers = _answers(yard, row, possible)
    group = yard.bench.add_group("g", size=size, most=6)
    order = yard.growth(group, to_size, start=from_size)
    yard.bench.calls()
    answer = yard.ask(lambda provider: provider.scale_up(order))
    writes = yard.bench.writes()
    assert class_of(answer) in answers, answer
    assert not writes
    assert (yard.bench.target(group), len(yard.finish(group))) == (size, size)


@pytest.mark.parametrize("row", DECREASES_WITHOUT_WRITE)
def test_provider_decrease_that_removes_or_changes_nothing_sends_no_write(
    yard: OperationDriver, row: str
) -> None:
    size, from_size, to_size, possible = DECREASES_WITHOUT_WRITE[row]
    answers = _answers(yard, row, possible)
    group = yard.bench.add_group("g", size=size, most=6)
    before = yard.bench.machines(group)
    order = yard.shrinkage(group, to_size).with_spec(from_size=from_size)
    yard.bench.calls()
    answer = yard.ask(lambda provider: provider.decrease_target(order))
    writes = yard.bench.writes()
    assert class_of(answer) in answers, answer
    assert not writes
    assert (yard.bench.target(group), yard.finish(group)) == (size, before)


@pytest.mark.parametrize(
    ("discarded", "from_size", "answers", "target"),
    [
        (3, 5, {"Done"}, 2),
        (1, 5, {"Done"}, 4),
        (2, 4, {"Conflict"}, 5),  # somebody has increased the size since
    ],
    ids=["all", "one", "the size was increased"],
)
def test_provider_discarded_placeholders_lower_the_size_once(
    yard: OperationDriver, discarded: int, from_size: int, answers: set[str], target: int
) -> None:
    """Machines that were requested and never made are given up without a machine that runs."""
    yard.needs(Misfortune.OUT_OF_STOCK.value)
    group = yard.bench.add_group("g", size=2)
    before = yard.bench.machines(group)
    yard.bench.misfortune(group, Misfortune.OUT_OF_STOCK, times=50)
    yard.run(yard.growth(group, 5))
    yard.bench.settle(120.0)
    missing = [
        instance for instance in yard.group(group).instances if "placeholder-" in instance.handle
    ]
    if not missing:
        pytest.skip("this vendor lists its failed machines, or leaves no size or no reason")
    assert (yard.bench.target(group), len(missing)) == (5, 3)
    order = yard.removal(
        group, *missing[:discarded], kind=OperationKind.DELETE_INSTANCES, op="discard-1"
    )
    order = order.with_spec(from_size=from_size, to_size=from_size - discarded)
    for _ in range(2):
        assert class_of(yard.run(order)) in answers
        assert yard.bench.target(group) == target
    assert yard.finish(group) == before
