"""Hours of passes of the whole planner over a cluster whose bought nodes join as real ones do,
which is not always as their group says: with labels or devices that come late or never, in another
zone, with another name, or not at all.

Everything is an API object, read by the snapshot's own code. Pods are placed by the scheduler
of infra/emulators, which shares no code with the planner. Operations succeed at once and
change memory as executors do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from chalicelib.cluster.snapshot_builder import SnapshotBuilder
from chalicelib.model.group import GroupOptions, Instance, NodeGroup
from chalicelib.model.memory import Memory
from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Succeeded
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import ObservedGroups, Snapshot
from chalicelib.operations.memory_updates import memory_updates, replacement_update
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.state.managed_groups import is_candidate
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from infra.emulators.controllers.scheduler.cluster_view import Surroundings
from infra.emulators.controllers.scheduler.scheduler import schedule_once

Json = dict[str, Any]
Shape = Callable[[str, float], Json]
"""(name of the node, seconds since it joined) -> its Node object at that time."""

START = 1_800_000_000.0
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
_OLD = 7200.0  # the age of what exists when a story begins
_MOST_PASSES = 10_000
_SURROUNDINGS = {
    "PersistentVolumeClaim": "claims",
    "PersistentVolume": "volumes",
    "StorageClass": "storage_classes",
    "CSINode": "csi_nodes",
    "Namespace": "namespaces",
    "CSIDriver": "csi_drivers",
    "CSIStorageCapacity": "capacities",
}


def instant(seconds: float) -> str:
    """Return epoch seconds as the API writes them."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node_object(
    name: str,
    cpu: str = "4",
    memory: str = "16Gi",
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Json] = (),
    extended: Mapping[str, str] | None = None,
) -> Json:
    """Return a Node; the story adds its times, identity and conditions.
    extended: further resources."""
    amounts = {"cpu": cpu, "memory": memory, "pods": "110", **(extended or {})}
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": {HOSTNAME_LABEL: name, **(labels or {})}},
        "spec": {"taints": list(taints)},
        "status": {"capacity": amounts, "allocatable": dict(amounts)},
    }


def taint(key: str, effect: str = "NoSchedule") -> Json:
    """Return a taint."""
    return {"key": key, "effect": effect}


def node_model(node: Json) -> Node:
    """Return a Node object as the planner sees it."""
    return _read([node]).nodes[0]


class Machine(msgspec.Struct):
    """A machine of a group. joins_at: epoch seconds at which its Node appears; inf: never. says:
    what else its vendor says of it, as fields of Instance."""

    name: str
    bought_at: float
    joins_at: float
    says: dict[str, Any] = {}


class Group(msgspec.Struct):
    """A node group of the story. shape: what its machines are when they join. template: what its
    vendor says. more: further fields of NodeGroup."""

    id: str
    shape: Shape
    joins_after: float
    template: Node | None
    min: int
    max: int
    machines: list[Machine]
    made: int = 0
    more: dict[str, Any] = {}


class HourOfJoins:
    """A cluster, played pass by pass.

    objects: everything that does not change by itself (claims, classes, CSINodes …); a test may
    change the list, and `around` returns objects that depend on the present nodes. bought, removed:
    (epoch seconds, group, nodes). plans: the plan of each pass. options: of the policy.
    """

    def __init__(
        self, *objects: Json, policy: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        fields = {"name": "test", "mode": Mode.ACTIVE, **(policy or {})}
        self.policy = Policy(options=msgspec.structs.replace(Options(), **options), **fields)
        self.objects: list[Json] = list(objects)
        self.around: Callable[[list[Json]], list[Json]] = lambda _: []
        self.memory = Memory()
        self.now = START
        self.groups: dict[str, Group] = {}
        self.pods: dict[str, Json] = {}
        self.bought: list[tuple[float, str, int]] = []
        self.removed: list[tuple[float, str, int]] = []
        self.plans: list[Plan] = []
        self._pods_made = 0
        self._templates: dict[str, Json] = {}

    # -- the beginning

    def group(
        self,
        name: str,
        shape: Shape | None = None,
        *,
        size: int = 0,
        template: Json | None = None,
        joins_after: float = 90.0,
        min: int = 0,  # noqa: A002 - the name of the field
        max: int = 100,  # noqa: A002 - the name of the field
        **more: Any,
    ) -> Group:
        """Add a group with `size` old nodes `<name>-<n>`. template: the vendor's Node. more: fields
        of NodeGroup, or of its options; a managed group exists as soon as a node of it is bought.
        """
        options = {key: more.pop(key) for key in GroupOptions.__struct_fields__ if key in more}
        group = Group(
            name,
            shape or _as_promised,
            joins_after,
            node_model(template) if template is not None else None,
            min,
            max,
            [],
            more={**more, "options": GroupOptions(**options)},
        )
        self.groups[name] = group
        for _ in range(size):
            self._buy(group, self.now - _OLD, 0.0)
        return group

    def deploy(
        self, name: str, replicas: int, cpu: str = "1", memory: str = "1Gi", **spec: Any
    ) -> list[str]:
        """Add pods of a ReplicaSet; pods of removed nodes come back. spec: further fields
        of the pod's spec; extended: further requests; on: the node on which they run
        already. Returns their names."""
        return [self._add_pod(name, cpu, memory, dict(spec)) for _ in range(replicas)]

    # -- time

    def play(self, seconds: float, every: float = 20.0) -> None:
        """Run passes for that long."""
        end = self.now + seconds
        for _ in range(_MOST_PASSES):
            if self.now >= end:
                return
            self.run_pass()
            self.now += every
        raise AssertionError(f"more than {_MOST_PASSES} passes")

    def run_pass(self) -> Plan:
        """Let the scheduler place what it can, run one pass, and carry out its operations."""
        self.schedule()
        nodes = self.nodes()
        items = [*nodes, *self.pods.values(), *self.objects, *self.around(nodes)]
        groups = tuple(self._reading(group) for group in self.groups.values())
        existing = tuple(group for group in groups if not is_candidate(group))
        candidates = tuple(group for group in groups if is_candidate(group))
        observed = ObservedGroups(existing, candidates=candidates)
        snapshot = _builder(items).snapshot("test", self.now, observed)
        plan, self.memory = plan_cluster(snapshot, self.policy, self.memory, self.now, 0)
        self.plans.append(plan)
        for operation in plan.operations:
            self._carry_out(operation)
        return plan

    def schedule(self) -> None:
        """Bind the pods that fit a node; the others are refused."""
        nodes = self.nodes()
        present = {node["metadata"]["name"] for node in nodes}
        for pod in list(self.pods.values()):
            if pod["spec"].get("nodeName", "") not in {"", *present}:
                self._evict(pod)
        items = [*self.objects, *self.around(nodes)]
        around = {
            field: tuple(item for item in items if item["kind"] == kind)
            for kind, field in _SURROUNDINGS.items()
        }
        ready = [node for node in nodes if not _not_ready(node)]
        for decision in schedule_once(ready, self.pods.values(), Surroundings(**around)):
            pod = self.pods[decision.pod.name]
            if decision.node is None:
                self._refuse(pod, decision.message)
            else:
                pod["spec"]["nodeName"] = decision.node
                pod["status"] = {
                    "phase": "Running",
                    "conditions": [_condition("PodScheduled", "True", self.now)],
                }

    # -- what a test asks

    def nodes(self) -> list[Json]:
        """Return the present Node objects."""
        return [
            self._node(group, machine)
            for group in self.groups.values()
            for machine in group.machines
            if machine.joins_at <= self.now
        ]

    def size(self, group: str) -> int:
        """Return how many machines a group has, joined or not."""
        return len(self.groups[group].machines)

    def bought_nodes(self, group: str = "") -> int:
        """Return how many nodes were bought, of one group or of all."""
        return sum(count for _, name, count in self.bought if group in ("", name))

    def pending(self) -> list[str]:
        """Return the pods without a node."""
        return sorted(name for name, pod in self.pods.items() if not pod["spec"].get("nodeName"))

    def delete_pods(self, *names: str) -> None:
        """Delete pods; they do not come back."""
        for name in names:
            del self.pods[name]

    def lose_machine(self, group: str, name: str) -> None:
        """Let a machine and its Node disappear by somebody else's act."""
        machines = self.groups[group].machines
        machines[:] = [machine for machine in machines if machine.name != name]

    # -- inside

    def _add_pod(self, owner: str, cpu: str, memory: str, spec: Json) -> str:
        self._pods_made += 1
        name = f"{owner}-{self._pods_made:04d}"
        template: Json = {"cpu": cpu, "memory": memory, "spec": dict(spec)}
        requests = {"cpu": cpu, "memory": memory, **spec.pop("extended", {})}
        labels = spec.pop("labels", {"app": owner})
        node = spec.pop("on", "")
        template["spec"].pop("on", None)
        created = self.now - (_OLD if node else 0.0)
        pod: Json = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "labels": labels,
                "creationTimestamp": instant(created),
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "ReplicaSet",
                        "name": owner,
                        "uid": owner,
                        "controller": True,
                    }
                ],
            },
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}], **spec},
            "status": {"phase": "Pending"},
        }
        if node:
            pod["spec"]["nodeName"] = node
            pod["status"] = {
                "phase": "Running",
                "conditions": [_condition("PodScheduled", "True", created)],
            }
        self.pods[name] = pod
        self._templates[name] = template
        return name

    def _evict(self, pod: Json) -> None:
        """Delete a pod; its ReplicaSet makes another one."""
        name, owner = pod["metadata"]["name"], pod["metadata"]["ownerReferences"][0]["name"]
        del self.pods[name]
        template = self._templates.pop(name)
        self._add_pod(owner, template["cpu"], template["memory"], dict(template["spec"]))

    def _refuse(self, pod: Json, message: str) -> None:
        conditions = pod["status"].get("conditions", ())
        refused_at = conditions[0]["lastTransitionTime"] if conditions else instant(self.now)
        refusal = _condition("PodScheduled", "False", self.now) | {
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": refused_at,
        }
        pod["status"] = {"phase": "Pending", "conditions": [refusal]}

    def _node(self, group: Group, machine: Machine) -> Json:
        node = group.shape(machine.name, self.now - machine.joins_at)
        joined = instant(machine.joins_at)
        node["metadata"] |= {"uid": f"uid-{machine.name}", "creationTimestamp": joined}
        node["spec"]["providerID"] = f"test://{group.id}/{machine.name}"
        node["status"].setdefault("conditions", [_condition("Ready", "True", machine.joins_at)])
        return node

    def _reading(self, group: Group) -> NodeGroup:
        """Return what the vendor says of a group."""
        instances = tuple(
            Instance(
                id=f"test://{group.id}/{machine.name}",
                handle=machine.name,
                node=machine.name if machine.joins_at <= self.now else "",
                created=machine.bought_at,
                **machine.says,
            )
            for machine in group.machines
        )
        reading = NodeGroup(
            id=group.id,
            provider="test",
            min=group.min,
            max=group.max,
            target=len(group.machines),
            instances=instances,
            template=group.template,
            **group.more,
        )
        if reading.managed is None:
            return reading
        managed = msgspec.structs.replace(reading.managed, exists=bool(group.made))
        return msgspec.structs.replace(reading, managed=managed)

    def _buy(self, group: Group, at: float, joins_after: float) -> None:
        group.made += 1
        group.machines.append(Machine(f"{group.id}-{group.made}", at, at + joins_after))

    def _carry_out(self, operation: Operation) -> None:
        spec = operation.spec
        group = self.groups[spec.group]
        if spec.kind is OperationKind.SCALE_UP:
            count = spec.to_size - len(group.machines)
            self.bought.append((self.now, group.id, count))
            for _ in range(count):
                self._buy(group, self.now, group.joins_after)
        elif spec.kind in {OperationKind.DELETE_NODES, OperationKind.DELETE_INSTANCES}:
            self._remove(group, operation)
        elif spec.kind is OperationKind.DECREASE_TARGET:
            group.machines[:] = group.machines[: spec.to_size]
        self._remember(operation)

    def _remove(self, group: Group, operation: Operation) -> None:
        handles = {target.handle or target.node for target in operation.spec.targets}
        self.removed.append((self.now, group.id, len(handles)))
        group.machines[:] = [machine for machine in group.machines if machine.name not in handles]
        for pod in [
            pod for pod in self.pods.values() if pod["spec"].get("nodeName", "") in handles
        ]:
            self._evict(pod)

    def _remember(self, operation: Operation) -> None:
        """Change memory as the executor does when an operation has succeeded."""
        outcome = Succeeded()
        of_group, of_cluster = memory_updates(operation, outcome, self.policy.options, self.now)
        if of_group is not None:
            known = of_group(self.memory.groups[operation.spec.group])
            groups = {**self.memory.groups, operation.spec.group: known}
            self.memory = msgspec.structs.replace(self.memory, groups=groups)
        if of_cluster is not None:
            self.memory = of_cluster(self.memory)
        replaced = replacement_update(operation, outcome)
        row = self.memory.replacements.get(operation.spec.replacement)
        if replaced is not None and row is not None:
            rows = {**self.memory.replacements, row.id: replaced(row)}
            self.memory = msgspec.structs.replace(self.memory, replacements=rows)


def _as_promised(name: str, age: float) -> Json:
    return node_object(name)


def _condition(kind: str, status: str, changed: float) -> Json:
    return {"type": kind, "status": status, "lastTransitionTime": instant(changed)}


def _not_ready(node: Json) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] != "True"
        for condition in node["status"]["conditions"]
    )


def _builder(items: Sequence[Json]) -> SnapshotBuilder:
    builder = SnapshotBuilder()
    builder.add_page(msgspec.json.encode({"kind": "List", "items": items}), "test")
    return builder


def _read(items: Sequence[Json]) -> Snapshot:
    snapshot = _builder(items).snapshot("test", START)
    assert not snapshot.gaps, snapshot.gaps
    return snapshot
