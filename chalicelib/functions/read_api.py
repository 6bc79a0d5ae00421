"""HTTP read routes for people and scripts: status, decisions, history. They only read, and only
the table, never a cluster.

Response fields are stable: they are added, never renamed. Instants are RFC 3339, absent ones
null; durations are seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.functions.http_response import HttpError, HttpResponse, refuse_newer_schema
from chalicelib.journal import carry_over
from chalicelib.journal.cluster_health import (
    ClusterSituation,
    cluster_status,
    counts_of,
    with_groups,
)
from chalicelib.journal.redaction import without_secrets
from chalicelib.model.errors import BadInput
from chalicelib.model.memory import Memory
from chalicelib.model.operation import Operation
from chalicelib.model.pause import Pause
from chalicelib.model.timestamps import parse_time
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.active_policy import in_force_or_problem
from chalicelib.runtime.messages import cluster_name_ok
from chalicelib.runtime.mode_guard import permitted
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.errors import RowUnreadable, StoreError
from chalicelib.store.leases import LastPass
from chalicelib.store.policies import not_used
from chalicelib.views import cluster_view as views
from chalicelib.views.cluster_view import as_json, instant
from chalicelib.views.consolidation import replacement_views

if TYPE_CHECKING:
    from chalicelib.store import JournalEntry, StoredPolicy
    from chalicelib.views.rows import GroupRow

LIMIT, MAX_LIMIT, MAX_FULL = 20, 100, 5

_NUMBER = re.compile(r"[0-9]{1,4}\Z")


def healthz() -> HttpResponse:
    """Handle GET /healthz: this function runs. It reads nothing, because the
    route is open to everyone."""
    return HttpResponse(200, {"status": "ok"})


def clusters(runtime: Runtime) -> HttpResponse:
    """Handle GET /clusters: {"clusters": [{name, mode, version, lastPass, lastSuccess, lastError,
    health, status, problem, counts, openOperations, …}]}, by name; `problem` says why the policy
    cannot be used, null where it can. Where policies are stored in a place that is not used, also
    "problems" with a line each."""
    refuse_newer_schema(runtime)
    stored_policies = runtime.store.policies.all_current()
    not_moved = runtime.store.moving.not_moved(stored_policies)
    passed = runtime.store.scan_states.passed_by([stored.name for stored in stored_policies])
    paused = runtime.store.pauses.all_current()
    summaries = []
    for stored in stored_policies:
        policy, problem = in_force_or_problem(stored, runtime.clock(), runtime.deployment)
        facts = _Facts(passed.get(stored.name, LastPass()), paused.get(stored.name, ()))
        summary = _summary(stored, policy, problem, facts, runtime)
        summaries.append(without_secrets(summary, stored.text, policy))
    body: dict[str, Any] = {"clusters": summaries}
    if not_moved:
        body["problems"] = [f"{not_used(not_moved)}; run outscaler migrate"]
    return HttpResponse(200, body)


def cluster(name: str, runtime: Runtime) -> HttpResponse:
    """Handle GET /clusters/{name}: its summary and policy, groups, nodes, pods without a place, the
    cost, open operations, cooldowns, circuit breaker, nodes with timers."""
    refuse_newer_schema(runtime)
    stored = _stored(name, runtime)
    now = runtime.clock()
    policy, problem = in_force_or_problem(stored, now, runtime.deployment)
    facts = _facts_of(name, runtime)
    memory = Memory()
    try:
        memory = runtime.store.memory.look(name)
    except RowUnreadable as error:
        problem = problem or str(error)
    tables, rows = _tables(name, memory, now, facts.pauses_or_none, runtime)
    summary = _summary(stored, policy, problem, facts, runtime, rows)
    body = {
        **summary,
        "policy": _policy(policy) if policy else {"error": problem},
        **tables,
        "operations": [_operation(operation) for operation in memory.operations],
        "replacements": [as_json(view) for view in replacement_views(memory)],
        "cooldowns": _cooldowns(memory, policy.options, now) if policy else {},
        "brake": as_json(views.breaker_view(memory, now)),
        "timers": _timers(memory),
    }
    return HttpResponse(200, without_secrets(body, stored.text, policy))


def decisions(name: str, parameters: Mapping[str, str], runtime: Runtime) -> HttpResponse:
    """Handle GET /clusters/{name}/decisions?limit=&before=&full=: {"decisions": [{at, kind,
    plan, …}]}, newest first.

    `limit` is 1 to 100, default 20; `before` RFC 3339, for the next page; `full=true` adds
    the whole plan, limit 5.
    """
    refuse_newer_schema(runtime)
    unknown = sorted(set(parameters) - {"limit", "before", "full"})
    if unknown:
        raise BadInput(f"query: {unknown[0]}", "is not a parameter", "use limit, before or full")
    full_text = parameters.get("full", "false")
    if full_text not in ("true", "false"):
        raise BadInput("query: full", f"{full_text[:40]!r}", "use true or false")
    full = full_text == "true"
    limit = _limit(parameters, MAX_FULL if full else MAX_LIMIT)
    before = None
    if "before" in parameters:
        try:
            before = parse_time(parameters["before"])
        except BadInput as bad:
            raise BadInput("query: before", bad.problem, bad.remedy) from None
    stored = _stored(name, runtime)
    entries = runtime.store.journal.recent(name, limit, before=before)
    policy, _ = in_force_or_problem(stored, runtime.clock(), runtime.deployment)
    body = {"decisions": [_decision(entry, full=full) for entry in entries]}
    return HttpResponse(200, without_secrets(body, stored.text, policy))


def _limit(parameters: Mapping[str, str], most: int) -> int:
    """Return the number of entries to show. Raises BadInput for one above `most`."""
    default = min(LIMIT, most)
    limit = parameters.get("limit", str(default))
    if not _NUMBER.match(limit) or not 1 <= int(limit) <= most:
        raise BadInput("query: limit", f"{limit[:40]!r}", f"use a whole number from 1 to {most}")
    return int(limit)


def _timers(memory: Memory) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for node, timers in sorted(memory.nodes.items()):
        if timers.unneeded_since or timers.unremovable_until:
            unneeded_since = instant(timers.unneeded_since)
            unremovable_until = instant(timers.unremovable_until)
            rows.append(
                {
                    "node": node,
                    "unneededSince": unneeded_since,
                    "unremovableUntil": unremovable_until,
                }
            )
    return rows


def _stored(name: str, runtime: Runtime) -> StoredPolicy:
    stored = runtime.store.policies.current(name) if cluster_name_ok(name) else None
    if stored is None:
        raise HttpError(404, f"clusters/{name[:64]}: not known; GET /clusters lists those that are")
    return stored


class _Facts(msgspec.Struct, frozen=True):
    """The last pass and the pauses of a cluster, or why either cannot be read."""

    passed: LastPass | StoreError
    pauses: tuple[Pause, ...] | StoreError

    @property
    def pauses_or_none(self) -> tuple[Pause, ...]:
        return () if isinstance(self.pauses, StoreError) else self.pauses


def _facts_of(name: str, runtime: Runtime) -> _Facts:
    passed = runtime.store.scan_states.passed_by([name]).get(name, LastPass())
    try:
        return _Facts(passed, runtime.store.pauses.current(name))
    except RowUnreadable as error:
        return _Facts(passed, error)


def _summary(
    stored: StoredPolicy,
    policy: Policy | None,
    problem: str,
    facts: _Facts,
    runtime: Runtime,
    rows: Sequence[GroupRow] = (),
) -> dict[str, Any]:
    """Return the summary of a cluster. rows: of its groups, where they are known. What the
    cluster's rows contain never fails the lines of others: it becomes a problem."""
    permission = permitted(policy) if policy is not None else None
    interval = policy.scan_interval if policy is not None else None
    now = runtime.clock()
    passed = facts.passed if isinstance(facts.passed, LastPass) else LastPass()
    open_operations: int | None = None
    unreadable = [row for row in (facts.passed, facts.pauses) if isinstance(row, StoreError)]
    try:
        open_operations = len(runtime.store.operations.look(stored.name))
    except RowUnreadable as error:
        unreadable.append(error)
    if unreadable:
        interval = None
        problem = problem or str(unreadable[0])
    scan = passed.state
    planned = permission is not None and permission.plan
    counts = counts_of(carry_over.read(passed.carry_over).gauges)
    if rows:
        counts = with_groups(counts, rows)
    situation = ClusterSituation(
        problem=problem,
        plans=planned,
        interval=interval,
        applied_at=stored.stored_at,
        scan=scan,
        failure=f"{scan.failure.cls}: {scan.failure.message}" if scan.failure is not None else "",
        counts=counts,
        pauses=facts.pauses_or_none,
    )
    status = as_json(cluster_status(situation, now))
    del status["rank"]
    return {
        "name": stored.name,
        "mode": permission.word if permission is not None else "unreadable",
        "version": stored.version,
        "appliedAt": instant(stored.stored_at),
        **as_json(views.passes_view(scan)),
        "health": views.health(interval, scan, stored.stored_at, now, planned=planned),
        "status": status,
        "problem": problem or None,
        "counts": {
            "nodes": counts.nodes,
            "coming": counts.coming,
            "waiting": counts.waiting,
            "withoutNode": counts.without_node,
        },
        "openOperations": open_operations,
    }


def _policy(policy: Policy) -> dict[str, Any]:
    """Summarise the policy without the names of secrets."""
    shown_fields = ("provider", "id", "min", "max", "priority")
    groups = [{name: getattr(group, name) for name in shown_fields} for group in policy.node_groups]
    return {
        "mode": permitted(policy).word,
        "scanInterval": policy.scan_interval,
        "providers": sorted(policy.providers),
        "nodeGroups": groups,
        "expander": list(policy.options.expander),
        "webhook": bool(policy.webhook.secret),
    }


def _tables(
    name: str, memory: Memory, now: float, pauses: tuple[Pause, ...], runtime: Runtime
) -> tuple[dict[str, Any], tuple[GroupRow, ...]]:
    """Return the rows of groups and nodes, what is remembered of a group, and what the last
    decision and the last pass say of both; why pods have no place; and the cost. The second value
    is the decided groups."""
    # Every function imports this module, and none but this one needs the rows.
    from chalicelib.journal.journal import DecisionUnreadable, last_decision
    from chalicelib.views.cost_view import cost_view
    from chalicelib.views.rows import (
        group_data,
        group_rows,
        node_data,
        node_rows,
        only_remembered,
    )

    passed = LastPass()
    decision = None
    with suppress(RowUnreadable):  # the summary says so
        passed = runtime.store.scan_states.last(name, points=True) or passed
    with suppress(DecisionUnreadable):
        decision = last_decision(name, passed, runtime.store.journal)
    plan = decision.plan if decision is not None else None
    entries = runtime.store.journal.recent(name, MAX_LIMIT)
    overview = passed.overview
    rows = group_rows(plan, memory, overview, now, pauses=pauses, entries=entries)
    known = sorted((*rows, *only_remembered(memory, rows, now)), key=lambda row: row.group)
    groups = [group_data(row, _remembered(row.remembered, now)) for row in known]
    nodes = [node_data(row) for row in node_rows(plan, overview, rows, memory, entries)]
    cost = as_json(cost_view(overview.bill, plan)) if overview.bill is not None else None
    decided = rows if plan is not None else ()
    unschedulable = views.no_place_data(plan) if plan is not None else []
    tables = {"groups": groups, "nodes": nodes, "unschedulable": unschedulable, "cost": cost}
    return tables, decided


def _remembered(view: views.GroupView, now: float) -> dict[str, Any]:
    """Return what is remembered of a node group: its target, the expected nodes, its backoff while
    it lasts, and what it has taught."""
    request = view.request
    backoff = view.backoff_at(now)
    expected = request and {
        "nodes": request.increase,
        "since": instant(request.since),
        "by": instant(request.expected_at),
    }
    return {
        "group": view.group,
        "target": view.target,
        "expected": expected,
        "backOff": backoff and as_json(backoff),
        "lastAdd": instant(view.last_add),
        "lastDelete": instant(view.last_delete),
        "lastFailure": instant(view.last_failure),
        "joins": as_json(view.joins),
    }


def _operation(operation: Operation) -> dict[str, Any]:
    """Return one open operation with the names of its nodes and its progress, without the claim."""
    data = as_json(views.operation_view(operation))
    data["nodes"] = [target.node for target in operation.spec.targets]
    hidden = ("claimedBy", "claimedUntil", "sentAt")
    return {key: value for key, value in data.items() if key not in hidden}


def _cooldowns(memory: Memory, options: Options, now: float) -> dict[str, str | None]:
    """Return until when each cooldown blocks scale-down; null where none does."""
    instants = {
        "afterAdd": memory.last_scale_up,
        "afterDelete": memory.last_scale_down,
        "afterFailure": memory.last_scale_down_failure,
    }
    # per group, each group shows its own last change
    is_of_cluster = not options.scale_down_delay_type_local
    cooldowns: dict[str, str | None] = {}
    for (name, since), delay in zip(instants.items(), options.cooldowns, strict=True):
        is_running = since and since + delay > now
        cooldowns[name] = instant(since + delay) if is_of_cluster and is_running else None
    return cooldowns


def _decision(entry: JournalEntry, *, full: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "at": views.exact(entry.at),
        "kind": entry.kind,
        "plan": entry.plan,
        "facts": entry.facts,
    }
    if entry.operation:
        data["operation"] = entry.operation
    if entry.group:
        data["group"] = entry.group
    if full and entry.body:
        data["body"] = msgspec.json.decode(entry.body)
    return data
