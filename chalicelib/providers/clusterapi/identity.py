"""Machines, Nodes and the ids that connect them (clusterapi.md §3).

A Machine and its Node find each other in four ways, surest first: the Machine's nodeRef, the Node's own annotations,
equal provider ids, and the ids' last segment. Only the last can be ambiguous, and then it answers nothing (D6).
"""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.model.group import Instance
from chalicelib.model.node import Node
from chalicelib.providers.clusterapi.api import POOL
from chalicelib.providers.clusterapi.keys import Keys
from chalicelib.providers.clusterapi.wire import Machine

FAILED, DELETING, PENDING = "failed-machine-", "deleting-machine-", "pending-machine-"
_PLACEHOLDERS = (FAILED, DELETING, PENDING)
# What Cluster API writes on a Node beside its Machine, under these names whatever the API group is.
_OWNER_KIND, _OWNER_NAME = "cluster.x-k8s.io/owner-kind", "cluster.x-k8s.io/owner-name"


def placeholder(prefix: str, machine: Machine) -> str:
    """The id of a Machine that has no Node: `pending-machine-<namespace>_<name>`; no real id is without a slash."""
    return f"{prefix}{machine.metadata.namespace}_{machine.metadata.name}"


def handle_of(instance: str) -> str:
    """`pending-machine-ns_name` -> `ns/name`; empty for any other id. A namespace cannot hold an underscore."""
    for prefix in _PLACEHOLDERS:
        if instance.startswith(prefix) and "/" not in instance:
            namespace, _, name = instance.removeprefix(prefix).partition("_")
            return f"{namespace}/{name}"
    return ""


def normalise(provider_id: str) -> str:
    """The part that Machine and Node agree on though they may spell the rest differently: after the last slash.

    A virtual machine of a scale set on Azure keeps its whole id, because its last segment is a bare number; Azure's
    ids differ in case between its own components, so they are folded.
    """
    if provider_id.startswith("azure://"):
        provider_id = provider_id.lower()
        if "virtualmachinescalesets" in provider_id:
            return provider_id
    return provider_id.rpartition("/")[2]


class Nodes:
    """The cluster's Nodes, found by what a Machine knows of its Node. Holds Nodes of one cluster only (D6)."""

    def __init__(self, nodes: Iterable[Node], keys: Keys) -> None:
        self._by_name: dict[str, Node] = {}
        self._by_machine: dict[tuple[str, str], Node] = {}
        self._by_id: dict[str, Node] = {}
        self._by_normal: dict[str, list[Node]] = {}
        for node in nodes:
            self._by_name[node.name] = node
            if machine := node.annotations.get(keys.machine):
                self._by_machine[node.annotations.get(keys.cluster_namespace, ""), machine] = node
            if node.provider_id:
                self._by_id[node.provider_id] = node
                self._by_normal.setdefault(normalise(node.provider_id), []).append(node)

    def of(self, machine: Machine) -> Node | None:
        """The Node of a Machine, None while it has not joined."""
        reference = machine.status.node_ref
        if reference and reference.kind in {"", "Node"} and reference.name in self._by_name:
            return self._by_name[reference.name]
        provider_id = machine.spec.provider_id or ""
        return (
            self._by_machine.get((machine.metadata.namespace, machine.metadata.name))
            or self._by_id.get(provider_id)
            or self._only(normalise(provider_id))
        )

    def listed(self, provider_id: str, pool: str) -> Node | None:
        """The Node of an instance that the MachinePool of that name lists, None while it has not joined.

        By the id as it is; else by its last segment, among the Nodes that say they are this pool's, or, if there is no
        such Node, among those that do not say whose they are.
        """
        if exact := self._by_id.get(provider_id):
            return exact
        near = self._by_normal.get(normalise(provider_id), ()) if normalise(provider_id) else ()
        own = [node for node in near if _owner(node) == (POOL, pool)] or [n for n in near if _owner(n) == ("", "")]
        return own[0] if len(own) == 1 else None

    def first(self, instances: Iterable[Instance]) -> Node | None:
        """The Node of the first instance that has one."""
        return next((self._by_name[each.node] for each in instances if each.node in self._by_name), None)

    def _only(self, normal: str) -> Node | None:
        found = self._by_normal.get(normal, ()) if normal else ()
        return found[0] if len(found) == 1 else None


def _owner(node: Node) -> tuple[str, str]:
    return node.annotations.get(_OWNER_KIND, ""), node.annotations.get(_OWNER_NAME, "")
