"""Settings of notifications in a policy, and the severities of what is reported
(docs/notifications.md).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class NoticeSeverity(StrEnum):
    """How urgent a notification is, the least first."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Return 0 for the least urgent one."""
        return list(NoticeSeverity).index(self)


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


NOTICE_TYPES = (
    "cluster.late",
    "cluster.unreachable",
    "cluster.unauthorized",
    "cluster.unhealthy",
    "group.unhealthy",
    "group.failed",
    "group.at-max",
    "pods.unhelped",
    "removal.blocked",
    "replacement.failed",
    "interruption.unreplaced",
    "node.overdue",
    "repair.blocked",
    "brake.pulled",
    "operation.stuck",
    "provider.unauthorized",
    "provider.throttled",
    "provider.unreadable",
    "policy.changed",
    "mode.changed",
    "paused",
    "notifications.suppressed",
    "scaled.up",
    "scaled.down",
)
"""Every type. It is published as dev.outscaler.TYPE."""

ONLY_WHERE_NAMED = frozenset({"scaled.up", "scaled.down"})
"""Types that are sent only where spec.notifications.types names them."""

IN_EVERY_MODE = ("cluster.", "policy.", "mode.")
"""Beginnings of the types that are sent for clusters in mode shadow or off, too."""
