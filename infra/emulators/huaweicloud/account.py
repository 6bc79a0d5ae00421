"""One emulated project in one region: CCE clusters with their pools, flavours
and jobs, on a given clock.

It has no HTTP: a test sets up and inspects the project with this object, while the
program under test uses the API (server.py). The vendor's random choices come from a seed,
so two runs are identical.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from infra.emulators.huaweicloud.models import (
    ACTIVE,
    BUILD,
    COMING,
    DEFAULT,
    DEFAULT_POOL,
    Addon,
    CceCluster,
    CceDurations,
    CceJob,
    CcePool,
    CceProvisioningFate,
    Flavor,
    Node,
    ScaleGroup,
)
from infra.emulators.vendor_common.keys import Agenda

REGION = "cn-north-4"
PROJECT = "0123456789abcdef0123456789abcdef"
_KINDS = {
    "cluster": 0xC1,
    "pool": 0xB2,
    "group": 0xA3,
    "node": 0xD4,
    "server": 0xE5,
    "job": 0xF6,
    "addon": 0x17,
}
FLAVORS = (
    Flavor("c7.large.2", 2, 4096),
    Flavor("c7.xlarge.2", 4, 8192),
    Flavor("c7.2xlarge.2", 8, 16384),
    Flavor("m7.xlarge.8", 4, 32768),
    Flavor("kc1.xlarge.2", 4, 8192, {"ecs:instance_architecture": "arm64"}),
    Flavor(
        "pi2.2xlarge.4",
        8,
        32768,
        {"pci_passthrough:alias": "nvidia-t4:1", "info:gpu:name": "nvidia-t4"},
    ),
)


def example_id(kind: str, number: int) -> str:
    """Return a uid that is recognisable as an example: it begins with the kind
    and ends with the number."""
    return f"{_KINDS[kind]:02x}000000-0000-11ee-8b5e-{number:012d}"


class CceCloud:
    """The project. lock: acquire it to change anything while a server is running.

    Variants of the vendor's behaviour, as a test needs them:
    limit: servers of the project, -1 for no limit. refuses_quota: a scale-up beyond it is refused
    at once instead of not being carried out. retries: CCE retries to create missing nodes every
    `times.retry`; conditions of a scale group are checked at the same interval. paged: node lists
    have pages; an old region returns everything. tells_groups: a pool with one scale group also
    lists that group's status. counts_coming: nodes being created count as existing. scale_status:
    HTTP status of the response to a scaling request. holds: seconds for which a request blocks
    others on its pool. lag: seconds until a scale group's status shows a request that the pool's
    size shows at once. prices: flavour -> hourly list price, by default of its size. discount:
    share of it that the account does not pay. currency: of all prices. price_answer: replaces the
    answer to every question for prices. refills: CCE replaces a spot instance that was taken back;
    otherwise the desired number falls with it. The vendor documents neither. unbootable: uids of
    nodes whose server does not come up from a reboot.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        region: str = REGION,
        project: str = PROJECT,
        times: CceDurations | None = None,
        seed: int = 0,
    ) -> None:
        self.clock, self.region, self.project, self.times = (
            clock,
            region,
            project,
            times or CceDurations(),
        )
        self.lock = threading.RLock()
        self.random = random.Random(seed)
        self.flavors = {flavor.name: flavor for flavor in FLAVORS}
        self.clusters: dict[str, CceCluster] = {}
        self.jobs: dict[str, CceJob] = {}
        self.projects = {project: region}
        self.sold: set[tuple[str, str]] = set()
        self.known_sold: set[tuple[str, str]] = set()
        self.operations: dict[str, dict[str, str]] = {}
        self.limit = -1
        self.refuses_quota = self.retries = self.paged = self.tells_groups = True
        self.counts_coming = False
        self.scale_status, self.holds, self.lag = 200, 0.0, 0.0
        self.prices: dict[str, float] = {}
        self.discount, self.currency = 0.0, "CNY"
        self.price_answer: object = None
        self.refills = True
        self.unbootable: set[str] = set()
        self.agenda: Agenda[CceCloud] = Agenda()
        self._counts = {kind: itertools.count(1) for kind in _KINDS}

    # -- test setup

    def zone(self, letter: str = "a") -> str:
        """Return an availability zone of the region."""
        return f"{self.region}{letter}"

    def add_cluster(self, name: str) -> CceCluster:
        """Add a cluster without pools."""
        with self.lock:
            made = CceCluster(self.number("cluster"), name, self.clock())
            self.clusters[made.uid] = made
            return made

    def add_pool(
        self,
        cluster: str,
        name: str,
        *,
        size: int = 0,
        flavor: str = "c7.xlarge.2",
        az: str = "",
        least: int = 0,
        most: int = 10,
        **more: Any,
    ) -> CcePool:
        """Add a pool whose default scale group has `size` active nodes. more: fields of Pool."""
        with self.lock:
            pool = CcePool(
                self.number("pool"), name, cluster, self.clock(), least=least, most=most, **more
            )
            pool.groups[DEFAULT] = ScaleGroup(
                DEFAULT, self.number("group"), flavor, az or self.zone(), size
            )
            self.clusters[cluster].pools[pool.uid] = pool
            self.add_nodes(pool.uid, size)
            return pool

    def add_group(
        self,
        pool: str,
        name: str,
        *,
        size: int = 0,
        flavor: str = "c7.xlarge.2",
        az: str = "",
        **more: Any,
    ) -> ScaleGroup:
        """Add a scale group with `size` active nodes. more: fields of ScaleGroup."""
        with self.lock:
            made = ScaleGroup(
                name, self.number("group"), flavor, az or self.zone("b"), size, **more
            )
            self.pool(pool).groups[name] = made
            self.add_nodes(pool, size, group=name)
            return made

    def add_nodes(
        self, pool: str, count: int, *, group: str = DEFAULT, phase: str = ACTIVE
    ) -> list[str]:
        """Add long-running nodes without changing the desired number. Returns their uids."""
        with self.lock:
            held = self.pool(pool)
            made = [
                self.make(held, held.groups[group], phase, self.clock(), None) for _ in range(count)
            ]
            for node in made:
                node.since = float("-inf") if phase not in COMING else node.since
            return [node.uid for node in made]

    def add_lonely(self, cluster: str, *, flavor: str = "c7.xlarge.2") -> Node:
        """Add a node without a pool."""
        with self.lock:
            node = self._node(
                DEFAULT_POOL, DEFAULT_POOL, cluster, flavor, self.zone(), ACTIVE, self.clock()
            )
            node.since = float("-inf")
            self.clusters[cluster].lonely[node.uid] = node
            return node

    def add_addon(
        self, cluster: str, template: str = "autoscaler", *, status: str = "running", **custom: Any
    ) -> Addon:
        """Add an installed add-on with this `custom` block."""
        with self.lock:
            made = Addon(self.number("addon"), template, cluster, status, dict(custom))
            self.clusters[cluster].addons.append(made)
            return made

    def sell_out(self, flavor: str, az: str, *, known: bool = False, hinted: bool = False) -> None:
        """Sell out a flavour in a zone. known: CCE knows it before a node is requested. hinted: the
        list of flavours also shows it."""
        with self.lock:
            self.sold.add((flavor, az))
            if known:
                self.known_sold.add((flavor, az))
            if hinted:
                self.operations.setdefault(flavor, {})[az] = "sellout"

    def restock(self, flavor: str, az: str) -> None:
        """Restock a flavour. CCE notices it at its next check."""
        with self.lock:
            self.sold.discard((flavor, az))
            self.known_sold.discard((flavor, az))
            self.operations.get(flavor, {}).pop(az, None)

    def spoil(
        self, pool: str, fate: CceProvisioningFate, times: int = 1, *, group: str = DEFAULT
    ) -> None:
        """Give the next `times` machines that the scale group requests this fate."""
        with self.lock:
            self.pool(pool).groups[group].fates += [fate] * times

    def vanish(self, node: str) -> None:
        """Remove a node instantly, as if its server was deleted outside CCE. CCE
        keeps the desired number."""
        with self.lock:
            self.forget(node)

    def withdraw_notice(self, node: str) -> None:
        """Let the vendor keep a spot instance running after all (simulation.py, give_notice)."""
        with self.lock:
            held = self.node(node)
            assert held is not None, "a node that exists"
            held.noticed = float("inf")

    def change_template(
        self,
        pool: str,
        *,
        group: str = DEFAULT,
        flavor: str = "",
        az: str = "",
        os: str = "",
        runtime: str = "",
    ) -> None:
        """Change what a scale group creates from now on; its nodes stay as they are."""
        with self.lock:
            held = self.pool(pool)
            place = held.groups[group]
            place.flavor, place.az = flavor or place.flavor, az or place.az
            held.os, held.runtime = os or held.os, runtime or held.runtime

    # -- content

    def number(self, kind: str) -> str:
        """Return a new uid of that kind."""
        return example_id(kind, next(self._counts[kind]))

    def pools(self) -> Iterator[CcePool]:
        """Return the pools of all clusters."""
        for cluster in self.clusters.values():
            yield from cluster.pools.values()

    def pool(self, uid: str) -> CcePool:
        """Return a pool. KeyError if it does not exist."""
        return {pool.uid: pool for pool in self.pools()}[uid]

    def node(self, uid: str) -> Node | None:
        """Return a node of any cluster."""
        return next(
            (
                found
                for cluster in self.clusters.values()
                if (found := cluster.node(uid)) is not None
            ),
            None,
        )

    def make(
        self,
        pool: CcePool,
        group: ScaleGroup,
        phase: str,
        at: float,
        fate: CceProvisioningFate | None,
    ) -> Node:
        """Add a node to a group."""
        node = self._node(pool.uid, pool.name, pool.cluster, group.flavor, group.az, phase, at)
        node.group, node.fate, node.billing = group.name, fate, pool.billing
        node.os, node.runtime, node.spot = pool.os, pool.runtime, pool.spot
        group.nodes[node.uid] = node
        return node

    def _node(
        self, pool: str, name: str, cluster: str, flavor: str, az: str, phase: str, at: float
    ) -> Node:
        number = next(self._counts["node"])
        return Node(
            example_id("node", number),
            f"{name.lower()}-{number:05x}",
            cluster,
            pool,
            DEFAULT,
            flavor,
            az,
            self.number("server"),
            f"192.168.{number // 250}.{number % 250 + 2}",
            phase,
            at,
            number,
        )

    def forget(self, uid: str) -> None:
        """Remove a node from the records."""
        for cluster in self.clusters.values():
            cluster.lonely.pop(uid, None)
            for pool in cluster.pools.values():
                for group in pool.groups.values():
                    group.nodes.pop(uid, None)

    def by_server(self, server: str) -> Node | None:
        """Return the node of a server that exists."""
        nodes = (
            node
            for cluster in self.clusters.values()
            for node in cluster.nodes()
            if node.phase != BUILD
        )
        return next((node for node in nodes if node.server == server), None)

    def job(self, kind: str, cluster: str, resource: str, name: str) -> CceJob:
        """Start a job."""
        made = CceJob(self.number("job"), kind, cluster, resource, name, self.clock())
        self.jobs[made.uid] = made
        return made

    def free(self) -> int | None:
        """Return how many more servers the quota allows, None for no limit."""
        used = sum(1 for cluster in self.clusters.values() for _ in cluster.nodes())
        return None if self.limit < 0 else max(0, self.limit - used)

    def running(self) -> list[Node]:
        """Return nodes of pools that are not being deleted."""
        with self.lock:
            return [node for pool in self.pools() for node in pool.all_nodes() if not node.leaves]

    def flavor_zones(self, flavor: str) -> Mapping[str, str]:
        """Return zone -> availability of a flavour."""
        told = self.operations.get(flavor, {})
        return {zone: told.get(zone, "normal") for zone in map(self.zone, "abc")}

    def price(self, flavor: str) -> float:
        """Return the list price of a server of the flavour per hour."""
        size = self.flavors[flavor]
        return self.prices.get(flavor, round(0.15 * size.cpus + 0.02 * size.memory / 1024, 6))

    # -- time

    def step(self) -> None:
        """Process everything that is due now."""
        with self.lock:
            self.agenda.play_due(self, self.clock())
