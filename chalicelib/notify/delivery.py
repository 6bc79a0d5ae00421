"""Delivers messages to the destinations of a policy: at least once, each destination by itself.

A destination that is down delays no other one, no other cluster and no pass: attempts are short, all deliveries of a
tick have one limit of time, and what is left is tried again with growing waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from chalicelib.aws.sns import Publisher
from chalicelib.model.errors import OutscalerError, published_name
from chalicelib.model.notification import Notifications
from chalicelib.notify.forms import chat_message, cloud_event, topic_attributes
from chalicelib.notify.notices import NoticeMessage
from chalicelib.notify.webhook import NotAccepted

ATTEMPTS = 12
"""Attempts until a message is dead: with BACKOFF, about a day and a half."""
BACKOFF = 60.0
"""Seconds after the first failed attempt; each further wait is twice as long."""
LARGEST = 64_000
"""Bytes of one event."""


class Poster(Protocol):
    """The method of webhook.py that is used here."""

    def post(self, url: str, secret: str, message_id: str, now: float, body: bytes) -> None:
        """Return when the address has accepted the event."""


class Channels(msgspec.Struct, frozen=True):
    """How messages leave. stack: the deployment's name. read_secret: the text of a secret of this cluster, for
    notifications only."""

    cluster: str
    stack: str
    publisher: Publisher
    poster: Poster
    read_secret: Callable[[str], str]


def attempt(
    message: NoticeMessage, notifications: Notifications, channels: Channels, now: float
) -> tuple[dict[str, bool], dict[str, str]]:
    """Send a message to the destinations that have not got it. Returns which have it now, and the problem of the
    others. A destination that the policy no longer has counts as done. Raises nothing."""
    done: dict[str, bool] = {}
    problems: dict[str, str] = {}
    for name in message.left:
        send = _SENDERS.get(name)
        if send is None or name not in notifications.destinations:
            done[name] = True
            continue
        try:
            send(message, notifications, channels, now)
            done[name] = True
        except OutscalerError as error:
            done[name], problems[name] = False, f"{published_name(error)}: {error}"
        except Exception as error:
            done[name], problems[name] = False, type(error).__name__
    return done, problems


def _topic(message: NoticeMessage, notifications: Notifications, channels: Channels, now: float) -> None:
    del now
    event = cloud_event(message, channels.cluster, channels.stack)
    channels.publisher.publish(notifications.topic, _text(event), topic_attributes(message, channels.cluster))


def _chat(message: NoticeMessage, notifications: Notifications, channels: Channels, now: float) -> None:
    del now
    channels.publisher.publish(notifications.chat_topic, _text(chat_message(message, channels.cluster)), {})


def _webhook(message: NoticeMessage, notifications: Notifications, channels: Channels, now: float) -> None:
    assert notifications.webhook is not None
    body = _text(cloud_event(message, channels.cluster, channels.stack)).encode()
    secret = channels.read_secret(notifications.webhook.secret)
    channels.poster.post(notifications.webhook.url, secret, message.id, now, body)


def _text(document: Mapping[str, object]) -> str:
    text = msgspec.json.encode(document).decode()
    if len(text.encode()) > LARGEST:
        raise NotAccepted(f"the message has more than {LARGEST} bytes")
    return text


_SENDERS: dict[str, Callable[[NoticeMessage, Notifications, Channels, float], None]] = {
    "topic": _topic,
    "chatTopic": _chat,
    "webhook": _webhook,
}
