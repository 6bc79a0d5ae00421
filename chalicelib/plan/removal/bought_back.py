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
_OWNERS, _NODES = 50, 20  # remembered at most: owners of a group, nodes of an owner

Drains = dict[str, dict[str, DrainedOwner]]
"""Group -> owner -> its drains."""


def bought_back(removal: SimulatedRemoval, state: ClusterState) -> Reason | None:
    """Return why a node's pods are not moved yet: removals that moved pods of the same owner were
    bought back. An instant too far away comes from a wrong clock."""
    waits = {
        owner: drained.until
        for owner, drained in state.groups[removal.group].memory.drained.items()
        if state.now < drained.until <= state.now + LONGEST
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
    if scale_ups and any(
        drained.nodes for owners in drains.values() for drained in owners.values()
    ):
        _count_growth(drains, state, scale_ups)
    moved = [
        (removal, _owners_on(removal.node, removal.evict, state))
        for removal in removals
        if removal.evict
    ]
    pods = _live_pods(state, {owner for _, owners in moved for owner in owners})
    for removal, owners in moved:
        for owner in sorted(owners):
            drained = drains[removal.group].get(owner, DrainedOwner())
            earlier = () if drained.bought else drained.nodes
            nodes = tuple(dict.fromkeys((*earlier, removal.node)))[-_NODES:]
            drains[removal.group][owner] = msgspec.structs.replace(
                drained, since=state.now, nodes=nodes, bought=0, pods=pods[owner]
            )
    return {group: _latest(owners) for group, owners in drains.items()}


def _count_growth(drains: Drains, state: ClusterState, scale_ups: Iterable[ScaleUp]) -> None:
    """Count the nodes that are bought for pods of drained owners, and let those wait
    that are all bought back."""
    bought = _nodes_bought(state, scale_ups)
    pods = _live_pods(state, bought)
    for owners in drains.values():
        for owner in bought.keys() & owners.keys():
            drained = owners[owner]
            gone = sum(
                node in state.leaving or node not in state.occupancy.index for node in drained.nodes
            )
            if not gone or pods[owner] > drained.pods:
                continue
            drained = msgspec.structs.replace(drained, bought=drained.bought + bought[owner])
            if drained.bought >= gone:
                until = state.now + min(HOUR * 2.0 ** min(drained.times, 9), LONGEST)
                drained = msgspec.structs.replace(
                    drained, nodes=(), bought=0, until=until, times=drained.times + 1
                )
            owners[owner] = drained


def _nodes_bought(state: ClusterState, scale_ups: Iterable[ScaleUp]) -> dict[str, int]:
    """Return owner -> nodes bought for its pods; of one scale-up no more than
    the owner has pods in it."""
    pods = [
        *state.occupancy.waiting(),
        *(pod for node in sorted(state.leaving) for pod in state.occupancy.on(node)),
    ]
    owners = {
        pod.key: owner for pod in pods if (owner := owner_of(state.snapshot.classes[pod.cls]))
    }
    bought: dict[str, int] = {}
    for scale_up in scale_ups:
        counts: dict[str, int] = {}
        for owner in (owners[pod] for pod in scale_up.pods if pod in owners):
            counts[owner] = counts.get(owner, 0) + 1
        for owner, count in counts.items():
            bought[owner] = bought.get(owner, 0) + min(count, scale_up.to_size - scale_up.from_size)
    return bought


def _owners_on(node: str, evict: Sequence[str], state: ClusterState) -> set[str]:
    """Return the owners of these pods of a node."""
    moving, classes = set(evict), state.snapshot.classes
    return {owner_of(classes[pod.cls]) for pod in state.occupancy.on(node) if pod.key in moving} - {
        ""
    }


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
    occupancy, classes = state.occupancy, state.snapshot.classes
    counted = occupancy.cls[~occupancy.dying & (occupancy.cls >= 0)]
    for pod_class, count in zip(
        classes, np.bincount(counted, minlength=len(classes)).tolist(), strict=True
    ):
        owner = owner_of(pod_class)
        if owner in pods:
            pods[owner] += count
    return pods


def _remembered(drained: Mapping[str, DrainedOwner], now: float) -> dict[str, DrainedOwner]:
    """Return what still matters: drains that growth may still undo, and waits
    until a day after their end."""
    return {
        owner: one
        if abs(now - one.since) < WINDOW
        else msgspec.structs.replace(one, nodes=(), bought=0)
        for owner, one in drained.items()
        if abs(now - one.since) < WINDOW or abs(now - one.until) < LONGEST
    }


def _latest(owners: dict[str, DrainedOwner]) -> dict[str, DrainedOwner]:
    """Return the owners with the last waits and drains, by name."""
    last = sorted(owners.items(), key=lambda item: (item[1].until, item[1].since, item[0]))[
        -_OWNERS:
    ]
    return dict(sorted(last))
