"""spec.maintenanceWindows: when removals are allowed, as schedules/maintenance_windows.py evaluates it."""

from __future__ import annotations

from chalicelib.policy.cron_values import CRON, OPEN_FOR, ZONE, ends_before_it_opens_again
from chalicelib.policy.list_sections import entries
from chalicelib.policy.schema import Field, Section
from chalicelib.policy.value_types import ValueType, choice, text

_REMOVALS = choice(("allowed", "forbidden"), lambda word: word == "allowed")

WINDOW = Section(
    fields=(
        Field("name", text("a name", r"[^\x00-\x1f\x7f]{1,100}"), "name", "Its name in output."),
        Field(
            "cron",
            CRON,
            "cron",
            "When it opens: minute, hour, day of the month, month, day of the week.",
            required=True,
            example='cron: "0 22 * * 1-5"',
        ),
        Field("timeZone", ZONE, "time_zone", "Time zone of cron.", default="UTC"),
        Field(
            "duration",
            OPEN_FOR,
            "duration",
            "How long it stays open, from 1m to 744h, in real time, also across clock changes.",
            required=True,
            example="duration: 6h",
        ),
        Field(
            "removals",
            ValueType("allowed or forbidden", _REMOVALS.read, lambda yes: "allowed" if yes else "forbidden"),
            "removals",
            "allowed: nodes are removed in such windows only. forbidden: not in this one, whatever another allows.",
            default="allowed",
        ),
    )
)

WINDOWS = entries(WINDOW, "window", 50, '{name: nights, cron: "0 22 * * *", duration: 6h}', ends_before_it_opens_again)
