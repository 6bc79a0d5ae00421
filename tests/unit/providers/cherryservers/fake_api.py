"""Cherry Servers in a dictionary: lists that lag, orders with lost answers, and no HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget, operation_id
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.model.secret import Secret
from chalicelib.policy.vendors.cherryservers import read_settings
from chalicelib.providers.cherryservers.api import CherryApi
from chalicelib.providers.cherryservers.decoding import CherryPlan, CherryServer, CreateServer, UnreadableServer
from chalicelib.providers.cherryservers.definition_reader import read_definitions
from chalicelib.providers.cherryservers.instances import CherryContext, DeletedServers, lister
from chalicelib.providers.cherryservers.provider import CherryServers
from chalicelib.providers.cherryservers.tokens import Token
from chalicelib.providers.errors import NotFound, ProviderError, Throttled, Transient, Unauthorized
from chalicelib.providers.services import KubeLists
from tests.operations import new_operation

CLUSTER, POOL = "cluster2", "pool3"
CONFIG = """\
[nodegroupdef "default"]
project-id=10001
region=eu_nord_1
plan=e5_1620v4
os=ubuntu_18_04
"""
LOST, DROPPED, LATE = "lost", "dropped", "late"
"""What becomes of an order besides an error: it is carried out and its answer is lost, it never arrives, or it arrives
only after some more lists."""
_STOPS = (Unauthorized, Throttled)


class MemoryCache:
    """Keeps everything until it expires."""

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.rows.get(key)

    def put(self, key: str, value: bytes, seconds: float) -> None:
        del seconds
        self.rows[key] = value


class FakeCloud(CherryApi):
    """One project. fates: of the next orders, "" for success. trouble: method -> errors of the next calls. lag: lists
    for
    which a new server is not shown; stale: for which a deleted one is shown as before."""

    def __init__(self, *, stock: int | None = None, lag: int = 0, stale: int = 0) -> None:
        self.project = 10001
        self.all: dict[int, CherryServer] = {}
        self.calls: list[str] = []
        self.fates: list[str | ProviderError] = []
        self.trouble: dict[str, list[ProviderError]] = {}
        self.stock, self.lag, self.stale = stock, lag, stale
        self.plans: dict[str, CherryPlan] = {}
        self.orders: list[CreateServer] = []
        self.deleted: list[int] = []
        self.shared_cache = MemoryCache()
        self.time = 1_000_000.0
        self._hidden: dict[int, int] = {}
        self._ghosts: dict[int, tuple[CherryServer, int]] = {}
        self._late: list[tuple[int, CreateServer]] = []
        self._number = 1000

    def add(self, size: int = 1, pool: str = POOL, **more: Any) -> list[int]:
        """Adds existing servers, one for each name."""
        return [
            self._put(
                f"{pool}-{self._number}",
                {"k8s-cluster": CLUSTER, "k8s-nodepool": pool},
                **{"state": "active", "status": "deployed", **more},
            )
            for _ in range(size)
        ]

    def change(self, number: int, **more: Any) -> None:
        self.all[number] = msgspec.structs.replace(self.all[number], **more)

    def posts(self) -> list[str]:
        return [call for call in self.calls if call.startswith("create")]

    def writes(self) -> list[str]:
        return [call for call in self.calls if call.startswith(("create", "delete", "tag"))]

    def alive(self, pool: str = POOL) -> list[int]:
        return sorted(
            number
            for number, each in self.all.items()
            if each.tags.get("k8s-nodepool") == pool and each.state != "terminating"
        )

    # the calls

    def servers(self, odd: list[UnreadableServer] | None = None) -> tuple[CherryServer, ...]:
        del odd
        self._call("servers")
        self._arrive()
        shown = {**{number: server for number, (server, _) in self._ghosts.items()}, **self.all}
        shown = {number: server for number, server in shown.items() if not self._hidden.get(number)}
        self._hidden = {number: left - 1 for number, left in self._hidden.items() if left > 0}
        self._ghosts = {number: (server, left - 1) for number, (server, left) in self._ghosts.items() if left > 1}
        return tuple(shown.values())

    def server(self, number: int) -> CherryServer:
        self._call("server", str(number))
        if number not in self.all:
            raise NotFound(f"GET servers/{number}: 404", code="404")
        return self.all[number]

    def create(self, bodies: Sequence[CreateServer]) -> tuple[CherryServer | ProviderError | None, ...]:
        results: list[CherryServer | ProviderError | None] = []
        for body in bodies:
            stopped = any(isinstance(each, _STOPS) for each in results)
            results.append(None if stopped else self._order(body))
        return tuple(results)

    def delete(self, number: int) -> None:
        self._call("delete", str(number))
        if number not in self.all:
            raise NotFound(f"DELETE servers/{number}: 404", code="404")
        server = self.all.pop(number)
        self.deleted.append(number)
        if self.stale:
            self._ghosts[number] = server, self.stale

    def plan(self, slug: str, *, fresh: bool = False) -> CherryPlan | None:
        self._call("plan", f"{slug}{' fresh' if fresh else ''}")
        if self.plans:
            return self.plans.get(slug)
        stock = 1000 if self.stock is None else self.stock
        return msgspec.convert(
            {
                "id": 1,
                "slug": slug,
                "name": "E5 1620v4",
                "specs": {
                    "cpus": {"count": 1, "cores": 4},
                    "memory": {"total": 32, "unit": "GB"},
                    "storage": [{"count": 2, "size": 240, "unit": "GB"}],
                },
                "pricing": [{"price": 0.1, "unit": "Hourly", "currency": "EUR"}],
                "available_regions": [{"id": 1, "slug": "eu_nord_1", "stock_qty": stock, "spot_qty": stock}],
            },
            CherryPlan,
        )

    def tag(self, number: int, tags: Mapping[str, str]) -> None:
        self._call("tag", str(number))
        if number not in self.all:
            raise NotFound("404")
        self.change(number, tags=dict(tags))

    def expect(self, calls: int) -> None:
        del calls

    # behaviour of the vendor

    def _call(self, method: str, text: str = "") -> None:
        self.calls.append(f"{method} {text}".strip())
        if self.trouble.get(method):
            raise self.trouble[method].pop(0)

    def _put(self, hostname: str, tags: Mapping[str, str], **more: Any) -> int:
        number, self._number = self._number, self._number + 1
        self.all[number] = CherryServer(number, f"server-{number}", hostname, tags=dict(tags), **more)
        return number

    def _make(self, body: CreateServer) -> CherryServer:
        number = self._put(body.hostname, body.tags, state="pending", status="deploying")
        self._hidden[number] = self.lag
        if self.stock is not None:
            self.stock -= 1
        return self.all[number]

    def _order(self, body: CreateServer) -> CherryServer | ProviderError:
        self.calls.append(f"create {body.hostname}")
        self.orders.append(body)
        fate = self.fates.pop(0) if self.fates else ""
        if isinstance(fate, ProviderError):
            return fate
        if fate == LATE:
            self._late.append((2, body))
        elif fate != DROPPED:
            server = self._make(body)
        return Transient("no answer") if fate else server

    def _arrive(self) -> None:
        for _, body in (each for each in self._late if each[0] <= 0):
            self._make(body)
        self._late = [(left - 1, body) for left, body in self._late if left > 0]


class _ServerPage(msgspec.Struct, frozen=True):
    body: bytes
    first: bool = True


class FakeKube:
    """The cluster's nodes as (name, provider id, labels)."""

    def __init__(self, *nodes: tuple[str, str, dict[str, str]]) -> None:
        self.nodes = nodes
        self.selectors: list[str] = []
        self.error: Exception | None = None

    def list_pages(self, path: str, *, query: Mapping[str, str] | None = None) -> Iterator[_ServerPage]:
        assert path == "/api/v1/nodes"
        if self.error is not None:
            raise self.error
        selector = (query or {}).get("labelSelector", "")
        self.selectors.append(selector)
        yield _ServerPage(
            msgspec.json.encode(
                {
                    "items": [
                        {"metadata": {"name": name, "labels": labels}, "spec": {"providerID": number} if number else {}}
                        for name, number, labels in self.nodes
                        if not selector or selector in labels
                    ]
                }
            )
        )


class FixedTokens:
    """One token; counts the requests for it."""

    def __init__(self) -> None:
        self.asked = 0

    def current(self) -> Token:
        self.asked += 1
        return Token("exampl", Secret("examplesecret000"))


def provider(
    cloud: FakeCloud,
    *specs: str,
    config: str = CONFIG,
    kube: KubeLists | None = None,
    tokens: FixedTokens | None = None,
    **more: str,
) -> CherryServers:
    """A new provider on the cloud; specs in upstream's form."""
    settings = read_settings(
        {
            "credentialsSecret": "cherry",
            "clusterName": CLUSTER,
            "cloudConfig": config,
            "bootstrapTokenSecret": "token",
            "nodes": "\n".join(specs or (f"0:10:{POOL}", "0:10:pool2")),
            **more,
        }
    )
    return CherryServers(
        CherryContext(
            settings,
            read_definitions=lambda: read_definitions(settings, lambda name: name),
            open_api=lambda _: cloud,
            open_gone=lambda project: DeletedServers(cloud.shared_cache, project, lambda: cloud.time),
            open_tokens=lambda: tokens or FixedTokens(),
            nodes=None if kube is None else lister(kube),
        )
    )


def grow(from_size: int, to_size: int, *, pool: str = POOL, plan: str = "p") -> Operation:
    return operation(OperationKind.SCALE_UP, pool, from_size, to_size, (), plan)


def remove(
    from_size: int, *targets: int | RemovalTarget, pool: str = POOL, kind: OperationKind = OperationKind.DELETE_NODES
) -> Operation:
    named = tuple(
        each
        if isinstance(each, RemovalTarget)
        else RemovalTarget(f"node-of-{each}", f"cherryservers://{each}", str(each))
        for each in targets
    )
    return operation(kind, pool, from_size, from_size - len(named), named, "p")


def operation(
    kind: OperationKind,
    pool: str,
    from_size: int,
    to_size: int,
    targets: tuple[RemovalTarget, ...] = (),
    plan: str = "p",
) -> Operation:
    name = operation_id("ours", pool, kind, from_size, to_size, tuple(each.node for each in targets), plan)
    return new_operation(name, "ours", "cherryservers", pool, kind, plan, 0.0, from_size, to_size, targets)


def claimed(asked: Operation) -> Operation:
    """Returns the operation as the executor claims it for its next step."""
    return asked.with_status(attempt=asked.status.attempt + 1)


def continued(asked: Operation, outcome: Outcome) -> Operation:
    """Returns the operation as the executor passes it to the next step."""
    assert isinstance(outcome, InProgress), outcome
    return claimed(asked.with_status(data=outcome.data, step=outcome.step))


def drive(cloud: FakeCloud, asked: Operation, *specs: str, **more: Any) -> Outcome:
    """Runs an operation to its end, a new provider and a new attempt for each step; temporary errors are retried."""
    verb = {OperationKind.SCALE_UP: "scale_up", OperationKind.DECREASE_TARGET: "decrease_target"}.get(
        asked.spec.kind, "delete_nodes"
    )
    current = claimed(asked)
    for _ in range(100):
        try:
            outcome: Outcome = getattr(provider(cloud, *specs, **more), verb)(current)
        except (Transient, Throttled):
            current = claimed(current)
            continue
        if not isinstance(outcome, InProgress):
            return outcome
        cloud.time += outcome.after
        current, verb = continued(current, outcome), "poll"
    raise AssertionError(f"{asked.spec.id} does not end")


def node(name: str, provider_id: str, **labels: str) -> Node:
    return Node(name, dict(labels), {}, provider_id=provider_id)


def names(bodies: Iterable[CreateServer]) -> list[str]:
    return [each.hostname for each in bodies]
