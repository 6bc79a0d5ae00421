"""Which labels name one node: a new node of the same group has another value there.

A label is of one node by its value or by its key. By value: the node's name, its host name, an
address, its machine id, its system UUID or its instance, and no other node has the same value.
By key: CSI drivers list the key as a topology key, at least two nodes of the cluster carry it, and
no two of them share a value. Host names are always of one node; well-known labels, and whatever
says the node's zone or region, never are. See docs/reference/scale-up.md "Labels of one node".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.storage import Storage
from chalicelib.plan.state.csi_topology import REGION_LABELS, ZONE_LABELS, CsiTopology

_PLACES = ZONE_LABELS + REGION_LABELS
_WELL_KNOWN = frozenset({
    *_PLACES, "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch", "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type", "node.kubernetes.io/windows-build",
})  # fmt: skip
# Zones and regions hold several nodes, although a small cluster may have one node in each.
_WIDE = re.compile(r".*(?:zone|zone-?id|zone-?name|region)")
_ALIBABA_INSTANCE = re.compile(r"[^.]+\.((?:i|eci)-[0-9a-z]{6,})")  # after the region
_NAMED_AFTER_NODES = re.compile(
    r"(?:.*/)?(?:node-?name|node_name|node-?id|host-?name|instance-?id|machine-?name)"
    r"|(?:topology\.|.*\.topology\.|.*csi|.*lvm|directpv\.).*/(?:node|host)"
)
_SHORTEST_NUMBER = 5  # digits of an instance's number: shorter ones say something else in a label


class NodeLabels:
    """The labels of one node in a cluster. topology_keys: those that CSI drivers list on any node.
    per_node_keys: those of them that are of one node by the key's rule. uncertain_keys: those of
    them of which it is unknown, because a single node carries them. csi: those that say the zone or
    region."""

    def __init__(
        self, nodes: Sequence[Node], topology_keys: Iterable[str], storage: Storage
    ) -> None:
        self._nodes = nodes
        self._values: dict[str, Counter[str]] = {}
        self._of_nodes: dict[str, bool] = {}
        self.topology_keys = frozenset(topology_keys)
        self.csi = CsiTopology(nodes, storage, self.topology_keys)
        per_node_keys: list[str] = []
        single: dict[str, Node] = {}
        for key in sorted(self.topology_keys):
            carrying = [] if _is_wide(key) else [node for node in nodes if key in node.labels]
            if not carrying or any(_says_place(node, key) for node in carrying):
                continue
            if len(carrying) == 1:
                single[key] = carrying[0]
            elif max(self._count(key).values()) == 1:
                per_node_keys.append(key)
        self.per_node_keys = frozenset(per_node_keys)
        self.uncertain_keys = frozenset(
            key for key, node in single.items() if not self.is_own(node, key)
        )

    @classmethod
    def of(cls, snapshot: Snapshot) -> NodeLabels:
        """Return the labels of a snapshot's nodes."""
        lists: set[tuple[str, ...]] = set()
        for csi_node in snapshot.storage.csi_nodes:
            lists.update(csi_node.topology.values())
        topology_keys = {key for keys in lists for key in keys}
        return cls(snapshot.nodes, topology_keys, snapshot.storage)

    def is_own(self, node: Node, key: str) -> bool:
        """Return whether a label of a node is of this one node."""
        if key == HOSTNAME_LABEL:
            return True
        if key in _WELL_KNOWN or key not in node.labels or _says_place(node, key):
            return False
        return key in self.per_node_keys or self._names_node(node, key)

    def own(self, node: Node) -> frozenset[str]:
        """Return the keys of the labels of a node that are of this one node."""
        return frozenset(key for key in node.labels if self.is_own(node, key))

    def is_of_nodes(self, key: str) -> bool:
        """Return whether a label is of one node wherever the cluster has it, for a label
        of a node that has gone."""
        if key not in self._of_nodes:
            carrying = [node for node in self._nodes if key in node.labels]
            is_own = all(self.is_own(node, key) for node in carrying)
            self._of_nodes[key] = is_own and bool(carrying)
        return key == HOSTNAME_LABEL or self._of_nodes[key]

    def _names_node(self, node: Node, key: str) -> bool:
        value = node.labels[key]
        return value.casefold() in _names(node) and self._count(key)[value] <= 1

    def _count(self, key: str) -> Counter[str]:
        """Return how many nodes have each value of a label."""
        if key not in self._values:
            carrying = (node for node in self._nodes if key in node.labels)
            self._values[key] = Counter(node.labels[key] for node in carrying)
        return self._values[key]


def is_named_after_nodes(key: str) -> bool:
    """Return whether a key says by its name that its label is of one node: for a node that has gone
    and whose name is not known."""
    return _NAMED_AFTER_NODES.fullmatch(key.lower()) is not None


def own_keys(labels: Mapping[str, str]) -> frozenset[str]:
    """Return which labels of a template or of a planned node are of it alone:
    their value is its host name."""
    name = labels.get(HOSTNAME_LABEL)
    return frozenset({HOSTNAME_LABEL, *(key for key, value in labels.items() if value == name)})


def _is_wide(key: str) -> bool:
    if key in _WELL_KNOWN or key == HOSTNAME_LABEL:
        return True
    name = key.rpartition("/")[2]
    return _WIDE.fullmatch(name.lower()) is not None


def _says_place(node: Node, key: str) -> bool:
    """Return whether a label has the value of the node's zone or region."""
    value = node.labels[key]
    return any(node.labels.get(place) == value for place in _PLACES)


def _names(node: Node) -> frozenset[str]:
    """Return what identifies a node: its name, its host name, its addresses, its
    machine and its instance."""
    host_name = node.labels.get(HOSTNAME_LABEL, "")
    words = (node.name, host_name, *node.identities, *_instance(node.provider_id))
    return frozenset(word.casefold() for word in words if word)


def _instance(provider_id: str) -> tuple[str, ...]:
    """Return the instance that a provider id names: after the last slash, with
    Alibaba Cloud after the region."""
    last = provider_id.rpartition("/")[2]
    if last.isdigit() and len(last) < _SHORTEST_NUMBER:
        return ()
    match = _ALIBABA_INSTANCE.fullmatch(last)
    return (last, match.group(1)) if match is not None else (last,)
