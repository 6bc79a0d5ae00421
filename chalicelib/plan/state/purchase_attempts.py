"""Purchases of which nobody knows what comes: how many may be tried for a zone,
and what has come of them.

A group in several zones is bought one attempt at a time for pods that need one zone. An attempt is
judged when its nodes have joined:

    came in the zone   the next attempt follows at once and may be one node larger
    came elsewhere     a miss: none for the zone before a back-off is over, which doubles with every
                       miss in a row; none while a node that came instead is empty; and no more than
                       three misses of a group in an hour, also if nodes came in the zone between
                       them
    did not come       counts nothing here: the group itself is backed off

Pods that are spread over zones are planned for as many nodes as they need, until a node has come
elsewhere; then the same limits apply. See docs/reference/scale-up.md "Groups in several zones".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from chalicelib.model.memory import HOUR, GroupMemory, PurchaseAttempts
from chalicelib.model.node import Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.state.zones import remembered_zones, zone_label

MOST_MISSES = 3
"""Nodes of a group that may come elsewhere within an hour."""
_FIRST_WAIT, _LONGEST_WAIT = 300.0, 6 * HOUR
_REMEMBERED = 24 * HOUR
MOST_STRAYS = 50
"""Nodes of a group that came instead of others and are remembered, the last ones."""
_MOST_HITS = 100
FORGIVEN = ""
"""Among the misses: of a zone in which a node has come since. No zone is named so. It
counts in its hour only."""
_UNLIMITED = 10**9
NONE = PurchaseAttempts()


class ZoneRoom(msgspec.Struct, frozen=True):
    """How many nodes may be bought in this pass for pods that need one zone of a group, and for
    pods that are spread over zones; why there are no more."""

    for_zone: int
    for_spread: int
    why: Reason


def judge_attempts(state: ClusterState) -> ClusterState:
    """Return the cluster state with what has come of open attempts. What is known of a group that
    could not be read stays."""
    changed: dict[str, GroupMemory] = {}
    for group in state.groups.values():
        known = group.memory.attempts
        if group.group.error or (not group.zones and known is None):
            continue
        attempts = _judged(group, state)
        if attempts != known:
            changed[group.id] = msgspec.structs.replace(group.memory, attempts=attempts)
    if not changed:
        return state
    groups = dict(state.groups)
    for name, group_memory in changed.items():
        groups[name] = msgspec.structs.replace(groups[name], memory=group_memory)
    memory = msgspec.structs.replace(state.memory, groups={**state.memory.groups, **changed})
    return msgspec.structs.replace(state, groups=groups, memory=memory)


def _judged(group: NodeGroupState, state: ClusterState) -> PurchaseAttempts | None:
    known = group.memory.attempts or NONE
    now = state.now
    missed = []
    for at, key in known.missed:
        lifetime = _REMEMBERED if key else HOUR
        if abs(now - at) < lifetime:
            missed.append((at, key))
    attempts = msgspec.structs.replace(
        known,
        zones=remembered_zones(known.zones, group.nodes, group.zones, now),
        missed=tuple(missed),
        strays=tuple(name for name in known.strays if name in state.buckets),
    )
    if attempts.open:
        attempts = _Arrivals(group, state, attempts).judged()
    return attempts if attempts != NONE else None


class _Arrivals:
    """The nodes of a group that have joined since its open attempts began."""

    def __init__(
        self, group: NodeGroupState, state: ClusterState, attempts: PurchaseAttempts
    ) -> None:
        self.group = group
        self.state = state
        self.attempts = attempts
        began = math.floor(attempts.since)  # creation times are whole seconds
        created_since = (node for node in group.nodes if node.created >= began)
        joined = [node for node in created_since if self._is_placed(node)]
        by_zone: dict[str, list[Node]] = {}
        for node in sorted(joined, key=lambda node: (is_empty(node, state), node.name)):
            by_zone.setdefault(zone_label(node), []).append(node)
        self.arrived = {zone: len(by_zone.get(zone, ())) for zone in attempts.open}
        self.surplus: list[str] = []
        for zone, nodes in sorted(by_zone.items()):
            too_many = nodes[attempts.open.get(zone, 0) :]
            self.surplus += [node.name for node in too_many if node.name not in attempts.strays]
        starting = sum(state.buckets[node.name] is Bucket.STARTING for node in joined)
        self.to_come = max(0, group.upcoming - starting)

    def _is_placed(self, node: Node) -> bool:
        """Return whether the zone of a node is known. A node that works has all the
        labels that it will have."""
        return bool(zone_label(node)) or self.state.buckets[node.name] is Bucket.READY

    def outstanding(self) -> dict[str, int]:
        """Return zone -> nodes that have not come there."""
        missing = {zone: nodes - self.arrived[zone] for zone, nodes in self.attempts.open.items()}
        return {zone: nodes for zone, nodes in missing.items() if nodes > 0}

    def judged(self) -> PurchaseAttempts:
        """Return the attempts after this pass."""
        outstanding = self.outstanding()
        lost_nodes = max(0, sum(outstanding.values()) - self.to_come)
        lost = _zone_per_node(outstanding)[:lost_nodes]
        still_open = {zone: nodes - lost.count(zone) for zone, nodes in self.attempts.open.items()}
        strays = self.surplus[: len(lost)]
        misses = [(self.state.now, zone) for zone in lost[: len(strays)]]
        attempts = msgspec.structs.replace(
            self.attempts,
            open=still_open,
            missed=(*self.attempts.missed, *misses),
            strays=(*self.attempts.strays, *strays)[-MOST_STRAYS:],
        )
        if any(nodes > self.arrived[zone] for zone, nodes in still_open.items()):
            return attempts
        return self._closed(attempts)

    def _closed(self, attempts: PurchaseAttempts) -> PurchaseAttempts:
        """Return the attempts once nothing is to come any more."""
        unlucky = {zone for at, zone in attempts.missed if at >= attempts.since}
        hits = {zone: nodes for zone, nodes in attempts.hits.items() if zone not in unlucky}
        came: set[str] = set()
        for zone, nodes in self.arrived.items():
            if nodes and zone not in unlucky:
                came.add(zone)
                hits[zone] = min(_MOST_HITS, hits.get(zone, 0) + nodes)
        missed = tuple((at, FORGIVEN if zone in came else zone) for at, zone in attempts.missed)
        hits = dict(sorted(hits.items()))
        return msgspec.structs.replace(attempts, open={}, since=0.0, missed=missed, hits=hits)


def _zone_per_node(nodes_of: Mapping[str, int]) -> list[str]:
    """Return the zone of each node, by zone. nodes_of: zone -> nodes."""
    zones: list[str] = []
    for zone, nodes in sorted(nodes_of.items()):
        zones += [zone] * nodes
    return zones


def coming_in_zones(group: NodeGroupState, state: ClusterState) -> list[str]:
    """Return the zones of the upcoming nodes of a group in several zones, as far as they are known
    or were bought for, at most as many as are upcoming."""
    starting = [node for node in group.nodes if state.buckets[node.name] is Bucket.STARTING]
    labels = sorted(map(zone_label, starting))
    zones = [zone for zone in labels if zone in group.zones and zone]
    attempts = group.memory.attempts
    if attempts is not None and attempts.open:
        outstanding = _Arrivals(group, state, attempts).outstanding()
        zones += [zone for zone in _zone_per_node(outstanding) if zone in group.zones]
    return zones[: group.upcoming]


def wait_for(attempts: PurchaseAttempts | None, key: str, now: float) -> float:
    """Return until when nothing is bought for a zone, or for whatever else stands among
    the misses: after its last misses in a row, and while the group has too many in an
    hour. 0.0: nothing keeps it."""
    missed = (attempts or NONE).missed
    own = [at for at, name in missed if name == key]
    recent = sorted(at for at, _ in missed if abs(now - at) < HOUR)
    waits = []
    if own:
        doubled = _FIRST_WAIT * 2 ** (len(own) - 1)
        waits.append(max(own) + min(_LONGEST_WAIT, doubled))
    if len(recent) >= MOST_MISSES:
        waits.append(recent[-MOST_MISSES] + HOUR)
    return max(waits, default=0.0)


def room_in_zone(group: NodeGroupState, zone: str, state: ClusterState) -> ZoneRoom:
    """Return how many nodes of a group in several zones may be bought for one of the zones."""
    attempts = group.memory.attempts or NONE
    now = state.now
    empty = _empty_stray(group, zone, state)
    until = wait_for(attempts, zone, now)
    checks: tuple[tuple[bool, dict[str, str | float]], ...] = (
        (bool(empty), {"detail": f"node {empty} came in another zone and is still empty"}),
        (until > now, {"detail": "the last new node came in another zone", "until": until}),
        (zone in state.health.sick_zones, {"detail": f"zone {zone} is unhealthy"}),
    )
    refused = next((values for fails, values in checks if fails), None)
    if refused is not None:
        return ZoneRoom(0, 0, _reason(group, zone, refused))
    for_zone = for_spread = 0
    if _is_coming(group, zone, state):
        detail = "a node that was bought for the zone has not joined yet"
    else:
        detail = "one attempt at a time"
        misses = sum(abs(now - at) < HOUR for at, _ in attempts.missed)
        for_spread = MOST_MISSES - misses
        for_zone = min(for_spread, 1 + attempts.hits.get(zone, 0))
    if not attempts.missed:
        for_spread = _UNLIMITED
    return ZoneRoom(for_zone, for_spread, _reason(group, zone, {"detail": detail}))


def _is_coming(group: NodeGroupState, zone: str, state: ClusterState) -> bool:
    """Return whether an upcoming node may be in a zone."""
    zones = coming_in_zones(group, state)
    if zone in zones:
        return True
    return _is_forgotten(group) and group.upcoming > len(zones)


def _reason(group: NodeGroupState, zone: str, values: Mapping[str, str | float]) -> Reason:
    return Reason.of(ReasonCode.ZONE_NOT_CERTAIN, group=group.id, zone=zone, **values)


def with_purchases(
    attempts: PurchaseAttempts | None, bought: Mapping[str, int], nodes: Iterable[Node], now: float
) -> PurchaseAttempts:
    """Return the attempts with those of this pass. bought: zone -> nodes; nodes: of the group, none
    of which is of these attempts."""
    known = attempts or NONE
    zones = sorted({*known.open, *bought})
    opened = {zone: known.open.get(zone, 0) + bought.get(zone, 0) for zone in zones}
    if known.open:
        return msgspec.structs.replace(known, open=opened)
    began = now
    # Creation times are whole seconds. A node that has come in this one would count
    # for these attempts as well.
    second = math.floor(now)
    if any(node.created >= second for node in nodes):
        began = second + 1.0
    return msgspec.structs.replace(known, open=opened, since=began)


def is_empty(node: Node, state: ClusterState) -> bool:
    """Return whether only pods that come with it are on a node."""
    for pod in state.occupancy.on(node.name):
        pod_class = state.snapshot.classes[pod.cls]
        comes_with_node = pod_class.is_daemonset or pod_class.mirror
        if not comes_with_node and pod.phase not in {"Succeeded", "Failed"}:
            return False
    return True


def _is_forgotten(group: NodeGroupState) -> bool:
    """Return whether nothing is known of attempts: there was none, or its memory was lost. A node
    that is coming, or one that is empty, may then be of an attempt: a memory that was lost must
    not buy again and again."""
    attempts = group.memory.attempts
    return attempts is None or not (attempts.missed or attempts.hits or attempts.open)


def _empty_stray(group: NodeGroupState, zone: str, state: ClusterState) -> str:
    """Return an empty node that came in place of one that was bought for a zone, or may have:
    without a memory of attempts, any of the last hour in another zone."""
    strays = (group.memory.attempts or NONE).strays
    is_forgotten = _is_forgotten(group)

    def is_suspect(node: Node) -> bool:
        if node.name in strays:
            return True
        is_recent = state.now - node.created < HOUR
        return is_forgotten and is_recent and zone_label(node) != zone

    suspects = filter(is_suspect, group.nodes)
    return next((node.name for node in suspects if is_empty(node, state)), "")
