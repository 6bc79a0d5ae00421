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

from chalicelib.cli.deployment_settings import settings_of
from chalicelib.cli.output import Block, Table, emit
from chalicelib.cli.store_access import add_table_argument, open_store, stored_policy, table_name
from chalicelib.model.errors import BadInput
from chalicelib.model.notification import NoticeSeverity
from chalicelib.model.timestamps import format_time
from chalicelib.policy.load import load
from chalicelib.views.cluster_view import instant

if TYPE_CHECKING:
    from chalicelib.notify.notices import NoticeState
    from chalicelib.store import Store


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
    state = _state(store, args)
    conditions: list[dict[str, Any]] = []
    rows: list[tuple[str, ...]] = []
    unsent = len(state.messages)
    open_first = sorted(
        state.notices.values(), key=lambda notice: (not notice.opened_at, notice.since)
    )
    for notice in open_first:
        kind = notice.condition.type
        severity = notice.condition.severity.value
        message = notice.condition.message
        since = format_time(notice.since)
        opened_at = instant(notice.opened_at)
        conditions.append(
            {
                "type": kind,
                "severity": severity,
                "message": message,
                "since": since,
                "openedAt": opened_at,
            }
        )
        rows.append((kind, severity, since, "yes" if notice.opened_at else "not yet", message))
    columns = ("type", "severity", "since", "sent", "message")
    blocks: list[Block] = [Table(columns, tuple(rows), empty="no condition is open")]
    if unsent:
        blocks.append(f"{unsent} messages wait for delivery")
    data = {"name": args.name, "conditions": conditions, "unsent": unsent}
    emit(args.output, data, lambda: blocks)
    return 0


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
