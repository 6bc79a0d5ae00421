"""An emulated project on a test clock without a network, and operations as a plan builds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from chalicelib.model.group import NodeGroup
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.providers.kit.errors import Conflict, ProviderError, Throttled, Transient
from chalicelib.store.vendor_calls import SharedCache
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.huaweicloud.account import PROJECT, CceCloud
from infra.emulators.huaweicloud.dispatcher import CceDispatcher
from infra.emulators.huaweicloud.models import CceDurations
from infra.emulators.memory_table import MemoryAccount
from infra.emulators.vendor_common.http_messages import Answer, Incoming
from tests.operations import ask, new_operation
from tests.providers.huaweicloud.fixture import HuaweiBench

START = 1_800_000_000.0
TOKEN = "MIIexampletoken"
_MOST = 60


class ProjectClient:
    """A project with one cluster and its API: tests build requests themselves, with a token."""

    def __init__(self, times: CceDurations | None = None) -> None:
        self.clock = ManualClock(START)
        self.cloud = CceCloud(self.clock, times=times)
        self.cluster = self.cloud.add_cluster("prod").uid
        self.front = CceDispatcher(self.cloud)
        self.front.ring.tokens[TOKEN] = self.front.ring.add(
            "AKIDEXAMPLE00000DESK", "SKEXAMPLEofthedesk"
        )
        self.base = f"/api/v3/projects/{PROJECT}/clusters/{self.cluster}"

    def send(
        self, method: str, path: str, body: object = None, *, query: Mapping[str, str] | None = None
    ) -> Answer:
        """Sends one request. path: below the cluster's, or from the root if it begins with `//`."""
        raw = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        place = path[1:] if path.startswith("//") else f"{self.base}{path}"
        target = f"{place}?{urlencode(query)}" if query else place
        return self.front.served(
            Incoming(method, target, {"host": "cce.example.com", "x-auth-token": TOKEN}, raw)
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
        found: dict[str, Any] = json.loads(answer.body or b"{}")
        return found

    def scale(
        self, pool: str, total: int, *groups: str, status: int = 200, **options: str
    ) -> dict[str, Any]:
        """Scales to an absolute total."""
        spec = {"desiredNodeCount": total, "scaleGroups": list(groups), "options": options}
        return self.ask(
            "POST",
            f"/nodepools/{pool}/operation/scale",
            {"kind": "NodePool", "apiVersion": "v3", "spec": spec},
            status=status,
        )

    def pool(self, uid: str) -> dict[str, Any]:
        """Returns the pool as the list shows it."""
        listed = self.ask("GET", "/nodepools", query={"advanceStatus": "true"})["items"]
        return next(each for each in listed if each["metadata"]["uid"] == uid)

    def nodes(self) -> list[dict[str, Any]]:
        """Returns all nodes."""
        return list(self.ask("GET", "/nodes")["items"])

    def after(self, seconds: float) -> None:
        """Advances the clock."""
        self.clock.advance(seconds)
        self.cloud.step()


def order(
    bench: HuaweiBench,
    kind: OperationKind,
    group: str,
    start: int,
    end: int,
    *handles: str,
    op: str = "op-0123456789abcdef",
) -> Operation:
    """Builds an operation. handles: the nodes to remove."""
    names = {node.provider_id: node.name for node in bench.nodes()}
    targets = tuple(RemovalTarget(names.get(each, ""), each, each) for each in handles)
    now = bench.now()
    return new_operation(
        id=op,
        cluster="ours",
        provider="huaweicloud",
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


def tried(bench: HuaweiBench, operation: Operation) -> Outcome | ProviderError:
    """Calls a newly built provider; an error that it raises is returned as the answer."""
    try:
        return ask(bench.provider(), operation)
    except ProviderError as error:
        return error


def carried(operation: Operation, outcome: object) -> Operation:
    """Returns the operation as the table stores it after InProgress."""
    assert isinstance(outcome, InProgress), outcome
    return operation.with_status(step=outcome.step, data=outcome.data)


def drive(bench: HuaweiBench, operation: Operation) -> Outcome:
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
        operation = carried(operation, outcome)
        bench.settle(max(1.0, outcome.after))
    raise AssertionError(f"not over after {_MOST} steps: {outcome}")


def seen(bench: HuaweiBench, group: str) -> NodeGroup:
    """Returns the group as the next reconcile pass reads it."""
    return {each.id: each for each in bench.provider().observe(bench.nodes()).groups}[group]


def scalings(bench: HuaweiBench) -> list[tuple[int, list[str]]]:
    """Returns the totals and groups that were requested since the previous call."""
    specs = [
        json.loads(call.body)["spec"] for call in bench.look() if call.operation == "scale-pool"
    ]
    return [(spec["desiredNodeCount"], spec["scaleGroups"]) for spec in specs]


def shared_cache(bench: HuaweiBench) -> SharedCache:
    """Returns a cache in a table, as all functions of a deployment share it."""
    store = MemoryAccount().store(
        "huaweicloud", clock=bench.clock, sleep=lambda _: None, chance=lambda: 0.5
    )
    return store.cache
