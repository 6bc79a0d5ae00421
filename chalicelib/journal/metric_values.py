"""Values of metrics: gauges and counters of a pass, counters of a step and of the end of an
operation, and the closed lists of their labels (docs/metrics.md "Label values").

Each name and value that is counted stays in the cluster's ledger permanently. A label value
therefore comes from a list that is known in advance; a vendor's own code is never one (it is a
field of the log line and in the journal).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from chalicelib.cluster.errors import ClusterError
from chalicelib.journal.metrics import BUCKETS, COSTS, Values, key, parts
from chalicelib.journal.operation_events import OperationStep, kept
from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.errors import BadInput
from chalicelib.model.health import HealthState, of_backoff
from chalicelib.model.join_summary import join_summary
from chalicelib.model.memory import GroupMemory, JoinStatistics
from chalicelib.model.operation import Operation, OperationKind, OperationSpec, RemovalTarget
from chalicelib.model.outcome import ABANDONED, NOT_FAILED, Failed, Succeeded
from chalicelib.model.plan import GroupVerdict, Plan
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.model.snapshot import OF_PROVIDER
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.providers.kit.errors import ProviderError
from chalicelib.store.errors import StoreError

if TYPE_CHECKING:
    from chalicelib.plan.state.cluster_state import ClusterState

OF_PROVIDERS = frozenset(kind.__name__ for kind in ProviderError.__subclasses__())
OF_CLUSTERS = frozenset(f"Cluster{kind.__name__}" for kind in ClusterError.__subclasses__()) | {
    "ClusterError"
}
REASONS = OF_PROVIDERS | OF_CLUSTERS | {"DeadlineExceeded", "NotStarted", ABANDONED, "timeout"}

#: The first match decides what an exception counts as.
ERRORS: tuple[tuple[type[BaseException], str], ...] = (
    (ClusterError, "apiCallError"),
    (ProviderError, "cloudProviderError"),
    (BadInput, "configurationError"),
    (StoreError, "transientError"),
    (BaseException, "internalError"),
)


MOVE_STATES = ("shadow", "wanted", "begins", "proposed", "buying", "waiting", "draining")
LIMITS = ((CPU, "CpuResourceLimit"), (MEMORY, "MemoryResourceLimit"))


def known_reason(cls: str) -> str:
    """Return the class of an error as a label: one of REASONS, or Other."""
    return cls if cls in REASONS else "Other"


def error_counts(error: BaseException) -> dict[str, float]:
    """Return the increments for a pass that failed."""
    type_ = next(name for kind, name in ERRORS if isinstance(error, kind))
    return {key("errors_total", type=type_): 1.0}


def step_counts(step: OperationStep) -> dict[str, float]:
    """Return the increments for evictions: granted ones at once; refused ones, which are retried,
    when the drain gives up on them."""
    refused = step.outcome.refused if step.gives_up else ()
    counts = {"succeeded": len(step.outcome.evicted), "failed": len(refused)}
    return {
        key("evicted_pods_total", eviction_result=result): float(count)
        for result, count in counts.items()
        if count
    }


def end_counts(
    operation: Operation, outcome: Succeeded | Failed, unready: frozenset[str] = frozenset()
) -> dict[str, float]:
    """Return the increments for an operation that is over. unready: nodes that were not ready when
    their removal was planned.

    An operation that Outscaler cancelled itself is not a failure and counts nothing, nor
    does the evacuation of a node that its vendor has not taken. A node that its vendor has
    taken is not scaled down.
    """
    spec = operation.spec
    if spec.kind is OperationKind.RESTART_NODE:
        return _restart_counts(operation, outcome)
    if isinstance(outcome, Failed):
        return _failure_counts(operation, outcome)
    if spec.kind is OperationKind.SCALE_UP:
        bought = max(0, spec.to_size - spec.from_size)
        return {key("scaled_up_nodes_total"): float(bought)}
    if spec.kind is OperationKind.DELETE_INSTANCES:
        return {key("old_unregistered_nodes_removed_count"): float(len(spec.targets))}
    if spec.kind is OperationKind.DELETE_NODES:
        return _removal_counts(spec, outcome, unready)
    return {}


def _removal_counts(
    spec: OperationSpec, outcome: Succeeded, unready: frozenset[str]
) -> dict[str, float]:
    counts: Counter[str] = Counter()
    chosen = key("disrupted_nodes_total", reason=_disruption(spec.reason))
    for target in spec.targets:
        if spec.interrupted:
            counts[chosen] += 1
        elif not kept(outcome, target.node):
            reason = _removal_label(target, unready)
            counts[key("scaled_down_nodes_total", reason=reason)] += 1
            counts[chosen] += 1
    return _as_floats(counts)


def _removal_label(target: RemovalTarget, unready: frozenset[str]) -> str:
    """Return why a node could go (docs/metrics.md "Label values")."""
    if target.node in unready:
        return "unready"
    return "underutilized" if target.evict else "empty"


def _disruption(reason: str) -> str:
    """Return the reason of a removal as a label."""
    if not reason:
        return DisruptionReason.UNNEEDED.value
    return reason if reason in set(DisruptionReason) else "Other"


def _restart_counts(operation: Operation, outcome: Succeeded | Failed) -> dict[str, float]:
    if not isinstance(outcome, Failed):
        return {key("node_restarts_total", result="succeeded"): 1.0}
    failures = _failure_counts(operation, outcome)
    if not failures:
        return {}
    return {key("node_restarts_total", result="failed"): 1.0} | failures


def _failure_counts(operation: Operation, outcome: Failed) -> dict[str, float]:
    cls = outcome.error_class
    if cls in NOT_FAILED:
        return {}
    kind = operation.spec.kind
    counts = {key("failed_operations_total", kind=kind.value): 1.0}
    if kind is OperationKind.SCALE_UP:
        counts[key("failed_scale_ups_total", reason=known_reason(cls))] = 1.0
    if cls in OF_CLUSTERS:
        counts[key("errors_total", type="apiCallError")] = 1.0
    elif cls in OF_PROVIDERS:
        counts[key("errors_total", type="cloudProviderError")] = 1.0
    return counts


def wanted_nodes(plan: Plan, state: ClusterState) -> int:
    """Return the nodes that there are to be after this plan: the targets of the groups, and nodes
    in no group."""
    targets = {group.group: group.target for group in plan.groups}
    targets |= {up.group: up.to_size for up in plan.scale_ups}
    in_groups = sum(
        state.group_of.get(node.name, "") in state.groups for node in state.snapshot.nodes
    )
    ungrouped = len(state.snapshot.nodes) - in_groups
    return max(0, sum(targets.values()) - len(plan.removals) + ungrouped)


def pass_gauges(
    plan: Plan,
    options: Options,
    before: Values,
    groups: Mapping[str, GroupMemory] = MappingProxyType({}),
    *,
    is_paused: bool = False,
) -> dict[str, float]:
    """Return every gauge after this pass. before: those of the last pass, of which two instants,
    the costs and the circuit breaker are used: where removals are paused for another reason, the
    breaker was not asked and is as it was. groups: what is remembered of them. is_paused: the
    whole cluster is, so that nobody carries out the plan. What the pass could
    not see has no gauge: with a provider that was not read, the number of groups and the most nodes
    are not known."""
    health = plan.health
    # All pods that the scheduler refused, including those for which nodes are coming,
    # as upstream counts them.
    refused = sum(len(verdict.pods) for verdict in plan.unschedulable)
    refused += sum(len(up.pods) for up in plan.scale_ups)
    refused += len(plan.fits_existing)
    unprocessed = sum(
        len(pods.pods) for pods in plan.ignored if pods.reason.code is ReasonCode.NOT_YET_SEEN
    )
    pauses = (*plan.notes, plan.paused)
    cooldown = any(
        reason is not None and reason.code is ReasonCode.IN_COOLDOWN for reason in pauses
    )
    brake = is_braked(plan) or (plan.paused is not None and before.get(key("brake"), 0.0) > 0)
    gauges = {
        key("cluster_safe_to_autoscale"): float(health.healthy),
        key("nodes_count", state="ready"): float(health.ready),
        key("nodes_count", state="unready"): float(health.unready),
        key("nodes_count", state="notStarted"): float(health.not_started),
        key("nodes_count", state="suspended"): float(health.suspended),
        key("nodes_count", state="unregistered"): float(health.unregistered),
        key("nodes_count", state="longUnregistered"): float(health.long_unregistered),
        key("unschedulable_pods_count", type="unschedulable"): float(refused),
        key("unschedulable_pods_count", type="scheduler_unprocessed"): float(unprocessed),
        key("cluster_cpu_current_cores"): health.cpu / 1000.0,
        key("cluster_memory_current_bytes"): float(health.memory),
        key("cpu_limits_cores", direction="minimum"): float(options.cores_total[0]),
        key("cpu_limits_cores", direction="maximum"): float(options.cores_total[1]),
        key("memory_limits_bytes", direction="minimum"): float(options.memory_total[0]),
        key("memory_limits_bytes", direction="maximum"): float(options.memory_total[1]),
        key("unneeded_nodes_count"): float(len(plan.unneeded)),
        **_unremovable_gauges(plan),
        **_size_gauges(plan, options),
        **_health_gauges(plan, groups, is_paused=is_paused),
        key("scale_down_in_cooldown"): float(cooldown),
        key("pending_node_deletions"): float(health.removing),
        key("brake"): float(brake),
        key("last_activity", activity="main"): plan.at,
        key("last_activity", activity="autoscaling"): plan.at,
        **_moves(plan),
        **{series: value for series, value in before.items() if parts(series)[0] in COSTS},
    }
    for activity, changes in (("scaleUp", plan.scale_ups), ("scaleDown", plan.removals)):
        series = key("last_activity", activity=activity)
        at = plan.at if changes else before.get(series, 0.0)
        if at:
            gauges[series] = at
    if options.emit_per_nodegroup_metrics:
        for group in plan.groups:
            gauges |= _group_gauges(group)
            memory = groups.get(group.group)
            joins = memory.joins if memory is not None else None
            gauges |= _join_gauges(group.group, joins, plan.at)
    return gauges


def _size_gauges(plan: Plan, options: Options) -> dict[str, float]:
    """Return how many groups and nodes there may be, where every provider was read."""
    if _unread_providers(plan):
        return {}
    most = sum(group.max for group in plan.groups)
    if options.max_nodes_total > 0:
        most = min(most, options.max_nodes_total)
    return {
        key("node_groups_count", node_group_type="autoscaled"): float(len(plan.groups)),
        key("max_nodes_count"): float(most),
    }


def _unread_providers(plan: Plan) -> int:
    """Return how many providers a pass could not read at all."""
    return len({gap.unread_provider for gap in plan.gaps} - {""})


def _health_gauges(
    plan: Plan, groups: Mapping[str, GroupMemory], *, is_paused: bool
) -> dict[str, float]:
    """Return the waiting pods that nothing helps, where some wait, and what is not well; see
    journal/cluster_health.py. While the cluster is paused, no group grows for a pod."""
    without_node = sum(len(verdict.pods) for verdict in plan.unschedulable)
    if is_paused:
        without_node += sum(len(up.pods) for up in plan.scale_ups)
    is_waiting = bool(without_node or plan.scale_ups or plan.fits_existing)
    states: Counter[str] = Counter()
    for group in plan.groups:
        memory = groups.get(group.group)
        backoff = memory.backoff if memory is not None else None
        state = _unwell(group, backoff.attempt if backoff is not None else 1)
        states[state] += 1
    unread = _unread_providers(plan)
    behind_budgets = sum(verdict.reason.never_drains for verdict in plan.unremovable)
    return {
        **({key("nodes_behind_budgets_count"): float(behind_budgets)} if behind_budgets else {}),
        **({key("pods_without_node_count"): float(without_node)} if is_waiting else {}),
        **{
            key("unwell_node_groups_count", state=state): float(count)
            for state, count in sorted(states.items())
            if state
        },
        **({key("unread_providers_count"): float(unread)} if unread else {}),
    }


def _unwell(group: GroupVerdict, attempt: int) -> str:
    """Return what is the matter with a group, "" where it is well: the states of the metric, in
    the order of model/health.py."""
    if group.skipped is not None and group.skipped.code is ReasonCode.GROUP_UNREADABLE:
        return "notRead"
    if not group.healthy:
        return "unhealthy"
    if group.backoff is None:
        return ""
    state = of_backoff(str(group.backoff.params.get("class", "")), attempt)
    return "cannotGrow" if state is HealthState.GROUP_CANNOT_GROW else "backingOff"


def _unremovable_gauges(plan: Plan) -> dict[str, float]:
    counts = Counter(verdict.reason.code.value for verdict in plan.unremovable)
    return {
        key("unremovable_nodes_count", reason=reason): float(count)
        for reason, count in sorted(counts.items())
    }


def lifecycle_gauges(plan: Plan, state: ClusterState) -> dict[str, float]:
    """Return how many nodes leave soon, are too old, outdated or sick, as far as the
    policy asks for any of it."""
    if state.policy.spot is None and state.policy.node_lifecycle is None:
        return {}
    due = Counter(verdict.why for verdict in plan.lifecycle)
    counts = {
        "atRisk": len(state.at_risk),
        "expired": due[DisruptionReason.EXPIRED],
        "drifted": due[DisruptionReason.DRIFTED],
        "sick": due[DisruptionReason.REPAIR],
        "restarting": len(state.restarting),
    }
    return {
        key("lifecycle_nodes_count", state=name): float(count) for name, count in counts.items()
    }


def pool_gauges(state: ClusterState) -> dict[str, float]:
    """Return what each declaration of managedPools has; nothing of one whose provider was not
    read."""
    if not state.policy.managed_pools:
        return {}
    from chalicelib.journal.pool_overview import pool_counts  # of managed pools only

    gauges: dict[str, float] = {}
    for pool in pool_counts(state):
        cost = key("managed_pool_cost_per_hour", pool=pool.name, currency=pool.currency)
        gauges |= {
            key("managed_pool_candidates_count", pool=pool.name): float(pool.candidates),
            key("managed_pool_groups_count", pool=pool.name): float(pool.open_groups),
            key("managed_pool_nodes_count", pool=pool.name): float(pool.nodes),
            cost: float(pool.price),
        }
    return gauges


def _moves(plan: Plan) -> dict[str, float]:
    """Return how many moves there are in each state, and where they end; nothing while
    consolidation is off."""
    if plan.consolidation is None:
        return {}
    counts = Counter(move.state for move in plan.consolidation.moves)
    gauges = {
        key("consolidation_moves_count", state=state): float(counts[state]) for state in MOVE_STATES
    }
    from chalicelib.views.consolidation import horizon_view  # of passes only

    view = horizon_view(plan)
    if view is not None:
        gauges[key("consolidation_leaving_nodes_count")] = float(view.leaving)
        cost = key("consolidation_end_cost_per_hour", currency=view.report.currency)
        gauges[cost] = view.report.end
    return gauges


def horizon_gauges(state: ClusterState) -> dict[str, float]:
    """Return how many pods are younger than the horizon on marked nodes that leave by it."""
    horizon = state.memory.consolidation.horizon
    if horizon is None:
        return {}
    marked = {name for name, node in state.memory.nodes.items() if node.marked}
    leaving = marked.intersection(horizon.going)
    pods = (pod for pod in state.snapshot.pods if pod.node in leaving)
    late = [pod for pod in pods if pod.created > horizon.since]
    count = sum(not state.snapshot.cls(pod).is_daemonset for pod in late)
    return {key("pods_on_leaving_nodes_count"): float(count)}


def is_braked(plan: Plan) -> bool:
    """Return whether the circuit breaker stops the removals of this plan."""
    return plan.paused is not None and plan.paused.code is ReasonCode.DISRUPTION_BRAKE


def _group_gauges(group: GroupVerdict) -> dict[str, float]:
    """Return the gauges of a group. The reason of a back-off is the class of the error; its text
    and the vendor's code are in the status ConfigMap and the journal."""
    name = group.group
    gauges = {
        key("node_group_min_count", node_group=name): float(group.min),
        key("node_group_max_count", node_group=name): float(group.max),
        key("node_group_target_count", node_group=name): float(group.target),
        key("node_group_healthiness", node_group=name): float(group.healthy),
    }
    if group.backoff:
        reason = _backoff_reason(group.backoff)
        gauges[key("node_group_backoff_status", node_group=name, reason=reason)] = 1.0
    return gauges


def _backoff_reason(reason: Reason) -> str:
    for param in ("class", "code", "error"):
        word, _, _ = str(reason.params.get(param, "")).partition(":")
        if word in REASONS:
            return word
    return "Other"


def _join_gauges(group: str, statistics: JoinStatistics | None, now: float) -> dict[str, float]:
    """Return the gauges of what a group has taught; none of what is not known."""
    figures = join_summary(statistics, now)
    quantiles = {"0.5": figures.median, "0.95": figures.p95, "0.99": figures.p99}
    gauges = {
        key("node_ready_seconds", node_group=group, quantile=quantile): float(seconds)
        for quantile, seconds in quantiles.items()
        if seconds is not None
    }
    if figures.failure_rate is not None:
        gauges[key("node_failure_rate", node_group=group)] = figures.failure_rate
    return gauges


def pass_counts(plan: Plan) -> dict[str, float]:
    """Return the counter increments of a pass."""
    counts: Counter[str] = Counter()
    for group in plan.groups:
        for name in _limits(group.skipped, ReasonCode.RESOURCE_LIMIT):
            counts[key("skipped_scale_events_count", direction="up", reason=name)] += 1
    for verdict in plan.unremovable:
        for name in _limits(verdict.reason, ReasonCode.MINIMAL_RESOURCE_LIMIT):
            counts[key("skipped_scale_events_count", direction="down", reason=name)] += 1
    for repair in plan.repairs:
        if repair.reason.code is ReasonCode.SCALE_UP_TIMED_OUT:
            counts[key("failed_scale_ups_total", reason="timeout")] += 1
        if repair.reason.code is ReasonCode.CREATION_FAILED:
            error, _, _ = str(repair.reason.params.get("error", "")).partition(".")
            series = key("failed_node_creations_total", reason=known_reason(error))
            counts[series] += len(repair.instances)
    for result, count in _replacement_results(plan).items():
        if count:
            counts[key("replacements_total", result=result)] += count
    doubts = sum(gap.kind.startswith(OF_PROVIDER) for gap in plan.gaps)
    if doubts:
        counts[key("errors_total", type="cloudProviderError")] += doubts
    return _as_floats(counts)


def _replacement_results(plan: Plan) -> dict[str, int]:
    begun = {
        operation.spec.replacement
        for operation in plan.operations
        if operation.spec.kind is OperationKind.SCALE_UP
    }
    failed = sum(replacement.why is not None for replacement in plan.ended_replacements)
    return {
        "begun": len(begun - {""}),
        "failed": failed,
        "succeeded": len(plan.ended_replacements) - failed,
    }


def _as_floats(counts: Counter[str]) -> dict[str, float]:
    return {series: float(count) for series, count in counts.items()}


def _limits(reason: Reason | None, code: ReasonCode) -> list[str]:
    """Return the labels of the limits that a reason with this code names."""
    if reason is None or reason.code is not code:
        return []
    names = str(reason.params.get("resources", "")).split(",")
    resources = {name.strip() for name in names}
    return [label for name, label in LIMITS if name in resources]


def duration_counts(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the histogram increments: the durations by function."""
    counts = {}
    name = "function_duration_seconds"
    for function, duration in seconds.items():
        for bound in BUCKETS:
            if duration <= bound:
                counts[key(f"{name}_bucket", function=function, le=f"{bound:g}")] = 1.0
        counts[key(f"{name}_bucket", function=function, le="+Inf")] = 1.0
        counts[key(f"{name}_sum", function=function)] = round(duration, 4)
        counts[key(f"{name}_count", function=function)] = 1.0
    return counts
