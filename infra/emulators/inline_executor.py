"""Runs work submitted to an executor at once, in the calling thread.

A snapshot reads many lists concurrently, which helps only if each needs a network round trip. Concurrency would also
make the order of requests random, so that an injected fault of the third request would differ between runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, TypeVar

from chalicelib.snapshot import list_state

T = TypeVar("T")


class _Done(Future[T]):
    """A future that is finished from the beginning. It has none of the base class's locks, because nothing waits for
    it."""

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
    """Has the interface of ThreadPoolExecutor; work is done when submit returns."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept any arguments of a pool."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run the work and return its result or Exception. Other BaseExceptions (the crash of a process) are raised at
        once."""
        try:
            return _Done(fn(*args, **kwargs), None)
        except Exception as error:
            return _Done(None, error)


@contextmanager
def inline() -> Iterator[None]:
    """Read snapshots sequentially within this context."""
    place = vars(list_state)
    pool, place["ThreadPoolExecutor"] = place["ThreadPoolExecutor"], Inline
    try:
        yield
    finally:
        place["ThreadPoolExecutor"] = pool
