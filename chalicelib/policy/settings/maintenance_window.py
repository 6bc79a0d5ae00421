"""spec.maintenanceWindows: when nodes may be removed."""

from typing import Annotated, ClassVar

import msgspec

from chalicelib.policy.schema import Required, listed_sections
from chalicelib.policy.settings.names_and_times import (
    CRON,
    OPEN_TIME,
    OPENS,
    STAYS_OPEN,
    TimeZone,
    ends_before_it_opens_again,
)
from chalicelib.policy.value_types import choice, text

_ALLOWED, _FORBIDDEN = "allowed", "forbidden"
_REMOVALS = msgspec.structs.replace(
    choice((_ALLOWED, _FORBIDDEN), lambda word: word == _ALLOWED, f"{_ALLOWED} or {_FORBIDDEN}"),
    show=lambda allowed: _ALLOWED if allowed else _FORBIDDEN,
)


class Window(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A maintenance window: opens when the five-field cron expression matches in time_zone,
    lasts `duration` seconds. removals True: nodes are removed inside such windows only;
    False: not inside this one."""

    document_order: ClassVar = ("name", "cron", "timeZone", "duration", "removals")

    cron: Annotated[str, CRON, OPENS, Required('cron: "0 22 * * 1-5"')]
    duration: Annotated[float, OPEN_TIME, STAYS_OPEN, Required("duration: 6h")]
    removals: Annotated[
        bool,
        _REMOVALS,
        "allowed: nodes are removed in such windows only. forbidden: not in this one, whatever "
        "another allows.",
    ] = True
    time_zone: TimeZone = "UTC"
    name: Annotated[str, text("a name", r"[^\x00-\x1f\x7f]{1,100}"), "Its name in output."] = ""


WINDOWS = listed_sections(
    Window,
    "window",
    50,
    '{name: nights, cron: "0 22 * * *", duration: 6h}',
    ends_before_it_opens_again,
)
