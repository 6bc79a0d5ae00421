"""Exoscale's bench: the real provider over HTTP, and the emulated zone with
its keys, quota and clock.

All requests and answers are compared with the vendor's OpenAPI document; a mismatch fails the
test in which it happens.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Self

from chalicelib.model.node import Node
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers import registry
from chalicelib.providers.kit.base import Connection, Provider
from chalicelib.providers.kit.services import Cache, ProviderServices
from infra.emulators.certificates import CertificateAuthority
from infra.emulators.cloud_account import LOOPBACK
from infra.emulators.controllers.clock import ManualClock
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
from infra.emulators.exoscale.server import ExoscaleServer
from infra.emulators.vendor_common.dispatcher import LoggedOperation
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.exoscale.openapi_document import checker
from tests.providers.provider_fixtures.cherryservers import MemoryCache
from tests.providers.provider_fixtures.workload import Workload, ready_node
from tests.providers.suite.kubelets import Kubelets
from tests.providers.suite.provider_fixture import Misfortune, Trouble
from tests.providers.suite.shared_services import shared

START = 1_800_000_000.0
SECRET = "outscaler/exoscale/credentials"
MOST_NODEPOOLS = 16  # of one cluster, according to the vendor's document
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
        """See services.Cache."""
        if "/once/" in key:
            super().put(key, value, seconds)


class ExoscaleBench:
    """See Bench. Tests of Exoscale alone may also set up zone and server directly.

    standalone: groups are Instance Pools without an SKS Nodepool. settings: policy settings in
    addition to those that a bench needs; operations: the operations that the keys' role allows,
    None for all; shared_cache: the cache that its providers share.
    """

    name = "exoscale"
    # a scale-up names the size; an eviction is never repeated (test_exo_scaling.py)
    repeatable = True

    def __init__(
        self,
        *,
        standalone: bool = False,
        times: ExoscaleDurations | None = None,
        operations: frozenset[str] | None = None,
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
        self.server.front.watches.append(self.checker.watch)
        self.settings: dict[str, str] = {}
        self.shared_cache: Cache = OneTimeCache(self.clock)
        self._standalone, self._operations, self._theirs = standalone, operations, set[str]()
        self._bounds: dict[str, GroupPolicy] = {}
        self._clusters: dict[str, str] = {}
        self._keys, self._slept, self._looked = 0, 0.0, 0
        self._pacer = shared(self.clock)
        self._untrusted: ExoscaleServer | None = None
        self._rotate()

    def __enter__(self) -> Self:
        """See Bench."""
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        """See Bench. Raises AssertionError for requests that the vendor's
        document does not define."""
        self.server.stop()
        if self._untrusted is not None:
            self._untrusted.stop()
        assert not self.checker.problems, "\n".join(self.checker.problems)

    def now(self) -> float:
        """See Bench."""
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
        """See Bench."""
        kind = instance_type or "standard.medium"
        pool = (
            self.zone.add_pool(name, size=size, type=kind)
            if self._standalone
            else self.add_nodepool(name, size=size, type=kind, cluster=cluster).pool
        )
        if cluster == "ours":
            self.bind(pool.id, least, most)
        else:
            self._theirs.add(pool.id)
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
        held = self._clusters.get(cluster)
        if held is None or len(self.zone.clusters[held].nodepools) >= MOST_NODEPOOLS:
            held = self._clusters[cluster] = self.zone.add_cluster(cluster).id
        return self.zone.add_nodepool(held, name, size=size, type=type)

    def redefine(self, group: str) -> None:
        """See NodeLifeFixture."""
        self.zone.update_pool(group, template=example_id("template", 2))

    def occupy(self, group: str) -> None:
        """SKS works on the pool, to the size that it has."""
        pool = self.pool(group)
        ExoscaleMutations(self.zone).scale(pool, pool.size)

    def reboots(self, machine: str) -> int:
        """See NodeLifeFixture."""
        return len(self.zone.vms[machine].reboots)

    def bind(self, group: str, least: int, most: int) -> None:
        """Adds a group to the policy, with these bounds."""
        self._bounds[group] = GroupPolicy(self.name, group, least, most)

    @property
    def ways(self) -> ExoscaleRegistrationOptions:
        """Returns how instances join this cluster: as soon as they run, because these
        tests are about the vendor."""
        return ExoscaleRegistrationOptions(boot=0.0, never=frozenset(self._theirs))

    def nodes(self) -> tuple[Node, ...]:
        """See Bench."""
        self.zone.step()
        return self.kubelets.say(
            tuple(
                ready_node(node_object(self.zone, vm, self.ways), vm.created)
                for vm in joined(self.zone, self.clock(), self.ways)
            )
        )

    def provider(self, *, credential: str = "good") -> Provider:
        """See Bench."""
        if credential == "rotated":
            self._rotate()
        return registry.build(
            self.name, self.connection(self.server.root, wrong=credential == "wrong")
        )

    def connection(self, root: str, *, wrong: bool = False) -> Connection:
        """Returns the arguments that a provider is built from. wrong: its secret
        contains another key's secret."""
        settings = {"zone": ZONE, "credentialsSecret": SECRET, "endpoint": root, **self.settings}
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
            Workload(self.nodes),
            self.clock,
            means=means,
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
        """See Bench."""
        self._untrusted = ExoscaleServer(self.zone, tls=CertificateAuthority("nobody's").server())
        self._untrusted.start()
        return registry.build(self.name, self.connection(self._untrusted.root))

    def pool(self, group: str) -> ExoscalePool:
        """Returns a group's pool, advanced to the current time."""
        self.zone.step()
        return self.zone.pools[group]

    def machines(self, group: str) -> list[str]:
        """See Bench."""
        return [vm.id for vm in self.pool(group).staying]

    def target(self, group: str) -> int:
        """See Bench."""
        return self.pool(group).size

    def settle(self, seconds: float = 600.0) -> None:
        """See Bench."""
        self.clock.advance(seconds)
        self.zone.step()

    def trouble(self, kind: Trouble, *, on: str = "any", times: int = 1) -> None:
        """See Bench."""
        self.server.faults.next(_FAULTS[kind], on=on, times=times)

    def misfortune(self, group: str, kind: Misfortune, *, times: int = 1) -> None:
        """See Bench. The quota belongs to the organisation, so it is exhausted for
        all groups until calm()."""
        if kind is Misfortune.QUOTA:
            self.zone.limit = self.zone.usage()
        else:
            self.zone.spoil(group, _FATES[kind], times)

    def calm(self) -> None:
        """See Bench."""
        self.server.faults.clear()
        self.zone.limit = -1
        for pool in self.zone.pools.values():
            pool.fates.clear()

    def calls(self) -> list[str]:
        """See Bench."""
        return [call.line for call in self.look()]

    def writes(self) -> list[str]:
        """See Bench."""
        return [call.line for call in self.look() if call.writes]

    def look(self) -> list[LoggedOperation]:
        """Returns the calls since the previous call of this method."""
        log = self.server.log
        seen, self._looked = log[self._looked :], len(log)
        return seen

    def secrets(self) -> Sequence[str]:
        """See Bench."""
        return [*self.server.ring.secrets(), *self.server.front.seen]

    def slept(self) -> float:
        """See Bench."""
        return self._slept

    def _sleep(self, seconds: float) -> None:
        self._slept += seconds
        self.clock.advance(seconds)
