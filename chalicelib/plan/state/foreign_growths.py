"""Makes the growths of others requests of the planner: machines that are on their
way are not bought again.

Another autoscaler may have grown a group before this cluster's passes began to act, and grows it
while they do not. Its machines are then a part of the size, and no request says so. The nodes that
the size lacks become a purchase, which arrives, times out and ends like any other:

    nothing is known      the first pass that reads a group, and the first one after a time
                          without passes: all nodes that the size lacks
    passes watch          by how much the size grew since the last pass, as far
                          as nodes are still lacking

A machine that is older than the time that one may take is not on its way any more. See
docs/reference/node-groups.md "Growths by others".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce

import msgspec

from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.memory import Control, GroupMemory, Memory, PurchaseRow, ScaleUpRequest
from chalicelib.model.purchases import with_purchase
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState, build_cluster_state
from chalicelib.policy.timeouts import provision_time

SILENCE = 900.0
"""Seconds without a pass after which others may have done anything; at
least three scan intervals."""
_AT_ONCE = 60.0
"""Seconds within which machines that were created are one purchase."""


# -- who may have changed the groups: what passes hand on ------------------------------------------


def left(memory: Memory) -> Memory:
    """Return the memory of a cluster that no pass looks at for a time."""
    unwatched = _since(memory, acting=0.0, watching=0.0)
    return _controlled(unwatched, dict.fromkeys(memory.groups, Control.LEFT))


def with_others(
    memory: Memory, last_success: float, scan_interval: float, now: float, *, act: bool
) -> Memory:
    """Return the memory with which a pass plans. last_success: the last pass that made
    a decision, 0.0: unknown. act: whether this pass acts. A pass that does not act
    watches what the others do."""
    if 0.0 < last_success < now - max(SILENCE, 3 * scan_interval):
        memory = left(memory)
    if act:
        return memory if _is_acting(memory) else _since(memory, acting=now, watching=0.0)
    own = [name for name, group in memory.groups.items() if group.control is Control.OWN]
    watching = _since(memory, acting=0.0, watching=memory.watching_since or now)
    return _controlled(watching, dict.fromkeys(own, Control.WATCHED))


def after_pass(memory: Memory, groups: Iterable[NodeGroup], *, act: bool) -> Memory:
    """Return the memory that a pass saves. groups: those that it has read, or could not read;
    these stay as they were."""
    control = Control.OWN if act else Control.WATCHED
    read = [group.id for group in groups if not group.error and group.id in memory.groups]
    return _controlled(memory, dict.fromkeys(read, control))


def _is_acting(memory: Memory) -> bool:
    """Return whether the passes before have acted, as far as is known."""
    others = any(group.control is not Control.OWN for group in memory.groups.values())
    is_earlier_release = memory.first_seen > 0.0 and memory.watching_since <= 0.0 and not others
    return memory.acting_since > 0.0 or is_earlier_release


def _since(memory: Memory, *, acting: float, watching: float) -> Memory:
    if (memory.acting_since, memory.watching_since) == (acting, watching):
        return memory
    return msgspec.structs.replace(memory, acting_since=acting, watching_since=watching)


def _controlled(memory: Memory, controls: Mapping[str, Control]) -> Memory:
    changed = {
        name: msgspec.structs.replace(memory.groups[name], control=control)
        for name, control in controls.items()
        if memory.groups[name].control is not control
    }
    return (
        msgspec.structs.replace(memory, groups={**memory.groups, **changed}) if changed else memory
    )


# -- what the planner makes of it ------------------------------------------------------------------


def adopt_growths(state: ClusterState) -> ClusterState:
    """Return the cluster state in which others' growths are requests. A group that could not be
    read, or that grows by an operation, keeps its memory."""
    changed: dict[str, GroupMemory] = {}
    for group in state.groups.values():
        if group.group.error or group.growing:
            continue
        memory = _with_growth(group, state)
        if memory != group.memory:
            changed[group.id] = memory
    if not changed:
        return state
    memory_after = msgspec.structs.replace(state.memory, groups={**state.memory.groups, **changed})
    return build_cluster_state(state.snapshot, state.policy, memory_after, state.now)


def _with_growth(group: NodeGroupState, state: ClusterState) -> GroupMemory:
    """Return the group's memory with the purchases of others."""
    memory = group.memory
    if not _is_unknown(memory) and memory.control is not Control.WATCHED:
        return memory
    known = group.failed if _is_unknown(memory) else memory.failed_instances
    # An error of an instance that existed before is not one of these purchases.
    memory = msgspec.structs.replace(memory, failed_instances=known)
    grown = max(0, group.group.target - memory.target)
    lacking = _lacking(group, state) - sum(name in known for name in group.failed)
    lacking -= _requested(memory.request, lacking - grown)
    rows = _purchases(group, state, lacking if _is_unknown(memory) else min(lacking, grown))
    if not rows:
        return group.memory
    return msgspec.structs.replace(memory, request=_with_rows(memory.request, rows))


def _is_unknown(memory: GroupMemory) -> bool:
    """Return whether no pass has read the group, or others may have done
    anything with it since one has."""
    is_read = msgspec.structs.replace(memory, control=Control.OWN) != GroupMemory()
    return not is_read or memory.control is Control.LEFT


def _lacking(group: NodeGroupState, state: ClusterState) -> int:
    """Return how many nodes the size lacks, without machines that are late or cannot
    become a node of the group."""
    lost = len(group.contested) + len(group.long_unregistered) + len(_by_creation(group, state)[1])
    return group.group.target - group.registered - lost


def _requested(request: ScaleUpRequest | None, lacking_before: int) -> int:
    """Return how many of the lacking nodes the group's own request is about.
    lacking_before: before the size grew."""
    if request is None:
        return 0
    return max(0, min(lacking_before, request.increase + request.given_up))


def _purchases(group: NodeGroupState, state: ClusterState, count: int) -> list[PurchaseRow]:
    """Return the purchases of this many nodes: those of the newest machines by their
    creation, the rest by now."""
    if count <= 0:
        return []
    recent, _ = _by_creation(group, state)
    newest = recent[-count:]
    dates = Counter(_first_within_minute(at, newest) for at in newest)
    if len(newest) < count:
        dates[state.now] += count - len(newest)
    allowed = provision_time(group.group, state.options)
    return [PurchaseRow(nodes, at, at + allowed) for at, nodes in sorted(dates.items())]


def _by_creation(group: NodeGroupState, state: ClusterState) -> tuple[list[float], list[float]]:
    """Return when the machines without a node were created that are not late by their first
    sighting, in order: those that may still join, and those that should have."""
    absent = frozenset(group.unregistered) - frozenset(group.long_unregistered)
    times = sorted(
        _creation(instance, state.now)
        for instance in group.group.instances
        if instance.id in absent
    )
    oldest = state.now - provision_time(group.group, state.options)
    return [at for at in times if at >= oldest], [at for at in times if at < oldest]


def _creation(instance: Instance, now: float) -> float:
    """Return when an instance was created; now, where its vendor does not
    say, or says what cannot be."""
    return instance.created if 0.0 < instance.created <= now else now


def _first_within_minute(at: float, times: list[float]) -> float:
    return min(other for other in times if other // _AT_ONCE == at // _AT_ONCE)


def _with_rows(request: ScaleUpRequest | None, rows: list[PurchaseRow]) -> ScaleUpRequest | None:
    """Return the request with further purchases, the oldest first."""
    known = request.purchases if request is not None else ()
    given_up = request.given_up if request is not None else 0
    nothing: ScaleUpRequest | None = None
    merged = reduce(with_purchase, sorted((*known, *rows), key=lambda row: row.since), nothing)
    return merged if merged is None else msgspec.structs.replace(merged, given_up=given_up)
