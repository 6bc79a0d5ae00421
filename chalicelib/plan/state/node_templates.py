"""What a node that does not exist yet would be like (scale-up.md §4).

Source per group, the first that works: a real node that has been ready for over a minute; the template learnt from
one earlier (memory), until it expires; the provider's own; a real but bad node. The result is a node of a name of its
own, without the taints that go away by themselves, with what will run on it from the start and with the volumes its
drivers can attach. Labels that its group does not promise (GroupOptions.unpromised_labels, huaweicloud-cce.md A1.2)
have counted for its DaemonSets, which the kubelet's own labels will bring, and are gone from the result.

A learnt template remembers the node alone, not its pods: the indices of classes mean nothing in another pass. So its
DaemonSets are those that should run on it, as on a provider's template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import LearntTemplate
from chalicelib.model.node import DELETION_CANDIDATE, HOSTNAME_LABEL, TO_BE_DELETED, Node, Taint
from chalicelib.model.pod import Pod, PodClass, Toleration
from chalicelib.model.policy import Options
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY
from chalicelib.model.snapshot import DaemonSet, Snapshot
from chalicelib.plan.predicates import node_affinity
from chalicelib.plan.predicates.taint_toleration import untolerated
from chalicelib.plan.state.readiness import STATUS_PREFIX, is_ready, is_startup_taint

TEMPLATE_LABEL = "cluster-autoscaler.kubernetes.io/template-node"
_SETTLED = 60.0  # seconds a node must have been ready, strictly, before others are expected to be like it
_COPIES = frozenset({"node", "unready node"})  # sources that are nodes of the cluster, with pods on them
_REFRESHES = 10  # a template that stays the same is learnt again so often before it would expire
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
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cloudprovider.kubernetes.io/shutdown",
        "cloud.google.com/impending-node-termination",
        "NodeWithImpairedVolumes",
        TO_BE_DELETED,
        DELETION_CANDIDATE,
        "node.cluster.x-k8s.io/outdated-revision",
    ]  # set while a rollout replaces this very node (clusterapi.md §9)
)
_BETA_LABELS = (
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
    ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"),
)
# Every DaemonSet pod gets these from its controller.
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
# What a kubelet of which nothing is known keeps back of a capacity. kubeadm and the kubelet reserve nothing for
# themselves; the hard eviction thresholds are kept: memory.available<100Mi, nodefs.available<10%.
_KEPT_BACK: tuple[tuple[str, Callable[[Mapping[str, int]], int]], ...] = (
    # A huge page is memory that the kubelet offers under its own name only.
    (MEMORY, lambda has: 100 * 2**20 + sum(has[name] for name in has if name.startswith("hugepages-"))),
    (EPHEMERAL, lambda has: -(-has[EPHEMERAL] // 10)),
)


class Template(msgspec.Struct, frozen=True):
    """A node to come. daemons: the classes of the pods every such node starts with, one entry per pod. source: where it
    was learnt. volume_limits: CSI driver -> most volumes; a driver without a limit is not in it."""

    node: Node
    daemons: tuple[int, ...]
    source: str
    volume_limits: dict[str, int] = {}


class _Cluster(msgspec.Struct, frozen=True):
    """What of the cluster is put beside a node to make a template. pods: node name -> its pods, of the nodes that are
    copied; limits: node name -> what its CSINode says; promised: group id -> NodeGroup.template_volumes;
    unpromised: group id -> labels that no new node of it is bought for."""

    daemonsets: Sequence[DaemonSet]
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
) -> dict[str, Template]:
    """The template of every group that has one. members: group id -> its nodes; learnt: Memory.templates; pods_on: a
    node's pods, asked for the nodes that are copied."""
    models = {
        group.id: found
        for group in snapshot.groups
        if (found := _model(group, members.get(group.id, ()), learnt.get(group.id), options, now))
    }
    pods = {node.name: pods_on(node.name) for node, source in models.values() if source in _COPIES}
    cluster = _Cluster(
        snapshot.daemonsets,
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
    group: NodeGroup, nodes: Sequence[Node], learnt: LearntTemplate | None, options: Options, now: float
) -> tuple[Node, str] | None:
    """What is copied, and where it comes from."""
    ordered = sorted(nodes, key=_name)
    real = next((node for node in ordered if settled(node, now, options)), None)
    if real is not None:
        return real, "node"
    if learnt is not None and now <= learnt.learnt_at + options.node_info_cache_expire_time:
        return learnt.node, "learnt"
    if group.template is not None:
        alike = [learnt.node, *ordered] if learnt is not None else ordered
        return _with_beta_labels(with_allocatable(group.template, alike)), "provider"
    # One that is leaving comes last of all: it is a worse model than any other node, and a better one than none.
    bad = min(
        (node for node in ordered if node.allocatable),
        key=lambda node: node.taint(TO_BE_DELETED) is not None,
        default=None,
    )
    return (bad, "unready node") if bad is not None else None


def _made(group: str, node: Node, source: str, nodes: Sequence[Node], cluster: _Cluster) -> Template:
    clean = sanitised(node, f"template-node-for-{group}", cluster.options)
    if source in _COPIES:
        daemons, asked = _carried(clean, cluster.pods[node.name], cluster), [node.name]
    else:
        daemons = daemons_of(clean, cluster.daemonsets, cluster.classes)
        asked = sorted(each.name for each in nodes)
    volumes = next((dict(cluster.limits[name]) for name in asked if cluster.limits.get(name)), None)
    if volumes is None:
        # No node of the group has told its limits: what the provider says of a new one, where 0 is no limit.
        volumes = {driver: limit for driver, limit in cluster.promised[group].items() if limit > 0}
    if unpromised := cluster.unpromised.get(group):
        labels = {key: value for key, value in clean.labels.items() if key not in unpromised}
        clean = msgspec.structs.replace(clean, labels=labels)
    return Template(clean, daemons, source, volumes)


def settled(node: Node, now: float, options: Options) -> bool:
    """Whether a real node may serve as the model of its group: ready for over a minute, schedulable, not leaving."""
    ready = node.condition("Ready")
    return (
        ready is not None
        and ready.changed + _SETTLED < now
        and not node.unschedulable
        and is_ready(node, options)
        and node.taint(TO_BE_DELETED) is None
    )


def learn(nodes: Sequence[Node], known: LearntTemplate | None, now: float, options: Options) -> LearntTemplate | None:
    """The template to remember of a group: the first settled node by name, else what is known already.

    An expired one stays: it is no template any more, but still tells what the group's kubelets keep back. While the
    nodes stay the same it is renewed only now and then, for every renewal is a write.
    """
    model = next((node for node in sorted(nodes, key=_name) if settled(node, now, options)), None)
    if model is None:
        return known
    learnt = msgspec.structs.replace(
        model,
        name="",
        uid="",
        provider_id="",
        annotations={},
        conditions=(),
        created=0.0,
        resource_version="",
        labels={key: value for key, value in model.labels.items() if key != HOSTNAME_LABEL},
        taints=tuple(taint for taint in model.taints if not _drops(taint, options)),
    )
    fresh = known is not None and now < known.learnt_at + options.node_info_cache_expire_time / _REFRESHES
    return known if known is not None and fresh and known.node == learnt else LearntTemplate(learnt, now)


def sanitised(node: Node, name: str, options: Options) -> Node:
    """A copy under another name, without the taints and marks that belong to one real node."""
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
        unschedulable=node.unschedulable and not options.scale_from_unschedulable,
    )


def with_allocatable(node: Node, alike: Iterable[Node] = ()) -> Node:
    """A node of which only the capacity is known (its allocatable is empty), with what is left of it for pods.

    alike: nodes of the group, real or learnt, surest first. The first with as many cores says per resource what its
    kubelet keeps back; for the rest a kubelet's own defaults hold: 100Mi of memory and every huge page, a tenth of the
    ephemeral storage, nothing else. A node that has an allocatable is left as it is.
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
                if name in like.allocatable
            }
        )
    return msgspec.structs.replace(
        node, allocatable={name: max(0, amount - kept.get(name, 0)) for name, amount in has.items()}
    )


def _with_beta_labels(node: Node) -> Node:
    """The names of old that some pods still ask for. Kubelets set them, providers do not."""
    old = {beta: node.labels[stable] for stable, beta in _BETA_LABELS if stable in node.labels}
    return msgspec.structs.replace(node, labels={**old, **node.labels})


def _drops(taint: Taint, options: Options) -> bool:
    status = taint.key in options.status_taint or taint.key.startswith(STATUS_PREFIX)
    return taint.key in _PASSING_TAINTS or status or is_startup_taint(taint.key, options)


def daemons_of(node: Node, daemonsets: Iterable[DaemonSet], classes: Sequence[PodClass]) -> tuple[int, ...]:
    """The DaemonSets that would run on a node, by name. Room is not asked: one too big for the node takes it all."""
    ordered = sorted(daemonsets, key=lambda daemon: (daemon.namespace, daemon.name))
    return tuple(daemon.cls for daemon in ordered if _runs(classes[daemon.cls], node))


def _carried(node: Node, pods: Iterable[Pod], cluster: _Cluster) -> tuple[int, ...]:
    """What runs on the real node and will run on its like: mirror and DaemonSet pods. A DaemonSet that is missing there
    may have found no room, and then finds none on the next either, unless it makes room for itself."""
    classes = cluster.classes
    kept = [pod.cls for pod in sorted(pods, key=lambda pod: pod.key) if _stays(pod, classes[pod.cls])]
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
    return (*kept, *daemons_of(node, missing, classes))


def _stays(pod: Pod, cls: PodClass) -> bool:
    gone = pod.phase in {"Succeeded", "Failed"}
    return not gone and (cls.mirror or (cls.is_daemonset and not pod.deleted))


def _makes_room(cls: PodClass) -> bool:
    """Whether its pods push others off a node that is full (scale-up.md §4, table)."""
    return cls.priority_class == "system-node-critical" and cls.preemption_policy in {"", "PreemptLowerPriority"}


def _runs(cls: PodClass, node: Node) -> bool:
    if not node_affinity.matches(cls, node.name, node.labels):
        return False
    extra = (*_DAEMON_TOLERATIONS, _HOST_NETWORK) if cls.host_network else _DAEMON_TOLERATIONS
    return untolerated((*cls.tolerations, *extra), node.taints) is None


def _name(node: Node) -> str:
    return node.name
