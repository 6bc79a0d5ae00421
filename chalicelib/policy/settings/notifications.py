"""spec.notifications: where messages about conditions of a cluster go (docs/notifications.md)."""

from __future__ import annotations

import msgspec

from chalicelib.model.notification import NoticeSeverity


class QuietHours(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A time in which notifications of severity info wait: opens when the cron expression
    matches, for `duration` seconds."""

    cron: str
    duration: float
    time_zone: str = "UTC"


class NoticeWebhook(msgspec.Struct, frozen=True, omit_defaults=True):
    """An HTTPS address that receives CloudEvents. secret: the name of the secret
    that they are signed with."""

    url: str
    secret: str


class Notifications(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Where notifications go. topic, chat_topic: ARNs of SNS topics, "" for none. types: those that
    are sent, () for all but scaled.up and scaled.down."""

    topic: str = ""
    chat_topic: str = ""
    webhook: NoticeWebhook | None = None
    min_severity: NoticeSeverity = NoticeSeverity.WARNING
    types: tuple[str, ...] = ()
    quiet_hours: tuple[QuietHours, ...] = ()

    @property
    def destinations(self) -> tuple[str, ...]:
        """Return the names of the destinations that are set."""
        settings = (
            ("topic", self.topic),
            ("chatTopic", self.chat_topic),
            ("webhook", self.webhook),
        )
        return tuple(name for name, value in settings if value)
