"""Schedules (demands.md 18): what a policy says at one instant, windows with a time zone taken into account.

A schedule is open as a maintenance window is (plan/windows.py). Nothing is remembered of one: what it set is as it was
the instant it closes, and sizes follow by themselves. Of two that set the same, which the policy's check refuses, the
later one in the document has the word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.policy import GroupPolicy, Policy, Window, in_mode
from chalicelib.model.scaling_rules import Headroom, Schedule
from chalicelib.model.snapshot import Snapshot


def apply_schedules(policy: Policy, now: float) -> Policy:
    """The policy with what the schedules say that are open at `now` (epoch seconds): the mode, the headroom, and wider
    bounds in spec.nodeGroups, which providers keep to when they are asked for nodes. Twice is the same as once."""
    for each in _open(policy.schedules, now):
        policy = _applied(policy, each)
    return policy


def apply_scheduled_bounds(snapshot: Snapshot, policy: Policy, now: float) -> Snapshot:
    """The snapshot with the bounds that open schedules give its node groups.

    A schedule's maximum replaces a group's own, its minimum too, and is enforced whatever enforceNodeGroupMinSize says.
    Where both meet and the minimum is the larger, the maximum holds for both. Several groups of one pool are bounded
    together where the pool is meant: by its id or name, or by a schedule that names nobody. A group of one of the
    policy's providers stays within the bounds that were read, which `at_instant` has widened where nodeGroups gives
    some: what its provider would refuse is not planned, else pods would go without the nodes that they could have had.
    """
    here = [each for each in _open(policy.schedules, now) if each.min is not None or each.max is not None]
    if not here:
        return snapshot
    shared = Counter(group.pool.id for group in snapshot.groups if group.pool is not None)
    groups = tuple(
        _bounded(
            group,
            here,
            together=group.pool is not None and shared[group.pool.id] > 1,
            own=group.provider in policy.providers,
        )
        for group in snapshot.groups
    )
    return msgspec.structs.replace(snapshot, groups=groups)


def _open(schedules: Iterable[Schedule], now: float) -> list[Schedule]:
    """Those that are open. Cron and time zones are only paid for where there are schedules."""
    found = list(schedules)
    if not found:
        return found
    from chalicelib.schedules.maintenance_windows import is_open

    return [each for each in found if is_open(Window(each.cron, each.duration, time_zone=each.time_zone), now)]


def _applied(policy: Policy, schedule: Schedule) -> Policy:
    # Only the guard looks at modes; here the word is passed on as it stands.
    word = msgspec.structs.asdict(schedule)["mode"]
    if word:
        policy = in_mode(policy, word)
    if schedule.headroom is not None:
        policy = msgspec.structs.replace(policy, headroom=_replaced(policy.headroom, schedule))
    if schedule.min is not None or schedule.max is not None:
        policy = msgspec.structs.replace(
            policy,
            node_groups=tuple(
                _with_bounds(each, schedule) if not schedule.groups or each.id in schedule.groups else each
                for each in policy.node_groups
            ),
        )
    return policy


def _replaced(entries: tuple[Headroom, ...], schedule: Schedule) -> tuple[Headroom, ...]:
    """Headroom with the schedule's percentage: of the entries that have one of its groups, or that have none where it
    has none. Where no entry has this scope, the schedule brings its own. 0 percent: none."""
    percent = schedule.headroom or 0
    names = frozenset(schedule.groups)
    mine = [each for each in entries if (names.intersection(each.groups) if names else not each.groups)]
    if not mine:
        made = Headroom(schedule.name, groups=schedule.groups, percent=percent)
        return (*entries, made) if percent else entries
    changed = {each.name: Headroom(each.name, groups=each.groups, percent=percent) for each in mine}
    return tuple(changed.get(each.name, each) for each in entries)


def _with_bounds(entry: GroupPolicy, schedule: Schedule) -> GroupPolicy:
    """Bounds that a provider has to know of so that it does what `bounded` allows: wider ones, never narrower ones.

    A provider refuses bounds that contradict its own (a group of three at most that has six at least), and with them
    the group or all it has. So nothing is said of a bound that neither the entry nor the schedule pairs with another.
    """
    low, high = (schedule.min if schedule.groups or entry.min is not None else None), schedule.max
    least, most = entry.min, entry.max
    if high is not None and any(bound is not None for bound in (entry.min, entry.max, low)):
        most = max(bound for bound in (high, 1, entry.min, entry.max) if bound is not None)
    if least is not None:
        least = min(bound for bound in (least, low, high) if bound is not None)
    elif low is not None and most is not None:
        least = min(low, most)
    return msgspec.structs.replace(entry, min=least, max=most)


def _bounded(group: NodeGroup, schedules: Iterable[Schedule], *, together: bool, own: bool) -> NodeGroup:
    """together: others share its pool. own: its provider keeps to the bounds that it gave the group."""
    read = group
    for each in schedules:
        names, pool = frozenset(each.groups), group.pool
        as_pool = pool is not None and (not names or not names.isdisjoint({pool.id, pool.name} - {""}))
        itself = not names.isdisjoint((group.id, *group.aliases))
        if not (as_pool or itself or not names):
            continue
        if pool is not None and read.pool is not None and (as_pool or not together):
            within = (read.pool.min, read.pool.max) if own else None
            least, most = _range((pool.min, pool.max), each, within)
            group = msgspec.structs.replace(group, pool=msgspec.structs.replace(pool, min=least, max=most))
        if not (as_pool and together) or group.id in names:
            least, most = _range((group.min, group.max), each, (read.min, read.max) if own else None)
            group = msgspec.structs.replace(group, min=least, max=most)
        if each.min is not None:
            group = msgspec.structs.replace(group, options=msgspec.structs.replace(group.options, enforce_min=True))
    return group


def _range(bounds: tuple[int, int], schedule: Schedule, within: tuple[int, int] | None) -> tuple[int, int]:
    """Bounds as a schedule sets them; -1 as the maximum is none. within: what is not passed in either direction."""
    least = bounds[0] if schedule.min is None else schedule.min
    most = bounds[1] if schedule.max is None else schedule.max
    if within is not None:
        lowest, highest = within
        most = max(most, lowest) if highest < 0 <= most else min(max(most, lowest), highest) if most >= 0 else most
        least = max(least, lowest)
    return (min(least, most) if most >= 0 else least), most
