"""What the entries of several sections have: a name, groups, and windows of a clock.

schedules/maintenance_windows.py is imported where it is used: it loads cron and time zones, which
functions that only look up a policy without them must not pay for.
"""

from functools import lru_cache
from typing import Annotated, Any

from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import format_duration
from chalicelib.policy.diagnostics import Diagnostics, Path, quote
from chalicelib.policy.value_types import distinct, duration, listed, scalar, text

DAY = 86400.0
MONTH = 31 * DAY

# A slash is reserved for the rules of objects in a cluster, which memory stores
# as namespace/object/rule.
NAME = text(
    "a name without spaces and slashes", r"[^\s/\x00-\x1f\x7f]{1,100}", "something like evening"
)
GROUPS = distinct(
    listed(text("a node group's id or name", r"[^\s\x00-\x1f\x7f]{1,512}")),
    "group",
    ("names no group", "write groups: [ID], or take the line out"),
)
GroupsOrAll = Annotated[
    tuple[str, ...],
    GROUPS,
    "Ids or names of the groups, or of their pools; all groups if not given.",
]


@lru_cache(maxsize=256)
def _parse_cron(value: str) -> str:
    """Normalise to one space between fields; raises BadInput."""
    if len(value) > 128:
        problem = f"{quote(value)} is longer than 128 characters"
        raise BadInput("", problem, "write it shorter, or as several windows")
    from chalicelib.schedules.cron import check_cron

    cron = " ".join(value.split())
    check_cron(cron)
    return cron


def _parse_zone(value: str) -> str:
    if not value[:1].isupper():  # names of the time zone database only; others are machine-specific
        raise BadInput(
            "", f"{quote(value)} is not a time zone", "write it like Europe/Zurich or UTC"
        )
    from chalicelib.schedules.cron import check_zone

    check_zone(value)
    return value


ZONE = scalar("time zone", _parse_zone, "it like Europe/Zurich")
CRON = scalar("five fields of cron", _parse_cron, 'it like "0 22 * * 1-5"')
TimeZone = Annotated[str, ZONE, "Time zone of cron."]
OPENS = "When it opens: minute, hour, day of the month, month, day of the week."
OPEN_TIME = duration(60.0, MONTH)
STAYS_OPEN = "How long it stays open, from 1m to 744h, in real time, also across clock changes."


@lru_cache(maxsize=256)
def _shortest_gap(cron: str) -> float:
    from chalicelib.schedules.cron import shortest_gap

    return shortest_gap(cron)


def ends_before_it_opens_again(
    window: dict[str, Any], path: Path, diagnostics: Diagnostics
) -> None:
    """Report a window that opens again before it has closed."""
    if "cron" not in window or "duration" not in window:
        return
    gap, lasts = _shortest_gap(window["cron"]), window["duration"]
    if lasts > gap:
        most = format_duration(gap)
        diagnostics.problem(
            (*path, "duration"),
            f"{format_duration(lasts)} is longer than the {most} until it opens again",
            f"write at most {most}, or let it open less often",
        )
