"""Classifies nodes into readiness buckets, and health: of the cluster, a zone and a node group. See
docs/reference/node-groups.md "Readiness".

Cluster Autoscaler has one health state for the whole cluster, and includes nodes that it does not
manage. A fault in one zone, or in nodes that it does not manage, therefore stops everything. Here,
the unhealthy scope is as narrow as the evidence: only nodes of known groups count, a zone is judged
by its own nodes, a group by its own, and the whole cluster stops only when all of it is unhealthy.
The same thresholds apply to all three, and both comparisons are strict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from chalicelib.model.node import TO_BE_DELETED, Node
from chalicelib.model.plan import Health
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import ANNOUNCING_LABELS, CPU, MEMORY, offers_device
from chalicelib.policy.settings.cluster_options import Options

_NOT_READY_TAINTS = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/network-unavailable",
    }
)
_NEVER_REPORTED = frozenset({"", "NodeStatusNeverUpdated"})
"""Reasons of a Ready condition that is Unknown because the kubelet has not reported yet."""
STARTUP_PREFIXES = (
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
)
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
    STARTING = "notStarted"
    UNREADY = "unready"


def is_startup_taint(key: str, options: Options) -> bool:
    """Return whether a taint disappears by itself: the node is not ready while it exists, and
    templates do not have it."""
    prefixes = (*STARTUP_PREFIXES, *options.startup_taint_prefix)
    return key in STARTUP_TAINTS or key in options.startup_taint or key.startswith(prefixes)


def is_ready(node: Node, options: Options) -> bool:
    """Return whether it works, and offers the device that it announces itself."""
    return works(node, options) and not lacks_device(node)


def lacks_device(node: Node, *, announced: bool = False) -> bool:
    """Return whether a device is announced and missing (so far): by a label, by the node's own
    capacity, or by its vendor (announced). A device of any kind will do, because a driver may offer
    shares of it under other names."""
    if not announced and not _announces(node) and not offers_device(node.capacity):
        return False
    return not offers_device(node.allocatable)


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
    if not node.taints:
        return True
    return not any(
        t.key in _NOT_READY_TAINTS or is_startup_taint(t.key, options) for t in node.taints
    )


def bucket(node: Node, *, exists: bool, ready: bool, startup_time: float, now: float) -> Bucket:
    """Return the bucket of a registered node. exists: the provider still has its instance (True if
    unknown); ready: it works, and no device is missing."""
    suspended = node.condition("Suspended")
    if not exists or node.taint(TO_BE_DELETED) is not None:
        return Bucket.DELETED
    if suspended is not None and suspended.status == "True":
        return Bucket.SUSPENDED
    if ready:
        return Bucket.READY
    starts = is_young(node, startup_time, now) and not has_started(node)
    return Bucket.STARTING if starts else Bucket.UNREADY


def is_young(node: Node, startup_time: float, now: float) -> bool:
    """Return whether a node may still be getting what it lacks. startup_time:
    maxNodeStartupTime of its group."""
    return node.created + startup_time > now


def has_started(node: Node) -> bool:
    """Return whether a node that is not ready was so before: its kubelet has reported
    once, and does not any more."""
    ready = node.condition("Ready")
    return ready is not None and ready.status == "Unknown" and ready.reason not in _NEVER_REPORTED


ZONE = "topology.kubernetes.io/zone"


def exceeds(bad: int, known: int, options: Options) -> bool:
    """Return whether too many nodes are unready: more than ok-total-unready-count and more than
    max-total-unready-percentage of the total."""
    most = options.max_total_unready_percentage / 100 * known
    return bad > options.ok_total_unready_count and bad > most


def health_of(
    nodes: Sequence[Node],
    managed: Mapping[str, str],
    buckets: Mapping[str, Bucket],
    options: Options,
    lacking: Collection[str],
) -> Health:
    """Return the cluster's health and its node counts. managed: node -> group; other nodes are
    counted but do not affect health. lacking: nodes that lack an announced device. Figures that
    come from groups (instances, upcoming nodes) are left at 0 for the caller."""
    counts = {kind: sum(bucket is kind for bucket in buckets.values()) for kind in Bucket}
    unready = [node for node in nodes if buckets[node.name] is Bucket.UNREADY]
    managed_unready = sum(node.name in managed for node in unready)
    offers = [node.capacity or node.allocatable for node in nodes]
    return Health(
        healthy=not exceeds(managed_unready, len(managed), options),
        registered=len(buckets),
        ready=counts[Bucket.READY],
        unready=len(unready),
        not_started=counts[Bucket.STARTING],
        being_deleted=counts[Bucket.DELETED],
        suspended=counts[Bucket.SUSPENDED],
        resource_unready=sum(node.name in lacking and works(node, options) for node in unready),
        cpu=sum(offer.get(CPU, 0) for offer in offers),
        memory=sum(offer.get(MEMORY, 0) for offer in offers),
    )


def sick_zones(
    nodes: Iterable[Node],
    managed: Mapping[str, str],
    buckets: Mapping[str, Bucket],
    options: Options,
) -> dict[str, str]:
    """Return zone -> problem, for the zones in which too many managed nodes are unready."""
    nodes_in: Counter[str] = Counter()
    unready_in: Counter[str] = Counter()
    for node in nodes:
        zone = node.labels.get(ZONE, "")
        if zone and node.name in managed:
            nodes_in[zone] += 1
            unready_in[zone] += buckets[node.name] is Bucket.UNREADY
    problems = {}
    for zone, total in sorted(nodes_in.items()):
        unready = unready_in[zone]
        if exceeds(unready, total, options):
            problems[zone] = f"{unready} of {total} nodes in zone {zone} are unready"
    return problems


def zone_of(nodes: Iterable[Node], template_node: Node | None) -> str:
    """Return the single zone of all nodes and the template of a group; "" if there are several or
    it is unknown. A template without a zone, as some providers return, is ignored."""
    zones = {node.labels.get(ZONE, "") for node in nodes}
    if template_node is not None and ZONE in template_node.labels:
        zones.add(template_node.labels[ZONE])
    return zones.pop() if len(zones) == 1 else ""


def frozen(
    counts: Mapping[Bucket, int], missing: int, zone: str, options: Options
) -> Reason | None:
    """Return why a group is not changed, None if it is healthy. counts: its nodes by bucket; zone:
    the problem of the zone that it lies in.

    A group can be unhealthy in two ways: registered nodes are unready, or expected nodes are
    missing. For a group without any node only the second applies, and one missing node suffices.
    """
    nodes = sum(counts.values())
    unready = counts[Bucket.UNREADY]
    existing = nodes - counts[Bucket.DELETED]
    misses_many = exceeds(missing, existing, options) if nodes else missing > 0
    checks = (
        (exceeds(unready, existing, options), f"{unready} of {existing} nodes are unready"),
        (misses_many, f"{missing} nodes are missing"),
        (bool(zone), zone),
    )
    for fails, detail in checks:
        if fails:
            return Reason.of(ReasonCode.GROUP_FROZEN, detail=detail)
    return None
