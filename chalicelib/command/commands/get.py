"""`outscaler get [clusters | claims | policy NAME | operations NAME | groups NAME | nodes NAME | pods NAME | brake
NAME]`: shows the stored state.

Nothing is computed here; `outscaler plan` says what would happen next.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chalicelib.command import get_decision
from chalicelib.command.breaker_view import brake_data, brake_line
from chalicelib.command.commands.pause import pause_line, pauses_data
from chalicelib.command.deployment_settings import known_settings
from chalicelib.command.output import emit, warn
from chalicelib.command.store_access import add_table_argument, not_moved, open_store, stored_policy
from chalicelib.command.tables import Table
from chalicelib.dispatch.mode_guard import permitted
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.quantity import format_duration
from chalicelib.model.timestamps import format_time
from chalicelib.policy.admission import Admission
from chalicelib.policy.load import load
from chalicelib.record.cluster_health import health, results
from chalicelib.schedules.apply import apply_schedules
from chalicelib.store.errors import StoreError
from chalicelib.store.leases import ScanState

if TYPE_CHECKING:
    from chalicelib.model.memory import GroupMemory
    from chalicelib.model.operation import Operation
    from chalicelib.model.pause import Pause
    from chalicelib.model.policy_permissions import Deployment
    from chalicelib.store import Store, StoredPolicy


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
    if args.what in _OF_ALL and args.name:
        raise BadInput(
            f"outscaler get {args.what}",
            f"takes no name, but {args.name!r} is given",
            f"write outscaler get policy {args.name}",
        )
    if args.what not in _OF_ALL and not args.name:
        raise BadInput(f"outscaler get {args.what}", "needs a cluster's name", "outscaler get clusters lists them")
    _THINGS[args.what](open_store(args), args)
    return 0


def instant(at: float) -> str | None:
    """Return RFC 3339 text, or None for never."""
    return format_time(at) if at > 0 else None


def ago(at: float, now: float) -> str:
    """Format an instant as `5m10s ago`, `in 20s` or `never`."""
    if at <= 0:
        return "never"
    return f"{format_duration(now - at)} ago" if at <= now else f"in {format_duration(at - now)}"


def _clusters(store: Store, args: argparse.Namespace) -> None:
    policies = store.policies.all_current()
    if left := not_moved(store):
        warn(left)
    now, deployment = time.time(), known_settings(store) if policies else None
    states, pauses, problems = _states(store, policies)
    for cluster, problem in problems.items():
        warn(f"{cluster}: {problem}")
    health_of = {each.name: _health(each, states[each.name], now, deployment, problems) for each in policies}
    data = [
        {
            "name": each.name,
            "version": each.version,
            "storedAt": instant(each.stored_at),
            "digest": each.digest,
            **results(states[each.name]),
            "health": health_of[each.name][0],
            "problem": health_of[each.name][1] or None,
            "pauses": pauses_data(pauses.get(each.name, ())),
        }
        for each in policies
    ]
    rows = tuple(
        (
            each.name,
            str(each.version),
            ago(each.stored_at, now),
            each.digest[:12],
            ago(states[each.name].last_pass, now),
            ": ".join(part for part in health_of[each.name] if part),
        )
        for each in policies
    )
    emit(
        args.output,
        data,
        lambda: [
            *(f"{each.name}: {pause_line(one)}" for each in policies for one in pauses.get(each.name, ())),
            Table(
                ("cluster", "version", "stored", "digest", "last pass", "health"),
                rows,
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
    problems = {each.name: each.problem for each in policies if each.problem}
    states, pauses = dict.fromkeys((each.name for each in policies), ScanState()), {}
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
        return health(None, state, now, planned=False), problems[stored.name]
    admission = Admission(deployment, cluster=stored.name) if deployment is not None else None
    try:
        policy = apply_schedules(load(stored.text, place=f"policy {stored.name}", admission=admission)[0], now)
    except BadInput as error:
        return health(None, state, now, planned=False), _first_mistake(error)
    return health(policy.scan_interval, state, now, planned=permitted(policy).plan), ""


def _first_mistake(bad_input: BadInput) -> str:
    mistakes = bad_input.problems if isinstance(bad_input, InputErrors) else (bad_input,)
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return f"{mistakes[0].place.partition(': ')[2] or mistakes[0].place}: {mistakes[0].problem}{more}"


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
    stored_policy(store, args.name)
    operations = store.operations.look(args.name)
    now = time.time()
    emit(
        args.output,
        [_operation_data(each) for each in operations],
        lambda: [
            Table(
                ("operation", "kind", "group", "change", "state", "step", "attempt", "planned", "next"),
                tuple(
                    (
                        each.spec.id,
                        each.spec.kind.value,
                        each.spec.group,
                        _change(each),
                        each.status.state.value,
                        each.status.step,
                        str(each.status.attempt),
                        ago(each.spec.created_at, now),
                        ago(each.status.due_at, now) if each.status.due_at else "",
                    )
                    for each in operations
                ),
                right=frozenset({6}),
                empty="no operation is open",
            )
        ],
    )


def _change(operation: Operation) -> str:
    nodes = ", ".join(target.node or target.instance for target in operation.spec.targets)
    return nodes or f"{operation.spec.from_size} to {operation.spec.to_size}"


def _operation_data(operation: Operation) -> dict[str, Any]:
    return {
        "id": operation.spec.id,
        "kind": operation.spec.kind.value,
        "provider": operation.spec.provider,
        "group": operation.spec.group,
        "from": operation.spec.from_size,
        "to": operation.spec.to_size,
        "nodes": [target.node or target.instance for target in operation.spec.targets],
        "state": operation.status.state.value,
        "step": operation.status.step,
        "attempt": operation.status.attempt,
        "plan": operation.spec.plan,
        "createdAt": instant(operation.spec.created_at),
        "dueAt": instant(operation.status.due_at),
        "deadline": instant(operation.spec.deadline),
        "claimedBy": operation.status.claimed_by,
        "claimedUntil": instant(operation.status.claimed_until),
        "sentAt": instant(operation.status.sent_at),
    }


def _groups(store: Store, args: argparse.Namespace) -> None:
    stored_policy(store, args.name)
    groups = sorted(store.memory.look(args.name).groups.items())
    now = time.time()
    emit(
        args.output,
        [_group_data(name, group) for name, group in groups],
        lambda: [
            Table(
                ("group", "target", "waiting for", "back-off", "last add", "last delete", "last failure"),
                tuple(
                    (
                        name,
                        str(group.target),
                        _request(group),
                        _backoff(group, now),
                        ago(group.last_add, now),
                        ago(group.last_delete, now),
                        ago(group.last_failure, now),
                    )
                    for name, group in groups
                ),
                right=frozenset({1}),
                empty="nothing is remembered yet",
            )
        ],
    )


def _request(group: GroupMemory) -> str:
    return f"{group.request.increase} until {format_time(group.request.expected_at)}" if group.request else ""


def _backoff(group: GroupMemory, now: float) -> str:
    if group.backoff is None or group.backoff.until < now:
        return ""
    return f"{group.backoff.cls or 'failed'}, ends {ago(group.backoff.until, now)}"


def _group_data(name: str, group: GroupMemory) -> dict[str, Any]:
    request, backoff = group.request, group.backoff
    return {
        "group": name,
        "target": group.target,
        "request": request
        and {"increase": request.increase, "since": instant(request.since), "expectedAt": instant(request.expected_at)},
        "backoff": backoff
        and {
            "until": instant(backoff.until),
            "class": backoff.cls,
            "code": backoff.code,
            "message": backoff.message,
            "attempt": backoff.attempt,
        },
        "lastAdd": instant(group.last_add),
        "lastDelete": instant(group.last_delete),
        "lastFailure": instant(group.last_failure),
    }


def _brake(store: Store, args: argparse.Namespace) -> None:
    stored_policy(store, args.name)
    data = {"name": args.name, **brake_data(store.memory.look(args.name), time.time())}
    emit(args.output, data, lambda: [f"{args.name}: {brake_line(data)}"])


def _claims(store: Store, args: argparse.Namespace) -> None:
    """Show which cluster owns each node group, since when, and whether another cluster may take it over."""
    claims, now = store.group_ownership.all(), time.time()
    data = [
        {
            "provider": each.provider,
            "group": each.group,
            "key": each.key,
            "cluster": each.owner,
            "since": instant(each.since),
            "named": each.named,
            "ended": each.ended,
        }
        for each in claims
    ]
    rows = tuple(
        (
            each.provider,
            each.key,
            each.owner,
            ago(each.since, now),
            "named" if each.named else "discovered",
            each.ended or "-",
        )
        for each in claims
    )
    emit(
        args.output,
        data,
        lambda: [
            Table(("provider", "group", "cluster", "since", "by", "ended"), rows, empty="no node group is claimed yet")
        ],
    )


_OF_ALL = ("clusters", "claims")
_THINGS: dict[str, Callable[[Store, argparse.Namespace], None]] = {
    "clusters": _clusters,
    "policy": _policy,
    "operations": _operations,
    "groups": _groups,
    "nodes": get_decision.nodes,
    "pods": get_decision.pods,
    "brake": _brake,
    "claims": _claims,
}
