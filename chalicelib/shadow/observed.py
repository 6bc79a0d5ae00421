"""Reduces one pass to the facts that are compared: sizes, nodes with the other autoscaler's taints, and our plan."""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import Memory
from chalicelib.model.node import DELETION_CANDIDATE, TO_BE_DELETED, Node
from chalicelib.model.operation import OPERATION_ANNOTATION
from chalicelib.model.plan import Plan
from chalicelib.model.policy import Policy
from chalicelib.model.snapshot import Snapshot
from chalicelib.shadow.other_status import OtherStatus
from chalicelib.shadow.records import MOST_TRACKED, TEXT, Observation


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


def observe(this_pass: Pass) -> Observation:
    """Return the part of the pass that is kept for the next one."""
    readable = [group for group in this_pass.snapshot.groups if not group.error]
    soft = dict(sorted(foreign_taints(this_pass.snapshot.nodes, DELETION_CANDIDATE).items())[: 2 * MOST_TRACKED])
    refusals = {
        each.node: f"{each.reason.code}{f' ({each.pod})' if each.pod else ''}"[:TEXT]
        for each in this_pass.plan.unremovable
        if each.node in soft
    }
    return Observation(
        this_pass.at,
        {group.id: group.target for group in readable},
        nodes_by_group(this_pass.snapshot),
        soft,
        this_pass.status is None or bool(this_pass.status.candidates) or bool(soft),
        dict(sorted(refusals.items())[:MOST_TRACKED]),
        this_pass.status is not None and this_pass.status.is_dead(this_pass.at),
        this_pass.token,
    )


def nodes_by_group(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Return the names of the registered nodes of each group that could be read."""
    by_id = {node.provider_id: node.name for node in snapshot.nodes if node.provider_id}
    names = {node.name for node in snapshot.nodes}
    found = {}
    for group in snapshot.groups:
        if not group.error:
            here = {each.node or by_id.get(each.id, "") for each in group.instances}
            found[group.id] = tuple(sorted(here & names))
    return found


def foreign_taints(nodes: tuple[Node, ...], key: str) -> dict[str, int]:
    """Return node -> the taint's value (epoch seconds, 0 if it has none) for taints that are not Outscaler's own."""
    found = {}
    for node in nodes:
        taint = node.taint(key)
        if taint is not None and not node.annotations.get(OPERATION_ANNOTATION):
            value = taint.value
            found[node.name] = int(value) if value.isascii() and value.isdecimal() and len(value) < 12 else 0
    return found


def being_removed(this_pass: Pass) -> dict[str, int]:
    """Return the nodes that the other autoscaler removes, with the instant of each taint."""
    return foreign_taints(this_pass.snapshot.nodes, TO_BE_DELETED)
