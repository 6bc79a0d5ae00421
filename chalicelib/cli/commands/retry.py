"""`outscaler retry CLUSTER group G`, `node X`, `operation ID`: ends a wait before its time,
after its cause is removed.

Counters stay, so another failure waits longer than the last one. The circuit breaker is not
released, and nothing is forced: the next pass decides as always. It is woken where the
deployment's queue is known.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from chalicelib.cli.arguments import unknown
from chalicelib.cli.output import emit, warn
from chalicelib.cli.pass_requests import request_pass, request_step
from chalicelib.cli.store_access import (
    add_table_argument,
    check_group,
    load_decision,
    note,
    open_store,
    stored_policy,
    table_name,
)
from chalicelib.model.errors import BadInput
from chalicelib.model.timestamps import format_time
from chalicelib.views.cluster_view import node_names

if TYPE_CHECKING:
    from chalicelib.model.memory import GroupMemory
    from chalicelib.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add CLUSTER, KIND, NAME and --table."""
    parser.add_argument("cluster", metavar="CLUSTER", help="the cluster")
    parser.add_argument("kind", choices=tuple(_KINDS), help="what NAME is")
    parser.add_argument(
        "name",
        metavar="NAME",
        help=(
            "a node group that waits or rests, a node whose removal failed, or an operation that "
            "waits for a step"
        ),
    )
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """End the wait and request a pass. Returns 0. Raises BadInput where
    nothing waits under that name."""
    store, cluster, kind = open_store(args), args.cluster, args.kind
    stored_policy(store, cluster)
    was = _KINDS[kind](store, args)
    name = args.name
    group, operation = name if kind == "group" else "", name if kind == "operation" else ""
    note(
        store,
        cluster,
        "retry",
        {"kind": kind, "name": name, "was": was},
        group=group,
        operation=operation,
    )
    woken = _wake(store, args)
    when = "now" if woken else "with the next pass, within scanInterval"
    data = {"cluster": cluster, "kind": kind, "name": name, "was": was, "woken": woken}
    emit(
        args.output,
        data,
        lambda: [f"{cluster}: {kind} {name} is tried again {when}; it waited {was}"],
    )
    return 0


def _group(store: Store, args: argparse.Namespace) -> str:
    """End the wait of the group that is meant, and let args.name be its id."""
    args.name = check_group(store, args.cluster, args.name, place="NAME")
    groups, now = store.memory.look(args.cluster).groups, time.time()
    waiting = [name for name, memory in groups.items() if max(_ends(memory), default=0.0) >= now]
    if args.name not in waiting:
        raise _not_waiting(args, waiting, "is not in back-off, and nothing of it rests")
    memory = groups[args.name]
    store.retries().end_backoff(args.cluster, args.name)
    backoff = memory.backoff
    cause = f" ({backoff.cls or 'failed'}, attempt {backoff.attempt})" if backoff else ""
    rests = [why for why, renewal in sorted(memory.renewals.items()) if renewal.until > now]
    cause += f" (renewal as {', '.join(rests)} rests)" if rests else ""
    parts = [name for name, part in sorted(memory.undelivered.items()) if part.until > now]
    cause += f" (not expected of new nodes: {', '.join(parts)})" if parts else ""
    return f"until {format_time(max(_ends(memory)))}{cause}"


def _ends(memory: GroupMemory) -> list[float]:
    """Return when the waits of a group end."""
    backoff = [memory.backoff.until] if memory.backoff is not None else []
    renewals = (renewal.until for renewal in memory.renewals.values())
    return [
        *backoff,
        memory.repair_after,
        *renewals,
        *(part.until for part in memory.undelivered.values()),
    ]


def _node(store: Store, args: argparse.Namespace) -> str:
    groups, now = store.memory.look(args.cluster).groups, time.time()
    waiting = {
        node: (group, failed)
        for group, memory in groups.items()
        for node, failed in memory.failed_removals.items()
        if failed.until > now
    }
    if args.name not in waiting:
        decision, _ = load_decision(store, args.cluster)
        nodes = node_names(decision.plan) if decision is not None else ()
        if nodes and args.name not in nodes:
            raise unknown(args.name, nodes, "NAME", "node of the last decision")
        raise _not_waiting(args, waiting, "has no failed removal that is waited for")
    group, failed = waiting[args.name]
    store.retries().end_failed_removal(args.cluster, group, args.name)
    return f"until {format_time(failed.until)} ({failed.times} failures)"


def _operation(store: Store, args: argparse.Namespace) -> str:
    from chalicelib.store.errors import OperationClaimed, OperationFinished

    operations = {operation.spec.id: operation for operation in store.operations.look(args.cluster)}
    if args.name not in operations:
        raise _not_waiting(args, operations, "is not an open operation")
    due_at = operations[args.name].status.due_at
    try:
        store.operations.hasten(args.cluster, args.name)
    except OperationClaimed as error:
        raise BadInput(
            args.name, f"a step of it runs now ({error})", "repeat it when the step has ended"
        ) from None
    except OperationFinished as error:
        raise BadInput(
            args.name, f"is over ({error})", f"see outscaler history {args.cluster}"
        ) from None
    return f"until {format_time(due_at)}" if due_at else "for its first step"


def _not_waiting(args: argparse.Namespace, waiting: Iterable[str], problem: str) -> BadInput:
    names = sorted(waiting)
    near = get_close_matches(args.name, names, n=1)
    remedy = (
        f"waiting: {', '.join(names[:10])}"
        if names
        else f"none waits; outscaler get {args.kind}s {args.cluster}"
    )
    return BadInput(
        f"{args.kind} {args.name[:100]}", problem, f"did you mean {near[0]}?" if near else remedy
    )


def _wake(store: Store, args: argparse.Namespace) -> bool:
    """Request a pass, or the operation's step; False where the queues are
    not known or not reachable."""
    from chalicelib.runtime.senders import NotSent

    table = table_name(args)
    try:
        if args.kind != "operation":
            return request_pass(table, args.cluster)
        operation = store.operations.get(args.cluster, args.name)
        return operation is None or request_step(
            table, args.cluster, args.name, operation.spec.provider
        )
    except NotSent as error:
        warn(
            f"{args.cluster}: no pass could be requested ({error}); the next scheduled pass follows"
        )
        return False


_KINDS: dict[str, Callable[[Store, argparse.Namespace], str]] = {
    "group": _group,
    "node": _node,
    "operation": _operation,
}
