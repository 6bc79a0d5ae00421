"""Shows the circuit breaker (spec.maxDisruption) in command output: whether it is tripped, and how many nodes were
removed recently."""

from __future__ import annotations

from typing import Any

from chalicelib.model.memory import Memory
from chalicelib.model.timestamps import format_time
from chalicelib.plan.scale_down.circuit_breaker import removals_last_hour


def brake_data(memory: Memory, now: float) -> dict[str, Any]:
    """Return the circuit breaker's state under stable keys; instants as RFC 3339, null where there is none."""
    brake, taken = memory.breaker, removals_last_hour(memory.breaker, now)
    released = memory.released_until > now
    return {
        "on": bool(brake.tripped_at) and not released,
        "pulledAt": format_time(brake.tripped_at) if brake.tripped_at else None,
        "wanted": brake.wanted,
        "releasedUntil": format_time(memory.released_until) if released else None,
        "lastHour": {"nodes": sum(nodes for _, nodes, _ in taken), "pods": sum(pods for _, _, pods in taken)},
    }


def brake_line(data: dict[str, Any]) -> str:
    """Return the circuit breaker's state as a sentence."""
    hour = f"nodes removed in the last hour: {data['lastHour']['nodes']}, pods moved: {data['lastHour']['pods']}"
    if data["on"]:
        return f"tripped at {data['pulledAt']} by a plan that removed {data['wanted']} nodes at once; {hour}"
    return f"released until {data['releasedUntil']}; {hour}" if data["releasedUntil"] else f"not tripped; {hour}"
