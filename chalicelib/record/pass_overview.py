"""What a pass saw of a cluster's groups and nodes, in the form for people (model/overview.py), and the point of the
charts that it leaves.

Both are made once in five minutes at most. Requests are added up here again, because the planner's sums leave out what
does not keep a node (expendable pods, mirror pods), which people see on the node all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.gauge_ring import GaugePoint
from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.overview import MOST_NODES, ClusterOverview, GroupOverview, NodeOverview
from chalicelib.model.plan import Plan
from chalicelib.model.policy import NodePrices, Options
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.prices import instance_type, node_price
from chalicelib.plan.state.readiness import ZONE, is_ready

_OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
_ENDED = frozenset({"Succeeded", "Failed"})
_MOST_ALIASES, _MOST_ZONES, _LONGEST = 6, 5, 200


class _Room(msgspec.Struct):
    """A node, or several: allocatable and requested millicores and bytes, and the pods that request them."""

    cpu: int = 0
    memory: int = 0
    cpu_requested: int = 0
    memory_requested: int = 0
    pods: int = 0

    def add(self, room: _Room) -> None:
        self.cpu += room.cpu
        self.memory += room.memory
        self.cpu_requested += room.cpu_requested
        self.memory_requested += room.memory_requested

    @property
    def shares(self) -> tuple[int, int]:
        """Percent of cpu and memory that is requested, -1 for unknown."""
        return _percent(self.cpu_requested, self.cpu), _percent(self.memory_requested, self.memory)


def pass_overview(
    plan: Plan, snapshot: Snapshot, options: Options, prices: NodePrices | None
) -> tuple[ClusterOverview, GaugePoint]:
    """Return the overview, and the point of the charts."""
    rooms, owners = _rooms(snapshot), _owners(snapshot.groups)
    group_of = {node.name: owners.get(node.name, owners.get(node.provider_id, -1)) for node in snapshot.nodes}
    members: dict[int, list[Node]] = {}
    for node in snapshot.nodes:
        members.setdefault(group_of[node.name], []).append(node)
    whole, sums = _Room(), [_Room() for _ in range(len(snapshot.groups) + 1)]  # the last one: nodes without a group
    for node in snapshot.nodes:
        if is_ready(node, options):
            whole.add(rooms[node.name])
            sums[group_of[node.name]].add(rooms[node.name])
    groups = tuple(_group(group, members.get(at, ()), sums[at], prices) for at, group in enumerate(snapshot.groups))
    named = sorted(snapshot.nodes, key=lambda node: node.name)[:MOST_NODES]
    nodes = tuple(_node(node, group_of[node.name], rooms[node.name]) for node in named)
    overview = ClusterOverview(snapshot.taken_at, groups, nodes, len(snapshot.nodes) - len(nodes))
    alone = members.get(-1, ())
    pending = sum(len(row.pods) for row in plan.unschedulable) + sum(len(up.pods) for up in plan.scale_ups)
    costs = [group.price * len(members.get(at, ())) for at, group in enumerate(groups) if group.price]
    costs += [price for node in alone if (price := node_price(node, prices)) is not None]
    cost = sum(costs) if costs else -1.0
    return overview, GaugePoint(plan.at, plan.health.ready, pending, _wanted(plan, len(alone)), *whole.shares, cost)


def completed(overview: ClusterOverview, old_overview: ClusterOverview, unread: Iterable[str]) -> ClusterOverview:
    """Return the overview with what the one before knew of groups that were not read this time. unread: providers of
    which no group was read."""
    old, providers = {group.group: group for group in old_overview.groups}, set(unread)
    groups = [_joined(group, old[group.group]) if group.group in old else group for group in overview.groups]
    present = {group.group for group in groups}
    groups += [group for key, group in old.items() if key not in present and group.provider in providers]
    place = {group.group: at for at, group in enumerate(groups)}
    grouped = [node for node in old_overview.nodes if 0 <= node.group < len(old_overview.groups)]
    was_in = {node.name: place.get(old_overview.groups[node.group].group, -1) for node in grouped}
    nodes = tuple(
        msgspec.structs.replace(node, group=was_in[node.name]) if node.group < 0 and node.name in was_in else node
        for node in overview.nodes
    )
    return msgspec.structs.replace(overview, groups=tuple(groups), nodes=nodes)


def _joined(group: GroupOverview, old_group: GroupOverview) -> GroupOverview:
    """Return a group; what is not known of it now is as before, except for its use."""
    return msgspec.structs.replace(
        group,
        name=group.name or old_group.name,
        zone=group.zone or old_group.zone,
        machine=group.machine or old_group.machine,
        price=group.price or old_group.price,
        aliases=group.aliases or old_group.aliases,
    )


def _rooms(snapshot: Snapshot) -> dict[str, _Room]:
    cpu = [cls.requests.get(CPU, 0) for cls in snapshot.classes]
    memory = [cls.requests.get(MEMORY, 0) for cls in snapshot.classes]
    rooms = {node.name: _Room(node.allocatable.get(CPU, 0), node.allocatable.get(MEMORY, 0)) for node in snapshot.nodes}
    for pod in snapshot.pods:
        room = rooms.get(pod.node)
        if room is not None and pod.phase not in _ENDED:
            room.cpu_requested += cpu[pod.cls]
            room.memory_requested += memory[pod.cls]
            room.pods += 1
    return rooms


def _owners(groups: Sequence[NodeGroup]) -> Mapping[str, int]:
    """Return the index of a node's group by the node's name, and by its provider id."""
    owners: dict[str, int] = {}
    for at, group in enumerate(groups):
        for instance in group.instances:
            owners[instance.id] = at
            if instance.node:
                owners[instance.node] = at
    owners.pop("", None)
    return owners


def _group(group: NodeGroup, nodes: Sequence[Node], room: _Room, prices: NodePrices | None) -> GroupOverview:
    known = [node for node in (group.template, *nodes) if node is not None]
    zones = sorted({_zone(node) for node in known} - {""})
    price = next((node_price(node, prices, group.price) for node in known), group.price)
    return GroupOverview(
        group.id,
        group.name[:_LONGEST],
        group.provider,
        ",".join(zones[:_MOST_ZONES])[:_LONGEST],
        next((machine for node in known if (machine := instance_type(node))), "")[:_LONGEST],
        round(price or 0.0, 6),
        room.cpu / 1000,
        room.cpu_requested / 1000,
        float(room.memory),
        float(room.memory_requested),
        tuple(alias[:_LONGEST] for alias in group.aliases[:_MOST_ALIASES]),
    )


def _node(node: Node, group: int, room: _Room) -> NodeOverview:
    machine, zone = instance_type(node)[:_LONGEST], _zone(node)[:_LONGEST]
    return NodeOverview(node.name, group, zone, machine, node.created, *room.shares, room.pods)


def _zone(node: Node) -> str:
    return node.labels.get(ZONE) or node.labels.get(_OLD_ZONE, "")


def _wanted(plan: Plan, alone: int) -> int:
    """Return the nodes that there are to be after this plan: the targets of the groups, and nodes in no group."""
    targets = {group.group: group.target for group in plan.groups} | {up.group: up.to_size for up in plan.scale_ups}
    return max(0, sum(targets.values()) - len(plan.removals) + alone)


def _percent(part: int, whole: int) -> int:
    return min(999, round(100 * part / whole)) if whole > 0 else -1
