"""`outscaler notify test|open|dead CLUSTER`: sends a test message to each destination, or
shows what is remembered.

The test is sent with the caller's own AWS credentials and not by the deployment's
function. It shows that destinations, secrets and filters are right; the function's rights
are part of the deployment.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import structs

from chalicelib.cli.deployment_settings import settings_of
from chalicelib.cli.output import Block, Table, emit, warn
from chalicelib.cli.store_access import add_table_argument, open_store, stored_policy, table_name
from chalicelib.model.errors import BadInput
from chalicelib.model.notification import NoticeSeverity
from chalicelib.model.pause import in_force
from chalicelib.model.timestamps import format_time
from chalicelib.policy.load import load
from chalicelib.runtime.active_policy import in_force_or_problem
from chalicelib.views.cluster_view import instant

if TYPE_CHECKING:
    from chalicelib.notify.conditions import NoticeCondition
    from chalicelib.notify.notices import NoticeState
    from chalicelib.store import Store, StoredPolicy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add WHAT, CLUSTER and --table."""
    parser.add_argument(
        "what",
        choices=tuple(_KINDS),
        help="test: send a test message to each destination; open: conditions that are open or "
        "wait to be; dead: "
        "messages that could not be delivered",
    )
    parser.add_argument("name", metavar="CLUSTER", help="the cluster")
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command. Returns 0, and 1 where a destination did not accept the test message."""
    return _KINDS[args.what](open_store(args), args)


def _test(store: Store, args: argparse.Namespace) -> int:
    from chalicelib.aws.secrets_manager import SecretsManagerReader
    from chalicelib.notify.conditions import NoticeCondition
    from chalicelib.notify.delivery import attempt, channels_of, stack_of
    from chalicelib.notify.notices import ONCE, NoticeMessage

    name = args.name
    now = time.time()
    policy, _ = load(stored_policy(store, name).text, place=name)
    settings = policy.notifications
    if settings is None or not settings.destinations:
        remedy = "write spec.notifications, and apply the policy"
        raise BadInput(name, "its policy has no destinations", remedy)
    kind = "notifications.test"
    text = f"a test message of outscaler notify test {name}; nothing is wrong"
    command = f"outscaler notify open {name}"
    condition = NoticeCondition(kind, kind, NoticeSeverity.INFO, text, command=command)
    message = NoticeMessage(f"test-{now:.3f}", now, ONCE, condition, now, settings.destinations)
    stack = stack_of(table_name(args))
    deployment = settings_of(store).deployment
    channels = channels_of(SecretsManagerReader(), deployment, stack=stack)(name)
    arrived, problems = attempt(message, settings, channels, now)
    destinations = {destination: problems.get(destination) for destination in settings.destinations}
    rows: list[tuple[str, ...]] = []
    for destination, is_accepted in arrived.items():
        result = "accepted" if is_accepted else "refused"
        rows.append((destination, result, problems.get(destination, "")))
    table = Table(("destination", "result", "problem"), tuple(rows))
    data = {"name": name, "id": message.id, "destinations": destinations}
    emit(args.output, data, lambda: [table])
    return 1 if problems else 0


def _open(store: Store, args: argparse.Namespace) -> int:
    """Show the conditions that the last tick left, and those that apply now: where no tick runs,
    nobody else would say so."""
    stored = stored_policy(store, args.name)
    state = _state(store, args)
    conditions: list[dict[str, Any]] = []
    rows: list[tuple[str, ...]] = []
    unsent = len(state.messages)
    open_first = sorted(
        state.notices.values(), key=lambda notice: (not notice.opened_at, notice.since)
    )
    applying, has_destination = _applying(store, stored)
    new = [condition for condition in applying if condition.key not in state.notices]
    listed = [(notice.condition, notice.since, notice.opened_at) for notice in open_first]
    listed += [(condition, 0.0, 0.0) for condition in new]
    waits = "not yet" if has_destination else "no destination"
    for condition, seen_at, opened_at in listed:
        kind = condition.type
        severity = condition.severity.value
        message = condition.message
        since = instant(seen_at)
        conditions.append(
            {
                "type": kind,
                "severity": severity,
                "message": message,
                "since": since,
                "openedAt": instant(opened_at),
            }
        )
        rows.append((kind, severity, since or "now", "yes" if opened_at else waits, message))
    columns = ("type", "severity", "since", "sent", "message")
    blocks: list[Block] = [Table(columns, tuple(rows), empty="no condition is open", spare=(3, 2))]
    if not has_destination:
        blocks.append("The policy names no destination (spec.notifications), so nothing is sent.")
    if unsent:
        blocks.append(f"{unsent} messages wait for delivery")
    data = {"name": args.name, "conditions": conditions, "unsent": unsent}
    emit(args.output, data, lambda: blocks)
    return 0


def _applying(store: Store, stored: StoredPolicy) -> tuple[tuple[NoticeCondition, ...], bool]:
    """Return the conditions that apply now, and whether the policy names a destination. A policy
    that cannot be read has none: `outscaler get` says so."""
    from chalicelib.notify.conditions import conditions
    from chalicelib.notify.run import facts_of

    now = time.time()
    policy, problem = in_force_or_problem(stored, now, None)
    if policy is None:
        warn(f"{stored.name}: {problem}")
        return (), True
    pauses = in_force(store.pauses.current(stored.name), now)
    facts = facts_of(structs.replace(policy, pauses=pauses), stored.stored_at, store, now)
    settings = policy.notifications
    return conditions(facts), bool(settings is not None and settings.destinations)


def _dead(store: Store, args: argparse.Namespace) -> int:
    messages: list[dict[str, Any]] = []
    rows: list[tuple[str, ...]] = []
    for message in _state(store, args).dead:
        kind = message.condition.type
        text = message.condition.message
        at = format_time(message.at)
        messages.append(
            {
                "id": message.id,
                "type": kind,
                "state": message.state,
                "at": at,
                "attempts": message.attempts,
                "notDeliveredTo": list(message.left),
                "message": text,
            }
        )
        rows.append((kind, at, ", ".join(message.left), text))
    columns = ("type", "at", "not delivered to", "message")
    table = Table(columns, tuple(rows), empty="no message is lost")
    emit(args.output, {"name": args.name, "messages": messages}, lambda: [table])
    return 0


def _state(store: Store, args: argparse.Namespace) -> NoticeState:
    from chalicelib.notify.run import load_state

    stored_policy(store, args.name)
    stored_state, _ = store.notices().load(args.name)
    return load_state(stored_state)


_KINDS: dict[str, Callable[[Store, argparse.Namespace], int]] = {
    "test": _test,
    "open": _open,
    "dead": _dead,
}
