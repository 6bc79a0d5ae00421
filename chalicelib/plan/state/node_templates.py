"""Builds node templates: the expected new node of each group.

The first available source of a group is used: a real node that has been ready for over a minute;
the template learned from one earlier (memory), until it expires; the provider's own; a real node
that is not ready. A node that lacks an announced device, or has fewer than a sibling, is no source:
a new node has the devices of its type, each of them healthy. The result is a node with its own
name, without temporary taints, with the pods that run on it from the start and with its drivers'
attach limits. A pod of the copied node is among them only if it verifiably runs on every such node,
so that no tenant can reserve a part of all new nodes. Labels that its group does not guarantee
(GroupOptions.unpromised_labels) count for its DaemonSets, because the kubelet will set them, and
are removed from the result. See docs/reference/scale-up.md "Node templates".

A learned template stores the node alone, not its pods, because class indices are not valid in
another pass. Its DaemonSets are those that should run on it, as for a provider's template.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import LearntTemplate, Part, StatedTemplate, Undelivered
from chalicelib.model.node import HOSTNAME_LABEL, OWN_TAINTS, TO_BE_DELETED, Node
from chalicelib.model.pod import Pod, PodClass, Toleration
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY, Amounts, is_device
from chalicelib.model.snapshot import DaemonSet, Snapshot
from chalicelib.plan.predicates import matches_node, untolerated
from chalicelib.plan.state.interruptions import INTERRUPTION_TAINTS
from chalicelib.plan.state.local_storage import is_same_type
from chalicelib.plan.state.managed_groups import declaration_of
from chalicelib.plan.state.node_labels import NodeLabels, is_named_after_nodes
from chalicelib.plan.state.pool_evidence import PoolEvidence, evidence_of_pools
from chalicelib.plan.state.readiness import (
    STATUS_PREFIX,
    announces_device,
    is_startup_taint,
    is_young,
    lacks_device,
    works,
)
from chalicelib.plan.state.vendor_templates import (
    UNCHANGED,
    applied,
    change_since,
    newer_differences,
    next_statement,
    statement,
)
from chalicelib.policy.settings.cluster_options import Options

TEMPLATE_LABEL = "cluster-autoscaler.kubernetes.io/template-node"
_SETTLED = 60.0  # seconds that a node must have been ready, strictly, to serve as a template
COPY = "node"
"""The source of a template that is the copy of a settled node."""
PROVIDER = "provider"
"""The source of a template that is the vendor's own."""
# sources that are nodes of the cluster, with pods on them
_COPIES = frozenset({COPY, "unready node"})
_REFRESHES = 10  # an unchanged template is renewed this many times before it would expire
_UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
_ADMINISTRATORS = "kube-system"  # the namespace in which no tenant creates pods
PASSING_TAINTS = frozenset({
    "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable", "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure", "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable", _UNINITIALIZED,
    "node.cloudprovider.kubernetes.io/shutdown", "cloud.google.com/impending-node-termination",
    "NodeWithImpairedVolumes", *OWN_TAINTS,
    "node.cluster.x-k8s.io/outdated-revision",  # set while a rollout replaces this node
    *INTERRUPTION_TAINTS,
})  # fmt: skip
BETA_LABELS = (
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
    ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"),
)
# The DaemonSet controller adds these to every DaemonSet pod.
_DAEMON_TOLERATIONS = (
    *(
        Toleration(f"node.kubernetes.io/{key}", "Exists", "", "NoExecute")
        for key in ("not-ready", "unreachable")
    ),
    *(
        Toleration(f"node.kubernetes.io/{key}", "Exists", "", "NoSchedule")
        for key in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    ),
)
_HOST_NETWORK = Toleration("node.kubernetes.io/network-unavailable", "Exists", "", "NoSchedule")
_EVICTION_MEMORY = 100 * 2**20  # the kubelet's hard eviction threshold: memory.available<100Mi


class Template(msgspec.Struct, frozen=True):
    """An expected new node. daemons: the classes of the pods on every such node from the start, one
    entry per pod. source: where it was learned. volume_limits: CSI driver -> most volumes; a driver
    without a limit is missing.
    model: the settled node that was copied, None for another source. in_zones: zone -> the node
    that comes there, of a group in several zones (plan/state/zones.py). outdated: in what its
    vendor's template has changed since the model was made."""

    node: Node
    daemons: tuple[int, ...]
    source: str
    volume_limits: dict[str, int] = {}
    model: Node | None = None
    in_zones: dict[str, Node] = {}
    outdated: tuple[str, ...] = ()


class Newcomers(msgspec.Struct, frozen=True):
    """What templates need of new nodes. young: names of nodes that may still be getting what they
    lack. completed: the unfinished ones of them as they will be. undelivered: group -> what its new
    nodes turned out not to have."""

    young: frozenset[str] = frozenset()
    completed: Mapping[str, Node] = {}
    undelivered: Mapping[str, Mapping[str, Undelivered]] = {}


def templates(
    snapshot: Snapshot,
    members: Mapping[str, Sequence[Node]],
    learnt: Mapping[str, LearntTemplate],
    options: Options,
    now: float,
    pods_on: Callable[[str], Sequence[Pod]],
    lacking: Collection[str],
    node_labels: NodeLabels | None = None,
    newcomers: Newcomers | None = None,
) -> dict[str, Template]:
    """Return the template of every group that has one. members: group id -> its nodes; learnt:
    Memory.templates; pods_on: a node's pods, called for the nodes that are copied; lacking: nodes
    that lack an announced device; node_labels: of the snapshot, where they are known already;
    newcomers: None if there are none."""
    node_labels = node_labels or NodeLabels.of(snapshot)
    limits = {csi_node.name: csi_node.limits for csi_node in snapshot.storage.csi_nodes}
    daemonsets = {daemon.uid: daemon for daemon in snapshot.daemonsets}
    newcomers = newcomers or Newcomers()
    evidence: Mapping[str, PoolEvidence] | None = None
    result: dict[str, Template] = {}
    for group in snapshot.groups:
        nodes = members.get(group.id, ())
        row = learnt.get(group.id)
        stated = stated_template(group, options)
        current = _current(row, stated, node_labels, all_taints=group.states_taints)
        model, source = _model(group, nodes, row, current, options, now, lacking, newcomers)
        if model is None:
            continue
        is_real = source in _COPIES or newcomers.completed.get(model.name) is model
        if source == PROVIDER and group.managed is not None and not is_real:
            if evidence is None:
                evidence = evidence_of_pools(snapshot.groups, members, learnt)
            model = evidence.get(declaration_of(group), PoolEvidence()).applied(model)
        if source != COPY:
            model = _with_csi_labels(model, source, row, node_labels)
        own = node_labels.own(model) if is_real else _own_keys(model, source, row, node_labels)
        clean = sanitised(model, f"template-node-for-{group.id}", options, own)
        parts = newcomers.undelivered.get(group.id)
        if parts:
            clean = _without_parts(clean, parts)
        if source in _COPIES:
            others = partial(_settled_nodes, nodes, now, options)
            daemons = _pods_of_copies(model, others, pods_on, clean, snapshot, options, daemonsets)
            reporting = [model.name]
        else:
            daemons = daemons_of(clean, snapshot.daemonsets, snapshot.classes)
            reporting = sorted(node.name for node in nodes)
        volumes = _volume_limits(group, reporting, limits)
        unpromised = group.options.unpromised_labels
        if unpromised:
            labels = {key: value for key, value in clean.labels.items() if key not in unpromised}
            clean = msgspec.structs.replace(clean, labels=labels)
        copied = model if source == COPY else None
        outdated = newer_differences(copied, row, stated) if copied is not None else ()
        result[group.id] = Template(clean, daemons, source, volumes, copied, outdated=outdated)
    return result


def _volume_limits(
    group: NodeGroup, reporting: Iterable[str], limits: Mapping[str, Mapping[str, int]]
) -> dict[str, int]:
    """Return the attach limits of a new node: those of the first node that reports any."""
    for name in reporting:
        if limits.get(name):
            return dict(limits[name])
    # No node of the group reports its limits: use the provider's values for a new
    # one, where 0 means no limit.
    return {driver: limit for driver, limit in group.template_volumes.items() if limit > 0}


def stated_template(group: NodeGroup, options: Options) -> StatedTemplate | None:
    """Return what the vendor's template of a group says, None if it has none."""
    if group.template is None:
        return None
    return statement(_without_identity(group.template, "", options))


def _current(
    learnt: LearntTemplate | None,
    stated: StatedTemplate | None,
    node_labels: NodeLabels,
    *,
    all_taints: bool,
) -> Node | None:
    """Return the learnt node as it is now, by what its vendor says; None if it is another
    machine now. stated: by the vendor's template, None without one; all_taints: it names
    all taints of a new node."""
    if learnt is None:
        return None
    if stated is None:
        return learnt.node
    difference = change_since(learnt, stated, all_taints=all_taints)
    if difference == UNCHANGED:
        return learnt.node
    if difference.machine:
        return None
    return applied(learnt.node, difference, node_labels.csi.zone_keys())


def _model(
    group: NodeGroup,
    nodes: Sequence[Node],
    learnt: LearntTemplate | None,
    current_node: Node | None,
    options: Options,
    now: float,
    lacking: Collection[str],
    newcomers: Newcomers,
) -> tuple[Node | None, str]:
    """Return the node that is copied, and its source; None: there is none. current_node: the learnt
    node as it is now. An unfinished node is no source, but where no finished node is one, it shows
    what else a new node is, rather than what was learnt or its vendor."""
    young, completed = newcomers.young, newcomers.completed
    equipped = _fully_equipped(node for node in nodes if node.name not in lacking)
    ordered = sorted(equipped, key=lambda node: node.name in young) if young else equipped
    finished = (node for node in ordered if node.name not in completed)
    real = next((node for node in finished if settled(node, now, options)), None)
    if real is not None:
        return real, COPY
    others = (node for node in ordered if node.name in completed)
    unfinished = next(
        (completed[node.name] for node in others if settled(node, now, options)), None
    )
    announced = group.template is not None and announces_device(group.template)
    if (
        learnt is not None
        and not group.template_devices
        and lacks_device(learnt.node, announced=announced)
    ):
        learnt = None
    is_fresh = learnt is not None and now <= learnt.learnt_at + options.node_info_cache_expire_time
    if is_fresh and current_node is not None:
        return unfinished or current_node, "learnt"
    if group.template is not None:
        alike = equipped if learnt is None else [learnt.node, *equipped]
        template = with_allocatable(group.template, alike)
        working = (node for node in nodes if works(node, options))
        joined = [node for node in working if node.taint(_UNINITIALIZED) is None]
        labels = {**_beta_labels(template, joined), **template.labels}
        # The labels that a node of the group has joined without are removed: the vendor's promise
        # was wrong, and another node would not have them either. A young node may get more.
        grown_up = [node for node in joined if node.name not in young]
        labels = {
            key: text
            for key, text in labels.items()
            if all(key in node.labels for node in grown_up)
        }
        return unfinished or msgspec.structs.replace(template, labels=labels), PROVIDER
    unready = [node for node in equipped if node.allocatable]
    # A leaving node comes last: it is a worse template than any other node, but better than none.
    best = min(unready, key=lambda node: node.taint(TO_BE_DELETED) is not None, default=None)
    return best, "unready node"


def _beta_labels(template_node: Node, joined: Sequence[Node]) -> dict[str, str]:
    """Return the old names of a vendor's labels: some pods still use them. Cloud
    providers set both at once, if at all; where a node of the group has the new name
    alone, no new node gets the old one."""
    labels = {}
    for stable, beta in BETA_LABELS:
        if stable not in template_node.labels:
            continue
        if not any(stable in node.labels and beta not in node.labels for node in joined):
            labels[beta] = template_node.labels[stable]
    return labels


def _without_parts(template_node: Node, parts: Mapping[str, Undelivered]) -> Node:
    """Return a template as new nodes turned out to be. parts:
    GroupMemory.undelivered, those that rest now."""
    labels = {
        key: value for key, value in template_node.labels.items() if Part.LABEL.of(key) not in parts
    }
    amounts = {
        name: amount
        for name, amount in template_node.allocatable.items()
        if Part.RESOURCE.of(name) not in parts
    }
    added = [part.taint for part in parts.values() if part.taint is not None]
    taints = tuple(dict.fromkeys((*template_node.taints, *added)))
    return msgspec.structs.replace(template_node, labels=labels, allocatable=amounts, taints=taints)


def settled_node(nodes: Iterable[Node], now: float, options: Options) -> Node | None:
    """Return the node of a group that its template would be copied from, None if there is none."""
    equipped = _fully_equipped(node for node in nodes if not lacks_device(node))
    usable = (node for node in equipped if settled(node, now, options))
    youth = options.max_node_startup_time
    return min(usable, key=lambda node: (is_young(node, youth, now), node.name), default=None)


def _fully_equipped(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes with as many devices as any other of their type and size, by name. Devices
    of another kind do not compare: a driver may be set to offer shares."""
    ordered = sorted(nodes, key=attrgetter("name"))
    devices = [_devices(node) for node in ordered]
    if not any(devices):
        return ordered
    kinds = [
        (node.labels.get("node.kubernetes.io/instance-type", ""), node.capacity.get(CPU, 0))
        for node in ordered
    ]
    offers: dict[tuple[str, int], list[Amounts]] = {}
    for kind, own in zip(kinds, devices, strict=True):
        different = offers.setdefault(kind, [])
        if own not in different:
            different.append(own)

    def is_beaten(own: Amounts, kind: tuple[str, int]) -> bool:
        others = [other for other in offers[kind] if other != own]
        return any(
            all(other.get(name, 0) >= amount for name, amount in own.items()) for other in others
        )

    candidates = zip(ordered, kinds, devices, strict=True)
    return [node for node, kind, own in candidates if not is_beaten(own, kind)]


def _devices(node: Node) -> dict[str, int]:
    """Return the devices of a node, broken ones included: a kubelet reserves none for itself, and
    those of a new node work."""
    devices = {}
    for name, amount in node.allocatable.items():
        if "/" not in name:
            continue
        capacity = node.capacity.get(name, 0)
        if (amount or capacity) and is_device(name):
            devices[name] = max(amount, capacity)
    return devices


def settled(node: Node, now: float, options: Options) -> bool:
    """Return whether a real node that lacks no device may serve as the template of its group: ready
    for over a minute, schedulable, not leaving."""
    ready = node.condition("Ready")
    if ready is None or ready.changed + _SETTLED >= now:
        return False
    if node.unschedulable or not works(node, options):
        return False
    return node.taint(TO_BE_DELETED) is None


def learn(
    model_node: Node | None,
    known: LearntTemplate | None,
    now: float,
    options: Options,
    node_labels: NodeLabels | None = None,
    stated: StatedTemplate | None = None,
) -> LearntTemplate | None:
    """Return the template to remember of a group: the settled node that was copied, otherwise the
    known one. node_labels: of the cluster, None: only its host name is of the one node. stated: by
    the vendor's template now.

    An expired one is kept: it is not used as a template any more, but still shows what the
    group's kubelets reserve. An unchanged template is renewed only occasionally, because
    every renewal is a write.
    """
    if model_node is None:
        return known
    own_labels: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    if node_labels is not None:
        own = node_labels.own(model_node)
        own_labels = tuple(sorted(own - {HOSTNAME_LABEL}))
        lacking = tuple(sorted(node_labels.csi.missing(model_node.labels)))
    own_keys = {HOSTNAME_LABEL, *own_labels}
    labels = {key: value for key, value in model_node.labels.items() if key not in own_keys}
    learnt = msgspec.structs.replace(_without_identity(model_node, "", options), labels=labels)
    before, differs_since = next_statement(model_node, known, stated, now)
    capacities = known.capacities if known is not None and is_same_type(known.node, learnt) else {}
    row = LearntTemplate(learnt, now, own_labels, lacking, before, differs_since, capacities)
    if known is None:
        return row
    renewal = known.learnt_at + options.node_info_cache_expire_time / _REFRESHES
    if now >= renewal:
        return row
    same = msgspec.structs.replace(known, learnt_at=now, own_labels=known.own_labels or ())
    return known if same == row else row


def _with_csi_labels(
    model_node: Node, source: str, learnt: LearntTemplate | None, node_labels: NodeLabels
) -> Node:
    """Return a template's model with the labels that CSI drivers will set on the new node: those
    that the model of a learnt template did not get either are left out."""
    lacking = learnt.lacking_labels if source == "learnt" and learnt is not None else ()
    missing = node_labels.csi.missing(model_node.labels)
    labels = {key: value for key, value in missing.items() if key not in lacking}
    if not labels:
        return model_node
    return msgspec.structs.replace(model_node, labels={**model_node.labels, **labels})


def _own_keys(
    model_node: Node, source: str, learnt: LearntTemplate | None, node_labels: NodeLabels
) -> frozenset[str]:
    """Return the keys of the labels of one node of a model that is no real node and has no real
    name. In a row of an earlier release their values are still among the labels: the cluster's
    nodes or the key tell which they are."""
    if source != "learnt" or learnt is None:
        return node_labels.per_node_keys & model_node.labels.keys()
    own = {key for key in model_node.labels if node_labels.is_of_nodes(key)}
    if learnt.own_labels is not None:
        own.update(learnt.own_labels)
    else:
        own.update(key for key in model_node.labels if is_named_after_nodes(key))
    return frozenset(own)


def sanitised(node: Node, name: str, options: Options, own: Collection[str] = ()) -> Node:
    """Return a copy under another name, without taints that belong to one real node. own: the keys
    of its labels of one node, which get the name as their value."""
    labels = {**node.labels, **dict.fromkeys(own, name)}
    labels[HOSTNAME_LABEL] = name
    labels[TEMPLATE_LABEL] = "true"
    return msgspec.structs.replace(
        _without_identity(node, name, options),
        labels=labels,
        allocatable={**node.allocatable, **_devices(node)},
        unschedulable=node.unschedulable and not options.scale_from_unschedulable,
    )


def _without_identity(node: Node, name: str, options: Options) -> Node:
    """Return a copy under another name, without what belongs to one real node, and
    without temporary taints."""
    taints = tuple(taint for taint in node.taints if not _is_temporary(taint.key, options))
    return msgspec.structs.replace(
        node,
        name=name,
        uid="",
        provider_id="",
        annotations={},
        conditions=(),
        created=0.0,
        resource_version="",
        identities=(),
        taints=taints,
    )


def _is_temporary(taint_key: str, options: Options) -> bool:
    if taint_key in PASSING_TAINTS or taint_key in options.status_taint:
        return True
    return taint_key.startswith(STATUS_PREFIX) or is_startup_taint(taint_key, options)


def with_allocatable(node: Node, alike: Iterable[Node] = ()) -> Node:
    """Compute the allocatable of a node of which only the capacity is known.

    alike: nodes of the group, real or learned, most reliable first. The first with as many cores
    shows per resource what its kubelet reserves; for the rest the kubelet's defaults apply: 100Mi
    of memory and every huge page, a tenth of the ephemeral storage, nothing else. A node with an
    allocatable is not changed.
    """
    capacity = node.capacity
    if node.allocatable or not capacity:
        return node
    reserved = _default_reservation(capacity)
    cores = capacity.get(CPU)
    reporting = (other for other in alike if other.allocatable)
    like = next((other for other in reporting if other.capacity.get(CPU) == cores), None)
    if like is not None:
        for name, amount in like.capacity.items():
            if name in like.allocatable and not is_device(name):
                reserved[name] = max(0, amount - like.allocatable[name])
    allocatable = {
        name: max(0, amount - reserved.get(name, 0)) for name, amount in capacity.items()
    }
    return msgspec.structs.replace(node, allocatable=allocatable)


def _default_reservation(capacity: Mapping[str, int]) -> dict[str, int]:
    """Return what an unknown kubelet reserves: kubeadm and the kubelet reserve nothing for
    themselves, but the hard eviction thresholds."""
    reserved = {}
    if MEMORY in capacity:
        # A huge page is memory that the kubelet offers only under its own resource name.
        huge_pages = sum(capacity[name] for name in capacity if name.startswith("hugepages-"))
        reserved[MEMORY] = _EVICTION_MEMORY + huge_pages
    if EPHEMERAL in capacity:
        reserved[EPHEMERAL] = -(-capacity[EPHEMERAL] // 10)  # nodefs.available<10%
    return reserved


def daemons_of(
    node: Node, daemonsets: Iterable[DaemonSet], classes: Sequence[PodClass]
) -> tuple[int, ...]:
    """Return the DaemonSets that would run on a node, by name. Room is not checked: one that is too
    big for the node takes all of it."""

    def runs(pod: PodClass) -> bool:
        if not matches_node(pod, node.name, node.labels):
            return False
        tolerations = (*pod.tolerations, *_DAEMON_TOLERATIONS)
        if pod.host_network:
            tolerations = (*tolerations, _HOST_NETWORK)
        return untolerated(tolerations, node.taints) is None

    ordered = sorted(daemonsets, key=lambda daemon: (daemon.namespace, daemon.name))
    return tuple(daemon.cls for daemon in ordered if runs(classes[daemon.cls]))


def _pods_of_copies(
    real_node: Node,
    settled_nodes: Callable[[], Sequence[Node]],
    pods_on: Callable[[str], Sequence[Pod]],
    clean_node: Node,
    snapshot: Snapshot,
    options: Options,
    daemonsets: Mapping[str, DaemonSet],
) -> tuple[int, ...]:
    """Return the classes of a real node's pods that also run on similar ones: mirror and DaemonSet
    pods. A pod of a DaemonSet counts as its DaemonSet describes it, where that runs on a new node.
    A DaemonSet that is missing there may have found no room, and then finds none on the next node
    either, unless it preempts other pods. settled_nodes:
    those of the group, asked for rarely; clean_node: the copy of the node; daemonsets: by UID."""
    classes = snapshot.classes
    # Of each DaemonSet the oldest pod: its controller deletes a second pod on one node.
    oldest: dict[str, Pod] = {}
    for pod in sorted(pods_on(real_node.name), key=lambda pod: (pod.created, pod.key)):
        pod_class = classes[pod.cls]
        if not _is_on_every_node(pod, pod_class, real_node, daemonsets):
            continue
        if pod_class.mirror and pod.namespace != _ADMINISTRATORS:
            alike = settled_nodes()
            if not _is_static_everywhere(pod, real_node, alike, pods_on, classes):
                continue
        owner = pod_class.owner
        key = owner.uid if owner is not None and owner.kind == "DaemonSet" else pod.key
        oldest.setdefault(key, pod)
    staying: list[int] = []
    for uid, pod in sorted(oldest.items(), key=lambda item: item[1].key):
        daemon = daemonsets.get(uid)
        staying += daemons_of(clean_node, [daemon], classes) if daemon is not None else [pod.cls]
    present: set[tuple[str, str]] = set()
    for cls in staying:
        owner = classes[cls].owner
        if owner is not None and owner.kind == "DaemonSet" and owner.built_in:
            present.add((classes[cls].namespace, owner.name))

    def preempts(pod: PodClass) -> bool:
        """Return whether its pods preempt others on a full node."""
        critical = pod.priority_class == "system-node-critical"
        return critical and pod.preemption_policy in {"", "PreemptLowerPriority"}

    missing = []
    for daemon in snapshot.daemonsets:
        if (daemon.namespace, daemon.name) in present:
            continue
        if options.force_ds or preempts(classes[daemon.cls]):
            missing.append(daemon)
    return (*staying, *daemons_of(clean_node, missing, classes))


def _settled_nodes(nodes: Iterable[Node], now: float, options: Options) -> list[Node]:
    return [node for node in nodes if settled(node, now, options)]


def _is_static_everywhere(
    pod: Pod,
    node: Node,
    settled_nodes: Sequence[Node],
    pods_on: Callable[[str], Sequence[Pod]],
    classes: Sequence[PodClass],
) -> bool:
    """Return whether a mirror pod outside kube-system belongs to a static pod that each node of the
    group has: at least two settled nodes have one of that name, less the node's."""
    name = pod.name.removesuffix(f"-{node.name}")

    def has_it(settled_node: Node) -> bool:
        key = (pod.namespace, f"{name}-{settled_node.name}")
        static = (one for one in pods_on(settled_node.name) if classes[one.cls].mirror)
        return any((one.namespace, one.name) == key for one in static)

    if name == pod.name or len(settled_nodes) <= 1:
        return False
    return all(map(has_it, settled_nodes))


def _is_on_every_node(
    pod: Pod, pod_class: PodClass, node: Node, daemonsets: Mapping[str, DaemonSet]
) -> bool:
    """Return whether a pod is one that every such node has. What it says of itself may be false: a
    user who may create pods in a namespace chooses their annotations and owners. The owner must
    therefore exist. In kube-system only administrators create pods, and they are believed:
    DaemonSets of other API groups are not read."""
    if pod.phase in {"Succeeded", "Failed"}:
        return False
    is_daemon = pod_class.is_daemonset and not pod.deleted
    if not pod_class.mirror and not is_daemon:
        return False
    if pod.namespace == _ADMINISTRATORS:
        return True
    owner = pod_class.owner
    if owner is None:
        return False
    if pod_class.mirror:
        return (owner.kind, owner.name, owner.uid) == ("Node", node.name, node.uid)
    daemon = daemonsets.get(owner.uid) if owner.kind == "DaemonSet" and owner.built_in else None
    return daemon is not None and (daemon.namespace, daemon.name) == (pod.namespace, owner.name)
