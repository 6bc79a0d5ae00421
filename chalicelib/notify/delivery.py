"""Delivers messages to the destinations of a policy: at least once, each destination by itself.

A destination that is down delays no other one, no other cluster and no pass: attempts are short,
all deliveries of a tick have one limit of time, and what is left is tried again with growing waits.

A message has two forms: a CloudEvent for programs, and the form that Amazon's chat client shows.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
https://docs.aws.amazon.com/chatbot/latest/adminguide/custom-notifs.html
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from chalicelib import DOCS
from chalicelib.aws.sns import Publisher, TopicPublisher
from chalicelib.model.errors import OutscalerError, published_name
from chalicelib.model.notification import NOTICE_TYPES
from chalicelib.model.policy_permissions import Deployment
from chalicelib.model.resource_names import state_table
from chalicelib.model.timestamps import format_time
from chalicelib.notify.notices import CLOSED, OPEN, NoticeMessage
from chalicelib.notify.notification_request import NotAccepted, WebhookSender, permitted
from chalicelib.policy.secret_names import NOTIFICATIONS, ClusterSecrets
from chalicelib.policy.settings.notifications import Notifications

ATTEMPTS = 12
"""Attempts until a message is dead: with BACKOFF, about a day and a half."""
BACKOFF = 60.0
"""Seconds after the first failed attempt; each further wait is twice as long."""
LARGEST = 64_000
"""Bytes of one event."""
TYPE_PREFIX = "dev.outscaler."
SCHEMA = f"{DOCS}/notifications.md#cloudevents"
RUNBOOK = f"{DOCS}/runbook.md"
_TEXT = 500  # characters of a foreign text
_TABLE = re.compile(r"(?P<stack>.+)-state\Z")


class Poster(Protocol):
    """The method of notification_request.py that is used here."""

    def post(self, url: str, secret: str, message_id: str, now: float, body: bytes) -> None:
        """Return when the address has accepted the event."""


class Channels(msgspec.Struct, frozen=True):
    """How messages leave. stack: the deployment's name. read_secret: the text of a secret of this
    cluster, for notifications only."""

    cluster: str
    stack: str
    publisher: Publisher
    poster: Poster
    read_secret: Callable[[str], str]


def channels_of(
    read_secret: Callable[[str], str],
    deployment: Deployment,
    topics: Publisher | None = None,
    stack: str = "",
) -> Callable[[str], Channels]:
    """Return the channels of each cluster, by its name. deployment: what policies may
    name. topics: what publishes to topics, SNS unless given. stack: the deployment's name,
    by its table unless given."""
    name = stack or stack_of(state_table(os.environ))
    publisher = topics or TopicPublisher()
    webhooks = WebhookSender(permitted(deployment.loopback))

    def channels(cluster: str) -> Channels:
        secrets = ClusterSecrets(read_secret, cluster, (NOTIFICATIONS,), deployment)
        return Channels(cluster, name, publisher, webhooks, secrets)

    return channels


def stack_of(table: str) -> str:
    """Return the deployment's name in the source of events: its table's, without `-state`."""
    match = _TABLE.match(table)
    return match["stack"] if match is not None else table or "outscaler"


def attempt(
    message: NoticeMessage, notifications: Notifications, channels: Channels, now: float
) -> tuple[dict[str, bool], dict[str, str]]:
    """Send a message to the destinations that have not got it. Returns which have it
    now, and the problem of the others. A destination that the policy no longer has
    counts as done. Raises nothing."""
    arrived: dict[str, bool] = {}
    problems: dict[str, str] = {}
    for name in message.left:
        try:
            if name in notifications.destinations:
                _send(name, message, notifications, channels, now)
        except OutscalerError as error:
            problems[name] = f"{published_name(error)}: {error}"
        except Exception as error:
            problems[name] = type(error).__name__
        arrived[name] = name not in problems
    return arrived, problems


def _send(
    name: str, message: NoticeMessage, notifications: Notifications, channels: Channels, now: float
) -> None:
    """Send to one destination, by its key in the policy. An unknown one is passed over."""
    cluster = channels.cluster
    webhook = notifications.webhook
    if name == "topic":
        event = _text(cloud_event(message, cluster, channels.stack))
        channels.publisher.publish(notifications.topic, event, topic_attributes(message, cluster))
    elif name == "chatTopic":
        text = _text(chat_message(message, cluster))
        channels.publisher.publish(notifications.chat_topic, text, {})
    elif name == "webhook" and webhook is not None:
        event = _text(cloud_event(message, cluster, channels.stack))
        secret = channels.read_secret(webhook.secret)
        channels.poster.post(webhook.url, secret, message.id, now, event.encode())


def _text(document: Mapping[str, object]) -> str:
    text = msgspec.json.encode(document).decode()
    if len(text.encode()) > LARGEST:
        raise NotAccepted(f"the message has more than {LARGEST} bytes")
    return text


def cloud_event(message: NoticeMessage, cluster: str, stack: str) -> dict[str, Any]:
    """Return the event in CloudEvents' JSON format. stack: the deployment's name. A repetition has
    the same id, and consumers deduplicate by source and id."""
    condition = message.condition
    data = {
        "cluster": cluster,
        "group": condition.group,
        "node": condition.node,
        "pods": list(condition.pods[:5]),
        "code": _plain(condition.code),
        "class": _plain(condition.cls),
        "message": _plain(condition.message),
        "since": format_time(message.since),
        "plan": condition.plan,
        "operation": condition.operation,
        "command": condition.command,
        "url": runbook_url(condition.type),
    }
    return {
        "specversion": "1.0",
        "id": message.id,
        "source": f"//outscaler/{quote(stack, safe='')}/clusters/{quote(cluster, safe='')}",
        "type": f"{TYPE_PREFIX}{condition.type}",
        "subject": _subject(message),
        "time": format_time(message.at),
        "datacontenttype": "application/json",
        "dataschema": SCHEMA,
        "severity": condition.severity.value,
        "state": message.state,
        "dedupkey": dedup_key(message, cluster),
        "data": {name: value for name, value in data.items() if value},
    }


def topic_attributes(message: NoticeMessage, cluster: str) -> dict[str, str]:
    """Return the message attributes of SNS, for filter policies."""
    return {
        "cluster": cluster,
        "type": message.condition.type,
        "severity": message.condition.severity.value,
        "state": message.state,
    }


def chat_message(message: NoticeMessage, cluster: str) -> dict[str, Any]:
    """Return the form that Amazon Q Developer in chat applications shows; it ignores every other
    one. The thread joins the end of a condition to its beginning."""
    condition = message.condition
    words = {OPEN: condition.severity.value.upper(), CLOSED: "RESOLVED"}
    word = words.get(message.state, message.state.upper())
    text = _markdown(condition.message)
    next_steps = []
    if condition.command:
        next_steps = [condition.command, runbook_url(condition.type)]
    return {
        "version": "1.0",
        "source": "custom",
        "id": message.id,
        "content": {
            "textType": "client-markdown",
            "title": f"{word}: {condition.type} in {cluster}"[:250],
            "description": f"{text}\nsince {format_time(message.since)}",
            "nextSteps": next_steps,
        },
        "metadata": {
            "threadId": dedup_key(message, cluster),
            "summary": f"{condition.type}: {text}"[:250],
            "eventType": condition.type,
        },
    }


def dedup_key(message: NoticeMessage, cluster: str) -> str:
    """Return the key that the beginning, the reminders and the end of a
    condition have in common."""
    return f"{cluster}/{_plain(message.condition.key)}"


def runbook_url(kind: str) -> str:
    """Return the section of the runbook about a type; test messages have none of their own."""
    if kind not in NOTICE_TYPES:
        return f"{RUNBOOK}#notifications"
    heading = f"notification-{kind}".replace(".", "")
    return f"{RUNBOOK}#{heading}"


def _subject(message: NoticeMessage) -> str:
    condition = message.condition
    objects = (
        ("groups", condition.group),
        ("nodes", condition.node),
        ("operations", condition.operation),
    )
    parts = [f"{kind}/{quote(name, safe='')}" for kind, name in objects if name]
    return "/".join(parts) or "cluster"


def _plain(text: str) -> str:
    """Return a foreign text without control characters, bounded."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text[:_TEXT])


def _markdown(text: str) -> str:
    """Return a foreign text that chat clients show as it is: no links, mentions or formatting."""
    return "".join(
        f"\\{character}" if character in "\\`*_{}[]()<>#+|~@!" else character
        for character in _plain(text)
    )


_TABLE = re.compile(r"(?P<stack>.+)-state\Z")
