"""Holds one cluster's objects as the model needs them, by kind and key, so that a change of one object is one update.

A snapshot is made from them at any time (snapshot_builder.py). The result does not depend on the order in which objects
came, nor on objects that came and went: a pass that follows changes must plan what a pass that reads everything plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chalicelib.model.api_groups import CONTROLLER_GROUPS
from chalicelib.model.errors import MALFORMED
from chalicelib.model.node import Node
from chalicelib.model.pod import Owner, Pod
from chalicelib.model.snapshot import Budget, Controller, DaemonSet, MissingData
from chalicelib.snapshot import api_types, unreadable_objects
from chalicelib.snapshot.class_table import ClassTable
from chalicelib.snapshot.node_decoding import node_from_wire
from chalicelib.snapshot.pod_fold import PodFold, key_of
from chalicelib.snapshot.selectors import bounded
from chalicelib.snapshot.storage import FOLDS, NAMESPACE, StorageFolder

_LONGEST_NAME, _LONGEST_DETAIL = 300, 500  # characters of a bad object's name, and of its problem, that are kept

Malformed = Callable[[int, Exception], None]
"""(index in the list, why it cannot be used)"""


class FoldedObjects:
    """namespace: where Outscaler's own ConfigMaps are looked up (options.namespace)."""

    def __init__(self, namespace: str = NAMESPACE) -> None:
        self.table = ClassTable()
        self.storage = StorageFolder(namespace)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.budgets: dict[str, Budget] = {}
        self.controllers: dict[str, dict[str, Controller]] = {kind: {} for kind in CONTROLLER_GROUPS}
        self.daemonsets: dict[str, DaemonSet] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.malformed: dict[tuple[str, str], MissingData] = {}
        self._pod_fold = PodFold(self.table)
        self._by_kind: dict[str, dict[str, Any]] = {
            "Pod": self.pods,
            "Node": self.nodes,
            "PodDisruptionBudget": self.budgets,
            "Namespace": self.namespaces,
            **self.controllers,
            **{kind: self.storage.held(kind) for kind in FOLDS},
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of objects that are held here."""
        return tuple(self._by_kind)

    def knows(self, kind: str) -> bool:
        """Return whether objects of this kind are held here."""
        return kind in self._by_kind

    def held(self, kind: str) -> dict[str, Any]:
        """Return the objects of a kind by key_of, as they are folded; the caller may add some."""
        return self._by_kind[kind]

    def holds(self, kind: str, namespace: str, name: str) -> bool:
        """Return whether there is an object of this name, usable or not."""
        key = key_of(namespace, name)
        return key in self._by_kind[kind] or (kind, key) in self.malformed

    def count(self, kind: str) -> int:
        """Return the number of objects of a kind, the malformed ones included."""
        bad = sum(1 for each, key in self.malformed if each == kind and key not in self._by_kind[kind])
        return len(self._by_kind[kind]) + bad

    def forget(self, kind: str) -> None:
        """Drop all objects of one kind."""
        if kind in self._by_kind:
            self._by_kind[kind].clear()
        if kind == "DaemonSet":
            self.daemonsets.clear()
        self.malformed = {key: gap for key, gap in self.malformed.items() if key[0] != kind}

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Drop one object."""
        key = key_of(namespace, name)
        self._by_kind[kind].pop(key, None)
        if kind == "DaemonSet":
            self.daemonsets.pop(key, None)
        self.malformed.pop((kind, key), None)

    def fold(self, kind: str, items: Sequence[Any], malformed: Malformed, *, resizing: bool = True) -> None:
        """Add decoded objects of one kind. resizing: whether pods among them may be in an in-place resize."""
        if kind == "Pod":
            self._pod_fold.fold(items, self.pods, malformed, resizing=resizing)
            return
        add = self._adder(kind)
        for at, item in enumerate(items):
            try:
                add(item)
            except MALFORMED as error:
                malformed(at, error)

    def note_malformed(self, kind: str, place: str, detail: str, raw: bytes) -> None:
        """Record a gap that names a malformed object as far as its bytes allow."""
        left = unreadable_objects.of(raw)
        if kind == "Node" and (node := unreadable_objects.node(left)) is not None:
            self.nodes.setdefault(key_of("", node.name), node)
        node_name = left.node if kind == "Pod" else left.name if kind == "Node" else ""
        key = key_of(left.namespace, left.name) if left.name else place
        self.malformed[kind, key] = MissingData(
            kind=kind, name=left.key[:_LONGEST_NAME], place=place, node=node_name, detail=detail[:_LONGEST_DETAIL]
        )

    def _adder(self, kind: str) -> Callable[[Any], None]:
        if kind in FOLDS:
            return lambda item: self.storage.fold(kind, item)
        if kind in self.controllers and kind != "DaemonSet":
            held = self.controllers[kind]
            return lambda item: _add_controller(held, kind, item)
        own: dict[str, Callable[[Any], None]] = {
            "Node": self._node,
            "PodDisruptionBudget": self._budget,
            "Namespace": self._namespace,
            "DaemonSet": self._daemonset,
        }
        return own[kind]

    def _node(self, item: api_types.ApiNode) -> None:
        self.nodes[key_of("", item.metadata.name)] = node_from_wire(item)

    def _budget(self, item: api_types.ApiBudget) -> None:
        status, meta = item.status, item.metadata
        self.budgets[key_of(meta.namespace, meta.name)] = Budget(
            meta.namespace,
            meta.name,
            bounded(item.spec.selector),
            status.disruptions_allowed,
            item.spec.unhealthy_pod_eviction_policy or "",
            whole=status.current_healthy >= status.desired_healthy > 0,
        )

    def _namespace(self, item: api_types.ApiNamespace) -> None:
        self.namespaces[key_of("", item.metadata.name)] = item.metadata.labels or {}

    def _daemonset(self, item: api_types.ApiController) -> None:
        meta, template = item.metadata, item.spec.template
        owner = msgspec.json.encode(
            [{"kind": "DaemonSet", "name": meta.name, "uid": meta.uid, "apiVersion": "apps/v1", "controller": True}]
        )
        cls = self.table.intern(
            meta.namespace,
            bytes(template.spec) or b"{}",
            bytes(template.metadata.labels),
            owner,
            template.metadata.annotations,
        )
        key = key_of(meta.namespace, meta.name)
        self.daemonsets[key] = DaemonSet(meta.namespace, meta.name, meta.uid, cls)
        self.controllers["DaemonSet"][key] = Controller("DaemonSet", meta.namespace, meta.name, meta.uid)


def _add_controller(held: dict[str, Controller], kind: str, item: api_types.ApiController) -> None:
    meta = item.metadata
    references = meta.owner_references or ()
    owner = next((Owner(r.kind, r.name, r.uid, r.api_version) for r in references if r.controller), None)
    held[key_of(meta.namespace, meta.name)] = Controller(
        kind, meta.namespace, meta.name, meta.uid, item.spec.replicas, owner
    )
