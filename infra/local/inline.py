"""Work that is handed to other threads, done at once in this one.

A snapshot reads many lists at a time, which is worth it where each takes a round trip and pure cost where none does. It
also makes the order of the requests a matter of luck, so that what a test lets go wrong with the third of them would
not be the same in two runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from chalicelib.snapshot import live

T = TypeVar("T")


class Inline(Executor):
    """A ThreadPoolExecutor's face; what is submitted is done when submit returns."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Whatever a pool would be given."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Done, or failed, already. What is no Exception (the death of a process) is not kept for later."""
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


@contextmanager
def inline() -> Iterator[None]:
    """While this is open, snapshots are read one request after the other."""
    with patch.object(live, "ThreadPoolExecutor", Inline):
        yield
