"""Finds what the other autoscaler did between two passes: growths and removals, and what others did instead of it."""

from __future__ import annotations

import msgspec

from chalicelib.model.operation import OperationKind
from chalicelib.shadow.observed import Pass, being_removed
from chalicelib.shadow.records import Growth, Observation


class RemovedNode(msgspec.Struct, frozen=True):
    """A node that was removed. ours: by our own operation, which is not compared. confirmed: the other autoscaler's
    taint or status says that it was the one."""

    node: str
    group: str
    at: float
    confirmed: bool


def growths(last: Observation, now: Pass) -> tuple[Growth, ...]:
    """Return the groups whose target is larger than at the last pass. Groups with an operation of ours are left
    out."""
    own = {operation.spec.group for operation in now.before.operations}
    found = []
    for group in now.snapshot.groups:
        was = last.targets.get(group.id)
        if was is None or group.error or group.target <= was or group.id in own:
            continue
        found.append(
            Growth(
                group.id,
                was,
                group.target - was,
                _first_sign(group.id, last, now),
                now.status is not None and now.status.grew(group.id, last.at),
                now.status is None,
            )
        )
    return tuple(found)


def confirmed(growth: Growth, now: Pass, since: float) -> Growth:
    """Return the growth, confirmed if the status of this pass says so: a status may be written after the act."""
    if growth.confirmed or now.status is None or not now.status.grew(growth.group, since):
        return growth
    return msgspec.structs.replace(growth, confirmed=True)


def _first_sign(group_id: str, last: Observation, now: Pass) -> float:
    """Return when the group grew: the creation of its first new instance or node, otherwise this pass."""
    group = next(each for each in now.snapshot.groups if each.id == group_id)
    members = {each.node for each in group.instances} | {each.id for each in group.instances}
    times = [each.created for each in group.instances if each.created]
    times += [node.created for node in now.snapshot.nodes if node.name in members or node.provider_id in members]
    return min((at for at in times if last.at < at <= now.at), default=now.at)


def removals(last: Observation, deleting: dict[str, float], now: Pass) -> tuple[RemovedNode, ...]:
    """Return the removals that were not seen before: a new hard taint, or a node that is gone while the target of its
    group fell. A node that is gone while the target stayed was reclaimed by the vendor; no autoscaler removed it."""
    group_of = {node: group for group, nodes in last.nodes.items() for node in nodes}
    tainted = being_removed(now)
    found = [
        RemovedNode(
            node, group_of.get(node, ""), float(at) if last.at - 3600 < at <= now.at else now.at, confirmed=True
        )
        for node, at in tainted.items()
        if node not in deleting
    ]
    own = {
        target.node
        for operation in now.before.operations
        if operation.spec.kind is OperationKind.DELETE_NODES
        for target in operation.spec.targets
    }
    here = {node.name for node in now.snapshot.nodes}
    for group in now.snapshot.groups:
        fell = last.targets.get(group.id, 0) - group.target
        if group.error or fell <= 0:
            continue
        members = last.nodes.get(group.id, ())
        fell -= sum(node in deleting and node not in here for node in members)
        gone = [node for node in members if node not in here and node not in deleting and node not in own]
        gone.sort(key=lambda node: (node not in last.soft, node))
        found += [RemovedNode(node, group.id, now.at, last.candidates) for node in gone[: max(0, fell)]]
    return tuple(found)


def restarted(last: Observation, soft: dict[str, int]) -> bool:
    """Return whether the other autoscaler began its timers anew: most soft taints that stayed have a newer value."""
    both = [node for node in soft if node in last.soft]
    return bool(both) and 2 * sum(soft[node] > last.soft[node] for node in both) > len(both)
