"""Checks for Karpenter. Two programs that buy a node for one pod buy twice.

It is found by its Lease in any namespace, its image, the add-on of a vendor's managed cluster, and
its NodePools. Where it has NodePools, these decide: it is an error only if one of them makes nodes
for pods for which one of the policy's groups would grow as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from chalicelib.cli.doctor.finding import DoctorContext, Finding, Severity, finding
from chalicelib.cli.doctor.karpenter_pools import MOST_POOLS, NodePool, alternatives, read_pools
from chalicelib.cli.doctor.running_autoscalers import (
    KARPENTER_LEASE,
    RunningAutoscaler,
    active,
    held_lease,
    held_leases,
)
from chalicelib.cluster.errors import ClusterError, Forbidden, NotFound
from chalicelib.model.errors import OutscalerError
from chalicelib.model.group import NodeGroup
from chalicelib.model.label_values import LabelRequirements
from chalicelib.model.node import Node
from chalicelib.model.pod import PodClass
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.predicates import matches_node, untolerated
from chalicelib.plan.state.node_templates import sanitised, settled_node, with_allocatable
from chalicelib.providers.kit.base import AddonReader
from chalicelib.reasons.words import some
from chalicelib.runtime.mode_guard import permitted

_ADDON = "karpenter"
_STOP = "remove Karpenter, or scale its Deployment to 0"
_SHARE = (
    "give the NodePools a taint or a required label that these groups do not have, set their "
    "limits to what they have, "
    "or remove Karpenter"
)


class SharedPod(msgspec.Struct, frozen=True):
    """A class of pods for which a group would grow. pod: one of them. terms: what
    they ask of a node's labels."""

    pod: str
    group: str
    pod_class: PodClass
    terms: tuple[LabelRequirements, ...]


def check_karpenter(
    context: DoctorContext, workloads: Sequence[RunningAutoscaler]
) -> Iterator[Finding]:
    """DR07: a Karpenter that buys for the pods of these groups. DR09: one that does not.
    workloads: of Karpenter."""
    signs, gaps = _signs(context, workloads)
    try:
        pools = read_pools(context.observer)
    except ClusterError as error:
        pools = ()
        reason = (
            "may not be read"
            if isinstance(error, Forbidden)
            else f"could not be read: {error.message}"
        )
        gaps.append(f"NodePools of Karpenter {reason}")
    judged = [pool for pool in pools[:MOST_POOLS] if not pool.problem]
    if judged:
        yield from _judge_pools(context, judged, signs)
    else:
        for how, text in signs:
            yield active(context, text, how, workloads, _STOP)
    malformed = [f"{pool.name} ({pool.problem})" for pool in pools if pool.problem]
    if malformed:
        gaps.append(f"NodePools of Karpenter could not be judged: {some(malformed)}")
    if len(pools) > MOST_POOLS:
        gaps.append(
            f"there are more than {MOST_POOLS} NodePools of Karpenter, and the others were not "
            "judged"
        )
    for gap in gaps:
        yield finding("DR07", gap, severity=Severity.UNASKED)


def _signs(
    context: DoctorContext, workloads: Sequence[RunningAutoscaler]
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return (kind, text) of each sign that Karpenter runs, the surest kind alone, and
    what could not be asked."""
    leases, gaps = _leases(context)
    addons = []
    for name, provider in context.providers:
        if not isinstance(provider, AddonReader) or context.snapshot is None:
            continue
        try:
            if _ADDON in provider.addons(context.snapshot.groups):
                addons.append(f"the managed cluster at {name} has the add-on {_ADDON}")
        except OutscalerError as error:
            gaps.append(f"add-ons of the managed cluster at {name} could not be read: {error}")
    if leases:
        return [("lease", text) for text in leases], gaps
    if workloads:
        return [
            ("workload", f"{workload.place} has ready replicas") for workload in workloads
        ], gaps
    return [("add-on", text) for text in addons], gaps


def _leases(context: DoctorContext) -> tuple[list[str], list[str]]:
    """Return a text for each Lease of Karpenter that is held, and what could not be asked: all
    namespaces, or where they may not be listed, its usual ones."""
    client, now = context.observer, context.clock()
    try:
        return [str(lease) for lease in held_leases(client, KARPENTER_LEASE, now)], []
    except NotFound:
        return [], []
    except Forbidden:
        pass
    texts = []
    for namespace in dict.fromkeys(("kube-system", "karpenter", context.policy.options.namespace)):
        try:
            lease = held_lease(client, namespace, KARPENTER_LEASE, now)
        except Forbidden:
            continue
        if lease is not None:
            texts.append(str(lease))
    return texts, [] if texts else [
        "leases of all namespaces may not be listed, so Karpenter's was not looked for"
    ]


# -- NodePools and groups


def _judge_pools(
    context: DoctorContext, pools: Sequence[NodePool], signs: Sequence[tuple[str, str]]
) -> Iterator[Finding]:
    names, texts = [pool.name for pool in pools], [text for _, text in signs]
    shared = _shared_pools(context, pools)
    if not shared:
        text = f"Karpenter has NodePools ({some(names)})"
        text = f"{text}; none of them makes nodes for pods for which these groups would grow"
        yield finding("DR09", text, pools=names, signs=texts)
        return
    name, example = next(iter(shared.items()))
    text = (
        f"NodePools of Karpenter ({some(list(shared))}) make nodes for pods for which these "
        "groups grow as well"
    )
    if example is not None:
        text = f"{text}: NodePool {name} and group {example.group} for {example.pod}"
    severity = Severity.ERROR if permitted(context.policy).act else Severity.INFO
    fix = _SHARE if severity is Severity.ERROR else "nothing to do before mode active"
    yield finding(
        "DR07",
        text,
        severity=severity,
        fix=fix,
        by="NodePools",
        shared=list(shared),
        pools=names,
        signs=texts,
    )


def _shared_pools(
    context: DoctorContext, pools: Sequence[NodePool]
) -> Mapping[str, SharedPod | None]:
    """Return the NodePools that buy for pods of these groups, with an example; all that buy,
    without one, where the cluster could not be read."""
    buying = [pool for pool in pools if pool.buys]
    if context.snapshot is None:
        return {pool.name: None for pool in buying}
    shared: dict[str, SharedPod | None] = {}
    pods = shared_pods(context, context.snapshot) if buying else ()
    for pool in buying:
        example = next((pod for pod in pods if pool.admits(pod.pod_class, pod.terms)), None)
        if example is not None:
            shared[pool.name] = example
    return shared


def shared_pods(context: DoctorContext, snapshot: Snapshot) -> tuple[SharedPod, ...]:
    """Return the classes of pods for which a group with room would grow, one of each kind of demand
    on nodes. Pods that run on every node, or on one node alone, are none."""
    templates = _templates(context, snapshot)
    names_by_class: dict[int, str] = {}
    for pod in snapshot.pods:
        names_by_class.setdefault(pod.cls, pod.key)
    pods: dict[bytes, SharedPod] = {}
    for index, name in names_by_class.items():
        pod_class = snapshot.classes[index]
        if pod_class.is_daemonset or pod_class.mirror:
            continue
        group = next((group for group, node in templates if _admits(node, pod_class)), None)
        terms = alternatives(pod_class) if group is not None else ()
        if group is not None and terms:
            demand = (pod_class.node_selector, pod_class.required_affinity, pod_class.tolerations)
            pods.setdefault(msgspec.json.encode(demand), SharedPod(name, group, pod_class, terms))
    return tuple(pods.values())


def _templates(context: DoctorContext, snapshot: Snapshot) -> list[tuple[str, Node]]:
    """Return (group, a new node of it) for the groups that may grow."""
    nodes_by_name = {node.name: node for node in snapshot.nodes}
    options, templates = context.policy.options, []
    for group in snapshot.groups:
        if not _has_room(group, snapshot.groups):
            continue
        members = [
            nodes_by_name[instance.node]
            for instance in group.instances
            if instance.node in nodes_by_name
        ]
        model = (
            settled_node(members, context.clock(), options)
            or group.template
            or next(iter(members), None)
        )
        if model is not None:
            unpromised = group.options.unpromised_labels
            labels = {key: value for key, value in model.labels.items() if key not in unpromised}
            known = with_allocatable(msgspec.structs.replace(model, labels=labels), members)
            templates.append((group.id, sanitised(known, f"template-node-for-{group.id}", options)))
    return templates


def _has_room(group: NodeGroup, groups: Sequence[NodeGroup]) -> bool:
    if group.error or group.target >= group.max:
        return False
    pool = group.pool
    if pool is None or pool.max < 0:
        return True
    size = sum(
        other.target for other in groups if other.pool is not None and other.pool.id == pool.id
    )
    return size + pool.elsewhere < pool.max


def _admits(node: Node, pod_class: PodClass) -> bool:
    """Return whether an empty node of a group takes a pod: its labels, its taints and its size. One
    of unknown size takes any."""
    if untolerated(pod_class.tolerations, node.taints) is not None or node.unschedulable:
        return False
    if not matches_node(pod_class, node.name, node.labels):
        return False
    if not node.allocatable:
        return True
    return all(
        amount <= node.allocatable.get(resource, 0)
        for resource, amount in pod_class.requests.items()
    )
