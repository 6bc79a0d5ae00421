"""Builds the plan with its verdicts, and the operations that carry it out.

Operation ids are derived from their content (model/operation.py), so that a repeated pass creates the same operations.
"""

from __future__ import annotations

import hashlib
from collections import Counter

import msgspec

from chalicelib.model.operation import (
    UID,
    Operation,
    OperationKind,
    OperationSpec,
    OperationStatus,
    RemovalTarget,
    operation_id,
)
from chalicelib.model.plan import GroupVerdict, Plan, Removal, Repair, ScaleUp
from chalicelib.model.timeouts import LARGEST, PROVISION, operation_timeout
from chalicelib.plan import cluster_warnings
from chalicelib.plan.repair import compatible, kept, targets
from chalicelib.plan.scale_down.planner import ScaleDownPlan
from chalicelib.plan.scale_up.planner import ScaleUpPlan
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pending_pods import PendingPods

_PODS_NAMED = 50


def build_plan(
    state: ClusterState,
    pending: PendingPods,
    scale_up: ScaleUpPlan,
    scale_down: ScaleDownPlan,
    repairs: tuple[Repair, ...],
    seed: int,
) -> Plan:
    """Return the whole plan. repairs: what plan/repair.py found; repairs that conflict with the rest wait for a later
    pass."""
    repairs = compatible(repairs, (up.group for up in scale_up.scale_ups), (gone.group for gone in scale_down.removals))
    name = _plan_id(state, scale_up, scale_down, repairs, seed)
    operations = [_grow(state, grown, name) for grown in scale_up.scale_ups]
    operations += [_remove(state, removal, name) for removal in scale_down.removals]
    operations += [_repair(state, each, name) for each in repairs]
    return Plan(
        id=name,
        cluster=state.snapshot.cluster,
        at=state.now,
        scale_ups=scale_up.scale_ups,
        unschedulable=tuple(sorted(scale_up.unschedulable, key=lambda v: v.pods)),
        fits_existing=tuple(sorted(scale_up.fits)),
        promises=scale_up.promises,
        notes=(*scale_up.notes, *cluster_warnings.notes(state), *kept(state)),
        ignored=tuple(sorted(pending.ignored, key=lambda i: (i.reason.code, i.pods))),
        removals=scale_down.removals,
        repairs=repairs,
        marks=scale_down.marks,
        paused=scale_down.paused,
        unneeded=scale_down.unneeded,
        unremovable=scale_down.unremovable,
        groups=_groups(state, scale_up, scale_down),
        operations=tuple(operations),
        rules=scale_up.rule_results.verdicts,
        headroom=scale_up.headroom.verdicts,
        health=state.health,
        gaps=state.snapshot.gaps,
    )


def _groups(state: ClusterState, scale_up: ScaleUpPlan, scale_down: ScaleDownPlan) -> tuple[GroupVerdict, ...]:
    """Return the groups' verdicts, with the number of their unneeded nodes."""
    unneeded = Counter(state.group_of.get(node, "") for node in scale_down.unneeded)
    return tuple(msgspec.structs.replace(group, candidates=unneeded[group.group]) for group in scale_up.groups)


def _plan_id(
    state: ClusterState, scale_up: ScaleUpPlan, scale_down: ScaleDownPlan, repairs: tuple[Repair, ...], seed: int
) -> str:
    what = [state.snapshot.cluster, state.now, seed, scale_up.scale_ups, scale_down.removals, repairs]
    return f"plan-{hashlib.sha256(msgspec.json.encode(what, order='deterministic')).hexdigest()[:16]}"


def _grow(state: ClusterState, scale_up: ScaleUp, plan: str) -> Operation:
    cluster, now = state.snapshot.cluster, state.now
    own = state.groups[scale_up.group].group.options.max_node_provision_time
    spec = OperationSpec(
        id=operation_id(
            cluster, scale_up.group, OperationKind.SCALE_UP, scale_up.from_size, scale_up.to_size, (), plan
        ),
        cluster=cluster,
        provider=scale_up.provider,
        group=scale_up.group,
        kind=OperationKind.SCALE_UP,
        plan=plan,
        created_at=now,
        from_size=scale_up.from_size,
        to_size=scale_up.to_size,
        pods=scale_up.pods[:_PODS_NAMED],
        deadline=now + operation_timeout(OperationKind.SCALE_UP, state.options),
        pool=_pool(state, scale_up.group),
    )
    data = {LARGEST: str(scale_up.max), **({} if own is None else {PROVISION: str(own)})}
    return Operation(spec, OperationStatus(data=data, due_at=now, updated_at=now))


def _remove(state: ClusterState, removal: Removal, plan: str) -> Operation:
    """Return one operation per node, so that a stuck drain does not block other removals."""
    cluster, now = state.snapshot.cluster, state.now
    facts = state.groups[removal.group]
    node = next(node for node in facts.nodes if node.name == removal.node)
    instance = next((i for i in facts.group.instances if i.node == node.name or i.id == node.provider_id), None)
    size = facts.target - facts.leaving
    spec = OperationSpec(
        id=operation_id(cluster, removal.group, OperationKind.DELETE_NODES, size, size - 1, (removal.node,), plan),
        cluster=cluster,
        provider=facts.group.provider,
        group=removal.group,
        kind=OperationKind.DELETE_NODES,
        plan=plan,
        created_at=now,
        from_size=size,
        to_size=size - 1,
        deadline=now + operation_timeout(OperationKind.DELETE_NODES, state.options),
        targets=(
            RemovalTarget(
                node=removal.node,
                instance=node.provider_id,
                handle=instance.handle if instance else "",
                evict=removal.evict,
            ),
        ),
        pool=_pool(state, removal.group),
    )
    return Operation(spec, OperationStatus(data={UID: node.uid} if node.uid else {}, due_at=now, updated_at=now))


def _repair(state: ClusterState, repair: Repair, plan: str) -> Operation:
    """Return one operation per group. A deleted instance is identified by its handle, under the name of the node that
    it never became."""
    cluster, now, kind = state.snapshot.cluster, state.now, OperationKind(repair.kind)
    facts = state.groups[repair.group]
    spec = OperationSpec(
        id=operation_id(cluster, repair.group, kind, repair.from_size, repair.to_size, repair.instances, plan),
        cluster=cluster,
        provider=facts.group.provider,
        group=repair.group,
        kind=kind,
        plan=plan,
        created_at=now,
        from_size=repair.from_size,
        to_size=repair.to_size,
        deadline=now + operation_timeout(kind, state.options),
        pool=_pool(state, repair.group),
        targets=tuple(
            RemovalTarget(node=each.node, instance=each.id, handle=each.handle) for each in targets(facts, repair)
        ),
    )
    return Operation(spec, OperationStatus(due_at=now, updated_at=now))


def _pool(state: ClusterState, group: str) -> str:
    """Return the pool that a group shares with others, for the executors: only one group may change the pool's total at
    a time."""
    pool = state.groups[group].group.pool
    return pool.id if pool is not None else ""
