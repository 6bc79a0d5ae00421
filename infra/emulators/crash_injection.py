"""Simulates the crash of a function at a checkpoint: final and without cleanup.

An exception alone is not a crash: `finally` blocks would still release leases and write rows, which a killed process
does not do. Therefore all clients of a function are wrapped in `Mortal`, and after the crash each of them raises Killed
as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class FunctionKilled(BaseException):
    """The function crashed. Not an Exception, so that no handler catches it."""


class Life:
    """One process of a function. at_checkpoint: called at each checkpoint, returns whether the process crashes
    there."""

    def __init__(self, at_checkpoint: Callable[[str], bool]) -> None:
        self._at_checkpoint = at_checkpoint
        self.died_at = ""

    def checkpoint(self, place: str) -> None:
        """Implements Runtime.checkpoint. Raises Killed if the process must crash."""
        self.check()
        if self._at_checkpoint(place):
            self.died_at = place
            raise FunctionKilled(place)

    def check(self) -> None:
        """Raise Killed if the process has crashed."""
        if self.died_at:
            raise FunctionKilled(self.died_at)


class Mortal:
    """A client that works until its owner crashes."""

    def __init__(self, client: Any, life: Life) -> None:
        self._client, self._life = client, life

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._life.check()
            return found(*args, **kwargs)

        return call


class Death(msgspec.Struct):
    """An injected crash: the next `times` invocations of `function` ("" for any) that reach `place` crash there."""

    place: str
    function: str
    times: int
