"""Processes every call of the emulated API: token, rate limit, permission, action, log."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import msgspec

from infra.emulators.cherryservers.account import CherryCloud
from infra.emulators.cherryservers.errors import missing
from infra.emulators.cherryservers.fault_injection import LIMIT, OVER_LIMIT, REFUSALS, RETRY_AFTER, WRITES
from infra.emulators.cherryservers.handlers import CherryHandlers, CherryRequest, Told
from infra.emulators.vendor_common.dispatcher import VendorDispatcher
from infra.emulators.vendor_common.errors import VendorRefusedError
from infra.emulators.vendor_common.fault_injection import NEVER_RECEIVED, VendorFault, VendorFaults
from infra.emulators.vendor_common.http_messages import Answer, Incoming, spoilt
from infra.emulators.vendor_common.throttle import VendorThrottle

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


class CherryDispatcher(VendorDispatcher[CherryLoggedRequest]):
    """The API of an account.

    tokens: text -> permissions. arrived: notified of each call. bodies: bodies of creations, unchanged. redirect:
    target to which all reads are redirected, "" for none. counts: lists contain their total length. wordy: errors have
    the form `errors`/`error` that upstream decodes. typed: empty responses have a content type. hidden: rows that lists
    count but do not show. shaped: transforms successful responses.
    """

    def __init__(self, cloud: CherryCloud) -> None:
        super().__init__(
            cloud,
            VendorFaults(WRITES, REFUSALS, retry_after=RETRY_AFTER),
            VendorThrottle(cloud.clock, OVER_LIMIT),
            VendorRefusedError(500, "the emulation has crashed"),
        )
        self.throttle.limits[""] = LIMIT
        self.cloud, self.actions = cloud, CherryHandlers(cloud)
        self.tokens: dict[str, Token] = {}
        self.arrived = threading.Condition()
        self.bodies: list[bytes] = []
        self.redirect = ""
        self.counts, self.wordy, self.typed, self.hidden = True, False, False, 0
        self.shaped: Callable[[object], object] = lambda body: body

    def handle(self, incoming: Incoming) -> Answer:
        """Handle one parsed request."""
        path = incoming.path.removeprefix(VERSION)
        found = self.actions.find(incoming.method, path) if incoming.path.startswith(f"{VERSION}/") else None
        action, names, does = found or ("", (), _nothing)
        asked, fault = CherryRequest(names, incoming.query(), incoming.body), self.faults.take(action)
        about = self.actions.about(action, asked) if action in WRITES else ""
        if action == "create_server":
            self.bodies.append(incoming.body)
        try:
            answer = self._answer(incoming, action, fault, lambda: does(asked))
        except VendorRefusedError as problem:
            answer = self.refusal(problem)
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
        self.faults.refuse(fault)
        if fault in NEVER_RECEIVED:
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
            raise VendorRefusedError(401, "Invalid credentials")
        self.throttle.count(text)
        if action in WRITES and not token.writes:
            raise VendorRefusedError(403, "You are not allowed to perform this action.")

    def _told(self, told: Told) -> Answer:
        total = None if told.total is None or not self.counts else told.total + self.hidden
        headers = {} if total is None else {"X-Total-Count": str(total)}
        if told.body is None:
            return Answer(told.status, b"", headers if self.typed else {**headers, "Content-Type": ""})
        return Answer(told.status, json.dumps(self.shaped(told.body)).encode(), headers)

    def refusal(self, problem: VendorRefusedError) -> Answer:
        """Return the response of an error."""
        body: dict[str, object] = {"code": problem.status, "message": problem.message}
        if self.wordy:
            body = {"errors": [problem.message], "error": problem.message}
        after = {} if problem.retry_after is None else {"Retry-After": str(problem.retry_after)}
        return Answer(problem.status, json.dumps(body).encode(), after)


def _nothing(asked: CherryRequest) -> Told:
    """Return the error for an unknown path."""
    del asked
    raise missing("Page")
