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

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import Replacement
from chalicelib.model.node import Node
from chalicelib.model.operation import (
    MOST_NAMES,
    MOST_PODS,
    OPENS,
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
from chalicelib.model.plan import GroupClosing, Plan, Removal, Repair, Restart, ScaleUp
from chalicelib.model.pod import Pod
from chalicelib.model.purchases import awaited_pods
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.demand.pending_pods import PendingPods
from chalicelib.plan.group_closings import plan_closings
from chalicelib.plan.group_repair import compatible, kept
from chalicelib.plan.removal.consolidation.eligibility import protected_time
from chalicelib.plan.removal.node_disruption_budgets import unknown_pools
from chalicelib.plan.removal.removal_planner import DisruptionPlan
from chalicelib.plan.removal.replacement_rows import ended_rows
from chalicelib.plan.scale_up.scale_up_planner import ScaleUpPlan
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.undelivered import undelivered_notes
from chalicelib.policy.settings.consolidation import ConsolidationMode
from chalicelib.policy.timeouts import (
    LARGEST,
    PROVISION,
    STARTUP,
    interruption_deadline,
    operation_timeout,
)

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
    """Return the whole plan. repairs: of plan/group_repair.py; those that conflict with the rest
    wait for a later pass."""
    scale_ups = (*scale_up.scale_ups, *disruption.purchases)
    grown = (growth.group for growth in scale_ups)
    shrunk = (removal.group for removal in disruption.removals)
    repairs = compatible(repairs, grown, shrunk)
    closings = plan_closings(state, scale_ups)
    name = _plan_id(state, scale_up, disruption, repairs, seed, closings)
    operations = tuple(_operations(state, pending, scale_ups, disruption, repairs, name))
    operations = _after_closings(state, operations, closings, name)
    unschedulable = sorted(scale_up.unschedulable, key=attrgetter("pods"))
    ignored = sorted(pending.ignored, key=lambda pods: (pods.reason.code, pods.pods))
    candidates = Counter(state.group_of.get(node, "") for node in disruption.unneeded)
    groups = [
        msgspec.structs.replace(group, candidates=candidates[group.group])
        for group in scale_up.groups
    ]
    return Plan(
        id=name,
        cluster=state.snapshot.cluster,
        at=state.now,
        scale_ups=scale_ups,
        unschedulable=tuple(unschedulable),
        fits_existing=tuple(sorted(scale_up.fits)),
        promises=scale_up.promises,
        notes=(*pending.notes, *scale_up.notes, *disruption.notes, *_warnings(state), *kept(state)),
        ignored=tuple(ignored),
        removals=disruption.removals,
        repairs=repairs,
        restarts=disruption.restarts,
        marks=disruption.taints,
        paused=disruption.paused,
        unneeded=disruption.unneeded,
        unremovable=disruption.unremovable,
        groups=tuple(groups),
        operations=operations,
        closings=closings,
        rules=scale_up.rule_results.verdicts,
        headroom=scale_up.headroom.verdicts,
        health=state.health,
        gaps=state.snapshot.gaps,
        consolidation=disruption.report,
        lifecycle=disruption.lifecycle,
        ended_replacements=ended_rows(state.memory.replacements, disruption.replacements),
    )


def _operations(
    state: ClusterState,
    pending: PendingPods,
    scale_ups: tuple[ScaleUp, ...],
    disruption: DisruptionPlan,
    repairs: tuple[Repair, ...],
    plan: str,
) -> Iterator[Operation]:
    """Yield what carries the plan out, in the order in which it is stored. plan: its id."""
    replacements = disruption.replacements
    class_of: dict[str, int] = {}
    if scale_ups:
        class_of = {pod.key: batch.cls for batch in pending.queue for pod in batch.pods}
    for growth in scale_ups:
        yield _growth(state, growth, plan, replacements.get(growth.replacement), class_of)
    for removal in disruption.removals:
        yield _removal(state, removal, plan, replacements.get(removal.replacement))
    for repair in repairs:
        yield _repair(state, repair, plan)
    for restart in disruption.restarts:
        yield _restart(state, restart, plan)


def _after_closings(
    state: ClusterState,
    operations: tuple[Operation, ...],
    closings: tuple[GroupClosing, ...],
    plan: str,
) -> tuple[Operation, ...]:
    """Return the operations with those that delete groups first; what opens a group in their place
    waits for them."""
    before: dict[str, tuple[str, ...]] = {}  # group -> operations that must have succeeded
    removals = []
    for closing in closings:
        spec = _spec(state, closing.group, OperationKind.REMOVE_GROUP, (0, 0), (), plan)
        removals.append(_planned(spec, {}, state.now))
        for group in closing.makes_room_for:
            before[group] = (*before.get(group, ()), spec.id)
    waiting = [
        operation.with_spec(after=(*operation.spec.after, *before[operation.spec.group]))
        if operation.spec.kind is OperationKind.SCALE_UP and operation.spec.group in before
        else operation
        for operation in operations
    ]
    return (*removals, *waiting)


def _plan_id(
    state: ClusterState,
    scale_up: ScaleUpPlan,
    disruption: DisruptionPlan,
    repairs: tuple[Repair, ...],
    seed: int,
    closings: tuple[GroupClosing, ...],
) -> str:
    content: list[Any] = [
        state.snapshot.cluster,
        state.now,
        seed,
        scale_up.scale_ups,
        disruption.removals,
        repairs,
    ]
    if disruption.purchases:
        content.append(disruption.purchases)
    if disruption.restarts:
        content.append(disruption.restarts)
    if closings:
        content.append(closings)
    encoded = msgspec.json.encode(content, order="deterministic")
    digest = hashlib.sha256(encoded).hexdigest()
    return f"plan-{digest[:16]}"


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
    sizes = scale_up.from_size, scale_up.to_size
    spec = _spec(state, scale_up.group, OperationKind.SCALE_UP, sizes, (), plan)
    data = {LARGEST: str(scale_up.max)}
    own_timeout = group.group.options.max_node_provision_time
    if own_timeout is not None:
        data[PROVISION] = str(own_timeout)
    if scale_up.opens and scale_up.choice is not None:
        data[OPENS] = scale_up.choice.machine
    reason = ""
    if replacement is not None:
        data[REPLACES] = ",".join(replacement.nodes[:MOST_NAMES])
        if replacement.reason is not DisruptionReason.CONSOLIDATION:
            reason = replacement.reason.value
    waiting = Counter(class_of[pod] for pod in scale_up.pods if pod in class_of)
    awaited, more_awaited = awaited_pods(waiting, state.snapshot.classes)
    example = group.template.node if group.template is not None else next(iter(group.nodes), None)
    spec = msgspec.structs.replace(
        spec,
        pods=scale_up.pods[:MOST_PODS],
        awaited=awaited,
        more_awaited=more_awaited,
        replacement=scale_up.replacement,
        reason=reason,
        **_price(state, group, example),
    )
    return _planned(spec, data, state.now)


def _removal(
    state: ClusterState, removal: Removal, plan: str, replacement: Replacement | None
) -> Operation:
    """Return one operation per node, so that a stuck drain does not block other removals."""
    group = state.groups[removal.group]
    node, target = _target(group, removal.node, removal.evict)
    size = group.target - group.leaving
    sizes = size, size - 1
    spec = _spec(state, removal.group, OperationKind.DELETE_NODES, sizes, (removal.node,), plan)
    data = {UID: node.uid} if node.uid else {}
    after: tuple[str, ...] = ()
    if replacement is not None:
        data[REPLACED_BY] = ",".join(replacement.new_nodes[:MOST_NAMES])
        if _is_single(replacement):
            data[SAVES] = str(replacement.price - replacement.cost)
        after = tuple(purchase.operation for purchase in replacement.purchases)
    reason = ""
    if removal.reason is not DisruptionReason.UNNEEDED:
        reason = removal.reason.value
    spec = msgspec.structs.replace(
        spec, after=after, reason=reason, replacement=removal.replacement
    )
    if spec.interrupted:  # waits for nothing
        spec = msgspec.structs.replace(spec, after=(), leaves_at=removal.leaves_at)
        spec = msgspec.structs.replace(spec, deadline=interruption_deadline(spec))
        if removal.node in state.announced:
            data[SIGNAL] = state.announced[removal.node].signal
    price = _price(state, group, node)
    spec = msgspec.structs.replace(spec, targets=(target,), **price)
    return _planned(spec, data, state.now)


def _restart(state: ClusterState, restart: Restart, plan: str) -> Operation:
    """Return the operation that restarts a node; it changes no size."""
    group = state.groups[restart.group]
    node, target = _target(group, restart.node, restart.evict)
    spec = _spec(state, restart.group, OperationKind.RESTART_NODE, (0, 0), (restart.node,), plan)
    data = {UID: node.uid} if node.uid else {}
    own_timeout = group.group.options.max_node_startup_time
    if own_timeout is not None:
        data[STARTUP] = str(own_timeout)
    reason = DisruptionReason.REPAIR.value
    spec = msgspec.structs.replace(spec, targets=(target,), reason=reason)
    return _planned(spec, data, state.now)


def _planned(spec: OperationSpec, data: dict[str, str], now: float) -> Operation:
    """Return an operation that nobody has begun yet."""
    status = OperationStatus(data=data, due_at=now, updated_at=now)
    return Operation(spec, status)


def _target(group: NodeGroupState, name: str, evict: tuple[str, ...]) -> tuple[Node, RemovalTarget]:
    """Return a node of the group, and what identifies its machine for an
    executor and for the provider."""
    node = next(node for node in group.nodes if node.name == name)
    handles = (
        instance.handle
        for instance in group.group.instances
        if instance.node == name or instance.id == node.provider_id
    )
    handle = next(handles, "")
    return node, RemovalTarget(node=name, instance=node.provider_id, handle=handle, evict=evict)


def _is_single(replacement: Replacement) -> bool:
    """Return whether one node is replaced, so that its removal brings all
    that the replacement saves."""
    return len(replacement.nodes) + len(replacement.gone) == 1


def _price(state: ClusterState, group: NodeGroupState, node: Node | None) -> dict[str, Any]:
    """Return the price of one node and its currency, as fields of a spec;
    nothing where it is unknown."""
    if node is None:
        return {}
    price = state.prices.paid(node, group.group)
    if price is None or not price.amount:
        return {}
    return {"price": price.amount, "currency": price.currency}


def _repair(state: ClusterState, repair: Repair, plan: str) -> Operation:
    """Return one operation per group. A deleted instance is identified by its handle, under the
    name of the node that it never became."""
    kind = OperationKind(repair.kind)
    sizes = repair.from_size, repair.to_size
    spec = _spec(state, repair.group, kind, sizes, repair.instances, plan)
    group = state.groups[repair.group].group
    instances = {instance.id: instance for instance in group.instances}
    targets = tuple(
        RemovalTarget(node=instance.node, instance=instance.id, handle=instance.handle)
        for instance in map(instances.__getitem__, repair.instances)
    )
    spec = msgspec.structs.replace(spec, targets=targets)
    return _planned(spec, {}, state.now)


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
    cluster = state.snapshot.cluster
    group = state.groups[group_id].group
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
        pool=group.pool.id if group.pool is not None and group.managed is None else "",
        choice=group.managed.choice if group.managed is not None else None,
    )


def _warnings(state: ClusterState) -> Iterator[Reason]:
    """Return what a cluster should not have, because it stops or misleads an autoscaler:
    AVOID_TAINT per node, AVOID_ANNOTATION per pod of a DaemonSet, POOL_UNKNOWN per name,
    NEW_NODES_LACK and TEMPLATE_OUTDATED per group, and BAD_PROTECTION per pod where nodes are
    consolidated, at most MOST_WARNINGS of each. Cluster Autoscaler supports the first two, and the
    planner obeys them in the same way."""
    memories = {name: group.memory for name, group in state.groups.items()}
    kinds = (
        _avoided_taints(state),
        _avoided_annotations(state),
        unknown_pools(state),
        undelivered_notes(memories, state.now),
        _outdated_templates(state),
        _bad_protections(state),
    )
    for warnings in kinds:
        yield from islice(warnings, MOST_WARNINGS)


def _avoided_taints(state: ClusterState) -> Iterator[Reason]:
    for node in state.snapshot.nodes:
        keys = (taint.key for taint in node.taints)
        avoided = next((key for key in keys if key.startswith(IGNORE_TAINT)), None)
        if avoided is not None:
            yield Reason.of(ReasonCode.AVOID_TAINT, node=node.name, taint=avoided)


def _avoided_annotations(state: ClusterState) -> Iterator[Reason]:
    classes = enumerate(state.snapshot.classes)
    marked = {at for at, cls in classes if cls.enable_ds_eviction and cls.is_daemonset}
    for pod in _pods_of(state, marked):
        yield Reason.of(ReasonCode.AVOID_ANNOTATION, pod=pod.key)


def _outdated_templates(state: ClusterState) -> Iterator[Reason]:
    for name, group in sorted(state.groups.items()):
        outdated = group.template.outdated if group.template is not None else ()
        if outdated:
            differences = ", ".join(outdated)
            yield Reason.of(ReasonCode.TEMPLATE_OUTDATED, group=name, differences=differences)


def _bad_protections(state: ClusterState) -> Iterator[Reason]:
    if state.policy.consolidation.mode is ConsolidationMode.OFF:
        return
    values = [cls.do_not_disrupt for cls in state.snapshot.classes]
    stated = {at: value for at, value in enumerate(values) if value not in {"", "false"}}
    invalid = {at for at, value in stated.items() if protected_time(value) is None}
    for pod in _pods_of(state, invalid):
        value = values[pod.cls][:MOST_SHOWN]
        yield Reason.of(ReasonCode.BAD_PROTECTION, pod=pod.key, value=value)


def _pods_of(state: ClusterState, classes: Set[int]) -> list[Pod]:
    """Return the pods of some classes, by name. Values of annotations are set per pod, so pods
    are scanned only if a class has one of them."""
    if not classes:
        return []
    pods = [pod for pod in state.snapshot.pods if pod.cls in classes]
    return sorted(pods, key=attrgetter("key"))
