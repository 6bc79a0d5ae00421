"""Nodes and servers put together, from one list of each and without a call (cherryservers.md §2; D6, D15, D24).

    the node's providerID       its server
    cherryservers://1000, 1000  number 1000, if it is listed
    empty                       the one server of the project that bears the node's name
    of another scheme           none: the node is not ours

A kubelet can write any providerID, and cannot choose its node's name. So a node that bears the name of another server
than its providerID says is believed of neither, and a server that two nodes claim has no node that is known
(providers/identity.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chalicelib.model.node import Node
from chalicelib.providers.cherryservers.instances import ServerList
from chalicelib.providers.cherryservers.models import CherryServer
from chalicelib.providers.cherryservers.provider_ids import likely, parse, spell
from chalicelib.providers.node_identity import Identity, N


def identify(nodes: Iterable[N], roll: ServerList) -> Identity[int, N]:
    """The nodes by the server's number."""
    bearing = {
        each.hostname.casefold(): each.id
        for each in roll.by_id.values()
        if not roll.leaves(each) and roll.is_only(each.hostname)
    }

    def claimed(node: N) -> tuple[int, ...]:
        number = parse(node.provider_id) if node.provider_id else bearing.get(node.name.casefold())
        return () if number is None else (number,)

    def hinted(node: N) -> tuple[int, ...]:
        found = (likely(node.provider_id), bearing.get(node.name.casefold()))
        return tuple(number for number in found if number is not None)

    return Identity(nodes, claimed, hinted)


class Matching:
    """Which server has become which node. controller_labels: keys that mark the nodes that are in no pool."""

    def __init__(self, nodes: Iterable[Node], roll: ServerList, controller_labels: Sequence[str]) -> None:
        self._labels = tuple(controller_labels)
        nodes = tuple(nodes)
        self._identity = identify(nodes, roll)
        self._names = {node.name.casefold() for node in nodes}
        self._roll = roll

    def node_of(self, server: CherryServer) -> Node | None:
        """The node that a server has become; None while it has not joined, and where that cannot be known."""
        return self._identity.node_of(server.id)

    def claimants(self, server: CherryServer) -> tuple[str, ...]:
        """The nodes that claim a server whose node cannot be known."""
        return self._identity.claimants(server.id)

    def controls(self, server: CherryServer) -> bool:
        """Whether it is a node of the control plane."""
        node = self.node_of(server)
        return node is not None and any(label in node.labels for label in self._labels)

    def name_of(self, server: CherryServer) -> str:
        """The name of its node, or the one that its node will have; empty where that would name two things."""
        node = self.node_of(server)
        if node is not None:
            return node.name
        free = self._roll.is_only(server.hostname) and server.hostname.casefold() not in self._names
        return server.hostname if free else ""

    def spell(self, server: CherryServer) -> str:
        """The provider id of a server as its node spells it, or will."""
        node = self.node_of(server)
        return node.provider_id if node is not None and node.provider_id else spell(server.id)
