"""spec.maintenanceWindows: when removals are allowed, as schedules/maintenance_windows.py evaluates it."""

from __future__ import annotations

from chalicelib.policy.cron_values import ends_before_it_opens_again, opening
from chalicelib.policy.list_sections import entries
from chalicelib.policy.schema import Field, Section
from chalicelib.policy.value_types import ValueType, choice, text

_REMOVALS = choice(("allowed", "forbidden"), lambda word: word == "allowed")

WINDOW = Section(
    fields=(
        Field("name", text("a name", r"[^\x00-\x1f\x7f]{1,100}"), "name", "Its name in output."),
        *opening(cron="0 22 * * 1-5", duration="6h"),
        Field(
            "removals",
            ValueType(
                "allowed or forbidden",
                _REMOVALS.read,
                lambda yes: "allowed" if yes else "forbidden",
                _REMOVALS.form,
            ),
            "removals",
            "allowed: nodes are removed in such windows only. forbidden: not in this one, whatever another allows.",
            default="allowed",
        ),
    )
)

WINDOWS = entries(WINDOW, "window", 50, '{name: nights, cron: "0 22 * * *", duration: 6h}', ends_before_it_opens_again)
