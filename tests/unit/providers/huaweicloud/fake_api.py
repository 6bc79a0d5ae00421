"""One CCE cluster in a dictionary: pools, scale groups, nodes and refusals as the vendor documents them, without HTTP.

A lower total removes the oldest nodes of the group, so that a wrong number costs a running machine: `chosen` names
them.
Nodes are created, and deleted ones vanish, at `step()`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget, operation_id
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.model.policy import GroupPolicy
from chalicelib.policy.vendors.huaweicloud import read_settings
from chalicelib.providers.errors import Conflict, NotFound, ProviderError, Transient
from chalicelib.providers.huaweicloud.api import CceApi
from chalicelib.providers.huaweicloud.models import (
    Addon,
    Autoscaling,
    CceCondition,
    CceJob,
    CceNode,
    Flavor,
    NodePool,
    NodeTemplate,
    ScaleGroup,
)
from chalicelib.providers.huaweicloud.provider import HuaweiCloud
from chalicelib.providers.services import KubeLists
from tests.operations import new_operation

CLUSTER = "2292498e-1111-11ee-8b5e-0255ac1001ba"
POOL, OTHER = "7d48eca7-3419-11ea-bc29-0255ac1001a8", "7d48eca7-3419-11ea-bc29-0255ac1001a9"
A, B = f"{POOL}/default", f"{POOL}/c7-az2"
FLAVOR, AZ1, AZ2 = "c7.xlarge.2", "cn-north-4a", "cn-north-4b"


def uid(number: int) -> str:
    """Returns a node's uid in the vendor's form, for examples only."""
    return f"cc697ad9-9563-11e8-8ea7-{number:012d}"


def true(kind: str, reason: str = "") -> CceCondition:
    return CceCondition(kind, "True", reason)


SOLD_OUT, NO_QUOTA = true("ResourceInsufficient", "SoldOut"), true("QuotaInsufficient")
NOT_SCALABLE = CceCondition("Scalable", "False")


@dataclass
class FakeApiGroup:
    """One scale group. stock: nodes that can still be created; None: any number. why: the condition when there are
    none."""

    name: str = "default"
    az: str = AZ1
    desired: int = 0
    flavor: str = FLAVOR
    enabled: bool = True
    min: int | None = None
    max: int | None = None
    priority: int = 0
    held: int = 0
    conditions: tuple[CceCondition, ...] = ()
    stock: int | None = None
    why: CceCondition = SOLD_OUT
    shown: int | None = None  # the desired size in the status, where it lags behind
    error: str = ""


@dataclass
class Cce:
    """One pool."""

    groups: list[FakeApiGroup]
    id: str = POOL
    name: str = "pool-a"
    autoscaling: Autoscaling = field(default_factory=lambda: Autoscaling(True, 0, 10))
    template: NodeTemplate = field(
        default_factory=lambda: NodeTemplate(FLAVOR, AZ1, k8s_tags={"team": "a"}, extend={}, runtime="containerd")
    )
    type: str = "vm"
    phase: str = ""
    conditions: tuple[CceCondition, ...] = ()
    error: str = ""
    desired: int = -1

    def __post_init__(self) -> None:
        if self.desired < 0:
            self.desired = sum(each.desired for each in self.groups)

    def group(self, name: str) -> FakeApiGroup:
        return next(each for each in self.groups if each.name == name)


def two(first: int = 3, second: int = 2, **more: Any) -> Cce:
    """A pool of two scale groups, in two AZs."""
    return Cce([FakeApiGroup(desired=first), FakeApiGroup("c7-az2", AZ2, second, priority=5, max=6)], **more)


class FakeCceApi(CceApi):
    """The calls on pools. trouble: method -> errors of its next calls. lost: methods whose next answer is lost. lag:
    desired
    sizes are visible only at the next step."""

    def __init__(self, *pools: Cce) -> None:
        self.all = {pool.id: pool for pool in pools}
        self.machines: dict[str, CceNode] = {}
        self.kinds = {FLAVOR: Flavor(FLAVOR, 4, 8192)}
        self.installed: tuple[Addon, ...] = ()
        self.cluster = "Available"
        self.calls: list[str] = []
        self.trouble: dict[str, list[ProviderError]] = {}
        self.lost: set[str] = set()
        self.lag = False
        self.works: dict[str, CceJob] = {}
        self.chosen: list[str] = []  # nodes that the vendor chose to delete
        self.named: list[str] = []  # nodes that we named
        self._number = 0
        for pool in pools:
            for group in pool.groups:
                for _ in range(group.desired):
                    self.add(pool.id, group.name)

    # -- setup

    def add(self, pool: str, group: str = "default", phase: str = "Active", **more: Any) -> str:
        """Adds a node without changing the size."""
        self._number += 1
        found = self.all[pool].group(group)
        ip = f"192.0.2.{self._number}"
        made = CceNode(
            uid(self._number),
            f"{self.all[pool].name}-{self._number}",
            pool,
            self.all[pool].name,
            found.flavor,
            found.az,
            phase,
            uid(self._number + 5000),
            ip,
        )
        self.machines[made.id] = msgspec.structs.replace(made, **more)
        return made.id

    def change(self, machine: str, **more: Any) -> None:
        self.machines[machine] = msgspec.structs.replace(self.machines[machine], **more)

    def of(self, pool: str, group: str = "default") -> list[str]:
        """Returns the group's nodes that are not leaving, oldest first."""
        kind = self.all[pool].group(group)
        return [
            each.id
            for each in self.machines.values()
            if each.pool == pool and each.phase != "Deleting" and (each.flavor, each.az) == (kind.flavor, kind.az)
        ]

    def step(self) -> None:
        """Advances the vendor's work by one step."""
        for name in [each.id for each in self.machines.values() if each.phase == "Deleting"]:
            del self.machines[name]
        for pool in self.all.values():
            for group in pool.groups:
                group.shown = None
                while len(self.of(pool.id, group.name)) < group.desired:
                    if group.stock == 0:
                        group.conditions = (group.why,)
                        break
                    group.stock = None if group.stock is None else group.stock - 1
                    self.add(pool.id, group.name)

    def writes(self) -> list[str]:
        return [call for call in self.calls if call.split()[0] in {"scale", "delete_node"}]

    def nodes_now(self) -> list[Node]:
        """Returns every machine of the cluster as a node."""
        return [node(each) for each in self.machines.values()]

    # -- the calls

    def expect(self, calls: int) -> None:
        del calls

    def pools(self) -> tuple[NodePool, ...]:
        self._call("pools")
        return tuple(self._pool(each) for each in self.all.values())

    def pool(self, id: str) -> NodePool:  # noqa: A002
        self._call("pool")
        if id not in self.all:
            raise NotFound(f"no pool {id}", code="CCE.01404001")
        return self._pool(self.all[id])

    def nodes(self) -> tuple[CceNode, ...]:
        self._call("nodes")
        return tuple(self.machines.values())

    def node(self, id: str) -> CceNode:  # noqa: A002
        self._call("node")
        if id not in self.machines:
            raise NotFound(f"no node {id}", code="CCE.01404001")
        return self.machines[id]

    def scale(self, pool: str, total: int, group: str, *, zero: bool = False) -> None:
        assert total > 0 or zero
        self._call(f"scale {total} {group}")
        self._scale(self.all[pool], total, self.all[pool].group(group))
        self._answer("scale")

    def delete_node(self, id: str) -> str:  # noqa: A002
        self._call(f"delete_node {id}")
        if id not in self.machines:
            raise NotFound(f"no node {id}", code="CCE.01404001")
        found = self.machines[id]
        if found.phase != "Deleting" and found.pool in self.all:
            pool = self.all[found.pool]
            group = next(each for each in pool.groups if (each.flavor, each.az) == (found.flavor, found.az))
            pool.desired, group.desired = pool.desired - 1, group.desired - 1
            self.named.append(id)
            self.change(id, phase="Deleting")
        job = id.replace("cc697ad9", "661f6f7d")
        self.works[job] = CceJob(job, "Running")
        self._answer("delete_node")
        return job

    def job(self, id: str) -> CceJob:  # noqa: A002
        self._call("job")
        if id not in self.works:
            raise NotFound("no job", code="CCE.01404001")
        return self.works[id]

    def cluster_phase(self) -> str:
        self._call("cluster_phase")
        return self.cluster

    def addons(self) -> tuple[Addon, ...]:
        self._call("addons")
        return self.installed

    def flavors(self, az: str) -> Mapping[str, Flavor]:
        self._call(f"flavors {az}")
        return self.kinds

    # -- internal

    def _call(self, call: str) -> None:
        self.calls.append(call)
        if waiting := self.trouble.get(call.split(maxsplit=1)[0]):
            raise waiting.pop(0)

    def _answer(self, method: str) -> None:
        if method in self.lost:
            self.lost.discard(method)
            raise Transient("the connection broke while the answer was awaited")

    def _scale(self, pool: Cce, total: int, group: FakeApiGroup) -> None:
        if self.lag:
            group.shown = group.desired
        group.desired += total - pool.desired
        pool.desired = total
        while len(alive := self.of(pool.id, group.name)) > max(0, group.desired):
            self.chosen.append(alive[0])
            self.change(alive[0], phase="Deleting")

    def _made(self, pool: str, group: str) -> int:
        """Counts the existing nodes: machines in creation are not counted although they are listed."""
        return sum(self.machines[name].phase not in {"Build", "Installing"} for name in self.of(pool, group))

    def _pool(self, pool: Cce) -> NodePool:
        if pool.error:
            return NodePool(pool.id, pool.name, error=pool.error)
        groups = tuple(
            ScaleGroup(
                each.name,
                "g",
                each.flavor,
                each.az,
                each.enabled,
                each.min,
                each.max,
                each.priority,
                each.desired if each.shown is None else each.shown,
                self._made(pool.id, each.name),
                0,
                each.held,
                each.conditions,
                each.error,
            )
            for each in pool.groups
        )
        current = sum(each.existing for each in groups)
        return NodePool(
            pool.id,
            pool.name,
            pool.type,
            pool.desired,
            pool.autoscaling,
            pool.template,
            groups,
            current,
            0,
            0,
            current,
            pool.phase,
            pool.conditions,
        )


def node(machine: CceNode, provider_id: str | None = None, name: str = "", **labels: str) -> Node:
    """Returns a machine as the cluster's node."""
    name = name or machine.private_ip
    said = machine.id if provider_id is None else provider_id
    return Node(name, {HOSTNAME_LABEL: name, **labels}, {}, provider_id=said)


def provider(api: FakeCceApi, *entries: GroupPolicy, kube: KubeLists | None = None, **settings: str) -> HuaweiCloud:
    """A new provider on the fake; all pools are discovered by default."""
    fields = {"region": "cn-north-4", "clusterId": CLUSTER, "credentialsSecret": "cce", **settings}
    return HuaweiCloud(api, read_settings(fields, entries), kube)


def entry(name: str, least: int | None = None, most: int | None = None, priority: int = 0) -> GroupPolicy:
    return GroupPolicy("huaweicloud", name, least, most, priority)


def operation(kind: OperationKind, group: str, from_size: int, to_size: int, *handles: str) -> Operation:
    targets = tuple(RemovalTarget("", handle, handle) for handle in handles)
    name = operation_id("ours", group, kind, from_size, to_size, handles, "p")
    return new_operation(name, "ours", "huaweicloud", group, kind, "p", 0.0, from_size, to_size, targets, pool=POOL)


def growth(from_size: int, to_size: int, group: str = A) -> Operation:
    return operation(OperationKind.SCALE_UP, group, from_size, to_size)


def shrinkage(from_size: int, to_size: int, group: str = A) -> Operation:
    return operation(OperationKind.DECREASE_TARGET, group, from_size, to_size)


def removal(
    from_size: int, *handles: str, group: str = A, kind: OperationKind = OperationKind.DELETE_NODES
) -> Operation:
    return operation(kind, group, from_size, from_size - len(handles), *handles)


def continued(asked: Operation, outcome: Outcome) -> Operation:
    """Returns the operation as the executor passes it to the next step."""
    assert isinstance(outcome, InProgress), outcome
    return asked.with_status(data=outcome.data, step=outcome.step)


def announced(api: FakeCceApi, asked: Operation, *entries: GroupPolicy) -> Operation:
    """Returns a scale-up after its first call, which sends nothing."""
    before = len(api.writes())
    outcome = provider(api, *entries).scale_up(asked)
    assert isinstance(outcome, InProgress), outcome
    assert (outcome.step, len(api.writes())) == ("announce", before)
    return continued(asked, outcome)


def to_the_end(api: FakeCceApi, asked: Operation, *entries: GroupPolicy, kube: KubeLists | None = None) -> Outcome:
    """Runs an operation to its end: a new provider for each message, and the vendor works in between."""
    verbs = {OperationKind.SCALE_UP: "scale_up", OperationKind.DECREASE_TARGET: "decrease_target"}
    first = verb = verbs.get(asked.spec.kind, "delete_nodes")
    for _ in range(60):
        try:
            outcome: Outcome = getattr(provider(api, *entries, kube=kube), verb)(asked)
        except (Conflict, Transient):
            api.step()
            continue
        if not isinstance(outcome, InProgress):
            return outcome
        verb, asked = (first if outcome.step == "announce" else "poll"), continued(asked, outcome)
        if outcome.step != "announce":
            api.step()
    raise AssertionError("not over after 60 calls")


def seen(
    api: FakeCceApi, *entries: GroupPolicy, nodes: Sequence[Node] | None = None, **settings: Any
) -> dict[str, NodeGroup]:
    """Returns the groups of one pass by id; by default every existing machine has become a node."""
    found = provider(api, *entries, **settings).observe(api.nodes_now() if nodes is None else nodes)
    return {group.id: group for group in found.groups}


def warnings(api: FakeCceApi, *entries: GroupPolicy, **settings: Any) -> str:
    """Returns the warnings of one pass."""
    found = provider(api, *entries, **settings).observe(api.nodes_now())
    return "\n".join(f"{gap.name}: {gap.detail}" for gap in found.gaps)
