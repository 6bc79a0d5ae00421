"""Rebuilds the cluster as it was before the other autoscaler grew it, so that our planner can
be asked what it wanted.

Cluster Autoscaler looks every ten seconds, a pass every minute. When a pass looks, the need is
often met already, and its plan wants nothing. The state before is this state without the new nodes
and instances, with smaller targets and with the pods of these nodes waiting again. Pods that were
created after the episode are left out.
"""

from __future__ import annotations

from collections.abc import Set

import msgspec

from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.memory import Backoff, Memory, ScaleUpRequest
from chalicelib.model.pod import Pod
from chalicelib.model.purchases import request_of
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.what_if import without_nodes
from chalicelib.policy.settings.cluster_options import Options
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
    growths = (*episode.growths, *episode.besides)
    episode = msgspec.structs.replace(episode, growths=growths)
    sizes = episode.sizes
    end = episode.ended
    left_out = new_instances(snapshot, memory, episode)
    new_nodes = {instance.node for instance in left_out if instance.node}
    new_ids = {instance.id for instance in left_out}
    earlier_pods = tuple(pod for pod in snapshot.pods if pod.created <= end)
    earlier = msgspec.structs.replace(snapshot, pods=earlier_pods)
    bare, bare_memory, removed_nodes = without_nodes(
        earlier, memory, sorted(new_nodes), end, options
    )
    lost_pods = {key for node in removed_nodes for key in node.lost}
    recreated_pods = {key for node in removed_nodes for key in node.again}
    pods_of_new_nodes = (pod for pod in earlier_pods if pod.node in new_nodes)
    waiting = [_waiting(pod, end) for pod in pods_of_new_nodes if pod.key in lost_pods]
    pods = sorted((*bare.pods, *waiting), key=lambda pod: (pod.namespace, pod.name))
    groups = []
    for group, original in zip(bare.groups, snapshot.groups, strict=True):
        old_instances = tuple(
            instance for instance in group.instances if instance.id not in new_ids
        )
        target = max(0, original.target - sizes.get(group.id, 0))
        groups.append(msgspec.structs.replace(group, instances=old_instances, target=target))
    group_ids = {group.id for group in snapshot.groups}
    pod_uids = {pod.uid for pod in snapshot.pods}
    missing_groups = sizes.keys() - group_ids
    missing_pods = set(episode.pods) - pod_uids
    is_approximate = _shrunk(snapshot, episode) or bool(missing_groups) or bool(missing_pods)
    return Rebuilt(
        msgspec.structs.replace(bare, taken_at=end, pods=tuple(pods), groups=tuple(groups)),
        _memory_before(bare_memory, episode, new_ids),
        is_approximate,
        tuple(sorted(recreated_pods | lost_pods)),
        len(missing_pods),
        tuple(sorted(new_nodes)),
    )


def _memory_before(memory: Memory, episode: Episode, new_instance_ids: Set[str]) -> Memory:
    groups = dict(memory.groups)
    for name in episode.sizes.keys() & groups.keys():
        group_memory = groups[name]
        groups[name] = msgspec.structs.replace(
            group_memory,
            request=_requested_before(group_memory.request, episode.since),
            backoff=_failed_before(group_memory.backoff, episode.since),
            last_add=min(group_memory.last_add, episode.since),
            size_wrong_since=0.0,
        )
    unregistered = dict(memory.unregistered)
    for instance_id in new_instance_ids:
        unregistered.pop(instance_id, None)
    last_scale_up = min(memory.last_scale_up, episode.since)
    return msgspec.structs.replace(
        memory, groups=groups, unregistered=unregistered, last_scale_up=last_scale_up
    )


def _shrunk(snapshot: Snapshot, episode: Episode) -> bool:
    """Return whether a group is smaller than the episode made it."""
    sizes = episode.sizes
    first_size: dict[str, int] = {}
    for growth in episode.growths:
        least = first_size.get(growth.group, growth.before)
        first_size[growth.group] = min(growth.before, least)
    grown_groups = (group for group in snapshot.groups if group.id in sizes)
    return any(group.target < first_size[group.id] + sizes[group.id] for group in grown_groups)


def new_instances(snapshot: Snapshot, memory: Memory, episode: Episode) -> list[Instance]:
    """Return the instances that the episode added, as far as they exist."""
    sizes = episode.sizes
    instances: list[Instance] = []
    for group in snapshot.groups:
        if group.id in sizes:
            instances += _new_instances(group, sizes[group.id], snapshot, memory, episode.since)
    return instances


def _requested_before(request: ScaleUpRequest | None, since: float) -> ScaleUpRequest | None:
    """Return the purchases that were made before an episode. Their nodes were on their way then."""
    purchases = request.purchases if request is not None else ()
    return request_of(purchase for purchase in purchases if purchase.since <= since)


def _failed_before(backoff: Backoff | None, since: float) -> Backoff | None:
    """Return the back-off of a group, None if it began with this episode."""
    if backoff is None or backoff.last_failed > since:
        return None
    return backoff


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
