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
from collections.abc import Iterable, Mapping, Sequence

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
        if group.group.error or not (group.zones or group.memory.attempts is not None):
            continue
        attempts = _judged(group, state)
        if attempts != group.memory.attempts:
            changed[group.id] = msgspec.structs.replace(group.memory, attempts=attempts)
    if not changed:
        return state
    groups = {
        name: msgspec.structs.replace(group, memory=changed[name]) if name in changed else group
        for name, group in state.groups.items()
    }
    memory = msgspec.structs.replace(state.memory, groups={**state.memory.groups, **changed})
    return msgspec.structs.replace(state, groups=groups, memory=memory)


def _judged(group: NodeGroupState, state: ClusterState) -> PurchaseAttempts | None:
    known, now = group.memory.attempts or NONE, state.now
    attempts = msgspec.structs.replace(
        known,
        zones=remembered_zones(known.zones, group.nodes, group.zones, now),
        missed=tuple(
            (at, key) for at, key in known.missed if abs(now - at) < (_REMEMBERED if key else HOUR)
        ),
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
        self.group, self.state, self.attempts = group, state, attempts
        # Creation times are whole seconds.
        joined = [
            node
            for node in group.nodes
            if node.created >= math.floor(attempts.since) and self._is_placed(node)
        ]
        by_zone: dict[str, list[Node]] = {}
        for node in sorted(joined, key=lambda node: (is_empty(node, state), node.name)):
            by_zone.setdefault(zone_label(node), []).append(node)
        self.arrived = {zone: len(by_zone.get(zone, ())) for zone in attempts.open}
        self.surplus = [
            node.name
            for zone, nodes in sorted(by_zone.items())
            for node in nodes[attempts.open.get(zone, 0) :]
            if node.name not in attempts.strays
        ]
        starting = sum(state.buckets[node.name] is Bucket.NOT_STARTED for node in joined)
        self.to_come = max(0, group.upcoming - starting)

    def _is_placed(self, node: Node) -> bool:
        """Return whether the zone of a node is known. A node that works has all the
        labels that it will have."""
        return bool(zone_label(node)) or self.state.buckets[node.name] is Bucket.READY

    def outstanding(self) -> dict[str, int]:
        """Return zone -> nodes that have not come there."""
        return {
            zone: wanted - self.arrived[zone]
            for zone, wanted in self.attempts.open.items()
            if wanted > self.arrived[zone]
        }

    def judged(self) -> PurchaseAttempts:
        """Return the attempts after this pass."""
        attempts, outstanding, now = self.attempts, self.outstanding(), self.state.now
        count = max(0, sum(outstanding.values()) - self.to_come)
        lost = [zone for zone, nodes in sorted(outstanding.items()) for _ in range(nodes)][:count]
        strays = self.surplus[: len(lost)]
        still_open = {zone: wanted - lost.count(zone) for zone, wanted in attempts.open.items()}
        attempts = msgspec.structs.replace(
            attempts,
            open=still_open,
            missed=(*attempts.missed, *((now, zone) for zone in lost[: len(strays)])),
            strays=(*attempts.strays, *strays)[-MOST_STRAYS:],
        )
        if any(wanted > self.arrived[zone] for zone, wanted in still_open.items()):
            return attempts
        return self._closed(attempts)

    def _closed(self, attempts: PurchaseAttempts) -> PurchaseAttempts:
        """Return the attempts once nothing is to come any more."""
        unlucky = {zone for at, zone in attempts.missed if at >= attempts.since}
        came = {
            zone: nodes for zone, nodes in self.arrived.items() if nodes and zone not in unlucky
        }
        hits = {zone: nodes for zone, nodes in attempts.hits.items() if zone not in unlucky}
        hits |= {zone: min(_MOST_HITS, hits.get(zone, 0) + nodes) for zone, nodes in came.items()}
        return msgspec.structs.replace(
            attempts,
            open={},
            since=0.0,
            missed=tuple((at, FORGIVEN if zone in came else zone) for at, zone in attempts.missed),
            hits=dict(sorted(hits.items())),
        )


def coming_in_zones(group: NodeGroupState, state: ClusterState) -> list[str]:
    """Return the zones of the upcoming nodes of a group in several zones, as far as they are known
    or were bought for, at most as many as are upcoming."""
    starting = [
        zone_label(node) for node in group.nodes if state.buckets[node.name] is Bucket.NOT_STARTED
    ]
    zones = sorted(zone for zone in starting if zone in group.zones and zone)
    attempts = group.memory.attempts
    if attempts is not None and attempts.open:
        outstanding = _Arrivals(group, state, attempts).outstanding()
        zones += [
            zone
            for zone, nodes in sorted(outstanding.items())
            for _ in range(nodes)
            if zone in group.zones
        ]
    return zones[: group.upcoming]


def wait_for(attempts: PurchaseAttempts | None, key: str, now: float) -> float:
    """Return until when nothing is bought for a zone, or for whatever else stands among
    the misses: after its last misses in a row, and while the group has too many in an
    hour. 0.0: nothing keeps it."""
    missed = (attempts or NONE).missed
    own = [at for at, name in missed if name == key]
    recent = sorted(at for at, _ in missed if abs(now - at) < HOUR)
    waits = [max(own) + min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** (len(own) - 1))] if own else []
    waits += [recent[-MOST_MISSES] + HOUR] if len(recent) >= MOST_MISSES else []
    return max(waits, default=0.0)


def room_in_zone(group: NodeGroupState, zone: str, state: ClusterState) -> ZoneRoom:
    """Return how many nodes of a group in several zones may be bought for one of the zones."""
    attempts, now = group.memory.attempts or NONE, state.now
    recent = sum(abs(now - at) < HOUR for at, _ in attempts.missed)
    empty, until = _empty_stray(group, zone, state), wait_for(attempts, zone, now)
    checks: tuple[tuple[bool, dict[str, str | float]], ...] = (
        (bool(empty), {"detail": f"node {empty} came in another zone and is still empty"}),
        (until > now, {"detail": "the last new node came in another zone", "until": until}),
        (zone in state.health.sick_zones, {"detail": f"zone {zone} is unhealthy"}),
    )
    refused = next((values for fails, values in checks if fails), None)
    if refused is not None:
        return ZoneRoom(0, 0, _reason(group, zone, refused))
    left = MOST_MISSES - recent
    coming = coming_in_zones(group, state)
    is_coming = zone in coming or (_is_forgotten(group) and group.upcoming > len(coming))
    for_zone = 0 if is_coming else min(left, 1 + attempts.hits.get(zone, 0))
    for_spread = _UNLIMITED if not attempts.missed else 0 if is_coming else left
    detail = (
        "a node that was bought for the zone has not joined yet"
        if is_coming
        else "one attempt at a time"
    )
    return ZoneRoom(for_zone, for_spread, _reason(group, zone, {"detail": detail}))


def _reason(group: NodeGroupState, zone: str, values: Mapping[str, str | float]) -> Reason:
    return Reason.of(ReasonCode.ZONE_NOT_CERTAIN, group=group.id, zone=zone, **values)


def with_purchases(
    attempts: PurchaseAttempts | None, bought: Mapping[str, int], nodes: Iterable[Node], now: float
) -> PurchaseAttempts:
    """Return the attempts with those of this pass. bought: zone -> nodes; nodes: of the group, none
    of which is of these attempts."""
    known, second = attempts or NONE, math.floor(now)
    opened = {
        zone: known.open.get(zone, 0) + bought.get(zone, 0)
        for zone in sorted({*known.open, *bought})
    }
    # Creation times are whole seconds. A node that has come in this one would count
    # for these attempts as well.
    began = second + 1.0 if any(node.created >= second for node in nodes) else now
    return msgspec.structs.replace(known, open=opened, since=known.since if known.open else began)


def is_empty(node: Node, state: ClusterState) -> bool:
    """Return whether only pods that come with it are on a node."""
    classes = state.snapshot.classes
    return all(
        classes[pod.cls].is_daemonset
        or classes[pod.cls].mirror
        or pod.phase in {"Succeeded", "Failed"}
        for pod in state.occupancy.on(node.name)
    )


def _is_forgotten(group: NodeGroupState) -> bool:
    """Return whether nothing is known of attempts: there was none, or its memory was lost. A node
    that is coming, or one that is empty, may then be of an attempt: a memory that was lost must
    not buy again and again."""
    attempts = group.memory.attempts
    return attempts is None or not (attempts.missed or attempts.hits or attempts.open)


def _empty_stray(group: NodeGroupState, zone: str, state: ClusterState) -> str:
    """Return an empty node that came in place of one that was bought for a zone, or may have:
    without a memory of attempts, any of the last hour in another zone."""
    strays: Sequence[str] = ()
    if group.memory.attempts is not None:
        strays = group.memory.attempts.strays
    forgotten = _is_forgotten(group)
    suspects = (
        node
        for node in group.nodes
        if node.name in strays
        or (forgotten and zone_label(node) != zone and state.now - node.created < HOUR)
    )
    return next((node.name for node in suspects if is_empty(node, state)), "")
