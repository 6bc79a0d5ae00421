"""Observes the emulated Huawei Cloud: requests that change a pool's size, nodes being built, and sold-out flavours.

A pool's scale groups are named after the pool and their difference, e.g. `night-m7`. CCE accepts a request and reports
later, with a condition of the scale group, that the flavour is unavailable; this is counted as refused.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

from infra.demo.console import Say, count
from infra.demo.counters import Ledger
from infra.emulators.huaweicloud.attached_account import HuaweiAccount
from infra.emulators.huaweicloud.models import SOLD_OUT, CcePool, Node, ScaleGroup
from infra.emulators.vendor_common.operation_dispatcher import LoggedOperation


class CceWatcher:
    """look() reports what is new. groups: node group id (`<pool>/<scale group>`) -> name. first, answered: as in
    alicloud_observer.py. What exists at creation of this object is not reported."""

    def __init__(
        self,
        account: HuaweiAccount,
        groups: Mapping[str, str],
        ledger: Ledger,
        say: Say,
        first: Callable[[], None],
        answered: Callable[[], None],
    ) -> None:
        self._account, self._groups, self._ledger, self._say = account, groups, ledger, say
        self._first, self._answered = first, answered
        self._seen = len(account.server.log)
        self._totals = {pool.uid: pool.desired for pool in account.cloud.pools()}
        self._known = {node.uid for _, node in self._nodes()}
        self._leaving: set[str] = set()
        self._stuck: set[str] = set()

    def look(self) -> None:
        """Report requests, nodes built and deleted, and conditions since the last call."""
        log = self._account.server.log
        fresh, self._seen = log[self._seen :], len(log)
        for call in fresh:
            if call.operation == "scale-pool":
                self._first()
                self._tell_order(call)
        with self._account.cloud.lock:
            nodes = self._nodes()
            short = [(name, missing) for name, group in self._named() if (missing := self._missing(name, group))]
        self._tell_nodes(nodes)
        for name, missing in short:
            self._ledger.refused[name] += missing
            self._ledger.why[name] = SOLD_OUT.reason
            self._say("provider", f"Huawei Cloud says of {name}: {SOLD_OUT.condition}, {SOLD_OUT.message}")

    def sizes(self) -> dict[str, int]:
        """Return name -> desired nodes."""
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

    def _missing(self, name: str, group: ScaleGroup) -> int:
        """Return how many nodes are unavailable, when this becomes known for the first time; otherwise 0."""
        missing = group.desired - len(group.staying)
        stuck = SOLD_OUT.condition in group.conditions and missing > 0
        if not stuck or name in self._stuck:
            return 0
        self._stuck.add(name)
        return missing

    def _tell_order(self, call: LoggedOperation) -> None:
        uid = call.path.split("/nodepools/")[1].partition("/")[0]
        spec = json.loads(call.body)["spec"]
        before, total = self._totals[uid], int(spec["desiredNodeCount"])
        name, pool = self._groups[f"{uid}/{spec['scaleGroups'][0]}"], self._pool(uid)
        said = f"Huawei Cloud was asked for another size of pool {pool.name}, by {name}: {before} ► {total}"
        if call.status >= 300:
            self._say("provider", f"{said}, and says {call.status} {call.code}: {call.message}")
            return
        self._totals[uid] = total
        if total > before:
            self._ledger.asked.append((name, before, total))
            self._answered()
        self._say("provider", said)

    def _tell_nodes(self, nodes: list[tuple[str, Node]]) -> None:
        made: Counter[str] = Counter()
        gone: defaultdict[str, list[str]] = defaultdict(list)
        for name, node in nodes:
            made[name] += node.uid not in self._known
            self._known.add(node.uid)
            if node.leaves and node.uid not in self._leaving:
                self._leaving.add(node.uid)
                self._totals[node.pool] -= 1
                gone[name].append(node.ip)
        for name, number in (+made).items():
            self._ledger.bought[name] += number
            self._say("provider", f"Huawei Cloud builds {count(number, 'node')} of {name}")
        for name, addresses in gone.items():
            self._first()
            self._say("provider", f"Huawei Cloud deletes {', '.join(addresses)} of {name}")

    def _pool(self, uid: str) -> CcePool:
        return self._account.cloud.pool(uid)
