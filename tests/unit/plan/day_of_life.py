"""Hours of passes of the whole planner over one group, whose nodes come, fall sick
and go as the story says.

Operations end before the next pass, with what their executors remember of it. An evicted pod waits
for a node with room; a bought node joins after a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.node import Condition
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Succeeded
from chalicelib.model.plan import Plan
from chalicelib.operations.memory_updates import memory_updates, replacement_update
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.node_lifecycle import NodeLifecycle
from tests.builders import NOW, ClusterBuilder, cluster, node
from tests.unit.plan.lifecycle_fixture import HOUR, OLD_NODE, policy

JOINS_AFTER = 60.0
PODS = 4
"""Pods of one core that fill a node."""


class StoryNode(msgspec.Struct):
    """A node. outdated: what its vendor says of it. born: when its vendor says that
    it was made, 0.0: nothing."""

    name: str
    created: float
    outdated: str = ""
    born: float = 0.0
    sick_since: float = 0.0
    well_since: float = OLD_NODE


class StoryPod(msgspec.Struct):
    """A pod of one core."""

    name: str
    owner: str
    node: str
    created: float


class DayOfLife:
    """made: changes each node that joins. sickens: whether a node is sick in this pass, given its
    pods. scan: seconds between two passes."""

    def __init__(
        self,
        lifecycle: NodeLifecycle,
        nodes: int = 2,
        *,
        made: Callable[[StoryNode], None] = lambda _: None,
        sickens: Callable[[StoryNode, list[StoryPod]], bool] = lambda _, __: False,
        group: dict[str, Any] | None = None,
        scan: float = 300.0,
        **more: Any,
    ) -> None:
        self.policy: Policy = policy(lifecycle, **more)
        self.made, self.sickens, self.fields = made, sickens, {"max": 10, **(group or {})}
        self.now, self.memory, self.scan = NOW, Memory(), scan
        self.nodes = {f"old-{at}": StoryNode(f"old-{at}", OLD_NODE) for at in range(nodes)}
        self.pods = [
            StoryPod(f"{name}-{at}", f"app-{name}", name, OLD_NODE)
            for name in self.nodes
            for at in range(PODS)
        ]
        self.joins: list[float] = []
        self.template: dict[str, str] = {}
        self.bought = self.evicted = 0
        self.plan: Plan | None = None
        self.said: list[tuple[float, str, str]] = []

    @property
    def group(self) -> GroupMemory:
        return self.memory.groups["g"]

    def play(self, hours: float) -> DayOfLife:
        """Plays passes for so long."""
        for _ in range(int(hours * HOUR / self.scan)):
            self.step()
        return self

    def step(self) -> None:
        """Plays one pass, and lets its operations end."""
        self._join()
        self._bind()
        for known in self.nodes.values():
            sick = self.sickens(known, [pod for pod in self.pods if pod.node == known.name])
            was_sick = bool(known.sick_since)
            known.well_since = self.now if was_sick and not sick else known.well_since
            known.sick_since = (known.sick_since or self.now) if sick else 0.0
        plan, memory = plan_cluster(self._build().snapshot(), self.policy, self.memory, self.now, 0)
        self.plan, self.memory = plan, msgspec.structs.replace(memory, operations=())
        self.said += [
            (self.now, note.code.value, str(note.params.get("detail", ""))) for note in plan.notes
        ]
        for operation in plan.operations:
            self._end(operation)
        self.now += self.scan

    def notes(self, code: str) -> list[str]:
        """Details of the notes of a code so far, each once."""
        return list(dict.fromkeys(detail for _, said, detail in self.said if said == code))

    def _join(self) -> None:
        for at in [at for at in self.joins if at <= self.now]:
            self.joins.remove(at)
            self.bought += 1
            new = StoryNode(f"new-{self.bought:03}", self.now)
            self.made(new)
            self.nodes[new.name] = new

    def _bind(self) -> None:
        for pod in self.pods:
            if not pod.node:
                used = [sum(other.node == name for other in self.pods) for name in self.nodes]
                free = [name for name, taken in zip(self.nodes, used, strict=True) if taken < PODS]
                pod.node = free[-1] if free else ""

    def _build(self) -> ClusterBuilder:
        build = cluster()
        for known in self.nodes.values():
            status = ("True", known.sick_since) if known.sick_since else ("False", known.well_since)
            conditions = (
                Condition("Ready", "True", "", known.created),
                Condition("KernelDeadlock", status[0], "", status[1]),
            )
            fields = {"created": known.created, "conditions": conditions}
            build.node(known.name, "4", "16Gi", group="g", **fields)
        for pod in self.pods:
            if pod.node:
                build.running(
                    pod.node, 1, "1", "2Gi", name=pod.name, owner=pod.owner, created=pod.created
                )
            else:
                build.pending(1, "1", "2Gi", owner=pod.owner)
        target = len(self.nodes) + len(self.joins)
        build.group(
            "g",
            template=node("new", "4", "16Gi", labels=self.template),
            target=target,
            **self.fields,
        )
        [group] = build.groups
        by_name = {known.name: known for known in self.nodes.values()}
        instances = tuple(
            msgspec.structs.replace(
                instance,
                outdated=by_name[instance.node].outdated,
                created=by_name[instance.node].born,
            )
            if instance.node in by_name
            else instance
            for instance in group.instances
        )
        build.groups[0] = msgspec.structs.replace(group, instances=instances)
        return build

    def _end(self, operation: Operation) -> None:
        spec = operation.spec
        if spec.kind is OperationKind.SCALE_UP:
            self.joins += [self.now + JOINS_AFTER] * (spec.to_size - spec.from_size)
        elif spec.kind is OperationKind.DELETE_NODES:
            for target in spec.targets:
                del self.nodes[target.node]
                for pod in self.pods:
                    if pod.node == target.node:
                        self.evicted += 1
                        pod.node, pod.created = "", self.now + 1.0
        outcome = Succeeded({"removed": len(spec.targets)})
        of_group, of_memory = memory_updates(operation, outcome, self.policy.options, self.now)
        memory = self.memory
        if of_group is not None:
            groups = {**memory.groups, spec.group: of_group(memory.groups[spec.group])}
            memory = msgspec.structs.replace(memory, groups=groups)
        if of_memory is not None:
            memory = of_memory(memory)
        of_row = replacement_update(operation, outcome)
        if of_row is not None and spec.replacement in memory.replacements:
            row = of_row(memory.replacements[spec.replacement])
            memory = msgspec.structs.replace(
                memory, replacements={**memory.replacements, row.id: row}
            )
        self.memory = memory
