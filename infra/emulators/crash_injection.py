"""How a function dies: at a checkpoint, for good, and without tidying up.

An exception alone would not be a death: `finally` blocks would still give leases back and write rows, which no killed
process does. So everything through which a function reaches the world goes through `Mortal`, and once the function is
dead each of those raises Killed as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class FunctionKilled(BaseException):
    """The function died there. Not an Exception: no handler may catch it."""


class Life:
    """One process of a function. at_checkpoint: asked at each checkpoint whether it dies there."""

    def __init__(self, at_checkpoint: Callable[[str], bool]) -> None:
        self._at_checkpoint = at_checkpoint
        self.died_at = ""

    def checkpoint(self, place: str) -> None:
        """Runtime.checkpoint; raises Killed where the process is to die."""
        self.check()
        if self._at_checkpoint(place):
            self.died_at = place
            raise FunctionKilled(place)

    def check(self) -> None:
        """Raises Killed if it is dead already."""
        if self.died_at:
            raise FunctionKilled(self.died_at)


class Mortal:
    """Any client, which works as long as its owner lives."""

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
