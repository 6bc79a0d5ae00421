"""Processes every call of the emulated API: token, rate limit, permission, action, log."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable

import msgspec

from infra.emulators.cherryservers.account import CherryCloud
from infra.emulators.cherryservers.errors import CherryRefusedError, missing
from infra.emulators.cherryservers.fault_injection import RETRY_AFTER, WRITES, CherryThrottle, refusal
from infra.emulators.cherryservers.handlers import CherryHandlers, CherryRequest, Told
from infra.emulators.vendor_common.fault_injection import VendorFault, VendorFaults
from infra.emulators.vendor_common.http_messages import Answer, Incoming, spoilt

VERSION = "/v1"


class Token(msgspec.Struct):
    """An API token of the account. writes: it permits changes. active: it is accepted."""

    writes: bool = True
    active: bool = True


class CherryLoggedRequest(msgspec.Struct, frozen=True):
    """One call. path: without version and query. about: the subject of a change. at: epoch seconds. It contains nothing
    of the credential."""

    method: str
    path: str
    query: str
    action: str
    status: int
    at: float
    agent: str = ""
    about: str = ""

    @property
    def writes(self) -> bool:
        """Return whether it requests a change."""
        return self.action in WRITES

    @property
    def line(self) -> str:
        """Return it as a line."""
        return " ".join(
            part for part in (self.method, self.path + (f"?{self.query}" if self.query else ""), self.about) if part
        )


class CherryDispatcher:
    """The API of an account.

    tokens: text -> permissions. log: all calls. arrived: notified of each call. bodies: bodies of creations, unchanged.
    redirect: target to which all reads are redirected, "" for none. retry_after: seconds that an injected throttling
    returns. counts: lists contain their total length. wordy: errors have the form `errors`/`error` that upstream
    decodes. typed: empty responses have a content type. hidden: rows that lists count but do not show. shaped:
    transforms successful responses.
    """

    def __init__(self, cloud: CherryCloud) -> None:
        self.cloud, self.actions = cloud, CherryHandlers(cloud)
        self.faults, self.throttle = VendorFaults(WRITES), CherryThrottle(cloud.clock)
        self.tokens: dict[str, Token] = {}
        self.log: list[CherryLoggedRequest] = []
        self.arrived = threading.Condition()
        self.bodies: list[bytes] = []
        self.redirect, self.retry_after = "", RETRY_AFTER
        self.counts, self.wordy, self.typed, self.hidden = True, False, False, 0
        self.shaped: Callable[[object], object] = lambda body: body
        self.crashes: list[str] = []

    def served(self, incoming: Incoming) -> Answer:
        """Handle one HTTP request. An error in the emulator is recorded in `crashes`, and the client gets a 500."""
        try:
            with self.cloud.lock:
                self.cloud.step()
                return self._call(incoming)
        except Exception:
            self.crashes.append(traceback.format_exc())
            return self._refusal(CherryRefusedError(500, "the emulation has crashed"))

    def _call(self, incoming: Incoming) -> Answer:
        path = incoming.path.removeprefix(VERSION)
        found = self.actions.find(incoming.method, path) if incoming.path.startswith(f"{VERSION}/") else None
        action, names, does = found or ("", (), _nothing)
        asked, fault = CherryRequest(names, incoming.query(), incoming.body), self.faults.take(action)
        about = self.actions.about(action, asked) if action in WRITES else ""
        if action == "create_server":
            self.bodies.append(incoming.body)
        try:
            answer = self._answer(incoming, action, fault, lambda: does(asked))
        except CherryRefusedError as problem:
            answer = self._refusal(problem)
        self.log.append(
            CherryLoggedRequest(
                incoming.method,
                path,
                incoming.target.partition("?")[2],
                action,
                answer.status,
                self.cloud.clock(),
                incoming.headers.get("user-agent", ""),
                about,
            )
        )
        with self.arrived:
            self.arrived.notify_all()
        # A response without a body cannot be truncated, so it is not sent at all.
        return spoilt(answer, VendorFault.LOST_ANSWER if fault is VendorFault.CUT_OFF and not answer.body else fault)

    def _answer(self, incoming: Incoming, action: str, fault: VendorFault | None, does: Callable[[], Told]) -> Answer:
        refused = refusal(fault, self.retry_after) if fault is not None else None
        if refused is not None:
            raise refused
        if fault in (VendorFault.HANGS_UP, VendorFault.WEB_PAGE):
            return Answer(200, b"")
        if self.redirect and incoming.method == "GET":
            return Answer(301, b"", {"Location": self.redirect, "Content-Type": ""})
        self._admit(incoming.headers.get("authorization", ""), action)
        return self._told(does())

    def _admit(self, authorization: str, action: str) -> None:
        """Admit the call. Raises Refused if the token is invalid, exceeds the rate limit, or lacks the permission."""
        kind, _, text = authorization.partition(" ")
        token = self.tokens.get(text) if kind == "Bearer" else None
        if token is None or not token.active:
            raise CherryRefusedError(401, "Invalid credentials")
        self.throttle.count(text)
        if action in WRITES and not token.writes:
            raise CherryRefusedError(403, "You are not allowed to perform this action.")

    def _told(self, told: Told) -> Answer:
        total = None if told.total is None or not self.counts else told.total + self.hidden
        headers = {} if total is None else {"X-Total-Count": str(total)}
        if told.body is None:
            return Answer(told.status, b"", headers if self.typed else {**headers, "Content-Type": ""})
        return Answer(told.status, json.dumps(self.shaped(told.body)).encode(), headers)

    def _refusal(self, problem: CherryRefusedError) -> Answer:
        body: dict[str, object] = {"code": problem.status, "message": problem.message}
        if self.wordy:
            body = {"errors": [problem.message], "error": problem.message}
        after = {} if problem.retry_after is None else {"Retry-After": str(problem.retry_after)}
        return Answer(problem.status, json.dumps(body).encode(), after)


def _nothing(asked: CherryRequest) -> Told:
    """Return the error for an unknown path."""
    del asked
    raise missing("Page")
