"""What a policy would have cost: recorded decisions replayed with nodes that the
simulation buys and removes.

The recorded pods are the input; the nodes of the record are those of the beginning only. Every few
minutes the planner decides about the recorded pods and the simulated nodes, and its plan is
carried out: a new node is paid from then on and ready after the time that recorded nodes took; a
node is removed at once. The planner's own promises say where pods are placed. The same decisions
and policy give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

import msgspec

from chalicelib.model.group import Instance, InstanceState
from chalicelib.model.memory import Memory
from chalicelib.model.node import OWN_TAINTS, Condition, Node
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Succeeded
from chalicelib.model.plan import Plan
from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.snapshot import Snapshot
from chalicelib.operations.memory_updates import memory_updates, replacement_update
from chalicelib.plan.cost_breakdown import PriceTags
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.prices import MICRO
from chalicelib.plan.removal.consolidation.costs import eviction_cost
from chalicelib.plan.simulation.simulated_cluster import renamed
from chalicelib.plan.state.cluster_state import ClusterState, build_cluster_state
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.replay.recorded_decision import RecordedDecision
from chalicelib.store.memory_rows import confirm

LONGEST_GAP = 900.0
"""Seconds between two decisions; what is longer is left out."""
STEP = 300.0
USUAL_READY_TIME = 180.0
_LONGEST_READY_TIME = 7200.0
# seconds for which a pod that has no place has waited, so that the planner waits for no others
_SETTLED = 60.0

Inputs = Callable[[RecordedDecision], tuple[Policy, Snapshot]]
"""Returns the policy, and the snapshot with that policy's bounds of groups."""


class PolicyCost(msgspec.Struct, frozen=True, rename="camel"):
    """What a policy would have cost in the simulated time. cost: by currency. disruption: of
    removals, as consolidation counts it. pending_minutes: of all pods. unpriced_hours: of nodes
    without a price, which are in no cost."""

    cost: dict[str, float]
    nodes_bought: int
    nodes_removed: int
    pods_moved: int
    disruption: float
    pending_minutes: float
    unpriced_hours: float


class Comparison(msgspec.Struct, frozen=True, rename="camel"):
    """Policies in the order given. since, until: epoch seconds. hours: that were simulated;
    left_out: the share of the time that was not, because no decision was recorded. ready_seconds:
    after which new nodes were ready in the end."""

    decisions: int
    since: float
    until: float
    hours: float
    left_out: float
    ready_seconds: float
    policies: tuple[PolicyCost, ...]


def compare(decisions: Iterable[RecordedDecision], policies: Sequence[Inputs]) -> Comparison | None:
    """Return what each policy would have cost; None without a decision. decisions: of one
    cluster, the oldest first."""
    runs = [_Run(inputs) for inputs in policies]
    ready, first, last, number, seconds = ReadyTimes(), 0.0, 0.0, 0, 0.0
    before: RecordedDecision | None = None
    for decision in decisions:
        if before is None:
            first = decision.now
        elif 0 < decision.now - before.now <= LONGEST_GAP:
            seconds += decision.now - before.now
            for run in runs:
                run.simulate(before, decision.now, ready.seconds)
        ready.learn(decision.snapshot)
        for run in runs:
            run.see(decision)
        before, last, number = decision, decision.now, number + 1
    if before is None:
        return None
    span = last - first
    return Comparison(
        number,
        first,
        last,
        round(seconds / 3600, 4),
        round(1 - seconds / span, 4) if span > 0 else 1.0,
        ready.seconds,
        tuple(run.result() for run in runs),
    )


class ReadyTimes:
    """How long recorded machines took from their creation at the vendor
    until their nodes were ready."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}

    def learn(self, snapshot: Snapshot) -> None:
        """Add the nodes of a snapshot."""
        created = {
            instance.node: instance.created
            for group in snapshot.groups
            for instance in group.instances
        }
        for node in snapshot.nodes:
            condition = node.condition("Ready")
            if condition is not None and condition.status == "True" and created.get(node.name):
                took = condition.changed - created[node.name]
                if 0 < took < _LONGEST_READY_TIME:
                    self._times.setdefault(node.name, took)

    @property
    def seconds(self) -> float:
        """Return the median, the usual time where nothing is known."""
        return float(median(self._times.values())) if self._times else USUAL_READY_TIME


class _Machine(msgspec.Struct, frozen=True):
    """A simulated machine of a group. instance: as its provider lists it."""

    node: Node
    group: str
    ready_at: float
    instance: Instance


class _Run:
    """The simulated cluster under one policy."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._machines: dict[str, _Machine] = {}
        self._places: dict[str, str] = {}  # pod -> its node
        self._expected: dict[str, str] = {}  # pod -> the new node that was bought for it
        self._memory: Memory | None = None
        self._last = 0.0
        self._cost: dict[str, float] = {}
        self._bought = self._removed = self._moved = self._named = 0
        self._disruption = self._pending = self._unpriced = 0.0

    def see(self, decision: RecordedDecision) -> None:
        """Begin with the nodes of the first decision."""
        if self._memory is not None:
            return
        policy, snapshot = self._inputs(decision)
        self._memory = msgspec.structs.replace(decision.memory, operations=(), replacements={})
        state = build_cluster_state(snapshot, policy, decision.memory, decision.now)
        for node in snapshot.nodes:
            if group := state.group_of.get(node.name):
                self._machines[node.name] = _Machine(
                    _without_taints(node),
                    group,
                    0.0,
                    Instance(node.provider_id, handle=node.provider_id, node=node.name),
                )
        self._places = {pod.key: pod.node for pod in snapshot.pods if pod.node}

    def simulate(self, decision: RecordedDecision, until: float, ready_time: float) -> None:
        """Let time pass from a decision to an instant, with the decision's pods."""
        policy, snapshot = self._inputs(decision)
        recorded_state = build_cluster_state(snapshot, policy, decision.memory, decision.now)
        now = decision.now
        while now < until:
            end = min(now + STEP, until)
            self._step(recorded_state, policy, decision.seed, now, end, ready_time)
            now = end

    def result(self) -> PolicyCost:
        """Return the sums."""
        return PolicyCost(
            {currency: round(cost / 1e6, 6) for currency, cost in sorted(self._cost.items())},
            self._bought,
            self._removed,
            self._moved,
            round(self._disruption, 3),
            round(self._pending, 2),
            round(self._unpriced, 3),
        )

    def _step(
        self,
        recorded_state: ClusterState,
        policy: Policy,
        seed: int,
        now: float,
        end: float,
        ready_time: float,
    ) -> None:
        assert self._memory is not None
        snapshot = self._snapshot(recorded_state, now)
        memory = confirm(self._memory, self._last)
        plan, memory = plan_cluster(snapshot, policy, memory, now, seed, wait=False)
        self._grow(plan, recorded_state, now, ready_time)
        for promise in plan.promises:
            if promise.node in self._machines and self._machines[promise.node].ready_at <= now:
                self._places.update(dict.fromkeys(promise.pods, promise.node))
        self._pending += (
            sum(self._waits(pod, now, end) for pod in snapshot.pods if not pod.node) / 60
        )
        self._remove(plan, snapshot, now)
        for operation in plan.operations:
            memory = _succeeded(memory, operation, policy, now)
        self._memory, self._last = memory, now
        self._pay(recorded_state, end - now)

    # -- the snapshot that the planner gets

    def _snapshot(self, recorded_state: ClusterState, now: float) -> Snapshot:
        """Return the recorded snapshot with simulated machines and the places of the pods."""
        old = recorded_state.snapshot
        outside = {node.name for node in old.nodes if node.name not in recorded_state.group_of}
        outside -= self._machines.keys()
        ready = {
            name: machine for name, machine in self._machines.items() if machine.ready_at <= now
        }
        for pod, node in list(self._expected.items()):
            if node in ready:
                self._places[pod] = node
                del self._expected[pod]
        groups = []
        for group in old.groups:
            instances = tuple(
                machine.instance
                if name in ready
                else Instance(
                    machine.instance.id, InstanceState.CREATING, created=machine.node.created
                )
                for name, machine in sorted(self._machines.items())
                if machine.group == group.id
            )
            groups.append(
                msgspec.structs.replace(group, instances=instances, target=len(instances))
            )
        return msgspec.structs.replace(
            old,
            taken_at=now,
            nodes=tuple(
                sorted(
                    [
                        *(node for node in old.nodes if node.name in outside),
                        *(machine.node for machine in ready.values()),
                    ],
                    key=lambda node: node.name,
                )
            ),
            pods=tuple(self._pods(recorded_state, outside, ready, now)),
            groups=tuple(groups),
        )

    def _pods(
        self,
        recorded_state: ClusterState,
        outside: set[str],
        ready: Mapping[str, _Machine],
        now: float,
    ) -> Iterable[Pod]:
        """Yield the recorded pods in their simulated places, and pods that come
        with a simulated machine."""
        classes, with_daemons = recorded_state.snapshot.classes, set[str]()
        for pod in recorded_state.snapshot.pods:
            if comes_with_node(classes[pod.cls]):
                if pod.node in outside or pod.node in ready:
                    with_daemons.add(pod.node)
                    yield pod
            elif pod.node in outside:
                yield pod
            elif (place := self._places.get(pod.key, "")) in ready:
                yield msgspec.structs.replace(
                    pod, node=place, nominated="", phase="Running", scheduled="True", deleted=0.0
                )
            elif pod.node:
                yield msgspec.structs.replace(
                    pod,
                    node="",
                    nominated="",
                    phase="Pending",
                    scheduled="False",
                    scheduled_reason="Unschedulable",
                    created=min(pod.created, now - _SETTLED),
                    deleted=0.0,
                )
            else:
                yield msgspec.structs.replace(
                    pod, nominated="", created=min(pod.created, now - _SETTLED)
                )
        for name, machine in sorted(ready.items()):
            group = recorded_state.groups.get(machine.group)
            template = group.template if group is not None else None
            for number, cls in enumerate(
                template.daemons if template is not None and name not in with_daemons else ()
            ):
                own = f"simulated-{name}-{number}"
                yield Pod(
                    classes[cls].namespace,
                    own,
                    own,
                    cls,
                    node=name,
                    phase="Running",
                    scheduled="True",
                )

    # -- carrying out a plan

    def _grow(
        self, plan: Plan, recorded_state: ClusterState, now: float, ready_time: float
    ) -> None:
        new: dict[tuple[str, int], str] = {}
        for growth in plan.scale_ups:
            group = recorded_state.groups[growth.group]
            if group.template is None:
                continue
            for number in range(1, growth.to_size - growth.from_size + 1):
                self._named += 1
                self._bought += 1
                name = f"simulated-{self._named:06}"
                node = _new_node(group.template.node, name, now, now + ready_time)
                instance = Instance(
                    node.provider_id, handle=node.provider_id, node=name, created=now
                )
                self._machines[name] = _Machine(node, growth.group, now + ready_time, instance)
                new[growth.group, number] = name
        for promise in plan.promises:
            if machine := new.get((promise.group, promise.number)):
                self._expected.update(dict.fromkeys(promise.pods, machine))

    def _remove(self, plan: Plan, snapshot: Snapshot, now: float) -> None:
        pods = {pod.key: pod for pod in snapshot.pods}
        for removal in plan.removals:
            self._machines.pop(removal.node, None)
            self._removed += 1
            self._moved += len(removal.evict)
            moving = (snapshot.classes[pods[key].cls] for key in removal.evict if key in pods)
            self._disruption += 1 + sum(max(0, eviction_cost(cls)) for cls in moving) / MICRO
            for key in removal.evict:
                place = removal.destinations.get(key, "")
                if place in self._machines and self._machines[place].ready_at <= now:
                    self._places[key] = place
                else:
                    self._places.pop(key, None)

    # -- sums

    def _waits(self, pod: Pod, now: float, end: float) -> float:
        """Return the seconds that a pod without a node waits within a step."""
        if pod.key in self._places and self._places[pod.key] in self._machines:
            return 0.0
        expected = self._machines.get(self._expected.get(pod.key, ""))
        return (
            min(max(0.0, expected.ready_at - now), end - now) if expected is not None else end - now
        )

    def _pay(self, recorded_state: ClusterState, seconds: float) -> None:
        """Add the price of all machines, and of recorded nodes that are in no group."""
        tags = PriceTags(recorded_state)
        nodes = [(machine.node, machine.group) for machine in self._machines.values()]
        nodes += [
            (node, "")
            for node in recorded_state.snapshot.nodes
            if node.name not in recorded_state.group_of and node.name not in self._machines
        ]
        for node, group in nodes:
            priced = tags.of_node(node, group)
            if priced is None:
                self._unpriced += seconds / 3600
            else:
                self._cost[priced[1]] = self._cost.get(priced[1], 0.0) + priced[0] * seconds / 3600


def comes_with_node(pod_class: PodClass) -> bool:
    """Return whether pods of a class run on every node of a kind, and are not placed."""
    return pod_class.is_daemonset or pod_class.mirror


def _succeeded(memory: Memory, operation: Operation, policy: Policy, now: float) -> Memory:
    """Return the memory after an operation that has succeeded at once."""
    succeeded = Succeeded({})
    group_patch, memory_patch = memory_updates(operation, succeeded, policy.options, now)
    replacement_patch = replacement_update(operation, succeeded)
    row = memory.replacements.get(operation.spec.replacement)
    if replacement_patch is not None and row is not None:
        memory = msgspec.structs.replace(
            memory, replacements={**memory.replacements, row.id: replacement_patch(row)}
        )
    name = operation.spec.group
    if group_patch is not None and name in memory.groups:
        memory = msgspec.structs.replace(
            memory, groups={**memory.groups, name: group_patch(memory.groups[name])}
        )
    return memory_patch(memory) if memory_patch is not None else memory


def _without_taints(node: Node) -> Node:
    """Return a node that no autoscaler is removing."""
    taints = tuple(taint for taint in node.taints if taint.key not in OWN_TAINTS)
    return msgspec.structs.replace(node, taints=taints)


def _new_node(template_node: Node, name: str, now: float, ready_at: float) -> Node:
    return msgspec.structs.replace(
        renamed(template_node, [name])[0],
        uid=name,
        provider_id=f"simulated://{name}",
        created=now,
        conditions=(Condition("Ready", "True", "", ready_at),),
    )
