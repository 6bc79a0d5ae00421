"""spec.maintenanceWindows: when removals are allowed, as plan/windows.py understands it.

That module is imported where it is used: it brings cron and time zones, which functions that only look up a policy
without windows shall not pay for.
"""

from __future__ import annotations

from typing import Any

from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import format_duration
from chalicelib.policy.parsers import UNSET, Kind, choice, duration, scalar, text
from chalicelib.policy.report import Path, Report, quote
from chalicelib.policy.schema import Field, Section, read_section
from chalicelib.policy.yaml_marks import Node, Scalar, Sequence

_LONGEST_CRON, _MOST = 128, 50
_CRON_FORM = 'it like "0 22 * * 1-5"'


def _cron(given: str) -> str:
    """With one space between fields; raises BadInput."""
    if len(given) > _LONGEST_CRON:
        raise BadInput("", f"{quote(given)} is longer than {_LONGEST_CRON} characters",
                       "write it shorter, or as several windows")
    from chalicelib.plan.windows import check_cron

    cron = " ".join(given.split())
    check_cron(cron)
    return cron


def _zone(given: str) -> str:
    if not given[:1].isupper():     # the database's own names are; others exist on some machines and not on others
        raise BadInput("", f"{quote(given)} is not a time zone", "write it like Europe/Zurich or UTC")
    from chalicelib.plan.windows import check_zone

    check_zone(given)
    return given


_REMOVALS = choice(("allowed", "forbidden"), lambda word: word == "allowed")

WINDOW = Section(fields=(
    Field("name", text("a name", r"[^\x00-\x1f\x7f]{1,100}"), "name", "What to call it in answers."),
    Field("cron", Kind("five fields of cron", scalar(_cron, _CRON_FORM)), "cron",
          "When it opens: minute, hour, day of the month, month, day of the week.", required=True,
          example='cron: "0 22 * * 1-5"'),
    Field("timeZone", Kind("time zone", scalar(_zone, "it like Europe/Zurich")), "time_zone",
          "Whose clock cron means.", default="UTC"),
    Field("duration", duration(60.0, 31 * 86400.0), "duration",
          "How long it stays open, from 1m to 744h, in real time also where the clock is changed meanwhile.",
          required=True, example="duration: 6h"),
    Field("removals", Kind("allowed or forbidden", _REMOVALS.read, lambda yes: "allowed" if yes else "forbidden"),
          "removals", "allowed: nodes are removed in such windows only. forbidden: not in this one, whatever another "
          "allows.", default="allowed"),
))


def read_windows(node: Node, path: Path, report: Report) -> Any:
    """A tuple of windows as attribute -> value; what was wrong in one is absent from it, already told."""
    if isinstance(node, Scalar) and node.is_null:
        return ()
    if not isinstance(node, Sequence):
        report.problem(path, "is not a list",
                       'write one window per line, as - {name: nights, cron: "0 22 * * *", duration: 6h}')
        return UNSET
    if len(node.items) > _MOST:
        report.problem(path, f"has {len(node.items)} windows", f"write at most {_MOST}")
        return UNSET
    found = tuple(read_section(WINDOW, item, (*path, index), report) or {} for index, item in enumerate(node.items))
    for index, window in enumerate(found):
        _ends_before_it_opens_again(window, (*path, index, "duration"), report)
    return found


def _ends_before_it_opens_again(window: dict[str, Any], path: Path, report: Report) -> None:
    if "cron" not in window or "duration" not in window:
        return
    from chalicelib.plan.windows import shortest_gap

    gap, lasts = shortest_gap(window["cron"]), window["duration"]
    if lasts > gap:
        most = format_duration(gap)
        report.problem(path, f"{format_duration(lasts)} is longer than the {most} until it opens again",
                       f"write at most {most}, or let it open less often")
