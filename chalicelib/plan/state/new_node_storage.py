"""What new nodes of each group offer of storage that drivers publish per node, and which groups may
be tried for a class of which that is unknown.

A stage of the pass: it gives templates the capacities that are known, judges the nodes that were
bought to find out, and says how many more may be bought. A node that has joined and has published
nothing until it counts as started is a miss, with the limits of attempts (purchase_attempts.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from chalicelib.model.memory import HOUR, GroupMemory, PurchaseAttempts
from chalicelib.model.node import Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.storage import StorageCapacity
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.local_storage import (
    STORAGE_OF,
    LocalStorage,
    assumed_capacity,
    capacities_of_new_nodes,
    capacity_to_come,
    is_same_type,
)
from chalicelib.plan.state.node_templates import Template
from chalicelib.plan.state.purchase_attempts import FORGIVEN, MOST_STRAYS, NONE, is_empty, wait_for
from chalicelib.plan.state.readiness import Bucket


def with_new_node_storage(state: ClusterState) -> ClusterState:
    """Return the cluster state with the capacities of new nodes. What is known of a group that
    could not be read stays."""
    storage = state.snapshot.storage
    if not storage.publishing:
        return state
    local = LocalStorage(
        storage, state.snapshot.nodes, state.node_labels, state.memory.templates.values()
    )
    if not local.classes:
        return state
    stage = _Stage(state, local)
    groups = {name: stage.group(group) for name, group in state.groups.items()}
    changed = {}
    for name, group in groups.items():
        if group.memory != state.groups[name].memory:
            changed[name] = group.memory
    memory = state.memory
    if changed:
        memory = msgspec.structs.replace(memory, groups={**memory.groups, **changed})
    of_new_nodes = capacities_of_new_nodes({name: group.storage for name, group in groups.items()})
    to_come = (*stage.to_come, *of_new_nodes)
    return msgspec.structs.replace(state, groups=groups, memory=memory, storage_to_come=to_come)


def attempt_key(storage_class: str) -> str:
    """Return what stands for a class among the misses of a group's attempts.
    No zone contains a space."""
    return f"storage {storage_class}"


class _Stage:
    """The groups of one pass. to_come: what nodes are taken to publish."""

    def __init__(self, state: ClusterState, local: LocalStorage) -> None:
        self.state = state
        self.local = local
        self.to_come: list[StorageCapacity] = []
        self._users = _Users(state.snapshot)

    def group(self, group: NodeGroupState) -> NodeGroupState:
        """Return a group with the storage of its new nodes."""
        template = group.template
        if template is None or group.group.error:
            return group
        row = self.state.memory.templates.get(group.id)
        known = self.local.of_new_node(template.node, group.nodes, row, self._is_unused)
        memory = self._judged(group, known)
        missed = {key for _, key in (memory.attempts or NONE).missed}
        certain = {
            name: amount for name, amount in known.items() if attempt_key(name) not in missed
        }
        judged = msgspec.structs.replace(group, memory=memory)
        others = (name for name in self.local.classes if name not in certain)
        unknown = [name for name in others if not self._lacks(group, name)]
        rooms: dict[str, Reason | None] = {}
        if not group.zones:
            rooms = {name: self._room(judged, name) for name in unknown}
        self.to_come += [assumed_capacity(group.id, name, known.get(name)) for name in rooms]
        young = [node for node in group.nodes if self._is_young(node, group)]
        for name in (*certain, *unknown):
            for node in young:
                if not self.local.has_published(node.name, name):
                    self.to_come.append(capacity_to_come(node, name, known.get(name)))
        return msgspec.structs.replace(
            judged,
            template=_labelled(template, group.id),
            storage=certain,
            learnt_storage=known,
            storage_room=rooms,
        )

    def _is_unused(self, node: Node, storage_class: str) -> bool:
        for pod in self.state.occupancy.on(node.name):
            if storage_class in self._users.classes_of(pod.cls, pod.name):
                return False
        return True

    def _startup(self, group: NodeGroupState) -> float:
        own = group.group.options.max_node_startup_time
        return self.state.options.max_node_startup_time if own is None else own

    def _is_young(self, node: Node, group: NodeGroupState) -> bool:
        return self.state.now - node.created < self._startup(group)

    def _lacks(self, group: NodeGroupState, storage_class: str) -> bool:
        """Return whether the group's nodes show that new ones will publish nothing: those of its
        type have started, and none has."""
        assert group.template is not None
        template_node = group.template.node
        strays = (group.memory.attempts or NONE).strays

        def has_started(node: Node) -> bool:
            if not is_same_type(node, template_node) or self._is_young(node, group):
                return False
            return self.state.buckets[node.name] is Bucket.READY and node.name not in strays

        if not any(map(has_started, group.nodes)):
            return False
        return not any(self.local.has_published(node.name, storage_class) for node in group.nodes)

    def _judged(self, group: NodeGroupState, known: Mapping[str, int]) -> GroupMemory:
        """Return the group's memory with what has come of attempts."""
        attempts = group.memory.attempts or NONE
        opened = dict(attempts.storage)
        missed = list(attempts.missed)
        strays = list(attempts.strays)
        late = self._late_nodes(group)
        for name in self.local.classes:
            key = attempt_key(name)
            since = opened.get(name)
            joined = []
            if since is not None:
                joined = [node for node in group.nodes if node.created >= since - 1.0]
            if any(self.local.has_published(node.name, name) for node in joined):
                opened.pop(name, None)
                missed = [(at, FORGIVEN if missing == key else missing) for at, missing in missed]
                continue
            silent = [node for node in late if not self.local.has_published(node.name, name)]
            expected = since is not None or name in known
            fresh = [node.name for node in silent if expected and node.name not in strays]
            missed += [(self.state.now, key)] * len(fresh)
            strays += fresh
            is_lost = not group.upcoming and not joined
            if since is not None and (fresh or is_lost):
                opened.pop(name, None)
        after = msgspec.structs.replace(
            attempts, storage=opened, missed=tuple(missed), strays=tuple(strays[-MOST_STRAYS:])
        )
        if after == attempts:
            return group.memory
        stored = None if after == PurchaseAttempts() else after
        return msgspec.structs.replace(group.memory, attempts=stored)

    def _late_nodes(self, group: NodeGroupState) -> list[Node]:
        """Return the nodes whose time to start ended within the last hour."""
        startup = self._startup(group)
        ages = ((node, self.state.now - node.created) for node in group.nodes)
        late = (node for node, age in ages if startup <= age < startup + HOUR)
        return [node for node in late if self.state.buckets[node.name] is not Bucket.DELETED]

    def _room(self, group: NodeGroupState, storage_class: str) -> Reason | None:
        """Return why no node is bought to find out what it offers of a
        class, None if one may be."""
        local, now = self.local, self.state.now
        silent = [node for node in group.nodes if not local.has_published(node.name, storage_class)]
        young = next((node.name for node in silent if self._is_young(node, group)), "")
        empty = next((node.name for node in silent if is_empty(node, self.state)), "")
        until = wait_for(group.memory.attempts, attempt_key(storage_class), now)
        checks: tuple[tuple[bool, dict[str, str | float]], ...] = (
            (group.upcoming > 0, {"detail": "a node of the group has not joined yet"}),
            (bool(young), {"detail": f"node {young} has not published its capacity yet"}),
            (bool(empty), {"detail": f"node {empty} has published no capacity and is empty"}),
            (
                until > now,
                {"detail": "the last new node has published no capacity", "until": until},
            ),
        )
        refused = next((values for fails, values in checks if fails), None)
        if refused is None:
            return None
        return Reason.of(
            ReasonCode.STORAGE_NOT_KNOWN, group=group.id, storage=storage_class, **refused
        )


def _labelled(template: Template, group: str) -> Template:
    """Return a template whose nodes have the capacities of their group."""

    def labelled(node: Node) -> Node:
        return msgspec.structs.replace(node, labels={**node.labels, STORAGE_OF: group})

    in_zones = {zone: labelled(node) for zone, node in template.in_zones.items()}
    return msgspec.structs.replace(template, node=labelled(template.node), in_zones=in_zones)


class _Users:
    """The storage classes of the claims of pods."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._classes = snapshot.classes
        self._claims = {claim.key: claim.storage_class for claim in snapshot.storage.claims}

    def classes_of(self, cls: int, pod: str) -> Iterable[str]:
        """Return the storage classes of a pod's claims."""
        pod_class = self._classes[cls]
        for volume in pod_class.volumes:
            claim = f"{pod}-{volume.name}" if volume.kind == "ephemeral" else volume.claim
            if claim:
                yield self._claims.get(f"{pod_class.namespace}/{claim}", "")
