"""Classifies nodes into readiness buckets, and defines when a node is ready. See docs/reference/node-groups.md
"Readiness"."""

from __future__ import annotations

from enum import StrEnum

from chalicelib.model.node import TO_BE_DELETED, Node
from chalicelib.model.policy import Options
from chalicelib.model.resources import GPU_RESOURCES

_NOT_READY_TAINTS = frozenset(
    {"node.kubernetes.io/not-ready", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/network-unavailable"}
)
STARTUP_PREFIXES = ("ignore-taint.cluster-autoscaler.kubernetes.io/", "startup-taint.cluster-autoscaler.kubernetes.io/")
STATUS_PREFIX = "status-taint.cluster-autoscaler.kubernetes.io/"
# kubeadm nodes of Cluster API have it until they are initialised.
STARTUP_TAINTS = frozenset({"node.cluster.x-k8s.io/uninitialized"})
# Labels by which providers announce a GPU; their value is the GPU type.
GPU_LABELS = ("cluster-api/accelerator", "aliyun.accelerator/nvidia_name")
# A shared GPU is offered in pieces under names such as aliyun.com/gpu-mem, and then not as a whole device.
_SHARED_GPU = "aliyun.com/gpu-"


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
    """Return whether Ready is True, without pressure or startup taint, and with the GPU that its label announces."""
    return _works(node, options) and not lacks_device(node)


def lacks_device(node: Node) -> bool:
    """Return whether the GPU that its label announces is missing (so far)."""
    promises_gpu = any(label in node.labels for label in GPU_LABELS)
    return promises_gpu and not any(
        amount and (name in GPU_RESOURCES or name.startswith(_SHARED_GPU)) for name, amount in node.allocatable.items()
    )


def only_lacks_device(node: Node, options: Options) -> bool:
    """Return whether only a missing device prevents it from being ready (Cluster Autoscaler's ResourceUnready)."""
    return lacks_device(node) and _works(node, options)


def _works(node: Node, options: Options) -> bool:
    ready = node.condition("Ready")
    if ready is None or ready.status != "True":
        return False
    for kind in ("DiskPressure", "NetworkUnavailable"):
        condition = node.condition(kind)
        if condition is not None and condition.status == "True":
            return False
    return not any(t.key in _NOT_READY_TAINTS or is_startup_taint(t.key, options) for t in node.taints)


def bucket(node: Node, *, exists: bool, startup_time: float, now: float, options: Options) -> Bucket:
    """Return the bucket of a registered node. exists: the provider still has its instance (True if unknown)."""
    suspended = node.condition("Suspended")
    if not exists or node.taint(TO_BE_DELETED) is not None:
        return Bucket.DELETED
    if suspended is not None and suspended.status == "True":
        return Bucket.SUSPENDED
    if is_ready(node, options):
        return Bucket.READY
    return Bucket.NOT_STARTED if node.created + startup_time > now else Bucket.UNREADY
