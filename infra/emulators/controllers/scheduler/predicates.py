"""All predicates in the scheduler's order, and the check whether a pod fits a node.

A predicate takes the pod and the cluster view. It returns a check that is called for every node,
None if the pod has no such requirement, or Nowhere. A check returns the scheduler's own text of the
reason, or nothing. The first predicate that rejects a node gives the reasons, so a tainted node is
never reported as short of cpu.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from infra.emulators.controllers.scheduler.cluster_view import (
    ClusterView,
    bind,
    class_of,
    is_bound,
    matches_volume,
    waits,
)
from infra.emulators.controllers.scheduler.pod_and_node_info import (
    HostPort,
    NodeView,
    PodTerm,
    PodView,
    Spread,
    read_node,
    read_pod,
)
from infra.emulators.controllers.scheduler.selectors import (
    SelectorTaint,
    any_term,
    selects,
    untolerated,
)


class Nowhere(msgspec.Struct, frozen=True):
    """The pod fits no node at all; the scheduler's message contains only this reason."""

    reason: str


NodeCheck = Callable[[NodeView], list[str]]
Predicate = Callable[[PodView, ClusterView], NodeCheck | Nowhere | None]

_CORDON = SelectorTaint("node.kubernetes.io/unschedulable", "", "NoSchedule")


def node_unschedulable(pod: PodView, _world: ClusterView) -> NodeCheck:
    """Reject a cordoned node, unless the pod tolerates the corresponding taint."""
    refuses = untolerated((_CORDON,), pod.tolerations)
    return lambda node: ["node(s) were unschedulable"] if node.unschedulable and refuses else []


def node_name(pod: PodView, _world: ClusterView) -> NodeCheck | None:
    if not pod.node:
        return None
    return lambda node: (
        [] if node.name == pod.node else ["node(s) didn't match the requested node name"]
    )


def taint_toleration(pod: PodView, _world: ClusterView) -> NodeCheck:
    """Reject a node with a NoSchedule or NoExecute taint that no toleration matches."""
    return lambda node: (
        ["node(s) had untolerated taint(s)"] if untolerated(node.taints, pod.tolerations) else []
    )


def matches_node_affinity(pod: PodView, node: NodeView) -> bool:
    """Return whether the node has all nodeSelector pairs and matches one of the required
    terms, if there are any."""
    return all(e.holds(node.labels) for e in pod.node_selector) and any_term(
        pod.node_terms, node.labels, node.name
    )


def node_affinity(pod: PodView, _world: ClusterView) -> NodeCheck | None:
    if not pod.node_selector and pod.node_terms is None:
        return None
    return lambda node: (
        []
        if matches_node_affinity(pod, node)
        else ["node(s) didn't match Pod's node affinity/selector"]
    )


def _clash(one: HostPort, other: HostPort) -> bool:
    return (
        one.protocol == other.protocol
        and one.port == other.port
        and (one.ip == other.ip or "0.0.0.0" in {one.ip, other.ip})
    )


def node_ports(pod: PodView, world: ClusterView) -> NodeCheck | None:
    """Check host ports. They conflict with the same protocol and port, and the same
    address or a wildcard address."""
    if not pod.ports:
        return None

    def check(node: NodeView) -> list[str]:
        taken = (port for other in world.pods_on(node.name) for port in other.ports)
        clash = any(_clash(mine, theirs) for theirs in taken for mine in pod.ports)
        return ["node(s) didn't have free ports for the requested pod ports"] if clash else []

    return check


def node_resources_fit(pod: PodView, world: ClusterView) -> NodeCheck:
    """Check room for the pod and for all resources it requests. Other resources are ignored, so an
    overcommitted node still takes a pod without requests."""
    asked = {name: amount for name, amount in pod.requests.items() if amount > 0}

    def check(node: NodeView) -> list[str]:
        reasons = []
        if len(world.pods_on(node.name)) + 1 > node.allocatable.get("pods", 0):
            reasons.append("Too many pods")
        used = world.used(node.name)
        reasons += [
            f"Insufficient {name}"
            for name, amount in asked.items()
            if amount > node.allocatable.get(name, 0) - used[name]
        ]
        return reasons

    return check


def dynamic_resources(pod: PodView, _world: ClusterView) -> NodeCheck | None:
    """Reject all nodes for a pod with device claims, because these are not simulated."""
    if not pod.asks_devices:
        return None
    return lambda _node: ["cannot allocate all claims"]


MISMATCH = "node(s) didn't match pod topology spread constraints"
MISSING_LABEL = f"{MISMATCH} (missing required label)"


class _Counted(msgspec.Struct, frozen=True):
    constraint: Spread
    counts: dict[str, int]  # domain -> matching pods
    self_match: int

    def minimum(self) -> int:
        """Return the smallest count, or 0 while there are fewer domains than minDomains."""
        return min(self.counts.values()) if len(self.counts) >= self.constraint.min_domains else 0


def has_keys(constraints: Iterable[Spread], node: NodeView) -> bool:
    """Return whether a node has the labels of all these constraints."""
    return all(constraint.topology_key in node.labels for constraint in constraints)


def counts_node(pod: PodView, constraint: Spread, node: NodeView) -> bool:
    """Return whether the constraint's policies of inclusion count a node."""
    if constraint.honor_affinity and not matches_node_affinity(pod, node):
        return False
    return not (constraint.honor_taints and untolerated(node.taints, pod.tolerations))


def count_matching(pod: PodView, constraint: Spread, others: Iterable[PodView]) -> int:
    """Return how many of these pods a constraint of a pod counts."""
    if not constraint.selector:  # an absent or empty selector matches no pod
        return 0
    return sum(
        other.namespace == pod.namespace
        and not other.terminating
        and selects(constraint.selector, other.labels)
        for other in others
    )


def _count(pod: PodView, constraint: Spread, world: ClusterView) -> _Counted:
    counts: dict[str, int] = {}
    for node in world.nodes.values():
        if has_keys(pod.spread, node) and counts_node(pod, constraint, node):
            domain = node.labels[constraint.topology_key]
            counts[domain] = counts.get(domain, 0) + count_matching(
                pod, constraint, world.pods_on(node.name)
            )
    return _Counted(constraint, counts, int(selects(constraint.selector, pod.labels)))


def topology_spread(pod: PodView, world: ClusterView) -> NodeCheck | None:
    """Check that skew = pods in the node's domain + this one - the minimum over
    domains is at most maxSkew."""
    if not pod.spread:
        return None
    counted = [
        (c, c.minimum()) for c in (_count(pod, constraint, world) for constraint in pod.spread)
    ]

    def check(node: NodeView) -> list[str]:
        for each, minimum in counted:
            domain = node.labels.get(each.constraint.topology_key)
            if domain is None:
                return [MISSING_LABEL]
            if each.counts.get(domain, 0) + each.self_match - minimum > each.constraint.max_skew:
                return [MISMATCH]
        return []

    return check


NO_AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"

Places = Counter[tuple[str, str]]  # (topology key, value) -> matching pods there


def term_selects(term: PodTerm, pod: PodView, world: ClusterView) -> bool:
    """Return whether a term is about a pod."""
    in_namespace = pod.namespace in term.namespaces or selects(
        term.namespace_selector, world.namespace_labels(pod.namespace)
    )
    return in_namespace and selects(term.selector, pod.labels)


def _all_select(terms: Iterable[PodTerm], pod: PodView, world: ClusterView) -> bool:
    return all(term_selects(term, pod, world) for term in terms)


def _attracting(pod: PodView, world: ClusterView) -> Places:
    """Return domains with a pod that matches all of the pod's affinity terms."""
    places: Places = Counter()
    if pod.affinity:
        for node, other in world.placed():
            if _all_select(pod.affinity, other, world):
                places.update(
                    (term.topology_key, node.labels[term.topology_key])
                    for term in pod.affinity
                    if term.topology_key in node.labels
                )
    return places


def _repelling(pod: PodView, world: ClusterView) -> Places:
    """Return domains with a pod that one of the pod's anti-affinity terms matches."""
    places: Places = Counter()
    if pod.anti_affinity:
        for node, other in world.placed():
            places.update(
                (term.topology_key, node.labels[term.topology_key])
                for term in pod.anti_affinity
                if term.topology_key in node.labels and term_selects(term, other, world)
            )
    return places


def _forbidden(pod: PodView, world: ClusterView) -> Places:
    return Counter(
        (term.topology_key, node.labels[term.topology_key])
        for node, other in world.placed()
        for term in other.anti_affinity
        if term.topology_key in node.labels and term_selects(term, pod, world)
    )


def _holds_any(node: NodeView, places: Places) -> bool:
    return any(node.labels.get(key) == value for key, value in places)


def inter_pod_affinity(pod: PodView, world: ClusterView) -> NodeCheck | None:
    """Check affinity, then anti-affinity, then the anti-affinity of existing pods; the
    first failure is the reason.

    A pod with affinity to itself may go to any node with the topology keys while
    no matching pod is placed.
    """
    attracting, repelling, forbidden = (
        _attracting(pod, world),
        _repelling(pod, world),
        _forbidden(pod, world),
    )
    if not (pod.affinity or repelling or forbidden):
        return None
    first_of_its_kind = not attracting and _all_select(pod.affinity, pod, world)

    def attracted(node: NodeView) -> bool:
        keys = {term.topology_key for term in pod.affinity}
        if not all(key in node.labels for key in keys):
            return False
        return first_of_its_kind or all((key, node.labels[key]) in attracting for key in keys)

    def check(node: NodeView) -> list[str]:
        if pod.affinity and not attracted(node):
            return [NO_AFFINITY]
        if _holds_any(node, repelling):
            return [ANTI_AFFINITY]
        return [EXISTING_ANTI_AFFINITY] if _holds_any(node, forbidden) else []

    return check


Json = Mapping[str, Any]

UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
NODE_CONFLICT = "node(s) had volume node affinity conflict"
NO_ZONE = "node(s) had no available volume zone"
EXCLUSIVE = (
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
)
DISK_IN_USE = "node(s) had no available disk"
TOO_MANY_VOLUMES = "node(s) exceed max volume count"

# Each topology label with its older or newer name.
_TOPOLOGY = {
    "topology.kubernetes.io/zone": "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region": "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
# In-tree disks that were migrated to CSI drivers: key of the source, field that names the disk,
# driver, old provisioner.
_MIGRATED = (
    ("awsElasticBlockStore", "volumeID", "ebs.csi.aws.com", "kubernetes.io/aws-ebs"),
    ("gcePersistentDisk", "pdName", "pd.csi.storage.gke.io", "kubernetes.io/gce-pd"),
    ("azureDisk", "diskURI", "disk.csi.azure.com", "kubernetes.io/azure-disk"),
    ("cinder", "volumeID", "cinder.csi.openstack.org", "kubernetes.io/cinder"),
    ("vsphereVolume", "volumePath", "csi.vsphere.vmware.com", "kubernetes.io/vsphere-volume"),
    ("portworxVolume", "volumeID", "pxd.portworx.com", "kubernetes.io/portworx-volume"),
)


def _claims(pod: PodView, world: ClusterView) -> Iterator[Json]:
    for name in pod.claims:
        claim = world.claims.get((pod.namespace, name))
        if claim is not None:
            yield claim


def _by_name(pod: PodView, world: ClusterView) -> Iterator[Json]:
    """Return the claims that the pod names. Some rules exclude those of
    generic ephemeral volumes."""
    for volume in pod.raw["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            claim = world.claims.get((pod.namespace, volume["persistentVolumeClaim"]["claimName"]))
            if claim is not None:
                yield claim


def _volume_of(claim: Json, world: ClusterView) -> Json | None:
    return world.volumes.get(claim["spec"].get("volumeName") or "")


def _nowhere(pod: PodView, world: ClusterView) -> Nowhere | None:
    """Return whether a claim fits no node: it is missing, being deleted, bound to a missing volume,
    or unbound without waiting for its first consumer."""
    for name in pod.claims:
        claim = world.claims.get((pod.namespace, name))
        if claim is None:
            return Nowhere(f'persistentvolumeclaim "{name}" not found')
        if claim["metadata"].get("deletionTimestamp"):
            return Nowhere(f'persistentvolumeclaim "{name}" is being deleted')
    for claim in _claims(pod, world):
        if not is_bound(claim) and (claim["spec"].get("volumeName") or not waits(claim, world)):
            return Nowhere(UNBOUND_IMMEDIATE)
    for claim in _claims(pod, world):
        if is_bound(claim) and _volume_of(claim, world) is None:
            return Nowhere(f'persistentvolume "{claim["spec"]["volumeName"]}" not found')
    return None


def volume_binding(pod: PodView, world: ClusterView) -> NodeCheck | Nowhere | None:
    """Check that bound volumes match the node and that waiting claims find or get a volume
    there."""
    nowhere = _nowhere(pod, world)
    if nowhere is not None or not pod.claims:
        return nowhere
    bound = [
        volume
        for claim in _claims(pod, world)
        if is_bound(claim)
        for volume in (_volume_of(claim, world),)
        if volume is not None
    ]
    waiting = [claim for claim in _claims(pod, world) if not is_bound(claim)]

    def check(node: NodeView) -> list[str]:
        reasons = [] if all(matches_volume(volume, node) for volume in bound) else [NODE_CONFLICT]
        problem = bind(waiting, node, world)
        return [*reasons, problem] if problem else reasons

    return check


def volume_zone(pod: PodView, world: ClusterView) -> NodeCheck | None:
    """Check a bound volume's zone and region labels (a `__`-joined set) against the node's. A node
    without such labels fits."""
    bound = [
        volume
        for claim in _by_name(pod, world)
        if is_bound(claim)
        for volume in (_volume_of(claim, world),)
        if volume is not None
    ]
    labelled = [
        (key, [part.strip() for part in value.split("__")])
        for volume in bound
        for key, value in (volume["metadata"].get("labels") or {}).items()
        if key in _TOPOLOGY
    ]
    # a malformed label is ignored
    wanted = [(key, values) for key, values in labelled if "" not in values]
    if not wanted:
        return None

    def check(node: NodeView) -> list[str]:
        if not any(key in node.labels for key in _TOPOLOGY):
            return []
        ok = all(
            node.labels.get(key, node.labels.get(_TOPOLOGY[key])) in values
            for key, values in wanted
        )
        return [] if ok else [NO_ZONE]

    return check


def volume_restrictions(pod: PodView, world: ClusterView) -> NodeCheck | None:
    """Check for a disk that a pod on the node uses in conflict, and for a ReadWriteOncePod
    claim that a placed pod uses."""
    exclusive = {
        c["metadata"]["name"]
        for c in _by_name(pod, world)
        if "ReadWriteOncePod" in (c["spec"].get("accessModes") or ())
    }
    in_use = bool(exclusive) and any(
        other.namespace == pod.namespace
        and exclusive & {c["metadata"]["name"] for c in _by_name(other, world)}
        for _, other in world.placed()
    )
    mine = [
        volume for volume in pod.raw["spec"].get("volumes") or () if _SAME.keys() & volume.keys()
    ]
    if not mine and not in_use:
        return None

    def check(node: NodeView) -> list[str]:
        for other in world.pods_on(node.name) if mine else ():
            if any(
                _conflict(one, held)
                for one in mine
                for held in other.raw["spec"].get("volumes") or ()
            ):
                return [DISK_IN_USE]
        return [EXCLUSIVE] if in_use else []

    return check


def _same_image(one: Json, other: Json) -> bool:
    shared = set(one["monitors"]) & set(other["monitors"])
    return bool(shared) and (one.get("pool", "rbd"), one["image"]) == (
        other.get("pool", "rbd"),
        other["image"],
    )


# Disks that pods name directly, and when two of a kind are the same.
_SAME: Mapping[str, Callable[[Json, Json], bool]] = {
    "awsElasticBlockStore": lambda one, other: one["volumeID"] == other["volumeID"],
    "gcePersistentDisk": lambda one, other: one["pdName"] == other["pdName"],
    "iscsi": lambda one, other: one["iqn"] == other["iqn"],
    "rbd": _same_image,
}


def _conflict(one: Json, other: Json) -> bool:
    """Return whether two mounts of one disk on a node conflict. Only read-only mounts may share a
    disk, and on EBS not even these."""
    for kind, same in _SAME.items():
        mine, held = one.get(kind), other.get(kind)
        readers = (
            kind != "awsElasticBlockStore"
            and mine
            and held
            and mine.get("readOnly")
            and held.get("readOnly")
        )
        if mine and held and same(mine, held) and not readers:
            return True
    return False


class _Attached(msgspec.Struct, frozen=True):
    driver: str
    handle: str


def _source(spec: Json) -> _Attached | None:
    """Return the disk of a source in a volume or a PersistentVolume."""
    for kind, field, driver, _ in _MIGRATED:
        if spec.get(kind):
            return _Attached(driver, spec[kind].get(field, ""))
    csi = spec.get("csi")
    return _Attached(csi["driver"], csi.get("volumeHandle", "")) if csi else None


def _attachments(pod: PodView, world: ClusterView) -> set[_Attached]:
    """Return CSI volumes of a pod, bound or to be provisioned. Inline CSI volumes do not count."""
    found = {
        _source(volume) for volume in pod.raw["spec"].get("volumes") or () if "csi" not in volume
    }
    for claim in _claims(pod, world):
        volume = _volume_of(claim, world)
        if volume is not None:
            found.add(_source(volume["spec"]))
        else:
            provisioner = (class_of(claim, world) or {}).get("provisioner", "")
            driver = next(
                (driver for *_, driver, old in _MIGRATED if old == provisioner), provisioner
            )
            found.add(_Attached(driver, f"{pod.namespace}/{claim['metadata']['name']}"))
    return {each for each in found if each is not None and each.driver and each.handle}


def node_volume_limits(pod: PodView, world: ClusterView) -> NodeCheck | None:
    """Check per CSI driver that the node's volumes and the pod's new ones are within CSINode's
    limit. Without a known limit the node fits."""
    mine = _attachments(pod, world)
    if not mine:
        return None

    def check(node: NodeView) -> list[str]:
        drivers = ((world.csi_nodes.get(node.name) or {}).get("spec") or {}).get("drivers") or ()
        limits = {d["name"]: (d.get("allocatable") or {}).get("count") for d in drivers}
        there = set().union(*(_attachments(other, world) for other in world.pods_on(node.name)))
        for driver in {volume.driver for volume in mine - there}:
            limit = limits.get(driver)
            if (
                limit is not None
                and sum(volume.driver == driver for volume in mine | there) > limit
            ):
                return [TOO_MANY_VOLUMES]
        return []

    return check


PREDICATES: tuple[tuple[str, Predicate], ...] = (
    ("NodeUnschedulable", node_unschedulable),
    ("NodeName", node_name),
    ("TaintToleration", taint_toleration),
    ("NodeAffinity", node_affinity),
    ("NodePorts", node_ports),
    ("NodeResourcesFit", node_resources_fit),
    ("VolumeRestrictions", volume_restrictions),
    ("NodeVolumeLimits", node_volume_limits),
    ("VolumeBinding", volume_binding),
    ("VolumeZone", volume_zone),
    ("PodTopologySpread", topology_spread),
    ("InterPodAffinity", inter_pod_affinity),
    ("DynamicResources", dynamic_resources),
)

Verdict = Callable[[NodeView], list[str]]


def judge(pod: PodView, world: ClusterView) -> Verdict | Nowhere:
    """Return a function from a node to the reasons against it, empty if the pod fits; or
    Nowhere if it fits no node.

    Counts over the cluster view are taken once, here, so call the function before
    anything else is placed.
    """
    checks: list[NodeCheck] = []
    for _, predicate in PREDICATES:
        check = predicate(pod, world)
        if isinstance(check, Nowhere):
            return check
        if check is not None:
            checks.append(check)

    def verdict(node: NodeView) -> list[str]:
        return next((reasons for reasons in (check(node) for check in checks) if reasons), [])

    return verdict


def fits(node: Json, pod: Json, world: ClusterView) -> list[str]:
    """Return why a pod does not fit a node of the cluster view, in the scheduler's
    words; empty if it fits.

    node, pod: core/v1 objects. The view must contain the node (its used resources and domains are
    looked up by name) and must not contain the pod.
    """
    verdict = judge(read_pod(pod), world)
    return [verdict.reason] if isinstance(verdict, Nowhere) else verdict(read_node(node))
