"""Since when nodes exist, as their age counts: from the creation of the Node object, or from that
of the machine where that is earlier (docs/reference/node-lifecycle.md "Age")."""

from __future__ import annotations

from chalicelib.model.group import Instance
from chalicelib.model.node import Node
from chalicelib.plan.state.cluster_state import NodeGroupState


def instances_by_node(group: NodeGroupState) -> dict[str, Instance]:
    """Return the instance of each node of a group, by the node's name."""
    by_word = {
        word: machine
        for machine in group.group.instances
        for word in (machine.id, machine.node)
        if word
    }
    machines = {
        node.name: by_word.get(node.name) or by_word.get(node.provider_id) for node in group.nodes
    }
    return {name: machine for name, machine in machines.items() if machine is not None}


def earliest(*instants: float) -> float:
    """Return the earliest known instant, 0.0 if none is known."""
    return min((instant for instant in instants if instant > 0.0), default=0.0)


class NodeBirths:
    """Since when the nodes of groups exist, for rules that take the machine's own age
    only where the provider says that it is the node's (Instance.born). Groups without
    such a machine cost nothing."""

    def __init__(self) -> None:
        self._machines: dict[str, dict[str, Instance]] = {}

    def of(self, node: Node, group: NodeGroupState) -> float:
        """Return since when a node exists, epoch seconds."""
        if group.id not in self._machines:
            known = any(instance.born for instance in group.group.instances)
            self._machines[group.id] = instances_by_node(group) if known else {}
        machine = self._machines[group.id].get(node.name)
        return earliest(node.created, machine.born) if machine is not None else node.created
