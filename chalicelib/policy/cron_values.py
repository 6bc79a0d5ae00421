"""Reads times in documents: five-field cron expressions, time zones, and how long a window may stay open.

Windows, rules and schedules share them. schedules/maintenance_windows.py is imported where it is used: it loads cron
and time zones, which functions that only look up a policy without them must not pay for.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import format_duration
from chalicelib.policy.diagnostics import Diagnostics, Path, quote
from chalicelib.policy.schema import Field
from chalicelib.policy.value_types import ValueType, duration, scalar

_LONGEST_CRON = 128
_CRON_FORM = 'it like "0 22 * * 1-5"'


@lru_cache(maxsize=256)
def _cron(given: str) -> str:
    """Normalise to one space between fields; raises BadInput."""
    if len(given) > _LONGEST_CRON:
        raise BadInput(
            "", f"{quote(given)} is longer than {_LONGEST_CRON} characters", "write it shorter, or as several windows"
        )
    from chalicelib.schedules.maintenance_windows import check_cron

    cron = " ".join(given.split())
    check_cron(cron)
    return cron


def _zone(given: str) -> str:
    if not given[:1].isupper():  # names of the time zone database only; others are machine-specific
        raise BadInput("", f"{quote(given)} is not a time zone", "write it like Europe/Zurich or UTC")
    from chalicelib.schedules.maintenance_windows import check_zone

    check_zone(given)
    return given


CRON = ValueType("five fields of cron", scalar(_cron, _CRON_FORM))
ZONE = ValueType("time zone", scalar(_zone, "it like Europe/Zurich"))
_OPEN_FOR = duration(60.0, 31 * 86400.0)


def opening(*, cron: str, duration: str) -> tuple[Field, ...]:
    """Return the keys that say when a window opens and for how long. cron, duration: examples."""
    return (
        Field(
            "cron",
            CRON,
            "cron",
            "When it opens: minute, hour, day of the month, month, day of the week.",
            required=True,
            example=f'cron: "{cron}"',
        ),
        Field("timeZone", ZONE, "time_zone", "Time zone of cron.", default="UTC"),
        Field(
            "duration",
            _OPEN_FOR,
            "duration",
            "How long it stays open, from 1m to 744h, in real time, also across clock changes.",
            required=True,
            example=f"duration: {duration}",
        ),
    )


@lru_cache(maxsize=256)
def _gap(cron: str) -> float:
    from chalicelib.schedules.maintenance_windows import shortest_gap

    return shortest_gap(cron)


def ends_before_it_opens_again(window: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Refuse a window (attribute -> value) that lasts longer than the time between two of its cron's openings.

    path: the window's own; values that could not be read are skipped.
    """
    if "cron" not in window or "duration" not in window:
        return
    gap, lasts = _gap(window["cron"]), window["duration"]
    if lasts > gap:
        most = format_duration(gap)
        diagnostics.problem(
            (*path, "duration"),
            f"{format_duration(lasts)} is longer than the {most} until it opens again",
            f"write at most {most}, or let it open less often",
        )
