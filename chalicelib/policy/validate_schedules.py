"""Cross-field validation of schedules and headroom: two of them must never set different values at the same instant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from chalicelib.policy.diagnostics import Diagnostics, Path
from chalicelib.policy.partial_policy import SPEC, PartialPolicy, names_once
from chalicelib.policy.schedules import SETS

if TYPE_CHECKING:
    from chalicelib.schedules.overlap import Span

Entry = dict[str, Any]
_PATH: Path = (*SPEC, "schedules")
_EVERY = "every group"
_CLUSTER = "the cluster"


def _names_once(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    names_once(draft_policy, "schedules", "schedules", "schedule", diagnostics)
    names_once(draft_policy, "headroom", "headroom", "entry", diagnostics)


def _bounds_beside_the_groups(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    """If a schedule sets only one bound, it must be consistent with the group's own other bound."""
    for index, schedule in enumerate(draft_policy.spec.get("schedules", ())):
        wanted = schedule.get("groups")
        named = [group for group in draft_policy.groups if not wanted or group.get("id") in wanted]
        path = (*_PATH, index)
        if diagnostics.has_problem_under(path):
            continue
        lowest = min((group for group in named if "max" in group), key=lambda group: group["max"], default={})
        highest = max((group for group in named if "min" in group), key=lambda group: group["min"], default={})
        if "max" not in schedule and lowest.get("max", schedule.get("min", 0)) < schedule.get("min", 0):
            diagnostics.problem(
                (*path, "min"),
                f"{schedule['min']} is above max {lowest['max']} of {lowest.get('id')} in nodeGroups",
                f"write {lowest['max']} or less, or add max",
            )
        if "min" not in schedule and highest.get("min", 0) > schedule.get("max", highest.get("min", 0)):
            diagnostics.problem(
                (*path, "max"),
                f"{schedule['max']} is below min {highest['min']} of {highest.get('id')} in nodeGroups",
                f"write {highest['min']} or more, or add min",
            )


def _one_at_a_time(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Two schedules that set the same value of a group, or of the cluster, must never be open at once, nor may one
    schedule's min exceed the other's max. Day and night schedules of one time zone cannot be written so that this
    holds on the day with 23 hours without leaving a gap on other days; an overlap that only a clock change causes is
    therefore a warning."""
    schedules: Sequence[Entry] = draft_policy.spec.get("schedules", ())
    entries: Sequence[Entry] = draft_policy.spec.get("headroom", ())
    sound = [
        index
        for index, schedule in enumerate(schedules)
        if schedule.keys() >= {"cron", "duration"} and not diagnostics.has_problem_under((*_PATH, index))
    ]
    for first, second in combinations(sound, 2):
        clash = _clash(schedules[first], schedules[second], entries)
        at = _both_open(schedules[first], schedules[second]) if clash is not None else ""
        if clash is None or not at:
            continue
        key, sentence = clash
        path, called = (*_PATH, second, key), _called(schedules[first], first)
        if _by_change_of_clock(schedules[first], schedules[second]):
            word = "this one has the word" if key in schedules[first] else "max holds"
            diagnostics.warn(
                path,
                f"{sentence} {called}, and both are open when the clock is changed, for example at {at}: {word} then",
            )
        else:
            diagnostics.problem(
                path,
                f"{sentence} {called}, and both are open for example at {at}",
                "let one of them end before the other begins",
            )


def _clash(first_entry: Entry, second_entry: Entry, headroom: Sequence[Entry]) -> tuple[str, str] | None:
    """Return (the key of the second, the problem if both are open), or None where there is none."""
    for key in SETS:
        scope = _SCOPES[key](first_entry, second_entry, headroom) if key in first_entry and key in second_entry else ""
        if scope:
            return key, f"the {key} of {scope} is also set by"
    shared = _groups(first_entry, second_entry, headroom)
    for key, low, high in (("min", second_entry, first_entry), ("max", first_entry, second_entry)):
        if shared and low.get("min", 0) > high.get("max", low.get("min", 0)):
            word = "above the max" if key == "min" else "below the min"
            bound = high["max"] if key == "min" else low["min"]
            return key, f"{second_entry[key]} is {word} {bound} for {shared} of"
    return None


def _groups(first_entry: Entry, second_entry: Entry, headroom: Sequence[Entry]) -> str:
    """Return a group whose bounds both set; a schedule without groups applies to all groups."""
    del headroom
    one, other = first_entry.get("groups", ()), second_entry.get("groups", ())
    if not (one and other):
        return next(iter(one or other), _EVERY)
    return next((name for name in other if name in one), "")


def _headroom(first_entry: Entry, second_entry: Entry, headroom: Sequence[Entry]) -> str:
    """Return a group whose headroom both set, or an entry of spec.headroom that has a group of each. A schedule without
    groups only sets the entries without groups."""
    one, other = first_entry.get("groups", ()), second_entry.get("groups", ())
    if not one and not other:
        return _CLUSTER
    through = (
        each.get("name", "an entry")
        for each in headroom
        if {*one} & {*each.get("groups", ())} and {*other} & {*each.get("groups", ())}
    )
    return next((name for name in other if name in one), "") or next(through, "")


_SCOPES: dict[str, Callable[[Entry, Entry, Sequence[Entry]], str]] = {
    "min": _groups,
    "max": _groups,
    "headroom": _headroom,
    "mode": lambda _first, _second, _headroom: _CLUSTER,
}


def _both_open(first_entry: Entry, second_entry: Entry) -> str:
    """Describe an instant at which both are open, on the clock of the second; empty where there is none."""
    from chalicelib.schedules.overlap import both_open  # as in policy/cron_values.py

    at = both_open(_span(first_entry), _span(second_entry))
    if at is None:
        return ""
    from datetime import datetime
    from zoneinfo import ZoneInfo

    zone = second_entry.get("time_zone", "UTC")
    return f"{datetime.fromtimestamp(at, ZoneInfo(zone)):%Y-%m-%d %H:%M} {zone}"


def _by_change_of_clock(first_entry: Entry, second_entry: Entry) -> bool:
    """Return whether they overlap only where their time zone changes its clock."""
    from chalicelib.schedules.overlap import by_change_of_clock

    return by_change_of_clock(_span(first_entry), _span(second_entry))


def _span(schedule_entry: Entry) -> Span:
    from chalicelib.schedules.overlap import Span

    return Span(schedule_entry["cron"], schedule_entry.get("time_zone", "UTC"), schedule_entry["duration"])


def _called(schedule_entry: Entry, index: int) -> str:
    return f"{schedule_entry['name']} (schedules[{index}])" if "name" in schedule_entry else f"schedules[{index}]"


def _one_headroom_per_scope(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Refuse two amounts for one scope: it would be unclear whether to add them or to use the larger one."""
    first: dict[str, int] = {}
    for index, entry in enumerate(draft_policy.spec.get("headroom", ())):
        path = (*SPEC, "headroom", index)
        if not entry or diagnostics.has_problem_under((*path, "groups")):
            continue
        for scope in entry.get("groups", (_CLUSTER,)):
            known = first.setdefault(scope, index)
            if known != index:
                place = (*path, "groups") if "groups" in entry else path
                diagnostics.problem(
                    place,
                    f"{scope} has headroom already: headroom[{known}]",
                    "keep one entry for it, or add the two up",
                )


SCHEDULE_CHECKS: tuple[Callable[[PartialPolicy, Diagnostics], None], ...] = (
    _names_once,
    _bounds_beside_the_groups,
    _one_at_a_time,
    _one_headroom_per_scope,
)
