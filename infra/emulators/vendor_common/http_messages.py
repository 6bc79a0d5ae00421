"""Requests and responses of an emulated vendor, connection faults of a response, and
routes by method and path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import parse_qsl, urlsplit

import msgspec

from infra.emulators.vendor_common.fault_injection import VendorFault

Pairs = Sequence[tuple[str, str]]
_PAGE = b"<!DOCTYPE html><html><body><h1>Sign in to the network</h1></body></html>"


class Incoming(msgspec.Struct, frozen=True):
    """A received request. target: path and query. headers: names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def line(self) -> str:
        """Return `PUT /v2/pool/7`, with the query, and at the end the
        action if it is in a header."""
        return " ".join(
            part
            for part in (self.method, self.target, self.headers.get("x-acs-action", ""))
            if part
        )

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    def query(self) -> Pairs:
        return parse_qsl(urlsplit(self.target).query, keep_blank_values=True)

    def form(self) -> Pairs:
        if "x-www-form-urlencoded" not in self.headers.get("content-type", ""):
            return []
        return parse_qsl(self.body.decode("utf-8", "replace"), keep_blank_values=True)

    def parameters(self) -> dict[str, str]:
        return {**dict(self.query()), **dict(self.form())}


class Answer(msgspec.Struct, frozen=True):
    """A response. headers: one without a value is not sent, which removes the default Content-Type.
    cut: bytes omitted at the end although they are announced. hang_up: no response at all."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}
    cut: int = 0
    hang_up: bool = False


def scripted(
    status: int = 200, body: object = b"", headers: Mapping[str, str] | None = None, cut: int = 0
) -> Answer:
    """Build an answer. body: bytes and text are sent unchanged as plain
    text, anything else as JSON."""
    if isinstance(body, str | bytes):
        raw, kind = body.encode() if isinstance(body, str) else body, "text/plain"
    else:
        raw, kind = json.dumps(body).encode(), "application/json"
    return Answer(status, raw, {"Content-Type": kind, **(headers or {})}, cut)


NO_ANSWER = Answer(0, b"", hang_up=True)


def spoilt(answer: Answer, fault: VendorFault | None) -> Answer:
    if fault is VendorFault.WEB_PAGE:
        return Answer(200, _PAGE, {"Content-Type": "text/html; charset=utf-8"})
    if fault is VendorFault.CUT_OFF:
        return msgspec.structs.replace(answer, cut=max(1, len(answer.body) // 2))
    if fault in (VendorFault.HANGS_UP, VendorFault.LOST_ANSWER):
        return msgspec.structs.replace(answer, hang_up=True)
    return answer


UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class VendorRoute(msgspec.Struct, frozen=True):
    """operation: "" if unknown. action: the permission it needs. ids: from the path, by
    their names in the table."""

    operation: str = ""
    action: str = ""
    ids: Mapping[str, str] = {}


class VendorRoutes:
    """Finds the operation of a request.

    paths: (method, path, operation, action); `{name}` in a path stands for an id.
    value: pattern of an id.
    """

    def __init__(self, paths: Iterable[tuple[str, str, str, str]], *, value: str = "[^/]*") -> None:
        self._table = [
            (method, _pattern(path, value), operation, action, re.findall(r"\{([a-z-]+)\}", path))
            for method, path, operation, action in paths
        ]

    def find(self, method: str, path: str) -> VendorRoute:
        for known, pattern, operation, action, names in self._table:
            found = pattern.fullmatch(path) if known == method else None
            if found is not None:
                return VendorRoute(operation, action, dict(zip(names, found.groups(), strict=True)))
        return VendorRoute()


def _pattern(path: str, value: str) -> re.Pattern[str]:
    return re.compile(f"({value})".join(map(re.escape, re.split(r"\{[a-z-]+\}", path))))
