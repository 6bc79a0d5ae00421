"""Error responses of an emulated vendor, the faults that a test injects one
by one, and rate limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec


class VendorRefusedError(Exception):
    """An error response. code: the vendor's name of the error, "" if it has none. retry_after: the
    value of the vendor's header for it, None for no such header."""

    def __init__(
        self, status: int, message: str, *, code: str = "", retry_after: int | None = None
    ) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status, self.message, self.code, self.retry_after = status, message, code, retry_after


class VendorRefusal(msgspec.Struct, frozen=True):
    """The data of an error response, as in VendorRefusedError."""

    status: int
    message: str = ""
    code: str = ""

    def error(self, *, message: str = "", retry_after: int | None = None) -> VendorRefusedError:
        """Return the error to raise. message: used if this one has none."""
        return VendorRefusedError(
            self.status, self.message or message, code=self.code, retry_after=retry_after
        )


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
    """Faults for the next calls, in the order of their addition. writes: the actions that
    change something. refusals: the error responses of faults. retry_after: the value that a
    response of THROTTLED_FOR says."""

    def __init__(
        self,
        writes: Collection[str],
        refusals: Mapping[VendorFault, VendorRefusal],
        *,
        retry_after: int,
    ) -> None:
        self.writes, self.retry_after = writes, retry_after
        self._refusals = refusals
        self._orders: list[_Order] = []

    def next(self, fault: VendorFault, *, on: str = "any", times: int = 1) -> None:
        """Let the next `times` calls meet a fault. on: `read`, `write`, `any`, or an action's name.
        times: -1 for all calls."""
        tests: dict[str, Callable[[str], bool]] = {
            "any": lambda _: True,
            "write": self.writes.__contains__,
            "read": lambda action: action not in self.writes,
        }
        self._orders.append(_Order(fault, tests.get(on, lambda action: action == on), times))

    def clear(self) -> None:
        self._orders.clear()

    def take(self, action: str) -> VendorFault | None:
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


class VendorThrottle:
    """Limits calls per window and name: of an action or of a source. limits: name ->
    (calls, seconds), "" for all
    others. tells: whether the response says when to retry. wait: seconds -> the
    value that the response says."""

    def __init__(
        self,
        clock: Callable[[], float],
        refusal: VendorRefusal,
        *,
        tells: bool = True,
        wait: Callable[[float], int] = math.ceil,
    ) -> None:
        self._clock, self._refusal, self._wait = clock, refusal, wait
        self.limits, self.tells = dict[str, tuple[int, float]](), tells
        self._calls: dict[str, list[float]] = {}

    def count(self, name: str) -> None:
        """Count one call. Raises VendorRefusedError if the limit is exceeded; a
        refused call is not counted."""
        limit = self.limits.get(name, self.limits.get(""))
        if limit is None:
            return
        most, window = limit
        now = self._clock()
        recent = [at for at in self._calls.get(name, []) if now - at < window]
        if len(recent) >= most:
            wait = max(1, self._wait(recent[-most] + window - now))
            raise self._refusal.error(retry_after=wait if self.tells else None)
        self._calls[name] = [*recent, now]
