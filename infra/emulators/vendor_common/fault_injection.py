"""Faults between a client and an emulated vendor, injected one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum


class VendorFault(StrEnum):
    """The kinds of faults of a call."""

    UNAUTHORIZED = "the key is refused"
    FORBIDDEN = "the key may not"
    NOT_FOUND = "the group is not found"
    CONFLICT = "another change is running"
    THROTTLED = "too many calls"
    THROTTLED_FOR = "too many calls, and for how long"
    SERVER_ERROR = "internal error"
    CUT_OFF = "truncated body"
    WEB_PAGE = "an HTML page with status 200"
    HANGS_UP = "no answer"
    LOST_ANSWER = "the call takes effect and its answer is lost"
    EXPIRED_TOKEN = "the session has expired"
    OLD_TIME = "the time stamp is too old"


@dataclass(slots=True)
class _Order:
    fault: VendorFault
    fits: Callable[[str], bool]
    times: int


class VendorFaults:
    """Faults for the next calls, in the order of their addition. writes: the actions that change something."""

    def __init__(self, writes: Collection[str]) -> None:
        self._writes = writes
        self._orders: list[_Order] = []

    def next(self, fault: VendorFault, *, on: str = "any", times: int = 1) -> None:
        """Let the next `times` calls meet a fault. on: `read`, `write`, `any`, or an action's name. times: -1 for all
        calls."""
        tests: dict[str, Callable[[str], bool]] = {
            "any": lambda _: True,
            "write": self._writes.__contains__,
            "read": lambda action: action not in self._writes,
        }
        self._orders.append(_Order(fault, tests.get(on, lambda action: action == on), times))

    def clear(self) -> None:
        """Remove all faults."""
        self._orders.clear()

    def take(self, action: str) -> VendorFault | None:
        """Return the fault of this call, if any."""
        for order in self._orders:
            if order.times and order.fits(action):
                order.times -= 1 if order.times > 0 else 0
                return order.fault
        return None
