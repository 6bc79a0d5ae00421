"""Managed pools in a run: an account of a vendor beside the cluster, a declaration that opens
groups there, and checks of what our requests do to these groups, request by request.

    growth    only by a scale-up of this group, to its size, once; all groups together have no more
              nodes than their declaration allows
    names     a name gets a second object, or a machine too many, only from a process that was
              disturbed between its look and its request
    victims   a machine whose node has joined goes only by a removal that names it; the checks of
              audit.py hold for this node

The group that a person has made at Exoscale is one of the ordinary groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import msgspec

from infra.emulators.cherryservers.attached_account import CherryAccount
from infra.emulators.cherryservers.models import PLANS, STOCK, CherryProvisioningFate
from infra.emulators.controllers.scheduler.pod_and_node_info import read_pod
from infra.emulators.controllers.scheduler.scheduler import waits
from infra.emulators.exoscale.attached_account import ExoscaleAccount
from infra.emulators.exoscale.models import NOT_STARTING
from infra.emulators.vendor_common.http_messages import Answer, Incoming
from infra.emulators.vendor_common.server import AttachedAccount
from tests.faults.cluster import FAT, WIDE
from tests.faults.faulty_world import FaultWorld
from tests.faults.vendor_groups import NAME, VENDORS
from tests.faults.watched_vendor import writes

MOST = 8
"""Nodes of the declaration."""
ODD = (FAT.name, WIDE.name)
TYPES = {
    "exoscale": ("memory.extra-large", "standard.huge", "cpu.extra-large"),
    "cherryservers": ("e5_1620v4", "amd-ryzen-9950x"),
}
"""Machine types of the declaration, each of which is sold out for a while."""
REQUIREMENTS: Mapping[str, Mapping[str, Any]] = {
    "exoscale": {},
    "cherryservers": {"zones": ["eu_nord_1", "LT-Siauliai"]},
}


class OwnObject(msgspec.Struct, frozen=True):
    """An object at the vendor. size: machines that it shall have; machines: id of those that stay
    -> name of the Node."""

    name: str
    size: int
    machines: Mapping[str, str]


class OwnGroups:
    """The own groups of one world. doubled: names with too much, by disturbed processes."""

    def __init__(self, provider: str) -> None:
        self.provider, self._group = provider, VENDORS[provider]()
        account = self._group.account
        assert account is not None
        self.account: AttachedAccount[Any, Any] = account
        self.doubled: set[str] = set()
        self._grown: dict[str, str] = {}  # operation -> the object that it has grown
        self._types: dict[str, str] = {}  # name -> machine type

    def begin(self, world: FaultWorld) -> None:
        """Adds an empty group of a person, and checks all requests from now on."""
        self._world, world.around_vendor, world.own_group = world, self.through, self.group_of
        if world.audit.replacements is not None:
            world.audit.replacements.own_price = self.price
        if isinstance(self.account, ExoscaleAccount):
            zone = self.account.zone
            zone.add_nodepool(zone.add_cluster("prod").id, NAME)

    def policy(self) -> dict[str, Any]:
        """What the policy says of the vendor."""
        pool = {"name": "general", "provider": self.provider, "limits": {"nodes": MOST}}
        requirements = {"types": TYPES[self.provider], **REQUIREMENTS[self.provider]}
        return {
            "providers": {self.provider: dict(self._group.settings())},
            "managedPools": [{**pool, "copyFrom": NAME, "requirements": requirements}],
        }

    def objects(self) -> dict[str, OwnObject]:
        """Returns the objects by their ids, those that are being deleted left out. A pool of
        servers is one."""
        if isinstance(self.account, ExoscaleAccount):
            pools = [
                pool
                for sks in self.account.zone.clusters.values()
                for pool in sks.nodepools.values()
                if pool.state_now != "deleting"
            ]
            self._types.update((pool.name, pool.pool.kind.name) for pool in pools)
            return {
                made.pool.id: OwnObject(
                    made.name, made.pool.size, {vm.id: vm.name for vm in made.pool.staying}
                )
                for made in pools
            }
        assert isinstance(self.account, CherryAccount)
        servers: dict[str, dict[str, str]] = {}
        for server in self.account.cloud.servers.values():
            if not server.leaving:
                own = servers.setdefault(server.tags["k8s-nodepool"], {})
                own[str(server.id)] = server.hostname
                self._types[server.tags["k8s-nodepool"]] = server.order.plan
        return {name: OwnObject(name, len(own), own) for name, own in servers.items()}

    # -- around a request

    def through(self, incoming: Incoming, answer: Callable[[], Answer]) -> Answer:
        """Answers a request, and checks what it does."""
        if not writes(incoming):
            return answer()
        before = self.objects()
        made = answer()
        after = self.objects()
        for key, group in after.items():
            size = before[key].size if key in before else 0
            if group.size > size or key not in before:
                self._grew(key, group, before, after)
        for key, group in before.items():
            gone = set(group.machines) - set(after[key].machines if key in after else ())
            for machine in sorted(gone):
                self._victim(key, group, machine)
        return made

    def _grew(
        self,
        key: str,
        group: OwnObject,
        before: Mapping[str, OwnObject],
        after: Mapping[str, OwnObject],
    ) -> None:
        audit, process, name = self._world.audit, self._world.process, group.name
        operation = process.operation if process is not None else ""
        known = self._world.planned_operation(operation) if operation else None
        if known is None or known["kind"] != "grow" or known["group"] not in (name, key):
            audit.fault(f"{name} grew to {group.size}, and operation {operation or '-'} is {known}")
            return
        audit.count("own groups grown" if key in before else "own groups opened")
        if known["replacement"] and audit.replacements is not None:
            bought = group.size - (before[key].size if key in before else 0)
            audit.replacements.bought(known["replacement"], name, bought)
        first = self._grown.setdefault(operation, key)
        is_second = key not in before and any(other.name == name for other in before.values())
        if is_second or first != key or group.size > known["to"]:
            audit.count("own groups doubled")
            self.doubled.add(name)
            if process is None or not process.disturbed:
                audit.fault(f"{name} has {group.size} by {operation}, which was not disturbed")
        nodes = sum(own.size for own in after.values() if own.name.startswith("osc-"))
        if nodes > MOST + len(self.doubled):
            audit.fault(f"the declaration has {nodes} nodes, more than {MOST}")

    def _victim(self, key: str, group: OwnObject, machine: str) -> None:
        """Checks a machine that goes. Removals of a group may share a request."""
        world, process, name = self._world, self._world.process, group.machines[machine]
        operation = process.operation if process is not None else ""
        asked = world.planned_operation(operation) if operation else None
        if asked is None or asked["group"] not in (group.name, key):
            world.audit.fault(f"machine {name} of {group.name} goes; operation: {operation or '-'}")
            return
        node = world.kube.peek("nodes", name)
        if node is None:
            return  # nothing runs there
        known = [world.planned_operation(other.spec.id) for other in world.operations()]
        naming = [other for other in (asked, *known) if other and name in other["nodes"]]
        if not naming:
            world.audit.fault(f"node {name} goes by {operation}, and nothing names it")
            return
        world.audit.count("own nodes gone")
        world.audit.node_goes(node, naming[0])

    # -- what befalls the vendor

    def befall(self, dice: Random) -> str:
        """Sells a type out or has it again, or makes the next machine fail."""
        kind, account = dice.choice(TYPES[self.provider]), self.account
        fails = dice.random() < 0.3
        if isinstance(account, ExoscaleAccount):
            if fails:
                account.zone.creation_fates = [NOT_STARTING]
                return "the first machine of the next own group never starts"
            account.zone.sold_out ^= {kind}
            return f"{kind} is {'' if kind in account.zone.sold_out else 'not '}sold out"
        assert isinstance(account, CherryAccount)
        if fails:
            account.cloud.spoil("", CherryProvisioningFate(joins=False))
            return "the next server never joins"
        stock = account.cloud.stock
        places = [place for place in stock if place[0] == kind]
        amount = 0 if all(stock[place] for place in places) else STOCK
        stock.update(dict.fromkeys(places, amount))
        return f"{kind} has a stock of {amount}"

    def heal(self) -> None:
        """Ends all that has befallen the vendor."""
        if isinstance(self.account, ExoscaleAccount):
            self.account.zone.creation_fates, self.account.zone.sold_out = [], set()
        elif isinstance(self.account, CherryAccount):
            self.account.cloud.relent()
            self.account.cloud.stock = dict.fromkeys(self.account.cloud.stock, STOCK)

    # -- for the checks of replacements

    def group_of(self, node: str) -> str:
        """Returns the own group of a node, "" if it has none."""
        groups = self.objects().values()
        return next((own.name for own in groups if node in own.machines.values()), "")

    def price(self, name: str) -> float:
        """Returns what a node of an own group costs, in hundredths an hour, without its disk."""
        if isinstance(self.account, ExoscaleAccount):
            return 100 * self.account.zone.kind(self._types[name]).price
        return 100 * next(plan.hourly for plan in PLANS if plan.slug == self._types[name])

    # -- the end

    def machines(self) -> set[str]:
        """Returns the ids of all own machines that stay."""
        return {machine for own in self.objects().values() for machine in own.machines}

    def restless(self) -> Iterator[str]:
        """Returns what is not in its final state: a name with two objects, machines that memory
        does not count, and pods that wait although a node could be bought."""
        world = self._world
        own = [group for group in self.objects().values() if group.name.startswith("osc-")]
        for name, times in Counter(group.name for group in own).items():
            if times > 1:
                yield f"there are {times} objects of the name {name}"
        rows = world.memory().groups
        nodes = {node["metadata"]["name"] for node in world.kube.list("nodes")}
        for group in own:
            target = rows[group.name].target if group.name in rows else 0
            joined = sum(name in nodes for name in group.machines.values())
            if not group.size == len(group.machines) == joined == target:
                yield (
                    f"{group.name} has {len(group.machines)} machines of {group.size}, {joined} "
                    f"nodes, and a target of {target}"
                )
        if sum(group.size for group in own) < MOST:
            for pod in world.kube.list("pods", "default"):
                app = pod["metadata"].get("labels", {}).get("app", "")
                if app.startswith(ODD) and waits(read_pod(pod)):
                    yield f"pod {pod['metadata']['name']} waits, and a group may be opened for it"
