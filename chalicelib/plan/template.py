"""What a node that does not exist yet would be like (scale-up.md §4).

Source per group, the first that works: a real node that has been ready for over a minute; the template learnt from
one earlier (memory); the provider's own; a real but bad node. The result is a node of a name of its own, without the
taints that go away by themselves, and with what its DaemonSet pods will take.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import LearntTemplate
from chalicelib.model.node import DELETION_CANDIDATE, HOSTNAME_LABEL, TO_BE_DELETED, Node, Taint
from chalicelib.model.pod import PodClass, Toleration
from chalicelib.model.policy import Options
from chalicelib.model.snapshot import DaemonSet
from chalicelib.plan.fit import node_affinity
from chalicelib.plan.fit.taints import untolerated
from chalicelib.plan.readiness import STATUS_PREFIX, is_ready, is_startup_taint

_SETTLED = 60.0  # seconds a node must have been ready, strictly, before others are expected to be like it
_CONDITION_TAINTS = frozenset(
    [f"node.kubernetes.io/{what}" for what in ("not-ready", "unreachable", "unschedulable", "memory-pressure",
                                                "disk-pressure", "pid-pressure", "network-unavailable")]
    + ["node.cloudprovider.kubernetes.io/uninitialized", "node.cloudprovider.kubernetes.io/shutdown",
       "cloud.google.com/impending-node-termination", "NodeWithImpairedVolumes", TO_BE_DELETED, DELETION_CANDIDATE]
)
# Every DaemonSet pod gets these from its controller.
_DAEMON_TOLERATIONS = tuple(
    Toleration(f"node.kubernetes.io/{key}", "Exists", "", effect)
    for key, effect in (("not-ready", "NoExecute"), ("unreachable", "NoExecute"), ("disk-pressure", "NoSchedule"),
                        ("memory-pressure", "NoSchedule"), ("pid-pressure", "NoSchedule"),
                        ("unschedulable", "NoSchedule"))
)
_HOST_NETWORK = Toleration("node.kubernetes.io/network-unavailable", "Exists", "", "NoSchedule")


class Template(msgspec.Struct, frozen=True):
    """A node to come. daemons: the classes of the pods every such node starts with. source: where it was learnt."""

    node: Node
    daemons: tuple[int, ...]
    source: str


def settled(node: Node, now: float, options: Options) -> bool:
    """Whether a real node may serve as the model of its group: ready for over a minute, schedulable, not leaving."""
    ready = node.condition("Ready")
    return (ready is not None and is_ready(node, options) and ready.changed + _SETTLED < now
            and not node.unschedulable and node.taint(TO_BE_DELETED) is None)


def learn(nodes: tuple[Node, ...], known: LearntTemplate | None, now: float, options: Options) -> LearntTemplate | None:
    """The template to remember of a group: the first settled node by name, else what is known already."""
    model = next((node for node in nodes if settled(node, now, options)), None)
    if model is None:
        return known
    learnt = msgspec.structs.replace(model, uid="", provider_id="", annotations={}, conditions=(), created=0.0,
                                     resource_version="", name="")
    return known if known is not None and known.node == learnt else LearntTemplate(learnt, now)


def make(group: NodeGroup, nodes: tuple[Node, ...], learnt: LearntTemplate | None, daemonsets: tuple[DaemonSet, ...],
         classes: tuple[PodClass, ...], options: Options, now: float) -> Template | None:
    """The template of a group, or None if nothing is known about its nodes."""
    real = next((node for node in nodes if settled(node, now, options)), None)
    bad = nodes[0] if nodes else None
    for node, source in ((real, "node"), (learnt.node if learnt else None, "learnt"), (group.template, "provider"),
                         (bad, "unready node")):
        if node is not None:
            clean = sanitised(node, f"template-node-for-{group.id}", options)
            return Template(clean, daemons_of(clean, daemonsets, classes), source)
    return None


def sanitised(node: Node, name: str, options: Options) -> Node:
    """A copy under another name, without the taints and marks that belong to one real node."""
    labels = dict(node.labels)
    labels[HOSTNAME_LABEL] = name
    for stable, beta in (("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
                         ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
                         ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")):
        if stable in labels:
            labels.setdefault(beta, labels[stable])
    return msgspec.structs.replace(
        node, name=name, uid="", labels=labels, provider_id="", annotations={}, conditions=(),
        taints=tuple(taint for taint in node.taints if not _drops(taint, options)),
        unschedulable=node.unschedulable and not options.scale_from_unschedulable,
    )


def _drops(taint: Taint, options: Options) -> bool:
    status = taint.key in options.status_taint or taint.key.startswith(STATUS_PREFIX)
    return taint.key in _CONDITION_TAINTS or status or is_startup_taint(taint.key, options)


def daemons_of(node: Node, daemonsets: tuple[DaemonSet, ...], classes: tuple[PodClass, ...]) -> tuple[int, ...]:
    """The DaemonSets that would run on a node. Room is not asked: a daemon too big for the node still takes it all."""
    return tuple(daemon.cls for daemon in daemonsets if _runs(classes[daemon.cls], node))


def _runs(cls: PodClass, node: Node) -> bool:
    if not node_affinity.matches(cls, node.name, node.labels):
        return False
    extra = (*_DAEMON_TOLERATIONS, _HOST_NETWORK) if cls.host_network else _DAEMON_TOLERATIONS
    return untolerated((*cls.tolerations, *extra), node.taints) is None
