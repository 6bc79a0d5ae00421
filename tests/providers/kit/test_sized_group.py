"""What the changes of groups with an absolute size share: sizes and polls."""

from __future__ import annotations

import pytest

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress
from chalicelib.providers.kit.errors import InvalidRequest
from chalicelib.providers.kit.removal_guard import Targets
from chalicelib.providers.kit.sized_group import (
    Floor,
    Polls,
    SizedGroup,
    check_sizes,
    counted,
    look_again,
    lower_as_planned,
    lower_by_placeholders,
)
from tests.cases import each_row
from tests.operations import new_operation

POLLS = Polls("look", first=5.0, growth=2.0, longest=30.0)


def change(kind: OperationKind, from_size: int = 3, to_size: int = 5) -> Operation:
    return new_operation("change-1", "shop", "vendor", "g", kind, "plan", 0.0, from_size, to_size)


@each_row(
    ("kind", "from_size", "to_size", "problem"),
    [
        (OperationKind.SCALE_UP, 3, 4, ""),
        (OperationKind.SCALE_UP, 3, 3, "from 3 to 3 does not increase the size"),
        (OperationKind.SCALE_UP, 3, 2, "from 3 to 2 does not increase the size"),
        (OperationKind.DECREASE_TARGET, 3, 0, ""),
        (OperationKind.DECREASE_TARGET, 3, -1, "g: -1 is not a valid size"),
    ],
)
def test_sizes_of_a_change_are_checked(
    kind: OperationKind, from_size: int, to_size: int, problem: str
) -> None:
    if not problem:
        check_sizes(change(kind, from_size, to_size))
        return
    with pytest.raises(InvalidRequest, match=problem):
        check_sizes(change(kind, from_size, to_size))


class LoweredGroup:
    """A group whose size is lowered here. least: a number of machines that exist."""

    def __init__(self, size: int, least: int) -> None:
        self.counts, self.sizes = 0, list[int]()
        self._size, self._least = size, least

    def group(self) -> SizedGroup:
        return SizedGroup("pool g", self._size, self._floors, self._lower)

    def _floors(self) -> tuple[Floor, ...]:
        self.counts += 1
        return Floor(self._least, f"the {self._least} that exist"), Floor(1, "1, as always")

    def _lower(self, size: int) -> InProgress:
        self.sizes.append(size)
        return POLLS.begin({"size": str(size)})


@each_row(
    ("placeholders", "size", "least", "lower"),
    [
        (2, 5, 0, 3),
        (4, 5, 0, 1),
        (5, 5, 0, 1),  # not below any floor
        (2, 5, 4, 4),  # not below what exists
        (2, 5, 5, None),
        (2, 4, 0, 3),  # a concurrent removal has lowered it by one
        (2, 3, 0, None),  # it is lower already
        (0, 5, 0, None),
    ],
)
def test_placeholders_lower_the_planned_size(
    placeholders: int, size: int, least: int, lower: int | None
) -> None:
    targets = Targets((), tuple(f"g/{number}" for number in range(placeholders)))
    vendor = LoweredGroup(size, least)
    outcome = lower_by_placeholders(
        change(OperationKind.DELETE_INSTANCES, 5, 3), targets, vendor.group()
    )
    assert outcome == (None if lower is None else POLLS.begin({"size": str(lower)}))
    assert vendor.sizes == ([] if lower is None else [lower])
    assert vendor.counts == (1 if placeholders else 0)


def test_size_that_was_increased_is_not_lowered() -> None:
    vendor = LoweredGroup(6, 0)
    outcome = lower_by_placeholders(
        change(OperationKind.DELETE_INSTANCES, 5, 3), Targets((), ("g/1",)), vendor.group()
    )
    assert outcome == Failed("Conflict", "pool g has the size 6, but from 5 to 3 was planned")
    assert (vendor.counts, vendor.sizes) == (0, [])


@each_row("size", [4, 6])
def test_planned_decrease_of_another_size_is_a_conflict(size: int) -> None:
    vendor = LoweredGroup(size, 0)
    outcome = lower_as_planned(change(OperationKind.DECREASE_TARGET, 5, 3), vendor.group())
    assert outcome == Failed("Conflict", f"pool g has the size {size}, but from 5 to 3 was planned")
    assert (vendor.counts, vendor.sizes) == (0, [])


@each_row(
    ("to_size", "least", "problem"),
    [
        (3, 3, ""),
        (3, 4, "pool g: 3 is below the 4 that exist"),
        (1, 0, ""),
        (0, 0, "pool g: 0 is below 1, as always"),
    ],
)
def test_planned_decrease_stops_at_each_floor(to_size: int, least: int, problem: str) -> None:
    vendor = LoweredGroup(5, least)
    decrease = change(OperationKind.DECREASE_TARGET, 5, to_size)
    if not problem:
        assert lower_as_planned(decrease, vendor.group()) == POLLS.begin({"size": str(to_size)})
        assert vendor.sizes == [to_size]
        return
    with pytest.raises(InvalidRequest, match=problem):
        lower_as_planned(decrease, vendor.group())
    assert vendor.sizes == []


@each_row(
    ("text", "number"),
    [
        ("", 0),
        ("7", 7),
        ("9999999", 9_999_999),
        ("10000000", 0),
        ("-1", 0),
        ("1.5", 0),
        ("²", 0),
        ("٣", 0),
    ],
)
def test_number_in_the_data_of_an_operation(text: str, number: int) -> None:
    assert (
        counted(change(OperationKind.SCALE_UP).with_status(data={"polls": text}), "polls") == number
    )


def test_pause_between_polls_grows_up_to_the_longest() -> None:
    operation, pauses = change(OperationKind.SCALE_UP).with_status(data={"id": "a"}), []
    for _ in range(5):
        pending = POLLS.later(operation, "note", data={"more": "b"})
        pauses.append(pending.after)
        assert (pending.step, pending.note, pending.data["id"], pending.data["more"]) == (
            "look",
            "note",
            "a",
            "b",
        )
        operation = operation.with_status(data=pending.data)
    assert pauses == [5.0, 10.0, 20.0, 30.0, 30.0]
    assert operation.status.data["polls"] == "5"
    assert POLLS.have_taken(operation, 95.0)
    assert not POLLS.have_taken(operation, 95.1)
    begun = POLLS.begin({"id": "a"}, "sent")
    assert (begun.after, begun.step, begun.data, begun.note) == (5.0, "look", {"id": "a"}, "sent")


def test_absurd_number_of_polls_is_no_long_sum() -> None:
    operation = change(OperationKind.SCALE_UP).with_status(data={"polls": "9999999"})
    assert POLLS.have_taken(operation, 600.0)
    assert POLLS.pause(operation) == 30.0


def test_doubtful_numbers_are_looked_at_a_number_of_times() -> None:
    operation, notes = change(OperationKind.DELETE_NODES), list[str]()
    while (pending := look_again(operation, POLLS.later(operation, "doubtful"), 3)) is not None:
        notes.append(pending.note)
        operation = operation.with_status(data=pending.data)
    assert notes == ["doubtful", "doubtful"]
    assert operation.status.data == {"polls": "2", "looks": "2"}
