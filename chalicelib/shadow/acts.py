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


def growths(last_observation: Observation, this_pass: Pass) -> tuple[Growth, ...]:
    """Return the groups whose target is larger than at the last pass. Groups with an operation of ours are left
    out."""
    own = {operation.spec.group for operation in this_pass.before.operations}
    found = []
    for group in this_pass.snapshot.groups:
        was = last_observation.targets.get(group.id)
        if was is None or group.error or group.target <= was or group.id in own:
            continue
        found.append(
            Growth(
                group.id,
                was,
                group.target - was,
                _first_sign(group.id, last_observation, this_pass),
                this_pass.status is not None and this_pass.status.grew(group.id, last_observation.at),
                this_pass.status is None,
            )
        )
    return tuple(found)


def confirmed(growth: Growth, this_pass: Pass, since: float) -> Growth:
    """Return the growth, confirmed if the status of this pass says so: a status may be written after the act."""
    if growth.confirmed or this_pass.status is None or not this_pass.status.grew(growth.group, since):
        return growth
    return msgspec.structs.replace(growth, confirmed=True)


def _first_sign(group_id: str, last_observation: Observation, this_pass: Pass) -> float:
    """Return when the group grew: the creation of its first new instance or node, otherwise this pass."""
    group = next(each for each in this_pass.snapshot.groups if each.id == group_id)
    members = {each.node for each in group.instances} | {each.id for each in group.instances}
    times = [each.created for each in group.instances if each.created]
    times += [node.created for node in this_pass.snapshot.nodes if node.name in members or node.provider_id in members]
    return min((at for at in times if last_observation.at < at <= this_pass.at), default=this_pass.at)


def removals(last_observation: Observation, deleting: dict[str, float], this_pass: Pass) -> tuple[RemovedNode, ...]:
    """Return the removals that were not seen before: a new hard taint, or a node that is gone while the target of its
    group fell. A node that is gone while the target stayed was reclaimed by the vendor; no autoscaler removed it."""
    group_of = {node: group for group, nodes in last_observation.nodes.items() for node in nodes}
    tainted = being_removed(this_pass)
    found = [
        RemovedNode(
            node,
            group_of.get(node, ""),
            float(at) if last_observation.at - 3600 < at <= this_pass.at else this_pass.at,
            confirmed=True,
        )
        for node, at in tainted.items()
        if node not in deleting
    ]
    own = {
        target.node
        for operation in this_pass.before.operations
        if operation.spec.kind is OperationKind.DELETE_NODES
        for target in operation.spec.targets
    }
    here = {node.name for node in this_pass.snapshot.nodes}
    for group in this_pass.snapshot.groups:
        fell = last_observation.targets.get(group.id, 0) - group.target
        if group.error or fell <= 0:
            continue
        members = last_observation.nodes.get(group.id, ())
        fell -= sum(node in deleting and node not in here for node in members)
        gone = [node for node in members if node not in here and node not in deleting and node not in own]
        gone.sort(key=lambda node: (node not in last_observation.soft, node))
        found += [
            RemovedNode(node, group.id, this_pass.at, last_observation.candidates) for node in gone[: max(0, fell)]
        ]
    return tuple(found)


def restarted(last_observation: Observation, soft: dict[str, int]) -> bool:
    """Return whether the other autoscaler began its timers anew: most soft taints that stayed have a newer value."""
    both = [node for node in soft if node in last_observation.soft]
    return bool(both) and 2 * sum(soft[node] > last_observation.soft[node] for node in both) > len(both)
