"""Matches Machines and Nodes by the ids that connect them.

Three ways connect a Machine to its Node, in descending order of certainty: the Machine's nodeRef, equal provider ids,
and the ids' last segment. The owner of a kubelet can recreate and annotate its Node, so an ambiguous or contradictory
match connects nothing. The Machine is then blocked, and neither it nor the Nodes are changed
(docs/providers/clusterapi.md "Mapping of Nodes to Machines").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from chalicelib.model.group import Instance
from chalicelib.model.node import Node
from chalicelib.providers.clusterapi.annotations import CapiAnnotations
from chalicelib.providers.clusterapi.api import POOL
from chalicelib.providers.clusterapi.models import CapiMachine

FAILED, DELETING, PENDING = "failed-machine-", "deleting-machine-", "pending-machine-"
_PLACEHOLDERS = (FAILED, DELETING, PENDING)
# The annotations that Cluster API sets on a Node about its owner, with this prefix in every API group.
_OWNER_KIND, _OWNER_NAME = "cluster.x-k8s.io/owner-kind", "cluster.x-k8s.io/owner-name"


def placeholder(prefix: str, machine: CapiMachine) -> str:
    """Return the id of a Machine without a Node: `pending-machine-<namespace>_<name>`; every real id contains a
    slash."""
    return f"{prefix}{machine.metadata.namespace}_{machine.metadata.name}"


def handle_of(instance: str) -> str:
    """Return `ns/name` of `pending-machine-ns_name`; empty for any other id. A namespace cannot contain an
    underscore."""
    for prefix in _PLACEHOLDERS:
        if instance.startswith(prefix) and "/" not in instance:
            namespace, _, name = instance.removeprefix(prefix).partition("_")
            return f"{namespace}/{name}"
    return ""


def folded(provider_id: str) -> str:
    """Return the id for an exact comparison. Azure's components write one id in different case, so it is
    lower-cased."""
    return provider_id.lower() if provider_id.startswith("azure://") else provider_id


def normalise(provider_id: str) -> str:
    """Return the part after the last slash, on which Machine and Node agree even if the rest differs.

    A virtual machine of a scale set on Azure keeps its whole id, because its last segment is a bare number.
    """
    provider_id = folded(provider_id)
    if provider_id.startswith("azure://") and "virtualmachinescalesets" in provider_id:
        return provider_id
    return provider_id.rpartition("/")[2]


def same_id(one: str, other: str) -> bool:
    """Whether both are ids of one machine, in any form; an empty id matches nothing."""
    near = normalise(one)
    return bool(near) and near == normalise(other)


class Match(msgspec.Struct, frozen=True):
    """The Node of a Machine. node: None if it has not joined or is uncertain. doubt: why neither of them may be
    changed, empty if the match is certain. gone: the only reason is that the Node of its nodeRef is missing."""

    node: Node | None = None
    doubt: str = ""
    gone: bool = False


class Nodes:
    """The cluster's Nodes, found by what a Machine records of its Node. Contains Nodes of one cluster only.

    machines: all Machines of that cluster, so that two with the same claim are detected.
    """

    def __init__(
        self, nodes: Iterable[Node], annotations: CapiAnnotations, machines: Iterable[CapiMachine] = ()
    ) -> None:
        self._keys = annotations
        self._by_name: dict[str, Node] = {}
        self._by_machine: dict[tuple[str, str], Node] = {}
        self._by_id: dict[str, list[Node]] = {}
        self._by_normal: dict[str, list[Node]] = {}
        for node in nodes:
            self._by_name[node.name] = node
            if machine := node.annotations.get(annotations.machine):
                self._by_machine[node.annotations.get(annotations.cluster_namespace, ""), machine] = node
            if node.provider_id:
                self._by_id.setdefault(folded(node.provider_id), []).append(node)
                self._by_normal.setdefault(normalise(node.provider_id), []).append(node)
        self._with_id: dict[str, list[str]] = {}
        self._with_normal: dict[str, int] = {}
        self._with_node: dict[str, list[str]] = {}
        for each in machines:
            if provider_id := each.spec.provider_id:
                self._with_id.setdefault(folded(provider_id), []).append(each.handle)
                self._with_normal[normalise(provider_id)] = self._with_normal.get(normalise(provider_id), 0) + 1
            if each.node_name:
                self._with_node.setdefault(each.node_name, []).append(each.handle)

    def of(self, machine: CapiMachine) -> Node | None:
        """Return the Node of a Machine, None if it has not joined or is uncertain."""
        return self.match(machine).node

    def match(self, machine: CapiMachine) -> Match:
        """Return the Node of a Machine, or why it is uncertain."""
        if twice := self._twice(machine):
            return Match(doubt=twice)
        return self._referred(machine) if machine.status.node_ref is not None else self._found(machine)

    def named(self, name: str) -> Node | None:
        """Return the Node of that name."""
        return self._by_name.get(name)

    def listed(self, provider_id: str, pool: str) -> Match:
        """Return the Node of an instance that the MachinePool of that name lists.

        Matched by the exact id; otherwise by its last segment, among the Nodes whose annotations name no other owner.
        """
        exact = self._by_id.get(folded(provider_id), ())
        if len(exact) == 1:
            return Match(exact[0])
        near = exact or self._by_normal.get(normalise(provider_id), ()) if normalise(provider_id) else ()
        mine = exact or [node for node in near if self._may_be_of(pool, node)]
        return Match(doubt=_of_one_id(mine)) if len(mine) > 1 else Match(mine[0] if mine else None)

    def first(self, instances: Iterable[Instance]) -> Node | None:
        """Return the Node of the first instance that has one."""
        return next((self._by_name[each.node] for each in instances if each.node in self._by_name), None)

    def _may_be_of(self, pool: str, node: Node) -> bool:
        owner = node.annotations.get(_OWNER_KIND, ""), node.annotations.get(_OWNER_NAME, "")
        return owner == (POOL, pool) or (owner == ("", "") and not node.annotations.get(self._keys.machine))

    def _twice(self, machine: CapiMachine) -> str:
        """Describe two Machines or two Nodes that share a value that must be unique."""
        provider_id = folded(machine.spec.provider_id or "")
        with_id, with_node = self._with_id.get(provider_id, ()), self._with_node.get(machine.node_name, ())
        if len(with_id) > 1:
            return f"Machines {_names(with_id)} have one providerID, {provider_id[:_SHOWN]}"
        if len(with_node) > 1:
            return f"Machines {_names(with_node)} have one Node, {machine.node_name[:_SHOWN]}"
        named = self._by_name.get(machine.node_name)
        for each in (provider_id, folded(named.provider_id) if named else ""):
            if len(nodes := self._by_id.get(each, ())) > 1:
                return _of_one_id(nodes)
        return ""

    def _referred(self, machine: CapiMachine) -> Match:
        """Match by the nodeRef, which only Cluster API writes.

        A Machine with a nodeRef has joined, even if its Node is not one of this cluster."""
        name, provider_id = machine.node_name, machine.spec.provider_id or ""
        node = self._by_name.get(name)
        if node is None:
            what = f"Node {name[:_SHOWN]}" if name else "an object that is not a Node"
            return Match(
                doubt=f"Cluster API has seen it join as {what}, which is not among this cluster's Nodes; if "
                "it is no longer needed, delete the Machine",
                gone=bool(name),
            )
        if provider_id and node.provider_id and not same_id(provider_id, node.provider_id):
            return Match(
                doubt=f"its Node {name[:_SHOWN]} has another providerID, {node.provider_id[:_SHOWN]}, than "
                f"{provider_id[:_SHOWN]}"
            )
        return Match(node)

    def _found(self, machine: CapiMachine) -> Match:
        """Match by the ids, if Cluster API cannot see the Node. An annotation of a Node is not sufficient."""
        provider_id = machine.spec.provider_id or ""
        near = normalise(provider_id)
        found: Sequence[Node] = self._by_id.get(folded(provider_id), ()) if provider_id else ()
        if not found and near:
            found = self._by_normal.get(near, ())
            if len(found) > 1 or (found and self._with_normal.get(near, 0) > 1):
                return Match(doubt=f"it may be Node {_names([each.name for each in found])}, and its id does not tell")
        if not found:
            claims = self._by_machine.get((machine.metadata.namespace, machine.metadata.name))
            return (
                Match(doubt=f"an annotation of Node {claims.name} names it, and no id confirms that")
                if (claims is not None)
                else Match()
            )
        if other := self._with_node.get(found[0].name):
            return Match(doubt=f"its providerID is that of Node {found[0].name}, which is Machine {_names(other)}")
        return Match(found[0])


_SHOWN = 80  # maximum characters of untrusted text


def _names(found: Sequence[str]) -> str:
    more = f" and {len(found) - 2} more" if len(found) > 2 else ""
    return f"{', '.join(found[:2])}{more}" if more else " and ".join(found)


def _of_one_id(nodes: Sequence[Node]) -> str:
    return f"Nodes {_names([each.name for each in nodes])} have one providerID, {nodes[0].provider_id[:_SHOWN]}"
