"""HTTP read routes for people and scripts: status, decisions, history. They only read, and only the table, never a
cluster.

Response fields are stable: they are added, never renamed. Instants are RFC 3339, absent ones null; durations are
seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.dispatch.messages import cluster_name_ok
from chalicelib.dispatch.mode_guard import permitted
from chalicelib.handlers.http_response import HttpError, HttpResponse, refuse_newer_schema
from chalicelib.handlers.views import circuit_breaker, cooldowns, exact, group, operation, policy_summary, timers
from chalicelib.model.errors import BadInput
from chalicelib.model.memory import Memory
from chalicelib.model.policy import Policy
from chalicelib.model.timestamps import parse_time
from chalicelib.record.cluster_health import health, results
from chalicelib.record.redaction import without_secrets
from chalicelib.runtime.active_policy import in_force_or_problem
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.errors import RowUnreadable
from chalicelib.store.policy_migration import not_used
from chalicelib.store.scan_state import ScanState

if TYPE_CHECKING:
    from chalicelib.store import JournalEntry, StoredPolicy

LIMIT, MAX_LIMIT, MAX_FULL = 20, 100, 5

_NUMBER = re.compile(r"[0-9]{1,4}\Z")


def healthz() -> HttpResponse:
    """Handle GET /healthz: this function runs. It reads nothing, because the route is open to everyone."""
    return HttpResponse(200, {"status": "ok"})


def clusters(runtime: Runtime) -> HttpResponse:
    """Handle GET /clusters: {"clusters": [{name, mode, version, lastPass, lastSuccess, lastError, health, problem,
    openOperations}]}, by name. problem: why the policy cannot be used, null where it can. Where policies are stored in
    a place that is not used, also "problems": a line each."""
    refuse_newer_schema(runtime)
    known = runtime.store.policies.all_current()
    left = runtime.store.moving.not_moved(known)
    problems = {"problems": [f"{not_used(left)}; run outscaler migrate"]} if left else {}
    return HttpResponse(200, {"clusters": [_row(stored, runtime) for stored in known], **problems})


def cluster(name: str, runtime: Runtime) -> HttpResponse:
    """Handle GET /clusters/{name}: its summary and policy, groups, open operations, cooldowns, circuit breaker, nodes
    with timers."""
    refuse_newer_schema(runtime)
    stored = _stored(name, runtime)
    policy, problem = in_force_or_problem(stored, runtime.clock(), runtime.deployment)
    line, memory = _line(stored, policy, problem, runtime), Memory()
    try:
        memory = runtime.store.memory.look(name)
    except RowUnreadable as error:
        line |= {"problem": str(error)}
    return HttpResponse(
        200,
        without_secrets(
            {
                **line,
                "policy": policy_summary(policy) if policy else {"error": problem},
                "groups": [group(key, memory.groups[key], runtime.clock()) for key in sorted(memory.groups)],
                "operations": [operation(one) for one in memory.operations],
                "cooldowns": cooldowns(memory, policy.options, runtime.clock()) if policy else {},
                "brake": circuit_breaker(memory, runtime.clock()),
                "timers": timers(memory),
            },
            stored.text,
            policy,
        ),
    )


def decisions(name: str, parameters: Mapping[str, str], runtime: Runtime) -> HttpResponse:
    """Handle GET /clusters/{name}/decisions?limit=&before=&full=: {"decisions": [{at, kind, plan, …}]}, newest first.

    limit: 1 to 100, default 20. before: RFC 3339, for the next page. full=true: with the whole plan, limit 5.
    """
    refuse_newer_schema(runtime)
    unknown = sorted(set(parameters) - {"limit", "before", "full"})
    if unknown:
        raise BadInput(f"query: {unknown[0]}", "is not a parameter", "use limit, before or full")
    full = _flag(parameters, "full")
    limit = _limit(parameters, MAX_FULL if full else MAX_LIMIT)
    before = _before(parameters)
    stored = _stored(name, runtime)
    entries = runtime.store.journal.recent(name, limit, before=before)
    policy, _ = in_force_or_problem(stored, runtime.clock(), runtime.deployment)
    shown = {"decisions": [_decision(entry, full=full) for entry in entries]}
    return HttpResponse(200, without_secrets(shown, stored.text, policy))


def _stored(name: str, runtime: Runtime) -> StoredPolicy:
    stored = runtime.store.policies.current(name) if cluster_name_ok(name) else None
    if stored is None:
        raise HttpError(404, f"clusters/{name[:64]}: not known; GET /clusters lists those that are")
    return stored


def _row(stored: StoredPolicy, runtime: Runtime) -> Any:
    policy, problem = in_force_or_problem(stored, runtime.clock(), runtime.deployment)
    return without_secrets(_line(stored, policy, problem, runtime), stored.text, policy)


def _line(stored: StoredPolicy, policy: Policy | None, problem: str, runtime: Runtime) -> dict[str, Any]:
    """Return the summary of a cluster. What its rows contain never fails the lines of others: it becomes a problem."""
    now = runtime.clock()
    permission = permitted(policy) if policy is not None else None
    pace, opened = ScanState(), None
    interval = policy.scan_interval if policy is not None else None
    try:
        pace, opened = runtime.store.scan_states.due(stored.name), len(runtime.store.operations.look(stored.name))
    except RowUnreadable as error:
        interval, problem = None, problem or str(error)
    return {
        "name": stored.name,
        "mode": permission.word if permission is not None else "unreadable",
        "version": stored.version,
        **results(pace),
        "health": health(interval, pace, now, planned=permission is not None and permission.plan),
        "problem": problem or None,
        "openOperations": opened,
    }


def _decision(entry: JournalEntry, *, full: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"at": exact(entry.at), "kind": entry.kind, "plan": entry.plan, "facts": entry.facts}
    shown |= {"operation": entry.operation} if entry.operation else {}
    shown |= {"group": entry.group} if entry.group else {}
    return shown | ({"body": msgspec.json.decode(entry.body)} if full and entry.body else {})


def _limit(parameters: Mapping[str, str], most: int) -> int:
    text = parameters.get("limit", str(min(LIMIT, most)))
    if not _NUMBER.match(text) or not 1 <= int(text) <= most:
        raise BadInput("query: limit", f"{text[:40]!r}", f"use a whole number from 1 to {most}")
    return int(text)


def _before(parameters: Mapping[str, str]) -> float | None:
    text = parameters.get("before")
    if text is None:
        return None
    try:
        return parse_time(text)
    except BadInput as bad:
        raise BadInput("query: before", bad.problem, bad.remedy) from None


def _flag(parameters: Mapping[str, str], name: str) -> bool:
    text = parameters.get(name, "false")
    if text not in ("true", "false"):
        raise BadInput(f"query: {name}", f"{text[:40]!r}", "use true or false")
    return text == "true"
