"""Threads that report when they end with an exception, because their work is missing from then on.

Python only prints the traceback and continues. A queue whose thread has ended then looks like a queue without messages.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

_log = logging.getLogger(__name__)

Ended = Callable[[str, BaseException], None]
"""Called with the name of a thread that has ended with an exception, in that thread."""


def logged(name: str, error: BaseException) -> None:
    """An Ended that writes a log line with the traceback."""
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
        """Run the target; an exception ends the thread and is reported."""
        try:
            super().run()
        except BaseException as error:
            self._reported(self.name, error)
