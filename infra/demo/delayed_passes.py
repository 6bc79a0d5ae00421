"""Delays passes, as a slow queue does, so that the next pass sees two conditions at the same time.

A pass sees the state while it reads, but its time is that of its start. With a fast clock several seconds lie between
the two, so a pass may see actions of a person that are later than its own time.
"""

from __future__ import annotations

import threading

from infra.emulators.lambda_events import Json
from infra.emulators.live.lambda_processes import Functions, Result

_PASS = "reconcile"


class Passes:
    """Wraps the invocation of the reconcile function by its queue. begun: number of passes started so far."""

    def __init__(self, functions: Functions) -> None:
        self._invoke = functions.invoke
        self._open, self._running, self.begun = True, 0, 0
        self._changed = threading.Condition()
        functions.invoke = self.invoke  # type: ignore[method-assign]

    def invoke(self, name: str, event: Json) -> Result:
        """Like Functions.invoke. A pass waits until passes are allowed."""
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
        """Block new passes."""
        with self._changed:
            self._open = False

    def release(self) -> None:
        """Start the waiting passes."""
        with self._changed:
            self._open = True
            self._changed.notify_all()

    @property
    def held(self) -> bool:
        """Return whether new passes are blocked."""
        return not self._open

    @property
    def still(self) -> bool:
        """Return whether new passes are blocked and none is running."""
        with self._changed:
            return not self._open and not self._running
