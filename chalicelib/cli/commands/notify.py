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
from typing import TYPE_CHECKING

from chalicelib.cli.deployment_settings import settings_of
from chalicelib.cli.output import Table, emit
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

    name, kind, now = args.name, "notifications.test", time.time()
    settings = load(stored_policy(store, name).text, place=name)[0].notifications
    if settings is None or not settings.destinations:
        raise BadInput(
            name, "its policy has no destinations", "write spec.notifications, and apply the policy"
        )
    text = f"a test message of outscaler notify test {name}; nothing is wrong"
    condition = NoticeCondition(
        kind, kind, NoticeSeverity.INFO, text, command=f"outscaler notify open {name}"
    )
    message = NoticeMessage(f"test-{now:.3f}", now, ONCE, condition, now, settings.destinations)
    stack, deployment = stack_of(table_name(args)), settings_of(store).deployment
    channels = channels_of(SecretsManagerReader(), deployment, stack=stack)(name)
    arrived, problems = attempt(message, settings, channels, now)
    destinations = {destination: problems.get(destination) for destination in settings.destinations}
    rows = tuple(
        (destination, "accepted" if accepted else "refused", problems.get(destination, ""))
        for destination, accepted in arrived.items()
    )
    data = {"name": name, "id": message.id, "destinations": destinations}
    emit(args.output, data, lambda: [Table(("destination", "result", "problem"), rows)])
    return 1 if problems else 0


def _open(store: Store, args: argparse.Namespace) -> int:
    state = _state(store, args)
    notices = sorted(
        state.notices.values(), key=lambda notice: (not notice.opened_at, notice.since)
    )
    data = {
        "name": args.name,
        "conditions": [
            {
                "type": notice.condition.type,
                "severity": notice.condition.severity.value,
                "message": notice.condition.message,
                "since": format_time(notice.since),
                "openedAt": instant(notice.opened_at),
            }
            for notice in notices
        ],
        "unsent": len(state.messages),
    }
    rows = tuple(
        (
            notice.condition.type,
            notice.condition.severity.value,
            format_time(notice.since),
            "yes" if notice.opened_at else "not yet",
            notice.condition.message,
        )
        for notice in notices
    )
    table = Table(
        ("type", "severity", "since", "sent", "message"), rows, empty="no condition is open"
    )
    waiting = [f"{len(state.messages)} messages wait for delivery"] if state.messages else []
    emit(args.output, data, lambda: [table, *waiting])
    return 0


def _dead(store: Store, args: argparse.Namespace) -> int:
    messages = _state(store, args).dead
    data = [
        {
            "id": message.id,
            "type": message.condition.type,
            "state": message.state,
            "at": format_time(message.at),
            "attempts": message.attempts,
            "notDeliveredTo": list(message.left),
            "message": message.condition.message,
        }
        for message in messages
    ]
    rows = tuple(
        (
            message.condition.type,
            format_time(message.at),
            ", ".join(message.left),
            message.condition.message,
        )
        for message in messages
    )
    table = Table(("type", "at", "not delivered to", "message"), rows, empty="no message is lost")
    emit(args.output, {"name": args.name, "messages": data}, lambda: [table])
    return 0


def _state(store: Store, args: argparse.Namespace) -> NoticeState:
    from chalicelib.notify.run import load_state

    stored_policy(store, args.name)
    return load_state(store.notices().load(args.name)[0])


_KINDS: dict[str, Callable[[Store, argparse.Namespace], int]] = {
    "test": _test,
    "open": _open,
    "dead": _dead,
}
