"""Settings of notifications in a policy, and the severities of what is reported
(docs/notifications.md).
"""

from __future__ import annotations

from enum import StrEnum


class NoticeSeverity(StrEnum):
    """How urgent a notification is, the least first."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Return 0 for the least urgent one."""
        return list(NoticeSeverity).index(self)


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
    "pool.held",
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
