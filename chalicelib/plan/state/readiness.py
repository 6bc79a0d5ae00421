"""In which bucket a node is counted (state.md §2), and when a node is ready at all (scale-up.md §1)."""

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
# Cluster API's kubeadm nodes carry it until they are initialised (clusterapi.md §9).
STARTUP_TAINTS = frozenset({"node.cluster.x-k8s.io/uninitialized"})
# Labels by which a node of a provider promises a GPU (clusterapi.md §5, alicloud.md §5); their value is its type.
GPU_LABELS = ("cluster-api/accelerator", "aliyun.accelerator/nvidia_name")
# A GPU that pods share is offered by the piece under names such as aliyun.com/gpu-mem, and then not as a whole.
_SHARED_GPU = "aliyun.com/gpu-"


class Bucket(StrEnum):
    """First match wins, in this order."""

    DELETED = "beingDeleted"
    SUSPENDED = "suspended"
    READY = "ready"
    NOT_STARTED = "notStarted"
    UNREADY = "unready"


def is_startup_taint(key: str, options: Options) -> bool:
    """A taint that goes away by itself: the node is not ready while it is there, and templates do not have it."""
    prefixes = (*STARTUP_PREFIXES, *options.startup_taint_prefix)
    return key in STARTUP_TAINTS or key in options.startup_taint or key.startswith(prefixes)


def is_ready(node: Node, options: Options) -> bool:
    """Ready is True, no pressure, no startup taint, and the GPU its label promises is there."""
    return _works(node, options) and not lacks_device(node)


def lacks_device(node: Node) -> bool:
    """Whether the GPU that its label promises is not there (yet)."""
    promises_gpu = any(label in node.labels for label in GPU_LABELS)
    return promises_gpu and not any(
        amount and (name in GPU_RESOURCES or name.startswith(_SHARED_GPU)) for name, amount in node.allocatable.items()
    )


def only_lacks_device(node: Node, options: Options) -> bool:
    """Whether a missing device is all that keeps it from being ready (state.md §2, ResourceUnready)."""
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
    """Where a registered node counts. exists: the provider still has its instance (True where it cannot say)."""
    suspended = node.condition("Suspended")
    if not exists or node.taint(TO_BE_DELETED) is not None:
        return Bucket.DELETED
    if suspended is not None and suspended.status == "True":
        return Bucket.SUSPENDED
    if is_ready(node, options):
        return Bucket.READY
    return Bucket.NOT_STARTED if node.created + startup_time > now else Bucket.UNREADY
