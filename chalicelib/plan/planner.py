"""The planner's entry point and list of stages: cluster state, pending pods, scale-up, scale-down, repairs, plan, next
memory. Pure: the same snapshot, policy, memory, instant and seed give the same plan, byte for byte.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.policy import Policy
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.next_memory import next_memory
from chalicelib.plan.plan_builder import build_plan
from chalicelib.plan.repair import repair
from chalicelib.plan.scale_down.planner import plan_scale_down
from chalicelib.plan.scale_down.removable_rows import removable_rows
from chalicelib.plan.scale_up.headroom import headroom_demand
from chalicelib.plan.scale_up.planner import plan_scale_up
from chalicelib.plan.scale_up.preconditions import apply_preconditions
from chalicelib.plan.simulation.cluster_builder import build
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.plan.state.pending_pods import collect_pending_pods
from chalicelib.plan.state.scale_up_requests import resolve_scale_up_requests
from chalicelib.plan.state.time_budget import TimeBudget
from chalicelib.plan.tables.node_table import ResourceColumns
from chalicelib.schedules.apply import apply_scheduled_bounds, apply_schedules


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
) -> tuple[Plan, Memory]:
    """Return the plan with the reasons for what is not done, and the next memory. now: epoch seconds; seed: for
    expanders that draw at random.

    assume_unneeded_for: for a what-if; treats every node found unneeded as unneeded for this many seconds. clock: for
    the time limits of a pass; without it there are none, and the plan is exactly repeatable. within: seconds by that
    clock after which the search stops: what was found is the plan, and the rest is reported as not checked.
    """
    watch = TimeBudget(clock, within)
    policy = apply_schedules(policy, now)
    world, virtual = headroom_demand(
        resolve_scale_up_requests(
            build_cluster_state(apply_scheduled_bounds(snapshot, policy, now), policy, memory, now)
        )
    )
    pending = apply_preconditions(world, collect_pending_pods(world))
    columns = ResourceColumns(
        [*snapshot.nodes, *(f.template.node for f in world.groups.values() if f.template)], world.snapshot.classes
    )
    floor = build(world, pending.nominated, columns)
    floor.late = watch.late
    growth = plan_scale_up(world, floor, pending, virtual, seed, watch, removable_rows)
    shrinkage = plan_scale_down(
        world,
        floor,
        assume_unneeded_for,
        pending.hold,
        watch,
        [scale_up.group for scale_up in growth.scale_ups],
        growth.rule_results.needs,
    )
    plan = build_plan(world, pending, growth, shrinkage, repair(world), seed)
    return plan, next_memory(world, growth, shrinkage)
