"""Storage that a driver offers on each node for itself (TopoLVM, local NVMe):
what a new node will have.

Such a driver publishes one CSIStorageCapacity per node, whose topology selects a label of one node.
None can exist for a node that does not. A new node of a group is taken to have the largest capacity
that a node of the group and of its machine type has published; the newest one that nobody uses
decides, since it shows what a new node has. See docs/reference/scheduling.md "CSIStorageCapacity".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from chalicelib.model.memory import LearntTemplate
from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.model.resources import CPU
from chalicelib.model.selector import Requirement, Selector
from chalicelib.model.storage import Storage, StorageCapacity
from chalicelib.plan.state.node_labels import NodeLabels, is_named_after_nodes

STORAGE_OF = "outscaler.dev/storage-of"
"""On simulated nodes: the group whose capacities they have. No real node has it."""
STORAGE_ASSUMED = "outscaler.dev/storage-assumed."
"""With the name of a storage class, on simulated nodes that are taken to have enough of it."""
MOST_CLASSES = 10
"""Storage classes of this kind that are considered, the first by name."""
_ENOUGH = 2**62
_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")


class LocalStorage:
    """The storage classes whose drivers publish capacity per node, and what they have published.
    classes: sorted. published: node -> class -> bytes of the largest volume."""

    def __init__(
        self,
        storage: Storage,
        nodes: Sequence[Node],
        node_labels: NodeLabels,
        learnt: Iterable[LearntTemplate],
    ) -> None:
        self._nodes = nodes
        self._node_labels = node_labels
        self._by_value: dict[str, dict[str, str]] = {}
        self.published: dict[str, dict[str, int]] = {}
        self.classes: tuple[str, ...] = ()
        counted = {
            cls.name: cls.provisioner
            for cls in storage.classes
            if cls.provisioner in storage.publishing
        }
        if not counted:
            return
        local: set[str] = set()
        for capacity in storage.capacities:
            if capacity.storage_class in counted and self._note(capacity):
                local.add(capacity.storage_class)
        drivers: set[str] = set()
        for csi_node in storage.csi_nodes:
            for driver, keys in csi_node.topology.items():
                if any(map(self._is_of_nodes, keys)):
                    drivers.add(driver)
        local.update(name for name, driver in counted.items() if driver in drivers)
        for row in learnt:
            local.update(row.capacities.keys() & counted.keys())
        self.classes = tuple(sorted(local)[:MOST_CLASSES])

    def _note(self, capacity: StorageCapacity) -> bool:
        """Note what a node has published; returns whether it is the capacity of single nodes."""
        selector = capacity.node_topology
        if not selector:
            return False
        own = next((r for r in selector.requirements if self._is_of_nodes(r.key)), None)
        if own is None:
            return False
        limit = capacity.capacity if capacity.largest is None else capacity.largest
        if own.operator != "In" or limit is None:
            return True
        storage_class = capacity.storage_class
        for value in own.values:
            node = self._node_with(own.key, value)
            if node:
                by_class = self.published.setdefault(node, {})
                by_class[storage_class] = max(limit, by_class.get(storage_class, 0))
        return True

    def _is_of_nodes(self, key: str) -> bool:
        labels = self._node_labels
        if key == HOSTNAME_LABEL or key in labels.per_node_keys or key in labels.uncertain_keys:
            return True
        return labels.is_of_nodes(key) or is_named_after_nodes(key)

    def _node_with(self, key: str, value: str) -> str:
        if key not in self._by_value:
            self._by_value[key] = {
                node.labels[key]: node.name for node in self._nodes if key in node.labels
            }
        return self._by_value[key].get(value, "")

    def has_published(self, node: str, storage_class: str) -> bool:
        """Return whether a node has published its capacity of a class."""
        return storage_class in self.published.get(node, {})

    def of_new_node(
        self,
        template_node: Node,
        nodes: Iterable[Node],
        learnt: LearntTemplate | None,
        is_unused: Callable[[Node, str], bool],
    ) -> dict[str, int]:
        """Return class -> the capacity of a new node of a group, for the classes of which it is
        known. is_unused: tells whether no pod on a node has a volume of a class."""
        alike = [node for node in nodes if is_same_type(node, template_node)]
        known: dict[str, int] = {}
        if learnt is not None and is_same_type(learnt.node, template_node):
            known.update(learnt.capacities)
        for storage_class in self.classes:
            publishing = [node for node in alike if self.has_published(node.name, storage_class)]
            unused = [node for node in publishing if is_unused(node, storage_class)]
            newest = max(unused, key=lambda node: (node.created, node.name), default=None)
            amounts = [self.published[node.name][storage_class] for node in publishing]
            if newest is not None:
                known[storage_class] = self.published[newest.name][storage_class]
            elif amounts:
                known[storage_class] = max(known.get(storage_class, 0), *amounts)
        return {name: amount for name, amount in sorted(known.items()) if name in self.classes}


def is_same_type(node: Node, template_node: Node) -> bool:
    """Return whether two nodes are of one machine type, by their cores
    where one has no label of it."""
    machine_type = _machine_type(node)
    template_type = _machine_type(template_node)
    if machine_type and template_type:
        return machine_type == template_type
    return node.capacity.get(CPU) == template_node.capacity.get(CPU)


def _machine_type(node: Node) -> str:
    return next((node.labels[key] for key in _TYPES if node.labels.get(key)), "")


def capacities_of_new_nodes(known: Mapping[str, Mapping[str, int]]) -> list[StorageCapacity]:
    """Return what simulated nodes publish. known: group -> class -> bytes."""
    return [
        StorageCapacity(name, Selector((Requirement(STORAGE_OF, "In", (group,)),)), amount, amount)
        for group, by_class in sorted(known.items())
        for name, amount in sorted(by_class.items())
    ]


def assumed_capacity(group: str, storage_class: str, amount: int | None) -> StorageCapacity:
    """Return what a simulated node of a group publishes that is bought to find out; None:
    enough."""
    amount = _ENOUGH if amount is None else amount
    label = Requirement(STORAGE_ASSUMED + storage_class, "In", (group,))
    return StorageCapacity(storage_class, Selector((label,)), amount, amount)


def capacity_to_come(node: Node, storage_class: str, amount: int | None) -> StorageCapacity:
    """Return what a node is taken to publish that has not done so yet; None: enough."""
    amount = _ENOUGH if amount is None else amount
    host = Requirement(HOSTNAME_LABEL, "In", (node.labels.get(HOSTNAME_LABEL, node.name),))
    return StorageCapacity(storage_class, Selector((host,)), amount, amount)
