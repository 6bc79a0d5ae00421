"""Builds the next memory: merges what this pass observed with what was known.

It contains sizes, size mismatches, instances seen without a node and templates learned from real
nodes, with scale-up requests and back-off as judged by plan/state/scale_up_requests.py. What a pass
could not check is kept. See docs/reference/node-groups.md "State across passes".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from chalicelib.model.memory import (
    ConsolidationMemory,
    DrainedOwner,
    GroupMemory,
    InterruptionRisk,
    JoinStatistics,
    LearntTemplate,
    Memory,
    NodeMemory,
    PurchaseAttempts,
    ScaleUpRequest,
)
from chalicelib.model.operation import Operation
from chalicelib.model.purchases import with_planned_pods
from chalicelib.plan.group_repair import wrong_size
from chalicelib.plan.removal.bought_back import next_drains
from chalicelib.plan.removal.methods.unneeded import paused_timer
from chalicelib.plan.removal.removal_planner import DisruptionPlan
from chalicelib.plan.removal.replacement_rows import with_operations
from chalicelib.plan.scale_up.scale_up_planner import ScaleUpPlan
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.empty_groups import with_emptiness
from chalicelib.plan.state.managed_groups import is_candidate
from chalicelib.plan.state.node_templates import learn, stated_template
from chalicelib.plan.state.purchase_attempts import with_purchases
from chalicelib.plan.state.sick_old_drifted_nodes import RESTARTED_FOR
from chalicelib.plan.state.spot_market import is_fallback, next_fallback, next_risk
from chalicelib.policy.settings.consolidation import ConsolidationMode

_FAILED = 10_800.0  # seconds after which a node's failed removals are forgotten
_KEPT = 86_400.0  # seconds for which an instance is kept whose group is no longer seen


_BLANK = GroupMemory()
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
    memory = state.memory
    nodes = {**_paused(state, disruption), **disruption.memory}
    for name in _fallback_nodes(state):
        node = nodes.get(name, NodeMemory())
        nodes[name] = msgspec.structs.replace(node, fallback=True)
    return msgspec.structs.replace(
        memory,
        groups=_groups(state, scale_up, disruption),
        nodes=dict(sorted(nodes.items())),
        unregistered=_unregistered(state),
        templates=_templates(state),
        operations=tuple(op for op in memory.operations if op.is_open),
        first_seen=memory.first_seen or state.now,
        breaker=disruption.breaker,
        rules=scale_up.rule_results.memory,
        rule_objects=scale_up.rule_results.objects,
        replacements=with_operations(disruption.replacements, operations),
        consolidation=_consolidation(state, disruption),
    )


def _templates(state: ClusterState) -> dict[str, LearntTemplate]:
    """Return the templates to remember. That of a group that could not be read stays."""
    before = state.memory.templates
    templates = {name: before[name] for name in before if name not in state.groups}
    for group in state.groups.values():
        model = group.template.model if group.template is not None else None
        known = before.get(group.id)
        stated = stated_template(group.group, state.options)
        learnt = learn(model, known, state.now, state.options, state.node_labels, stated)
        if learnt is not None:
            templates[group.id] = _with_storage(learnt, group)
    return templates


def _groups(
    state: ClusterState, scale_up: ScaleUpPlan, disruption: DisruptionPlan
) -> dict[str, GroupMemory]:
    """Return the memory of all groups. That of a group that could not be read stays."""
    before = state.memory.groups
    groups = {name: before[name] for name in before if name not in state.groups}
    drains = next_drains(state, scale_up.scale_ups, disruption.removals)
    bought = {growth.group for growth in (*scale_up.scale_ups, *disruption.purchases)}
    for group in state.groups.values():
        if is_candidate(group.group) and group.id not in bought and _is_blank(before, group.id):
            continue  # there may be thousands, and nothing is known of them
        memory = _group(group, drains[group.id], state, scale_up)
        memory = _with_renewals(memory, group, disruption)
        memory = _with_spot(memory, group, state, scale_up)
        memory = with_emptiness(memory, group, state.now)
        groups[group.id] = _with_attempts(memory, group, scale_up, disruption, state.now)
    return groups


def _is_blank(memories: Mapping[str, GroupMemory], group: str) -> bool:
    """Return whether nothing is remembered of a group."""
    memory = memories.get(group, _BLANK)
    if memory.joins not in (None, JoinStatistics()):
        return False
    return msgspec.structs.replace(memory, joins=None) == _BLANK


def _with_renewals(
    memory: GroupMemory, group: NodeGroupState, disruption: DisruptionPlan
) -> GroupMemory:
    """Return a group's next memory with its renewals, if this pass could judge them."""
    if disruption.renewals is None or group.group.error:
        return memory
    renewals = dict(disruption.renewals.get(group.id, {}))
    if renewals == memory.renewals:
        return memory
    return msgspec.structs.replace(memory, renewals=renewals)


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
        past = msgspec.structs.replace(memory.risk, notices={})
        is_empty = past == InterruptionRisk()
        return msgspec.structs.replace(memory, risk=None if is_empty else past)
    bought = [growth.group for growth in scale_up.scale_ups]
    since = next_fallback(group, bought, scale_up.fallback, state.now)
    if since != memory.fallback_since:
        memory = msgspec.structs.replace(memory, fallback_since=since)
    risk = next_risk(group, state)
    if risk is not memory.risk:
        memory = msgspec.structs.replace(memory, risk=risk)
    return memory


def _with_storage(learnt: LearntTemplate, group: NodeGroupState) -> LearntTemplate:
    """Return a group's learnt template with what a new node offers of storage
    that is published per node."""
    known = dict(group.learnt_storage)
    if not known or known == learnt.capacities:
        return learnt
    return msgspec.structs.replace(learnt, capacities=known)


def _with_attempts(
    memory: GroupMemory,
    group: NodeGroupState,
    scale_up: ScaleUpPlan,
    disruption: DisruptionPlan,
    now: float,
) -> GroupMemory:
    """Return a group's next memory with what this pass buys for one of its zones."""
    attempts = memory.attempts
    for for_zones in (scale_up.for_zones, disruption.for_zones):
        bought = for_zones.get(group.id)
        if bought:
            attempts = with_purchases(attempts, bought, group.nodes, now)
    classes = scale_up.for_storage.get(group.id)
    if classes:
        attempts = attempts or PurchaseAttempts()
        storage = {**attempts.storage, **dict.fromkeys(classes, now)}
        attempts = msgspec.structs.replace(attempts, storage=storage)
    if attempts is memory.attempts:
        return memory
    return msgspec.structs.replace(memory, attempts=attempts)


def _fallback_nodes(state: ClusterState) -> list[str]:
    """Return the nodes that were bought on demand because spot groups were not to be had."""
    if state.policy.spot is None:
        return []
    names: list[str] = []
    for node in state.snapshot.nodes:
        group = state.group_of.get(node.name, "")
        if is_fallback(node, state.groups.get(group), state):
            names.append(node.name)
    return names


def _consolidation(state: ClusterState, disruption: DisruptionPlan) -> ConsolidationMemory:
    """Return what consolidation remembers: moves of one day, of a limited number of owners;
    nothing where it is off."""
    memory = disruption.consolidation or state.memory.consolidation
    if state.policy.consolidation.mode is ConsolidationMode.OFF or memory == NOTHING:
        return NOTHING
    moves: dict[str, tuple[tuple[float, int], ...]] = {}
    for owner, past_moves in memory.moves.items():
        recent = tuple(move for move in past_moves if abs(state.now - move[0]) < _DAY)
        if recent:
            moves[owner] = recent
    newest_first = sorted(moves, key=lambda owner: (-moves[owner][-1][0], owner))
    owners = sorted(newest_first[:MOST_OWNERS])
    return msgspec.structs.replace(memory, moves={owner: moves[owner] for owner in owners})


def _group(
    group: NodeGroupState,
    drained: dict[str, DrainedOwner],
    state: ClusterState,
    scale_up: ScaleUpPlan,
) -> GroupMemory:
    now, memory = state.now, group.memory
    if group.group.error:
        return memory
    since, size_wrong = wrong_size(group, now)
    names = {node.name for node in group.nodes}
    failed = {
        name: removal
        for name, removal in memory.failed_removals.items()
        if name in names and abs(now - removal.until) < _FAILED
    }
    not_restarted = {
        name: planned
        for name, planned in memory.not_restarted.items()
        if name in names and abs(now - planned) < RESTARTED_FOR
    }
    return msgspec.structs.replace(
        memory,
        request=_request(group, state, scale_up),
        target=group.group.target,
        size_wrong_since=since,
        size_wrong=size_wrong,
        failed_removals=failed,
        not_restarted=not_restarted,
        drained=drained,
        first_seen=memory.first_seen or now,
    )


def _request(
    group: NodeGroupState, state: ClusterState, scale_up: ScaleUpPlan
) -> ScaleUpRequest | None:
    """Return a group's request. Where further nodes are bought, the plan relies on
    where it placed all pods, so the nodes that were coming already are now coming for
    those that it placed there."""
    request = group.memory.request
    on_upcoming = scale_up.on_upcoming.get(group.id)
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
    groups = state.groups.values()
    present = {
        instance: min(before.get(instance, now), now)
        for group in groups
        for instance in group.unregistered
    }
    if _all_read(state):
        return present
    listed = {instance.id for group in groups for instance in group.group.instances}
    unlisted = {
        instance: since
        for instance, since in before.items()
        if instance not in listed and now - since < _KEPT
    }
    return unlisted | present


def _paused(state: ClusterState, disruption: DisruptionPlan) -> dict[str, NodeMemory]:
    """Return nodes that could not be judged, whose timers therefore pause: their group was not
    read, or their instance is missing from a list that is shorter than the vendor's own target."""
    if _all_read(state) and not any(_lacks_instances(group) for group in state.groups.values()):
        return {}
    present = {node.name for node in state.snapshot.nodes}
    judged = state.group_of.keys() | disruption.memory.keys()
    paused: dict[str, NodeMemory] = {}
    for name, memory in state.memory.nodes.items():
        if name not in present or name in judged:
            continue
        timer = paused_timer(memory, state.now)
        if timer is not None:
            paused[name] = timer
    return paused


def _lacks_instances(group: NodeGroupState) -> bool:
    """Return whether the vendor lists fewer instances than its own target."""
    ids = {instance.id for instance in group.group.instances}
    return len(ids) < group.group.target
