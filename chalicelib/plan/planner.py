"""The planner's entry point. Pure: the same snapshot, policy, memory, instant and seed give the
same plan, byte for byte.

Stages, with their inputs and outputs:

1. State: snapshot, policy, memory -> ClusterState (the policy and bounds that schedules
   apply now, groups, health, back-offs, open scale-up requests, what joins teach) and the
   virtual pods of headroom.
2. Pending pods: state -> PendingPods in the order in which the scheduler tries them.
3. Simulated cluster: state, nominated pods -> real and upcoming nodes with their pods.
   Stages 4 and 5 change it.
4. Scale-up: pending pods, rules, headroom -> ScaleUpPlan. Places pods and new nodes
   on the simulated cluster.
5. Disruption: the simulated cluster after scale-up -> DisruptionPlan. Evacuates nodes that their
   vendor takes back, removes nodes that stay unneeded, and consolidates nodes that are needed.
6. Repairs: state -> at most one Repair per group.
7. Plan: the outputs of 2, 4, 5 and 6 -> Plan with its operations.
8. Next memory: the outputs of 1, 4 and 5 -> Memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.demand.headroom import headroom_demand
from chalicelib.plan.demand.pending_pods import collect_pending_pods
from chalicelib.plan.group_repair import repair
from chalicelib.plan.next_memory import next_memory
from chalicelib.plan.plan_builder import build_plan
from chalicelib.plan.removal.candidates import removable_rows
from chalicelib.plan.removal.removal_planner import DisruptionPlan, plan_disruption
from chalicelib.plan.removal.replacement_rows import count_late_successors
from chalicelib.plan.removal.scheduled_removals import with_schedules
from chalicelib.plan.scale_up.scale_up_planner import plan_scale_up, unplanned_scale_up
from chalicelib.plan.simulation.cluster_builder import build
from chalicelib.plan.state.cluster_state import ClusterState, build_cluster_state
from chalicelib.plan.state.foreign_growths import adopt_growths
from chalicelib.plan.state.join_statistics import count_joins
from chalicelib.plan.state.new_node_storage import with_new_node_storage
from chalicelib.plan.state.pass_time import OutOfTime, PassTime, PlanStage
from chalicelib.plan.state.purchase_attempts import judge_attempts
from chalicelib.plan.state.scale_up_requests import resolve_scale_up_requests
from chalicelib.plan.tables import ResourceColumns
from chalicelib.policy.open_schedules import apply_scheduled_bounds, apply_schedules
from chalicelib.policy.settings.cluster_policy import Policy


def plan_cluster(
    snapshot: Snapshot,
    policy: Policy,
    memory: Memory,
    now: float,
    seed: int,
    *,
    assume_unneeded_for: float | None = None,
    clock: Callable[[], float] | None = None,
    within: float = math.inf,
    wait: bool = True,
    on_state: Callable[[ClusterState], None] | None = None,
) -> tuple[Plan, Memory]:
    """Return the plan with the reasons for what is not done, and the memory of the next pass.

    now: epoch seconds. seed: for expanders that draw at random. assume_unneeded_for: for a what-if;
    every unneeded node counts as unneeded for this many seconds. clock: for the time limits of a
    pass; without a clock there are none, and the plan is exactly repeatable. within: seconds by
    that clock after which searches stop; the plan then holds what was found, and reports the rest
    as not checked. A stage that exceeds its share all the same is left out, so that a pass always
    ends with a plan. wait: whether pods may wait for a scheduler that still refuses others; False
    where nobody looks again, as for a report: a note then says what a pass would wait for.
    on_state: gets the cluster state, for reports that need its sums.
    """
    pass_time = PassTime(clock, within)

    policy = apply_schedules(policy, now)
    state = build_cluster_state(apply_scheduled_bounds(snapshot, policy, now), policy, memory, now)
    if on_state is not None:
        on_state(state)
    resolved = count_late_successors(resolve_scale_up_requests(adopt_growths(state)))
    state, headroom = headroom_demand(
        with_new_node_storage(judge_attempts(count_joins(resolved, memory)))
    )

    pending = collect_pending_pods(state, wait=wait)

    simulated = build(state, pending.nominated, ResourceColumns(state.snapshot.classes), pass_time)
    pass_time.begin(PlanStage.SCALE_UP)
    try:
        scale_up = plan_scale_up(
            state, simulated, pending, headroom, seed, pass_time, removable_rows
        )
    except OutOfTime:
        pass_time.begin(PlanStage.UNLIMITED)
        scale_up = unplanned_scale_up(state, simulated, pending, seed, pass_time)

    simulated.wait_for_nothing()
    grown = {
        increase.group: increase.to_size - increase.from_size for increase in scale_up.scale_ups
    }

    def removals(*, judged: bool) -> DisruptionPlan:
        pass_time.begin(PlanStage.SCALE_DOWN if judged else PlanStage.UNLIMITED)
        needs, places = scale_up.rule_results.needs, scale_up.promises
        limits = assume_unneeded_for, pending.hold, pass_time, grown, needs
        return plan_disruption(state, simulated, *limits, judged=judged, placements=places)

    try:
        scale_down = removals(judged=True)
    except OutOfTime:
        scale_down = removals(judged=False)

    repairs = repair(state)

    plan = build_plan(state, pending, scale_up, scale_down, repairs, seed)
    plan = with_schedules(plan, snapshot, policy)
    return plan, next_memory(state, scale_up, scale_down, plan.operations)
