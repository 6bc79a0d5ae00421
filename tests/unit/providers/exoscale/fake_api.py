"""One Exoscale zone in a dictionary: pools, Nodepools, operations and refusals as the vendor documents them, without
HTTP.

Changes are accepted at once and end at `step()`. A pool with more members than its size loses the oldest there, so that
a
wrong number costs a running machine: `chosen` names them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from chalicelib.kube.errors import Unavailable
from chalicelib.model.group import Instance as Machine
from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget, operation_id
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.policy.vendors.exoscale import read_settings
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, ProviderError, Transient, Unauthorized
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.decoding import (
    ExoscaleInstance,
    InstancePool,
    InstanceType,
    Manager,
    Nodepool,
    Quota,
    Ref,
    SksCluster,
    Work,
)
from chalicelib.providers.exoscale.provider import Exoscale
from chalicelib.providers.exoscale.provider_ids import checked
from chalicelib.providers.services import KubeLists
from tests.operations import new_operation

ZONE = "ch-gva-2"
MEDIUM = "b6cd1ff5-0000-4000-8000-000000000001"


def uuid(number: int, kind: str = "a") -> str:
    """Returns an id in the vendor's form, for examples only."""
    return f"{ord(kind):08x}-0000-4000-8000-{number:012d}"


A, B, C = uuid(1, "p"), uuid(2, "p"), uuid(3, "p")  # pools
NP_A, NP_B, NP_C = uuid(1, "n"), uuid(2, "n"), uuid(3, "n")  # the Nodepools that own them
OURS, THEIRS = uuid(1, "c"), uuid(2, "c")  # SKS clusters


@dataclass
class FakeApiPool:
    """One pool. cluster "": a standalone one. stock: machines that can still be created; None: any number. steps: how
    many
    steps a change takes. lag: an accepted change is visible only at its end."""

    id: str = A
    name: str = "web"
    cluster: str = OURS
    owner: str = NP_A
    size: int = 0
    state: str = "running"
    nodepool_state: str = "running"
    members: list[str] = field(default_factory=list)
    stock: int | None = None
    reason: str = "unavailable"
    steps: int = 1
    lag: bool = False
    more: dict[str, object] = field(default_factory=dict)
    nodepool: dict[str, object] = field(default_factory=dict)


@dataclass
class _Change:
    work: Work
    pool: str
    size: int | None
    evicted: tuple[str, ...] = ()
    left: int = 1


class FakeExoscaleApi(ExoscaleApi):
    """The calls on Pools. trouble: method -> errors of its next calls. lost: methods whose next answer is lost."""

    def __init__(self, *pools: FakeApiPool, quota: Quota | None = None) -> None:
        self.all = {pool.id: pool for pool in pools}
        self.machines: dict[str, ExoscaleInstance] = {}
        self.names = {OURS: "prod", THEIRS: "stage"}
        self.kinds: dict[str, InstanceType] = {
            MEDIUM: InstanceType(MEDIUM, "standard", "medium", 2, 4 * 2**30, zones=(ZONE,))
        }
        self.limit = quota or Quota("instance", 0, 100)
        self.calls: list[str] = []
        self.trouble: dict[str, list[ProviderError]] = {}
        self.denied: set[str] = set()
        self.lost: set[str] = set()
        self.works: dict[str, Work] = {}
        self.changes: list[_Change] = []
        self.chosen: list[str] = []  # machines that the vendor chose to delete
        self.evicted: list[str] = []  # machines that we named
        self._number = 0
        for pool in pools:
            self.fill(pool.id, pool.size)

    def fill(self, pool: str, size: int, state: str = "running") -> list[str]:
        """Adds machines without changing the size."""
        made = []
        for _ in range(size):
            self._number += 1
            name = uuid(self._number, "i")
            self.machines[name] = ExoscaleInstance(
                name, f"pool-{self._number}", state, manager=Manager(pool, "instance-pool")
            )
            self.all[pool].members.append(name)
            made.append(name)
        return made

    def set_state(self, name: str, state: str) -> None:
        self.machines[name] = msgspec.structs.replace(self.machines[name], state=state)

    def writes(self) -> list[str]:
        return [call for call in self.calls if call.startswith(("scale_", "evict_"))]

    def nodes(self, *pools: str) -> list[Node]:
        """Returns every machine of these pools (by default of all) as a node."""
        return [
            node(f"node-{name[-4:]}", f"exoscale://{name}", **self._labels(pool))
            for pool in self.all.values()
            if not pools or pool.id in pools
            for name in pool.members
        ]

    def _labels(self, pool: FakeApiPool) -> dict[str, str]:
        return {"node.exoscale.net/nodepool-id": pool.owner} if pool.cluster else {}

    # -- the calls

    @property
    def zone(self) -> str:
        return ZONE

    def expect(self, calls: int) -> None:
        del calls

    def instances(self) -> tuple[ExoscaleInstance, ...]:
        self._call("instances")
        return tuple(each for each in self.machines.values() if each.manager is not None)

    def instance(self, id: str) -> ExoscaleInstance:  # noqa: A002
        self._call("instance", id)
        if id not in self.machines:
            raise NotFound(f"no instance {id}", code="404")
        return self.machines[id]

    def pools(self) -> tuple[InstancePool, ...]:
        self._call("pools")
        return tuple(map(self._pool, self.all.values()))

    def pool(self, id: str) -> InstancePool:  # noqa: A002
        self._call("pool", id)
        if id not in self.all:
            raise NotFound(f"no pool {id}", code="404")
        return self._pool(self.all[id])

    def clusters(self) -> tuple[SksCluster, ...]:
        self._call("clusters")
        found: dict[str, list[Nodepool]] = {}
        for pool in self.all.values():
            if pool.cluster:
                found.setdefault(pool.cluster, []).append(self._nodepool(pool))
        return tuple(SksCluster(name, self.names[name], "running", tuple(each)) for name, each in found.items())

    def quota(self) -> Quota:
        self._call("quota")
        return self.limit

    def quota_now(self) -> Quota:
        return self.quota()

    def instance_types(self, ids: Iterable[str]) -> dict[str, InstanceType | None]:
        self._call("instance_types", counted=False)
        return {name: self.kinds.get(name) for name in ids}

    def work(self, id: str) -> Work:  # noqa: A002
        self._call("work", checked(id, "operation"))
        if id not in self.works:
            raise NotFound("no operation", code="404")
        return self.works[id]

    def scale_pool(self, pool: str, size: int) -> Work:
        assert not self.all[pool].cluster, "SKS owns this pool"
        return self._change("scale_pool", self.all[pool], size, ())

    def evict_pool(self, pool: str, instances: Sequence[str]) -> Work:
        assert not self.all[pool].cluster, "SKS owns this pool"
        return self._change("evict_pool", self.all[pool], None, tuple(instances))

    def scale_nodepool(self, cluster: str, nodepool: str, size: int) -> Work:
        return self._change("scale_nodepool", self._owned(cluster, nodepool), size, ())

    def evict_nodepool(self, cluster: str, nodepool: str, instances: Sequence[str]) -> Work:
        return self._change("evict_nodepool", self._owned(cluster, nodepool), None, tuple(instances))

    # -- behaviour of the vendor

    def _owned(self, cluster: str, nodepool: str) -> FakeApiPool:
        return next(each for each in self.all.values() if (each.cluster, each.owner) == (cluster, nodepool))

    def _call(self, method: str, text: str = "", *, counted: bool = True) -> None:
        if counted:
            self.calls.append(f"{method} {text}".strip())
        if method in self.denied:
            raise forbidden(method)
        if self.trouble.get(method):
            raise self.trouble[method].pop(0)

    def _change(self, method: str, pool: FakeApiPool, size: int | None, evicted: tuple[str, ...]) -> Work:
        self._call(method, f"{pool.name} {size}" if size is not None else f"{pool.name} {' '.join(evicted)}")
        if any(change.pool == pool.id for change in self.changes) or "ing" in pool.state.removeprefix("running"):
            raise Conflict("another operation runs on the pool", code="409")
        if strange := set(evicted) - set(pool.members):
            raise InvalidRequest(f"{sorted(strange)} are no members", code="400")
        self._number += 1
        work = Work(uuid(self._number, "w"), "pending")
        change = _Change(work, pool.id, size, evicted, pool.steps)
        self.works[work.id] = work
        self.changes.append(change)
        if not pool.lag:
            self._take_up(change)
        if method in self.lost:
            self.lost.discard(method)
            raise Transient("the answer was lost")
        return work

    def _take_up(self, change: _Change) -> None:
        pool = self.all[change.pool]
        before = pool.size
        if change.size is not None:
            pool.size = change.size
        else:
            pool.size -= len(change.evicted)
            self.evicted += change.evicted
            for name in change.evicted:
                self.set_state(name, "destroying")
        pool.state = "scaling-up" if pool.size > before else "scaling-down"
        pool.nodepool_state = "scaling"

    def step(self, times: int = 1) -> None:
        """Advances changes in progress by one step."""
        for _ in range(times):
            for change in list(self.changes):
                change.left -= 1
                if change.left <= 0:
                    self.changes.remove(change)
                    self._finish(change)

    def _finish(self, change: _Change) -> None:
        pool = self.all[change.pool]
        if pool.lag:
            self._take_up(change)
        for name in change.evicted:
            pool.members.remove(name)
            del self.machines[name]
        for name in pool.members[: max(0, len(pool.members) - pool.size)]:
            self.chosen.append(name)
            pool.members.remove(name)
            del self.machines[name]
        wanted = pool.size - len(pool.members) if change.size is not None else 0
        made = wanted if pool.stock is None else min(wanted, pool.stock)
        pool.stock = None if pool.stock is None else pool.stock - made
        self.fill(pool.id, made)
        pool.state = pool.nodepool_state = "running"
        failed = made < wanted
        reason = ("partial" if made else pool.reason) if failed else ""
        self.works[change.work.id] = msgspec.structs.replace(
            change.work, state="failure" if failed else "success", reason=reason
        )

    def _pool(self, pool: FakeApiPool) -> InstancePool:
        manager = Manager(pool.owner, "sks-nodepool") if pool.cluster else None
        name = f"nodepool-{pool.name}" if pool.cluster else pool.name
        made = InstancePool(
            pool.id,
            name,
            pool.state,
            pool.size,
            disk_size=50,
            instance_type=Ref(MEDIUM),
            instances=tuple(map(Ref, pool.members)),
            manager=manager,
        )
        return msgspec.structs.replace(made, **pool.more)

    def _nodepool(self, pool: FakeApiPool) -> Nodepool:
        made = Nodepool(pool.owner, pool.name, pool.nodepool_state, pool.size, Ref(pool.id), Ref(MEDIUM), 50)
        return msgspec.structs.replace(made, **pool.nodepool)


def forbidden(method: str = "") -> Unauthorized:
    return Unauthorized(f"{method}: HTTP 403: not authorized", code="403")


def provider(api: FakeExoscaleApi, *specs: str, kube: KubeLists | None = None, **settings: str) -> Exoscale:
    """A new provider on the fake; specs in upstream's form, none by default."""
    fields = {"zone": ZONE, "credentialsSecret": "exo", "nodes": "\n".join(specs), **settings}
    return Exoscale(api, read_settings(fields), kube)


def operation(
    kind: OperationKind, group: str, from_size: int, to_size: int, *handles: str, plan: str = "p"
) -> Operation:
    targets = tuple(RemovalTarget(f"node-{handle[-4:]}", f"exoscale://{handle}", handle) for handle in handles)
    name = operation_id("ours", group, kind, from_size, to_size, handles, plan)
    return new_operation(name, "ours", "exoscale", group, kind, plan, 0.0, from_size, to_size, targets)


def grow(from_size: int, to_size: int, group: str = A) -> Operation:
    return operation(OperationKind.SCALE_UP, group, from_size, to_size)


def shrink(from_size: int, to_size: int, group: str = A) -> Operation:
    return operation(OperationKind.DECREASE_TARGET, group, from_size, to_size)


def remove(
    from_size: int, *handles: str, group: str = A, kind: OperationKind = OperationKind.DELETE_NODES
) -> Operation:
    return operation(kind, group, from_size, from_size - len(handles), *handles)


def continued(asked: Operation, outcome: Outcome) -> Operation:
    """Returns the operation as the executor passes it to the next step."""
    assert isinstance(outcome, InProgress), outcome
    return asked.with_status(data=outcome.data, step=outcome.step)


def to_the_end(
    api: FakeExoscaleApi, asked: Operation, *specs: str, kube: KubeLists | None = None, steps: int = 60
) -> Outcome:
    """Runs an operation to its end: a new provider for each message, and the vendor works in between."""
    verbs = {OperationKind.SCALE_UP: "scale_up", OperationKind.DECREASE_TARGET: "decrease_target"}
    verb = verbs.get(asked.spec.kind, "delete_nodes")
    for _ in range(steps):
        try:
            outcome: Outcome = getattr(provider(api, *specs, kube=kube), verb)(asked)
        except (Conflict, Transient):
            api.step()
            continue
        if not isinstance(outcome, InProgress):
            return outcome
        verb, asked = "poll", continued(asked, outcome)
        api.step()
    raise AssertionError(f"not over after {steps} calls")


def seen(
    api: FakeExoscaleApi, *specs: str, nodes: Sequence[Node] | None = None, **settings: Any
) -> dict[str, NodeGroup]:
    """Returns the groups of one pass by id; by default every existing machine has become a node."""
    found = provider(api, *specs, **settings).observe(api.nodes() if nodes is None else nodes)
    return {group.id: group for group in found.groups}


def warnings(api: FakeExoscaleApi, *specs: str, nodes: Sequence[Node] | None = None, **settings: Any) -> str:
    """Returns the warnings of one pass."""
    found = provider(api, *specs, **settings).observe(api.nodes() if nodes is None else nodes)
    return "\n".join(f"{gap.name}: {gap.detail}" for gap in found.gaps)


def machine(api: FakeExoscaleApi, name: str, group: str = A, nodes: Sequence[Node] = ()) -> Machine:
    """Returns one machine as the core sees it."""
    return {each.handle: each for each in seen(api, f"0:10:{group}", nodes=nodes)[group].instances}[name]


class _FakeApiPage(msgspec.Struct):
    body: bytes
    first: bool = True


class FakeApiKube:
    """A cluster whose nodes have these provider ids."""

    def __init__(self, *ids: str) -> None:
        self.ids, self.down = ids, False

    def list_pages(self, path: str, *, query: object = None) -> list[_FakeApiPage]:
        assert path == "/api/v1/nodes"
        if self.down:
            raise Unavailable("no answer")
        return [_FakeApiPage(json.dumps({"items": [{"spec": {"providerID": each}} for each in self.ids]}).encode())]


def node(name: str, provider_id: str, **labels: str) -> Node:
    return Node(name, dict(labels), {}, provider_id=provider_id)
