"""Observes the emulated Cherry Servers. Every server is a separate order and contains the operation that ordered it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from infra.demo.console import Say, count
from infra.demo.counters import Ledger
from infra.demo.fixture import CLUSTER, METAL
from infra.emulators.cherryservers.account import CherryCloud
from infra.emulators.cherryservers.models import DEPLOYED, CherryServer

_ORDERED_BY = "outscaler-operation"


class MetalWatcher:
    """look() reports what is new. first, answered: as in alicloud_observer.py."""

    def __init__(
        self, cloud: CherryCloud, ledger: Ledger, say: Say, first: Callable[[], None], answered: Callable[[], None]
    ) -> None:
        self._cloud, self._ledger, self._say = cloud, ledger, say
        self._first, self._answered = first, answered
        self._known: set[int] = set()
        self._deployed: set[int] = set()
        self._leaving: set[int] = set()
        self._orders: set[str] = set()

    def look(self) -> None:
        """Report servers ordered, deployed and terminated since the last call."""
        with self._cloud.lock:
            servers = [*self._cloud.servers.values(), *self._cloud.dropped]
        self._ordered([each for each in servers if each.id not in self._known])
        for server in servers:
            if server.status == DEPLOYED and server.id not in self._deployed:
                self._deployed.add(server.id)
                never = "" if server.fate.joins else ", and will never join the cluster"
                self._say("provider", f"Cherry Servers: {server.hostname} is deployed{never}")
            if server.leaving and server.id not in self._leaving:
                self._leaving.add(server.id)
                self._ledger.lost[METAL] += not server.fate.joins
                self._first()
                self._say("provider", f"Cherry Servers terminates {server.hostname} (server {server.id})")

    def sizes(self) -> dict[str, int]:
        """Return name -> servers that are not being terminated."""
        return {METAL: sum(not each.leaving for each in self._cloud.members(METAL, CLUSTER))}

    def _ordered(self, fresh: list[CherryServer]) -> None:
        by_order: defaultdict[str, list[CherryServer]] = defaultdict(list)
        for server in fresh:
            self._known.add(server.id)
            by_order[server.tags.get(_ORDERED_BY, "")].append(server)
        for order, servers in by_order.items():
            self._first()
            if order not in self._orders:
                self._orders.add(order)
                self._ledger.asked.append((METAL, 0, len(servers)))
            self._ledger.bought[METAL] += len(servers)
            self._answered()
            self._say(
                "provider",
                f"Cherry Servers was asked for {count(len(servers), 'server')} of {METAL}: "
                f"{', '.join(each.hostname for each in servers)}",
            )
