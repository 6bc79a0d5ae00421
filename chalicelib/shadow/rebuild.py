"""Rebuilds the cluster as it was before the other autoscaler grew it, so that our planner can
be asked what it wanted.

Cluster Autoscaler looks every ten seconds, a pass every minute. When a pass looks, the need is
often met already, and its plan wants nothing. The state before is this state without the new nodes
and instances, with smaller targets and with the pods of these nodes waiting again. Pods that were
created after the episode are left out.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.memory import Backoff, Memory, ScaleUpRequest
from chalicelib.model.pod import Pod
from chalicelib.model.policy import Options
from chalicelib.model.purchases import request_of
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.what_if import without_nodes
from chalicelib.shadow.records import Episode

_WAITED = 31.0
"""Seconds for which a pod counts as waiting at least: the planner waits up to 30 s for
more pods of the same need."""


class Rebuilt(msgspec.Struct, frozen=True):
    """The state before an episode. approximate: something of it is gone, so the state is only
    similar. pods: namespace/name of the pods that wait again. gone: number of pods of the episode
    that do not exist any more. new_nodes: those that are left out."""

    snapshot: Snapshot
    memory: Memory
    approximate: bool
    pods: tuple[str, ...]
    gone: int = 0
    new_nodes: tuple[str, ...] = ()


def rebuild(snapshot: Snapshot, memory: Memory, episode: Episode, options: Options) -> Rebuilt:
    """Return the state before the episode, from the state and memory of a pass after it."""
    # Nodes of a growth by somebody else that came later did not exist either.
    episode = msgspec.structs.replace(episode, growths=(*episode.growths, *episode.besides))
    sizes, end = episode.sizes, episode.ended
    left_out = new_instances(snapshot, memory, episode)
    new_nodes = {instance.node for instance in left_out if instance.node}
    new_ids = {instance.id for instance in left_out}
    earlier = msgspec.structs.replace(
        snapshot, pods=tuple(pod for pod in snapshot.pods if pod.created <= end)
    )
    bare, bare_memory, removed = without_nodes(earlier, memory, sorted(new_nodes), end, options)
    lost = {key for node in removed for key in node.lost}
    waiting = [
        _waiting(pod, end) for pod in earlier.pods if pod.node in new_nodes and pod.key in lost
    ]
    groups = [
        msgspec.structs.replace(
            group,
            instances=tuple(instance for instance in group.instances if instance.id not in new_ids),
            target=max(0, original.target - sizes.get(group.id, 0)),
        )
        for group, original in zip(bare.groups, snapshot.groups, strict=True)
    ]
    group_memories = {
        name: msgspec.structs.replace(
            group_memory,
            request=_requested_before(group_memory.request, episode.since),
            backoff=_failed_before(group_memory.backoff, episode.since),
            last_add=min(group_memory.last_add, episode.since),
            size_wrong_since=0.0,
        )
        if name in sizes
        else group_memory
        for name, group_memory in bare_memory.groups.items()
    }
    memory_before = msgspec.structs.replace(
        bare_memory,
        groups=group_memories,
        unregistered={
            name: at for name, at in bare_memory.unregistered.items() if name not in new_ids
        },
        last_scale_up=min(bare_memory.last_scale_up, episode.since),
    )
    pods = sorted((*bare.pods, *waiting), key=lambda pod: (pod.namespace, pod.name))
    group_ids, pod_uids = (
        {group.id for group in snapshot.groups},
        {pod.uid for pod in snapshot.pods},
    )
    gone = len(set(episode.pods) - pod_uids)
    return Rebuilt(
        msgspec.structs.replace(bare, taken_at=end, pods=tuple(pods), groups=tuple(groups)),
        memory_before,
        _shrunk(snapshot, episode) or not sizes.keys() <= group_ids or gone > 0,
        tuple(sorted({key for node in removed for key in (*node.again, *node.lost)})),
        gone,
        tuple(sorted(new_nodes)),
    )


def _shrunk(snapshot: Snapshot, episode: Episode) -> bool:
    """Return whether a group is smaller than the episode made it."""
    sizes = episode.sizes
    before: dict[str, int] = {}
    for growth in episode.growths:
        before[growth.group] = min(growth.before, before.get(growth.group, growth.before))
    return any(
        group.target < before[group.id] + sizes[group.id]
        for group in snapshot.groups
        if group.id in sizes
    )


def new_instances(snapshot: Snapshot, memory: Memory, episode: Episode) -> list[Instance]:
    """Return the instances that the episode added, as far as they exist."""
    sizes, instances = episode.sizes, list[Instance]()
    for group in snapshot.groups:
        if group.id in sizes:
            instances += _new_instances(group, sizes[group.id], snapshot, memory, episode.since)
    return instances


def _requested_before(request: ScaleUpRequest | None, since: float) -> ScaleUpRequest | None:
    """Return the purchases that were made before an episode. Their nodes were on their way then."""
    rows = request.purchases if request is not None else ()
    return request_of(row for row in rows if row.since <= since)


def _failed_before(backoff: Backoff | None, since: float) -> Backoff | None:
    """Return the back-off of a group, None if it began with this episode."""
    return backoff if backoff is not None and backoff.last_failed <= since else None


def _new_instances(
    group: NodeGroup, count: int, snapshot: Snapshot, memory: Memory, since: float
) -> list[Instance]:
    """Return the newest instances of a group that came into being after an instant, at most
    `count`. One of which nothing says when counts as old."""
    node_times = {node.name: node.created for node in snapshot.nodes}

    def created(instance: Instance) -> float:
        return (
            node_times.get(instance.node)
            or instance.created
            or memory.unregistered.get(instance.id, 0.0)
        )

    recent = [instance for instance in group.instances if created(instance) > since]
    return sorted(recent, key=lambda instance: -created(instance))[:count]


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
