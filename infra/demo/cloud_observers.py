"""Observes the emulated clouds beside Cluster API, prints what they were asked for and did, and counts it.

Each reader sees of its cloud what a person would see in the vendor's console, as News, and CloudObserver treats the
news of all of them alike. Purchases are counted: nothing may be bought twice, and what was refused must be bought from
another group.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from infra.demo.console import Ledger, Say, count
from infra.demo.fixture import CLUSTER, METAL, SKS
from infra.emulators.alicloud.account import AlicloudCloud
from infra.emulators.alicloud.models import Activity
from infra.emulators.cherryservers.account import CherryCloud
from infra.emulators.cherryservers.models import DEPLOYED, CherryServer
from infra.emulators.exoscale.attached_account import ExoscaleAccount
from infra.emulators.huaweicloud.attached_account import HuaweiAccount
from infra.emulators.huaweicloud.models import SOLD_OUT, Node, ScaleGroup
from infra.emulators.vendor_common.dispatcher import LoggedOperation

_ORDERED_BY = "outscaler-operation"


@dataclass(frozen=True)
class News:
    """What a cloud was asked for, or did. group: its name in the demonstration. called: a call of the provider, whose
    causes are printed before. asked: sizes before and after, where more machines are asked for. bought, refused, lost:
    machines. why: the vendor's text for a refusal."""

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
    """look() reports what is new. first: called before a provider call is reported. answered: called when something is
    bought."""

    def __init__(
        self, reader: CloudReader, ledger: Ledger, say: Say, first: Callable[[], None], answered: Callable[[], None]
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
            instances = f"{count(activity.wanted, 'instance')} of {name}"
            what = "for" if activity.grows else "to remove"
            if self.is_new("begun", activity.id):
                text = f"Alibaba Cloud was asked {what} {instances}: activity {activity.id} begins"
                yield News(text, name, called=True, asked=(0, activity.wanted) if activity.grows else None)
            if not activity.running and self.is_new("ended", activity.id):
                yield from self._end(name, activity)

    def _end(self, name: str, activity: Activity) -> Iterator[News]:
        made = len(activity.machines)
        done = f"activity {activity.id}: {count(made, 'instance')} of {name}"
        if not activity.grows:
            yield News(f"{done} released")
            return
        if made:
            yield News(f"{done} in service", name, bought=made)
        if missing := activity.wanted - made:
            code = activity.problems[0].code if activity.problems else "no reason"
            text = f"activity {activity.id} {activity.status.lower()}: {missing} of {name} not made, {code}"
            yield News(text, name, refused=missing, why=code)

    def sizes(self) -> dict[str, int]:
        with self._cloud.lock:
            return {name: self._cloud.groups[group_id].desired or 0 for group_id, name in self._groups.items()}


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
            hosts = ", ".join(server.hostname for server in ordered)
            text = f"Cherry Servers was asked for {count(len(ordered), 'server')} of {METAL}: {hosts}"
            asked = (0, len(ordered)) if self.is_new("order", order) else None
            yield News(text, METAL, called=True, asked=asked, bought=len(ordered))
        for server in servers:
            if server.status == DEPLOYED and self.is_new("deployed", server.id):
                never = "" if server.fate.joins else ", and will never join the cluster"
                yield News(f"Cherry Servers: {server.hostname} is deployed{never}")
            if server.leaving and self.is_new("leaving", server.id):
                text = f"Cherry Servers terminates {server.hostname} (server {server.id})"
                yield News(text, METAL, called=True, lost=not server.fate.joins)

    def sizes(self) -> dict[str, int]:
        return {METAL: sum(not server.leaving for server in self._cloud.members(METAL, CLUSTER))}


class ExoscaleReader:
    """Reads requests for changes. Its quota is used up, so that it refuses them. pool: the Nodepool's Instance Pool."""

    def __init__(self, account: ExoscaleAccount, pool: str) -> None:
        self._account, self._pool = account, pool
        self._calls, self._size = 0, 0

    def news(self) -> Iterator[News]:
        log = self._account.server.log
        calls, self._calls = log[self._calls :], len(log)
        for call in calls:
            if not call.writes:
                continue
            size, before = int(json.loads(call.body or "{}").get("size", 0)), self._size
            if call.status >= 300:
                text = f"Exoscale was asked for another size of {SKS}: {before} ► {size}, and says "
                text += f"{call.status}: {call.message}"
                yield News(text, SKS, called=True, refused=size - before, why=call.message)
                continue
            self._size, more = size, max(0, size - before)
            text = f"Exoscale was asked for {count(size, 'instance')} of {SKS}"
            yield News(text, SKS, called=True, asked=(before, size) if more else None, bought=more)

    def sizes(self) -> dict[str, int]:
        with self._account.zone.lock:
            return {SKS: self._account.zone.pools[self._pool].size}


class HuaweiReader(_Fresh):
    """Reads requests that change a pool's size, nodes being built, and sold-out flavours. groups: node group id
    (`<pool>/<scale group>`) -> name. What exists at creation of this object is no news.

    A pool's scale groups are named after the pool and their difference, e.g. `night-m7`. CCE accepts a request and
    reports later, with a condition of the scale group, that the flavour is unavailable; this is counted as refused.
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
        return [(name, node) for name, group in self._named() for node in list(group.nodes.values())]

    def _sold_out(self) -> Iterator[tuple[str, int]]:
        """Yield how many nodes of a group are unavailable, when this becomes known for the first time."""
        for name, group in self._named():
            missing = group.desired - len(group.staying)
            if SOLD_OUT.condition in group.conditions and missing > 0 and self.is_new("sold out", name):
                yield name, missing

    def _order(self, call: LoggedOperation) -> News:
        uid = call.path.split("/nodepools/")[1].partition("/")[0]
        spec = json.loads(call.body)["spec"]
        before, total = self._totals[uid], int(spec["desiredNodeCount"])
        name, pool = self._groups[f"{uid}/{spec['scaleGroups'][0]}"], self._account.cloud.pool(uid)
        text = f"Huawei Cloud was asked for another size of pool {pool.name}, by {name}: {before} ► {total}"
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
            yield News(f"Huawei Cloud builds {count(number, 'node')} of {name}", name, bought=number)
        for name, addresses in deleted.items():
            yield News(f"Huawei Cloud deletes {', '.join(addresses)} of {name}", called=True)
