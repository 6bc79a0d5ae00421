"""Applies schedules: returns the policy and the bounds that are in force at one instant.

A schedule is open like a maintenance window (schedules/maintenance_windows.py). No state is stored:
its settings end the instant it closes, and sizes follow. If two schedules set the same value, which
the policy check refuses, the later one in the document wins. See docs/reference/schedules.md
"Schedules".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.snapshot import Snapshot
from chalicelib.policy.settings.cluster_policy import Policy, in_mode
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.settings.headroom import Headroom
from chalicelib.policy.settings.schedules import Schedule


def apply_schedules(policy: Policy, now: float) -> Policy:
    """Return the policy with the settings of the schedules that are open at `now` (epoch seconds):
    the mode, the headroom, and wider bounds in spec.nodeGroups, which providers enforce when nodes
    are requested. Idempotent."""
    open_schedules = _open(policy.schedules, now)
    if open_schedules and policy.own_minimums is None:
        own = {group.id: group.min for group in policy.node_groups if group.min is not None}
        policy = msgspec.structs.replace(policy, own_minimums=own)
    for schedule in open_schedules:
        policy = _applied(policy, schedule)
    return policy


def is_meant(schedule: Schedule, group: NodeGroup) -> bool:
    """Return whether a schedule bounds a group, or the pool of which it is part."""
    pool_names = {group.pool.id, group.pool.name} - {""} if group.pool is not None else set()
    own_names = pool_names.union((group.id, *group.aliases))
    return not schedule.groups or not own_names.isdisjoint(schedule.groups)


def apply_scheduled_bounds(snapshot: Snapshot, policy: Policy, now: float) -> Snapshot:
    """Return the snapshot with the bounds that open schedules give its node groups.

    A schedule's maximum replaces a group's own, and so does its minimum, which is enforced
    regardless of enforceNodeGroupMinSize. If the minimum is larger than the maximum, the maximum
    applies to both. Several groups of one pool are bounded together if the schedule means the pool:
    by its id or name, or by naming no group. A group of one of the policy's providers stays within
    the bounds that were read, which `apply_schedules` has widened where nodeGroups gives some. The
    planner must not plan what the provider would refuse, because pods would then miss nodes that
    they could have had.
    """
    bounding = [
        schedule
        for schedule in _open(policy.schedules, now)
        if schedule.min is not None or schedule.max is not None
    ]
    if not bounding:
        return snapshot
    shared = Counter(group.pool.id for group in snapshot.groups if group.pool is not None)
    groups = tuple(
        _bounded(
            group,
            bounding,
            together=group.pool is not None and shared[group.pool.id] > 1,
            own=group.provider in policy.providers,
        )
        for group in snapshot.groups
    )
    return msgspec.structs.replace(snapshot, groups=groups)


def _open(schedules: Iterable[Schedule], now: float) -> list[Schedule]:
    """Return the open schedules. Cron and time zones are evaluated only if there are schedules."""
    candidates = list(schedules)
    if not candidates:
        return candidates
    from chalicelib.schedules.maintenance_windows import is_open

    return [schedule for schedule in candidates if is_open(schedule, now)]


def _applied(policy: Policy, schedule: Schedule) -> Policy:
    # Only runtime/mode_guard.py reads modes; here the value is passed on unchanged.
    word = msgspec.structs.asdict(schedule)["mode"]
    if word:
        policy = in_mode(policy, word)
    if schedule.headroom is not None:
        policy = msgspec.structs.replace(policy, headroom=_replaced(policy.headroom, schedule))
    if schedule.min is not None or schedule.max is not None:
        policy = msgspec.structs.replace(
            policy,
            node_groups=tuple(
                _with_bounds(group, schedule)
                if not schedule.groups or group.id in schedule.groups
                else group
                for group in policy.node_groups
            ),
        )
    return policy


def _replaced(entries: tuple[Headroom, ...], schedule: Schedule) -> tuple[Headroom, ...]:
    """Return headroom with the schedule's percentage: of the entries that have one of its
    groups, or of those without groups if it has none. If no entry has this scope, the schedule
    adds its own. 0 percent: none."""
    percent = schedule.headroom or 0
    names = frozenset(schedule.groups)
    same_scope = [
        entry
        for entry in entries
        if (names.intersection(entry.groups) if names else not entry.groups)
    ]
    if not same_scope:
        return (
            (*entries, Headroom(schedule.name, groups=schedule.groups, percent=percent))
            if percent
            else entries
        )
    changed = {
        entry.name: Headroom(entry.name, groups=entry.groups, percent=percent)
        for entry in same_scope
    }
    return tuple(changed.get(entry.name, entry) for entry in entries)


def _with_bounds(group_policy: GroupPolicy, schedule: Schedule) -> GroupPolicy:
    """Return bounds that a provider must know to do what `apply_scheduled_bounds` allows: wider
    ones, never narrower ones.

    A provider rejects bounds that contradict its own (a group with a maximum of three and a minimum
    of six), and with them the group or all its groups. A bound that neither the entry nor the
    schedule combines with the opposite bound is therefore left out.
    """
    low, high = (
        (schedule.min if schedule.groups or group_policy.min is not None else None),
        schedule.max,
    )
    least, most = group_policy.min, group_policy.max
    if high is not None and any(
        bound is not None for bound in (group_policy.min, group_policy.max, low)
    ):
        most = max(
            bound for bound in (high, 1, group_policy.min, group_policy.max) if bound is not None
        )
    if least is not None:
        least = min(bound for bound in (least, low, high) if bound is not None)
    elif low is not None and most is not None:
        least = min(low, most)
    return msgspec.structs.replace(group_policy, min=least, max=most)


def _bounded(
    group: NodeGroup, schedules: Iterable[Schedule], *, together: bool, own: bool
) -> NodeGroup:
    """together: other groups share its pool. own: its provider enforces the bounds that
    it reported for the group."""
    read = group
    if group.managed is not None:  # its declaration has the limits
        return group
    for schedule in schedules:
        names, pool = frozenset(schedule.groups), group.pool
        as_pool = pool is not None and (
            not names or not names.isdisjoint({pool.id, pool.name} - {""})
        )
        itself = not names.isdisjoint((group.id, *group.aliases))
        if not (as_pool or itself or not names):
            continue
        if pool is not None and read.pool is not None and (as_pool or not together):
            within = (read.pool.min, read.pool.max) if own else None
            least, most = _range((pool.min, pool.max), schedule, within)
            group = msgspec.structs.replace(
                group, pool=msgspec.structs.replace(pool, min=least, max=most)
            )
        if not (as_pool and together) or group.id in names:
            least, most = _range(
                (group.min, group.max), schedule, (read.min, read.max) if own else None
            )
            group = msgspec.structs.replace(group, min=least, max=most)
        if schedule.min is not None:
            group = msgspec.structs.replace(
                group, options=msgspec.structs.replace(group.options, enforce_min=True)
            )
    return group


def _range(
    bounds: tuple[int, int], schedule: Schedule, within: tuple[int, int] | None
) -> tuple[int, int]:
    """Return bounds as a schedule sets them; a maximum of -1 means none. within: limits that are
    not exceeded in either direction."""
    least = bounds[0] if schedule.min is None else schedule.min
    most = bounds[1] if schedule.max is None else schedule.max
    if within is not None:
        lowest, highest = within
        most = (
            max(most, lowest)
            if highest < 0 <= most
            else min(max(most, lowest), highest)
            if most >= 0
            else most
        )
        least = max(least, lowest)
    return (min(least, most) if most >= 0 else least), most
