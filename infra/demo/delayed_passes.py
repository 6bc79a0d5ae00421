"""Passes held back for a moment, as by a queue that is slow: so that two things are so at once for the next one.

What a pass sees is what there is while it reads, but its time is that of its beginning. On a fast clock several seconds
lie between the two, and what a person does meanwhile may be seen by a pass that thinks it is earlier.
"""

from __future__ import annotations

import threading

from infra.emulators.lambda_events import Json
from infra.emulators.live.lambda_processes import Functions, Result

_PASS = "reconcile"


class Passes:
    """Stands between the queues and a function. begun: how many passes have begun so far."""

    def __init__(self, functions: Functions) -> None:
        self._invoke = functions.invoke
        self._open, self._running, self.begun = True, 0, 0
        self._changed = threading.Condition()
        functions.invoke = self.invoke  # type: ignore[method-assign]

    def invoke(self, name: str, event: Json) -> Result:
        """As Functions.invoke. A pass begins when it may."""
        if name != _PASS:
            return self._invoke(name, event)
        with self._changed:
            self._changed.wait_for(lambda: self._open)
            self._running += 1
            self.begun += 1
        try:
            return self._invoke(name, event)
        finally:
            with self._changed:
                self._running -= 1

    def hold(self) -> None:
        """From now on none begins."""
        with self._changed:
            self._open = False

    def release(self) -> None:
        """Whoever has waited begins."""
        with self._changed:
            self._open = True
            self._changed.notify_all()

    @property
    def held(self) -> bool:
        """None begins."""
        return not self._open

    @property
    def still(self) -> bool:
        """None begins, and none is under way."""
        with self._changed:
            return not self._open and not self._running
