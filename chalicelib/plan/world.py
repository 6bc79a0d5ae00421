"""The facts of one pass, worked out once: who belongs where, what is ready, what is coming and what is leaving.

Everything after this reads facts instead of deriving them again. Operations in flight count: a group being grown has
upcoming nodes, a node being removed is gone for every promise (architecture §5).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.model.group import InstanceState, NodeGroup
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.node import TO_BE_DELETED, Node
from chalicelib.model.operation import Kind, Operation
from chalicelib.model.plan import Health
from chalicelib.model.policy import Options, Policy
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan import backoff
from chalicelib.plan.occupancy import Occupancy
from chalicelib.plan.readiness import Bucket, bucket
from chalicelib.plan.template import Template, templates


class GroupFacts(msgspec.Struct, frozen=True):
    """One group as this pass sees it. target: what the provider says or an open operation is about to make it."""

    group: NodeGroup
    memory: GroupMemory
    nodes: tuple[Node, ...]
    counts: Mapping[Bucket, int]
    target: int
    upcoming: int
    leaving: int
    unregistered: tuple[str, ...]
    long_unregistered: tuple[str, ...]
    template: Template | None
    growing: bool
    backed_off: bool
    healthy: bool
    missing: int

    @property
    def id(self) -> str:
        """The group's id."""
        return self.group.id


class World(msgspec.Struct, frozen=True):
    """The pass's facts. group_of: node name -> group id, only for nodes of a known group."""

    snapshot: Snapshot
    policy: Policy
    memory: Memory
    now: float
    buckets: Mapping[str, Bucket]
    group_of: Mapping[str, str]
    groups: Mapping[str, GroupFacts]
    leaving: frozenset[str]
    health: Health
    occupancy: Occupancy

    @property
    def options(self) -> Options:
        """The cluster's options."""
        return self.policy.options


def observe(snapshot: Snapshot, policy: Policy, memory: Memory, now: float) -> World:
    """Derive the facts of a pass."""
    options = policy.options
    owners = _owners(snapshot)
    removing = tuple(op for op in memory.operations if op.is_open and op.kind is Kind.REMOVE)
    leaving = frozenset(target.node for op in removing for target in op.targets) | frozenset(
        node.name for node in snapshot.nodes if node.taint(TO_BE_DELETED) is not None)
    occupancy = Occupancy(snapshot)
    startup = {group.id: group.options.max_node_startup_time for group in snapshot.groups}
    buckets = {node.name: _bucket(node, startup.get(owners.get(node.name, "")), options, now)
               for node in snapshot.nodes}
    members: dict[str, list[Node]] = {}
    for node in snapshot.nodes:
        if node.name in owners:
            members.setdefault(owners[node.name], []).append(node)
    made = templates(snapshot, members, memory.templates, options, now, occupancy.on)
    groups = {group.id: _facts(group, tuple(members.get(group.id, ())), buckets, memory, options, now,
                               made.get(group.id))
              for group in snapshot.groups}
    return World(
        snapshot=snapshot, policy=policy, memory=memory, now=now, buckets=buckets, group_of=owners, groups=groups,
        leaving=leaving, occupancy=occupancy,
        health=_health(buckets, groups, options),
    )


def _owners(snapshot: Snapshot) -> dict[str, str]:
    """Node name -> group, by the instance's node or provider id."""
    by_id: dict[str, str] = {}
    by_name: dict[str, str] = {}
    for group in snapshot.groups:
        for instance in group.instances:
            by_id[instance.id] = group.id
            if instance.node:
                by_name[instance.node] = group.id
    owners = {}
    for node in snapshot.nodes:
        owner = by_name.get(node.name) or (by_id.get(node.provider_id) if node.provider_id else None)
        if owner is not None:
            owners[node.name] = owner
    return owners


def _bucket(node: Node, startup: float | None, options: Options, now: float) -> Bucket:
    return bucket(node, exists=True, now=now, options=options,
                  startup_time=options.max_node_startup_time if startup is None else startup)


def _facts(group: NodeGroup, nodes: tuple[Node, ...], buckets: Mapping[str, Bucket], memory: Memory,
           options: Options, now: float, template: Template | None) -> GroupFacts:
    mine = memory.groups.get(group.id, GroupMemory())
    counts = {kind: sum(buckets[node.name] is kind for node in nodes) for kind in Bucket}
    provision = group.options.max_node_provision_time
    provision = options.max_node_provision_time if provision is None else provision
    joined = {node.provider_id for node in nodes} | {node.name for node in nodes}
    absent = tuple(i.id for i in group.instances
                   if i.id not in joined and i.node not in joined and i.state is not InstanceState.DELETING
                   and i.error is None)
    late = tuple(i for i in absent if memory.unregistered.get(i, now) + provision < now)
    open_ops = [op for op in memory.operations if op.is_open and op.group == group.id]
    target = max([group.target, *(op.to_size for op in open_ops if op.kind is Kind.GROW)])
    backed_off = backoff.in_backoff(mine.backoff, now)
    growing = any(op.kind is Kind.GROW for op in open_ops)
    here = counts[Bucket.READY] + counts[Bucket.UNREADY] + counts[Bucket.SUSPENDED] + counts[Bucket.DELETED]
    expected = growing or mine.request is not None
    upcoming = max(0, target - here - len(late)) if expected and not backed_off else 0
    asked = sum(op.to_size - op.from_size for op in open_ops if op.kind is Kind.GROW and group.target >= op.to_size)
    missing = _missing(group, mine, counts, len(late) + asked)
    return GroupFacts(
        group=group, memory=mine, nodes=nodes, counts=counts, target=target, upcoming=upcoming,
        leaving=_leaving(open_ops), unregistered=absent, long_unregistered=late,
        template=template,
        growing=growing, backed_off=backed_off, missing=missing,
        healthy=_group_healthy(nodes, counts, missing, options),
    )


def _leaving(operations: list[Operation]) -> int:
    return sum(len(op.targets) for op in operations if op.kind in {Kind.REMOVE, Kind.DISCARD})


def _missing(group: NodeGroup, mine: GroupMemory, counts: Mapping[Bucket, int], excused: int) -> int:
    """state.md §4: what should be there by now and is not. excused: late instances and what was only just asked for."""
    expected = group.target - excused - (mine.request.increase if mine.request else 0)
    return max(0, expected - counts[Bucket.READY] - counts[Bucket.SUSPENDED])


def _group_healthy(nodes: tuple[Node, ...], counts: Mapping[Bucket, int], missing: int, options: Options) -> bool:
    if not nodes:
        return missing == 0  # nothing is seen of it: healthy only while nothing is overdue
    known = sum(counts[b] for b in (Bucket.READY, Bucket.UNREADY, Bucket.NOT_STARTED, Bucket.SUSPENDED))
    share = options.max_total_unready_percentage / 100 * known
    return not (missing > options.ok_total_unready_count and missing > share)


def _health(buckets: Mapping[str, Bucket], groups: Mapping[str, GroupFacts], options: Options) -> Health:
    """state.md §4: both comparisons are strict; only the bucket Unready counts."""
    counts = {kind: sum(b is kind for b in buckets.values()) for kind in Bucket}
    unready, registered = counts[Bucket.UNREADY], len(buckets)
    sick = unready > options.ok_total_unready_count and (
        unready > options.max_total_unready_percentage / 100 * registered)
    return Health(
        healthy=not sick, registered=registered, ready=counts[Bucket.READY], unready=unready,
        not_started=counts[Bucket.NOT_STARTED], being_deleted=counts[Bucket.DELETED],
        unregistered=sum(len(facts.unregistered) for facts in groups.values()),
        upcoming=sum(facts.upcoming for facts in groups.values()),
    )
