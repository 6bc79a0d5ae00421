"""An emulated zone on a test clock, a client for it with its own signing, and
operations as a plan builds them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from chalicelib.model.group import NodeGroup
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.providers.kit.errors import Conflict, Throttled, Transient
from chalicelib.store.vendor_calls import SharedCache
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.exoscale.account import Zone
from infra.emulators.exoscale.models import ExoscaleDurations
from infra.emulators.exoscale.server import ExoscaleDispatcher
from infra.emulators.memory_table import MemoryAccount
from infra.emulators.vendor_common.http_messages import Answer, Incoming
from tests.operations import ask, new_operation
from tests.providers.exoscale.openapi_document import checker
from tests.providers.provider_fixtures.exoscale import ExoscaleBench

START = 1_800_000_000.0
KEY, SECRET = "EXO-EXAMPLE-KEY-0001", "example-secret-0001"
_MOST = 60


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


def order(
    bench: ExoscaleBench,
    kind: OperationKind,
    group: str,
    start: int,
    end: int,
    *handles: str,
    op: str = "op-0123456789abcdef",
) -> Operation:
    """Builds an operation. handles: the instances to remove."""
    nodes = {node.provider_id: node.name for node in bench.nodes()}
    ids = [each if each.startswith("exoscale://") else f"exoscale://{each}" for each in handles]
    targets = tuple(
        RemovalTarget(nodes.get(id_, ""), id_, handle)
        for id_, handle in zip(ids, handles, strict=True)
    )
    now = bench.now()
    return new_operation(
        id=op,
        cluster="ours",
        provider="exoscale",
        group=group,
        kind=kind,
        plan="plan",
        created_at=now,
        from_size=start,
        to_size=end,
        due_at=now,
        deadline=now + 7200.0,
        targets=targets,
    )


def drive(bench: ExoscaleBench, operation: Operation) -> Outcome:
    """Runs an operation to its end; each step uses a newly built provider, as after a cold start.
    Temporary errors are retried after ten seconds."""
    for _ in range(_MOST):
        try:
            outcome = ask(bench.provider(), operation)
        except (Conflict, Throttled, Transient) as error:
            bench.settle(max(10.0, error.retry_after))
            continue
        if not isinstance(outcome, InProgress):
            return outcome
        operation = operation.with_status(step=outcome.step, data=outcome.data)
        bench.settle(max(1.0, outcome.after))
    raise AssertionError(f"not over after {_MOST} steps: {outcome}")


def seen(bench: ExoscaleBench, group: str) -> NodeGroup:
    """Returns the group as the next reconcile pass reads it."""
    return {each.id: each for each in bench.provider().observe(bench.nodes()).groups}[group]


def shared_cache(bench: ExoscaleBench) -> SharedCache:
    """Returns a cache in a table, as all functions of a deployment share it."""
    store = MemoryAccount().store(
        "exoscale", clock=bench.clock, sleep=lambda _: None, chance=lambda: 0.5
    )
    return store.cache
