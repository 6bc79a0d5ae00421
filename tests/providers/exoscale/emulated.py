"""The emulated Exoscale zone in process, with the pools that a test names, and the
vendor's documents of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chalicelib.cluster.errors import Unavailable
from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.policy.vendors.exoscale import read_settings
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.provider import Exoscale, build, open_api
from chalicelib.providers.kit.base import Connection
from infra.emulators.exoscale import serializers
from infra.emulators.exoscale.account import Zone, example_id
from infra.emulators.exoscale.models import ExoscaleDurations
from infra.emulators.exoscale.server import OPERATIONS
from infra.emulators.vendor_common.http_messages import Incoming, scripted
from tests.providers.emulated import OPENED, changed
from tests.providers.exoscale.fixtures import order
from tests.providers.provider_fixtures.exoscale import ExoscaleBench

A, B, C = (example_id("pool", number) for number in (1, 2, 3))  # in the order of their creation
# standalone pools do not count
NP_A, NP_B, NP_C = (example_id("nodepool", number) for number in (1, 2, 3))
OURS, THEIRS = (example_id("cluster", number) for number in (1, 2))
MEDIUM = example_id("kind", 2)


class EmulatedZone(ExoscaleBench):
    """A zone with pools (name, cluster, size), cluster `prod` first and "" for a standalone pool.
    Every machine is a node of the cluster.

    answers: fields that the vendor's answers have about an object, by its id.
    down: whether the cluster is.
    """

    def __init__(
        self, *pools: tuple[str, str, int], times: ExoscaleDurations | None = None, **more: Any
    ) -> None:
        super().__init__(times=times, **more)
        self.answers: dict[object, dict[str, Any]] = {}
        self.down = False
        self.server.edit = lambda body: changed(body, "id", self.answers)
        for cluster in [cluster for _, cluster, _ in pools if cluster]:
            if cluster not in self._clusters:
                self._clusters[cluster] = self.zone.add_cluster(cluster).id
        for name, cluster, size in pools:
            if cluster:
                self.add_nodepool(name, size=size, cluster=cluster)
            else:
                self.zone.add_pool(name, size=size)
        OPENED.enter_context(self)

    def nodes(self, *pools: str) -> tuple[Node, ...]:
        """Returns every machine of these pools, by default of all, as a node."""
        if self.down:
            raise Unavailable("no answer")
        names = {vm.name for vm in self.zone.vms.values() if not pools or vm.pool in pools}
        return tuple(node for node in super().nodes() if node.name in names)

    def build(self, *specs: str, **settings: str) -> Exoscale:
        """Returns a new provider; specs in upstream's form, none by default."""
        return build(self._connection(*specs, **settings))

    def api(self, read_secret: Callable[[str], str] | None = None, **settings: str) -> ExoscaleApi:
        """Returns a new client of the API. read_secret: the zone's key by default."""
        connection = self._connection(**settings)
        if read_secret is not None:
            connection = msgspec.structs.replace(connection, read_secret=read_secret)
        return open_api(connection, read_settings(connection.settings))

    def _connection(self, *specs: str, **settings: str) -> Connection:
        self.settings = {**({"nodes": "\n".join(specs)} if specs else {}), **settings}
        return self.connection(self.server.root)

    def groups(
        self, *specs: str, nodes: Sequence[Node] | None = None, **settings: str
    ) -> dict[str, NodeGroup]:
        """Returns the groups of one pass by id; by default every existing
        machine has become a node."""
        found = self.build(*specs, **settings).observe(self.nodes() if nodes is None else nodes)
        return {group.id: group for group in found.groups}

    def warnings(self, *specs: str, nodes: Sequence[Node] | None = None, **settings: str) -> str:
        """Returns the warnings of one pass."""
        found = self.build(*specs, **settings).observe(self.nodes() if nodes is None else nodes)
        return "\n".join(f"{gap.name}: {gap.detail}" for gap in found.gaps)

    def instance(self, handle: str, nodes: Sequence[Node] = ()) -> Instance:
        """Returns one machine as the core sees it."""
        return {each.handle: each for each in self.groups(f"0:10:{A}", nodes=nodes)[A].instances}[
            handle
        ]

    def fail(self, operation: str, status: int = 500, times: int = 3, body: object = b"") -> None:
        """Refuses the next calls of a method and path, by default as often as a read is
        attempted."""
        self.server.reply(operation, *[scripted(status, body)] * times)

    def deny(self, *operations: str) -> None:
        """Takes these operations from the key's role."""
        key = self.server.ring.keys[self.key_id]
        key.permissions = (OPERATIONS if key.permissions is None else key.permissions) - set(
            operations
        )

    def operations(self) -> list[str]:
        """Returns the operations since the last call."""
        return [call.operation for call in self.look()]

    def changes(self) -> list[str]:
        """Returns the changes since the last call, with their bodies."""
        return [f"{call.operation} {call.body}" for call in self.look() if call.writes]

    def state(self, group: str = A) -> tuple[int, list[str]]:
        """Returns the size and the machines."""
        return self.target(group), self.machines(group)


def sks(size: int = 2, **times: float) -> EmulatedZone:
    return EmulatedZone(("web", "prod", size), times=ExoscaleDurations(**times))


def standalone(size: int = 2) -> EmulatedZone:
    return EmulatedZone(("db", "", size))


def both() -> EmulatedZone:
    """A Nodepool of three and a standalone pool of two."""
    return EmulatedZone(("web", "prod", 3), ("db", "", 2))


def grow(zone: EmulatedZone, from_size: int, to_size: int, group: str = A) -> Operation:
    return order(zone, OperationKind.SCALE_UP, group, from_size, to_size)


def shrink(zone: EmulatedZone, from_size: int, to_size: int, group: str = A) -> Operation:
    return order(zone, OperationKind.DECREASE_TARGET, group, from_size, to_size)


def remove(zone: EmulatedZone, from_size: int, *handles: str, group: str = A) -> Operation:
    return order(
        zone, OperationKind.DELETE_NODES, group, from_size, from_size - len(handles), *handles
    )


def discard(zone: EmulatedZone, from_size: int, *handles: str, group: str = A) -> Operation:
    return order(
        zone, OperationKind.DELETE_INSTANCES, group, from_size, from_size - len(handles), *handles
    )


def sent(request: Incoming) -> object:
    return json.loads(request.body)


def _documents() -> tuple[dict[str, Any], ...]:
    zone = Zone(lambda: 1768465800.0)
    made = zone.add_nodepool(
        zone.add_cluster("prod").id,
        "web",
        size=2,
        labels={"tier": "web"},
        taints={"dedicated": ("web", "NoSchedule")},
    )
    first = next(iter(made.pool.members.values()))
    return (
        serializers.instance(first),
        serializers.pool(made.pool, zone),
        serializers.cluster(zone.clusters[OURS]),
        serializers.kind(made.pool.kind, zone),
    )


INSTANCE, INSTANCE_POOL, SKS, KIND = _documents()
ONE, TWO = (example_id("vm", number) for number in (1, 2))
WORK = example_id("work", 1)
BEGUN = {"id": WORK, "state": "pending", "reference": {"id": A, "command": "get-instance-pool"}}
