"""Reduces one pass to the facts that are compared, and finds what the other autoscaler did between two passes.

Facts: sizes, nodes with the other autoscaler's taints, and our plan. Acts: growths and removals, and what others did
instead of it.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import Memory
from chalicelib.model.node import DELETION_CANDIDATE, TO_BE_DELETED, Node
from chalicelib.model.operation import OPERATION_ANNOTATION, OperationKind
from chalicelib.model.plan import Plan
from chalicelib.model.policy import Policy
from chalicelib.model.snapshot import Snapshot
from chalicelib.shadow.other_status import OtherStatus
from chalicelib.shadow.records import MOST_TRACKED, TEXT, Growth, Observation


class Pass(msgspec.Struct, frozen=True):
    """One pass. before: the memory that the plan was made with. token: of the pass's lease; it grows by one per
    pass."""

    snapshot: Snapshot
    policy: Policy
    before: Memory
    plan: Plan
    status: OtherStatus | None = None
    token: int = 0

    @property
    def at(self) -> float:
        """Return the instant at which the cluster was read."""
        return self.snapshot.taken_at

    @property
    def node_names(self) -> set[str]:
        """Return the names of all nodes."""
        return {node.name for node in self.snapshot.nodes}


class RemovedNode(msgspec.Struct, frozen=True):
    """A node that was removed. confirmed: the other autoscaler's taint or status says that it was the one."""

    node: str
    group: str
    at: float
    confirmed: bool


def observe(this_pass: Pass) -> Observation:
    """Return the part of the pass that is kept for the next one."""
    status, snapshot = this_pass.status, this_pass.snapshot
    soft = dict(sorted(_foreign_taints(snapshot.nodes, DELETION_CANDIDATE).items())[: 2 * MOST_TRACKED])
    refusals = {
        verdict.node: f"{verdict.reason.code}{f' ({verdict.pod})' if verdict.pod else ''}"[:TEXT]
        for verdict in this_pass.plan.unremovable
        if verdict.node in soft
    }
    return Observation(
        this_pass.at,
        {group.id: group.target for group in snapshot.groups if not group.error},
        _nodes_by_group(this_pass),
        soft,
        status is None or bool(status.candidates) or bool(soft),
        dict(sorted(refusals.items())[:MOST_TRACKED]),
        status is not None and status.is_dead(this_pass.at),
        this_pass.token,
    )


def _nodes_by_group(this_pass: Pass) -> dict[str, tuple[str, ...]]:
    """Return the names of the registered nodes of each group that could be read."""
    snapshot, names = this_pass.snapshot, this_pass.node_names
    by_id = {node.provider_id: node.name for node in snapshot.nodes if node.provider_id}
    return {
        group.id: tuple(sorted({instance.node or by_id.get(instance.id, "") for instance in group.instances} & names))
        for group in snapshot.groups
        if not group.error
    }


def _foreign_taints(nodes: tuple[Node, ...], key: str) -> dict[str, int]:
    """Return node -> the taint's value (epoch seconds, 0 if it has none) for taints that are not Outscaler's own."""
    values = {}
    for node in nodes:
        taint = node.taint(key)
        if taint is not None and not node.annotations.get(OPERATION_ANNOTATION):
            value = taint.value
            values[node.name] = int(value) if value.isascii() and value.isdecimal() and len(value) < 12 else 0
    return values


# -- acts ------------------------------------------------------------------------------------------------------------


def growths(last_observation: Observation, this_pass: Pass) -> tuple[Growth, ...]:
    """Return the groups whose target is larger than at the last pass. Groups with an operation of ours are left
    out."""
    own = {operation.spec.group for operation in this_pass.before.operations}
    status, last = this_pass.status, last_observation
    return tuple(
        Growth(
            group.id,
            before,
            group.target - before,
            _first_sign(group.id, last, this_pass),
            status is not None and status.grew(group.id, last.at),
            status is None,
        )
        for group in this_pass.snapshot.groups
        if (before := last.targets.get(group.id)) is not None
        and not group.error
        and group.target > before
        and group.id not in own
    )


def confirmed(growth: Growth, this_pass: Pass, since: float) -> Growth:
    """Return the growth, confirmed if the status of this pass says so: a status may be written after the act."""
    if growth.confirmed or this_pass.status is None or not this_pass.status.grew(growth.group, since):
        return growth
    return msgspec.structs.replace(growth, confirmed=True)


def _first_sign(group_id: str, last_observation: Observation, this_pass: Pass) -> float:
    """Return when the group grew: the creation of its first new instance or node, otherwise this pass."""
    group = next(group for group in this_pass.snapshot.groups if group.id == group_id)
    members = {name for instance in group.instances for name in (instance.node, instance.id)}
    times = [instance.created for instance in group.instances if instance.created]
    times += [node.created for node in this_pass.snapshot.nodes if node.name in members or node.provider_id in members]
    return min((at for at in times if last_observation.at < at <= this_pass.at), default=this_pass.at)


def removals(last_observation: Observation, deleting: dict[str, float], this_pass: Pass) -> tuple[RemovedNode, ...]:
    """Return the removals that were not seen before: a new hard taint, or a node that is gone while the target of its
    group fell. A node that is gone while the target stayed was reclaimed by the vendor; no autoscaler removed it.

    deleting: nodes with a hard taint that were counted before.
    """
    last = last_observation
    group_of = {node: group for group, nodes in last.nodes.items() for node in nodes}
    removed = [
        RemovedNode(
            node,
            group_of.get(node, ""),
            float(at) if last.at - 3600 < at <= this_pass.at else this_pass.at,
            confirmed=True,
        )
        for node, at in _foreign_taints(this_pass.snapshot.nodes, TO_BE_DELETED).items()
        if node not in deleting
    ]
    own = {
        target.node
        for operation in this_pass.before.operations
        if operation.spec.kind is OperationKind.DELETE_NODES
        for target in operation.spec.targets
    }
    existing = this_pass.node_names
    for group in this_pass.snapshot.groups:
        decrease = last.targets.get(group.id, 0) - group.target
        if group.error or decrease <= 0:
            continue
        absent = [node for node in last.nodes.get(group.id, ()) if node not in existing]
        decrease -= sum(node in deleting for node in absent)
        uncounted = [node for node in absent if node not in deleting and node not in own]
        uncounted.sort(key=lambda node: (node not in last.soft, node))
        removed += [
            RemovedNode(node, group.id, this_pass.at, last.candidates) for node in uncounted[: max(0, decrease)]
        ]
    return tuple(removed)


def restarted(last_observation: Observation, soft: dict[str, int]) -> bool:
    """Return whether the other autoscaler began its timers anew: most soft taints that stayed have a newer value."""
    common = [node for node in soft if node in last_observation.soft]
    return bool(common) and 2 * sum(soft[node] > last_observation.soft[node] for node in common) > len(common)
