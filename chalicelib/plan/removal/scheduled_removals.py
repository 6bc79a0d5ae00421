"""Which unneeded nodes only a schedule let go, for what is saved (docs/bill.md "Savings").

A schedule lets a node go if the node's group, or its pool, falls below a minimum that held within
the day before: one that a schedule has set until it closed, or the group's own one, which an open
schedule has replaced. Other settings of schedules are not followed: a node that headroom of the day
kept goes as any other unneeded node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.policy.open_schedules import is_meant
from chalicelib.policy.settings.cluster_policy import Policy

_DAY = 86_400.0


class _Floor(msgspec.Struct, frozen=True):
    """A minimum that held until an instant (epoch seconds). of_pool: it is that of all groups of a
    pool."""

    schedule: str
    until: float
    least: int
    of_pool: bool = False


def with_schedules(plan: Plan, snapshot: Snapshot, policy: Policy) -> Plan:
    """Return the plan; removals of unneeded nodes that a schedule let go have its name. snapshot:
    with the bounds that were read. policy: with what open schedules have set."""
    if not policy.schedules or not any(map(_is_unneeded, plan.operations)):
        return plan
    groups = {group.id: group for group in snapshot.groups}
    removed: Counter[str] = Counter()
    operations = []
    for operation in plan.operations:
        group = groups.get(operation.spec.group)
        floor = None
        if operation.spec.kind is OperationKind.DELETE_NODES and group is not None:
            removed[group.id] += 1
            if _is_unneeded(operation):
                sizes = _sizes(plan, groups, group, removed)
                floor = _floor_above(sizes, group, policy, plan.at)
        operations.append(operation if floor is None else _let_go(operation, floor))
    return msgspec.structs.replace(plan, operations=tuple(operations))


def _let_go(operation: Operation, floor: _Floor) -> Operation:
    return operation.with_spec(schedule=floor.schedule, scheduled_at=floor.until)


def _is_unneeded(operation: Operation) -> bool:
    return operation.spec.kind is OperationKind.DELETE_NODES and not operation.spec.reason


def _sizes(
    plan: Plan, groups: Mapping[str, NodeGroup], group: NodeGroup, removed: Mapping[str, int]
) -> tuple[int, int]:
    """Return the sizes of the group and of its pool after the removals so far."""
    first_sizes: dict[str, int] = {}
    for operation in plan.operations:
        if operation.spec.kind is OperationKind.DELETE_NODES:
            first_sizes.setdefault(operation.spec.group, operation.spec.from_size)

    def size(some_group: NodeGroup) -> int:
        before = first_sizes.get(some_group.id, some_group.target)
        return before - removed.get(some_group.id, 0)

    if group.pool is None:
        return size(group), size(group)
    siblings = [one for one in groups.values() if one.pool and one.pool.id == group.pool.id]
    return size(group), sum(map(size, siblings)) + group.pool.elsewhere


def _floor_above(
    sizes: tuple[int, int], group: NodeGroup, policy: Policy, now: float
) -> _Floor | None:
    """Return the first minimum below which the sizes of a group and of its pool fall."""
    of_group, of_pool = sizes
    for floor in _floors(group, policy, now):
        if (of_pool if floor.of_pool else of_group) < floor.least:
            return floor
    return None


def _floors(group: NodeGroup, policy: Policy, now: float) -> Iterator[_Floor]:
    """Yield the minimums that no longer hold because of a schedule."""
    from chalicelib.schedules.maintenance_windows import last_span

    own = policy.own_minimums or {}
    own_least = max(group.min, *(own.get(name, 0) for name in (group.id, *group.aliases)))
    for schedule in policy.schedules:
        is_bounding = schedule.min is not None or schedule.max is not None
        span = last_span(schedule, now) if is_bounding and is_meant(schedule, group) else None
        if span is None:
            continue
        opened_at, closed_at = span
        if now < closed_at:
            yield _Floor(schedule.name, opened_at, own_least)
            if group.pool is not None:
                yield _Floor(schedule.name, opened_at, group.pool.min, of_pool=True)
        elif schedule.min is not None and closed_at > now - _DAY:
            of_pool = group.pool is not None and group.id not in schedule.groups
            yield _Floor(schedule.name, closed_at, schedule.min, of_pool)
