"""spec.schedules: time windows with different bounds, headroom or mode."""

from __future__ import annotations

from typing import Any

from chalicelib.model.policy import Mode
from chalicelib.policy.cron_values import ends_before_it_opens_again, opening
from chalicelib.policy.diagnostics import Diagnostics, Path
from chalicelib.policy.list_sections import GROUPS, NAME, entries, percent
from chalicelib.policy.schema import Field, Section
from chalicelib.policy.value_types import choice, whole

MOST_PERCENT = 1000

SCHEDULE = Section(
    fields=(
        Field("name", NAME, "name", "The schedule's name in answers.", required=True, example="name: NAME"),
        Field("groups", GROUPS, "groups", "Ids or names of the groups, or of their pools; all groups if not given."),
        *opening(cron="0 20 * * 1-5", duration="11h"),
        Field("min", whole(), "min", "Fewest nodes of each group meanwhile; a group below it grows."),
        Field("max", whole(), "max", "Most nodes of each group meanwhile; a group above it does not grow."),
        Field(
            "headroom",
            percent(0, MOST_PERCENT),
            "headroom",
            "Headroom meanwhile, instead of that of the spec.headroom for these groups (without groups: of those "
            "without).",
        ),
        Field(
            "mode",
            choice(tuple(Mode), str, "off, shadow or active"),
            "mode",
            "Mode of the whole cluster meanwhile; not together with groups.",
        ),
    )
)
SETS = ("min", "max", "headroom", "mode")


def _sets_something(schedule: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    reported = any(diagnostics.has_problem_under((*path, key)) for key in SETS)
    if schedule and not reported and not any(key in schedule for key in SETS):
        diagnostics.problem(path, "sets nothing", f"add one of {', '.join(SETS)}")
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


SCHEDULES = entries(
    SCHEDULE,
    "schedule",
    50,
    '{name: night, groups: [ID], cron: "0 20 * * 1-5", duration: 11h, max: 2}',
    ends_before_it_opens_again,
    _sets_something,
)
