"""Processes every call of the emulated API: authentication, throttling, operation."""

from __future__ import annotations

import json

from infra.emulators.huaweicloud.account import CceCloud
from infra.emulators.huaweicloud.authentication import CceAuthenticator, CceKeyRing
from infra.emulators.huaweicloud.errors import CceRefusedError, error_body
from infra.emulators.huaweicloud.fault_injection import OVER_LIMIT, REFUSALS, RETRY_SECONDS
from infra.emulators.huaweicloud.handlers import CceHandlers, CceRequest
from infra.emulators.huaweicloud.routes import ROUTES, WRITES
from infra.emulators.huaweicloud.signing import claim
from infra.emulators.vendor_common.dispatcher import JSON, OperationDispatcher
from infra.emulators.vendor_common.fault_injection import (
    VendorFaults,
    VendorRefusedError,
    VendorThrottle,
)
from infra.emulators.vendor_common.http_messages import Answer, Incoming, VendorRoute

_PAGE = {"Content-Type": "text/html"}


class CceDispatcher(OperationDispatcher):
    """The API of a project: CCE, the compute service's flavours and the identity service at one
    address. form: of the bodies of errors (errors.py)."""

    def __init__(self, cloud: CceCloud) -> None:
        super().__init__(
            cloud,
            VendorFaults(WRITES, REFUSALS, retry_after=RETRY_SECONDS),
            VendorThrottle(cloud.clock, OVER_LIMIT, tells=False),
            CceRefusedError(500, "CCE.01500001", "the emulation has crashed"),
            ROUTES,
            claim,
        )
        self.ring, self.form = CceKeyRing(), ""
        self._gate, self._actions = (
            CceAuthenticator(self.ring, cloud.clock),
            CceHandlers(cloud, self.ring),
        )

    def do(self, incoming: Incoming, route: VendorRoute, *, lost: bool) -> Answer:
        """Carry out an operation. Raises VendorRefusedError."""
        if not route.operation:
            raise CceRefusedError(
                404,
                "APIGW.0101",
                "The API does not exist or has not been published in the environment",
            )
        key = self._gate.admit(incoming, route.action)
        self.throttle.count(route.operation)
        if lost:
            return Answer(500, b"", JSON)  # never received: the connection fault discards it
        asked = CceRequest(route.ids, key, dict(incoming.query()), incoming.body)
        status, found = self._actions.do(route.operation, asked)
        return Answer(status, b"" if found is None else json.dumps(found).encode(), JSON)

    def refusal(self, problem: VendorRefusedError) -> Answer:
        """Return the response of an error."""
        request = f"{len(self.log):032x}"
        headers = {**(_PAGE if self.form == "page" else JSON), "X-Request-Id": request}
        if problem.retry_after is not None:
            headers["Retry-After"] = str(problem.retry_after)
        return Answer(problem.status, error_body(problem, self.form, request), headers)
