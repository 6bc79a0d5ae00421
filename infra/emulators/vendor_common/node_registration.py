"""Registers machines of an emulated vendor as Nodes of a simulated cluster and removes them; common to all vendors.

A vendor has no knowledge of clusters, and a cluster has Nodes of other vendors too, so only Nodes created here are ever
changed. The vendor's own module defines what a Node contains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

import msgspec

from chalicelib.model.quantity import parse_amount
from infra.emulators.controllers.object_writes import erase
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore


class Due(msgspec.Struct, frozen=True):
    """The Nodes that should exist now. nodes: a Node's name -> a function that creates it. kept: names of Nodes that
    stay although no group contains their machine."""

    nodes: Mapping[str, Callable[[], KubeObject]]
    kept: Set[str] = frozenset()


class VendorNodeRegistration:
    """Creates and removes the Nodes of one account in one cluster. due: advances the vendor to the current time and
    returns the Nodes that should exist; it holds the vendor's lock in the meantime."""

    def __init__(self, due: Callable[[], Due], store: ObjectStore) -> None:
        self._due, self._store = due, store
        self._joined: set[str] = set()

    def step(self) -> None:
        """Advance the vendor, then the Nodes."""
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
    """Return the allocatable part of a capacity when the kubelet reserves `reserve`; both in a Node's notation."""
    found = dict(capacity)
    for name, amount in reserve.items():
        if name in capacity:
            whole = max(0, parse_amount(name, capacity[name]) - parse_amount(name, amount))
            found[name] = f"{whole}m" if name == "cpu" else f"{whole // 1024}Ki"
    return found
