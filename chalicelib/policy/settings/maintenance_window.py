"""spec.maintenanceWindows: when nodes may be removed."""

from __future__ import annotations

import msgspec


class Window(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A maintenance window: opens when the five-field cron expression matches in time_zone,
    lasts `duration` seconds. removals True: nodes are removed inside such windows only;
    False: not inside this one."""

    cron: str
    duration: float
    removals: bool = True
    time_zone: str = "UTC"
    name: str = ""
