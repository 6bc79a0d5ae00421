"""Topology labels of CSI drivers, for templates of nodes that do not exist.

A zonal driver says by a key of its own where a node reaches its volumes. Its pod on the node sets
that label, so no vendor's template has it, and neither has a template that was learnt before the
driver was installed. The value is the zone, or the region, of the template. Which keys say the zone
is seen on the nodes of the cluster; for drivers that no node has yet, known ones are listed here.
See docs/reference/scale-up.md "Topology labels of CSI drivers".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from chalicelib.model.node import Node
from chalicelib.model.storage import Storage

ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
REGION_LABELS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
_STANDARD = frozenset(ZONE_LABELS + REGION_LABELS)
# Keys that do not follow the convention `topology.<driver>/zone`, as published in
# https://github.com/kubernetes-sigs/vsphere-csi-driver/blob/master/docs/book/driver-deployment/deploying_csi_with_zones.md
# https://github.com/kubernetes-sigs/gcp-compute-persistent-disk-csi-driver/blob/master/pkg/common/constants.go
# https://github.com/hetznercloud/csi-driver/blob/main/internal/driver/driver.go
_OTHER_KEYS = {
    "csi.vsphere.vmware.com": tuple(
        f"topology.csi.vmware.com/{name}"
        for name in (
            "k8s-zone",
            "k8s-region",
            "openshift-zone",
            "openshift-region",
            "zone",
            "region",
        )
    ),
    "pd.csi.storage.gke.io": ("topology.gke.io/zone",),
    "csi.hetzner.cloud": ("csi.hetzner.cloud/location",),
}
_KNOWN = {
    **{
        driver: (f"topology.{driver}/zone",)
        for driver in (
            "diskplugin.csi.alibabacloud.com", "ebs.csi.aws.com", "cinder.csi.openstack.org",
            "disk.csi.azure.com", "evs.csi.huaweicloud.com", "csi.exoscale.com", "csi.scaleway.com",
        )
    },
    **_OTHER_KEYS,
}  # fmt: skip
_KNOWN_KEYS = frozenset(key for keys in _KNOWN.values() for key in keys)
_CONVENTION = re.compile(r"topology\.[^/]+/(?:[a-z0-9]+-)?(?:zone|region)")
_OF_REGION = re.compile(r".*(?:region|/location)")


class CsiTopology:
    """The topology labels of CSI drivers that say the zone or the region of a node.
    Compared when first asked for."""

    def __init__(
        self, nodes: Sequence[Node], storage: Storage, topology_keys: Collection[str]
    ) -> None:
        """topology_keys: those that CSINodes list."""
        self._nodes = nodes
        self._storage = storage
        self._listed = topology_keys
        self._places: dict[str, tuple[str, ...]] | None = None

    def missing(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the labels that the drivers will set on a node with these labels,
        beside those that it has."""
        missing = {}
        for key, place in self._keys().items():
            value = "" if key in labels else _place(labels, place)
            if value:
                missing[key] = value
        return missing

    def zone_keys(self) -> frozenset[str]:
        """Return the keys that say the zone."""
        return frozenset(key for key, place in self._keys().items() if place == ZONE_LABELS)

    def _keys(self) -> dict[str, tuple[str, ...]]:
        """Return the keys with the labels that have the same value: those of the
        zone or those of the region."""
        if self._places is None:
            present = frozenset[str]().union(*(node.labels.keys() for node in self._nodes))
            places = {key: place_of(key) for key in self._unseen(present)}
            seen = {key for key in present if key in self._listed or is_csi_topology(key)}
            for key in sorted(seen - _STANDARD):
                place = self._agreement(key)
                if place:
                    places[key] = place
            self._places = places
        return self._places

    def _agreement(self, key: str) -> tuple[str, ...]:
        """Return which place a label says on every node that has both, () if none."""
        carrying = [node.labels for node in self._nodes if key in node.labels]
        first = place_of(key)
        second = REGION_LABELS if first == ZONE_LABELS else ZONE_LABELS
        for place in (first, second):
            pairs = {(labels[key], _place(labels, place)) for labels in carrying}
            both = {(value, other) for value, other in pairs if other}
            if both and all(value == other for value, other in both):
                return place
        return ()

    def _unseen(self, present: Collection[str]) -> list[str]:
        """Return the keys of drivers that are in use, and that no node has."""
        storage = self._storage
        running = set[str]().union(*(csi_node.topology for csi_node in storage.csi_nodes))
        used = {volume.driver for volume in storage.volumes}
        used |= {cls.provisioner for cls in storage.classes}
        known: set[str] = set()
        for driver in used - running:
            known.update(_KNOWN.get(driver, ()))
        for key in _named_keys(storage):
            if key in _KNOWN_KEYS or (is_csi_topology(key) and _follows(key)):
                known.add(key)
        for driver in running:
            known.difference_update(_KNOWN.get(driver, ()))
            known.discard(f"topology.{driver}/zone")
        return sorted(known.difference(present, self._listed))


def place_of(key: str) -> tuple[str, ...]:
    """Return whether a key says the region or the zone, by its name, as the labels of that
    place."""
    return REGION_LABELS if _OF_REGION.fullmatch(key) else ZONE_LABELS


def is_csi_topology(key: str) -> bool:
    """Return whether a label is `topology.<CSI driver>/…`, which says where a node reaches the
    volumes of a driver. By convention the driver's name has a part `csi`."""
    prefix, _, name = key.partition("/")
    parts = prefix.split(".")
    return bool(name) and parts[0] == "topology" and "csi" in parts[1:]


def _follows(key: str) -> bool:
    return _CONVENTION.fullmatch(key) is not None


def _named_keys(storage: Storage) -> Iterable[str]:
    """Return the keys by which volumes and storage classes name places."""
    selectors = {volume.node_terms for volume in storage.volumes}
    selectors |= {cls.topologies for cls in storage.classes}
    keys: set[str] = set()
    for terms in selectors:
        for term in terms or ():
            keys.update(requirement.key for requirement in term.expressions)
    return keys


def _place(labels: Mapping[str, str], place: Iterable[str]) -> str:
    return next((labels[label] for label in place if labels.get(label)), "")
