"""Classifies nodes into readiness buckets, and defines when a node is ready. See docs/reference/node-groups.md
"Readiness"."""

from __future__ import annotations

from enum import StrEnum

from chalicelib.model.node import TO_BE_DELETED, Node
from chalicelib.model.policy import Options
from chalicelib.model.resources import ANNOUNCING_LABELS, offers_device

_NOT_READY_TAINTS = frozenset(
    {"node.kubernetes.io/not-ready", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/network-unavailable"}
)
STARTUP_PREFIXES = ("ignore-taint.cluster-autoscaler.kubernetes.io/", "startup-taint.cluster-autoscaler.kubernetes.io/")
STATUS_PREFIX = "status-taint.cluster-autoscaler.kubernetes.io/"
# kubeadm nodes of Cluster API have it until they are initialised.
STARTUP_TAINTS = frozenset({"node.cluster.x-k8s.io/uninitialized"})
# Values by which users say that a node of a labelled set has no device.
_NO_DEVICE = frozenset({"", "none", "false"})


class Bucket(StrEnum):
    """The buckets; the first match wins, in this order."""

    DELETED = "beingDeleted"
    SUSPENDED = "suspended"
    READY = "ready"
    NOT_STARTED = "notStarted"
    UNREADY = "unready"


def is_startup_taint(key: str, options: Options) -> bool:
    """Return whether a taint disappears by itself: the node is not ready while it exists, and templates do not have
    it."""
    prefixes = (*STARTUP_PREFIXES, *options.startup_taint_prefix)
    return key in STARTUP_TAINTS or key in options.startup_taint or key.startswith(prefixes)


def is_ready(node: Node, options: Options) -> bool:
    """Return whether it works, and offers the device that it announces itself."""
    return works(node, options) and not lacks_device(node)


def lacks_device(node: Node, *, announced: bool = False) -> bool:
    """Return whether a device is announced and missing (so far): by a label, by the node's own capacity, or by its
    vendor (announced). A device of any kind will do, because a driver may offer shares of it under other names."""
    return (announced or _announces(node) or offers_device(node.capacity)) and not offers_device(node.allocatable)


def announces_device(template_node: Node) -> bool:
    """Return whether a vendor's template has a device."""
    return offers_device(template_node.allocatable or template_node.capacity)


def _announces(node: Node) -> bool:
    if node.labels.keys().isdisjoint(ANNOUNCING_LABELS):
        return False
    return any(node.labels.get(label, "").lower() not in _NO_DEVICE for label in ANNOUNCING_LABELS)


def works(node: Node, options: Options) -> bool:
    """Return whether Ready is True, without pressure or startup taint."""
    ready = node.condition("Ready")
    if ready is None or ready.status != "True":
        return False
    for kind in ("DiskPressure", "NetworkUnavailable"):
        condition = node.condition(kind)
        if condition is not None and condition.status == "True":
            return False
    return not any(t.key in _NOT_READY_TAINTS or is_startup_taint(t.key, options) for t in node.taints)


def bucket(node: Node, *, exists: bool, ready: bool, startup_time: float, now: float) -> Bucket:
    """Return the bucket of a registered node. exists: the provider still has its instance (True if unknown); ready: it
    works, and no device is missing."""
    suspended = node.condition("Suspended")
    if not exists or node.taint(TO_BE_DELETED) is not None:
        return Bucket.DELETED
    if suspended is not None and suspended.status == "True":
        return Bucket.SUSPENDED
    if ready:
        return Bucket.READY
    return Bucket.NOT_STARTED if node.created + startup_time > now else Bucket.UNREADY
