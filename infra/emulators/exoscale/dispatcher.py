"""Processes every call of the emulated API: fault, authentication, throttling, operation, watchers, log."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable

import msgspec

from infra.emulators.exoscale.account import Zone
from infra.emulators.exoscale.authentication import ExoscaleAuthenticator, ExoscaleKeyRing
from infra.emulators.exoscale.errors import ExoscaleRefusedError
from infra.emulators.exoscale.fault_injection import ExoscaleThrottle, refusal
from infra.emulators.exoscale.handlers import ExoscaleHandlers, ExoscaleRequest
from infra.emulators.exoscale.routes import WRITES, ExoscaleRoute, find
from infra.emulators.exoscale.signing import claim
from infra.emulators.vendor_common.fault_injection import VendorFault, VendorFaults
from infra.emulators.vendor_common.http_messages import Answer, Incoming, spoilt

Watch = Callable[[Incoming, Answer], None]
_JSON = {"Content-Type": "application/json"}
_OPEN = frozenset({"list-zones"})


class ExoscaleLoggedRequest(msgspec.Struct, frozen=True):
    """One call. operation: its name in the vendor's document, "" if unknown. message: of an error."""

    method: str
    operation: str
    path: str
    body: str
    key: str
    status: int
    at: float
    message: str = ""

    @property
    def writes(self) -> bool:
        """Return whether it requests a change."""
        return self.operation in WRITES

    @property
    def line(self) -> str:
        """Return it as a line, without secrets."""
        return " ".join(part for part in (self.method, self.operation, self.path, self.body) if part)


class ExoscaleDispatcher:
    """The API of a zone. log: all calls. seen: signatures, which must not appear in any output. form: of the bodies of
    errors (errors.py). watches: called for each request with its response before connection faults are applied."""

    def __init__(self, zone: Zone) -> None:
        self.zone, self.ring = zone, ExoscaleKeyRing()
        self.faults, self.throttle = VendorFaults(WRITES), ExoscaleThrottle(zone.clock)
        self.log: list[ExoscaleLoggedRequest] = []
        self.seen: set[str] = set()
        self.watches: list[Watch] = []
        self.form = "message"
        self.crashes: list[str] = []
        self._gate, self._actions = ExoscaleAuthenticator(self.ring, zone.clock), ExoscaleHandlers(zone)

    def served(self, incoming: Incoming) -> Answer:
        """Handle one HTTP request. An error in the emulator is recorded in `crashes`, and the client gets a 500."""
        try:
            return self.handle(incoming)
        except Exception:
            self.crashes.append(traceback.format_exc())
            return self._refusal(ExoscaleRefusedError(500, "the emulation has crashed"))

    def handle(self, incoming: Incoming) -> Answer:
        """Handle one parsed request."""
        with self.zone.lock:
            self.zone.step()
            route = find(incoming.method, incoming.path)
            fault, message = self.faults.take(route.operation), ""
            try:
                refused = refusal(fault) if fault is not None else None
                if refused is not None:
                    raise refused
                answer = self._do(incoming, route, lost=fault in (VendorFault.HANGS_UP, VendorFault.WEB_PAGE))
            except ExoscaleRefusedError as problem:
                message, answer = problem.message, self._refusal(problem)
            self._note(incoming, route, answer.status, message)
            for watch in self.watches:
                watch(incoming, answer)
            return spoilt(answer, fault)

    def _do(self, incoming: Incoming, route: ExoscaleRoute, *, lost: bool) -> Answer:
        if not route.operation:
            raise ExoscaleRefusedError(404, f"{incoming.method} {incoming.path}: no such operation")
        if route.operation not in _OPEN:
            self._gate.admit(incoming, route.operation)
        self.throttle.count(route.operation)
        if lost and route.operation in WRITES:
            return Answer(500, b"", _JSON)  # never received: the connection fault discards it
        asked = ExoscaleRequest(
            route.ids, dict(incoming.query()), incoming.body, incoming.headers.get("content-type", "")
        )
        return Answer(200, json.dumps(self._actions.do(route.operation, asked)).encode(), _JSON)

    def _refusal(self, problem: ExoscaleRefusedError) -> Answer:
        kinds = {"text": "text/plain", "problem": "application/problem+json"}
        headers = {"Content-Type": kinds.get(self.form, "application/json")}
        if problem.retry_after is not None:
            headers["Retry-After"] = str(problem.retry_after)
        return Answer(problem.status, problem.body(self.form), headers)

    def _note(self, incoming: Incoming, route: ExoscaleRoute, status: int, message: str) -> None:
        claimed = claim(incoming)
        if claimed is not None:
            self.seen.add(claimed.signature)
        self.log.append(
            ExoscaleLoggedRequest(
                incoming.method,
                route.operation,
                incoming.target,
                incoming.body.decode("utf-8", "replace"),
                claimed.key if claimed else "",
                status,
                self.zone.clock(),
                message,
            )
        )
