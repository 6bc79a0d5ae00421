"""Observes the emulated Exoscale, whose quota is used up in the demonstration, so that it refuses requests."""

from __future__ import annotations

import json
from collections.abc import Callable

from infra.demo.console import Say, count
from infra.demo.counters import Ledger
from infra.demo.fixture import SKS
from infra.emulators.exoscale.attached_account import ExoscaleAccount
from infra.emulators.vendor_common.operation_dispatcher import LoggedOperation


class SksWatcher:
    """look() reports what is new. pool: the Nodepool's Instance Pool. first, answered: as in alicloud_observer.py."""

    def __init__(
        self,
        account: ExoscaleAccount,
        pool: str,
        ledger: Ledger,
        say: Say,
        first: Callable[[], None],
        answered: Callable[[], None],
    ) -> None:
        self._account, self._pool, self._ledger, self._say = account, pool, ledger, say
        self._first, self._answered = first, answered
        self._seen, self._wanted = 0, 0

    def look(self) -> None:
        """Report changes requested since the last call."""
        log = self._account.server.log
        fresh, self._seen = log[self._seen :], len(log)
        for call in fresh:
            if call.writes:
                self._first()
                self._tell(call)

    def sizes(self) -> dict[str, int]:
        """Return name -> desired instances."""
        with self._account.zone.lock:
            return {SKS: self._account.zone.pools[self._pool].size}

    def _tell(self, call: LoggedOperation) -> None:
        size = int(json.loads(call.body or "{}").get("size", 0))
        if call.status >= 300:
            self._ledger.refused[SKS] += size - self._wanted
            self._ledger.why[SKS] = call.message
            self._say(
                "provider",
                f"Exoscale was asked for another size of {SKS}: {self._wanted} ► {size}, and says "
                f"{call.status}: {call.message}",
            )
            return
        if size > self._wanted:
            self._ledger.asked.append((SKS, self._wanted, size))
            self._ledger.bought[SKS] += size - self._wanted
            self._answered()
        self._say("provider", f"Exoscale was asked for {count(size, 'instance')} of {SKS}")
        self._wanted = size
