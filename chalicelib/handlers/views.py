"""How the memory of a cluster is shown to people: instants as text, and of everything only what is in force now.

Nothing is decided from what is shown here; the planner has its own view of the same memory.
"""

from __future__ import annotations

from typing import Any

from chalicelib.dispatch.mode_guard import permitted
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.operation import Operation
from chalicelib.model.policy import Options, Policy
from chalicelib.model.timestamps import format_time


def instant(at: float) -> str | None:
    """Epoch seconds as RFC 3339; 0.0 means never, which is null."""
    return format_time(at) if at else None


def exact(at: float) -> str:
    """Epoch seconds as RFC 3339 with microseconds, which identifies an entry of the journal."""
    micros = round(at * 1e6)
    return f"{format_time(micros // 10**6)[:-1]}.{micros % 10**6:06d}Z"


def policy_summary(policy: Policy) -> dict[str, Any]:
    """What is asked for, without the names of secrets."""
    return {
        "mode": permitted(policy).word,
        "scanInterval": policy.scan_interval,
        "providers": sorted(policy.providers),
        "nodeGroups": [
            {"provider": one.provider, "id": one.id, "min": one.min, "max": one.max, "priority": one.priority}
            for one in policy.node_groups
        ],
        "expander": list(policy.options.expander),
        "webhook": bool(policy.webhook.secret),
    }


def group(key: str, memory: GroupMemory, now: float) -> dict[str, Any]:
    """One node group: its target, the nodes that are expected, and its back-off while it lasts."""
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


def operation(one: Operation) -> dict[str, Any]:
    """One open operation and how far it has come."""
    return {
        "id": one.spec.id,
        "kind": one.spec.kind.value,
        "provider": one.spec.provider,
        "group": one.spec.group,
        "from": one.spec.from_size,
        "to": one.spec.to_size,
        "nodes": [target.node for target in one.spec.targets],
        "state": one.status.state.value,
        "step": one.status.step,
        "attempt": one.status.attempt,
        "plan": one.spec.plan,
        "createdAt": instant(one.spec.created_at),
        "dueAt": instant(one.status.due_at),
        "deadline": instant(one.spec.deadline),
    }


def cooldowns(memory: Memory, options: Options, now: float) -> dict[str, str | None]:
    """Until when scale-down is held back, and by what; null where it is not."""
    delays = {
        "afterAdd": (memory.last_scale_up, options.scale_down_delay_after_add),
        "afterDelete": (memory.last_scale_down, options.scale_down_delay_after_delete),
        "afterFailure": (memory.last_scale_down_failure, options.scale_down_delay_after_failure),
    }
    running = not options.scale_down_delay_type_local  # per group, each group says when it was changed last
    return {
        name: instant(since + delay) if running and since and since + delay > now else None
        for name, (since, delay) in delays.items()
    }


def brake(memory: Memory, now: float) -> dict[str, Any]:
    """The brake of removals (spec.maxDisruption): since when it is on and for how many nodes; until when a person has
    let it go; what removals have taken in the last hour."""
    # When it is used: it brings numpy, which the webhook shall not pay for.
    from chalicelib.plan.scale_down.circuit_breaker import removals_last_hour

    taken = removals_last_hour(memory.breaker, now)
    released = memory.released_until if memory.released_until > now else 0.0
    return {
        "on": bool(memory.breaker.tripped_at) and not released,
        "pulledAt": instant(memory.breaker.tripped_at),
        "wanted": memory.breaker.wanted,
        "releasedUntil": instant(released),
        "lastHour": {"nodes": sum(nodes for _, nodes, _ in taken), "pods": sum(pods for _, _, pods in taken)},
    }


def timers(memory: Memory) -> list[dict[str, Any]]:
    """Nodes with a clock running: unneeded since, or not looked at again until."""
    return [
        {"node": name, "unneededSince": instant(one.unneeded_since), "unremovableUntil": instant(one.unremovable_until)}
        for name, one in sorted(memory.nodes.items())
        if one.unneeded_since or one.unremovable_until
    ]
