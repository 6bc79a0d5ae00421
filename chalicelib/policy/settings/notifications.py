"""spec.notifications: where messages about conditions of a cluster go (docs/notifications.md)."""

from typing import Annotated, ClassVar
from urllib.parse import urlsplit

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.notification import NOTICE_TYPES, NoticeSeverity
from chalicelib.policy.diagnostics import quote
from chalicelib.policy.schema import Required, listed_sections, nested
from chalicelib.policy.settings.names_and_times import (
    CRON,
    OPEN_TIME,
    OPENS,
    STAYS_OPEN,
    TimeZone,
    ends_before_it_opens_again,
)
from chalicelib.policy.value_types import SECRET, choice, listed, member, scalar, text

_TOPIC = text(
    "the ARN of an SNS topic whose name begins with outscaler-",
    r"arn:aws(-[a-z]+)*:sns:[a-z0-9-]{5,30}:[0-9]{12}:outscaler-[A-Za-z0-9_-]{1,240}",
    "it like arn:aws:sns:eu-central-2:123456789012:outscaler-events",
)


def _parse_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        valid = (
            parts.scheme == "https"
            and parts.hostname
            and parts.username is None
            and parts.port != 0
        )
    except ValueError:  # such as a bracket that is not closed, or a port beyond 65535
        valid = False
    if not valid or not value.isprintable() or len(value) > 1024:
        problem = f"{quote(value)} is not an HTTPS address"
        raise BadInput("", problem, "write it like https://hooks.example.org/outscaler")
    return value


class QuietHours(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A time in which notifications of severity info wait: opens when the cron expression
    matches, for `duration` seconds."""

    document_order: ClassVar = ("cron", "timeZone", "duration")

    cron: Annotated[str, CRON, OPENS, Required('cron: "0 20 * * *"')]
    duration: Annotated[float, OPEN_TIME, STAYS_OPEN, Required("duration: 10h")]
    time_zone: TimeZone = "UTC"


class NoticeWebhook(msgspec.Struct, frozen=True, omit_defaults=True):
    """An HTTPS address that receives CloudEvents. secret: the name of the secret."""

    url: Annotated[
        str,
        scalar("HTTPS address", _parse_url, "an HTTPS address"),
        "Receives CloudEvents.",
        Required("url: https://hooks.example.org/outscaler"),
    ]
    secret: Annotated[str, SECRET, "Secret that the events are signed with (Standard Webhooks)."]


class Notifications(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """spec.notifications. topic, chat_topic: "" for none. types: () for all but scaled.up and
    scaled.down."""

    topic: Annotated[str, _TOPIC, "SNS topic that receives CloudEvents."] = ""
    chat_topic: Annotated[str, _TOPIC, "SNS topic of Amazon's chat client."] = ""
    webhook: Annotated[
        NoticeWebhook | None, nested(NoticeWebhook), "Address that receives CloudEvents."
    ] = None
    min_severity: Annotated[
        NoticeSeverity, member(NoticeSeverity), "The least severity that is sent."
    ] = NoticeSeverity.WARNING
    types: Annotated[
        tuple[str, ...],
        listed(choice(NOTICE_TYPES)),
        "Only these types, whatever their severity; scaled.up and scaled.down are sent only where "
        "they are named.",
    ] = ()
    quiet_hours: Annotated[
        tuple[QuietHours, ...],
        listed_sections(
            QuietHours,
            "window",
            20,
            '{cron: "0 20 * * *", duration: 10h}',
            ends_before_it_opens_again,
        ),
        "When messages of severity info wait.",
    ] = ()

    @property
    def destinations(self) -> tuple[str, ...]:
        """Return the names of the destinations that are set."""
        settings = (
            ("topic", self.topic),
            ("chatTopic", self.chat_topic),
            ("webhook", self.webhook),
        )
        return tuple(name for name, value in settings if value)
