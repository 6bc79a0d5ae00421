"""Ids: how a machine is called by the vendor, by the cluster's nodes and by us (exoscale.md §2; §6, 3).

A providerID that is not `exoscale://` and a UUID is somebody else's node, or none yet; neither is an error. The core
matches instances and nodes letter by letter, so each machine is spelled as its own node spells it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chalicelib.model.node import Node
from chalicelib.model.operation import Target
from chalicelib.providers.exoscale.ids import is_id

NODEPOOL_LABEL = "node.exoscale.net/nodepool-id"
"""What a Nodepool's kubelets write on their nodes."""
_SCHEME = "exoscale://"
_PLACEHOLDER = "placeholder-"


def parse(provider_id: str) -> str:
    """The machine's id in small letters; "" for an empty providerID and for those of other clouds."""
    name = provider_id.removeprefix(_SCHEME)
    return name.lower() if provider_id.startswith(_SCHEME) and is_id(name) else ""


class Names:
    """The cluster's nodes in this cloud, by machine."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes: dict[str, Node] = {}
        self._nobodys: set[str] = set()
        for node in nodes:
            if name := parse(node.provider_id):
                self._nodes.setdefault(name, node)
            elif not node.provider_id:
                self._nobodys.add(node.name)

    def __iter__(self) -> Iterator[str]:
        """The machines that are nodes."""
        return iter(self._nodes)

    def node_of(self, instance: str) -> Node | None:
        """The node that a machine has become; None while it has not joined."""
        return self._nodes.get(instance)

    def may_be(self, name: str) -> bool:
        """Whether a node that does not say which machine it is bears a machine's own name: without the vendor's cloud
        controller no node has a providerID, and all machines would look as if they had never joined."""
        return name in self._nobodys

    def nodepools(self) -> frozenset[str]:
        """The Nodepools that the nodes say they are of."""
        return frozenset(node.labels[NODEPOOL_LABEL].lower() for node in self._nodes.values()
                         if NODEPOOL_LABEL in node.labels)

    def spell(self, instance: str) -> str:
        """The provider id of a machine, as its node has it or would have it."""
        node = self._nodes.get(instance)
        return node.provider_id if node is not None else f"{_SCHEME}{instance}"


def placeholder(pool: str, number: int) -> str:
    """The handle `placeholder-<pool>-<n>`: a machine that was asked for and is not there (§5)."""
    return f"{_PLACEHOLDER}{pool}-{number}"


def placeholder_id(handle: str) -> str:
    """Its provider id, which no machine has."""
    return f"{_SCHEME}{handle}"


def is_placeholder(handle: str) -> bool:
    """Whether it stands for a machine that there is not."""
    return handle.startswith(_PLACEHOLDER)


def placeholder_pool(handle: str) -> str:
    """The pool of a placeholder's handle."""
    return handle.removeprefix(_PLACEHOLDER).rpartition("-")[0]


def handle_of(target: Target) -> str:
    """The machine's id, or the placeholder; "" where neither the handle nor the provider id says it."""
    if target.handle:
        return target.handle.lower() if is_id(target.handle) else target.handle
    name = target.instance.removeprefix(_SCHEME)
    return name if is_placeholder(name) else parse(target.instance)
