"""What goes wrong between a client and the emulated Alibaba Cloud: one by one on request, or by a rate limit.

The vendor's throttling is an HTTP 400 with a code and, for newer products, a header in milliseconds (alicloud.md §3.9).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from infra.local.alicloud.refusals import Refused

WRITES = frozenset({"ScaleWithAdjustment", "RemoveInstances"})
RETRY_MILLISECONDS = 7000


class Fault(StrEnum):
    """What becomes of a call."""

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


_REFUSALS = {
    Fault.UNAUTHORIZED: ("InvalidAccessKeyId.NotFound", 404, None),
    Fault.FORBIDDEN: ("Forbidden.RAM", 403, None),
    Fault.NOT_FOUND: ("InvalidScalingGroupId.NotFound", 404, None),
    Fault.CONFLICT: ("ScalingActivityInProgress", 400, None),
    Fault.THROTTLED: ("Throttling.User", 400, None),
    Fault.THROTTLED_FOR: ("Throttling.User", 400, RETRY_MILLISECONDS),
    Fault.SERVER_ERROR: ("InternalError", 500, None),
    Fault.EXPIRED_TOKEN: ("InvalidSecurityToken.Expired", 400, None),
    Fault.OLD_TIME: ("InvalidTimeStamp.Expired", 400, None),
}


def refusal(fault: Fault) -> Refused | None:
    """The error reply that a fault is, None for one of the wire."""
    found = _REFUSALS.get(fault)
    return Refused(found[0], f"{fault.value} (by order of the test)", found[1], retry_after=found[2]) if found else None


@dataclass(slots=True)
class _Order:
    fault: Fault
    fits: Callable[[str], bool]
    times: int


class Faults:
    """Faults for the calls to come, in the order they were asked for."""

    def __init__(self) -> None:
        self._orders: list[_Order] = []

    def next(self, fault: Fault, *, on: str = "any", times: int = 1) -> None:
        """The next `times` calls meet it. on: `read`, `write`, `any`, or an action's name; times -1: all of them."""
        tests: dict[str, Callable[[str], bool]] = {
            "any": lambda _: True, "write": WRITES.__contains__, "read": lambda action: action not in WRITES}
        self._orders.append(_Order(fault, tests.get(on, lambda action: action == on), times))

    def clear(self) -> None:
        """From now on nothing goes wrong."""
        self._orders.clear()

    def take(self, action: str) -> Fault | None:
        """What this call meets."""
        for order in self._orders:
            if order.times and order.fits(action):
                order.times -= 1 if order.times > 0 else 0
                return order.fault
        return None


class Throttle:
    """Calls per window and action, for the account. limits: action -> (calls, seconds), "" for all others; tells:
    whether the answer says when to come back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self.limits, self.tells = clock, dict[str, tuple[int, float]](), True
        self._calls: dict[str, list[float]] = {}

    def count(self, action: str) -> None:
        """One call more. Refused if that is too many."""
        limit = self.limits.get(action, self.limits.get(""))
        if limit is None:
            return
        most, window = limit
        now = self._clock()
        recent = [at for at in self._calls.get(action, []) if now - at < window]
        if len(recent) >= most:
            wait = max(1, int((recent[-most] + window - now) * 1000))
            raise Refused("Throttling.User", "Request was denied due to user flow control.",
                          retry_after=wait if self.tells else None)
        self._calls[action] = [*recent, now]
