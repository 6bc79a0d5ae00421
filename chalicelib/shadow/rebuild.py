"""Rebuilds the cluster as it was before the other autoscaler grew it, so that our planner can be asked what it wanted.

Cluster Autoscaler looks every ten seconds, a pass every minute. When a pass looks, the need is often met already, and
its plan wants nothing. The state before is this state without the new nodes and instances, with smaller targets and
with the pods of these nodes waiting again. Pods that were created after the episode are left out.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.pod import Pod
from chalicelib.model.policy import Options
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.what_if import without_nodes
from chalicelib.shadow.episodes import sizes
from chalicelib.shadow.records import Episode

_WAITED = 31.0
"""Seconds for which a pod counts as waiting at least: the planner waits up to 30 s for more pods of the same need."""


class Rebuilt(msgspec.Struct, frozen=True):
    """The state before an episode. approximate: something of it is gone, so the state is only similar. pods:
    namespace/name of the pods that wait again."""

    snapshot: Snapshot
    memory: Memory
    approximate: bool
    pods: tuple[str, ...]


def rebuild(snapshot: Snapshot, memory: Memory, episode: Episode, options: Options) -> Rebuilt:
    """Return the state before the episode, from the state and memory of a pass after it."""
    grown = sizes(episode)
    created = {node.name: node.created for node in snapshot.nodes}
    new_nodes: set[str] = set()
    new_instances: set[str] = set()
    groups: list[NodeGroup] = []
    approximate = False
    for group in snapshot.groups:
        count = grown.get(group.id, 0)
        if not count:
            continue
        since = {each.id: _created(each.created, created.get(each.node), memory, each.id) for each in group.instances}
        newest = sorted(
            (each for each in group.instances if since[each.id] > episode.since), key=lambda each: -since[each.id]
        )[:count]
        new_nodes |= {each.node for each in newest if each.node}
        new_instances |= {each.id for each in newest}
        before = min(growth.before for growth in episode.growths if growth.group == group.id)
        approximate = approximate or group.target < before + count
    approximate = approximate or not grown.keys() <= {group.id for group in snapshot.groups}
    approximate = approximate or not set(episode.pods) <= {pod.uid for pod in snapshot.pods}
    end = episode.ended
    earlier = msgspec.structs.replace(snapshot, pods=tuple(pod for pod in snapshot.pods if pod.created <= end))
    kept = [pod for pod in earlier.pods if pod.node in new_nodes]
    bare, smaller_memory, removed = without_nodes(earlier, memory, sorted(new_nodes), end, options)
    lost = {key for each in removed for key in each.lost}
    pods = [*bare.pods, *(_waiting(pod, end) for pod in kept if pod.key in lost)]
    for group, original in zip(bare.groups, snapshot.groups, strict=True):
        left = tuple(each for each in group.instances if each.id not in new_instances)
        target = max(0, original.target - grown.get(group.id, 0))
        groups.append(msgspec.structs.replace(group, instances=left, target=target))
    before_memory = msgspec.structs.replace(
        smaller_memory,
        groups={name: _calm(known, episode, name in grown) for name, known in smaller_memory.groups.items()},
        unregistered={name: at for name, at in smaller_memory.unregistered.items() if name not in new_instances},
        last_scale_up=min(smaller_memory.last_scale_up, episode.since),
    )
    pods.sort(key=lambda pod: (pod.namespace, pod.name))
    again = {key for each in removed for key in (*each.again, *each.lost)}
    return Rebuilt(
        msgspec.structs.replace(bare, taken_at=end, pods=tuple(pods), groups=tuple(groups)),
        before_memory,
        approximate,
        tuple(sorted(again)),
    )


def _created(instance: float, node: float | None, memory: Memory, name: str) -> float:
    """Return when an instance came into being; 0.0 where nothing says so, which counts as long ago."""
    return node or instance or memory.unregistered.get(name, 0.0)


def _calm(group_memory: GroupMemory, episode: Episode, grown: bool) -> GroupMemory:  # noqa: FBT001 - private
    if not grown:
        return group_memory
    return msgspec.structs.replace(
        group_memory, request=None, last_add=min(group_memory.last_add, episode.since), size_wrong_since=0.0
    )


def _waiting(pod: Pod, now: float) -> Pod:
    return msgspec.structs.replace(
        pod,
        node="",
        nominated="",
        phase="Pending",
        scheduled="False",
        scheduled_reason="Unschedulable",
        scheduled_message="",
        created=min(pod.created, now - _WAITED),
    )
