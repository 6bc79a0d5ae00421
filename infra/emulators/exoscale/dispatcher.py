"""Processes every call of the emulated API: authentication, throttling, operation."""

from __future__ import annotations

import json

from infra.emulators.exoscale.account import Zone
from infra.emulators.exoscale.authentication import ExoscaleAuthenticator, ExoscaleKeyRing
from infra.emulators.exoscale.errors import error_body
from infra.emulators.exoscale.fault_injection import OVER_LIMIT, REFUSALS, RETRY_SECONDS
from infra.emulators.exoscale.handlers import ExoscaleHandlers, ExoscaleRequest
from infra.emulators.exoscale.routes import ROUTES, WRITES
from infra.emulators.exoscale.signing import claim
from infra.emulators.vendor_common.errors import VendorRefusedError
from infra.emulators.vendor_common.fault_injection import VendorFaults
from infra.emulators.vendor_common.http_messages import Answer, Incoming
from infra.emulators.vendor_common.operation_dispatcher import JSON, OperationDispatcher
from infra.emulators.vendor_common.routes import VendorRoute
from infra.emulators.vendor_common.throttle import VendorThrottle

_OPEN = frozenset({"list-zones"})


class ExoscaleDispatcher(OperationDispatcher):
    """The API of a zone. form: of the bodies of errors (errors.py)."""

    def __init__(self, zone: Zone) -> None:
        super().__init__(
            zone,
            VendorFaults(WRITES, REFUSALS, retry_after=RETRY_SECONDS),
            VendorThrottle(zone.clock, OVER_LIMIT),
            VendorRefusedError(500, "the emulation has crashed"),
            ROUTES,
            claim,
        )
        self.ring, self.form = ExoscaleKeyRing(), "message"
        self._gate, self._actions = ExoscaleAuthenticator(self.ring, zone.clock), ExoscaleHandlers(zone)

    def do(self, incoming: Incoming, route: VendorRoute, *, lost: bool) -> Answer:
        """Carry out an operation. Raises VendorRefusedError."""
        if not route.operation:
            raise VendorRefusedError(404, f"{incoming.method} {incoming.path}: no such operation")
        if route.operation not in _OPEN:
            self._gate.admit(incoming, route.operation)
        self.throttle.count(route.operation)
        if lost:
            return Answer(500, b"", JSON)  # never received: the connection fault discards it
        asked = ExoscaleRequest(
            route.ids, dict(incoming.query()), incoming.body, incoming.headers.get("content-type", "")
        )
        return Answer(200, json.dumps(self._actions.do(route.operation, asked)).encode(), JSON)

    def refusal(self, problem: VendorRefusedError) -> Answer:
        """Return the response of an error."""
        kinds = {"text": "text/plain", "problem": "application/problem+json"}
        headers = {"Content-Type": kinds.get(self.form, "application/json")}
        if problem.retry_after is not None:
            headers["Retry-After"] = str(problem.retry_after)
        return Answer(problem.status, error_body(problem.message, self.form), headers)
