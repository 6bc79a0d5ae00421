"""Faults between a client and an emulated vendor, injected one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from infra.emulators.vendor_common.errors import VendorRefusal


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


NEVER_RECEIVED = frozenset({VendorFault.HANGS_UP, VendorFault.WEB_PAGE})
"""The faults of which the vendor does not receive the call."""


@dataclass(slots=True)
class _Order:
    fault: VendorFault
    fits: Callable[[str], bool]
    times: int


class VendorFaults:
    """Faults for the next calls, in the order of their addition. writes: the actions that change something. refusals:
    the error responses of faults. retry_after: the value that a response of THROTTLED_FOR says."""

    def __init__(
        self, writes: Collection[str], refusals: Mapping[VendorFault, VendorRefusal], *, retry_after: int
    ) -> None:
        self.writes, self.retry_after = writes, retry_after
        self._refusals = refusals
        self._orders: list[_Order] = []

    def next(self, fault: VendorFault, *, on: str = "any", times: int = 1) -> None:
        """Let the next `times` calls meet a fault. on: `read`, `write`, `any`, or an action's name. times: -1 for all
        calls."""
        tests: dict[str, Callable[[str], bool]] = {
            "any": lambda _: True,
            "write": self.writes.__contains__,
            "read": lambda action: action not in self.writes,
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

    def refuse(self, fault: VendorFault | None) -> None:
        """Raise the VendorRefusedError of a fault; do nothing for a fault of the connection."""
        if fault is not None and (refusal := self._refusals.get(fault)) is not None:
            told = self.retry_after if fault is VendorFault.THROTTLED_FOR else None
            raise refusal.error(message=f"{fault.value} (by order of the test)", retry_after=told)
