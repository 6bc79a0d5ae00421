"""The time that all requests of one step or pass may take together.

Each exchange has limits of its own (http_exchange.py), but a server that answers slowly enough to
stay within them could hold a step for as many exchanges and attempts as the step makes. The limit
is a context variable, because it applies to every client that a step uses, whoever has made it. A
thread that a step starts needs the step's context (contextvars.copy_context).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


def _unlimited() -> float:
    return math.inf


_LEFT: ContextVar[Callable[[], float]] = ContextVar("left", default=_unlimited)


def time_left() -> float:
    """Return the seconds that the exchanges of this context may still take in all;
    math.inf outside `time_limit`."""
    return _LEFT.get()()


@contextmanager
def time_limit(seconds: float, clock: Callable[[], float]) -> Iterator[None]:
    """Limit all exchanges inside the context together, repeated ones and the pauses between them
    included. Of nested limits the earlier end applies. clock: in seconds."""
    outer, until = _LEFT.get(), clock() + seconds
    token = _LEFT.set(lambda: min(outer(), until - clock()))
    try:
        yield
    finally:
        _LEFT.reset(token)
