"""Removals whose nodes were bought back, and the wait before the pods of the
same owners are moved again.

A removal is planned for one way to place its pods; the scheduler may choose another, by which the
room is not sufficient, and a group grows for the rest. As nothing else changes, the next pass would
plan the same removal again, and so on. See docs/reference/scale-down.md "Bought back".

An owner's pods are followed from their drain on. A growth for them counts as bought back while the
owner has no more pods than at the drain: if it has more, the load has grown. Only if as many nodes
are bought as were drained has nothing been saved. Nodes that are still there and not in removal
were not drained: an operation failed, or another autoscaler acts in this cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.memory import HOUR, DrainedOwner
from chalicelib.model.plan import Removal, ScaleUp
from chalicelib.model.pod import PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.removal.simulate import SimulatedRemoval
from chalicelib.plan.state.cluster_state import ClusterState

WINDOW = 1800.0
"""Seconds after a drain in which growth for the same pods undoes it."""
LONGEST = 24 * HOUR
"""Seconds of the longest wait. The first takes an hour, each further one
twice as long as the last."""
# remembered at most: owners of a group, nodes of an owner
_OWNERS = 50
_NODES = 20

Drains = dict[str, dict[str, DrainedOwner]]
"""Group -> owner -> its drains."""


def bought_back(removal: SimulatedRemoval, state: ClusterState) -> Reason | None:
    """Return why a node's pods are not moved yet: removals that moved pods of the same owner were
    bought back. An instant too far away comes from a wrong clock."""
    drained_owners = state.groups[removal.group].memory.drained
    latest_end = state.now + LONGEST
    waits = {
        owner: drained.until
        for owner, drained in drained_owners.items()
        if state.now < drained.until <= latest_end
    }
    if not waits or not removal.evict:
        return None
    owners = waits.keys() & _owners_on(removal.node.name, removal.evict, state)
    if not owners:
        return None
    last = max(owners, key=lambda owner: (waits[owner], owner))
    return Reason.of(ReasonCode.BOUGHT_BACK, owner=last, until=waits[last])


def next_drains(
    state: ClusterState, scale_ups: Sequence[ScaleUp], removals: Sequence[Removal]
) -> Drains:
    """Return what is remembered of drains after a pass with this growth and
    these removals, by group."""
    drains = {
        group.id: _remembered(group.memory.drained, state.now) for group in state.groups.values()
    }
    if scale_ups and _have_nodes(drains):
        _count_growth(drains, state, scale_ups)
    moves = [removal for removal in removals if removal.evict]
    owners_of_moves = [_owners_on(removal.node, removal.evict, state) for removal in moves]
    pods = _live_pods(state, set().union(*owners_of_moves))
    for removal, owners in zip(moves, owners_of_moves, strict=True):
        own_drains = drains[removal.group]
        for owner in sorted(owners):
            drained = own_drains.get(owner, DrainedOwner())
            earlier = () if drained.bought else drained.nodes
            nodes = tuple(dict.fromkeys((*earlier, removal.node)))
            own_drains[owner] = msgspec.structs.replace(
                drained, since=state.now, nodes=nodes[-_NODES:], bought=0, pods=pods[owner]
            )
    return {group: _latest(owners) for group, owners in drains.items()}


def _have_nodes(drains: Drains) -> bool:
    return any(drained.nodes for owners in drains.values() for drained in owners.values())


def _count_growth(drains: Drains, state: ClusterState, scale_ups: Iterable[ScaleUp]) -> None:
    """Count the nodes that are bought for pods of drained owners, and let those wait
    that are all bought back."""
    bought = _nodes_bought(state, scale_ups)
    pods = _live_pods(state, bought)
    for owners in drains.values():
        for owner in bought.keys() & owners.keys():
            drained = owners[owner]
            removed_nodes = [node for node in drained.nodes if _is_removed(node, state)]
            has_more_pods = pods[owner] > drained.pods
            if not removed_nodes or has_more_pods:
                continue
            all_bought = drained.bought + bought[owner]
            if all_bought < len(removed_nodes):
                owners[owner] = msgspec.structs.replace(drained, bought=all_bought)
                continue
            doublings = min(drained.times, 9)
            wait = min(HOUR * 2.0**doublings, LONGEST)
            owners[owner] = msgspec.structs.replace(
                drained, nodes=(), bought=0, until=state.now + wait, times=drained.times + 1
            )


def _is_removed(node: str, state: ClusterState) -> bool:
    return node in state.leaving or node not in state.occupancy.index


def _nodes_bought(state: ClusterState, scale_ups: Iterable[ScaleUp]) -> dict[str, int]:
    """Return owner -> nodes bought for its pods; of one scale-up no more than
    the owner has pods in it."""
    moving = (pod for node in sorted(state.leaving) for pod in state.occupancy.on(node))
    classes = state.snapshot.classes
    owners: dict[str, str] = {}
    for pod in (*state.occupancy.waiting(), *moving):
        owner = owner_of(classes[pod.cls])
        if owner:
            owners[pod.key] = owner
    bought: dict[str, int] = {}
    for scale_up in scale_ups:
        new_nodes = scale_up.to_size - scale_up.from_size
        counts = Counter(owners[pod] for pod in scale_up.pods if pod in owners)
        for owner, count in counts.items():
            bought[owner] = bought.get(owner, 0) + min(count, new_nodes)
    return bought


def _owners_on(node: str, evict: Sequence[str], state: ClusterState) -> set[str]:
    """Return the owners of these pods of a node."""
    moving = set(evict)
    classes = state.snapshot.classes
    pods = (pod for pod in state.occupancy.on(node) if pod.key in moving)
    owners = {owner_of(classes[pod.cls]) for pod in pods}
    owners.discard("")
    return owners


def owner_of(pod_class: PodClass) -> str:
    """Return the owner of a class's pods as namespace/kind/name, "" for bare pods,
    which nobody creates again."""
    owner = pod_class.owner
    return f"{pod_class.namespace}/{owner.kind}/{owner.name}" if owner is not None else ""


def _live_pods(state: ClusterState, owners: Collection[str]) -> dict[str, int]:
    """Return how many pods each of these owners has that are not being deleted."""
    pods = dict.fromkeys(owners, 0)
    if not pods:
        return pods
    occupancy = state.occupancy
    classes = state.snapshot.classes
    is_live = ~occupancy.dying & (occupancy.cls >= 0)
    counts = np.bincount(occupancy.cls[is_live], minlength=len(classes))
    for pod_class, count in zip(classes, counts.tolist(), strict=True):
        owner = owner_of(pod_class)
        if owner in pods:
            pods[owner] += count
    return pods


def _remembered(drained: Mapping[str, DrainedOwner], now: float) -> dict[str, DrainedOwner]:
    """Return what still matters: drains that growth may still undo, and waits
    until a day after their end."""
    remembered: dict[str, DrainedOwner] = {}
    for owner, drained_owner in drained.items():
        if abs(now - drained_owner.since) < WINDOW:
            remembered[owner] = drained_owner
        elif abs(now - drained_owner.until) < LONGEST:
            remembered[owner] = msgspec.structs.replace(drained_owner, nodes=(), bought=0)
    return remembered


def _latest(owners: dict[str, DrainedOwner]) -> dict[str, DrainedOwner]:
    """Return the owners with the last waits and drains, by name."""

    def age(name: str) -> tuple[float, float, str]:
        return owners[name].until, owners[name].since, name

    latest_names = sorted(owners, key=age)[-_OWNERS:]
    return {name: owners[name] for name in sorted(latest_names)}
