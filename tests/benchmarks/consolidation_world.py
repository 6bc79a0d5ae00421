"""A cluster on virtual time to which the answers of planners are applied
until nothing more happens.

Purchases and removals happen at once, or new nodes are ready after a start-up time. The pods of a
removed node become pending, and a referee (scheduler_referee.py) binds them, one by one. A budget
of pods allows as many disruptions in every pass, less those of its pods that are still pending.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import Instance, InstanceState, NodeGroup
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.node import HOSTNAME_LABEL, LEAVING_MARKS, Condition, Node, Taint
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.model.plan import Plan, TaintUpdate
from chalicelib.model.pod import Pod
from chalicelib.model.snapshot import Controller, PodDisruptionBudget, Snapshot
from chalicelib.operations.memory_updates import memory_updates, replacement_update
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.prices import Price, price_book
from chalicelib.plan.removal.pod_disruption_budgets import PodDisruptionBudgets
from chalicelib.plan.removal.taint_updates import SET_MARKS
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode
from chalicelib.policy.settings.node_limit import NodeLimit
from chalicelib.policy.settings.node_prices import NodePrices
from infra.emulators.controllers.scheduler.score_formulas import NodeSampling
from tests.benchmarks.scheduler_referee import SchedulerScores, referee
from tests.differential.karpenter import (
    MICRO,
    KarpenterCommand,
    KarpenterMemory,
    KarpenterRules,
    next_command,
)

MINUTE = 60.0
CONSOLIDATED = DisruptionReason.CONSOLIDATION.value
DISRUPTED = Taint("karpenter.sh/disrupted", "NoSchedule")
Plans = Callable[[Snapshot, Policy, Memory, float, int], tuple[Plan, Memory]]


class BoughtNode(msgspec.Struct, frozen=True):
    """A node that was bought at an instant."""

    name: str
    group: str
    at: float


class Move(msgspec.Struct, frozen=True):
    """A pod that was evicted from a node. owner: namespace/kind/name. replicas: pods of the owner
    at that time. reason: of the removal, "" if it is not consolidation."""

    at: float
    pod: str
    owner: str
    node: str
    replicas: int
    reason: str = ""


class World:
    """The cluster. bought, moves, removed, consolidated: what happened; removed: node -> instant;
    consolidated: those of the removed nodes that were needed; waited: uid of a pod -> seconds
    without a node. start_up: seconds until a bought node is ready. scores: how the
    referee chooses nodes; seed: of the order in which it scores them. live: the replicas of
    controllers are the pods that exist."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        prices: NodePrices | None = None,
        start_up: float = 0.0,
        scores: SchedulerScores = SchedulerScores.LEAST_ALLOCATED,
        seed: int = 0,
        live: bool = False,
    ) -> None:
        self.now = snapshot.taken_at
        self.bought: list[BoughtNode] = []
        self.moves: list[Move] = []
        self.removed: dict[str, float] = {}
        self.consolidated: dict[str, float] = {}
        self.pod_events: dict[str, float] = {}
        self.waited: dict[str, float] = {}
        self.pending_minutes = 0.0
        self.start_up = start_up
        self._start, self._prices = snapshot, prices
        self._scores, self._sampling, self._live = scores, NodeSampling(seed=seed), live
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._pods = {pod.key: pod for pod in snapshot.pods}
        self._groups = {group.id: group for group in snapshot.groups}
        self._instances = {
            group.id: {i.id: i for i in group.instances} for group in snapshot.groups
        }
        self._group_of = {i.node: group.id for group in snapshot.groups for i in group.instances}
        # node -> group, instant at which it is ready
        self._starting: dict[str, tuple[str, float]] = {}
        self._taints: dict[str, tuple[Taint, ...]] = {}
        self._marks: dict[str, tuple[Taint, ...]] = {}
        self._price_of = {group.id: self._group_price(group) for group in snapshot.groups}
        self._pdbs = PodDisruptionBudgets(snapshot.budgets, snapshot.classes)
        self._unbindable = 0  # pending pods that the referee has just refused

    def _group_price(self, group: NodeGroup) -> int:
        price = price_book(self._prices, self._start.groups).of_group(group)
        return price.amount if isinstance(price, Price) else 0

    # -- what planners see

    def snapshot(self) -> Snapshot:
        """The cluster now."""
        taints = {
            name: (*self._taints.get(name, ()), *self._marks.get(name, ()))
            for name in self._taints.keys() | self._marks.keys()
        }
        nodes = [
            msgspec.structs.replace(node, taints=(*node.taints, *taints[name]))
            if name in taints
            else node
            for name, node in self._nodes.items()
        ]
        groups = [
            msgspec.structs.replace(
                group,
                target=len(self._instances[group.id]),
                instances=tuple(self._instances[group.id].values()),
            )
            for group in self._groups.values()
        ]
        return msgspec.structs.replace(
            self._start,
            taken_at=self.now,
            nodes=tuple(nodes),
            groups=tuple(groups),
            pods=tuple(self._pods.values()),
            budgets=self._budgets(),
            controllers=self._controllers() if self._live else self._start.controllers,
        )

    def _controllers(self) -> tuple[Controller, ...]:
        classes = self._start.classes
        owners = Counter(
            owner.uid
            for pod in self._pods.values()
            if (owner := classes[pod.cls].owner) is not None
        )
        return tuple(
            msgspec.structs.replace(controller, replicas=owners[controller.uid])
            for controller in self._start.controllers
        )

    def _budgets(self) -> tuple[PodDisruptionBudget, ...]:
        waiting: dict[str, int] = {}
        for pod in self._pods.values():
            if not pod.node:
                for name in self._pdbs.of(pod.cls):
                    waiting[name] = waiting.get(name, 0) + 1
        if not waiting:
            return self._start.budgets
        return tuple(
            msgspec.structs.replace(budget, allowed=max(0, budget.allowed - waiting[name]))
            if (name := f"{budget.namespace}/{budget.name}") in waiting
            else budget
            for budget in self._start.budgets
        )

    @property
    def price(self) -> int:
        """Of all instances, those that are starting too, in millionths an hour."""
        return sum(
            self._price_of[group] * len(instances) for group, instances in self._instances.items()
        )

    @property
    def nodes(self) -> int:
        """How many are ready."""
        return len(self._nodes)

    @property
    def pending(self) -> int:
        """Pods without a node."""
        return sum(not pod.node for pod in self._pods.values())

    @property
    def pods(self) -> Mapping[str, Pod]:
        """namespace/name -> pod."""
        return self._pods

    def group_of(self, node: str) -> str:
        """The group of a node that exists."""
        return self._group_of[node]

    def is_ready(self, node: str) -> bool:
        """Whether a node has joined."""
        return node in self._nodes

    def exists(self, node: str) -> bool:
        """Whether a node was bought and is not removed."""
        return node in self._group_of

    def is_sold_out(self, group: str) -> bool:
        """Whether the vendor has no machine for a group now."""
        return False

    # -- what happens

    def add_pod(self, pod: Pod) -> None:
        """A pending pod arrives."""
        self._pods[pod.key] = pod
        self._unbindable = 0

    def end_pod(self, key: str) -> None:
        """A pod ends."""
        pod = self._pods.pop(key, None)
        if pod is not None and pod.node:
            self._unbindable = 0
            self.pod_events[pod.node] = self.now

    def taint(self, nodes: Iterable[str], taint: Taint = DISRUPTED) -> None:
        """Nodes take no further pods."""
        self._taints.update({name: (*self._taints.get(name, ()), taint) for name in nodes})

    def mark(self, updates: Iterable[TaintUpdate]) -> None:
        """Nodes get exactly these marks of a horizon; other updates of taints change nothing."""
        for update in updates:
            if update.action == SET_MARKS and update.node in self._nodes:
                keys = LEAVING_MARKS[: update.level]
                marks = [Taint(key, "PreferNoSchedule", update.value) for key in keys]
                self._marks[update.node] = tuple(marks)

    def grow(self, group: str, count: int) -> list[str]:
        """Buys nodes; the names of as many as the group may have."""
        room = self._groups[group].max - len(self._instances[group])
        names = []
        for _ in range(min(count, room)):
            name = f"{group}-new-{len(self.bought):05d}"
            self.bought.append(BoughtNode(name, group, self.now))
            names.append(name)
            instance = f"bench://{group}/{name}"
            starting = self.start_up > 0
            state = InstanceState.CREATING if starting else InstanceState.RUNNING
            self._instances[group][instance] = Instance(
                instance, state, node="" if starting else name
            )
            self._group_of[name] = group
            self._starting[name] = group, self.now + self.start_up
        self.join_started()
        return names

    def join_started(self) -> list[str]:
        """Nodes whose start-up time is over join, with the pods of the DaemonSets."""
        ready = [name for name, (_, at) in self._starting.items() if at <= self.now]
        for name in ready:
            group, _ = self._starting.pop(name)
            template = self._groups[group].template
            assert template is not None
            instance = f"bench://{group}/{name}"
            self._nodes[name] = _joined(template, name, instance, self.now)
            self._instances[group][instance] = Instance(instance, node=name)
            for daemonset in self._start.daemonsets:
                pod = Pod(daemonset.namespace, f"{daemonset.name}-{name}",
                          f"uid-{daemonset.name}-{name}",
                          daemonset.cls, node=name, phase="Running", created=self.now,
                          scheduled="True")  # fmt: skip
                self._pods[pod.key] = pod
        if ready:
            self._unbindable = 0
        return ready

    def remove(self, names: Sequence[str], reason: str = "") -> None:
        """Drains and deletes nodes: their pods become pending, but for those of DaemonSets, which
        go. reason: of the removal, "" if it is not consolidation."""
        gone = set(names) & self._group_of.keys()
        classes, replicas = self._start.classes, Counter(pod.cls for pod in self._pods.values())
        for key, pod in [item for item in self._pods.items() if item[1].node in gone]:
            pod_class = classes[pod.cls]
            if pod_class.is_daemonset or pod_class.owner is None:
                del self._pods[key]
                continue
            owner = f"{pod.namespace}/{pod_class.owner.kind}/{pod_class.owner.name}"
            self.moves.append(Move(self.now, key, owner, pod.node, replicas[pod.cls], reason))
            self._pods[key] = pending_pod(
                pod, f"{pod.uid.partition('#')[0]}#{len(self.moves)}", self.now
            )
            self._unbindable = 0
        for name in gone:
            group = self._group_of.pop(name)
            self._nodes.pop(name, None)
            self._starting.pop(name, None)
            self._taints.pop(name, None)
            self._marks.pop(name, None)
            self.removed[name] = self.now
            self.consolidated.update({name: self.now} if reason == CONSOLIDATED else {})
            del self._instances[group][f"bench://{group}/{name}"]

    def bind(self) -> None:
        """The referee binds what fits, oldest first; the others are reported as unschedulable."""
        waiting = [pod for pod in self._pods.values() if not pod.node]
        if not waiting or self._unbindable == len(waiting):
            return
        waiting.sort(key=lambda pod: (pod.created, pod.key))
        classes = [pod.cls for pod in waiting]
        places = referee(self.snapshot(), classes, self._scores, self._sampling)
        for pod, node in zip(waiting, places, strict=True):
            changes = {
                "node": node,
                "phase": "Running",
                "scheduled": "True",
                "scheduled_reason": "",
            }
            if node:
                self._pods[pod.key] = msgspec.structs.replace(pod, **changes)
                self.pod_events[node] = self.now
            else:
                self._pods[pod.key] = msgspec.structs.replace(
                    pod, scheduled="False", scheduled_reason="Unschedulable", phase="Pending"
                )
        self._unbindable = self.pending

    def advance(self, seconds: float) -> None:
        """Time passes."""
        for pod in self._pods.values():
            if not pod.node:
                self.waited[pod.uid] = self.waited.get(pod.uid, 0.0) + seconds
        self.pending_minutes += self.pending * seconds / MINUTE
        self.now += seconds


def pending_pod(pod: Pod, uid: str, created: float) -> Pod:
    """The pod that its controller creates in its place."""
    return msgspec.structs.replace(
        pod,
        uid=uid,
        node="",
        phase="Pending",
        created=created,
        scheduled="False",
        scheduled_reason="Unschedulable",
    )


def _joined(template: Node, name: str, instance: str, now: float) -> Node:
    return msgspec.structs.replace(
        template,
        name=name,
        uid=f"uid-{name}",
        labels={**template.labels, HOSTNAME_LABEL: name},
        provider_id=instance,
        conditions=(Condition("Ready", "True", "KubeletReady", now),),
        created=now,
    )


# -- planners


class Strategy(Protocol):
    """Looks at the world once and changes it. Returns the CPU seconds of its planning."""

    def act(self, world: World) -> float: ...


_DONE = Succeeded()


class Outscaler:
    """Our planner under any policy. plan: the last plan; refused: the groups of its
    purchases that were sold out."""

    def __init__(self, policy: Policy, plan: Plans = plan_cluster, seed: int = 0) -> None:
        self._policy, self._plans, self._seed = policy, plan, seed
        self.memory = Memory()
        self.plan: Plan | None = None
        self.refused: list[str] = []

    def act(self, world: World) -> float:
        """One pass: its operations succeed at once, the purchases first, but for those of
        groups that are sold out."""
        snapshot = world.snapshot()
        started = time.process_time()
        plan, memory = self._plans(snapshot, self._policy, self.memory, world.now, self._seed)
        seconds = time.process_time() - started
        self.memory, self.plan = memory, plan
        purchases = [op for op in plan.operations if op.spec.kind is OperationKind.SCALE_UP]
        removals = [op for op in plan.operations if op.spec.kind is OperationKind.DELETE_NODES]
        self.refused = [op.spec.group for op in purchases if world.is_sold_out(op.spec.group)]
        for operation in purchases:
            if operation.spec.group in self.refused:
                self._finish(operation, world.now, Failed("OutOfStock", "sold out"))
                continue
            world.grow(operation.spec.group, operation.spec.to_size - operation.spec.from_size)
            self._finish(operation, world.now)
        for operation in removals:
            world.remove([target.node for target in operation.spec.targets], operation.spec.reason)
            self._finish(operation, world.now)
        world.mark(plan.marks)
        return seconds

    def _finish(
        self, operation: Operation, now: float, outcome: Succeeded | Failed = _DONE
    ) -> None:
        of_group, of_cluster = memory_updates(operation, outcome, self._policy.options, now)
        memory, group = self.memory, operation.spec.group
        if of_group is not None:
            changed = of_group(memory.groups.get(group, GroupMemory()))
            memory = msgspec.structs.replace(memory, groups={**memory.groups, group: changed})
        memory = memory if of_cluster is None else of_cluster(memory)
        of_replacement = replacement_update(operation, outcome)
        row = memory.replacements.get(operation.spec.replacement)
        if of_replacement is not None and row is not None:
            rows = {**memory.replacements, row.id: of_replacement(row)}
            memory = msgspec.structs.replace(memory, replacements=rows)
        self.memory = memory


class Karpenter:
    """Karpenter's rules for nodes that go, and our planner for pending pods. commands: at most so
    many in a pass, as each takes 15 seconds of validation."""

    def __init__(self, policy: Policy, rules: KarpenterRules, commands: int = 4) -> None:
        options = msgspec.structs.replace(policy.options, scale_down_enabled=False)
        self._policy, self._rules, self._most = policy, rules, commands
        self._provisioner = Outscaler(msgspec.structs.replace(policy, options=options))
        self._queue: list[tuple[KarpenterCommand, list[str]]] = []

    def act(self, world: World) -> float:
        """Commands whose new node is ready are carried out; then new ones are begun."""
        seconds = 0.0
        self._finish_ready(world)
        if world.pending:
            seconds += self._provisioner.act(world)
            world.bind()  # before a new node counts as empty: it is nominated for its pods
        for _ in range(self._most):
            started = time.process_time()
            queued = frozenset(node for command, _ in self._queue for node in command.nodes)
            memory = KarpenterMemory(queue=queued, pod_events=world.pod_events)
            command = next_command(world.snapshot(), self._policy, world.now, self._rules, memory)
            seconds += time.process_time() - started
            if command is None:
                break
            purchases = world.grow(command.group, 1) if command.group else []
            if command.group and not purchases:
                self.refused(world, command.group)
                break
            self._queue.append((command, purchases))
            world.taint(command.nodes)
            self._finish_ready(world)
        return seconds

    def refused(self, world: World, group: str) -> None:
        """A replacement could not be bought; the command is forgotten."""

    def _finish_ready(self, world: World) -> None:
        """A replacement that has vanished ends its command: the nodes stay (the taint too,
        until the next command)."""
        waiting = []
        for command, purchases in self._queue:
            if all(world.is_ready(node) for node in purchases):
                world.remove(command.nodes, "" if command.method == "Emptiness" else CONSOLIDATED)
                world.bind()
            elif all(world.exists(node) for node in purchases):
                waiting.append((command, purchases))
        self._queue = waiting


# -- runs


class PassRecord(msgspec.Struct, frozen=True):
    """The world after a pass; all but price, nodes and seconds are sums since the beginning."""

    at: float
    price: int
    nodes: int
    disrupted: int
    bought: int
    removed: int
    pending: int
    seconds: float


class History(msgspec.Struct, frozen=True):
    """All passes; the first record is the beginning. ended: False if nodes still came and went at a
    price that fell no more."""

    passes: tuple[PassRecord, ...]
    ended: bool = True

    @property
    def last(self) -> PassRecord:
        return self.passes[-1]

    @property
    def seconds(self) -> float:
        """CPU of planning in all passes."""
        return sum(record.seconds for record in self.passes)

    @property
    def slowest(self) -> float:
        """CPU of planning in the slowest pass."""
        return max(record.seconds for record in self.passes)

    def price_within(self, disrupted: int) -> int:
        """The lowest price with at most so many disrupted pods."""
        return min(
            record.price
            for record in self.passes
            if record.disrupted <= disrupted and not record.pending
        )


def run_to_the_end(
    world: World, strategy: Strategy, *, quiet: int = 1, patience: int = 30, most: int = 2000
) -> History:
    """Passes, a minute apart, until `quiet` of them in a row changed nothing, or `patience` of them
    did not lower the price."""
    passes = [_record(world, 0.0)]
    unchanged, lowest, lowered = 0, passes[0].price, 0
    while unchanged < quiet and len(passes) - lowered <= patience and len(passes) <= most:
        seconds = strategy.act(world)
        world.bind()
        passes.append(_record(world, seconds))
        before, after = passes[-2:]
        same = (before.bought, before.removed, before.pending) == (
            after.bought,
            after.removed,
            after.pending,
        )
        unchanged = unchanged + 1 if same else 0
        if after.price < lowest and not after.pending:
            lowest, lowered = after.price, len(passes)
        world.advance(MINUTE)
        world.join_started()
    return History(tuple(passes), ended=unchanged >= quiet)


def _record(world: World, seconds: float) -> PassRecord:
    return PassRecord(
        world.now,
        world.price,
        world.nodes,
        len(world.moves),
        len(world.bought),
        len(world.removed),
        world.pending,
        seconds,
    )


def consolidating(aggressiveness: float = 2.0) -> Consolidation:
    """Consolidation without any wait and without limits on how much happens at once."""
    return Consolidation(
        ConsolidationMode.FULL,
        aggressiveness=aggressiveness,
        quiet_time=0.0,
        min_node_age=0.0,
        confirm_after=0.0,
        max_surge=NodeLimit(share=1.0),
        max_replacements=100_000,
        moves_per_pod_per_day=100_000,
    )


WITHOUT_TIMERS = Options(
    expander=("least-cost", "price"),
    scale_down_unneeded_time=0.0,
    scale_down_delay_after_add=0.0,
    unremovable_node_recheck_timeout=0.0,
    max_scale_down_parallelism=100_000,
    max_drain_parallelism=100_000,
)
"""Options of a comparison to the end: nothing waits."""


def table(rows: Mapping[str, History], start: int) -> str:
    """A table of the ends of these runs. start: the price before."""
    columns = (
        "Rules",
        "Price an hour",
        "Of the start",
        "Nodes",
        "Disrupted",
        "Bought",
        "Passes",
        "CPU s",
        "Slowest",
    )
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for name, history in rows.items():
        end = history.last
        passes = f"{len(history.passes) - 1}{'' if history.ended else ', no end'}"
        lines.append(
            f"| {name} | {end.price / MICRO:,.2f} | {end.price / start:.3f} | {end.nodes:,} | "
            f"{end.disrupted:,} | "
            f"{end.bought:,} | {passes} | {history.seconds:.1f} | {history.slowest:.2f} |"
        )
    return "\n".join(lines)
