"""Reduces one pass to the facts that are compared, and finds what the other
autoscaler did between two passes.

Facts: sizes, nodes with the other autoscaler's taints, and our plan. Acts: growths and removals,
and what others did instead of it.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.group import SizeWriter
from chalicelib.model.memory import Memory
from chalicelib.model.node import DELETION_CANDIDATE, TO_BE_DELETED, Node
from chalicelib.model.operation import OPERATION_ANNOTATION, OperationKind
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.shadow.other_status import (
    BACKOFF,
    DEAD_AFTER,
    IN_PROGRESS,
    ONE_LOOP,
    UNHEALTHY,
    OtherStatus,
)
from chalicelib.shadow.records import MOST_TRACKED, TEXT, Growth, Observation

LATE = 90.0
"""Seconds without a new status after which the one before the silence is noted. Loops of
large clusters take a minute."""


CLOCKS_APART = 2.0
"""Seconds by which the API server's whole seconds and clock may differ from ours."""
AUTOSCALER = "autoscaler"
"""Part of the names by which Cluster Autoscaler writes sizes."""
PERSONS_TOOLS = (
    "argocd",
    "clusterctl",
    "flux",
    "helm",
    "kubectl",
    "kustomize",
    "mozilla",
    "node-fetch",
    "terraform",
)
"""How the names begin by which people write sizes, with their tools and browsers."""


class Pass(msgspec.Struct, frozen=True):
    """One pass. before: the memory that the plan was made with. token: of the pass's lease; it
    grows by one per pass. missing: there is no status, and nothing forbids to read it; Cluster
    Autoscaler deletes it when it ends."""

    snapshot: Snapshot
    policy: Policy
    before: Memory
    plan: Plan
    status: OtherStatus | None = None
    token: int = 0
    missing: bool = False

    @property
    def at(self) -> float:
        """Return the instant at which the cluster was read."""
        return self.snapshot.taken_at

    @property
    def node_names(self) -> set[str]:
        """Return the names of all nodes."""
        return {node.name for node in self.snapshot.nodes}

    @property
    def group_names(self) -> set[str]:
        """Return the names of all groups."""
        return {group.id for group in self.snapshot.groups}

    def known_until(self, last_observation: Observation) -> float:
        """Return the instant until which it is known what the other autoscaler did: its last
        status. Where none says when it was written, this pass."""
        written = self.status.at if self.status is not None else last_observation.alive
        return min(written, self.at) if written > 0 else self.at


class RemovedNode(msgspec.Struct, frozen=True):
    """A node that was removed. confirmed: the other autoscaler's taint or status
    says that it was the one."""

    node: str
    group: str
    at: float
    confirmed: bool


def observe(this_pass: Pass, last_observation: Observation | None = None) -> Observation:
    """Return the part of the pass that is kept for the next one. last_observation:
    what the last pass kept."""
    status, snapshot = this_pass.status, this_pass.snapshot
    soft = dict(
        sorted(_foreign_taints(snapshot.nodes, DELETION_CANDIDATE).items())[: 2 * MOST_TRACKED]
    )
    refusals = {
        verdict.node: f"{verdict.reason.code}{f' ({verdict.pod})' if verdict.pod else ''}"[:TEXT]
        for verdict in this_pass.plan.unremovable
        if verdict.node in soft
    }
    alive, uid = (status.at, status.uid) if status is not None else (0.0, "")
    if last_observation is not None:
        alive, uid = alive or last_observation.alive, uid or last_observation.uid
    # Without any status so far, it is not known whether the other autoscaler writes one.
    ended = this_pass.missing and alive > 0
    return Observation(
        this_pass.at,
        {group.id: group.target for group in snapshot.groups if not group.error},
        _nodes_by_group(this_pass),
        soft,
        status is None or bool(status.candidates) or bool(soft),
        dict(sorted(refusals.items())[:MOST_TRACKED]),
        ended or (status is not None and status.is_dead(this_pass.at)),
        this_pass.token,
        alive,
        status is not None and 0 < status.at < this_pass.at - LATE,
        uid,
        _scale_ups(this_pass),
    )


def _scale_ups(this_pass: Pass) -> dict[str, str]:
    """Return the status of each group's scale-up, for groups where it is not the usual one."""
    if this_pass.status is None:
        return {}
    names = this_pass.group_names
    words = {name: this_pass.status.of(name, names).scale_up for name in names}
    unusual = {
        name: word for name, word in words.items() if word in (IN_PROGRESS, UNHEALTHY, BACKOFF)
    }
    return dict(sorted(unusual.items())[:MOST_TRACKED])


def _nodes_by_group(this_pass: Pass) -> dict[str, tuple[str, ...]]:
    """Return the names of the registered nodes of each group that could be read."""
    snapshot, names = this_pass.snapshot, this_pass.node_names
    by_id = {node.provider_id: node.name for node in snapshot.nodes if node.provider_id}
    return {
        group.id: tuple(
            sorted(
                {instance.node or by_id.get(instance.id, "") for instance in group.instances}
                & names
            )
        )
        for group in snapshot.groups
        if not group.error
    }


def _foreign_taints(nodes: tuple[Node, ...], key: str) -> dict[str, int]:
    """Return node -> the taint's value (epoch seconds, 0 if it has none) for taints that
    are not Outscaler's own."""
    values = {}
    for node in nodes:
        taint = node.taint(key)
        if taint is not None and not node.annotations.get(OPERATION_ANNOTATION):
            value = taint.value
            values[node.name] = (
                int(value) if value.isascii() and value.isdecimal() and len(value) < 12 else 0
            )
    return values


# -- acts ------------------------------------------------------------------------------------------


def growths(last_observation: Observation, this_pass: Pass) -> tuple[Growth, ...]:
    """Return the groups whose target is larger than at the last pass. Groups with an
    operation of ours are left out."""
    own = {operation.spec.group for operation in this_pass.before.operations}
    last = last_observation
    alone = this_pass.status is None and not last.alive
    new = (
        _with_writer(
            Growth(
                group.id,
                before,
                group.target - before,
                _first_sign(group.id, last, this_pass),
                alone=alone,
                since=last.at,
                seen=this_pass.at,
                earlier=last.scale_ups.get(group.id, ""),
                unsettled=not alone,
            ),
            group.size_writer,
        )
        for group in this_pass.snapshot.groups
        if (before := last.targets.get(group.id)) is not None
        and not group.error
        and group.target > before
        and group.id not in own
    )
    return tuple(confirmed(growth, this_pass) for growth in new)


def _with_writer(growth: Growth, writer: SizeWriter | None) -> Growth:
    """Return the growth, settled where the cluster says who wrote the size. Programs of other names
    may be the other autoscaler, so they leave it to the status."""
    if writer is None or writer.at < growth.since - CLOCKS_APART:
        return growth
    if AUTOSCALER in writer.name.lower():
        return msgspec.structs.replace(growth, confirmed=True, alone=False, unsettled=False)
    by_person = writer.name.lower().startswith(PERSONS_TOOLS)
    return msgspec.structs.replace(growth, alone=False, unsettled=False) if by_person else growth


def confirmed(growth: Growth, this_pass: Pass) -> Growth:
    """Return the growth, confirmed if the status of this pass says so. A status may be written
    after the act, so the first one that is later than the pass that saw the growth settles it."""
    status = this_pass.status
    if not growth.unsettled:
        return growth
    if status is None:
        unreadable = this_pass.at - growth.seen > DEAD_AFTER
        return (
            msgspec.structs.replace(growth, alone=True, unsettled=False) if unreadable else growth
        )
    if _shows(status, growth, this_pass.group_names):
        return msgspec.structs.replace(growth, confirmed=True, unsettled=False)
    return msgspec.structs.replace(growth, unsettled=0 < status.at <= growth.seen)


def _shows(status: OtherStatus, growth: Growth, group_names: set[str]) -> bool:
    """Return whether the status says that its writer made the growth: a scale-up is in
    progress, or one has ended.

    A new transition alone is no sign. It may be the end of a state that was there before, of bad
    health after a growth by somebody else, or the first loop of a new process.
    """
    part = status.of(growth.group, group_names)
    was_ill = part.health_changed >= growth.since
    if part.scale_up == IN_PROGRESS:
        fell_ill = part.health == UNHEALTHY and was_ill
        return part.changed <= growth.seen + ONE_LOOP and not (
            growth.earlier == IN_PROGRESS and fell_ill
        )
    if part.scale_up == UNHEALTHY or not part.changed >= growth.since > 0:
        return False
    if growth.earlier == IN_PROGRESS:
        return growth.at < part.changed and not was_ill
    first_loop = status.began > 0 and part.changed <= status.began + ONE_LOOP
    return not (first_loop or was_ill or growth.earlier in (UNHEALTHY, BACKOFF))


def _first_sign(group_id: str, last_observation: Observation, this_pass: Pass) -> float:
    """Return when the group grew: the creation of its first new instance or
    node, otherwise this pass."""
    group = next(group for group in this_pass.snapshot.groups if group.id == group_id)
    members = {name for instance in group.instances for name in (instance.node, instance.id)}
    times = [instance.created for instance in group.instances if instance.created]
    times += [
        node.created
        for node in this_pass.snapshot.nodes
        if node.name in members or node.provider_id in members
    ]
    return min(
        (at for at in times if last_observation.at < at <= this_pass.at), default=this_pass.at
    )


def being_removed(this_pass: Pass) -> dict[str, float]:
    """Return the nodes with a hard taint that is not ours, and when they got it."""
    taints = _foreign_taints(this_pass.snapshot.nodes, TO_BE_DELETED)
    return {node: float(at) or this_pass.at for node, at in taints.items()}


def removals(
    last_observation: Observation, deleting: dict[str, float], this_pass: Pass
) -> tuple[RemovedNode, ...]:
    """Return the removals that were not seen before: a new hard taint, or a node that is gone while
    the target of its group fell. A node that is gone while the target stayed was reclaimed by the
    vendor; no autoscaler removed it.

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
        nodes_before = last.nodes.get(group.id, ())
        absent = [node for node in nodes_before if node not in existing]
        # The target may have fallen for a node with a hard taint while it still existed.
        fallen_before = max(0, len(nodes_before) - last.targets.get(group.id, 0))
        decrease -= max(0, sum(node in deleting for node in absent) - fallen_before)
        uncounted = [node for node in absent if node not in deleting and node not in own]
        uncounted.sort(key=lambda node: (node not in last.soft, node))
        removed += [
            RemovedNode(node, group.id, this_pass.at, last.candidates)
            for node in uncounted[: max(0, decrease)]
        ]
    return tuple(removed)
