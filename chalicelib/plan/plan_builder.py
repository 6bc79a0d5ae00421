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
    world: ClusterState,
    pending: PendingPods,
    growth: ScaleUpPlan,
    shrinkage: ScaleDownPlan,
    repairs: tuple[Repair, ...],
    seed: int,
) -> Plan:
    """Return the whole plan. repairs: what plan/repair.py found; repairs that conflict with the rest wait for a later
    pass."""
    repairs = compatible(repairs, (up.group for up in growth.scale_ups), (gone.group for gone in shrinkage.removals))
    name = _plan_id(world, growth, shrinkage, repairs, seed)
    operations = [_grow(world, scale_up, name) for scale_up in growth.scale_ups]
    operations += [_remove(world, removal, name) for removal in shrinkage.removals]
    operations += [_repair(world, each, name) for each in repairs]
    return Plan(
        id=name,
        cluster=world.snapshot.cluster,
        at=world.now,
        scale_ups=growth.scale_ups,
        unschedulable=tuple(sorted(growth.unschedulable, key=lambda v: v.pods)),
        fits_existing=tuple(sorted(growth.fits)),
        promises=growth.promises,
        notes=(*growth.notes, *cluster_warnings.notes(world), *kept(world)),
        ignored=tuple(sorted(pending.ignored, key=lambda i: (i.reason.code, i.pods))),
        removals=shrinkage.removals,
        repairs=repairs,
        marks=shrinkage.marks,
        paused=shrinkage.paused,
        unneeded=shrinkage.unneeded,
        unremovable=shrinkage.unremovable,
        groups=_groups(world, growth, shrinkage),
        operations=tuple(operations),
        rules=growth.rule_results.verdicts,
        headroom=growth.headroom.verdicts,
        health=world.health,
        gaps=world.snapshot.gaps,
    )


def _groups(world: ClusterState, growth: ScaleUpPlan, shrinkage: ScaleDownPlan) -> tuple[GroupVerdict, ...]:
    """Return the groups' verdicts, with the number of their unneeded nodes."""
    unneeded = Counter(world.group_of.get(node, "") for node in shrinkage.unneeded)
    return tuple(msgspec.structs.replace(group, candidates=unneeded[group.group]) for group in growth.groups)


def _plan_id(
    world: ClusterState, growth: ScaleUpPlan, shrinkage: ScaleDownPlan, repairs: tuple[Repair, ...], seed: int
) -> str:
    what = [world.snapshot.cluster, world.now, seed, growth.scale_ups, shrinkage.removals, repairs]
    return f"plan-{hashlib.sha256(msgspec.json.encode(what, order='deterministic')).hexdigest()[:16]}"


def _grow(world: ClusterState, scale_up: ScaleUp, plan: str) -> Operation:
    cluster, now = world.snapshot.cluster, world.now
    own = world.groups[scale_up.group].group.options.max_node_provision_time
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
        deadline=now + operation_timeout(OperationKind.SCALE_UP, world.options),
        pool=_pool(world, scale_up.group),
    )
    data = {LARGEST: str(scale_up.max), **({} if own is None else {PROVISION: str(own)})}
    return Operation(spec, OperationStatus(data=data, due_at=now, updated_at=now))


def _remove(world: ClusterState, removal: Removal, plan: str) -> Operation:
    """Return one operation per node, so that a stuck drain does not block other removals."""
    cluster, now = world.snapshot.cluster, world.now
    facts = world.groups[removal.group]
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
        deadline=now + operation_timeout(OperationKind.DELETE_NODES, world.options),
        targets=(
            RemovalTarget(
                node=removal.node,
                instance=node.provider_id,
                handle=instance.handle if instance else "",
                evict=removal.evict,
            ),
        ),
        pool=_pool(world, removal.group),
    )
    return Operation(spec, OperationStatus(data={UID: node.uid} if node.uid else {}, due_at=now, updated_at=now))


def _repair(world: ClusterState, found: Repair, plan: str) -> Operation:
    """Return one operation per group. A deleted instance is identified by its handle, under the name of the node that
    it never became."""
    cluster, now, kind = world.snapshot.cluster, world.now, OperationKind(found.kind)
    facts = world.groups[found.group]
    spec = OperationSpec(
        id=operation_id(cluster, found.group, kind, found.from_size, found.to_size, found.instances, plan),
        cluster=cluster,
        provider=facts.group.provider,
        group=found.group,
        kind=kind,
        plan=plan,
        created_at=now,
        from_size=found.from_size,
        to_size=found.to_size,
        deadline=now + operation_timeout(kind, world.options),
        pool=_pool(world, found.group),
        targets=tuple(
            RemovalTarget(node=each.node, instance=each.id, handle=each.handle) for each in targets(facts, found)
        ),
    )
    return Operation(spec, OperationStatus(due_at=now, updated_at=now))


def _pool(world: ClusterState, group: str) -> str:
    """Return the pool that a group shares with others, for the executors: only one group may change the pool's total at
    a time."""
    pool = world.groups[group].group.pool
    return pool.id if pool is not None else ""
