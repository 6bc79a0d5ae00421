"""Converts a cluster's memory into JSON for people: instants as text, and only what is still in force.

No decision uses these values; the planner has its own view of the same memory.
"""

from __future__ import annotations

from typing import Any

from chalicelib.dispatch.mode_guard import permitted
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.operation import Operation
from chalicelib.model.policy import Options, Policy
from chalicelib.model.timestamps import format_time


def instant(at: float) -> str | None:
    """Return epoch seconds as RFC 3339; 0.0 means never, which is null."""
    return format_time(at) if at else None


def exact(at: float) -> str:
    """Return epoch seconds as RFC 3339 with microseconds, which identifies an entry of the journal."""
    micros = round(at * 1e6)
    return f"{format_time(micros // 10**6)[:-1]}.{micros % 10**6:06d}Z"


def policy_summary(policy: Policy) -> dict[str, Any]:
    """Summarise the policy without the names of secrets."""
    return {
        "mode": permitted(policy).word,
        "scanInterval": policy.scan_interval,
        "providers": sorted(policy.providers),
        "nodeGroups": [
            {"provider": group.provider, "id": group.id, "min": group.min, "max": group.max, "priority": group.priority}
            for group in policy.node_groups
        ],
        "expander": list(policy.options.expander),
        "webhook": bool(policy.webhook.secret),
    }


def group(key: str, memory: GroupMemory, now: float) -> dict[str, Any]:
    """Return one node group: its target, the expected nodes, and its backoff while it lasts."""
    request, backoff = memory.request, memory.backoff
    return {
        "group": key,
        "target": memory.target,
        "expected": {"nodes": request.increase, "since": instant(request.since), "by": instant(request.expected_at)}
        if request
        else None,
        "backOff": {
            "until": instant(backoff.until),
            "class": backoff.cls,
            "code": backoff.code,
            "message": backoff.message,
            "attempt": backoff.attempt,
        }
        if backoff and backoff.until >= now
        else None,
        "lastAdd": instant(memory.last_add),
        "lastDelete": instant(memory.last_delete),
        "lastFailure": instant(memory.last_failure),
    }


def operation(operation: Operation) -> dict[str, Any]:
    """Return one open operation and its progress."""
    return {
        "id": operation.spec.id,
        "kind": operation.spec.kind.value,
        "provider": operation.spec.provider,
        "group": operation.spec.group,
        "from": operation.spec.from_size,
        "to": operation.spec.to_size,
        "nodes": [target.node for target in operation.spec.targets],
        "state": operation.status.state.value,
        "step": operation.status.step,
        "attempt": operation.status.attempt,
        "plan": operation.spec.plan,
        "createdAt": instant(operation.spec.created_at),
        "dueAt": instant(operation.status.due_at),
        "deadline": instant(operation.spec.deadline),
    }


def cooldowns(memory: Memory, options: Options, now: float) -> dict[str, str | None]:
    """Return until when each cooldown blocks scale-down; null where none does."""
    delays = {
        "afterAdd": (memory.last_scale_up, options.scale_down_delay_after_add),
        "afterDelete": (memory.last_scale_down, options.scale_down_delay_after_delete),
        "afterFailure": (memory.last_scale_down_failure, options.scale_down_delay_after_failure),
    }
    running = not options.scale_down_delay_type_local  # per group, each group shows its own last change
    return {
        name: instant(since + delay) if running and since and since + delay > now else None
        for name, (since, delay) in delays.items()
    }


def circuit_breaker(memory: Memory, now: float) -> dict[str, Any]:
    """Return the circuit breaker (spec.maxDisruption): since when it is tripped and for how many nodes, until when an
    operator overrides it, and the removals of the last hour."""
    # Imported here because it loads numpy, which the webhook must not pay for.
    from chalicelib.plan.scale_down.circuit_breaker import removals_last_hour

    removals = removals_last_hour(memory.breaker, now)
    released = memory.released_until if memory.released_until > now else 0.0
    return {
        "on": bool(memory.breaker.tripped_at) and not released,
        "pulledAt": instant(memory.breaker.tripped_at),
        "wanted": memory.breaker.wanted,
        "releasedUntil": instant(released),
        "lastHour": {"nodes": sum(nodes for _, nodes, _ in removals), "pods": sum(pods for _, _, pods in removals)},
    }


def timers(memory: Memory) -> list[dict[str, Any]]:
    """Return the nodes with a running timer: unneeded since, or not simulated again until."""
    return [
        {
            "node": name,
            "unneededSince": instant(node.unneeded_since),
            "unremovableUntil": instant(node.unremovable_until),
        }
        for name, node in sorted(memory.nodes.items())
        if node.unneeded_since or node.unremovable_until
    ]
