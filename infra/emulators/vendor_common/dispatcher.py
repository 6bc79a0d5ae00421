"""The parts of a dispatcher that all vendors share: the account's lock and clock, faults, rate limits, log, crashes."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeVar

from infra.emulators.vendor_common.errors import VendorRefusedError
from infra.emulators.vendor_common.fault_injection import VendorFaults
from infra.emulators.vendor_common.http_messages import Answer, Incoming
from infra.emulators.vendor_common.throttle import VendorThrottle

Logged = TypeVar("Logged")


class VendorAccount(Protocol):
    """The state of an emulated vendor."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Return the lock to acquire for every access."""

    @property
    def clock(self) -> Callable[[], float]:
        """Return the clock, in epoch seconds."""

    def step(self) -> None:
        """Process everything that is due now."""


class VendorDispatcher(Generic[Logged]):
    """Base of the vendors' APIs. log: all calls. crashes: errors of the emulator itself, one text each.

    A subclass has `handle` for a request and `refusal` for the response of an error.
    """

    def __init__(
        self, account: VendorAccount, faults: VendorFaults, throttle: VendorThrottle, crash: VendorRefusedError
    ) -> None:
        self._account, self.faults, self.throttle, self._crash = account, faults, throttle, crash
        self.log: list[Logged] = []
        self.crashes: list[str] = []

    def served(self, incoming: Incoming) -> Answer:
        """Handle one HTTP request without raising. Called from several threads.

        An error in the emulator is recorded in `crashes`, and the client gets a 500.
        """
        try:
            with self._account.lock:
                self._account.step()
                return self.handle(incoming)
        except Exception:
            self.crashes.append(traceback.format_exc())
            return self.refusal(self._crash)

    def handle(self, incoming: Incoming) -> Answer:
        """Handle one parsed request. The account is locked and up to date."""
        raise NotImplementedError

    def refusal(self, problem: VendorRefusedError) -> Answer:
        """Return the response of an error."""
        raise NotImplementedError
