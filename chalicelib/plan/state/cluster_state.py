"""The cluster state of one pass, derived once: node ownership, readiness,
upcoming and leaving nodes.

Later stages read this state instead of deriving it again. Operations in flight count: a group that
is scaling up has upcoming nodes, and a node in removal is unavailable for every placement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter

import msgspec
import numpy as np

from chalicelib.model.group import Instance, InstanceState, NodeGroup
from chalicelib.model.join_summary import learnt_timeout
from chalicelib.model.memory import GroupMemory, InterruptionNotice, Memory, ScaleUpRequest
from chalicelib.model.node import TO_BE_DELETED, Node
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.pause import Pause, of_growth, of_removals
from chalicelib.model.plan import Health, ScaleUp
from chalicelib.model.pod import Pod
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.storage import StorageCapacity
from chalicelib.plan.prices import PriceBook, price_book
from chalicelib.plan.state import backoff
from chalicelib.plan.state.group_membership import (
    Shares,
    contested_instances,
    names_for_message,
    shares,
    trusted,
)
from chalicelib.plan.state.interruptions import (
    Announcement,
    acted_on,
    announcements,
    vendor_upcoming,
)
from chalicelib.plan.state.managed_groups import is_candidate, with_candidates
from chalicelib.plan.state.node_labels import NodeLabels
from chalicelib.plan.state.node_templates import Newcomers, Template, templates
from chalicelib.plan.state.readiness import (
    Bucket,
    announces_device,
    bucket,
    frozen,
    health_of,
    lacks_device,
    sick_zones,
    works,
    zone_of,
)
from chalicelib.plan.state.spot_groups import marked_spot
from chalicelib.plan.state.undelivered import judge_newcomers
from chalicelib.plan.state.unfinished_nodes import Members, ObservedNodes, Unfinished
from chalicelib.plan.state.zones import ZoneLabels, with_zones, zone_label, zones_of_group
from chalicelib.plan.tables import Bools, Ints
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.timeouts import provision_time


class NodeGroupState(msgspec.Struct, frozen=True):
    """One group in this pass. target: the provider's value or the one that an open operation will
    set. unregistered: instances without a node, including late ones; failed: those that could not
    be created. registered: nodes that the target counts."""

    group: NodeGroup
    memory: GroupMemory
    nodes: tuple[Node, ...]
    registered: int
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
    frozen: Reason | None = None  # GROUP_FROZEN: no removals and no scale-up
    failed: tuple[str, ...] = ()
    # instances that exist but whose Node cannot be determined (plan/state/group_membership.py)
    contested: tuple[str, ...] = ()
    zone: str = ""  # the zone of all its nodes, old and new, if there is only one
    zones: tuple[str, ...] = ()  # where a new node may be, if it may be in one of several
    # Of storage that is published per node, by class (plan/state/new_node_storage.py): what
    # a new node offers for sure; what is remembered of that; why no node is bought to find
    # out, None if one may be.
    storage: Mapping[str, int] = {}
    learnt_storage: Mapping[str, int] = {}
    storage_room: Mapping[str, Reason | None] = {}
    growth_paused: Reason | None = None  # by an operator
    removals_paused: Reason | None = None
    # instance id or node name -> why the provider currently refuses to remove it
    held: Mapping[str, str] = {}
    closing: bool = False  # an operation deletes it

    def held_back(self, node: Node) -> str:
        """Return why the provider currently refuses to remove this node, "" if it does not."""
        return self.held.get(node.name) or self.held.get(node.provider_id, "")

    @property
    def id(self) -> str:
        """The group's id."""
        return self.group.id

    @property
    def unreadable(self) -> Reason | None:
        """Why the group's size is unknown, None if it could be read."""
        error = self.group.error
        return Reason.of(ReasonCode.GROUP_UNREADABLE, detail=error) if error else None

    @property
    def shares(self) -> Shares:
        """Return how many of its instances are its nodes."""
        joined = {word for node in self.nodes for word in (node.name, node.provider_id)}
        return shares(self.group, joined, self.contested)


class ClusterState(msgspec.Struct, frozen=True, dict=True):
    """The cluster state of the pass. group_of: node name -> group id, only for nodes of a
    known group. timed_out: group
    id -> the request that timed out in this pass (plan/state/scale_up_requests.py). contested: node
    name -> why its instance cannot be determined; such a node belongs to no group. lacking: nodes
    without an announced device. at_risk: node -> the notice that its vendor takes it back
    (plan/state/interruptions.py), of the nodes that are evacuated. announced: the same of all
    nodes, with the signals. leaving: nodes that are evacuated, that an operation removes or
    restarts, or that have the taint of a removal; restarting: those of them that come back.
    unfinished: young node that is ready -> what it lacks so far (plan/state/unfinished_nodes.py);
    completed: the same nodes as they will be."""

    snapshot: Snapshot
    policy: Policy
    memory: Memory
    now: float
    buckets: Mapping[str, Bucket]
    group_of: Mapping[str, str]
    groups: Mapping[str, NodeGroupState]
    leaving: frozenset[str]
    health: Health
    occupancy: Occupancy
    node_labels: NodeLabels
    timed_out: Mapping[str, ScaleUpRequest] = {}
    contested: Mapping[str, Reason] = {}
    lacking: frozenset[str] = frozenset()
    at_risk: Mapping[str, InterruptionNotice] = {}
    announced: Mapping[str, Announcement] = {}
    restarting: frozenset[str] = frozenset()
    unfinished: Mapping[str, Unfinished] = {}
    completed: Mapping[str, Node] = {}
    # what nodes are taken to publish that have not done so
    storage_to_come: tuple[StorageCapacity, ...] = ()

    @property
    def unread_provider(self) -> Reason | None:
        """Why a group that is not known may exist: a provider that could not be read has it."""
        details = (gap.detail for gap in self.snapshot.gaps if gap.kind.startswith("provider/"))
        detail = next(details, None)
        return None if detail is None else Reason.of(ReasonCode.GROUP_UNREADABLE, detail=detail)

    @property
    def options(self) -> Options:
        """The cluster's options."""
        return self.policy.options

    @cached_property
    def prices(self) -> PriceBook:
        """The prices of the pass."""
        has_spot = self.policy.spot is not None
        groups = (group.group for group in self.groups.values())
        return price_book(self.policy.prices, groups, self.now, spot=has_spot)

    def scale_up(self, group_id: str, nodes: int) -> ScaleUp:
        """Return the growth of a group by so many nodes."""
        state = self.groups[group_id]
        group, size = state.group, state.target
        growth = ScaleUp(group.id, group.provider, size, size + nodes, group.max)
        if group.managed is None:
            return growth
        price = None
        if state.template is not None:
            price = self.prices.paid(state.template.node, group)
        return msgspec.structs.replace(
            growth,
            choice=group.managed.choice,
            opens=is_candidate(group),
            price=price.hourly * nodes if price is not None else 0.0,
            currency=price.currency if price is not None else "",
        )


def build_cluster_state(
    snapshot: Snapshot, policy: Policy, memory: Memory, now: float
) -> ClusterState:
    """Build the cluster state of a pass."""
    options = policy.options
    claims = contested_instances(snapshot.groups, snapshot.nodes)
    contested = _contested(claims)
    joined = frozenset(word for node in snapshot.nodes for word in (node.name, node.provider_id))
    groups = _groups(with_candidates(snapshot), policy, memory, joined, claims)
    uncontested = (node for node in snapshot.nodes if node.name not in contested)
    owners, deleted = _owners(uncontested, groups)
    open_ops = (op for op in memory.operations if op.is_open)
    removing = tuple(op for op in open_ops if op.spec.kind is OperationKind.DELETE_NODES)
    members = _members(snapshot.nodes, owners)
    groups = marked_spot(groups, members, memory.templates, policy.spot)
    announced = announcements(snapshot.nodes, owners, groups, memory.groups, memory.operations, now)
    at_risk = acted_on(announced, policy.spot)
    restarting = _restarting(memory.operations)
    leaving = _leaving(snapshot.nodes, removing) | restarting | frozenset(at_risk)
    # What does not work and is taken back is on its way out, and no sign of bad health.
    deleted |= _without_instance(removing, groups) | at_risk.keys()
    occupancy = Occupancy(snapshot)
    lacking = _lacking_devices(snapshot.nodes, owners, groups)
    startup = {group.id: _startup_time(group, options) for group in groups}

    def bucket_of(node: Node) -> Bucket:
        ready = node.name not in lacking and works(node, options)
        # A vendor's report that an instance is gone or being deleted is believed unless its kubelet
        # still reports: then the node exists, and only our own taint can mark it as leaving.
        exists = node.name not in deleted or ready
        # Cluster Autoscaler uses the startup time of the previous node for a node without a group.
        startup_time = startup.get(owners.get(node.name, ""), options.max_node_startup_time)
        return bucket(node, exists=exists, ready=ready, startup_time=startup_time, now=now)

    buckets = {node.name: bucket_of(node) for node in snapshot.nodes}
    node_labels = NodeLabels.of(snapshot)

    def templates_of(part: Members, newcomers: Newcomers | None) -> dict[str, Template]:
        some = groups if part is members else tuple(group for group in groups if group.id in part)
        some_snapshot = msgspec.structs.replace(snapshot, groups=some)
        known = memory.templates, options, now, occupancy.on, lacking, node_labels
        expected = templates(some_snapshot, part, *known, newcomers)
        return _in_zones(expected, some, members, memory, snapshot.nodes, node_labels, now)

    observed = ObservedNodes(snapshot, members, buckets, startup, memory, options, now)
    memory, young = judge_newcomers(observed, templates_of)
    template_of = templates_of(members, young.newcomers)
    zones = sick_zones(snapshot.nodes, owners, buckets, options)
    builder = _GroupStateBuilder(memory, policy, now, buckets, zones, frozenset(claims), announced)
    states = {
        group.id: builder.build(group, tuple(members.get(group.id, ())), template_of.get(group.id))
        for group in groups
    }
    health_of_nodes = health_of(snapshot.nodes, owners, buckets, options, lacking)
    removed = leaving - restarting
    health = msgspec.structs.replace(
        _with_groups(health_of_nodes, states.values()),
        sick_zones=tuple(zones),
        removing=sum(node.name in removed for node in snapshot.nodes),
    )
    return ClusterState(
        snapshot=snapshot,
        policy=policy,
        memory=memory,
        now=now,
        buckets=buckets,
        group_of=owners,
        groups=states,
        leaving=leaving,
        occupancy=occupancy,
        contested=contested,
        lacking=lacking,
        health=health,
        at_risk=at_risk,
        announced=announced,
        restarting=restarting,
        node_labels=node_labels,
        unfinished=young.unfinished,
        completed=young.newcomers.completed,
    )


def _in_zones(
    template_of: Mapping[str, Template],
    groups: Iterable[NodeGroup],
    members: Mapping[str, Sequence[Node]],
    memory: Memory,
    nodes: Sequence[Node],
    node_labels: NodeLabels,
    now: float,
) -> dict[str, Template]:
    """Return the templates; those of groups in several zones have none. members: group
    -> its nodes; nodes: all."""
    elsewhere = {zone_label(node) for node in nodes}
    templates_in_zones = dict(template_of)
    zone_labels: ZoneLabels | None = None
    for group in groups:
        template = template_of.get(group.id)
        if template is None:
            continue
        joined = members.get(group.id, ())
        known = memory.templates.get(group.id)
        own = memory.groups.get(group.id, GroupMemory())
        zones = zones_of_group(group, joined, known, own, elsewhere, now)
        if zones:
            zone_labels = zone_labels or ZoneLabels(nodes, node_labels.csi.zone_keys())
            templates_in_zones[group.id] = with_zones(template, group.id, zones, zone_labels)
    return templates_in_zones


def _groups(
    snapshot: Snapshot,
    policy: Policy,
    memory: Memory,
    joined: Collection[str],
    claims: Mapping[str, tuple[str, ...]],
) -> tuple[NodeGroup, ...]:
    """Return the groups as far as their vendors are believed. joined: names and provider ids of all
    nodes; claims: instance id -> names of the nodes that claim it."""
    groups = []
    for group in snapshot.groups:
        group_memory = memory.groups.get(group.id, GroupMemory())
        believed = trusted(_credible(group), group_memory, joined, claims)
        groups.append(_timed(believed, group_memory, policy))
    return tuple(groups)


def _contested(claims: Mapping[str, tuple[str, ...]]) -> dict[str, Reason]:
    """Return the reason of each node that claims a contested instance. claims:
    instance id -> names of nodes."""
    reasons = {}
    for instance, names in sorted(claims.items(), reverse=True):
        nodes = names_for_message(names)
        for name in names:
            reasons[name] = Reason.of(ReasonCode.IDENTITY_CONTESTED, instance=instance, nodes=nodes)
    return reasons


def _with_groups(health: Health, groups: Collection[NodeGroupState]) -> Health:
    """Return the health with the figures that come from groups."""
    absent = sum(len(group.unregistered) for group in groups)
    late = sum(len(group.long_unregistered) for group in groups)
    return msgspec.structs.replace(
        health,
        unregistered=absent - late,
        long_unregistered=late,
        upcoming=sum(group.upcoming for group in groups),
    )


def _members(nodes: Iterable[Node], owners: Mapping[str, str]) -> dict[str, list[Node]]:
    """Return group -> its nodes."""
    members: dict[str, list[Node]] = {}
    for node in nodes:
        if node.name in owners:
            members.setdefault(owners[node.name], []).append(node)
    return members


def _restarting(operations: Iterable[Operation]) -> frozenset[str]:
    """Return the nodes that open operations restart."""
    specs = (operation.spec for operation in operations if operation.is_open)
    restarts = (spec for spec in specs if spec.kind is OperationKind.RESTART_NODE)
    return frozenset(target.node for spec in restarts for target in spec.targets)


def _leaving(nodes: Iterable[Node], removing: Iterable[Operation]) -> frozenset[str]:
    """Return the nodes that an operation removes, or that have the taint of a removal."""
    leaving = {node.name for node in nodes if node.taint(TO_BE_DELETED) is not None}
    for operation in removing:
        leaving.update(target.node for target in operation.spec.targets)
    return frozenset(leaving)


def _credible(group: NodeGroup) -> NodeGroup:
    """Return the group, marked as unreadable if its vendor reports impossible values."""
    if group.target >= 0 or group.error:
        return group
    error = f"the provider says that its target size is {group.target}"
    return msgspec.structs.replace(group, error=error)


def _startup_time(group: NodeGroup, options: Options) -> float:
    own = group.options.max_node_startup_time
    return options.max_node_startup_time if own is None else own


def _timed(group: NodeGroup, memory: GroupMemory, policy: Policy) -> NodeGroup:
    """Return the group with the provision time that its joins have taught,
    where the policy wants that."""
    if not policy.scale_up.learned_timeouts:
        return group
    longest = provision_time(group, policy.options)
    learnt = learnt_timeout(memory.joins, longest)
    if learnt >= longest:
        return group
    options = msgspec.structs.replace(group.options, max_node_provision_time=learnt)
    return msgspec.structs.replace(group, options=options)


def _without_instance(removing: Iterable[Operation], groups: Iterable[NodeGroup]) -> set[str]:
    """Return nodes in removal whose instance their group, which was read, no longer has."""
    listed = {
        group.id: {instance.id for instance in group.instances}
        for group in groups
        if not group.error
    }
    gone: set[str] = set()
    for operation in removing:
        instances = listed.get(operation.spec.group)
        if instances is None:
            continue
        for target in operation.spec.targets:
            if target.instance and target.instance not in instances:
                gone.add(target.node)
    return gone


def _owners(nodes: Iterable[Node], groups: Iterable[NodeGroup]) -> tuple[dict[str, str], set[str]]:
    """Return node name -> group, by the instance's node or provider id; and the nodes whose
    instance is being deleted."""
    by_id: dict[str, tuple[str, Instance]] = {}
    by_name: dict[str, tuple[str, Instance]] = {}
    for group in groups:
        for instance in group.instances:
            by_id[instance.id] = group.id, instance
            if instance.node:
                by_name[instance.node] = group.id, instance
    owners, deleting = {}, set()
    for node in nodes:
        owner = by_name.get(node.name)
        if owner is None and node.provider_id:
            owner = by_id.get(node.provider_id)
        if owner is None:
            continue
        owners[node.name], instance = owner
        if instance.state is InstanceState.DELETING:
            deleting.add(node.name)
    return owners, deleting


def _lacking_devices(
    nodes: Iterable[Node], owners: Mapping[str, str], groups: Iterable[NodeGroup]
) -> frozenset[str]:
    """Return the nodes that lack a device which they or the vendor of their group announce.
    Devices that pods claim (DRA) are not part of a node's amounts, so nodes of a group that
    announces such are complete without."""
    claimed = {group.id for group in groups if group.template_devices}
    announced = {
        group.id
        for group in groups
        if group.template is not None and announces_device(group.template)
    }
    lacking = []
    for node in nodes:
        group_id = owners.get(node.name, "")
        if group_id in claimed:
            continue
        if lacks_device(node, announced=group_id in announced):
            lacking.append(node.name)
    return frozenset(lacking)


class _GroupStateBuilder:
    def __init__(
        self,
        memory: Memory,
        policy: Policy,
        now: float,
        buckets: Mapping[str, Bucket],
        zones: Mapping[str, str],
        contested: frozenset[str],
        announced: Mapping[str, Announcement],
    ) -> None:
        """zones: zone -> its problem; contested: instances whose Node cannot be determined.
        announced: the nodes that their vendor takes back."""
        self.memory = memory
        self.options = policy.options
        self.pauses = policy.pauses
        self.now = now
        self.buckets = buckets
        self.zones = zones
        self.contested = contested
        self.announced = announced
        self.spot = policy.spot is not None

    def build(
        self, group: NodeGroup, nodes: tuple[Node, ...], template: Template | None
    ) -> NodeGroupState:
        """Return the state of a group with these nodes."""
        group_memory = self.memory.groups.get(group.id, GroupMemory())
        request = group_memory.request
        counts = {kind: sum(self.buckets[node.name] is kind for node in nodes) for kind in Bucket}
        absent, late, failed = self._without_node(group, nodes)
        instances = dict.fromkeys(instance.id for instance in group.instances)
        contested = tuple(name for name in instances if name in self.contested)
        open_ops = [op for op in self.memory.operations if op.is_open and op.spec.group == group.id]
        increases = [op.spec for op in open_ops if op.spec.kind is OperationKind.SCALE_UP]
        target = max([group.target, *(spec.to_size for spec in increases)])
        backed_off = backoff.in_backoff(group_memory.backoff, self.now)
        registered = len(nodes) - self._dropped(group, nodes)
        lost = len(late) + len(failed) + len(contested)
        upcoming = counts[Bucket.STARTING]
        if (increases or request is not None) and not backed_off:
            given_up = request.given_up if request is not None else 0
            upcoming += max(0, target - lost - registered - given_up)
            if group.error:
                # A vendor's outage in one pass must not cause the same nodes to be
                # bought again in another group.
                rows = request.purchases if request is not None else ()
                upcoming = sum(row.count for row in rows if self.now < row.expected_at)
                upcoming += sum(spec.to_size - spec.from_size for spec in increases)
        if self.spot and group.replaces_interrupted and not group.error:
            machines = vendor_upcoming(nodes, self.announced, len(absent) - len(late), self.now)
            upcoming = max(upcoming, counts[Bucket.STARTING] + machines)
        # Missing nodes should exist by now but do not. Starting nodes count as arrived;
        # leaving nodes are not expected.
        accepted = (spec for spec in increases if group.target >= spec.to_size)
        recent = sum(spec.to_size - spec.from_size for spec in accepted)
        coming = max(request.increase if request else 0, counts[Bucket.STARTING])
        arrived = counts[Bucket.READY] + counts[Bucket.SUSPENDED] + counts[Bucket.DELETED]
        missing = max(0, group.target - lost - recent - coming - arrived)
        zones = tuple(template.in_zones) if template is not None else ()
        template_node = template.node if template is not None else None
        zone = "" if zones else zone_of(nodes, template_node)
        unhealthy = frozen(counts, missing, self.zones.get(zone, ""), self.options)
        return NodeGroupState(
            group=group,
            memory=group_memory,
            nodes=nodes,
            registered=registered,
            counts=counts,
            target=target,
            upcoming=upcoming,
            # Failed instances are part of its size, too.
            leaving=len(_removed(open_ops).union(failed)),
            unregistered=absent,
            long_unregistered=late,
            failed=failed,
            contested=contested,
            template=template,
            growing=bool(increases),
            backed_off=backed_off,
            missing=missing,
            healthy=unhealthy is None,
            frozen=unhealthy,
            zone=zone,
            zones=zones,
            growth_paused=_pause_reason(of_growth(self.pauses, group.id), "growth"),
            removals_paused=removals_pause(self.pauses, group.id),
            held=_held(group.instances),
            closing=any(op.spec.kind is OperationKind.REMOVE_GROUP for op in open_ops),
        )

    def _dropped(self, group: NodeGroup, nodes: Iterable[Node]) -> int:
        """Return how many nodes are on their way out and have an instance that the vendor
        is deleting: no vendor counts these in its size."""
        deleting: set[str] = set()
        for instance in group.instances:
            if instance.state is InstanceState.DELETING:
                deleting.update((instance.id, instance.node))
        deleting.discard("")  # an unknown node has no name in common with another
        if not deleting:
            return 0
        leaving = (node for node in nodes if self.buckets[node.name] is Bucket.DELETED)
        return sum(not deleting.isdisjoint((node.name, node.provider_id)) for node in leaving)

    def _without_node(
        self, group: NodeGroup, nodes: tuple[Node, ...]
    ) -> tuple[tuple[str, ...], ...]:
        """Return ids of instances without a node: all of them, the late ones among
        them, and separately those that could not be created. An instance that a vendor
        lists twice counts once."""
        joined = {node.provider_id for node in nodes} | {node.name for node in nodes}
        joined.discard("")
        absent: dict[str, None] = {}
        failed: dict[str, None] = {}
        for instance in group.instances:
            if instance.id in joined or instance.node in joined:
                continue
            if instance.id in self.contested or instance.state is InstanceState.DELETING:
                continue
            if instance.error is None:
                absent[instance.id] = None
            elif instance.state is InstanceState.CREATING:
                failed[instance.id] = None
        allowed = provision_time(group, self.options)
        late = []
        for instance_id in absent:
            first_seen = self.memory.unregistered.get(instance_id, self.now)
            if min(first_seen, self.now) + allowed < self.now:
                late.append(instance_id)
        return tuple(absent), tuple(late), tuple(failed)


def _removed(operations: Iterable[Operation]) -> set[str]:
    """Return the instances that operations remove; by their node where none is known."""
    removed: set[str] = set()
    for operation in operations:
        if operation.spec.kind in {OperationKind.DELETE_NODES, OperationKind.DELETE_INSTANCES}:
            removed.update(target.instance or target.node for target in operation.spec.targets)
    return removed


def _held(instances: Iterable[Instance]) -> dict[str, str]:
    """Return instance id or node name -> why the provider currently refuses to remove it."""
    held = {}
    for instance in instances:
        if instance.held:
            held[instance.id] = held[instance.node] = instance.held
    held.pop("", None)
    return held


class _NodeIndex(dict[str, int]):
    """Returns -1 for an unknown node name, without a Python call for known names."""

    def __missing__(self, name: str) -> int:
        return -1


class Occupancy:
    """Which pods are on which node, once per pass and as arrays: a Python loop over 170,000 pods is
    too slow to run more than once. where: per pod the index of its node in snapshot.nodes, -1 for
    none; cls: its class; dying: being deleted."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._pods = snapshot.pods
        self.index = {node.name: at for at, node in enumerate(snapshot.nodes)}
        count = len(snapshot.pods)
        nodes = map(attrgetter("node"), snapshot.pods)
        rows = map(_NodeIndex(self.index).__getitem__, nodes)
        self.where: Ints = np.fromiter(rows, dtype=np.int64, count=count)
        classes = map(attrgetter("cls"), snapshot.pods)
        self.cls: Ints = np.fromiter(classes, dtype=np.int64, count=count)
        deletions = map(attrgetter("deleted"), snapshot.pods)
        deleted = np.fromiter(deletions, dtype=np.float64, count=count)
        self.dying: Bools = deleted > 0
        self._order: Ints | None = None
        self._starts: Ints | None = None

    def on(self, node: str) -> list[Pod]:
        """Return the pods of a node, in the order of the snapshot."""
        at = self.index.get(node)
        if at is None:
            return []
        if self._order is None or self._starts is None:
            self._order = np.argsort(self.where, kind="stable")
            self._starts = np.searchsorted(self.where[self._order], np.arange(len(self.index) + 1))
        rows = self._order[self._starts[at] : self._starts[at + 1]]
        return [self._pods[row] for row in rows]

    def waiting(self) -> list[Pod]:
        """Return the pods without a node."""
        elsewhere = (self._pods[row] for row in np.flatnonzero(self.where < 0))
        return [pod for pod in elsewhere if not pod.node]

    def pods(self, which: Bools) -> list[tuple[int, Pod]]:
        """Return (index, pod) for a mask over all pods."""
        return [(int(at), self._pods[at]) for at in np.flatnonzero(which)]


# Parts that an operator has paused (`outscaler pause`, model/pause.py) are planned as before up to
# the point of acting: timers go on, and each pod, node and group that the pause affects has this
# reason. Repairs belong to removals.


def removals_pause(pauses: Iterable[Pause], group: str = "") -> Reason | None:
    """Return why no node of the group is removed, of any group for ""; None where no pause says
    so."""
    return _pause_reason(of_removals(pauses, group), "removals")


def _pause_reason(pause: Pause | None, what: str) -> Reason | None:
    if pause is None:
        return None
    paused = f"group {pause.group}" if pause.group else what
    return Reason.of(ReasonCode.PAUSED, what=paused, until=pause.until, detail=pause.reason)
