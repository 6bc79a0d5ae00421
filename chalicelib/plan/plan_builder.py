"""Builds the plan with its verdicts, and the operations that carry it out.

Operation ids are derived from their content (model/operation.py), so that a repeated pass
creates the same operations.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec

from chalicelib.model.memory import Replacement
from chalicelib.model.node import Node
from chalicelib.model.operation import (
    MOST_NAMES,
    MOST_PODS,
    REPLACED_BY,
    REPLACES,
    SAVES,
    SIGNAL,
    UID,
    Operation,
    OperationKind,
    OperationSpec,
    OperationStatus,
    RemovalTarget,
    operation_id,
)
from chalicelib.model.plan import Plan, Removal, Repair, Restart, ScaleUp
from chalicelib.model.pod import Pod
from chalicelib.model.policy import ConsolidationMode
from chalicelib.model.purchases import awaited_pods
from chalicelib.model.reason import DisruptionReason, Reason, ReasonCode
from chalicelib.model.timeouts import (
    LARGEST,
    PROVISION,
    STARTUP,
    interruption_deadline,
    operation_timeout,
)
from chalicelib.plan.demand.pending_pods import PendingPods
from chalicelib.plan.prices import price_book
from chalicelib.plan.removal.consolidation.eligibility import protected_time
from chalicelib.plan.removal.disruption_budgets import unknown_pools
from chalicelib.plan.removal.removal_planner import DisruptionPlan
from chalicelib.plan.removal.replacement_rows import ended_rows
from chalicelib.plan.repair import compatible, kept
from chalicelib.plan.scale_up.scale_up_planner import ScaleUpPlan
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.undelivered import undelivered_notes

MOST_WARNINGS = 10
"""Maximum warnings of each kind, sorted by name: further ones add no information."""
MOST_SHOWN = 40
"""Maximum characters of an invalid value that a warning quotes."""
IGNORE_TAINT = "ignore-taint.cluster-autoscaler.kubernetes.io/"


def build_plan(
    state: ClusterState,
    pending: PendingPods,
    scale_up: ScaleUpPlan,
    disruption: DisruptionPlan,
    repairs: tuple[Repair, ...],
    seed: int,
) -> Plan:
    """Return the whole plan. repairs: what plan/repair.py found; repairs that conflict with the
    rest wait for a later pass."""
    scale_ups = (*scale_up.scale_ups, *disruption.purchases)
    grown, shrunk = (
        (up.group for up in scale_ups),
        (removal.group for removal in disruption.removals),
    )
    repairs = compatible(repairs, grown, shrunk)
    name = _plan_id(state, scale_up, disruption, repairs, seed)
    rows = disruption.replacements
    class_of = (
        {pod.key: batch.cls for batch in pending.queue for pod in batch.pods} if scale_ups else {}
    )
    operations = [_growth(state, up, name, rows.get(up.replacement), class_of) for up in scale_ups]
    operations += [
        _removal(state, removal, name, rows.get(removal.replacement))
        for removal in disruption.removals
    ]
    operations += [_repair(state, repair, name) for repair in repairs]
    operations += [_restart(state, restart, name) for restart in disruption.restarts]
    candidates = Counter(state.group_of.get(node, "") for node in disruption.unneeded)
    return Plan(
        id=name,
        cluster=state.snapshot.cluster,
        at=state.now,
        scale_ups=scale_ups,
        unschedulable=tuple(sorted(scale_up.unschedulable, key=lambda v: v.pods)),
        fits_existing=tuple(sorted(scale_up.fits)),
        promises=scale_up.promises,
        notes=(*pending.notes, *scale_up.notes, *disruption.notes, *_warnings(state), *kept(state)),
        ignored=tuple(sorted(pending.ignored, key=lambda i: (i.reason.code, i.pods))),
        removals=disruption.removals,
        repairs=repairs,
        restarts=disruption.restarts,
        marks=disruption.taints,
        paused=disruption.paused,
        unneeded=disruption.unneeded,
        unremovable=disruption.unremovable,
        groups=tuple(
            msgspec.structs.replace(group, candidates=candidates[group.group])
            for group in scale_up.groups
        ),
        operations=tuple(operations),
        rules=scale_up.rule_results.verdicts,
        headroom=scale_up.headroom.verdicts,
        health=state.health,
        gaps=state.snapshot.gaps,
        consolidation=disruption.report,
        lifecycle=disruption.lifecycle,
        ended_replacements=ended_rows(state.memory.replacements, rows),
    )


def _plan_id(
    state: ClusterState,
    scale_up: ScaleUpPlan,
    disruption: DisruptionPlan,
    repairs: tuple[Repair, ...],
    seed: int,
) -> str:
    content = [
        state.snapshot.cluster,
        state.now,
        seed,
        scale_up.scale_ups,
        disruption.removals,
        repairs,
    ]
    content += [disruption.purchases] if disruption.purchases else []
    content += [disruption.restarts] if disruption.restarts else []
    return (
        "plan-"
        f"{hashlib.sha256(msgspec.json.encode(content, order='deterministic')).hexdigest()[:16]}"
    )


def _growth(
    state: ClusterState,
    scale_up: ScaleUp,
    plan: str,
    replacement: Replacement | None,
    class_of: Mapping[str, int],
) -> Operation:
    """Return the operation that buys nodes. class_of: pod -> its class, of
    the pods that need nodes."""
    group = state.groups[scale_up.group]
    own = group.group.options.max_node_provision_time
    example = group.template.node if group.template is not None else next(iter(group.nodes), None)
    spec = _spec(
        state,
        scale_up.group,
        OperationKind.SCALE_UP,
        (scale_up.from_size, scale_up.to_size),
        (),
        plan,
    )
    data = {LARGEST: str(scale_up.max), **({} if own is None else {PROVISION: str(own)})}
    reason = ""
    if replacement is not None:
        data |= {REPLACES: ",".join(replacement.nodes[:MOST_NAMES])}
        reason = (
            "" if replacement.reason is DisruptionReason.CONSOLIDATION else replacement.reason.value
        )
    waiting = Counter(class_of[pod] for pod in scale_up.pods if pod in class_of)
    awaited, more_awaited = awaited_pods(waiting, state.snapshot.classes)
    return Operation(
        msgspec.structs.replace(
            spec,
            pods=scale_up.pods[:MOST_PODS],
            awaited=awaited,
            more_awaited=more_awaited,
            replacement=scale_up.replacement,
            reason=reason,
            **_price(state, group, example),
        ),
        OperationStatus(data=data, due_at=state.now, updated_at=state.now),
    )


def _removal(
    state: ClusterState, removal: Removal, plan: str, replacement: Replacement | None
) -> Operation:
    """Return one operation per node, so that a stuck drain does not block other removals."""
    group = state.groups[removal.group]
    node, target = _target(group, removal.node, removal.evict)
    size, names = group.target - group.leaving, (removal.node,)
    spec = _spec(state, removal.group, OperationKind.DELETE_NODES, (size, size - 1), names, plan)
    data = {UID: node.uid} if node.uid else {}
    if replacement is not None:
        data[REPLACED_BY] = ",".join(replacement.new_nodes[:MOST_NAMES])
        data |= (
            {SAVES: str(replacement.price - replacement.cost)} if _is_single(replacement) else {}
        )
    after = (
        tuple(purchase.operation for purchase in replacement.purchases)
        if replacement is not None
        else ()
    )
    reason = "" if removal.reason is DisruptionReason.UNNEEDED else removal.reason.value
    spec = msgspec.structs.replace(
        spec, after=after, reason=reason, replacement=removal.replacement
    )
    if spec.interrupted:  # waits for nothing
        spec = msgspec.structs.replace(spec, after=(), leaves_at=removal.leaves_at)
        spec = msgspec.structs.replace(spec, deadline=interruption_deadline(spec))
        data |= (
            {SIGNAL: state.announced[removal.node].signal}
            if removal.node in state.announced
            else {}
        )
    return Operation(
        msgspec.structs.replace(spec, targets=(target,), **_price(state, group, node)),
        OperationStatus(data=data, due_at=state.now, updated_at=state.now),
    )


def _restart(state: ClusterState, restart: Restart, plan: str) -> Operation:
    """Return the operation that restarts a node; it changes no size."""
    group = state.groups[restart.group]
    node, target = _target(group, restart.node, restart.evict)
    spec = _spec(state, restart.group, OperationKind.RESTART_NODE, (0, 0), (restart.node,), plan)
    own = group.group.options.max_node_startup_time
    data = {UID: node.uid} if node.uid else {}
    data |= {} if own is None else {STARTUP: str(own)}
    return Operation(
        msgspec.structs.replace(spec, targets=(target,), reason=DisruptionReason.REPAIR.value),
        OperationStatus(data=data, due_at=state.now, updated_at=state.now),
    )


def _target(group: NodeGroupState, name: str, evict: tuple[str, ...]) -> tuple[Node, RemovalTarget]:
    """Return a node of the group, and what identifies its machine for an
    executor and for the provider."""
    node = next(node for node in group.nodes if node.name == name)
    instance = next(
        (i for i in group.group.instances if i.node == name or i.id == node.provider_id), None
    )
    handle = instance.handle if instance else ""
    return node, RemovalTarget(node=name, instance=node.provider_id, handle=handle, evict=evict)


def _is_single(replacement: Replacement) -> bool:
    """Return whether one node is replaced, so that its removal brings all
    that the replacement saves."""
    return len(replacement.nodes) + len(replacement.gone) == 1


def _price(state: ClusterState, group: NodeGroupState, node: Node | None) -> dict[str, Any]:
    """Return the price of one node and its currency, as fields of a spec;
    nothing where it is unknown."""
    book = price_book(
        state.policy.prices, state.snapshot.groups, state.now, spot=state.policy.spot is not None
    )
    price = book.paid(node, group.group) if node is not None else None
    return (
        {"price": price.amount, "currency": price.currency}
        if price is not None and price.amount
        else {}
    )


def _repair(state: ClusterState, repair: Repair, plan: str) -> Operation:
    """Return one operation per group. A deleted instance is identified by its handle, under the
    name of the node that it never became."""
    sizes = repair.from_size, repair.to_size
    spec = _spec(state, repair.group, OperationKind(repair.kind), sizes, repair.instances, plan)
    instances = {instance.id: instance for instance in state.groups[repair.group].group.instances}
    targets = tuple(
        RemovalTarget(node=instance.node, instance=instance.id, handle=instance.handle)
        for instance in map(instances.__getitem__, repair.instances)
    )
    return Operation(
        msgspec.structs.replace(spec, targets=targets),
        OperationStatus(due_at=state.now, updated_at=state.now),
    )


def _spec(
    state: ClusterState,
    group_id: str,
    kind: OperationKind,
    sizes: tuple[int, int],
    names: tuple[str, ...],
    plan: str,
) -> OperationSpec:
    """Return what all kinds have in common. sizes: of the group, before and after. names: of
    what is deleted, for the operation's id. The pool is for the executors: only one group may
    change its total at a time."""
    cluster, group = state.snapshot.cluster, state.groups[group_id].group
    return OperationSpec(
        id=operation_id(cluster, group_id, kind, *sizes, names, plan),
        cluster=cluster,
        provider=group.provider,
        group=group_id,
        kind=kind,
        plan=plan,
        created_at=state.now,
        from_size=sizes[0],
        to_size=sizes[1],
        deadline=state.now + operation_timeout(kind, state.options),
        pool=group.pool.id if group.pool is not None else "",
    )


def _warnings(state: ClusterState) -> Iterator[Reason]:
    """Return what a cluster should not have, because it stops or misleads an autoscaler:
    AVOID_TAINT per node, AVOID_ANNOTATION per pod of a DaemonSet, POOL_UNKNOWN per name,
    NEW_NODES_LACK and TEMPLATE_OUTDATED per group, and BAD_PROTECTION per pod where nodes are
    consolidated, at most MOST_WARNINGS of each. Cluster Autoscaler supports the first two, and the
    planner obeys them in the same way."""
    tainted = (
        Reason.of(ReasonCode.AVOID_TAINT, node=node.name, taint=taint)
        for node in state.snapshot.nodes
        if (
            taint := next(
                (taint.key for taint in node.taints if taint.key.startswith(IGNORE_TAINT)), None
            )
        )
        is not None
    )
    yield from islice(tainted, MOST_WARNINGS)
    # Values of annotations are set per pod, so pods are scanned only if a class has one of them.
    classes = state.snapshot.classes
    marked = {at for at, cls in enumerate(classes) if cls.enable_ds_eviction and cls.is_daemonset}
    for pod in _first_pods(state, marked):
        yield Reason.of(ReasonCode.AVOID_ANNOTATION, pod=pod.key)
    yield from islice(unknown_pools(state), MOST_WARNINGS)
    known = {name: group.memory for name, group in state.groups.items()}
    yield from islice(undelivered_notes(known, state.now), MOST_WARNINGS)
    outdated = (
        Reason.of(
            ReasonCode.TEMPLATE_OUTDATED, group=name, differences=", ".join(group.template.outdated)
        )
        for name, group in sorted(state.groups.items())
        if group.template is not None and group.template.outdated
    )
    yield from islice(outdated, MOST_WARNINGS)
    if state.policy.consolidation.mode is ConsolidationMode.OFF:
        return
    invalid = {
        at
        for at, cls in enumerate(classes)
        if cls.do_not_disrupt not in {"", "false"} and protected_time(cls.do_not_disrupt) is None
    }
    for pod in _first_pods(state, invalid):
        yield Reason.of(
            ReasonCode.BAD_PROTECTION,
            pod=pod.key,
            value=classes[pod.cls].do_not_disrupt[:MOST_SHOWN],
        )


def _first_pods(state: ClusterState, classes: Set[int]) -> list[Pod]:
    """Return the first MOST_WARNINGS pods of some classes, by name."""
    pods = (
        sorted((pod for pod in state.snapshot.pods if pod.cls in classes), key=attrgetter("key"))
        if classes
        else []
    )
    return pods[:MOST_WARNINGS]
