"""spec.notifications: where notifications go, and which are sent (docs/notifications.md)."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from chalicelib.model.errors import BadInput
from chalicelib.model.notification import (
    NOTICE_TYPES,
    NoticeSeverity,
    NoticeWebhook,
    Notifications,
    QuietHours,
)
from chalicelib.policy.cron_values import ends_before_it_opens_again, opening
from chalicelib.policy.diagnostics import quote
from chalicelib.policy.list_sections import entries
from chalicelib.policy.schema import Field, Section, nested
from chalicelib.policy.value_types import SECRET, ValueType, choice, listed, scalar, text

_TOPIC = text(
    "the ARN of an SNS topic whose name begins with outscaler-",
    r"arn:aws(-[a-z]+)*:sns:[a-z0-9-]{5,30}:[0-9]{12}:outscaler-[A-Za-z0-9_-]{1,240}",
    "it like arn:aws:sns:eu-central-2:123456789012:outscaler-events",
)
_LONGEST_URL = 1024


def _url(given: str) -> str:
    try:
        parts = urlsplit(given)
        ok = parts.scheme == "https" and parts.hostname and parts.username is None and parts.port != 0
    except ValueError:  # such as a bracket that is not closed, or a port beyond 65535
        ok = False
    if not ok or not given.isprintable() or len(given) > _LONGEST_URL:
        raise BadInput(
            "", f"{quote(given)} is not an HTTPS address", "write it like https://hooks.example.org/outscaler"
        )
    return given


NOTICE_WEBHOOK = Section(
    fields=(
        Field(
            "url",
            ValueType("HTTPS address", scalar(_url, "an HTTPS address")),
            "url",
            "Receives CloudEvents.",
            required=True,
            example="url: https://hooks.example.org/outscaler",
        ),
        Field("secret", SECRET, "secret", "Secret that the events are signed with (Standard Webhooks).", required=True),
    )
)

QUIET_HOURS = Section(fields=opening(cron="0 20 * * *", duration="10h"))

NOTIFICATIONS = Section(
    fields=(
        Field("topic", _TOPIC, "topic", "SNS topic that receives CloudEvents."),
        Field("chatTopic", _TOPIC, "chat_topic", "SNS topic of Amazon's chat client."),
        Field("webhook", nested(NOTICE_WEBHOOK), "webhook", "Address that receives CloudEvents."),
        Field(
            "minSeverity",
            choice(tuple(word.value for word in NoticeSeverity), NoticeSeverity, "info, warning or critical"),
            "min_severity",
            "The least severity that is sent.",
            default="warning",
        ),
        Field(
            "types",
            listed(choice(NOTICE_TYPES)),
            "types",
            "Only these types, whatever their severity; scaled.up and scaled.down are sent only where they are named.",
        ),
        Field(
            "quietHours",
            entries(QUIET_HOURS, "window", 20, '{cron: "0 20 * * *", duration: 10h}', ends_before_it_opens_again),
            "quiet_hours",
            "When messages of severity info wait.",
        ),
    )
)


def read_notifications(found: dict[str, Any] | None) -> Notifications | None:
    """Return the settings from the readable values; None where there are none."""
    if found is None:
        return None
    values = dict(found)
    webhook = values.pop("webhook", None)
    return Notifications(
        **values | {"quiet_hours": tuple(QuietHours(**window) for window in values.get("quiet_hours", ()))},
        webhook=NoticeWebhook(**webhook) if webhook else None,
    )
