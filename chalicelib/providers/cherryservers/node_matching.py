"""Matches nodes and servers from one list of each, without further calls.

    the node's providerID       its server
    cherryservers://1000, 1000  number 1000, if it is listed
    empty                       the one server of the project with the node's name
    of another scheme           none: the node belongs to another provider

A kubelet can write any providerID and cannot choose its node's name. Therefore a node whose name is that of a server
other than the one its providerID names is matched to neither, and a server that two nodes claim has no known node
(providers/node_identity.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chalicelib.model.node import Node
from chalicelib.providers.cherryservers.instances import ServerList
from chalicelib.providers.cherryservers.models import CherryServer
from chalicelib.providers.cherryservers.provider_ids import likely, parse, spell
from chalicelib.providers.node_identity import Identity, N


def identify(nodes: Iterable[N], servers: ServerList) -> Identity[int, N]:
    """Return the nodes by the server's number."""
    bearing = {
        each.hostname.casefold(): each.id
        for each in servers.by_id.values()
        if not servers.leaves(each) and servers.is_only(each.hostname)
    }

    def claimed(node: N) -> tuple[int, ...]:
        number = parse(node.provider_id) if node.provider_id else bearing.get(node.name.casefold())
        return () if number is None else (number,)

    def hinted(node: N) -> tuple[int, ...]:
        found = (likely(node.provider_id), bearing.get(node.name.casefold()))
        return tuple(number for number in found if number is not None)

    return Identity(nodes, claimed, hinted)


class Matching:
    """The matching of servers to nodes. controller_labels: keys that mark the nodes that belong to no pool."""

    def __init__(self, nodes: Iterable[Node], servers: ServerList, controller_labels: Sequence[str]) -> None:
        self._labels = tuple(controller_labels)
        nodes = tuple(nodes)
        self._identity = identify(nodes, servers)
        self._names = {node.name.casefold() for node in nodes}
        self._roll = servers

    def node_of(self, server: CherryServer) -> Node | None:
        """Return the node of a server; None if it has not joined or its node is ambiguous."""
        return self._identity.node_of(server.id)

    def claimants(self, server: CherryServer) -> tuple[str, ...]:
        """Return the nodes that claim a server whose node is ambiguous."""
        return self._identity.claimants(server.id)

    def controls(self, server: CherryServer) -> bool:
        """Whether the server is a control plane node."""
        node = self.node_of(server)
        return node is not None and any(label in node.labels for label in self._labels)

    def name_of(self, server: CherryServer) -> str:
        """Return the name of its node, or the name that its node will have; empty if that would be ambiguous."""
        node = self.node_of(server)
        if node is not None:
            return node.name
        free = self._roll.is_only(server.hostname) and server.hostname.casefold() not in self._names
        return server.hostname if free else ""

    def spell(self, server: CherryServer) -> str:
        """Return the provider id of a server in the form that its node uses or will use."""
        node = self.node_of(server)
        return node.provider_id if node is not None and node.provider_id else spell(server.id)
