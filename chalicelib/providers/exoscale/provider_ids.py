"""Ids: how a machine is called by the vendor, by the cluster's nodes and by us (exoscale.md §2; §6, 3).

A providerID that is not `exoscale://` and a UUID is somebody else's node, or none yet; neither is an error. The core
matches instances and nodes letter by letter, so each machine is spelled as its own node spells it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from chalicelib.model.node import Node
from chalicelib.model.operation import RemovalTarget
from chalicelib.providers.exoscale.ids import is_id
from chalicelib.providers.node_identity import Identity, N

NODEPOOL_LABEL = "node.exoscale.net/nodepool-id"
"""What a Nodepool's kubelets write on their nodes."""
_SCHEME = "exoscale://"
_PLACEHOLDER = "placeholder-"


def parse(provider_id: str) -> str:
    """The machine's id in small letters; "" for an empty providerID and for those of other clouds."""
    name = provider_id.removeprefix(_SCHEME)
    return name.lower() if provider_id.startswith(_SCHEME) and is_id(name) else ""


def identify(nodes: Iterable[N], called: Mapping[str, str] | None = None) -> Identity[str, N]:
    """The nodes by machine. called: names of machines -> their ids. A node that bears the name of another machine than
    its providerID says, or of one that another node names, contradicts what is known: a kubelet cannot choose its
    node's name anew, and can choose its providerID."""
    nodes = tuple(nodes)
    named = {parse(node.provider_id) for node in nodes} - {""}
    bearing = called or {}

    def claimed(node: N) -> frozenset[str]:
        return frozenset({parse(node.provider_id)} - {""})

    def hinted(node: N) -> tuple[str, ...]:
        tail, other = node.provider_id.strip().rpartition("/")[2], bearing.get(node.name, "")
        return (
            *((tail.lower(),) if is_id(tail) else ()),
            *((other,) if other and (node.provider_id or other in named) else ()),
        )

    return Identity(nodes, claimed, hinted)


class ExoscaleGroupNames:
    """The cluster's nodes in this cloud, by machine. called: names of machines -> their ids, as the vendor says; before
    the vendor has been asked nothing is known of them."""

    def __init__(self, nodes: Iterable[Node], called: Mapping[str, str] | None = None) -> None:
        self._all = tuple(nodes)
        self._identity = identify(self._all, called)
        self._nobodys = {node.name for node in self._all if not node.provider_id}

    def knowing(self, called: Mapping[str, str]) -> ExoscaleGroupNames:
        """The same nodes held against the machines' own names."""
        return ExoscaleGroupNames(self._all, called)

    def __iter__(self) -> Iterator[str]:
        """The machines that are nodes."""
        return iter(self._identity.machines())

    def node_of(self, instance: str) -> Node | None:
        """The node that a machine has become; None while it has not joined, and where that cannot be known."""
        return self._identity.node_of(instance)

    def claimants(self, instance: str) -> tuple[str, ...]:
        """The nodes that claim a machine whose node cannot be known."""
        return self._identity.claimants(instance)

    def may_be(self, name: str) -> bool:
        """Whether a node that does not say which machine it is bears a machine's own name: without the vendor's cloud
        controller no node has a providerID, and all machines would look as if they had never joined."""
        return name in self._nobodys

    def nodepools(self) -> frozenset[str]:
        """The Nodepools that the nodes say they are of."""
        return frozenset(
            node.labels[NODEPOOL_LABEL].lower()
            for machine in self
            if (node := self.node_of(machine)) is not None and NODEPOOL_LABEL in node.labels
        )

    def spell(self, instance: str) -> str:
        """The provider id of a machine, as its node has it or would have it."""
        node = self.node_of(instance)
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


def handle_of(target: RemovalTarget) -> str:
    """The machine's id, or the placeholder; "" where neither the handle nor the provider id says it."""
    if target.handle:
        return target.handle.lower() if is_id(target.handle) else target.handle
    name = target.instance.removeprefix(_SCHEME)
    return name if is_placeholder(name) else parse(target.instance)
