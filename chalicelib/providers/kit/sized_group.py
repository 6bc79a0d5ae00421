"""What the changes of a group share where the vendor takes its size as an absolute number:
Alibaba, Exoscale and CCE.

    the size is             then
    to_size                 done: an earlier attempt has reached the vendor, or a
                            user has set the same size
    neither of the two      a conflict, nothing is written (`other_size`)
    from_size               refused below what exists or outside the bounds, otherwise written once

A repeated call begins with the same questions, so a crash or a lost answer adds and removes
nothing; the suite asks them of every vendor (tests/providers/suite/test_suite_sizes.py). What
follows a write differs (activities, operations, totals of a pool), so each vendor has its own. The
placeholders among the targets of a removal (removal_guard.py) lower the size.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.kit.errors import InvalidRequest
from chalicelib.providers.kit.removal_guard import Targets

# keys of an operation's data: polls so far, consecutive reads of doubtful numbers
POLLS, LOOKS = "polls", "looks"

# -- sizes


def check_sizes(operation: Operation) -> None:
    """Raise InvalidRequest for a scale-up that does not increase the size, and for a size
    below 0."""
    from_size, to_size = operation.spec.from_size, operation.spec.to_size
    if operation.spec.kind is OperationKind.SCALE_UP and to_size <= from_size:
        raise InvalidRequest(f"from {from_size} to {to_size} does not increase the size")
    if to_size < 0:
        raise InvalidRequest(f"{operation.spec.group}: {to_size} is not a valid size")


def other_size(operation: Operation, title: str, size: int) -> Failed:
    """Return the failure for a size that was changed outside this operation. title:
    the group, for the message."""
    planned = f"from {operation.spec.from_size} to {operation.spec.to_size}"
    return Failed("Conflict", f"{title} has the size {size}, but {planned} was planned")


def changed_size(operation: Operation) -> Succeeded:
    """Return the outcome of an operation whose size is reached."""
    return Succeeded({"from": operation.spec.from_size, "to": operation.spec.to_size})


class Floor(msgspec.Struct, frozen=True):
    """A number below which a size is not lowered. words: with the number: `the 3 machines that
    exist`."""

    size: int
    words: str


class SizedGroup(msgspec.Struct, frozen=True):
    """A group's size, as just read, and how it is lowered. title: the group, for messages.

    floors: counts what exists, which costs calls: it is called only for a size that is lowered.
    lower: sets a lower size, which the caller has compared with the floors; returns what is
    waited for, None if the size is lowered at once; raises ProviderError."""

    title: str
    size: int
    floors: Callable[[], tuple[Floor, ...]]
    lower: Callable[[int], Outcome | None]


def lower_as_planned(operation: Operation, group: SizedGroup) -> Outcome | None:
    """Lower the size from from_size to to_size; return what `group.lower` returns, Failed if the
    size was changed outside this operation. Raises InvalidRequest for a size below a floor, and
    ProviderError."""
    if group.size != operation.spec.from_size:
        return other_size(operation, group.title, group.size)
    to_size = operation.spec.to_size
    for floor in group.floors():
        if to_size < floor.size:
            raise InvalidRequest(f"{group.title}: {to_size} is below {floor.words}")
    return group.lower(to_size)


def lower_by_placeholders(
    operation: Operation, targets: Targets, group: SizedGroup
) -> Outcome | None:
    """Lower the size by the placeholders among the targets, to a floor at most; return what
    `group.lower` returns, None if there is nothing left to lower, Failed if the size has increased.
    Raises ProviderError.

    The new size is computed from the planned size, so the call may be repeated. If the size
    is lower already, this operation or a concurrent removal has lowered it, and the next
    pass sees the remainder."""
    if not targets.placeholders:
        return None
    planned = operation.spec.from_size
    if group.size > planned:
        return other_size(operation, group.title, group.size)
    return lower_towards(planned - len(targets.placeholders), group)


def lower_towards(size: int, group: SizedGroup) -> Outcome | None:
    """Lower the size to this one, or to the highest floor above it; return what `group.lower`
    returns, None if there is nothing left to lower. Raises ProviderError."""
    least = max(floor.size for floor in group.floors())
    lowered = max(size, least)
    return group.lower(lowered) if lowered < group.size else None


# -- polls. They are counted in the operation's data, because clocks of
# different functions may differ.

_MOST_POLLS = 1000  # of which the sum is taken: more than any operation makes


def counted(operation: Operation, key: str) -> int:
    """Return a number in the operation's data, of at most seven digits; 0 if it cannot be read."""
    text = operation.status.data.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else 0


class Polls(msgspec.Struct, frozen=True):
    """When a change is looked at again: after `first` seconds, then `growth` times as long each
    time, up to `longest`. step: the step of the InProgress."""

    step: str
    first: float
    growth: float
    longest: float

    def begin(self, data: dict[str, str], note: str = "") -> InProgress:
        """Return the Pending outcome of a request that the vendor has just accepted."""
        return InProgress(self.first, self.step, data, note)

    def pause(self, operation: Operation) -> float:
        """Return seconds until the next poll."""
        return self._pause(counted(operation, POLLS))

    def have_taken(self, operation: Operation, seconds: float) -> bool:
        """Whether the polls so far took this many seconds. From then on the planner
        waits, with its own timer."""
        polls = min(counted(operation, POLLS), _MOST_POLLS)
        return sum(self._pause(number) for number in range(polls)) >= seconds

    def later(
        self, operation: Operation, note: str = "", *, data: dict[str, str] | None = None
    ) -> InProgress:
        """Return Pending until the next poll; the caller limits the total time. data:
        added to the operation's."""
        polls = {POLLS: str(counted(operation, POLLS) + 1)}
        return InProgress(
            self.pause(operation),
            self.step,
            {**operation.status.data, **polls, **(data or {})},
            note,
        )

    def _pause(self, number: int) -> float:
        return round(min(self.longest, self.first * self.growth ** min(number, 20)), 1)


def look_again(operation: Operation, progress: InProgress, enough: int) -> InProgress | None:
    """Return the progress with one more look at doubtful numbers counted in its data; None
    if that look is the last of so many, after which the numbers are accepted."""
    looks = counted(operation, LOOKS) + 1
    if looks >= enough:
        return None
    return msgspec.structs.replace(progress, data={**progress.data, LOOKS: str(looks)})
