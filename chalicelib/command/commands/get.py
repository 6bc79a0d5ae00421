"""`outscaler get [clusters | claims | policy NAME | operations NAME | groups NAME | nodes NAME | pods NAME | brake
NAME]`: shows the stored state.

Nothing is computed here; `outscaler plan` says what would happen next. Nodes and pods are those of the last decision in
the table, so no command needs access to the cluster.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chalicelib.command.deployment_settings import known_settings
from chalicelib.command.output import Table, emit, warn
from chalicelib.command.store_access import add_table_argument, not_moved, open_store, required_decision, stored_policy
from chalicelib.dispatch.mode_guard import permitted
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.timestamps import format_time
from chalicelib.policy.admission import Admission
from chalicelib.policy.load import load
from chalicelib.reasons.text import sentence
from chalicelib.record import views
from chalicelib.record.views import NodeView, PodView, ago, as_json, coded, instant
from chalicelib.schedules.apply import apply_schedules
from chalicelib.store.errors import StoreError
from chalicelib.store.leases import ScanState

if TYPE_CHECKING:
    from chalicelib.model.pause import Pause
    from chalicelib.model.policy_permissions import Deployment
    from chalicelib.record.journal import LastDecision
    from chalicelib.store import Store, StoredPolicy

_REASONS_SHOWN = 3  # groups whose reasons a line of a pod shows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add WHAT, NAME and --table."""
    parser.add_argument(
        "what",
        nargs="?",
        choices=tuple(_THINGS),
        default="clusters",
        help="clusters (default), "
        "claims on node groups, or the policy, open operations, remembered groups, nodes and waiting pods of the last "
        "decision, or the circuit breaker of one cluster",
    )
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="the cluster; not for clusters and claims")
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print the requested state. Always returns 0, also for an empty result."""
    place, of_all = f"outscaler get {args.what}", args.what in ("clusters", "claims")
    if of_all and args.name:
        raise BadInput(place, f"takes no name, but {args.name!r} is given", f"write outscaler get policy {args.name}")
    if not of_all and not args.name:
        raise BadInput(place, "needs a cluster's name", "outscaler get clusters lists them")
    store = open_store(args)
    if not of_all and args.what != "policy":
        stored_policy(store, args.name)
    _THINGS[args.what](store, args)
    return 0


def _clusters(store: Store, args: argparse.Namespace) -> None:
    policies = store.policies.all_current()
    if not_in_force := not_moved(store):
        warn(not_in_force)
    now, deployment = time.time(), known_settings(store) if policies else None
    states, pauses, problems = _states(store, policies)
    for cluster, problem in problems.items():
        warn(f"{cluster}: {problem}")
    data, rows = [], []
    for stored in policies:
        state = states[stored.name]
        health, problem = _health(stored, state, now, deployment, problems)
        data.append(
            {
                "name": stored.name,
                "version": stored.version,
                "storedAt": instant(stored.stored_at),
                "digest": stored.digest,
                **as_json(views.passes_view(state)),
                "health": health,
                "problem": problem or None,
                "pauses": [as_json(views.pause_view(pause)) for pause in pauses.get(stored.name, ())],
            }
        )
        rows.append(
            (
                stored.name,
                str(stored.version),
                ago(stored.stored_at, now),
                stored.digest[:12],
                ago(state.last_pass, now),
                ": ".join(part for part in (health, problem) if part),
            )
        )
    emit(
        args.output,
        data,
        lambda: [
            *(
                f"{stored.name}: {views.pause_view(pause).paused_line}"
                for stored in policies
                for pause in pauses.get(stored.name, ())
            ),
            Table(
                ("cluster", "version", "stored", "digest", "last pass", "health"),
                tuple(rows),
                right=frozenset({1}),
                empty="no cluster has a policy yet",
            ),
        ],
    )


def _states(
    store: Store, policies: Sequence[StoredPolicy]
) -> tuple[dict[str, ScanState], dict[str, tuple[Pause, ...]], dict[str, str]]:
    """Return the scan states, the pauses, and why a cluster's policy or rows cannot be read. Raises StoreError where
    the table does not answer."""
    problems = {stored.name: stored.problem for stored in policies if stored.problem}
    states, pauses = dict.fromkeys((stored.name for stored in policies), ScanState()), {}
    for cluster, state in store.scan_states.due_by(list(states)).items():
        if isinstance(state, StoreError):
            problems.setdefault(cluster, str(state))
        else:
            states[cluster] = state
    for cluster, paused in store.pauses.all_current().items():
        if isinstance(paused, StoreError):
            problems.setdefault(cluster, str(paused))
        else:
            pauses[cluster] = paused
    return states, pauses, problems


def _health(
    stored: StoredPolicy, state: ScanState, now: float, deployment: Deployment | None, problems: Mapping[str, str]
) -> tuple[str, str]:
    """Return the health as GET /clusters reports it, with the policy's schedules applied, and why no pass can start,
    "" where one can.

    deployment: what the functions permit; None: not published, so that only the text is judged: a secret that is not
    permitted by default may be one that the functions permit. problems: see _states.
    """
    if stored.name in problems:
        return views.health(None, state, now, planned=False), problems[stored.name]
    admission = Admission(deployment, cluster=stored.name) if deployment is not None else None
    try:
        policy = apply_schedules(load(stored.text, place=f"policy {stored.name}", admission=admission)[0], now)
    except BadInput as error:
        mistakes = error.problems if isinstance(error, InputErrors) else (error,)
        more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
        place = mistakes[0].place.partition(": ")[2] or mistakes[0].place
        return views.health(None, state, now, planned=False), f"{place}: {mistakes[0].problem}{more}"
    return views.health(policy.scan_interval, state, now, planned=permitted(policy).plan), ""


def _policy(store: Store, args: argparse.Namespace) -> None:
    """Print the stored text for table and yaml: it is YAML, and its comments must be kept."""
    stored: StoredPolicy = stored_policy(store, args.name)
    if args.output == "json":
        data = {
            "name": stored.name,
            "version": stored.version,
            "storedAt": instant(stored.stored_at),
            "digest": stored.digest,
            "text": stored.text,
        }
        emit("json", data, list)
    else:
        sys.stdout.write(stored.text if stored.text.endswith("\n") else stored.text + "\n")


def _operations(store: Store, args: argparse.Namespace) -> None:
    operations, now = [views.operation_view(operation) for operation in store.operations.look(args.name)], time.time()
    table = Table(
        ("operation", "kind", "group", "change", "state", "step", "attempt", "planned", "next"),
        tuple(
            (
                view.id,
                view.kind,
                view.group,
                view.change,
                view.state,
                view.step,
                str(view.attempt),
                ago(view.created_at, now),
                ago(view.due_at, now) if view.due_at else "",
            )
            for view in operations
        ),
        right=frozenset({6}),
        empty="no operation is open",
    )
    emit(args.output, [as_json(view) for view in operations], lambda: [table])


def _groups(store: Store, args: argparse.Namespace) -> None:
    memory, now = store.memory.look(args.name), time.time()
    rows, groups = [], [views.group_view(name, memory.groups[name]) for name in sorted(memory.groups)]
    for view in groups:
        request, backoff = view.request, view.backoff_at(now)
        rows.append(
            (
                view.group,
                str(view.target),
                f"{request.increase} until {format_time(request.expected_at)}" if request else "",
                f"{backoff.title}, ends {ago(backoff.until, now)}" if backoff else "",
                ago(view.last_add, now),
                ago(view.last_delete, now),
                ago(view.last_failure, now),
            )
        )
    table = Table(
        ("group", "target", "waiting for", "back-off", "last add", "last delete", "last failure"),
        tuple(rows),
        right=frozenset({1}),
        empty="nothing is remembered yet",
    )
    emit(args.output, [as_json(view) for view in groups], lambda: [table])


def _nodes(store: Store, args: argparse.Namespace) -> None:
    """Print each node: removed, unneeded or stays, and why."""
    decision = required_decision(store, args.name)
    nodes = views.node_views(decision.plan)
    table = Table(
        ("node", "decision", "why", "pod"),
        tuple((view.node, view.decision, _why_node(view), view.pod) for view in nodes),
        empty="no node was seen",
    )
    data = _document(decision, "nodes", [_node_data(view) for view in nodes])
    emit(args.output, data, lambda: [_as_of(decision), table])


def _node_data(view: NodeView) -> dict[str, Any]:
    data: dict[str, Any] = {"node": view.node, "decision": view.decision}
    if view.decision == views.REMOVED:
        data |= {"group": view.group, "evict": list(view.evict)}
    if view.reason is not None:
        data["reason"] = coded(view.reason)
    return data | ({"pod": view.pod} if view.pod else {})


def _why_node(view: NodeView) -> str:
    if view.reason is not None:
        return sentence(view.reason)
    return f"group {view.group}, {len(view.evict)} pods evicted" if view.decision == views.REMOVED else ""


def _pods(store: Store, args: argparse.Namespace) -> None:
    """Print each pod that waits: with a place on the way, without one, or not considered, and why."""
    decision = required_decision(store, args.name)
    pods = views.pod_views(decision.plan)
    table = Table(
        ("pod", "decision", "why"),
        tuple((view.pod, view.decision, _why_pod(view)) for view in pods),
        empty="no pod waits for a place",
    )
    data = _document(decision, "pods", [_pod_data(view) for view in pods])
    emit(args.output, data, lambda: [_as_of(decision), table])


def _pod_data(view: PodView) -> dict[str, Any]:
    data: dict[str, Any] = {"pod": view.pod, "decision": view.decision}
    if view.decision == "unschedulable":
        data["reasons"] = {group: [coded(reason) for reason in reasons] for group, reasons in view.reasons.items()}
    if view.decision == "newNode":
        data["group"] = view.group
    return data | ({"reason": coded(view.reason)} if view.reason is not None else {})


def _why_pod(view: PodView) -> str:
    if view.decision == "newNode":
        return f"group {view.group} grows"
    if view.reason is not None:
        return sentence(view.reason)
    groups = [f"{group}: {'; '.join(map(sentence, reasons))}" for group, reasons in view.reasons.items()]
    more = f" and {len(groups) - _REASONS_SHOWN} more groups" if len(groups) > _REASONS_SHOWN else ""
    return ", ".join(groups[:_REASONS_SHOWN]) + more


def _as_of(decision: LastDecision) -> str:
    blocked = decision.plan.paused
    not_removed = f" No node is removed: {sentence(blocked)}." if blocked is not None else ""
    decided, confirmed = format_time(decision.at), format_time(decision.confirmed_at)
    return f"Decided at {decided}, last confirmed at {confirmed}.{not_removed}"


def _document(decision: LastDecision, name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "cluster": decision.plan.cluster,
        "plan": decision.plan.id,
        "at": format_time(decision.at),
        "confirmedAt": format_time(decision.confirmed_at),
        name: rows,
    }


def _breaker(store: Store, args: argparse.Namespace) -> None:
    view = views.breaker_view(store.memory.look(args.name), time.time())
    emit(args.output, {"name": args.name, **as_json(view)}, lambda: [f"{args.name}: {view.line}"])


def _claims(store: Store, args: argparse.Namespace) -> None:
    """Show which cluster owns each node group, since when, and whether another cluster may take it over."""
    claims, now = store.group_ownership.all(), time.time()
    data = [
        {
            "provider": claim.provider,
            "group": claim.group,
            "key": claim.key,
            "cluster": claim.owner,
            "since": instant(claim.since),
            "named": claim.named,
            "ended": claim.ended,
        }
        for claim in claims
    ]
    table = Table(
        ("provider", "group", "cluster", "since", "by", "ended"),
        tuple(
            (
                claim.provider,
                claim.key,
                claim.owner,
                ago(claim.since, now),
                "named" if claim.named else "discovered",
                claim.ended or "-",
            )
            for claim in claims
        ),
        empty="no node group is claimed yet",
    )
    emit(args.output, data, lambda: [table])


_THINGS: dict[str, Callable[[Store, argparse.Namespace], None]] = {
    "clusters": _clusters,
    "policy": _policy,
    "operations": _operations,
    "groups": _groups,
    "nodes": _nodes,
    "pods": _pods,
    "brake": _breaker,
    "claims": _claims,
}
