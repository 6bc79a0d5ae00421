"""State that all providers of a bench share, as all functions of a deployment do: the
call budget, in a table.
"""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.store import Store
from chalicelib.store.vendor_calls import RateLimits
from infra.emulators.memory_table import MemoryAccount


def shared(clock: Callable[[], float]) -> RateLimits:
    """Returns a rate limiter with its own table."""
    return _store(clock).rate_limits


def _store(clock: Callable[[], float]) -> Store:
    return MemoryAccount().store("suite", clock=clock, sleep=lambda _: None, chance=lambda: 0.5)
