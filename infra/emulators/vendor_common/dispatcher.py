"""Dispatchers of the emulated vendors: lock and clock, faults, rate limits, log, crashes; and one
for an API that is a table of operations with signed requests.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from infra.emulators.vendor_common.fault_injection import (
    NEVER_RECEIVED,
    VendorFault,
    VendorFaults,
    VendorRefusedError,
    VendorThrottle,
)
from infra.emulators.vendor_common.http_messages import (
    Answer,
    Incoming,
    VendorRoute,
    VendorRoutes,
    spoilt,
)

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
    """Base of the vendors' APIs. log: all calls. crashes: errors of the
    emulator itself, one text each.

    A subclass has `handle` for a request and `refusal` for the response of an error.
    """

    def __init__(
        self,
        account: VendorAccount,
        faults: VendorFaults,
        throttle: VendorThrottle,
        crash: VendorRefusedError,
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
        raise NotImplementedError


JSON = {"Content-Type": "application/json"}
Watch = Callable[[Incoming, Answer], None]


class LoggedOperation(msgspec.Struct, frozen=True):
    """One call. operation: "" if unknown. path: with its query. action: the permission it needs.
    key: that signed it. writes: it requests a change. code, message: of an error."""

    method: str
    operation: str
    path: str
    body: str
    key: str
    status: int
    at: float
    writes: bool
    action: str = ""
    code: str = ""
    message: str = ""

    @property
    def line(self) -> str:
        return " ".join(
            part for part in (self.method, self.operation, self.path, self.body) if part
        )


class SignedClaim(Protocol):
    """The credentials a request claims."""

    @property
    def key(self) -> str:
        """Return the key's id."""

    @property
    def signature(self) -> str:
        """Return the signature."""


class OperationDispatcher(VendorDispatcher[LoggedOperation]):
    """Base of such APIs. claim: the credentials that a request claims, None for an unsigned
    request. seen: signatures, which must not appear in any output. watches: called for each request
    with its response before connection faults are applied.

    A subclass has `do` for an operation and `refusal` for the response of an error.
    """

    def __init__(
        self,
        account: VendorAccount,
        faults: VendorFaults,
        throttle: VendorThrottle,
        crash: VendorRefusedError,
        routes: VendorRoutes,
        claim: Callable[[Incoming], SignedClaim | None],
    ) -> None:
        super().__init__(account, faults, throttle, crash)
        self.seen: set[str] = set()
        self.watches: list[Watch] = []
        self._routes, self._claim = routes, claim

    def handle(self, incoming: Incoming) -> Answer:
        """Handle one parsed request. The account is locked and up to date."""
        route = self._routes.find(incoming.method, incoming.path)
        fault, problem = self.faults.take(route.operation), None
        try:
            self.faults.refuse(fault)
            answer = self.do(
                incoming,
                route,
                lost=fault in NEVER_RECEIVED and route.operation in self.faults.writes,
            )
        except VendorRefusedError as raised:
            problem, answer = raised, self.refusal(raised)
        self._note(incoming, route, answer.status, problem)
        for watch in self.watches:
            watch(incoming, answer)
        if fault is VendorFault.CUT_OFF and not answer.body:
            # an empty response cannot be truncated
            answer = msgspec.structs.replace(answer, body=b"{}")
        return spoilt(answer, fault)

    def do(self, incoming: Incoming, route: VendorRoute, *, lost: bool) -> Answer:
        """Carry out an operation. lost: the request is a change that the vendor never receives.
        Raises VendorRefusedError."""
        raise NotImplementedError

    def _note(
        self,
        incoming: Incoming,
        route: VendorRoute,
        status: int,
        problem: VendorRefusedError | None,
    ) -> None:
        claimed = self._claim(incoming)
        if claimed is not None:
            self.seen.add(claimed.signature)
        self.log.append(
            LoggedOperation(
                incoming.method,
                route.operation,
                incoming.target,
                incoming.body.decode("utf-8", "replace"),
                claimed.key if claimed else "",
                status,
                self._account.clock(),
                route.operation in self.faults.writes,
                route.action,
                problem.code if problem else "",
                problem.message if problem else "",
            )
        )
