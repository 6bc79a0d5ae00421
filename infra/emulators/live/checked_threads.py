"""A thread of the emulation that ends by an exception says so: what it would have done is missing from then on.

Python prints the traceback and goes on. A queue whose thread has ended then only looks like one that nobody sends to.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

_log = logging.getLogger(__name__)

Ended = Callable[[str, BaseException], None]
"""Called with the name of a thread that has ended by an exception, in that thread."""


def logged(name: str, error: BaseException) -> None:
    """An Ended: a line in the log, with the traceback."""
    _log.critical("thread %s has ended and does nothing more", name, exc_info=error)


class Worker(threading.Thread):
    """A daemon thread that reports its end. target, args, kwargs: as of threading.Thread."""

    def __init__(
        self,
        target: Callable[..., object],
        *,
        name: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        ended: Ended = logged,
    ) -> None:
        super().__init__(target=target, args=args, kwargs=dict(kwargs or {}), name=name, daemon=True)
        self._reported = ended

    def run(self) -> None:
        """The work; an exception ends it and is reported."""
        try:
            super().run()
        except BaseException as error:
            self._reported(self.name, error)
