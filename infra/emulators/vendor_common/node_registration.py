"""How an emulated vendor's machines become Nodes of a simulated cluster and stop being Nodes, for every vendor alike.

A vendor knows nothing of clusters, and a cluster has Nodes of other vendors too: only Nodes that were made here are
ever touched. What a Node looks like is the vendor's part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

import msgspec

from chalicelib.model.quantity import parse_amount
from infra.emulators.controllers.object_writes import erase
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore


class Due(msgspec.Struct, frozen=True):
    """What ought to be there now. nodes: a Node's name -> what makes it; kept: names of Nodes that stay although no
    machine of theirs is left in any group."""

    nodes: Mapping[str, Callable[[], KubeObject]]
    kept: Set[str] = frozenset()


class VendorNodeRegistration:
    """Makes and removes the Nodes of one account in one cluster. due: plays the vendor up to now and says what follows;
    it holds the vendor's lock while it looks."""

    def __init__(self, due: Callable[[], Due], store: ObjectStore) -> None:
        self._due, self._store = due, store
        self._joined: set[str] = set()

    def step(self) -> None:
        """First the vendor, then the Nodes that follow from it."""
        due = self._due()
        for name, made in due.nodes.items():
            if name not in self._joined:
                self._joined.add(name)
                self._store.create("nodes", made())
        for name in sorted(self._joined - due.nodes.keys() - due.kept):
            self._joined.discard(name)
            node = self._store.peek("nodes", name)
            if node is not None:
                erase(self._store, "nodes", node)


def left(capacity: Mapping[str, str], reserve: Mapping[str, str]) -> dict[str, str]:
    """What is allocatable of a capacity when the kubelet keeps `reserve`; both as a Node writes amounts."""
    found = dict(capacity)
    for name, amount in reserve.items():
        if name in capacity:
            whole = max(0, parse_amount(name, capacity[name]) - parse_amount(name, amount))
            found[name] = f"{whole}m" if name == "cpu" else f"{whole // 1024}Ki"
    return found
