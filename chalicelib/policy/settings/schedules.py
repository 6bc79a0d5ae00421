"""spec.schedules: windows of a clock in which bounds, headroom or the mode are others."""

from typing import Annotated, Any, ClassVar

import msgspec

from chalicelib.policy.diagnostics import Diagnostics, Path
from chalicelib.policy.schema import Required, listed_sections
from chalicelib.policy.settings.headroom import MOST_PERCENT
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.names_and_times import (
    CRON,
    NAME,
    OPEN_TIME,
    OPENS,
    STAYS_OPEN,
    GroupsOrAll,
    TimeZone,
    ends_before_it_opens_again,
)
from chalicelib.policy.value_types import member, percent, whole


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A window that opens when `cron` matches in time_zone and lasts `duration` seconds,
    and the settings within it. mode: "" and headroom: None: they stay unchanged."""

    document_order: ClassVar = (
        "name",
        "groups",
        "cron",
        "timeZone",
        "duration",
        "min",
        "max",
        "headroom",
        "mode",
    )

    name: Annotated[str, NAME, "The schedule's name in answers.", Required("name: NAME")]
    cron: Annotated[str, CRON, OPENS, Required('cron: "0 20 * * 1-5"')]
    duration: Annotated[float, OPEN_TIME, STAYS_OPEN, Required("duration: 11h")]
    time_zone: TimeZone = "UTC"
    groups: GroupsOrAll = ()
    min: Annotated[
        int | None, whole(), "Fewest nodes of each group meanwhile; a group below it grows."
    ] = None
    max: Annotated[
        int | None, whole(), "Most nodes of each group meanwhile; a group above it does not grow."
    ] = None
    headroom: Annotated[
        int | None,
        percent(0, MOST_PERCENT),
        "Headroom meanwhile, instead of that of the spec.headroom for these groups (without "
        "groups: of those without).",
    ] = None
    mode: Annotated[
        str,
        msgspec.structs.replace(member(Mode), build=str),
        "Mode of the whole cluster meanwhile; not together with groups.",
    ] = ""


SCHEDULED = ("min", "max", "headroom", "mode")
"""What a schedule may set: keys and attributes."""


def _sets_something(schedule: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    reported = any(diagnostics.has_problem_under((*path, key)) for key in SCHEDULED)
    if schedule and not reported and not any(key in schedule for key in SCHEDULED):
        diagnostics.problem(path, "sets nothing", f"add one of {', '.join(SCHEDULED)}")
    if "mode" in schedule and schedule.get("groups"):
        diagnostics.problem(
            (*path, "mode"),
            "is the whole cluster's, and groups names some",
            "take groups out, or make it a schedule of its own",
        )
    if schedule.get("min", 0) > schedule.get("max", schedule.get("min", 0)):
        diagnostics.problem(
            (*path, "max"),
            f"{schedule['max']} is below min {schedule['min']}",
            f"write {schedule['min']} or more, or lower min",
        )


SCHEDULES = listed_sections(
    Schedule,
    "schedule",
    50,
    '{name: night, groups: [ID], cron: "0 20 * * 1-5", duration: 11h, max: 2}',
    ends_before_it_opens_again,
    _sets_something,
)
