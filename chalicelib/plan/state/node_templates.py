"""Builds node templates: the expected new node of each group.

The first available source of a group is used: a real node that has been ready for over a minute; the template learned
from one earlier (memory), until it expires; the provider's own; a real node that is not ready. A node that lacks an
announced device, or has fewer than a sibling, is no source: a new node has the devices of its type, each of them
healthy. The result is a node with its own name, without temporary taints, with the pods that run on it from the start
and with its drivers' attach limits. A pod of the copied node is among them only if it verifiably runs on every such
node, so that no tenant can reserve a part of all new nodes. Labels that its group does not guarantee
(GroupOptions.unpromised_labels) count for its DaemonSets, because the kubelet will set them, and are removed from the
result. See docs/reference/scale-up.md "Node templates".

A learned template stores the node alone, not its pods, because class indices are not valid in another pass. Its
DaemonSets are those that should run on it, as for a provider's template.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import LearntTemplate
from chalicelib.model.node import DELETION_CANDIDATE, HOSTNAME_LABEL, TO_BE_DELETED, Node, Taint
from chalicelib.model.pod import Pod, PodClass, Toleration
from chalicelib.model.policy import Options
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY, Amounts, is_device
from chalicelib.model.snapshot import DaemonSet, Snapshot
from chalicelib.plan.predicates import matches_node, untolerated
from chalicelib.plan.state.readiness import STATUS_PREFIX, announces_device, is_startup_taint, lacks_device, works

TEMPLATE_LABEL = "cluster-autoscaler.kubernetes.io/template-node"
_SETTLED = 60.0  # seconds that a node must have been ready, strictly, to serve as a template
_COPIES = frozenset({"node", "unready node"})  # sources that are nodes of the cluster, with pods on them
_REFRESHES = 10  # an unchanged template is renewed this many times before it would expire
_UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
_ADMINISTRATORS = "kube-system"  # the namespace in which no tenant creates pods
_PASSING_TAINTS = frozenset(
    [
        f"node.kubernetes.io/{what}"
        for what in (
            "not-ready",
            "unreachable",
            "unschedulable",
            "memory-pressure",
            "disk-pressure",
            "pid-pressure",
            "network-unavailable",
        )
    ]
    + [
        _UNINITIALIZED,
        "node.cloudprovider.kubernetes.io/shutdown",
        "cloud.google.com/impending-node-termination",
        "NodeWithImpairedVolumes",
        TO_BE_DELETED,
        DELETION_CANDIDATE,
        "node.cluster.x-k8s.io/outdated-revision",
    ]  # set while a rollout replaces this node
)
_BETA_LABELS = (
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
    ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"),
)
# The DaemonSet controller adds these to every DaemonSet pod.
_DAEMON_TOLERATIONS = tuple(
    Toleration(f"node.kubernetes.io/{key}", "Exists", "", effect)
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
_HOST_NETWORK = Toleration("node.kubernetes.io/network-unavailable", "Exists", "", "NoSchedule")
# Default reservation of an unknown kubelet. kubeadm and the kubelet reserve nothing for themselves; the hard
# eviction thresholds are reserved: memory.available<100Mi, nodefs.available<10%.
_KEPT_BACK: tuple[tuple[str, Callable[[Mapping[str, int]], int]], ...] = (
    # A huge page is memory that the kubelet offers only under its own resource name.
    (MEMORY, lambda has: 100 * 2**20 + sum(has[name] for name in has if name.startswith("hugepages-"))),
    (EPHEMERAL, lambda has: -(-has[EPHEMERAL] // 10)),
)


class Template(msgspec.Struct, frozen=True):
    """An expected new node. daemons: the classes of the pods on every such node from the start, one entry per pod.
    source: where it was learned. volume_limits: CSI driver -> most volumes; a driver without a limit is missing.
    model: the settled node that was copied, None for another source."""

    node: Node
    daemons: tuple[int, ...]
    source: str
    volume_limits: dict[str, int] = {}
    model: Node | None = None


class _Cluster(msgspec.Struct, frozen=True):
    """Cluster data that is combined with a node to make a template. known: UID -> DaemonSet; pods: node name -> its
    pods, of the nodes that are copied; limits: node name -> the limits of its CSINode; promised: group id ->
    NodeGroup.template_volumes; unpromised: group id -> labels for which no new node of it is bought."""

    daemonsets: Sequence[DaemonSet]
    known: Mapping[str, DaemonSet]
    classes: Sequence[PodClass]
    options: Options
    pods: Mapping[str, Sequence[Pod]]
    limits: Mapping[str, Mapping[str, int]]
    promised: Mapping[str, Mapping[str, int]]
    unpromised: Mapping[str, tuple[str, ...]]


def templates(
    snapshot: Snapshot,
    members: Mapping[str, Sequence[Node]],
    learnt: Mapping[str, LearntTemplate],
    options: Options,
    now: float,
    pods_on: Callable[[str], Sequence[Pod]],
    lacking: Collection[str],
) -> dict[str, Template]:
    """Return the template of every group that has one. members: group id -> its nodes; learnt: Memory.templates;
    pods_on: a node's pods, called for the nodes that are copied; lacking: nodes that lack an announced device."""
    models = {
        group.id: found
        for group in snapshot.groups
        if (found := _model(group, members.get(group.id, ()), learnt.get(group.id), options, now, lacking))
    }
    pods = {node.name: pods_on(node.name) for node, source in models.values() if source in _COPIES}
    cluster = _Cluster(
        snapshot.daemonsets,
        {each.uid: each for each in snapshot.daemonsets},
        snapshot.classes,
        options,
        pods,
        {each.name: each.limits for each in snapshot.storage.csi_nodes},
        {each.id: each.template_volumes for each in snapshot.groups},
        {each.id: each.options.unpromised_labels for each in snapshot.groups},
    )
    return {
        group: _made(group, node, source, members.get(group, ()), cluster) for group, (node, source) in models.items()
    }


def _model(
    group: NodeGroup,
    nodes: Sequence[Node],
    learnt: LearntTemplate | None,
    options: Options,
    now: float,
    lacking: Collection[str],
) -> tuple[Node, str] | None:
    """Return the node that is copied, and its source."""
    ordered = _equipped(node for node in nodes if node.name not in lacking)
    real = _first_settled(ordered, now, options)
    if real is not None:
        return real, "node"
    announced = group.template is not None and announces_device(group.template)
    if learnt is not None and not group.template_devices and lacks_device(learnt.node, announced=announced):
        learnt = None
    if learnt is not None and now <= learnt.learnt_at + options.node_info_cache_expire_time:
        return learnt.node, "learnt"
    if group.template is not None:
        alike = [learnt.node, *ordered] if learnt is not None else ordered
        return _as_joined(_with_beta_labels(with_allocatable(group.template, alike)), nodes, options), "provider"
    # A leaving node comes last: it is a worse template than any other node, but better than none.
    bad = min(
        (node for node in ordered if node.allocatable),
        key=lambda node: node.taint(TO_BE_DELETED) is not None,
        default=None,
    )
    return (bad, "unready node") if bad is not None else None


def settled_node(nodes: Iterable[Node], now: float, options: Options) -> Node | None:
    """Return the node of a group that its template would be copied from, None if there is none."""
    return _first_settled(_equipped(node for node in nodes if not lacks_device(node)), now, options)


def _first_settled(ordered: Iterable[Node], now: float, options: Options) -> Node | None:
    return next((node for node in ordered if settled(node, now, options)), None)


def _equipped(complete: Iterable[Node]) -> list[Node]:
    """Return the nodes with as many devices as any other of their type and size, by name. Devices of another kind do
    not compare: a driver may be set to offer shares."""
    nodes = sorted(complete, key=_name)
    devices = [_devices(node) for node in nodes]
    if not any(devices):
        return nodes
    offers: dict[tuple[str, int], list[Amounts]] = {}
    for node, mine in zip(nodes, devices, strict=True):
        known = offers.setdefault(_kind(node), [])
        if mine not in known:
            known.append(mine)
    return [
        node
        for node, mine in zip(nodes, devices, strict=True)
        if not any(_exceeds(other, mine) for other in offers[_kind(node)])
    ]


def _devices(node: Node) -> dict[str, int]:
    """Return the devices of a node, broken ones included: a kubelet reserves none for itself, and those of a new node
    work."""
    return {
        name: max(amount, node.capacity.get(name, 0))
        for name, amount in node.allocatable.items()
        if "/" in name and (amount or node.capacity.get(name)) and is_device(name)
    }


def _exceeds(other_amounts: Amounts, own_amounts: Amounts) -> bool:
    return other_amounts != own_amounts and all(
        other_amounts.get(name, 0) >= amount for name, amount in own_amounts.items()
    )


def _kind(node: Node) -> tuple[str, int]:
    return node.labels.get("node.kubernetes.io/instance-type", ""), node.capacity.get(CPU, 0)


def _made(group: str, node: Node, source: str, nodes: Sequence[Node], cluster: _Cluster) -> Template:
    clean = sanitised(node, f"template-node-for-{group}", cluster.options)
    if source in _COPIES:
        daemons, asked = _carried(node, clean, cluster), [node.name]
    else:
        daemons = daemons_of(clean, cluster.daemonsets, cluster.classes)
        asked = sorted(each.name for each in nodes)
    volumes = next((dict(cluster.limits[name]) for name in asked if cluster.limits.get(name)), None)
    if volumes is None:
        # No node of the group reports its limits: use the provider's values for a new one, where 0 means no limit.
        volumes = {driver: limit for driver, limit in cluster.promised[group].items() if limit > 0}
    if unpromised := cluster.unpromised.get(group):
        labels = {key: value for key, value in clean.labels.items() if key not in unpromised}
        clean = msgspec.structs.replace(clean, labels=labels)
    return Template(clean, daemons, source, volumes, node if source == "node" else None)


def settled(node: Node, now: float, options: Options) -> bool:
    """Return whether a real node that lacks no device may serve as the template of its group: ready for over a minute,
    schedulable, not leaving."""
    ready = node.condition("Ready")
    return (
        ready is not None
        and ready.changed + _SETTLED < now
        and not node.unschedulable
        and works(node, options)
        and node.taint(TO_BE_DELETED) is None
    )


def learn(model_node: Node | None, known: LearntTemplate | None, now: float, options: Options) -> LearntTemplate | None:
    """Return the template to remember of a group: the settled node that was copied, otherwise the known one.

    An expired one is kept: it is not used as a template any more, but still shows what the group's kubelets reserve. An
    unchanged template is renewed only occasionally, because every renewal is a write.
    """
    if model_node is None:
        return known
    learnt = msgspec.structs.replace(
        model_node,
        name="",
        uid="",
        provider_id="",
        annotations={},
        conditions=(),
        created=0.0,
        resource_version="",
        labels={key: value for key, value in model_node.labels.items() if key != HOSTNAME_LABEL},
        taints=tuple(taint for taint in model_node.taints if not _drops(taint, options)),
    )
    fresh = known is not None and now < known.learnt_at + options.node_info_cache_expire_time / _REFRESHES
    return known if known is not None and fresh and known.node == learnt else LearntTemplate(learnt, now)


def sanitised(node: Node, name: str, options: Options) -> Node:
    """Return a copy under another name, without taints and labels that belong to one real node."""
    return msgspec.structs.replace(
        node,
        name=name,
        uid="",
        labels={**node.labels, HOSTNAME_LABEL: name, TEMPLATE_LABEL: "true"},
        provider_id="",
        annotations={},
        conditions=(),
        created=0.0,
        resource_version="",
        taints=tuple(taint for taint in node.taints if not _drops(taint, options)),
        allocatable={**node.allocatable, **_devices(node)},
        unschedulable=node.unschedulable and not options.scale_from_unschedulable,
    )


def with_allocatable(node: Node, alike: Iterable[Node] = ()) -> Node:
    """Compute the allocatable of a node of which only the capacity is known.

    alike: nodes of the group, real or learned, most reliable first. The first with as many cores shows per resource
    what its kubelet reserves; for the rest the kubelet's defaults apply: 100Mi of memory and every huge page, a tenth
    of the ephemeral storage, nothing else. A node with an allocatable is not changed.
    """
    has = node.capacity
    if node.allocatable or not has:
        return node
    kept = {name: reserve(has) for name, reserve in _KEPT_BACK if name in has}
    like = next((other for other in alike if other.allocatable and other.capacity.get(CPU) == has.get(CPU)), None)
    if like is not None:
        kept.update(
            {
                name: max(0, amount - like.allocatable[name])
                for name, amount in like.capacity.items()
                if name in like.allocatable and not is_device(name)
            }
        )
    return msgspec.structs.replace(
        node, allocatable={name: max(0, amount - kept.get(name, 0)) for name, amount in has.items()}
    )


def _as_joined(template_node: Node, nodes: Iterable[Node], options: Options) -> Node:
    """Remove the labels that a node of the group has joined without: the vendor's promise was wrong, and another node
    would not have them either. A node that its cloud provider has not initialised may get more."""
    joined = [node for node in nodes if works(node, options) and node.taint(_UNINITIALIZED) is None]
    labels = {key: text for key, text in template_node.labels.items() if all(key in node.labels for node in joined)}
    return (
        template_node
        if len(labels) == len(template_node.labels)
        else msgspec.structs.replace(template_node, labels=labels)
    )


def _with_beta_labels(node: Node) -> Node:
    """Add the old label names that some pods still use. Kubelets set them, providers do not."""
    old = {beta: node.labels[stable] for stable, beta in _BETA_LABELS if stable in node.labels}
    return msgspec.structs.replace(node, labels={**old, **node.labels})


def _drops(taint: Taint, options: Options) -> bool:
    status = taint.key in options.status_taint or taint.key.startswith(STATUS_PREFIX)
    return taint.key in _PASSING_TAINTS or status or is_startup_taint(taint.key, options)


def daemons_of(node: Node, daemonsets: Iterable[DaemonSet], classes: Sequence[PodClass]) -> tuple[int, ...]:
    """Return the DaemonSets that would run on a node, by name. Room is not checked: one that is too big for the node
    takes all of it."""
    ordered = sorted(daemonsets, key=lambda daemon: (daemon.namespace, daemon.name))
    return tuple(daemon.cls for daemon in ordered if _runs(classes[daemon.cls], node))


def _carried(real_node: Node, clean_node: Node, cluster: _Cluster) -> tuple[int, ...]:
    """Return the pods of the real node that also run on similar ones: mirror and DaemonSet pods. A DaemonSet that is
    missing there may have found no room, and then finds none on the next node either, unless it preempts other pods.
    clean_node: the copy of the node."""
    classes = cluster.classes
    staying = (pod for pod in cluster.pods[real_node.name] if _stays(pod, classes[pod.cls], real_node, cluster.known))
    kept = [pod.cls for pod in _one_of_each(staying, classes)]
    here = {
        (classes[cls].namespace, owner.name)
        for cls in kept
        if (owner := classes[cls].owner) is not None and owner.kind == "DaemonSet" and owner.built_in
    }
    missing = (
        daemon
        for daemon in cluster.daemonsets
        if (daemon.namespace, daemon.name) not in here
        and (cluster.options.force_ds or _makes_room(classes[daemon.cls]))
    )
    return (*kept, *daemons_of(clean_node, missing, classes))


def _stays(pod: Pod, pod_class: PodClass, node: Node, known: Mapping[str, DaemonSet]) -> bool:
    """Return whether a pod is one that every such node has. What it says of itself may be false: whoever creates pods
    in a namespace chooses their annotations and owners. The owner must therefore exist. In kube-system only
    administrators create pods, and they are believed: DaemonSets of other API groups are not read."""
    if pod.phase in {"Succeeded", "Failed"} or not (pod_class.mirror or (pod_class.is_daemonset and not pod.deleted)):
        return False
    if pod.namespace == _ADMINISTRATORS:
        return True
    owner = pod_class.owner
    if owner is None:
        return False
    if pod_class.mirror:
        return (owner.kind, owner.name, owner.uid) == ("Node", node.name, node.uid)
    daemon = known.get(owner.uid) if owner.kind == "DaemonSet" and owner.built_in else None
    return daemon is not None and (daemon.namespace, daemon.name) == (pod.namespace, owner.name)


def _one_of_each(pods: Iterable[Pod], classes: Sequence[PodClass]) -> list[Pod]:
    """Return the pods by name, of each DaemonSet the oldest: its controller deletes a second pod on one node."""
    oldest: dict[str, Pod] = {}
    for pod in sorted(pods, key=lambda pod: (pod.created, pod.key)):
        owner = classes[pod.cls].owner
        oldest.setdefault(owner.uid if owner is not None and owner.kind == "DaemonSet" else pod.key, pod)
    return sorted(oldest.values(), key=lambda pod: pod.key)


def _makes_room(pod_class: PodClass) -> bool:
    """Return whether its pods preempt others on a full node."""
    return pod_class.priority_class == "system-node-critical" and pod_class.preemption_policy in {
        "",
        "PreemptLowerPriority",
    }


def _runs(pod_class: PodClass, node: Node) -> bool:
    if not matches_node(pod_class, node.name, node.labels):
        return False
    extra = (*_DAEMON_TOLERATIONS, _HOST_NETWORK) if pod_class.host_network else _DAEMON_TOLERATIONS
    return untolerated((*pod_class.tolerations, *extra), node.taints) is None


def _name(node: Node) -> str:
    return node.name
