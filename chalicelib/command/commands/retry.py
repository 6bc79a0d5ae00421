"""`outscaler retry CLUSTER group G`, `node X`, `operation ID`: ends a wait before its time, after its cause is removed.

Counters stay, so another failure waits longer than the last one. The circuit breaker is not released, and nothing is
forced: the next pass decides as always. It is woken where the deployment's queue is known.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from chalicelib.command.arguments import unknown
from chalicelib.command.output import emit, warn
from chalicelib.command.store_access import (
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
from chalicelib.record.views import node_names

if TYPE_CHECKING:
    from chalicelib.dispatch.sqs import SqsSender
    from chalicelib.store import Store

_TABLE = re.compile(r"(?P<prefix>outscaler-[a-z0-9-]{1,20})-state\Z")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add CLUSTER, KIND, NAME and --table."""
    parser.add_argument("cluster", metavar="CLUSTER", help="the cluster")
    parser.add_argument("kind", choices=tuple(_KINDS), help="what NAME is")
    parser.add_argument(
        "name",
        metavar="NAME",
        help="a node group in back-off, a node whose removal failed, or an operation that waits for its next step",
    )
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """End the wait and request a pass. Returns 0. Raises BadInput where nothing waits under that name."""
    store = open_store(args)
    stored_policy(store, args.cluster)
    was = _KINDS[args.kind](store, args)
    note(
        store,
        args.cluster,
        "retry",
        {"kind": args.kind, "name": args.name, "was": was},
        group=args.name if args.kind == "group" else "",
        operation=args.name if args.kind == "operation" else "",
    )
    woken = _wake(args)
    data = {"cluster": args.cluster, "kind": args.kind, "name": args.name, "was": was, "woken": woken}
    when = "now" if woken else "with the next pass, within scanInterval"
    emit(args.output, data, lambda: [f"{args.cluster}: {args.kind} {args.name} is tried again {when}; it waited {was}"])
    return 0


def _group(store: Store, args: argparse.Namespace) -> str:
    groups, now = store.memory.look(args.cluster).groups, time.time()
    waiting = {name for name, each in groups.items() if each.backoff is not None and each.backoff.until >= now}
    waiting |= {name for name, each in groups.items() if each.repair_after > now}
    if args.name not in waiting:
        if args.name not in groups:
            check_group(store, args.cluster, args.name, place="NAME")
        raise _not_waiting(args, waiting, "is not in back-off")
    known = groups[args.name]
    store.retries().end_backoff(args.cluster, args.name)
    until = max(known.repair_after, known.backoff.until if known.backoff is not None else 0.0)
    failed = known.backoff
    return f"until {format_time(until)}" + (f" ({failed.cls or 'failed'}, attempt {failed.attempt})" if failed else "")


def _node(store: Store, args: argparse.Namespace) -> str:
    groups, now = store.memory.look(args.cluster).groups, time.time()
    waiting = {
        node: (group, failed)
        for group, each in groups.items()
        for node, failed in each.failed_removals.items()
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

    open_ = {each.spec.id: each for each in store.operations.look(args.cluster)}
    if args.name not in open_:
        raise _not_waiting(args, open_, "is not an open operation")
    before = open_[args.name]
    try:
        store.operations.hasten(args.cluster, args.name)
    except OperationClaimed as error:
        raise BadInput(args.name, f"a step of it runs now ({error})", "repeat it when the step has ended") from None
    except OperationFinished as error:
        raise BadInput(args.name, f"is over ({error})", f"see outscaler history {args.cluster}") from None
    return f"until {format_time(before.status.due_at)}" if before.status.due_at else "for its first step"


def _not_waiting(args: argparse.Namespace, waiting: Iterable[str], problem: str) -> BadInput:
    names = sorted(waiting)
    near = get_close_matches(args.name, names, n=1)
    listed = f"waiting: {', '.join(names[:10])}" if names else f"none waits; outscaler get {args.kind}s {args.cluster}"
    return BadInput(f"{args.kind} {args.name[:100]}", problem, f"did you mean {near[0]}?" if near else listed)


def _wake(args: argparse.Namespace) -> bool:
    """Request a pass, and the operation's step; False where the queues are not known or not reachable."""
    from chalicelib.dispatch.errors import NotSent
    from chalicelib.dispatch.messages import RECONCILE, ActMessage, Cause, ReconcileMessage, act_queue, encode

    sender = _sender(args)
    if sender is None:
        return False
    try:
        if args.kind == "operation":
            found = open_store(args).operations.get(args.cluster, args.name)
            if found is not None:
                sender.send(act_queue(found.spec.provider), encode(ActMessage(args.cluster, args.name)), 0)
            return True
        message = ReconcileMessage(cluster=args.cluster, reason=Cause.PERSON.value, at=time.time())
        sender.send(RECONCILE, encode(message), 0)
    except NotSent as error:
        warn(f"{args.cluster}: no pass could be requested ({error}); the next scheduled pass follows")
        return False
    return True


def _sender(args: argparse.Namespace) -> SqsSender | None:
    from chalicelib.dispatch.sqs import SqsSender

    found = _TABLE.match(table_name(args))
    if found is not None:
        return SqsSender({}, prefix=found["prefix"])
    try:
        return SqsSender.from_environment(os.environ)
    except BadInput:
        return None


_KINDS: dict[str, Callable[[Store, argparse.Namespace], str]] = {
    "group": _group,
    "node": _node,
    "operation": _operation,
}
