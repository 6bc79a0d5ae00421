"""Keeps the lease of a pass in force while the pass lives, and says whether it still
is before the pass saves.

    acquired        renewed         renewed         killed
    ──┬───────────────┬───────────────┬────────────────┬───────────────────────┬──►
      0               10              20               24                      50  another pass may
                                                                                   begin

A thread renews the lease. It dies with its process, so a killed pass blocks its cluster for
LEASE_FOR seconds at most. A quiet pass ends before the first renewal, and writes nothing for it.

Two processes may believe that they have the lease: one of them was suspended, or their clocks
differ. The token in each save decides between them (store/leases.py). A pass whose renewals have
stopped nevertheless stops by itself before it saves, because what it has read may be old. It
compares the end of its lease with the clock that has set it, so that a clock which is wrong by any
constant makes no difference.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.errors import LeaseLost, StoreError
from chalicelib.store.leases import Lease, Leases

LEASE_FOR = 30.0
"""Seconds from a renewal until another invocation may take over."""
RENEW_EVERY = 10.0
"""Seconds between renewals: two may fail before the lease ends."""
LONGEST_PASS = 150.0
"""Seconds after which a lease is not renewed any more: longer than the function's
timeout (120, .chalice/config). A pass that hangs in a process without a timeout must not
hold its cluster for ever."""
_ENDS_WITHIN = 1.0  # seconds that the end of a pass waits for a renewal under way


class HeldLease:
    """The lease of a running pass. lease: as acquired just now."""

    def __init__(self, lease: Lease, leases: Leases, clock: Callable[[], float]) -> None:
        self._lease, self._leases, self._clock = lease, leases, clock
        self.cluster = lease.cluster
        self._last_renewal = clock() + LONGEST_PASS
        self._is_lost = False

    def renew(self) -> bool:
        """Renew the lease once; return whether to go on renewing it."""
        now = self._clock()
        # the process was suspended, or no renewal has succeeded in time
        if now >= self._lease.until:
            self._is_lost = True
        if self._is_lost or now >= self._last_renewal:
            return False
        try:
            self._lease = self._leases.renew(self._lease, LEASE_FOR)
        except LeaseLost:
            self._is_lost = True
            return False
        except StoreError as error:
            logger.warning("lease not renewed", cluster=self._lease.cluster, **failure(error))
        return True

    def check(self) -> Lease:
        """Return the lease with its present end. Raises LeaseLost where it has ended or was
        taken over: then nothing may be saved."""
        if self._is_lost or self._clock() >= self._lease.until:
            self._is_lost = True
            raise LeaseLost(self._lease.cluster, self._lease.token)
        return self._lease


def renewed(held: HeldLease, runtime: Runtime) -> AbstractContextManager[None]:
    """Return the context in which the lease is kept in force."""
    return (runtime.repeat or in_thread)(RENEW_EVERY, held.renew)


@contextmanager
def in_thread(
    seconds: float,
    work: Callable[[], bool],
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
) -> Iterator[None]:
    """Call `work` in a thread every so many seconds inside the context, until it
    returns False. wait: waits for the event that the context has ended, at most so many
    seconds; returns whether it has."""
    ended = threading.Event()

    def repeat() -> None:
        while not wait(ended, seconds):
            if not work():
                return

    thread = threading.Thread(target=repeat, name="lease renewal", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        # the process may start no further thread; the pass has one lease's time
        logger.warning("lease is not renewed", detail=str(error))
    try:
        yield
    finally:
        ended.set()
        if thread.ident is not None:
            thread.join(_ENDS_WITHIN)
