"""The wire: a zone's API without the provider. A client with its own signing, and the vendor's
OpenAPI document with which all traffic is compared.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib.resources
import json
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlencode

import msgspec

from infra.emulators.controllers.clock import ManualClock
from infra.emulators.exoscale.account import Zone
from infra.emulators.exoscale.models import ExoscaleDurations
from infra.emulators.exoscale.server import ROOT, ExoscaleDispatcher
from infra.emulators.vendor_common.http_messages import Answer, Incoming
from tests.providers.openapi import Checker, Document

START = 1_800_000_000.0
KEY, SECRET = "EXO-EXAMPLE-KEY-0001", "example-secret-0001"


@cache
def document() -> Document:
    """Returns the document, compiled once per process. One rule is relaxed: an Instance
    Pool's size may be 0, because the hidden pool of a Nodepool that was scaled to 0 (which
    is allowed) has that size."""
    found = msgspec.json.decode(
        (importlib.resources.files("exoscale") / "openapi.json").read_bytes()
    )
    found["components"]["schemas"]["instance-pool"]["properties"]["size"]["exclusiveMinimum"] = (
        False
    )
    return Document(found, prefix=ROOT)


def checker() -> Checker:
    """A new one for each test."""
    return Checker(document())


class ZoneClient:
    """A zone and its API without a network: tests build requests themselves. All traffic is
    compared with the document."""

    def __init__(self, times: ExoscaleDurations | None = None) -> None:
        self.clock = ManualClock(START)
        self.zone = Zone(self.clock, times=times)
        self.front = ExoscaleDispatcher(self.zone)
        self.front.ring.add(KEY, SECRET)
        self.checker = checker()
        self.front.watches.append(self.checker.watch)

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        key: str = KEY,
        secret: str = SECRET,
    ) -> Answer:
        """Sends one signed request."""
        raw = b"" if body is None else json.dumps(body).encode()
        return self.front.served(
            signed(
                method,
                f"/v2{path}",
                raw,
                query or {},
                key=key,
                secret=secret,
                expires=int(self.clock()) + 600,
            )
        )

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        status: int = 200,
    ) -> dict[str, Any]:
        """Returns the body of an answer that must have that status."""
        answer = self.send(method, path, body, query=query)
        assert answer.status == status, answer.body
        found: dict[str, Any] = json.loads(answer.body)
        return found

    def after(self, seconds: float) -> None:
        """Advances the clock."""
        self.clock.advance(seconds)
        self.zone.step()


def signed(
    method: str,
    path: str,
    body: bytes,
    query: Mapping[str, str],
    *,
    key: str = KEY,
    secret: str = SECRET,
    expires: int,
) -> Incoming:
    """Builds a request signed with EXO2-HMAC-SHA256."""
    values = "".join(query[name] for name in sorted(query))
    text = b"\n".join(
        (f"{method} {path}".encode(), body, values.encode(), b"", str(expires).encode())
    )
    found = base64.b64encode(hmac.new(secret.encode(), text, hashlib.sha256).digest()).decode()
    names = f",signed-query-args={';'.join(sorted(query))}" if query else ""
    headers = {
        "authorization": (
            f"EXO2-HMAC-SHA256 credential={key}{names},expires={expires},signature={found}"
        )
    }
    if body:
        headers["content-type"] = "application/json"
    return Incoming(method, f"{path}?{urlencode(query)}" if query else path, headers, body)
