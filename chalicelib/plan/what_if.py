"""Builds what-if inputs: the same cluster with more pods, without some nodes, or with other
bounds. A snapshot and a memory are derived from a snapshot and a memory, so that the
planner needs no special case.

This module makes no decisions and writes nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.node import Node
from chalicelib.model.operation import OperationKind
from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.quantity import parse_duration
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.state.node_labels import NodeLabels
from chalicelib.plan.state.node_templates import learn, settled_node, stated_template
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.timeouts import provision_time

# set by the API server on bound pods
_COPIED = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_ENDED = ("Succeeded", "Failed")
_SETTLED = 31.0  # seconds after which the planner no longer waits for more pods (2, with GPUs 30)


class AddedPods(msgspec.Struct, frozen=True):
    """Pods to add: `count` of one class. keep_name: a single pod with its own name,
    which is used if it is free."""

    namespace: str
    name: str
    cls: PodClass
    count: int = 1
    keep_name: bool = False


class RemovedNode(msgspec.Struct, frozen=True):
    """The pods of a removed node. again: pods that need a node again; lost:
    pods that nothing recreates."""

    node: str
    group: str = ""
    again: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class GroupBounds(msgspec.Struct, frozen=True):
    """A different minimum, maximum or target size for a group; None leaves it unchanged."""

    min: int | None = None
    max: int | None = None
    size: int | None = None


def with_pods(
    snapshot: Snapshot, additions: Sequence[AddedPods], now: float, options: Options
) -> tuple[Snapshot, tuple[tuple[str, ...], ...]]:
    """Return the snapshot with added pods that the scheduler has refused, old enough to count;
    and their names per entry.

    If a name is taken, and for several pods, `-added-1`, `-added-2` … is appended.
    """
    classes = _Classes(snapshot.classes)
    used = {pod.key for pod in snapshot.pods}
    pods, names = list(snapshot.pods), []
    for addition in additions:
        at = classes.intern(addition.cls)
        space = addition.namespace
        added = [
            _refused(Pod(space, name, f"added-{space}-{name}", at), addition.cls, now, options)
            for name in _free_names(addition, used)
        ]
        pods += added
        names.append(tuple(pod.key for pod in added))
    pods.sort(key=lambda pod: (pod.namespace, pod.name))
    return msgspec.structs.replace(snapshot, pods=tuple(pods), classes=tuple(classes.all)), tuple(
        names
    )


class _Classes:
    """A snapshot's classes and the added ones."""

    def __init__(self, pod_classes: Sequence[PodClass]) -> None:
        self.all = list(pod_classes)
        self._index = {_value(cls): at for at, cls in enumerate(pod_classes)}

    def intern(self, pod_class: PodClass) -> int:
        """Return the index of an equal class, or of this one after adding it."""
        at = self._index.setdefault(_value(pod_class), len(self.all))
        if at == len(self.all):
            self.all.append(pod_class)
        return at


def _value(pod_class: PodClass) -> bytes:
    return msgspec.msgpack.encode(pod_class, order="deterministic")


def as_new(pod_class: PodClass, node: Node | None) -> PodClass:
    """Return the class of a pod as its controller would recreate it: without the labels that
    binding it to `node` copied, and with ephemeral volumes whose claims do not exist yet."""
    own = {
        key: value
        for key, value in pod_class.labels.items()
        if node is None or key not in _COPIED or node.labels.get(key) != value
    }
    volumes = tuple(
        msgspec.structs.replace(volume, claim="") if volume.template is not None else volume
        for volume in pod_class.volumes
    )
    return msgspec.structs.replace(pod_class, labels=own, volumes=volumes)


def _free_names(added_pods: AddedPods, used: set[str]) -> list[str]:
    """Return free names and reserve them."""
    space, names = added_pods.namespace, []
    if added_pods.keep_name and added_pods.count == 1 and f"{space}/{added_pods.name}" not in used:
        names.append(added_pods.name)
    numbers = itertools.count(1)
    while len(names) < added_pods.count:
        name = f"{added_pods.name}-added-{next(numbers)}"
        if f"{space}/{name}" not in used:
            names.append(name)
    used.update(f"{space}/{name}" for name in names)
    return names


def _refused(pod: Pod, pod_class: PodClass, now: float, options: Options) -> Pod:
    """Return the pod without a node, as it is some time after the scheduler has refused it: its age
    is above every waiting time. Scheduling gates still block it."""
    try:
        own = parse_duration(pod_class.scale_up_delay) if pod_class.scale_up_delay else 0.0
    except BadInput:
        own = 0.0
    return msgspec.structs.replace(
        pod,
        node="",
        nominated="",
        phase="Pending",
        scheduled="False",
        scheduled_message="",
        scheduled_reason="SchedulingGated" if pod_class.gates else "Unschedulable",
        created=now - max(_SETTLED, own + 1.0, options.new_pod_scale_up_delay + 1.0),
    )


def without_nodes(
    snapshot: Snapshot, memory: Memory, names: Sequence[str], now: float, options: Options
) -> tuple[Snapshot, Memory, tuple[RemovedNode, ...]]:
    """Return the cluster without these nodes: each Node, its instance and one of the group's
    target size are removed.

    Their pods need a node again if a controller recreates them; the rest goes with the node. If a
    group's template depends on a removed node, it is learned first. Unknown names are ignored.
    """
    unwanted = set(names)
    removed = {node.name: node for node in snapshot.nodes if node.name in unwanted}
    group_of: dict[str, str] = {}
    templates = dict(memory.templates)
    groups = []
    node_labels = NodeLabels.of(snapshot)
    for group in snapshot.groups:
        own = {node.name: node for node in members_of(group, removed.values())}
        if own:
            group_of.update(dict.fromkeys(own, group.id))
            settled = settled_node(members_of(group, snapshot.nodes), now, options)
            known = memory.templates.get(group.id)
            stated = stated_template(group, options)
            learnt = learn(settled, known, now, options, node_labels, stated)
            if learnt is not None:
                templates[group.id] = learnt
        groups.append(_without_instances(group, own))
    classes = _Classes(snapshot.classes)
    pods, again, lost = _pods_without_nodes(snapshot, removed, classes, now, options)
    operations = tuple(
        op
        for op in memory.operations
        if op.spec.kind not in (OperationKind.DELETE_NODES, OperationKind.RESTART_NODE)
        or not {target.node for target in op.spec.targets} <= set(removed)
    )
    csi_nodes = tuple(
        csi_node for csi_node in snapshot.storage.csi_nodes if csi_node.name not in removed
    )
    return (
        msgspec.structs.replace(
            snapshot,
            nodes=tuple(node for node in snapshot.nodes if node.name not in removed),
            pods=pods,
            classes=tuple(classes.all),
            groups=tuple(groups),
            storage=msgspec.structs.replace(snapshot.storage, csi_nodes=csi_nodes),
        ),
        msgspec.structs.replace(
            memory,
            templates=templates,
            operations=operations,
            nodes={name: node for name, node in memory.nodes.items() if name not in removed},
        ),
        tuple(
            RemovedNode(
                name, group_of.get(name, ""), tuple(again.get(name, ())), tuple(lost.get(name, ()))
            )
            for name in sorted(removed)
        ),
    )


def all_pending(snapshot: Snapshot, now: float, options: Options) -> Snapshot:
    """Return the cluster without its nodes and groups, but for those that could be opened. Every
    pod waits that does not come with a node and has not ended; DaemonSets remain."""
    classes = _Classes(snapshot.classes)
    nodes = {node.name: node for node in snapshot.nodes}
    pods = []
    for pod in snapshot.pods:
        cls = snapshot.classes[pod.cls]
        if pod.deleted or cls.mirror or cls.is_daemonset or pod.phase in _ENDED:
            continue
        new_class = classes.intern(as_new(cls, nodes.get(pod.node)))
        again = msgspec.structs.replace(pod, cls=new_class)
        pods.append(_refused(again, cls, now, options))
    return msgspec.structs.replace(
        snapshot,
        nodes=(),
        groups=(),
        pods=tuple(pods),
        classes=tuple(classes.all),
        storage=msgspec.structs.replace(snapshot.storage, csi_nodes=()),
    )


def members_of(group: NodeGroup, nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return those nodes that are one of a group's instances, by the
    instance's node or provider id."""
    names = {instance.node for instance in group.instances}
    ids = {instance.id for instance in group.instances} - {""}
    return tuple(node for node in nodes if node.name in names or node.provider_id in ids)


def _without_instances(group: NodeGroup, removed: Mapping[str, Node]) -> NodeGroup:
    if not removed:
        return group
    ids = {node.provider_id for node in removed.values() if node.provider_id}
    instances = tuple(i for i in group.instances if i.node not in removed and i.id not in ids)
    return msgspec.structs.replace(
        group, instances=instances, target=max(0, group.target - len(removed))
    )


def _pods_without_nodes(
    snapshot: Snapshot, removed: Mapping[str, Node], classes: _Classes, now: float, options: Options
) -> tuple[tuple[Pod, ...], dict[str, list[str]], dict[str, list[str]]]:
    """Return the pods afterwards, and per removed node: those that are
    recreated and those that are not."""
    pods: list[Pod] = []
    again: dict[str, list[str]] = {}
    lost: dict[str, list[str]] = {}
    for pod in snapshot.pods:
        cls = snapshot.classes[pod.cls]
        if not pod.node and pod.nominated in removed:
            pods.append(msgspec.structs.replace(pod, nominated=""))
        elif pod.node not in removed:
            pods.append(pod)
        elif pod.deleted or cls.mirror or cls.is_daemonset:
            continue
        elif cls.owner is None:
            lost.setdefault(pod.node, []).append(pod.key)
        else:
            again.setdefault(pod.node, []).append(pod.key)
            recreated = msgspec.structs.replace(
                pod, cls=classes.intern(as_new(cls, removed[pod.node]))
            )
            pods.append(_refused(recreated, cls, now, options))
    return tuple(pods), again, lost


def with_bounds(
    snapshot: Snapshot, memory: Memory, name: str, bounds: GroupBounds, now: float, options: Options
) -> tuple[Snapshot, Memory]:
    """Return the cluster with different bounds or another target size for one
    group, which must exist.

    size: the target requested from the provider; nodes beyond the existing ones count as
    upcoming, and nothing else is in flight for the group. Raises BadInput for a size below the
    number of existing nodes.
    """
    group = next(group for group in snapshot.groups if group.id == name)
    place = f"--group {name}"
    changed = msgspec.structs.replace(
        group,
        min=group.min if bounds.min is None else bounds.min,
        max=group.max if bounds.max is None else bounds.max,
    )
    if changed.max < changed.min:
        raise BadInput(place, f"max {changed.max} is below min {changed.min}", "give both")
    if bounds.size is not None:
        existing = len(members_of(group, snapshot.nodes))
        if bounds.size < existing:
            problem = f"size {bounds.size} is below the {existing} nodes that are there"
            raise BadInput(place, problem, "say which ones are gone with --remove-node")
        if bounds.size > changed.max:
            raise BadInput(place, f"size {bounds.size} is above max {changed.max}", "give max= too")
        changed = msgspec.structs.replace(changed, target=bounds.size)
        memory = _with_request(memory, changed, bounds.size - existing, now, options)
    groups = tuple(changed if group.id == name else group for group in snapshot.groups)
    return msgspec.structs.replace(snapshot, groups=groups), memory


def _with_request(
    memory: Memory, group: NodeGroup, increase: int, now: float, options: Options
) -> Memory:
    """Return the memory in which exactly this many nodes of a group are upcoming."""
    request = (
        ScaleUpRequest(increase, now, now + provision_time(group, options))
        if increase > 0
        else None
    )
    before = memory.groups.get(group.id, GroupMemory())
    operations = tuple(
        op
        for op in memory.operations
        if op.spec.group != group.id
        or op.spec.kind in (OperationKind.DELETE_NODES, OperationKind.RESTART_NODE)
    )
    groups = {**memory.groups, group.id: msgspec.structs.replace(before, request=request)}
    return msgspec.structs.replace(memory, operations=operations, groups=groups)
