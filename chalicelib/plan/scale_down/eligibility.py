"""Checks scale-down eligibility of a node before any simulation, with inexpensive rules in Cluster Autoscaler's
order."""

from __future__ import annotations

from chalicelib.model.memory import NodeMemory
from chalicelib.model.node import SCALE_DOWN_DISABLED, Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_down.utilization import Usage
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.pools import at_minimum, spares
from chalicelib.plan.state.readiness import Bucket


def ineligibility_reason(node: Node, node_memory: NodeMemory, state: ClusterState, usage: Usage) -> Reason | None:
    """Return why a node is not a removal candidate, None if it is one."""
    options, bucket = state.options, state.buckets[node.name]
    facts = state.groups.get(state.group_of.get(node.name, ""))
    checks: tuple[tuple[bool, Reason], ...] = (
        (node.name in state.leaving or bucket is Bucket.DELETED, Reason.of(ReasonCode.BEING_DELETED)),
        (
            state.now < node_memory.unremovable_until <= state.now + options.unremovable_node_recheck_timeout,
            _recently(node_memory),
        ),
        (node.annotations.get(SCALE_DOWN_DISABLED) == "true", Reason.of(ReasonCode.SCALE_DOWN_DISABLED_ANNOTATION)),
        (facts is None, Reason.of(ReasonCode.NOT_AUTOSCALED)),
        (bucket is Bucket.NOT_STARTED, Reason.of(ReasonCode.NOT_STARTED)),
        (
            bucket is not Bucket.READY and not options.scale_down_unready_enabled,
            Reason.of(ReasonCode.SCALE_DOWN_UNREADY_DISABLED),
        ),
    )
    if node.name in state.contested:
        return state.contested[node.name]
    if facts is not None and facts.frozen is not None and node.name not in state.leaving:
        return facts.frozen
    failed = next((reason for fails, reason in checks if fails), None)
    return failed if failed is not None or facts is None else _of_group(node, facts, state, usage)


def _recently(node_memory: NodeMemory) -> Reason:
    """Return the reason that an earlier pass recorded, so that the verdict still names the original cause."""
    why = node_memory.why
    was = {"was": why.code.value, **why.params} if why is not None else {}
    return Reason(ReasonCode.RECENTLY_UNREMOVABLE, {"until": node_memory.unremovable_until, **was})


def _of_group(node: Node, facts: NodeGroupState, state: ClusterState, usage: Usage) -> Reason | None:
    group, options = facts.group, state.options
    if held := group.error or group.scale_down_held or facts.held_back(node):
        return Reason.of(ReasonCode.UNEXPECTED, detail=held)
    if facts.target - facts.leaving <= group.min:
        return Reason.of(ReasonCode.GROUP_MIN_SIZE, min=group.min, target=facts.target - facts.leaving)
    if group.pool is not None and group.pool.min > 0:
        beside = {
            each.id: each
            for each in state.groups.values()
            if each.group.pool is not None and each.group.pool.id == group.pool.id
        }
        if full := at_minimum(group, spares(beside, lambda each: each.target - each.leaving)):
            return full
    own = group.options
    ignore = options.ignore_daemonsets_utilization
    used = usage.of(
        node,
        ignore_daemonsets=(ignore if own.ignore_daemonsets_utilization is None else own.ignore_daemonsets_utilization),
    )
    if used is None:
        return Reason.of(ReasonCode.UNEXPECTED, detail="node has no allocatable cpu or memory")
    mine, default = (
        (own.scale_down_gpu_utilization_threshold, options.scale_down_gpu_utilization_threshold)
        if used.gpu
        else (own.scale_down_utilization_threshold, options.scale_down_utilization_threshold)
    )
    threshold = default if mine is None else mine
    if used.share > threshold:
        return Reason.of(
            ReasonCode.NOT_UNDERUTILIZED, resource=used.resource, utilization=round(used.share, 4), threshold=threshold
        )
    return None
