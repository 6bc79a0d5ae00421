"""Metrics of a pass: gauges of what it saw, counters of what happened (docs/reference/reporting.md "Metrics")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from chalicelib.model.plan import GroupVerdict, Plan
from chalicelib.model.policy import Options
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.record.counters import known_reason
from chalicelib.record.metrics import BUCKETS, Values, key

LIMITS = ((CPU, "CpuResourceLimit"), (MEMORY, "MemoryResourceLimit"))


def of_pass(plan: Plan, options: Options, before: Values) -> dict[str, float]:
    """Return every gauge after this pass. before: those of the last pass, of which only two instants are used."""
    health = plan.health
    gauges = {
        key("cluster_safe_to_autoscale"): float(health.healthy),
        **{
            key("nodes_count", state=state): float(count)
            for state, count in (
                ("ready", health.ready),
                ("unready", health.unready),
                ("notStarted", health.not_started),
                ("suspended", health.suspended),
                ("unregistered", health.unregistered),
                ("longUnregistered", health.long_unregistered),
            )
        },
        key("node_groups_count", node_group_type="autoscaled"): float(len(plan.groups)),
        **{key("unschedulable_pods_count", type=kind): float(count) for kind, count in _waiting(plan).items()},
        key("max_nodes_count"): float(_most_nodes(plan, options)),
        key("cluster_cpu_current_cores"): health.cpu / 1000.0,
        key("cluster_memory_current_bytes"): float(health.memory),
        **{
            key(name, direction=direction): float(bound)
            for name, bounds in (
                ("cpu_limits_cores", options.cores_total),
                ("memory_limits_bytes", options.memory_total),
            )
            for direction, bound in zip(("minimum", "maximum"), bounds, strict=True)
        },
        key("unneeded_nodes_count"): float(len(plan.unneeded)),
        **{
            key("unremovable_nodes_count", reason=reason): float(count)
            for reason, count in sorted(Counter(verdict.reason.code.value for verdict in plan.unremovable).items())
        },
        key("scale_down_in_cooldown"): float(any(_waits(each) for each in (*plan.notes, plan.paused))),
        key("pending_node_deletions"): float(health.removing),
        key("brake"): float(_brake(plan, before)),
        **_last(plan, before),
    }
    if options.emit_per_nodegroup_metrics:
        for group in plan.groups:
            gauges |= _of_group(group)
    return gauges


def _waiting(plan: Plan) -> dict[str, int]:
    """unschedulable: all pods that the scheduler refused, including those for which nodes are coming, as upstream
    counts them."""
    helped = sum(len(up.pods) for up in plan.scale_ups) + len(plan.fits_existing)
    unseen = sum(len(one.pods) for one in plan.ignored if one.reason.code is ReasonCode.NOT_YET_SEEN)
    return {
        "unschedulable": sum(len(verdict.pods) for verdict in plan.unschedulable) + helped,
        "scheduler_unprocessed": unseen,
    }


def _most_nodes(plan: Plan, options: Options) -> int:
    most = sum(group.max for group in plan.groups)
    return min(most, options.max_nodes_total) if options.max_nodes_total > 0 else most


def _waits(reason: Reason | None) -> bool:
    return reason is not None and reason.code is ReasonCode.IN_COOLDOWN


def is_braked(plan: Plan) -> bool:
    """Return whether the circuit breaker stops the removals of this plan."""
    return plan.paused is not None and plan.paused.code is ReasonCode.DISRUPTION_BRAKE


def _brake(plan: Plan, before: Values) -> bool:
    """Where removals are paused for another reason, the circuit breaker was not asked, and is as it was."""
    return is_braked(plan) or (plan.paused is not None and before.get(key("brake"), 0.0) > 0)


def _last(plan: Plan, before: Values) -> dict[str, float]:
    """main, autoscaling: every pass. scaleUp, scaleDown: the last pass that decided one."""
    last = {key("last_activity", activity=activity): plan.at for activity in ("main", "autoscaling")}
    for activity, something in (("scaleUp", plan.scale_ups), ("scaleDown", plan.removals)):
        series = key("last_activity", activity=activity)
        at = plan.at if something else before.get(series, 0.0)
        last |= {series: at} if at else {}
    return last


def _of_group(group: GroupVerdict) -> dict[str, float]:
    name = group.group
    return {
        key("node_group_min_count", node_group=name): float(group.min),
        key("node_group_max_count", node_group=name): float(group.max),
        key("node_group_target_count", node_group=name): float(group.target),
        key("node_group_healthiness", node_group=name): float(group.healthy),
        **(
            {key("node_group_backoff_status", node_group=name, reason=_cause(group.backoff)): 1.0}
            if group.backoff
            else {}
        ),
    }


def _cause(backoff_reason: Reason) -> str:
    """Return the class of the error; its text and the vendor's code are in the status ConfigMap and the journal."""
    words = (str(backoff_reason.params.get(name, "")) for name in ("class", "code", "error"))
    return next((known for word in words if (known := known_reason(word.partition(":")[0])) != "Other"), "Other")


def counted(plan: Plan) -> dict[str, float]:
    """Return the counter increments of a pass."""
    grown: Counter[str] = Counter()
    for group in plan.groups:
        for name in _limited(group.skipped, ReasonCode.RESOURCE_LIMIT):
            grown[key("skipped_scale_events_count", direction="up", reason=name)] += 1
    for verdict in plan.unremovable:
        for name in _limited(verdict.reason, ReasonCode.MINIMAL_RESOURCE_LIMIT):
            grown[key("skipped_scale_events_count", direction="down", reason=name)] += 1
    for repair in plan.repairs:
        if repair.reason.code is ReasonCode.SCALE_UP_TIMED_OUT:
            grown[key("failed_scale_ups_total", reason="timeout")] += 1
        if repair.reason.code is ReasonCode.CREATION_FAILED:
            cause = known_reason(str(repair.reason.params.get("error", "")).partition(".")[0])
            grown[key("failed_node_creations_total", reason=cause)] += len(repair.instances)
    providers = sum(gap.kind.startswith("provider/") for gap in plan.gaps)
    if providers:
        grown[key("errors_total", type="cloudProviderError")] += providers
    return {series: float(count) for series, count in grown.items()}


def _limited(reason: Reason | None, code: ReasonCode) -> list[str]:
    if reason is None or reason.code is not code:
        return []
    resources = {name.strip() for name in str(reason.params.get("resources", "")).split(",")}
    return [word for name, word in LIMITS if name in resources]


def timed(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the histogram increments: the durations by function."""
    grown, name = {}, "function_duration_seconds"
    for function, took in seconds.items():
        for bound in BUCKETS:
            if took <= bound:
                grown[key(f"{name}_bucket", function=function, le=f"{bound:g}")] = 1.0
        grown[key(f"{name}_bucket", function=function, le="+Inf")] = 1.0
        grown[key(f"{name}_sum", function=function)] = round(took, 4)
        grown[key(f"{name}_count", function=function)] = 1.0
    return grown
