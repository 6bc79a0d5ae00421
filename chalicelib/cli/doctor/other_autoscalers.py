"""Checks for another autoscaler in the cluster. Two that act on the same groups
remove each other's nodes.

It is found by its Lease, its workload, its status ConfigMap, its taints, and the labels of its
nodes. One that acts on other groups is told and is no error. A Cluster Autoscaler's command line
also says which startup taints it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from chalicelib import DOCS
from chalicelib.cli.doctor.finding import DoctorContext, Finding, Severity, finding
from chalicelib.cli.doctor.karpenter import check_karpenter
from chalicelib.cli.doctor.karpenter_pools import POOL_LABEL
from chalicelib.cli.doctor.running_autoscalers import (
    HeldLease,
    RunningAutoscaler,
    active,
    cluster_autoscaler_arguments,
    has_same_groups,
    held_lease,
    named_leases,
    running_workloads,
)
from chalicelib.cli.migrate.flag_table import release_of
from chalicelib.cli.migrate.startup_taints import (
    CLUSTER_API,
    startup_taint_flag,
    unknown_startup_taints,
)
from chalicelib.cli.migrate.translate_flags import group_arguments
from chalicelib.cluster import objects
from chalicelib.cluster.errors import Forbidden, NotFound
from chalicelib.journal.status_configmap import ANNOTATION, KEY
from chalicelib.model.errors import BadInput
from chalicelib.model.node import DELETION_CANDIDATE, TO_BE_DELETED
from chalicelib.model.operation import OPERATION_ANNOTATION
from chalicelib.model.timestamps import parse_time
from chalicelib.plan.state.readiness import is_startup_taint
from chalicelib.reasons.words import counted, some
from chalicelib.runtime.mode_guard import permitted

FRESH_STATUS = 120.0
"""Seconds after which a status says that its writer has stopped."""
LEASE = "cluster-autoscaler"
_INSTANT_SCALING = (
    "look in the console, and switch it off before mode active: "
    f"{DOCS}/providers/alicloud.md#limits"
)
_KARPENTER_NODE = ("karpenter.sh/registered", "karpenter.sh/initialized")
"""Labels that Karpenter sets on the nodes that it has made, besides the label
that workloads select by."""
_FOREIGN_TAINTS = ("karpenter.sh/disrupted", "karpenter.sh/unregistered", "atlassian.com/escalator")
_KEEPS_PODS_AWAY = frozenset({"NoSchedule", "NoExecute"})
"""Effects of taints on which Cluster Autoscaler places no pod."""
_MOST = 200
_MOST_TAINTS = 3


def check_activity(context: DoctorContext) -> Iterator[Finding]:
    """DR07: another autoscaler that acts at present, and startup taints that it does not know.
    DR09: a Karpenter that buys for other pods. Raises ClusterError where nothing can be asked."""
    workloads, gaps = running_workloads(context.observer)
    others = [workload for workload in workloads if not workload.is_karpenter]
    leases, unread = _other_leases(context, others)
    for lease in leases:
        yield active(context, str(lease), "lease", others)
    for workload in others if not leases else ():
        yield active(context, f"{workload.place} has ready replicas", "workload", [workload])
    yield from check_karpenter(
        context, [workload for workload in workloads if workload.is_karpenter]
    )
    yield from _startup_taints(context, others)
    for gap in (*gaps, *unread):
        yield finding("DR07", gap, severity=Severity.UNASKED)
    if "alicloud" in context.policy.providers:
        text = (
            "instant scaling of ACK: not checked, because no API that Outscaler uses says whether "
            "it is on"
        )
        yield finding("DR07", text, severity=Severity.UNASKED, fix=_INSTANT_SCALING)


def _other_leases(
    context: DoctorContext, workloads: Sequence[RunningAutoscaler]
) -> tuple[list[HeldLease], list[str]]:
    """Return the Leases of Cluster Autoscalers that are held: of its usual namespaces, and those of
    the workloads; and what could not be asked."""
    client, now = context.observer, context.clock()
    usual = [(namespace, LEASE) for namespace in ("kube-system", context.policy.options.namespace)]
    for workload in workloads:
        for namespace in dict.fromkeys(
            ("kube-system", context.policy.options.namespace, workload.namespace)
        ):
            usual += [(namespace, name) for name in (LEASE, *named_leases(workload)) if namespace]
    leases: list[HeldLease] = []
    refused: list[str] = []
    for namespace, name in dict.fromkeys(usual):
        if namespace in refused:
            continue
        try:
            lease = held_lease(client, namespace, name, now)
        except Forbidden:
            refused.append(namespace)
            continue
        if lease is not None:
            leases.append(lease)
    return leases, [f"leases in {namespace} may not be read" for namespace in refused]


def _startup_taints(
    context: DoctorContext, workloads: Sequence[RunningAutoscaler]
) -> Iterator[Finding]:
    """Yield DR07 for each Cluster Autoscaler of these groups that does not know a
    startup taint of its new nodes."""
    options = context.policy.options
    nodes = context.snapshot.nodes if context.snapshot is not None else ()
    seen = {
        taint.key for node in nodes for taint in node.taints if taint.effect in _KEEPS_PODS_AWAY
    }
    seen = {key for key in seen if is_startup_taint(key, options)}
    provider = CLUSTER_API if CLUSTER_API in context.policy.providers else ""
    for workload in workloads:
        arguments = cluster_autoscaler_arguments(workload)
        if arguments is None or not has_same_groups(context, workload):
            continue
        taints = unknown_startup_taints(group_arguments(arguments), seen, provider)
        if taints:
            version = release_of(workload.image, "")
            flags = " ".join(startup_taint_flag(taint, version) for taint in taints[:_MOST_TAINTS])
            text = (
                f"{workload.place} buys again while its new nodes have {some(taints)}, no "
                "startup taint to it"
            )
            fix = f"add {flags} to the command line of {workload.place}"
            yield finding("DR07", text, fix=fix, by="command line", taints=list(taints[:_MOST]))


def check_status(context: DoctorContext) -> Iterator[Finding]:
    """DR08: a status ConfigMap that another program writes as well. DR07 where that
    program alone writes it now."""
    options = context.policy.options
    try:
        config_map = objects.get_config_map(
            context.observer, options.namespace, options.status_config_map_name
        )
    except NotFound:
        return
    managers = config_map.writers(KEY)
    others = sorted(
        manager
        for manager in managers
        if manager != objects.OWN_MANAGER and "kubectl" not in manager
    )
    updated = _go_time(config_map.annotation(ANNOTATION))
    if not others or updated is None or context.clock() - updated > FRESH_STATUS:
        return
    name = f"{options.namespace}/{options.status_config_map_name}"
    if objects.OWN_MANAGER not in managers:
        yield active(context, f"ConfigMap {name} is written by {others[0][:60]}", "status", ())
    else:
        text = f"ConfigMap {name} is written by {', '.join(others)[:200]} as well"
        yield finding("DR08", text, managers=sorted(managers))


def _go_time(text: str) -> float | None:
    """Parse Go's `2026-11-23 05:22:01.123456789 +0000 UTC`."""
    match = re.match(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.\d{1,9})? \+0000 UTC", text)
    if match is None:
        return None
    try:
        return parse_time(f"{match[1]}T{match[2]}Z")
    except BadInput:
        return None


def check_traces(context: DoctorContext) -> Iterator[Finding]:
    """DR09: nodes of Karpenter. DR07: taints of removals in progress. INFO: soft
    taints that were left behind."""
    nodes = context.required_snapshot.nodes
    grouped = {
        instance.node for group in context.required_snapshot.groups for instance in group.instances
    }
    karpenter = [
        node.name
        for node in nodes
        if POOL_LABEL in node.labels and any(label in node.labels for label in _KARPENTER_NODE)
    ]
    shared = [name for name in karpenter if name in grouped]
    if shared:
        yield active(context, f"Karpenter manages {len(shared)} nodes of these groups", "nodes", ())
    elif karpenter:
        text = (
            f"Karpenter manages {len(karpenter)} nodes ({POOL_LABEL}); they are in none of these "
            "groups"
        )
        yield finding("DR09", text, nodes=karpenter[:_MOST])
    hard = [
        node.name
        for node in nodes
        if node.taint(TO_BE_DELETED) and OPERATION_ANNOTATION not in node.annotations
    ]
    if hard:
        text = (
            f"{TO_BE_DELETED} that Outscaler has not set on {counted(len(hard), 'node')}: "
            f"{some(hard)}"
        )
        fix = (
            "wait until the other autoscaler has removed them; outscaler uninstall NAME --foreign "
            "removes left ones"
        )
        yield finding("DR07", text, fix=fix, nodes=hard[:_MOST])
    foreign = [node.name for node in nodes if any(node.taint(key) for key in _FOREIGN_TAINTS)]
    if foreign:
        text = f"taints of another autoscaler on {counted(len(foreign), 'node')}: {some(foreign)}"
        fix = "stop the other autoscaler, and remove the taints"
        yield finding("DR07", text, fix=fix, nodes=foreign[:_MOST])
    soft = [node.name for node in nodes if node.taint(DELETION_CANDIDATE)]
    if soft and not permitted(context.policy).act:
        text = (
            f"soft taints on {counted(len(soft), 'node')} ({DELETION_CANDIDATE}) of an autoscaler"
        )
        fix = (
            "Outscaler continues their times; outscaler uninstall removes those of an autoscaler "
            "that is gone"
        )
        yield finding("DR07", text, severity=Severity.INFO, fix=fix, nodes=soft[:_MOST])
