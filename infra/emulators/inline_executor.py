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

from chalicelib.snapshot import live_cluster

T = TypeVar("T")


class _Done(Future[T]):
    """A future whose end is known from the beginning. It has none of the base's locks: nobody waits for it."""

    def __init__(self, result: T | None, error: BaseException | None) -> None:
        self._end, self._problem = result, error

    def done(self) -> bool:
        """See Future."""
        return True

    def exception(self, timeout: float | None = None) -> BaseException | None:  # noqa: ARG002 - the base's
        """See Future."""
        return self._problem

    def result(self, timeout: float | None = None) -> Any:  # noqa: ARG002 - the base's
        """See Future."""
        if self._problem is not None:
            raise self._problem
        return self._end

    def cancel(self) -> bool:
        """See Future."""
        return False


class Inline(Executor):
    """A ThreadPoolExecutor's face; what is submitted is done when submit returns."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Whatever a pool would be given."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Done, or failed, already. What is no Exception (the death of a process) is not kept for later."""
        try:
            return _Done(fn(*args, **kwargs), None)
        except Exception as error:
            return _Done(None, error)


@contextmanager
def inline() -> Iterator[None]:
    """While this is open, snapshots are read one request after the other."""
    place = vars(live_cluster)
    pool, place["ThreadPoolExecutor"] = place["ThreadPoolExecutor"], Inline
    try:
        yield
    finally:
        place["ThreadPoolExecutor"] = pool
