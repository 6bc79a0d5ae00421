"""Exoscale's fixture, of the suite and of Exoscale's own tests: the real provider, and in the same
process the emulated zone with its keys, quota and clock.

All requests and answers are compared with the vendor's OpenAPI document; a mismatch fails the
test in which it happens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Self

import msgspec

from chalicelib.cluster.errors import Unavailable
from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.settings.managed_pools import ManagedPool
from chalicelib.policy.vendors.exoscale import read_settings
from chalicelib.providers import registry
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.provider import Exoscale, build, open_api
from chalicelib.providers.kit.base import Connection, Provider
from chalicelib.providers.kit.errors import Conflict, Throttled, Transient
from chalicelib.providers.kit.services import Cache, ProviderServices
from chalicelib.store.vendor_calls import SharedCache
from infra.emulators.certificates import CertificateAuthority
from infra.emulators.cloud_account import LOOPBACK
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.exoscale import serializers
from infra.emulators.exoscale.account import ZONE, ExoscaleMutations, Zone, example_id
from infra.emulators.exoscale.attached_account import (
    ExoscaleRegistrationOptions,
    joined,
    node_object,
)
from infra.emulators.exoscale.models import (
    NOT_STARTING,
    UNAVAILABLE,
    ExoscaleDurations,
    ExoscalePool,
    Nodepool,
)
from infra.emulators.exoscale.server import OPERATIONS, PRICE_LIST, ExoscaleServer
from infra.emulators.memory_table import MemoryAccount
from infra.emulators.vendor_common.dispatcher import LoggedOperation
from infra.emulators.vendor_common.fault_injection import VendorFault
from infra.emulators.vendor_common.http_messages import Answer, Incoming, scripted
from tests.operations import ask, new_operation
from tests.providers.cherryservers.fixture import MemoryCache
from tests.providers.emulated import OPENED, changed
from tests.providers.exoscale.wire import START, checker
from tests.providers.managed import UID, IdentifiedWorkload
from tests.providers.suite.kubelets import Kubelets
from tests.providers.suite.provider_fixture import Misfortune, Trouble
from tests.providers.suite.shared_services import shared
from tests.providers.suite.workload import Workload, ready_node

SECRET = "outscaler/exoscale/credentials"
MOST_NODEPOOLS = 16  # of one cluster, according to the vendor's document
A, B, C = (example_id("pool", number) for number in (1, 2, 3))  # in the order of their creation
# standalone pools do not count
NP_A, NP_B, NP_C = (example_id("nodepool", number) for number in (1, 2, 3))
OURS, THEIRS = (example_id("cluster", number) for number in (1, 2))
MEDIUM = example_id("kind", 2)
_MOST = 60  # steps of an operation
_FAULTS = {
    Trouble.UNAUTHORIZED: VendorFault.UNAUTHORIZED,
    Trouble.FORBIDDEN: VendorFault.FORBIDDEN,
    Trouble.NOT_FOUND: VendorFault.NOT_FOUND,
    Trouble.CONFLICT: VendorFault.CONFLICT,
    Trouble.THROTTLED: VendorFault.THROTTLED,
    Trouble.THROTTLED_FOR: VendorFault.THROTTLED_FOR,
    Trouble.SERVER_ERROR: VendorFault.SERVER_ERROR,
    Trouble.CUT_OFF: VendorFault.CUT_OFF,
    Trouble.WEB_PAGE: VendorFault.WEB_PAGE,
    Trouble.HANGS: VendorFault.HANGS_UP,
    Trouble.LOST_ANSWER: VendorFault.LOST_ANSWER,
}
_FATES = {Misfortune.OUT_OF_STOCK: UNAVAILABLE, Misfortune.NEVER_COMES: NOT_STARTING}


class OneTimeCache(MemoryCache):
    """Keeps what a restart must not forget, and no answers to reads: every
    observation makes all of its calls."""

    def put(self, key: str, value: bytes, seconds: float) -> None:
        if "/once/" in key:
            super().put(key, value, seconds)


class ExoscaleFixture:
    """See ProviderFixture. Tests of Exoscale alone may also set up zone and server directly.

    standalone: groups are Instance Pools without an SKS Nodepool. settings: policy settings in
    addition to those that a bench needs. operations: the operations that the keys' role allows,
    None for all. shared_cache: the cache that its providers share. answers: fields that the
    vendor's answers have about an object, by its id. down: whether the cluster is. theirs: pools
    whose machines never join. pools: the policy's managed pools, for which the cache keeps all
    answers; uid: of the cluster.
    """

    name = "exoscale"
    # a scale-up names the size; an eviction is never repeated (test_api.py)
    repeatable = True

    def __init__(
        self,
        *,
        standalone: bool = False,
        times: ExoscaleDurations | None = None,
        operations: frozenset[str] | None = None,
        pools: Sequence[ManagedPool] = (),
    ) -> None:
        self.lacks = (
            {"zero": "an Instance Pool keeps one instance at least"}
            if standalone
            else dict[str, str]()
        )
        # A list that is not found means that this is not the API. A call with a lost answer is
        # repeated and finds its own change.
        self.differs = {"404 read": "InvalidRequest", f"{Trouble.LOST_ANSWER} again": "Conflict"}
        self.clock = ManualClock(START)
        self.kubelets = Kubelets()
        self.zone = Zone(self.clock, times=times)
        self.zone.limit = -1
        self.server = ExoscaleServer(self.zone, in_process=True)
        self.checker = checker()
        self.server.front.watches.append(self._watch)
        self.settings: dict[str, str] = {}
        self.pools, self.uid = tuple(pools), UID
        self.shared_cache: Cache = MemoryCache(self.clock) if pools else OneTimeCache(self.clock)
        self.answers: dict[object, dict[str, Any]] = {}
        self.server.edit = lambda body: changed(body, "id", self.answers)
        self.down = False
        self._standalone, self._operations, self.theirs = standalone, operations, set[str]()
        self._bounds: dict[str, GroupPolicy] = {}
        self.clusters: dict[str, str] = {}
        self._keys, self._slept, self._looked = 0, 0.0, 0
        self._pacer = shared(self.clock)
        self._untrusted: ExoscaleServer | None = None
        self._rotate()

    def _watch(self, incoming: Incoming, response: Answer) -> None:
        if incoming.path != PRICE_LIST:  # a page of the vendor, and no part of its API
            self.checker.watch(incoming, response)

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Raises AssertionError for requests that the vendor's
        document does not define."""
        self.server.stop()
        if self._untrusted is not None:
            self._untrusted.stop()
        assert not self.checker.problems, "\n".join(self.checker.problems)

    def now(self) -> float:
        return self.clock.now()

    def most_calls(self, groups: int, machines: int) -> int:
        """Pools, instances, clusters and the quota, and the single instance
        type of all groups here."""
        return 5

    def add_group(
        self,
        name: str,
        *,
        size: int = 0,
        least: int = 0,
        most: int = 10,
        cluster: str = "ours",
        instance_type: str = "",
    ) -> str:
        kind = instance_type or "standard.medium"
        pool = (
            self.zone.add_pool(name, size=size, type=kind)
            if self._standalone
            else self.add_nodepool(name, size=size, type=kind, cluster=cluster).pool
        )
        if cluster == "ours":
            self.bind(pool.id, least, most)
        else:
            self.theirs.add(pool.id)
        return pool.id

    def add_nodepool(
        self,
        name: str,
        *,
        size: int = 0,
        type: str = "standard.medium",  # noqa: A002  # the vendor's word
        cluster: str = "ours",
    ) -> Nodepool:
        """Adds a Nodepool to a cluster of that name that has room."""
        held = self.clusters.get(cluster)
        if held is None or len(self.zone.clusters[held].nodepools) >= MOST_NODEPOOLS:
            held = self.clusters[cluster] = self.zone.add_cluster(cluster).id
        return self.zone.add_nodepool(held, name, size=size, type=type)

    def redefine(self, group: str) -> None:
        self.zone.update_pool(group, template=example_id("template", 2))

    def occupy(self, group: str) -> None:
        """SKS works on the pool, to the size that it has."""
        pool = self.pool(group)
        ExoscaleMutations(self.zone).scale(pool, pool.size)

    def reboots(self, machine: str) -> int:
        return len(self.zone.vms[machine].reboots)

    def bind(self, group: str, least: int, most: int) -> None:
        """Adds a group to the policy, with these bounds."""
        self._bounds[group] = GroupPolicy(self.name, group, least, most)

    @property
    def ways(self) -> ExoscaleRegistrationOptions:
        """Returns how instances join this cluster: as soon as they run, because these
        tests are about the vendor."""
        return ExoscaleRegistrationOptions(boot=0.0, never=frozenset(self.theirs))

    def nodes(self, *pools: str) -> tuple[Node, ...]:
        """Returns every machine of these pools that has joined, by default of all, as a node."""
        if self.down:
            raise Unavailable("no answer")
        self.zone.step()
        return self.kubelets.say(
            tuple(
                ready_node(node_object(self.zone, vm, self.ways), vm.created)
                for vm in joined(self.zone, self.clock(), self.ways)
                if not pools or vm.pool in pools
            )
        )

    def provider(self, *, credential: str = "good") -> Provider:
        if credential == "rotated":
            self._rotate()
        return registry.build(
            self.name, self.connection(self.server.root, wrong=credential == "wrong")
        )

    def connection(self, root: str, *, wrong: bool = False) -> Connection:
        """Returns the arguments that a provider is built from. wrong: its secret
        contains another key's secret."""
        settings = {"zone": ZONE, "credentialsSecret": SECRET, "endpoint": root, **self.settings}
        if self.pools:
            settings["priceList"] = f"{self.server.url}{PRICE_LIST}"
        means = ProviderServices(
            deployment=LOOPBACK,
            sleep=self._sleep,
            chance=lambda: 0.5,
            rate_limiter=self._pacer,
            cache=self.shared_cache,
        )
        return Connection(
            "ours",
            settings,
            tuple(self._bounds.values()),
            lambda _: self.read_secret(wrong=wrong),
            IdentifiedWorkload(Workload(self.nodes), self.uid),
            self.clock,
            means=means,
            pools=self.pools,
        )

    def read_secret(self, *, wrong: bool = False) -> str:
        """Returns the newest text of the secret."""
        secret = (
            "not-the-secret-of-this-key-00000"
            if wrong
            else self.server.ring.keys[self.key_id].secret
        )
        return json.dumps({"apiKey": self.key_id, "apiSecret": secret})

    @property
    def key_id(self) -> str:
        """Returns the key that is valid now."""
        return f"EXO-EXAMPLE-SUITE-KEY-{self._keys:04d}"

    def _rotate(self) -> None:
        if self._keys:
            self.server.ring.keys[self.key_id].active = False
        self._keys += 1
        self.server.ring.add(
            self.key_id, f"example-suite-secret-number-{self._keys:09d}", self._operations
        )

    def untrusted(self) -> Provider:
        self._untrusted = ExoscaleServer(self.zone, tls=CertificateAuthority("nobody's").server())
        self._untrusted.start()
        return registry.build(self.name, self.connection(self._untrusted.root))

    def pool(self, group: str) -> ExoscalePool:
        """Returns a group's pool, advanced to the current time."""
        self.zone.step()
        return self.zone.pools[group]

    def machines(self, group: str) -> list[str]:
        return [vm.id for vm in self.pool(group).staying]

    def target(self, group: str) -> int:
        return self.pool(group).size

    def settle(self, seconds: float = 600.0) -> None:
        self.clock.advance(seconds)
        self.zone.step()

    def trouble(self, kind: Trouble, *, on: str = "any", times: int = 1) -> None:
        self.server.faults.next(_FAULTS[kind], on=on, times=times)

    def misfortune(self, group: str, kind: Misfortune, *, times: int = 1) -> None:
        """The quota belongs to the organisation, so it is exhausted for
        all groups until calm()."""
        if kind is Misfortune.QUOTA:
            self.zone.limit = self.zone.usage()
        else:
            self.zone.spoil(group, _FATES[kind], times)

    def calm(self) -> None:
        self.server.faults.clear()
        self.zone.limit = -1
        for pool in self.zone.pools.values():
            pool.fates.clear()

    def calls(self) -> list[str]:
        return [call.line for call in self.look()]

    def writes(self) -> list[str]:
        return [call.line for call in self.look() if call.writes]

    def look(self) -> list[LoggedOperation]:
        """Returns the calls since the previous call of this method."""
        log = self.server.log
        seen, self._looked = log[self._looked :], len(log)
        return seen

    def secrets(self) -> Sequence[str]:
        return [*self.server.ring.secrets(), *self.server.front.seen]

    def slept(self) -> float:
        return self._slept

    def _sleep(self, seconds: float) -> None:
        self._slept += seconds
        self.clock.advance(seconds)

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


def opened(*pools: tuple[str, str, int], **how: Any) -> ExoscaleFixture:
    """Returns a fixture that is closed when the test ends. pools: name, cluster, size; cluster
    `prod` is first, "" for a standalone pool. Every machine is a node of the cluster."""
    made: ExoscaleFixture = OPENED.enter_context(ExoscaleFixture(**how))
    for cluster in dict.fromkeys(cluster for _, cluster, _ in pools if cluster):
        made.clusters[cluster] = made.zone.add_cluster(cluster).id
    for name, cluster, size in pools:
        if cluster:
            made.add_nodepool(name, size=size, cluster=cluster)
        else:
            made.zone.add_pool(name, size=size)
    return made


def sks(size: int = 2, **times: float) -> ExoscaleFixture:
    return opened(("web", "prod", size), times=ExoscaleDurations(**times))


def standalone(size: int = 2) -> ExoscaleFixture:
    return opened(("db", "", size))


def both() -> ExoscaleFixture:
    """A Nodepool of three and a standalone pool of two."""
    return opened(("web", "prod", 3), ("db", "", 2))


def order(
    bench: ExoscaleFixture,
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


def drive(bench: ExoscaleFixture, operation: Operation) -> Outcome:
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


def seen(bench: ExoscaleFixture, group: str) -> NodeGroup:
    """Returns the group as the next reconcile pass reads it."""
    return {each.id: each for each in bench.provider().observe(bench.nodes()).groups}[group]


def shared_cache(bench: ExoscaleFixture) -> SharedCache:
    """Returns a cache in a table, as all functions of a deployment share it."""
    store = MemoryAccount().store(
        "exoscale", clock=bench.clock, sleep=lambda _: None, chance=lambda: 0.5
    )
    return store.cache


def grow(zone: ExoscaleFixture, from_size: int, to_size: int, group: str = A) -> Operation:
    return order(zone, OperationKind.SCALE_UP, group, from_size, to_size)


def shrink(zone: ExoscaleFixture, from_size: int, to_size: int, group: str = A) -> Operation:
    return order(zone, OperationKind.DECREASE_TARGET, group, from_size, to_size)


def remove(zone: ExoscaleFixture, from_size: int, *handles: str, group: str = A) -> Operation:
    return order(
        zone, OperationKind.DELETE_NODES, group, from_size, from_size - len(handles), *handles
    )


def discard(zone: ExoscaleFixture, from_size: int, *handles: str, group: str = A) -> Operation:
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
