"""Plans disruption: asks each method which nodes go now, and reports why every other node stays. See
docs/reference/scale-down.md "Stages of one pass"."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from chalicelib.model.command import DisruptionCommand
from chalicelib.model.memory import BreakerState, NodeMemory
from chalicelib.model.plan import NodeVerdict, Removal, TaintUpdate
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.demand.scaling_rules.allocation_rate import RuleRemovalGuard
from chalicelib.plan.disruption.budgets import Budgets
from chalicelib.plan.disruption.candidates import find_candidates
from chalicelib.plan.disruption.methods import DisruptionContext, Method
from chalicelib.plan.disruption.methods.unneeded import Unneeded, memory_of_others
from chalicelib.plan.disruption.taint_updates import taint_updates
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.time_budget import TimeBudget

METHODS: tuple[Method, ...] = (Unneeded(),)
"""In the order in which they draw from the budgets."""


class DisruptionPlan(msgspec.Struct, frozen=True):
    """The disruption part of a plan. unneeded: names of the nodes that go now or later. unremovable: a verdict on each
    node that does not go now. memory: the next memory of every node that has any. paused: what blocks all removals.
    breaker: the circuit breaker's next state. taints: to be added or removed outside of operations."""

    commands: tuple[DisruptionCommand, ...]
    unneeded: tuple[str, ...]
    unremovable: tuple[NodeVerdict, ...]
    memory: dict[str, NodeMemory]
    paused: Reason | None = None
    breaker: BreakerState = BreakerState()
    taints: tuple[TaintUpdate, ...] = ()

    @property
    def removals(self) -> tuple[Removal, ...]:
        """The nodes that go now, in the order of removal."""
        return tuple(removal for command in self.commands for removal in command.candidates)


def plan_disruption(
    state: ClusterState,
    simulated: SimulatedCluster,
    assume_unneeded_for: float | None = None,
    hold: Reason | None = None,
    time_budget: TimeBudget | None = None,
    grown: Collection[str] = (),
    guard: RuleRemovalGuard | None = None,
    *,
    judged: bool = True,
) -> DisruptionPlan:
    """Plan the removals. assume_unneeded_for: treat every unneeded node as unneeded for at least this many seconds.
    hold: why no node is removed in this pass, while timers run. time_budget: for scaleDownSimulationTimeout; without it
    there is no limit. grown: groups that this pass scales up. guard: what metric rules would buy again.
    judged: False where there is no time to judge any node; the timers of all stand still."""
    budgets, limit = Budgets(state, hold, grown, guard), state.options.scale_down_simulation_timeout
    started = time_budget.spent() if time_budget else 0.0

    def over() -> bool:
        if simulated.unsettled or time_budget is None:
            return simulated.unsettled
        return time_budget.over(started + limit) or time_budget.ended()

    not_evaluated = Reason.of(ReasonCode.NOT_EVALUATED, seconds=limit)
    context = DisruptionContext(state, simulated, budgets, over, not_evaluated, assume_unneeded_for)
    commands: list[DisruptionCommand] = []
    unneeded: dict[str, NodeMemory] = {}
    verdicts: dict[str, NodeVerdict] = {}
    if not judged:
        verdicts = {node.name: NodeVerdict(node.name, not_evaluated) for node in state.snapshot.nodes}
    for method in METHODS if judged else ():
        candidates, ineligible = find_candidates(state, simulated, budgets.pdbs, method.ineligible)
        result = method.propose(candidates, context)
        commands += result.commands
        budgets.grown |= {up.group for command in result.commands for up in command.replacements}
        unneeded |= result.memory
        verdicts |= ineligible | result.verdicts
    removed = {removal.node for command in commands for removal in command.candidates}
    return DisruptionPlan(
        commands=tuple(commands),
        unneeded=tuple(sorted(unneeded)),
        unremovable=tuple(verdicts[name] for name in sorted(verdicts.keys() - removed)),
        memory=memory_of_others(state, verdicts) | unneeded,
        paused=budgets.paused,
        breaker=budgets.breaker.after(),
        taints=tuple(taint for taint in taint_updates(state, unneeded) if taint.node not in removed),
    )
