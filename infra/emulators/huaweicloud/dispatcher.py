"""Processes every call of the emulated API: fault, authentication, throttling, operation, watchers, log."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable

import msgspec

from infra.emulators.huaweicloud.account import CceCloud
from infra.emulators.huaweicloud.authentication import CceAuthenticator, CceKeyRing
from infra.emulators.huaweicloud.errors import CceRefusedError
from infra.emulators.huaweicloud.fault_injection import CceThrottle, refusal
from infra.emulators.huaweicloud.handlers import CceHandlers, CceRequest
from infra.emulators.huaweicloud.routes import WRITES, CceRoute, find
from infra.emulators.huaweicloud.signing import claim
from infra.emulators.vendor_common.fault_injection import VendorFault, VendorFaults
from infra.emulators.vendor_common.http_messages import Answer, Incoming, spoilt

Watch = Callable[[Incoming, Answer], None]
_JSON, _PAGE = {"Content-Type": "application/json"}, {"Content-Type": "text/html"}


class CceLoggedRequest(msgspec.Struct, frozen=True):
    """One call. operation: as in routes.py, "" if unknown. path: with its query. action: the permission it needs. key:
    that signed it. code, message: of an error."""

    method: str
    operation: str
    path: str
    body: str
    key: str
    status: int
    at: float
    action: str = ""
    code: str = ""
    message: str = ""

    @property
    def writes(self) -> bool:
        """Return whether it requests a change."""
        return self.operation in WRITES

    @property
    def line(self) -> str:
        """Return it as a line, without secrets."""
        return " ".join(part for part in (self.method, self.operation, self.path, self.body) if part)


class CceDispatcher:
    """The API of a project: CCE, the compute service's flavours and the identity service at one address. log: all
    calls. seen: signatures, which must not appear in any output. form: of the bodies of errors (errors.py). watches:
    called for each request with its response before connection faults are applied."""

    def __init__(self, cloud: CceCloud) -> None:
        self.cloud, self.ring = cloud, CceKeyRing()
        self.faults, self.throttle = VendorFaults(WRITES), CceThrottle(cloud.clock)
        self.log: list[CceLoggedRequest] = []
        self.seen: set[str] = set()
        self.watches: list[Watch] = []
        self.form = ""
        self.crashes: list[str] = []
        self._gate, self._actions = CceAuthenticator(self.ring, cloud.clock), CceHandlers(cloud, self.ring)

    def served(self, incoming: Incoming) -> Answer:
        """Handle one HTTP request. An error in the emulator is recorded in `crashes`, and the client gets a 500."""
        try:
            return self.handle(incoming)
        except Exception:
            self.crashes.append(traceback.format_exc())
            return self._refusal(CceRefusedError(500, "CCE.01500001", "the emulation has crashed"))

    def handle(self, incoming: Incoming) -> Answer:
        """Handle one parsed request."""
        with self.cloud.lock:
            self.cloud.step()
            route = find(incoming.method, incoming.path)
            fault, problem = self.faults.take(route.operation), None
            try:
                refused = refusal(fault) if fault is not None else None
                if refused is not None:
                    raise refused
                answer = self._do(incoming, route, lost=fault in (VendorFault.HANGS_UP, VendorFault.WEB_PAGE))
            except CceRefusedError as raised:
                problem, answer = raised, self._refusal(raised)
            self._note(incoming, route, answer.status, problem)
            for watch in self.watches:
                watch(incoming, answer)
            if fault is VendorFault.CUT_OFF and not answer.body:
                answer = Answer(answer.status, b"{}", answer.headers)  # an empty response cannot be truncated
            return spoilt(answer, fault)

    def _do(self, incoming: Incoming, route: CceRoute, *, lost: bool) -> Answer:
        if not route.operation:
            raise CceRefusedError(
                404, "APIGW.0101", "The API does not exist or has not been published in the environment"
            )
        key = self._gate.admit(incoming, route.action)
        self.throttle.count(route.operation)
        if lost and route.operation in WRITES:
            return Answer(500, b"", _JSON)  # never received: the connection fault discards it
        asked = CceRequest(route.ids, key, dict(incoming.query()), incoming.body)
        status, found = self._actions.do(route.operation, asked)
        return Answer(status, b"" if found is None else json.dumps(found).encode(), _JSON)

    def _refusal(self, problem: CceRefusedError) -> Answer:
        request = f"{len(self.log):032x}"
        headers = {**(_PAGE if self.form == "page" else _JSON), "X-Request-Id": request}
        if problem.retry_after is not None:
            headers["Retry-After"] = str(problem.retry_after)
        return Answer(problem.status, problem.body(self.form, request), headers)

    def _note(self, incoming: Incoming, route: CceRoute, status: int, problem: CceRefusedError | None) -> None:
        claimed = claim(incoming)
        if claimed is not None:
            self.seen.add(claimed.signature)
        code, message = (problem.code, problem.message) if problem is not None else ("", "")
        self.log.append(
            CceLoggedRequest(
                incoming.method,
                route.operation,
                incoming.target,
                incoming.body.decode("utf-8", "replace"),
                claimed.key if claimed else "",
                status,
                self.cloud.clock(),
                route.action,
                code,
                message,
            )
        )
