"""Nodes and servers put together, from one list of each and without a call (cherryservers.md §2; D6, D15, D24).

    the node's providerID       its server
    cherryservers://1000, 1000  number 1000, if it is listed
    empty                       the one server of the project that bears the node's name
    of another scheme           none: the node is not ours
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chalicelib.model.node import Node
from chalicelib.providers.cherryservers.members import Roll
from chalicelib.providers.cherryservers.naming import parse, spell
from chalicelib.providers.cherryservers.wire import Server


class Matching:
    """Which server has become which node. controller_labels: keys that mark the nodes that are in no pool."""

    def __init__(self, nodes: Iterable[Node], roll: Roll, controller_labels: Sequence[str]) -> None:
        self._labels = tuple(controller_labels)
        self._ids: dict[int, Node] = {}
        self._nameless: dict[str, Node] = {}        # by name, those without a provider id
        self._names: set[str] = set()
        self._roll = roll
        for node in nodes:
            self._names.add(node.name.casefold())
            if (number := parse(node.provider_id)) is not None:
                self._ids.setdefault(number, node)
            elif not node.provider_id:
                self._nameless.setdefault(node.name.casefold(), node)

    def node_of(self, server: Server) -> Node | None:
        """The node that a server has become; None while it has not joined."""
        if server.id in self._ids:
            return self._ids[server.id]
        return self._nameless.get(server.hostname.casefold()) if self._roll.is_only(server.hostname) else None

    def controls(self, server: Server) -> bool:
        """Whether it is a node of the control plane."""
        node = self.node_of(server)
        return node is not None and any(label in node.labels for label in self._labels)

    def name_of(self, server: Server) -> str:
        """The name of its node, or the one that its node will have; empty where that would name two things."""
        node = self.node_of(server)
        if node is not None:
            return node.name
        free = self._roll.is_only(server.hostname) and server.hostname.casefold() not in self._names
        return server.hostname if free else ""

    def spell(self, server: Server) -> str:
        """The provider id of a server as its node spells it, or will."""
        node = self.node_of(server)
        return node.provider_id if node is not None and node.provider_id else spell(server.id)
