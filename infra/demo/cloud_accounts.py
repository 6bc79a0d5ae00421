"""The shop's clouds in addition to Cluster API: their groups, their shortages, and their observers.

Alibaba Cloud has none of the machines preferred for bursts. Exoscale's organisation has no quota
for another instance. The first server that Cherry Servers delivers never joins the cluster, like
one with a broken disk. Huawei Cloud has sold out the flavour preferred for the night.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from chalicelib.model.managed_group import PREFIX, declaration_in_name
from chalicelib.reasons.words import counted
from infra.demo.cluster_observer import Side
from infra.demo.console import Ledger, Say
from infra.demo.fixture import (
    BURST,
    CLUSTER,
    DAY,
    METAL,
    NIGHT,
    NIGHT_FIRST,
    NIGHT_SECOND,
    NIGHT_UID,
    RARE_TYPE,
    SKS,
    SPARE,
    STREAM,
    STREAM_SPOT,
    STREAM_TYPE,
    managed_name,
    policy,
)
from infra.emulators.alicloud.account import AlicloudCloud
from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.alicloud.models import NO_STOCK, Activity, MachineType
from infra.emulators.cherryservers.account import POOL, PROJECT, CherryCloud
from infra.emulators.cherryservers.attached_account import CherryAccount, CherryRegistrationOptions
from infra.emulators.cherryservers.models import DEPLOYED, NEVER_JOINS, CherryServer
from infra.emulators.cherryservers.models import CherryDurations as MetalTimes
from infra.emulators.cloud_account import CloudBeside
from infra.emulators.exoscale.attached_account import ExoscaleAccount, ExoscaleRegistrationOptions
from infra.emulators.exoscale.models import ExoscaleDurations, ExoscalePool, Kind
from infra.emulators.huaweicloud.attached_account import HuaweiAccount
from infra.emulators.huaweicloud.models import DEFAULT, SOLD_OUT, CcePool, Node, ScaleGroup
from infra.emulators.huaweicloud.models import CceDurations as CceTimes
from infra.emulators.huaweicloud.node_registration import CceRegistrationOptions as CceWays
from infra.emulators.vendor_common.dispatcher import LoggedOperation

_ORDERED_BY = "outscaler-operation"


@dataclass(frozen=True)
class News:
    """What a cloud was asked for, or did. group: its name in the demonstration. called: a call of
    the provider, whose causes are printed before. asked: sizes before and after, where more
    machines are asked for. bought, refused, lost: machines. why: the vendor's text for a
    refusal."""

    text: str
    group: str = ""
    called: bool = False
    asked: tuple[int, int] | None = None
    bought: int = 0
    refused: int = 0
    why: str = ""
    lost: int = 0


class CloudReader(Protocol):
    """Reads one cloud."""

    def news(self) -> Iterator[News]:
        """Yield what is new since the last call."""

    def sizes(self) -> dict[str, int]:
        """Return name -> desired machines."""


class CloudObserver:
    """look() reports what is new. first: called before a provider call is reported. answered:
    called when something is bought."""

    def __init__(
        self,
        reader: CloudReader,
        ledger: Ledger,
        say: Say,
        first: Callable[[], None],
        answered: Callable[[], None],
    ) -> None:
        self._reader, self._ledger, self._say = reader, ledger, say
        self._first, self._answered = first, answered
        self.sizes = reader.sizes

    def look(self) -> None:
        for news in self._reader.news():
            if news.called:
                self._first()
            if news.asked is not None:
                self._ledger.asked.append((news.group, *news.asked))
                self._ledger.steps.append(f"asked {news.group}")
                self._answered()
            for counter, machines in (
                (self._ledger.bought, news.bought),
                (self._ledger.refused, news.refused),
                (self._ledger.lost, news.lost),
            ):
                if machines:
                    counter[news.group] += machines
            if news.why:
                self._ledger.why[news.group] = news.why
            self._say("provider", news.text)


class _Fresh:
    """Tells what is new from what was seen before."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, object]] = set()

    def is_new(self, kind: str, key: object) -> bool:
        new = (kind, key) not in self._seen
        self._seen.add((kind, key))
        return new


class AlicloudReader(_Fresh):
    """Reads the account's scaling activities. groups: scaling group id -> name."""

    def __init__(self, cloud: AlicloudCloud, groups: Mapping[str, str]) -> None:
        super().__init__()
        self._cloud, self._groups = cloud, groups

    def news(self) -> Iterator[News]:
        with self._cloud.lock:
            activities = [
                (self._groups[group.id], activity)
                for group in self._cloud.groups.values()
                for activity in group.activities
            ]
        for name, activity in activities:
            instances = f"{counted(activity.wanted, 'instance')} of {name}"
            what = "for" if activity.grows else "to remove"
            if self.is_new("begun", activity.id):
                text = f"Alibaba Cloud was asked {what} {instances}: activity {activity.id} begins"
                yield News(
                    text, name, called=True, asked=(0, activity.wanted) if activity.grows else None
                )
            if not activity.running and self.is_new("ended", activity.id):
                yield from self._end(name, activity)

    def _end(self, name: str, activity: Activity) -> Iterator[News]:
        made = len(activity.machines)
        done = f"activity {activity.id}: {counted(made, 'instance')} of {name}"
        if not activity.grows:
            yield News(f"{done} released")
            return
        if made:
            yield News(f"{done} in service", name, bought=made)
        if missing := activity.wanted - made:
            code = activity.problems[0].code if activity.problems else "no reason"
            text = (
                f"activity {activity.id} {activity.status.lower()}: {missing} of {name} not made, "
                f"{code}"
            )
            yield News(text, name, refused=missing, why=code)

    def sizes(self) -> dict[str, int]:
        with self._cloud.lock:
            return {
                name: self._cloud.groups[group_id].desired or 0
                for group_id, name in self._groups.items()
            }


class CherryReader(_Fresh):
    """Reads servers. Every one is a separate order and contains the operation that ordered it."""

    def __init__(self, cloud: CherryCloud) -> None:
        super().__init__()
        self._cloud = cloud

    def news(self) -> Iterator[News]:
        with self._cloud.lock:
            servers = [*self._cloud.servers.values(), *self._cloud.dropped]
        by_order: defaultdict[str, list[CherryServer]] = defaultdict(list)
        for server in servers:
            if self.is_new("server", server.id):
                by_order[server.tags.get(_ORDERED_BY, "")].append(server)
        for order, ordered in by_order.items():
            group = _group_of(ordered[0])
            hosts = ", ".join(server.hostname for server in ordered)
            number = counted(len(ordered), "server")
            text = f"Cherry Servers was asked for {number} of {group}: {hosts}"
            asked = (0, len(ordered)) if self.is_new("order", order) else None
            yield News(text, group, called=True, asked=asked, bought=len(ordered))
        for server in servers:
            if server.status == DEPLOYED and self.is_new("deployed", server.id):
                never = "" if server.fate.joins else ", and will never join the cluster"
                yield News(f"Cherry Servers: {server.hostname} is deployed{never}")
            if server.leaving and self.is_new("leaving", server.id):
                text = f"Cherry Servers terminates {server.hostname} (server {server.id})"
                yield News(text, _group_of(server), called=True, lost=not server.fate.joins)

    def sizes(self) -> dict[str, int]:
        with self._cloud.lock:
            staying = [server for server in self._cloud.servers.values() if not server.leaving]
        return {METAL: 0, **Counter(_group_of(server) for server in staying)}


def _group_of(server: CherryServer) -> str:
    declaration = declaration_in_name(server.tags.get(POOL, ""))
    return managed_name(declaration, server.order.plan) if declaration else METAL


class ExoscaleReader:
    """Reads requests for changes of one Nodepool. Its quota is used up, so that it refuses them.
    pool: the Nodepool's Instance Pool."""

    def __init__(self, account: ExoscaleAccount, pool: str) -> None:
        self._account, self._pool = account, pool
        self._calls, self._size = 0, 0

    def news(self) -> Iterator[News]:
        log = self._account.server.log
        calls, self._calls = log[self._calls :], len(log)
        for call in calls:
            if not call.writes or self._account.zone.pools[self._pool].nodepool not in call.path:
                continue
            size, before = int(json.loads(call.body or "{}").get("size", 0)), self._size
            if call.status >= 300:
                text = f"Exoscale was asked for another size of {SKS}: {before} ► {size}, and says "
                text += f"{call.status}: {call.message}"
                yield News(text, SKS, called=True, refused=size - before, why=call.message)
                continue
            self._size, more = size, max(0, size - before)
            text = f"Exoscale was asked for {counted(size, 'instance')} of {SKS}"
            yield News(text, SKS, called=True, asked=(before, size) if more else None, bought=more)

    def sizes(self) -> dict[str, int]:
        with self._account.zone.lock:
            return {SKS: self._account.zone.pools[self._pool].size}


_CREATE, _DELETE, _SCALE = "create-sks-nodepool", "delete-sks-nodepool", "scale-sks-nodepool"


class NodepoolReader(_Fresh):
    """Reads requests for Nodepools that Outscaler makes, and their machines. A Nodepool is made
    with one machine and then grown, so only its creation counts as asked."""

    def __init__(self, account: ExoscaleAccount) -> None:
        super().__init__()
        self._account = account
        self._calls = 0
        self._names: dict[str, str] = {}

    def news(self) -> Iterator[News]:
        zone, log = self._account.zone, self._account.server.log
        calls, self._calls = log[self._calls :], len(log)
        with zone.lock:
            machines = [(self._name(pool), list(pool.members)) for pool in self._own()]
            failed = [
                (work.id, self._names[work.pool], work.message)
                for work in zone.works.values()
                if work.creates and work.state == "failure" and work.pool in self._names
            ]
        yield from filter(None, map(self._request, calls))
        for name, members in machines:
            built = sum(self.is_new("machine", member) for member in members)
            if built:
                yield News(
                    f"Exoscale builds {counted(built, 'instance')} of {name}", name, bought=built
                )
        for work, name, why in failed:
            if self.is_new("failed", work):
                yield News(f"Exoscale has none for {name}: {why}", name, refused=1, why=why)

    def sizes(self) -> dict[str, int]:
        with self._account.zone.lock:
            return {self._name(pool): pool.size for pool in self._own()}

    def made(self) -> Counter[str]:
        """Return group -> its creations that the vendor has accepted."""
        bodies = (
            json.loads(call.body)
            for call in self._account.server.log
            if call.operation == _CREATE and call.status < 300
        )
        return Counter(self._requested(body) for body in bodies)

    def existing(self) -> Counter[str]:
        """Return group -> its Nodepools."""
        with self._account.zone.lock:
            return Counter(self._name(pool) for pool in self._own())

    def _own(self) -> list[ExoscalePool]:
        """Return the pools of own Nodepools. The caller has the zone's lock."""
        zone = self._account.zone
        nodepools = ((pool, zone.nodepool(pool)) for pool in zone.pools.values())
        return [
            pool
            for pool, nodepool in nodepools
            if nodepool is not None and nodepool.name.startswith(PREFIX)
        ]

    def _name(self, pool: ExoscalePool) -> str:
        nodepool = self._account.zone.nodepool(pool)
        if nodepool is not None:
            name = managed_name(declaration_in_name(nodepool.name), pool.kind.name)
            self._names[pool.id] = self._names[nodepool.id] = name
        return self._names[pool.id]

    def _requested(self, body: Mapping[str, Any]) -> str:
        kind = self._account.zone.kinds[body["instance-type"]["id"]]
        return managed_name(declaration_in_name(body["name"]), kind.name)

    def _request(self, call: LoggedOperation) -> News | None:
        if not call.writes or call.status >= 300:
            return None
        if call.operation == _CREATE:
            name = self._requested(json.loads(call.body))
            text = f"Exoscale was asked for a Nodepool of one machine: {name}"
            return News(text, name, called=True, asked=(0, 1))
        nodepool = call.path.rpartition("/")[2].partition(":")[0]
        if (owner := self._names.get(nodepool, "")) == "":
            return None
        body = json.loads(call.body or "{}")
        words = {
            _DELETE: f"to delete the Nodepool {owner}",
            _SCALE: f"for another size of {owner}: {body.get('size')}",
        }
        fewer = f"to remove {counted(len(body.get('instances', ())), 'instance')} of {owner}"
        return News(f"Exoscale was asked {words.get(call.operation, fewer)}", owner, called=True)


class HuaweiReader(_Fresh):
    """Reads requests that change a pool's size, nodes being built, and sold-out
    flavours. groups: node group id (`<pool>/<scale group>`) -> name. What exists at
    creation of this object is no news.

    A pool's scale groups are named after the pool and their difference, e.g. `night-m7`. CCE
    accepts a request and reports later, with a condition of the scale group, that the flavour is
    unavailable; this is counted as refused.
    """

    def __init__(self, account: HuaweiAccount, groups: Mapping[str, str]) -> None:
        super().__init__()
        self._account, self._groups = account, groups
        self._calls = len(account.server.log)
        self._totals = {pool.uid: pool.desired for pool in account.cloud.pools()}
        for _, node in self._nodes():
            self.is_new("node", node.uid)

    def news(self) -> Iterator[News]:
        log = self._account.server.log
        calls, self._calls = log[self._calls :], len(log)
        yield from (self._order(call) for call in calls if call.operation == "scale-pool")
        with self._account.cloud.lock:
            nodes, short = self._nodes(), list(self._sold_out())
        yield from self._changes(nodes)
        for name, missing in short:
            text = f"Huawei Cloud says of {name}: {SOLD_OUT.condition}, {SOLD_OUT.message}"
            yield News(text, name, refused=missing, why=SOLD_OUT.reason)

    def sizes(self) -> dict[str, int]:
        with self._account.cloud.lock:
            return {name: group.desired for name, group in self._named()}

    def _named(self) -> list[tuple[str, ScaleGroup]]:
        return [
            (self._groups[f"{pool.uid}/{group.name}"], group)
            for pool in self._account.cloud.pools()
            for group in pool.groups.values()
        ]

    def _nodes(self) -> list[tuple[str, Node]]:
        return [
            (name, node) for name, group in self._named() for node in list(group.nodes.values())
        ]

    def _sold_out(self) -> Iterator[tuple[str, int]]:
        """Yield how many nodes of a group are unavailable, when this becomes
        known for the first time."""
        for name, group in self._named():
            missing = group.desired - len(group.staying)
            if (
                SOLD_OUT.condition in group.conditions
                and missing > 0
                and self.is_new("sold out", name)
            ):
                yield name, missing

    def _order(self, call: LoggedOperation) -> News:
        uid = call.path.split("/nodepools/")[1].partition("/")[0]
        spec = json.loads(call.body)["spec"]
        before, total = self._totals[uid], int(spec["desiredNodeCount"])
        name, pool = self._groups[f"{uid}/{spec['scaleGroups'][0]}"], self._account.cloud.pool(uid)
        text = (
            f"Huawei Cloud was asked for another size of pool {pool.name}, by {name}: {before} ► "
            f"{total}"
        )
        if call.status >= 300:
            return News(f"{text}, and says {call.status} {call.code}: {call.message}", called=True)
        self._totals[uid] = total
        return News(text, name, called=True, asked=(before, total) if total > before else None)

    def _changes(self, nodes: list[tuple[str, Node]]) -> Iterator[News]:
        built: Counter[str] = Counter()
        deleted: defaultdict[str, list[str]] = defaultdict(list)
        for name, node in nodes:
            built[name] += self.is_new("node", node.uid)
            if node.leaves and self.is_new("leaving", node.uid):
                self._totals[node.pool] -= 1
                deleted[name].append(node.ip)
        for name, number in (+built).items():
            yield News(
                f"Huawei Cloud builds {counted(number, 'node')} of {name}", name, bought=number
            )
        for name, addresses in deleted.items():
            yield News(f"Huawei Cloud deletes {', '.join(addresses)} of {name}", called=True)


_TAGS = "k8s.io/cluster-autoscaler/node-template/"
_MEGA = Kind("a1000000-0000-4000-8000-000000000099", "standard", "mega", 12, 64 * 2**30)
_SCRIPT = """\
#!/bin/bash
echo 'KUBELET_EXTRA_ARGS=--node-labels=pool={{.NodeGroup}}' > /etc/default/kubelet
kubeadm join --discovery-token-unsafe-skip-ca-verification \\
  --token {{.BootstrapTokenID}}.{{.BootstrapTokenSecret}} {{.APIServerEndpoint}} # {{.NodeGroup}}
"""
_METAL = {
    "projectId": PROJECT,
    "region": "LT-Siauliai",
    "plan": "amd-ryzen-9950x",
    "os": "ubuntu_24_04_64bit",
    "apiServerEndpoint": "203.0.113.10:6443",
    "cloudInit": _SCRIPT,
}
_STAY = 10
"""Minutes for which a new node of Huawei Cloud's pools may not be removed, as set in the pools."""
_PATIENCE = "3m"
"""Time limit for a server of Cherry Servers to join; in the emulation it is
deployed within a minute."""


class Clouds:
    """Call furnish() before anything is observed. The accounts must be attached by then
    (live/emulation.py does that).

    broken: servers of Cherry Servers that never join.
    """

    def __init__(self, broken: int = 1) -> None:
        self._broken = broken
        self._alicloud = AlicloudAccount()
        self._exoscale = ExoscaleAccount(
            times=ExoscaleDurations(operation=10.0, create=5.0, destroy=5.0, delete_pool=10.0),
            ways=ExoscaleRegistrationOptions(boot=10.0),
        )
        self._cherry = CherryAccount(
            times=MetalTimes(deploy=60.0, virtual=15.0, terminate=10.0),
            ways=CherryRegistrationOptions(cluster=CLUSTER),
            create_tokens=True,
        )
        self._huawei = HuaweiAccount(
            times=CceTimes(order=10.0, build=20.0, install=20.0, delete=20.0),
            ways=CceWays(boot=5.0, taint=5.0),
        )
        self._scaling: dict[str, str] = {}
        self._pools: dict[str, str] = {}
        self._flavours: dict[str, str] = {}
        self._nodepool = ""
        self._names: dict[str, str] = {}

    @property
    def accounts(self) -> tuple[CloudBeside, ...]:
        return self._alicloud, self._exoscale, self._cherry, self._huawei

    def furnish(self) -> dict[str, str]:
        """Create the groups, all of them empty except Huawei Cloud's. Returns id -> the
        name in the demonstration; groups that come later are added to it."""
        self._bursts()
        self._renders()
        self._nights_and_days()
        self._names |= {
            **self._scaling,
            self._nodepool: SKS,
            METAL: METAL,
            **self._pools,
            **self._flavours,
        }
        return self._names

    def add_streams(self) -> None:
        """Add two scaling groups of one instance type: one node of the spot
        group, and none on demand."""
        for name, size, strategy in ((STREAM_SPOT, 1, "SpotAsPriceGo"), (STREAM, 0, "NoSpot")):
            tags = {f"{_TAGS}label/pool": name}
            made = self._alicloud.cloud.add_group(
                name, size=size, most=3, types=(STREAM_TYPE,), machine_tags=tags, spot=strategy
            )
            self._scaling[made.id] = self._names[made.id] = name

    def offer_machines(self) -> None:
        """Let Exoscale raise the quota, and sell one type out."""
        zone = self._exoscale.zone
        with zone.lock:
            zone.limit = zone.usage() + 20
            zone.sold_out.add(RARE_TYPE)

    def have_told_prices(self) -> bool:
        """Return whether both vendors of managed pools have been asked for their machine types."""
        asked = {call.operation for call in self._exoscale.server.log}
        plans = {call.action for call in self._cherry.server.log}
        return "get-price-list" in asked and bool(plans & {"list_plans", "list_team_plans"})

    def interrupt(self) -> float:
        """Let Alibaba Cloud announce that it takes back the node of the spot group.
        Returns when, in epoch seconds."""
        cloud = self._alicloud.cloud
        with cloud.lock:
            (machine,) = (
                machine
                for group in cloud.groups.values()
                if group.name == STREAM_SPOT
                for machine in group.machines
            )
            return cloud.interrupt(machine)

    def policy(self, topic: str) -> str:
        """Return the policy's document. topic: of notifications."""
        scaling = [
            {
                "provider": "alicloud",
                "id": id_,
                "min": 0,
                "max": 3,
                "priority": 20 if name == BURST else 10,
            }
            for id_, name in self._scaling.items()
        ]
        renders = [
            {"provider": "exoscale", "id": self._nodepool, "min": 0, "max": 3, "priority": 20},
            {"provider": "cherryservers", "id": METAL, "min": 0, "max": 3, "priority": 10},
        ]
        whole = self._cherry.settings()
        metal = {
            **{key: whole[key] for key in ("credentialsSecret", "endpoint")},
            "clusterName": CLUSTER,
            "createBootstrapTokens": True,
            "maxNodeProvisionTime": _PATIENCE,
            "nodeGroupDefs": {"default": _METAL},
        }
        sections = {
            "clusterapi": {"namespace": "default", "clusterName": "local"},
            "alicloud": self._alicloud.settings(),
            "exoscale": self._exoscale.settings(),
            "cherryservers": metal,
            "huaweicloud": self._huawei.settings(),
        }
        return policy(json.dumps(sections), json.dumps(scaling + renders), topic)

    def sides(
        self, ledger: Ledger, say: Say, first: Callable[[], None], answered: Callable[[], None]
    ) -> Sequence[Side]:
        self.nodepools = NodepoolReader(self._exoscale)
        readers = (
            AlicloudReader(self._alicloud.cloud, self._scaling),
            ExoscaleReader(self._exoscale, self._nodepool),
            self.nodepools,
            CherryReader(self._cherry.cloud),
            HuaweiReader(self._huawei, self._flavours),
        )
        return [CloudObserver(reader, ledger, say, first, answered) for reader in readers]

    def _bursts(self) -> None:
        cloud = self._alicloud.cloud
        kinds = {
            BURST: MachineType("ecs.g7.2xlarge", 8, 32.0),
            SPARE: MachineType("ecs.c7.2xlarge", 8, 16.0),
        }
        for name, kind in kinds.items():
            cloud.types[kind.id] = kind
            tags = {
                f"{_TAGS}label/pool": name,
                f"{_TAGS}label/tier": "burst",
                f"{_TAGS}taint/dedicated": "burst:NoSchedule",
            }
            self._scaling[cloud.add_group(name, most=3, types=(kind.id,), machine_tags=tags).id] = (
                name
            )
        cloud.spoil(next(iter(self._scaling)), NO_STOCK, times=100)

    def _renders(self) -> None:
        zone = self._exoscale.zone
        zone.kinds[_MEGA.id] = _MEGA
        cluster = zone.add_cluster(CLUSTER)
        self._nodepool = zone.add_nodepool(
            cluster.id, SKS, type=_MEGA.name, labels={"pool": SKS}
        ).pool.id
        zone.limit = zone.usage()
        for _ in range(self._broken):
            self._cherry.cloud.spoil(METAL, NEVER_JOINS)

    def _nights_and_days(self) -> None:
        """Add pools whose bounds are set at the vendor; the policy contains only rules for them.
        Nodes that a rule added stay for a while, needed or not; otherwise the rate would rise again
        and trigger the rule again."""
        cloud, cluster = self._huawei.cloud, self._huawei.cluster
        with cloud.lock:
            night = CcePool(
                NIGHT_UID,
                NIGHT,
                cluster.uid,
                cloud.clock(),
                least=1,
                most=4,
                utilization=0.3,
                cooldown=_STAY,
                labels={"pool": NIGHT},
            )
            night.groups[DEFAULT] = ScaleGroup(
                DEFAULT, cloud.number("group"), "c7.xlarge.2", cloud.zone(), 1
            )
            cluster.pools[NIGHT_UID] = night
            cloud.add_nodes(NIGHT_UID, 1)
            cloud.add_group(NIGHT_UID, "m7", flavor="m7.xlarge.8", priority=5)
            cloud.sell_out("m7.xlarge.8", cloud.zone("b"))
            day = cloud.add_pool(
                cluster.uid, DAY, size=2, least=2, most=6, cooldown=_STAY, labels={"pool": DAY}
            )
        self._pools = {NIGHT_UID: NIGHT, day.uid: DAY}
        self._flavours = {
            f"{NIGHT_UID}/{DEFAULT}": NIGHT_SECOND,
            f"{NIGHT_UID}/m7": NIGHT_FIRST,
            f"{day.uid}/{DEFAULT}": DAY,
        }
