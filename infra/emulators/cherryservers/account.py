"""One emulated Cherry Servers account with its servers and stock, on a given clock.

It has no HTTP: a test sets up and inspects the account with this object, while the
program under test uses the API (server.py). Ids come from counters and nothing is random,
so two runs are identical.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping

from infra.emulators.cherryservers.models import (
    ACTIVE,
    DEPLOYED,
    DEPLOYING,
    FAILED,
    IMAGES,
    KEYS,
    NEVER,
    PLANS,
    PROVISIONING,
    REGIONS,
    STOCK,
    TERMINATING,
    CherryDurations,
    CherryPlan,
    CherryProvisioningFate,
    CherryServer,
    Order,
    Region,
)
from infra.emulators.vendor_common.fault_injection import VendorRefusedError


def bad(message: str) -> VendorRefusedError:
    return VendorRefusedError(400, message)


def missing(what: str) -> VendorRefusedError:
    return VendorRefusedError(404, f"{what} not found.")


TEAM, PROJECT, FOREIGN = 501, 10001, 20002
CLUSTER, POOL = "k8s-cluster", "k8s-nodepool"
NOTICE = 120.0  # seconds before a spot server is taken back, as the vendor's page says


class CherryCloud:
    """The account. lock: acquire it to change anything while a server is running.

    stock: (plan, region) -> number left; spot_stock: the same for spot machines. credit: number of
    servers that can still be paid for. quota: servers in a project, None for no limit.
    unique_hostnames: an order with a hostname in use is refused. lag: seconds until lists show a
    new server. delete_lag: seconds for which lists show a deleted server unchanged. dropped:
    servers that no longer exist, oldest first. Reads of a single server are never delayed.
    """

    def __init__(self, clock: Callable[[], float], *, times: CherryDurations | None = None) -> None:
        self.clock, self.times = clock, times or CherryDurations()
        self.lock = threading.RLock()
        self.plans = {plan.slug: plan for plan in PLANS}
        self.regions = {region.slug: region for region in REGIONS}
        self.keys = {key.id: key for key in KEYS}
        self.stock = {(plan.slug, region): STOCK for plan in PLANS for region in plan.regions}
        self.spot_stock = {
            (plan.slug, region): STOCK if plan.spot else 0
            for plan in PLANS
            for region in plan.regions
        }
        self.servers: dict[int, CherryServer] = {}
        self.dropped: list[CherryServer] = []
        self.projects = {PROJECT: "example", FOREIGN: "somebody else's"}
        self.credit: int | None = None
        self.quota: int | None = None
        self.unique_hostnames = False
        self.lag = self.delete_lag = 0.0
        self._fates: dict[str, list[CherryProvisioningFate]] = {}
        self._numbers = itertools.count(1000)

    # -- test setup

    def add_server(
        self,
        pool: str = "",
        *,
        cluster: str = "ours",
        plan: str = "e5_1620v4",
        region: str = "eu_nord_1",
        hostname: str = "",
        tags: Mapping[str, str] | None = None,
        project: int = PROJECT,
        user_data: str = "",
        spot: bool = False,
    ) -> CherryServer:
        """Add a server that has been running for long. pool, cluster: its two tags, unless `tags`
        is given; a server without a pool has no tags."""
        with self.lock:
            number = next(self._numbers)
            held = {CLUSTER: cluster, POOL: pool} if pool else {}
            order = Order(plan, region, hostname, "ubuntu_18_04", user_data=user_data, spot=spot)
            made = CherryServer(
                number,
                project,
                order,
                f"server-{number}",
                hostname or f"{pool or 'server'}-{number}",
                dict(held if tags is None else tags),
                self.clock(),
                ACTIVE,
                DEPLOYED,
                float("-inf"),
            )
            self.servers[number] = made
            return made

    def spoil(self, pool: str, fate: CherryProvisioningFate, times: int = 1) -> None:
        """Give the next `times` servers ordered with that pool's tag ("" for any) this fate."""
        with self.lock:
            self._fates.setdefault(pool, []).extend([fate] * times)

    def relent(self) -> None:
        with self.lock:
            self._fates.clear()

    def vanish(self, server: int) -> None:
        """Remove a server instantly (a spot machine is reclaimed)."""
        with self.lock:
            self._drop(self.servers[server])

    def give_notice(self, server: int, seconds: float = NOTICE) -> None:
        """Announce that the vendor takes a spot server back: it is terminated
        after that many seconds."""
        with self.lock:
            assert self.servers[server].order.spot, f"server {server} is no spot server"
            self.servers[server].reclaimed = self.clock() + seconds

    def withdraw_notice(self, server: int) -> None:
        """Take a notice back: the server stays."""
        with self.lock:
            self.servers[server].reclaimed = NEVER

    def sell_out(self, plan: str, region: str = "eu_nord_1") -> None:
        """Leave nothing of a plan in a region, on the spot market neither; its orders are
        refused."""
        with self.lock:
            self.stock[plan, region] = self.spot_stock[plan, region] = 0

    def members(self, pool: str, cluster: str = "ours") -> list[CherryServer]:
        with self.lock:
            return [
                each
                for each in self.servers.values()
                if (each.tags.get(CLUSTER), each.tags.get(POOL)) == (cluster, pool)
            ]

    # -- requests of clients

    def plan(self, name: str) -> CherryPlan | None:
        return self.plans.get(name) or next(
            (plan for plan in self.plans.values() if str(plan.id) == name), None
        )

    def region(self, name: str) -> Region | None:
        return self.regions.get(name) or next(
            (each for each in self.regions.values() if str(each.id) == name), None
        )

    def listed(self, project: int) -> list[tuple[CherryServer, str, str]]:
        """Return a project's servers as a list shows them, with state and status."""
        now = self.clock()
        return [
            (each, *(each.before if now < each.hidden else (each.state, each.status)))
            for each in (*self.servers.values(), *self.dropped)
            if each.project == project
            and each.listed <= now
            and (now < each.hidden or each.id in self.servers)
        ]

    def order(self, project: int, order: Order) -> CherryServer:
        """Create a server. Raises Refused if it is not available."""
        plan, region = self._sold(order)
        fate = self._fate(order.tags.get(POOL, ""))
        if fate.refusal is not None:
            raise VendorRefusedError(*fate.refusal)
        stock, key = self.spot_stock if order.spot else self.stock, (plan.slug, region.slug)
        held = [each for each in self.servers.values() if each.project == project]
        if stock.get(key, 0) < 1:
            raise bad(f"Not enough stock: plan {plan.slug} is sold out in region {region.slug}.")
        if self.credit is not None and self.credit < 1:
            raise VendorRefusedError(402, "Your team has not enough credit to order this server.")
        if self.quota is not None and len(held) >= self.quota:
            raise bad(f"The limit of {self.quota} servers for this project is reached.")
        if self.unique_hostnames and order.hostname in {each.hostname for each in held}:
            raise bad(f"Hostname {order.hostname} is in use.")
        stock[key] -= 1
        self.credit = None if self.credit is None else self.credit - 1
        number, now = next(self._numbers), self.clock()
        takes = (
            self.times.fail
            if fate.fails
            else self.times.virtual
            if plan.virtual
            else self.times.deploy
        )
        made = CherryServer(
            number,
            project,
            order,
            plan.name,
            order.hostname or f"server-{number}",
            dict(order.tags),
            now,
            deployed=now + takes,
            listed=now + self.lag,
            fate=fate,
        )
        self.servers[number] = made
        return made

    def act(self, server: CherryServer, action: str) -> None:
        """Carry out an action on a server. Raises VendorRefusedError for one that is unknown or not
        emulated, and for a server that is not deployed."""
        if action != "reboot":
            raise bad(f"Bad request: type {action} is not valid.")
        if server.leaving or server.status == DEPLOYING:
            raise bad(
                "This action is not available while the server is being deployed or terminated."
            )
        server.reboots.append(self.clock())

    def terminate(self, server: CherryServer, at: float | None = None) -> None:
        """Delete a server. at: when that began, now by default."""
        if server.leaving:
            return
        now = self.clock() if at is None else at
        server.before, server.hidden = (server.state, server.status), now + self.delete_lag
        server.state, server.gone = TERMINATING, now + self.times.terminate

    def _sold(self, order: Order) -> tuple[CherryPlan, Region]:
        plan, region = self.plan(order.plan), self.region(order.region)
        if plan is None:
            raise bad(f"Plan {order.plan} does not exist.")
        if region is None:
            raise bad(f"Region {order.region} does not exist.")
        if region.slug not in plan.regions:
            raise bad(f"Plan {plan.slug} is not available in region {region.slug}.")
        if order.image and order.image not in IMAGES:
            raise bad(f"Image {order.image} is not available for plan {plan.slug}.")
        unknown = [key for key in order.ssh_keys if key not in self.keys]
        if unknown:
            raise missing(f"SSH key {unknown[0]}")
        return plan, region

    def _fate(self, pool: str) -> CherryProvisioningFate:
        for name in (pool, ""):
            if self._fates.get(name):
                return self._fates[name].pop(0)
        return CherryProvisioningFate()

    # -- time

    def step(self) -> None:
        with self.lock:
            now = self.clock()
            for server in list(self.servers.values()):
                if server.reclaimed <= now:
                    self.terminate(server, server.reclaimed)
                if server.gone <= now:
                    self._drop(server)
                elif server.deployed <= now and server.status == DEPLOYING and not server.leaving:
                    server.state, server.status = (
                        (server.fate.state, FAILED) if server.fate.fails else (ACTIVE, DEPLOYED)
                    )
                elif (
                    server.state == "pending"
                    and server.status == DEPLOYING
                    and now - server.created >= self.times.accept
                ):
                    server.state = PROVISIONING

    def _drop(self, server: CherryServer) -> None:
        del self.servers[server.id]
        self.dropped.append(server)
        plan, region = self.plan(server.order.plan), self.region(server.order.region)
        if plan is not None and region is not None:
            stock, key = (
                self.spot_stock if server.order.spot else self.stock,
                (plan.slug, region.slug),
            )
            stock[key] = stock.get(key, 0) + 1
        server.gone = min(server.gone, self.clock()) if server.gone == NEVER else server.gone
