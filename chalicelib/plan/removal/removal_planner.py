"""Plans disruption: asks each method which nodes go now, and reports why every other node stays.
See docs/reference/scale-down.md "Stages of one pass"."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import (
    BreakerState,
    ConsolidationMemory,
    GroupRenewal,
    Horizon,
    NodeMemory,
    Replacement,
)
from chalicelib.model.plan import (
    ConsolidationReport,
    LifecycleVerdict,
    NodeVerdict,
    PodPlacement,
    Removal,
    Restart,
    ScaleUp,
    TaintUpdate,
)
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.demand.scaling_rules.allocation_rate import RuleRemovalGuard
from chalicelib.plan.removal.candidates import find_candidates
from chalicelib.plan.removal.disruption_command import DisruptionCommand
from chalicelib.plan.removal.methods import DisruptionContext, Method, MethodResult
from chalicelib.plan.removal.methods.consolidation import ConsolidationResult, consolidate
from chalicelib.plan.removal.methods.interruptions import evacuate, late_replacements
from chalicelib.plan.removal.methods.node_lifecycle import (
    REASONS,
    LifecycleResult,
    renew_nodes,
)
from chalicelib.plan.removal.methods.unneeded import Unneeded, memory_of_others
from chalicelib.plan.removal.removal_limits import RemovalLimits
from chalicelib.plan.removal.replacement_rows import softly_tainted
from chalicelib.plan.removal.replacements import CONSOLIDATES, Advance, Reservation, advance
from chalicelib.plan.removal.taint_updates import taint_updates
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.interruptions import reported
from chalicelib.plan.state.pass_time import OutOfTime, PassTime
from chalicelib.plan.state.sick_old_drifted_nodes import lifecycle_of, remembered
from chalicelib.plan.state.spot_market import recommended
from chalicelib.policy.settings.consolidation import ConsolidationMode, Steering

METHODS: tuple[Method, ...] = (Unneeded(),)
"""In the order in which they draw from the budgets."""


class DisruptionPlan(msgspec.Struct, frozen=True):
    """The disruption part of a plan. unneeded: names of the nodes that go now or later.
    unremovable: a verdict on each node that does not go now. memory: the next memory of every node
    that has any. paused: what blocks all removals. breaker: the circuit breaker's next state.
    taints: to be added or removed outside of operations. replacements: the next rows, by id.
    consolidation: its next memory; None: as it was. report: of consolidation, None where it is off.
    restarts: of sick nodes. lifecycle: nodes that should go. notes: for the plan. renewals: group
    -> reason -> the
    next memory of renewals; None: as it was. for_zones: group in several zones -> zone -> nodes
    that replacements buy for it."""

    commands: tuple[DisruptionCommand, ...]
    unneeded: tuple[str, ...]
    unremovable: tuple[NodeVerdict, ...]
    memory: dict[str, NodeMemory]
    paused: Reason | None = None
    breaker: BreakerState = BreakerState()
    taints: tuple[TaintUpdate, ...] = ()
    replacements: dict[str, Replacement] = {}
    consolidation: ConsolidationMemory | None = None
    report: ConsolidationReport | None = None
    restarts: tuple[Restart, ...] = ()
    lifecycle: tuple[LifecycleVerdict, ...] = ()
    notes: tuple[Reason, ...] = ()
    renewals: Mapping[str, Mapping[str, GroupRenewal]] | None = None
    for_zones: Mapping[str, Mapping[str, int]] = {}

    @property
    def purchases(self) -> tuple[ScaleUp, ...]:
        """What replacements buy now."""
        return tuple(up for command in self.commands for up in command.replacements)

    @property
    def removals(self) -> tuple[Removal, ...]:
        """The nodes that go now, in the order of removal."""
        return tuple(removal for command in self.commands for removal in command.candidates)


def plan_disruption(
    state: ClusterState,
    simulated: SimulatedCluster,
    assume_unneeded_for: float | None = None,
    hold: Reason | None = None,
    pass_time: PassTime | None = None,
    grown: Mapping[str, int] | None = None,
    guard: RuleRemovalGuard | None = None,
    *,
    judged: bool = True,
    placements: Sequence[PodPlacement] = (),
) -> DisruptionPlan:
    """Plan the removals. assume_unneeded_for: treat every unneeded node as unneeded for at least
    this many seconds. hold: why no node is removed in this pass, while timers run. pass_time: for
    scaleDownSimulationTimeout; without it there is no limit. grown: group -> nodes that this pass
    adds. guard: what metric rules would buy again. judged: False where there is no time to judge
    any node; the timers of all stand still. placements: the places of pods that scale-up has
    planned."""
    removal_limits = RemovalLimits(state, hold, grown, guard)
    limit = state.options.scale_down_simulation_timeout
    over = _deadline(simulated, pass_time, limit)
    not_evaluated = Reason.of(ReasonCode.NOT_EVALUATED, seconds=limit)
    renews = lifecycle_of(state) is not None
    has_rows = bool(state.memory.replacements)
    reservation = Reservation(state, simulated) if has_rows or renews else None
    context = DisruptionContext(
        state, simulated, removal_limits, over, not_evaluated, assume_unneeded_for, reservation
    )
    reserved = reservation.verdicts(state) if reservation is not None else {}
    commands: list[DisruptionCommand] = [*evacuate(state, removal_limits, placements)]
    result = _by_methods(context, reserved) if judged else _not_judged(context)
    commands += result.commands
    unneeded = result.memory
    verdicts = result.verdicts
    memory = memory_of_others(state, verdicts) | unneeded
    lifecycle = None
    if judged and renews:
        lifecycle = _lifecycle(context, _goes_by_itself(unneeded, verdicts))
    if lifecycle is not None:
        commands += lifecycle.commands
        memory = _with_lifecycle(memory, lifecycle.memory)
    elif renews:
        memory = _with_lifecycle(memory, remembered(state))
    consolidation = _consolidation(context, commands, memory) if judged else None
    if consolidation is not None:
        commands += consolidation.commands
        memory = consolidation.nodes
    advanced = _rows(context, lifecycle, consolidation)
    commands += advanced.commands
    to_mark = unneeded.keys() | softly_tainted(advanced.rows.values()) | recommended(state)
    if consolidation is not None:
        to_mark |= consolidation.tainted
    removed = {removal.node for command in commands for removal in command.candidates}
    horizon = _horizon(state, consolidation)
    levels, mark = (horizon.levels, horizon.id) if horizon is not None else ({}, "")
    updates = taint_updates(state, to_mark, levels, mark)
    return DisruptionPlan(
        commands=tuple(commands),
        unneeded=tuple(sorted(unneeded)),
        unremovable=tuple(verdicts[name] for name in sorted(verdicts.keys() - removed)),
        memory=memory,
        paused=removal_limits.paused,
        breaker=removal_limits.breaker.after(),
        taints=tuple(update for update in updates if update.node not in removed),
        replacements=advanced.rows,
        consolidation=consolidation.memory if consolidation is not None else None,
        report=consolidation.report if consolidation is not None else None,
        restarts=lifecycle.restarts if lifecycle is not None else (),
        lifecycle=lifecycle.verdicts if lifecycle is not None else (),
        notes=(
            *_notes(state, placements, lifecycle),
            *(consolidation.notes if consolidation is not None else ()),
        ),
        renewals=lifecycle.renewals if lifecycle is not None else None,
        for_zones=lifecycle.for_zones if lifecycle is not None else {},
    )


def _by_methods(context: DisruptionContext, reserved: Mapping[str, NodeVerdict]) -> MethodResult:
    """Return what the methods do, one after the other. reserved: the verdicts
    on nodes of replacements."""
    state, removal_limits = context.state, context.removal_limits
    commands: list[DisruptionCommand] = []
    memory: dict[str, NodeMemory] = {}
    verdicts: dict[str, NodeVerdict] = {}
    for method in METHODS:
        candidates, ineligible = find_candidates(
            state, context.simulated, removal_limits.pdbs, method.ineligible
        )
        unavailable = removal_limits.taken | reserved.keys()
        available = [
            candidate for candidate in candidates if candidate.node.name not in unavailable
        ]
        result = method.propose(available, context)
        commands += result.commands
        removal_limits.grown |= {
            up.group for command in result.commands for up in command.replacements
        }
        memory |= result.memory
        verdicts.update({**ineligible, **result.verdicts, **reserved})
    return MethodResult(tuple(commands), verdicts, memory)


def _not_judged(context: DisruptionContext) -> MethodResult:
    names = [node.name for node in context.state.snapshot.nodes]
    verdicts = {name: NodeVerdict(name, context.not_evaluated) for name in names}
    return MethodResult((), verdicts, {})


def _rows(
    context: DisruptionContext,
    lifecycle: LifecycleResult | None,
    consolidation: ConsolidationResult | None,
) -> Advance:
    """Return all replacements; those of methods that had no time, or are off,
    advance without any judgement."""
    if context.reservation is None:
        return Advance(consolidation.replacements if consolidation is not None else {})
    unjudged = REASONS if lifecycle is None else frozenset[DisruptionReason]()
    unjudged |= CONSOLIDATES if consolidation is None else frozenset()
    return advance(
        context.state,
        context.simulated,
        context.removal_limits,
        reservation=context.reservation,
        reasons=unjudged,
    )


def _notes(
    state: ClusterState, placements: Sequence[PodPlacement], lifecycle: LifecycleResult | None
) -> tuple[Reason, ...]:
    return (
        *reported(state.announced, state.policy.spot, state.now),
        *late_replacements(state, placements),
        *(lifecycle.notes if lifecycle is not None else ()),
    )


def _goes_by_itself(unneeded: Iterable[str], verdicts: Mapping[str, NodeVerdict]) -> frozenset[str]:
    """Return the unneeded nodes that will go as such: no minimum keeps them."""
    limited = {name for name, verdict in verdicts.items() if verdict.reason.code.row.replaceable}
    return frozenset(unneeded) - limited


def _lifecycle(context: DisruptionContext, unneeded: Collection[str]) -> LifecycleResult | None:
    """Return what is done with nodes that are due, None where the time is over."""
    try:
        return renew_nodes(context, unneeded)
    except OutOfTime:
        return None


def _with_lifecycle(
    memory: Mapping[str, NodeMemory], lifecycle: Mapping[str, NodeMemory]
) -> dict[str, NodeMemory]:
    """Return the memory of nodes with what is remembered of sick and outdated ones."""
    next_memory = dict(memory)
    for name, item in lifecycle.items():
        next_memory[name] = msgspec.structs.replace(
            memory.get(name, NodeMemory()),
            sick=item.sick,
            restarted_at=item.restarted_at,
            drifted_since=item.drifted_since,
        )
    return next_memory


def _deadline(
    simulated: SimulatedCluster, pass_time: PassTime | None, limit: float
) -> Callable[[], bool]:
    """Return a function that says whether the time for simulations is over:
    so many seconds from now."""
    started = pass_time.spent() if pass_time else 0.0
    deadline = started + limit

    def over() -> bool:
        if simulated.unsettled or pass_time is None:
            return simulated.unsettled
        return pass_time.over(deadline) or pass_time.ended()

    return over


def _consolidation(
    context: DisruptionContext,
    commands: Sequence[DisruptionCommand],
    memory: Mapping[str, NodeMemory],
) -> ConsolidationResult | None:
    """Return what consolidation does, None where it is off or its time is over: what
    other methods decided stands."""
    if context.state.policy.consolidation.mode is ConsolidationMode.OFF:
        return None
    try:
        return consolidate(context, commands, memory)
    except OutOfTime:
        return None


def _horizon(state: ClusterState, consolidation: ConsolidationResult | None) -> Horizon | None:
    """Return the horizon whose marks nodes have, None if nodes have no marks. consolidation: None
    if there was no time to judge any node; then the last horizon stands."""
    policy = state.policy
    acts = policy.consolidation.mode not in (ConsolidationMode.OFF, ConsolidationMode.SHADOW)
    may_taint = state.options.max_bulk_soft_taint_count > 0
    if not acts or not may_taint or policy.consolidation.steering is Steering.OFF:
        return None
    memory = state.memory.consolidation if consolidation is None else consolidation.memory
    return memory.horizon
