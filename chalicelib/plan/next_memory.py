"""Builds the next memory: merges what this pass observed with what was known.

It contains sizes, size mismatches, instances seen without a node and templates learned from real
nodes, with scale-up requests and back-off as judged by plan/state/scale_up_requests.py. What a pass
could not check is kept. See docs/reference/node-groups.md "State across passes".
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chalicelib.model.memory import (
    ConsolidationMemory,
    DrainedOwner,
    GroupMemory,
    InterruptionRisk,
    LearntTemplate,
    Memory,
    NodeMemory,
    PurchaseAttempts,
    ScaleUpRequest,
)
from chalicelib.model.operation import Operation
from chalicelib.model.policy import ConsolidationMode
from chalicelib.model.purchases import with_planned_pods
from chalicelib.plan.removal.bought_back import next_drains
from chalicelib.plan.removal.methods.unneeded import paused_timer
from chalicelib.plan.removal.removal_planner import DisruptionPlan
from chalicelib.plan.removal.replacement_rows import with_operations
from chalicelib.plan.repair import wrong_size
from chalicelib.plan.scale_up.scale_up_planner import ScaleUpPlan
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.due_nodes import RESTARTED_FOR
from chalicelib.plan.state.node_templates import learn, stated_template
from chalicelib.plan.state.purchase_attempts import with_purchases
from chalicelib.plan.state.spot_market import is_fallback, next_fallback, next_risk

_FAILED = 10_800.0  # seconds after which a node's failed removals are forgotten
_KEPT = 86_400.0  # seconds for which an instance is kept whose group is no longer seen


NOTHING = Memory().consolidation
"""msgspec omits a default by its identity."""
MOST_OWNERS = 5_000
"""Owners of pods whose moves are remembered; those whose pods were moved last."""
_DAY = 86_400.0


def next_memory(
    state: ClusterState,
    scale_up: ScaleUpPlan,
    disruption: DisruptionPlan,
    operations: Sequence[Operation] = (),
) -> Memory:
    """Return the memory for the next pass. scale_up: the result of scaling rules.
    disruption: the scale-down verdict of each judged node, and the circuit breaker.
    operations: new ones of the plan."""
    memory, now = state.memory, state.now
    templates: dict[str, LearntTemplate] = {}
    for group in state.groups.values():
        model = group.template.model if group.template is not None else None
        known, stated = memory.templates.get(group.id), stated_template(group.group, state.options)
        learnt = learn(model, known, now, state.options, state.node_labels, stated)
        if learnt is not None:
            templates[group.id] = _with_storage(learnt, group)
    # What is known of a group that could not be read stays.
    unread_groups = {
        name: group for name, group in memory.groups.items() if name not in state.groups
    }
    unread_templates = {
        name: template for name, template in memory.templates.items() if name not in state.groups
    }
    drains = next_drains(state, scale_up.scale_ups, disruption.removals)
    nodes = {**_paused(state, disruption), **disruption.memory}
    nodes |= {
        name: msgspec.structs.replace(nodes.get(name, NodeMemory()), fallback=True)
        for name in _fallback_nodes(state)
    }
    return msgspec.structs.replace(
        memory,
        groups=unread_groups
        | {
            group.id: _with_attempts(
                _with_spot(
                    _with_renewals(
                        _group(group, drains[group.id], state, scale_up), group, disruption
                    ),
                    group,
                    state,
                    scale_up,
                ),
                group,
                scale_up,
                disruption,
                now,
            )
            for group in state.groups.values()
        },
        nodes=dict(sorted(nodes.items())),
        unregistered=_unregistered(state),
        templates=unread_templates | templates,
        operations=tuple(op for op in memory.operations if op.is_open),
        first_seen=memory.first_seen or now,
        breaker=disruption.breaker,
        rules=scale_up.rule_results.memory,
        rule_objects=scale_up.rule_results.objects,
        replacements=with_operations(disruption.replacements, operations),
        consolidation=_consolidation(state, disruption),
    )


def _with_renewals(
    memory: GroupMemory, group: NodeGroupState, disruption: DisruptionPlan
) -> GroupMemory:
    """Return a group's next memory with its renewals, if this pass could judge them."""
    if disruption.renewals is None or group.group.error:
        return memory
    renewals = dict(disruption.renewals.get(group.id, {}))
    return (
        memory
        if renewals == memory.renewals
        else msgspec.structs.replace(memory, renewals=renewals)
    )


def _with_spot(
    memory: GroupMemory, group: NodeGroupState, state: ClusterState, scale_up: ScaleUpPlan
) -> GroupMemory:
    """Return a group's next memory with its interruptions and its purchases as a fallback.
    Without spec.spot no notice is remembered, so that none of now holds when spec.spot returns;
    the rest stays as it is."""
    if group.group.error:
        return memory
    if state.policy.spot is None:
        if memory.risk is None or not memory.risk.notices:
            return memory
        left: InterruptionRisk | None = msgspec.structs.replace(memory.risk, notices={})
        return msgspec.structs.replace(memory, risk=left if left != InterruptionRisk() else None)
    bought = [growth.group for growth in scale_up.scale_ups]
    risk, since = (
        next_risk(group, state),
        next_fallback(group, bought, scale_up.fallback, state.now),
    )
    memory = (
        memory
        if since == memory.fallback_since
        else msgspec.structs.replace(memory, fallback_since=since)
    )
    return memory if risk is memory.risk else msgspec.structs.replace(memory, risk=risk)


def _with_storage(learnt: LearntTemplate, group: NodeGroupState) -> LearntTemplate:
    """Return a group's learnt template with what a new node offers of storage
    that is published per node."""
    known = dict(group.learnt_storage)
    return (
        learnt
        if not known or known == learnt.capacities
        else msgspec.structs.replace(learnt, capacities=known)
    )


def _with_attempts(
    memory: GroupMemory,
    group: NodeGroupState,
    scale_up: ScaleUpPlan,
    disruption: DisruptionPlan,
    now: float,
) -> GroupMemory:
    """Return a group's next memory with what this pass buys for one of its zones."""
    attempts, classes = memory.attempts, scale_up.for_storage.get(group.id)
    for bought in (scale_up.for_zones.get(group.id), disruption.for_zones.get(group.id)):
        if bought:
            attempts = with_purchases(attempts, bought, group.nodes, now)
    if classes:
        attempts = attempts or PurchaseAttempts()
        attempts = msgspec.structs.replace(
            attempts, storage={**attempts.storage, **dict.fromkeys(classes, now)}
        )
    return (
        memory
        if attempts is memory.attempts
        else msgspec.structs.replace(memory, attempts=attempts)
    )


def _fallback_nodes(state: ClusterState) -> list[str]:
    """Return the nodes that were bought on demand because spot groups were not to be had."""
    if state.policy.spot is None:
        return []
    return [
        node.name
        for node in state.snapshot.nodes
        if is_fallback(node, state.groups.get(state.group_of.get(node.name, "")), state)
    ]


def _consolidation(state: ClusterState, disruption: DisruptionPlan) -> ConsolidationMemory:
    """Return what consolidation remembers: moves of one day, of a limited number of owners;
    nothing where it is off."""
    memory = disruption.consolidation or state.memory.consolidation
    if state.policy.consolidation.mode is ConsolidationMode.OFF or memory == NOTHING:
        return NOTHING
    moves = {
        owner: recent
        for owner, moves in memory.moves.items()
        if (recent := tuple(move for move in moves if abs(state.now - move[0]) < _DAY))
    }
    newest = sorted(moves, key=lambda owner: (-moves[owner][-1][0], owner))[:MOST_OWNERS]
    return msgspec.structs.replace(memory, moves={owner: moves[owner] for owner in sorted(newest)})


def _group(
    group: NodeGroupState,
    drained: dict[str, DrainedOwner],
    state: ClusterState,
    scale_up: ScaleUpPlan,
) -> GroupMemory:
    now = state.now
    if group.group.error:
        return group.memory
    since, pair = wrong_size(group, now)
    names = {node.name for node in group.nodes}
    failed = {
        name: removal
        for name, removal in group.memory.failed_removals.items()
        if name in names and abs(now - removal.until) < _FAILED
    }
    not_restarted = {
        name: planned
        for name, planned in group.memory.not_restarted.items()
        if name in names and abs(now - planned) < RESTARTED_FOR
    }
    return msgspec.structs.replace(
        group.memory,
        request=_request(group, state, scale_up),
        target=group.group.target,
        size_wrong_since=since,
        size_wrong=pair,
        failed_removals=failed,
        not_restarted=not_restarted,
        drained=drained,
        first_seen=group.memory.first_seen or now,
    )


def _request(
    group: NodeGroupState, state: ClusterState, scale_up: ScaleUpPlan
) -> ScaleUpRequest | None:
    """Return a group's request. Where further nodes are bought, the plan relies on
    where it placed all pods, so the nodes that were coming already are now coming for
    those that it placed there."""
    request, on_upcoming = group.memory.request, scale_up.on_upcoming.get(group.id)
    if request is None or on_upcoming is None:
        return request
    return with_planned_pods(request, on_upcoming, state.snapshot.classes)


def _all_read(state: ClusterState) -> bool:
    """Return whether every group that was ever seen was read in this pass."""
    readable = all(not group.group.error for group in state.groups.values())
    return readable and state.memory.groups.keys() <= state.groups.keys()


def _unregistered(state: ClusterState) -> dict[str, float]:
    """Return instance -> first seen without a node. An instance missing from all lists is gone
    if all lists were read; otherwise it is kept for a day. An instant from the future was
    written by a wrong clock."""
    before, now = state.memory.unregistered, state.now
    present = {
        i: min(before.get(i, now), now)
        for group in state.groups.values()
        for i in group.unregistered
    }
    if _all_read(state):
        return present
    listed = {instance.id for group in state.groups.values() for instance in group.group.instances}
    return {
        i: since for i, since in before.items() if i not in listed and now - since < _KEPT
    } | present


def _paused(state: ClusterState, disruption: DisruptionPlan) -> dict[str, NodeMemory]:
    """Return nodes that could not be judged, whose timers therefore pause: their group was not
    read, or their instance is missing from a list that is shorter than the vendor's own target."""
    groups = [group.group for group in state.groups.values()]
    short = any(
        len({instance.id for instance in group.instances}) < group.target for group in groups
    )
    if _all_read(state) and not short:
        return {}
    unjudged = {
        node.name: paused_timer(state.memory.nodes[node.name], state.now)
        for node in state.snapshot.nodes
        if node.name in state.memory.nodes
        and node.name not in state.group_of
        and node.name not in disruption.memory
    }
    return {name: memory for name, memory in unjudged.items() if memory is not None}
