"""Finds the nodes that should go although they are needed: those that are sick, too old, or not as
their group is defined now. See docs/reference/node-lifecycle.md.

A node that is due for several reasons goes for the first of: repair, age, drift. What keeps it,
such as budgets, windows and rules of its pods, is not looked at here
(removal/methods/node_lifecycle.py)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Set

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import Instance
from chalicelib.model.memory import GroupRenewal, NodeMemory, ReplacementState, SickCondition
from chalicelib.model.node import Node
from chalicelib.model.operation import OperationKind
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.empty_groups import drained_pools, is_drained
from chalicelib.plan.state.node_age import earliest, instances_by_node
from chalicelib.plan.state.pools import PoolNames
from chalicelib.plan.state.renewals import JudgedNode, judge_successors
from chalicelib.policy.settings.node_lifecycle import (
    DriftAction,
    NodeLifecycle,
    RepairAction,
    RepairRule,
)

MOST_CONDITIONS = 20
"""Conditions by which one node is remembered as sick."""
RESTARTED_FOR = 86_400.0
"""Seconds after a restart within which a node that is sick again is replaced,
not restarted once more."""
NO_LIFECYCLE = NodeLifecycle(drift=DriftAction.OFF)
_ORDER = (DisruptionReason.REPAIR, DisruptionReason.EXPIRED, DisruptionReason.DRIFTED)


class DueNode(msgspec.Struct, frozen=True):
    """A node that should go. since: when it became due. held: why nothing is done now whatever else
    goes; None: nothing holds it. action: of a repair. condition: by which it is sick, as
    type=status. detail: in what it is outdated."""

    node: Node
    group: str
    why: DisruptionReason
    since: float
    held: Reason | None = None
    action: RepairAction = RepairAction.REPLACE
    condition: str = ""
    detail: str = ""


class LifecycleState(msgspec.Struct, frozen=True):
    """due: in the order in which they go. overdue: node -> since when it has expired, of
    nodes that should have gone
    long ago. unhealthy: group -> nodes that are sick by any rule, of groups that are not
    repaired because of them.
    memory: node -> what is remembered of it, of all nodes of which anything is. pausing: node
    -> until when a condition
    counts that it had until a moment ago, of nodes that are not sick now. renewals: group ->
    what is remembered of its renewals, by reason. resting: which of them rest, of groups with
    nodes that are due for it."""

    due: tuple[DueNode, ...]
    overdue: Mapping[str, float]
    unhealthy: Mapping[str, Reason]
    memory: Mapping[str, NodeMemory]
    pausing: Mapping[str, float] = {}
    renewals: Mapping[str, Mapping[str, GroupRenewal]] = {}
    resting: tuple[Reason, ...] = ()


def age_limit(cluster: str, node: str, lifecycle: NodeLifecycle) -> float:
    """Return the seconds after which a node has expired: maxNodeAge, less the node's own part of
    the jitter, so that nodes of one minute do not expire in one minute."""
    assert lifecycle.max_node_age is not None
    digest = hashlib.sha256(f"{cluster}/{node}".encode("utf-8", "surrogatepass")).digest()
    part = int.from_bytes(digest[:8], "big") / 2**64
    return lifecycle.max_node_age * (1 - lifecycle.jitter * part)


def lifecycle_of(state: ClusterState) -> NodeLifecycle | None:
    """Return what decides which nodes are due: spec.nodeLifecycle, or one that asks for nothing
    where an operator drains groups without it; None: no node is due."""
    return state.policy.node_lifecycle or (NO_LIFECYCLE if drained_pools(state) else None)


def lifecycle_state(state: ClusterState) -> LifecycleState:
    """Return the nodes that are due, and the next memory of sick and outdated nodes."""
    lifecycle = lifecycle_of(state)
    if lifecycle is None:
        return LifecycleState((), {}, {}, {})
    return _Inspection(state, lifecycle).result()


def remembered(state: ClusterState, *, but: Set[str] = frozenset()) -> dict[str, NodeMemory]:
    """Return what is remembered of nodes that this pass cannot judge: their group was not read, or
    there was no time. but: names of the others."""
    memory: dict[str, NodeMemory] = {}
    for name, before in state.memory.nodes.items():
        if name not in state.buckets or name in but:
            continue
        if before.sick or before.restarted_at or before.drifted_since:
            since = min(before.drifted_since, state.now)
            memory[name] = NodeMemory(
                sick=before.sick, restarted_at=before.restarted_at, drifted_since=since
            )
    return memory


class _Inspection:
    def __init__(self, state: ClusterState, lifecycle: NodeLifecycle) -> None:
        self.state = state
        self.lifecycle = lifecycle
        self.now = state.now
        names = PoolNames(state)
        self.named = _groups_named(lifecycle.groups, state, names)
        self.rules = [(rule, _groups_named(rule.groups, state, names)) for rule in lifecycle.repair]
        self.repaired = _in_repair(state)

    def result(self) -> LifecycleState:
        due: list[DueNode] = []
        judged: set[str] = set()
        memory: dict[str, NodeMemory] = {}
        overdue: dict[str, float] = {}
        unhealthy: dict[str, Reason] = {}
        renewals: dict[str, Mapping[str, GroupRenewal]] = {}
        resting: list[Reason] = []
        for name, group in sorted(self.state.groups.items()):
            if group.group.error:
                continue
            judged.update(node.name for node in group.nodes)
            machines = instances_by_node(group)
            of_group = {
                node.name: self._memory(node, group, machines.get(node.name))
                for node in group.nodes
            }
            reason = self._too_many(group, of_group)
            if reason is not None:
                unhealthy[name] = reason
            due_here: list[DueNode] = []
            for node in group.nodes:
                instance = machines.get(node.name)
                due_node = self._due(node, group, instance, of_group[node.name], reason)
                if due_node is not None:
                    due_here.append(due_node)
                expired = self._expired_at(node, group, instance)
                if expired is not None and self.now > expired + self.lifecycle.expiry_grace:
                    overdue[node.name] = expired
            memory |= {node: item for node, item in of_group.items() if item != NodeMemory()}
            judged_nodes = [self._judged(item) for item in due_here if _is_certain(item)]
            verdicts = judge_successors(group, judged_nodes, self.state)
            renewals[name] = verdicts.renewals
            due_for = {item.why.value for item in due_here}
            resting += [why for why in verdicts.rests if why.params["renewed"] in due_for]
            for item in due_here:
                held = item.held or verdicts.held.get(item.why)
                due.append(msgspec.structs.replace(item, held=held))
        memory = remembered(self.state, but=memory.keys() | judged) | memory
        due.sort(key=lambda item: (_ORDER.index(item.why), item.since, item.node.name))
        pausing = self._pausing(memory)
        return LifecycleState(
            tuple(due), overdue, unhealthy, memory, pausing, renewals, tuple(resting)
        )

    def _judged(self, due_node: DueNode) -> JudgedNode:
        """Return a due node as a successor of others is judged."""
        node, why = due_node.node, due_node.why
        limit = self.lifecycle.max_node_age
        by_vendor = limit is not None and node.created + self._age_limit(node) > self.now
        detail = due_node.condition if why is DisruptionReason.REPAIR else due_node.detail
        return JudgedNode(node, why, due_node.since, detail, by_vendor)

    def _age_limit(self, node: Node) -> float:
        return age_limit(self.state.snapshot.cluster, node.name, self.lifecycle)

    def _pausing(self, memory: Mapping[str, NodeMemory]) -> dict[str, float]:
        """Return until when conditions count that have ended. What was bought for one is
        needed if it comes again."""
        flaps = {_key(rule): rule.flap_time for rule, _ in self.rules}
        pausing = {}
        for name, known in memory.items():
            ended = ((key, item.ended) for key, item in known.sick.items() if item.ended)
            until = max((instant + flaps.get(key, 0.0) for key, instant in ended), default=0.0)
            if until > self.now:
                pausing[name] = until
        return pausing

    def _due(
        self,
        node: Node,
        group: NodeGroupState,
        instance: Instance | None,
        memory: NodeMemory,
        breaker_reason: Reason | None,
    ) -> DueNode | None:
        if node.name in self.state.leaving or node.name in self.state.at_risk:
            return None
        sick = self._sick(node, group, memory)
        if sick is not None and (breaker_reason or sick.held is None):
            held = _busy(group, instance, is_repair=True) or breaker_reason
            return msgspec.structs.replace(sick, held=held)
        busy = _busy(group, instance, is_repair=False)
        expired = self._expired_at(node, group, instance)
        if expired is not None and expired <= self.now:
            return DueNode(node, group.id, DisruptionReason.EXPIRED, expired, busy)
        if memory.drifted_since and instance is not None:
            since = memory.drifted_since
            detail = instance.outdated
            needs = self.state.policy.consolidation.confirm_after
            held = busy
            if self.lifecycle.drift is DriftAction.REPORT and not is_drained(
                group.group, self.state
            ):
                held = Reason.of(ReasonCode.NODE_DRIFTED, node=node.name, detail=detail)
            elif self.now - since < needs:
                held = Reason.of(ReasonCode.NOT_CONFIRMED, since=since, needs=needs)
            return DueNode(node, group.id, DisruptionReason.DRIFTED, since, held, detail=detail)
        return sick

    # --- age

    def _expired_at(
        self, node: Node, group: NodeGroupState, instance: Instance | None
    ) -> float | None:
        """Return when a node expires or has expired; None: never, or its age is not known."""
        if self.lifecycle.max_node_age is None or group.id not in self.named:
            return None
        of_machine = (instance.created, instance.born) if instance is not None else ()
        born = earliest(node.created, *of_machine)
        return born + self._age_limit(node) if born else None

    # --- sickness and drift

    def _memory(self, node: Node, group: NodeGroupState, instance: Instance | None) -> NodeMemory:
        before = self.state.memory.nodes.get(node.name, NodeMemory())
        is_recent = 0 <= self.now - before.restarted_at < RESTARTED_FOR
        restarted_at = before.restarted_at if is_recent else 0.0
        if group.memory.not_restarted.get(node.name, 0.0) >= restarted_at:
            restarted_at = 0.0
        drifted_since = 0.0
        looks = group.id in self.named and self.lifecycle.drift is not DriftAction.OFF
        looks = looks or is_drained(group.group, self.state)
        if looks and instance is not None and instance.outdated:
            drifted_since = min(before.drifted_since or self.now, self.now)
        sick = self._conditions(node, group, before.sick)
        return NodeMemory(sick=sick, restarted_at=restarted_at, drifted_since=drifted_since)

    def _conditions(
        self, node: Node, group: NodeGroupState, before: Mapping[str, SickCondition]
    ) -> dict[str, SickCondition]:
        """Return the conditions by which a node is sick now, or was until a
        short time ago (flapTime)."""
        sick: dict[str, SickCondition] = {}
        for rule, groups in self.rules:
            key = _key(rule)
            if group.id not in groups or key in sick or len(sick) >= MOST_CONDITIONS:
                continue
            known = before.get(key)
            condition = node.condition(rule.condition)
            changed = condition.changed if condition is not None else 0.0
            if not 0 < changed <= self.now:
                changed = 0.0
            known = _not_after(known, self.now) if known is not None else None
            if condition is not None and condition.status in rule.status:
                sick[key] = _lasting(known, rule, changed, self.now)
            elif known is not None:
                # Only the first pass without the condition says when it ended: a later
                # transition is another one.
                ended = known.ended or max(known.seen_at, changed)
                if self.now - ended <= rule.flap_time:
                    sick[key] = msgspec.structs.replace(known, ended=ended)
        return sick

    def _sick(self, node: Node, group: NodeGroupState, memory: NodeMemory) -> DueNode | None:
        """Return a sick node by the first rule whose time is over, otherwise by the one
        whose time is over first."""
        waiting: list[tuple[float, DueNode]] = []
        for rule, groups in self.rules:
            condition = node.condition(rule.condition)
            known = memory.sick.get(_key(rule))
            if group.id not in groups or known is None:
                continue
            if condition is None or condition.status not in rule.status:
                continue
            since = max(known.since, memory.restarted_at)
            text = f"{rule.condition}={condition.status}"
            action = rule.action if not memory.restarted_at else RepairAction.REPLACE
            due = since + rule.after
            if due <= self.now:
                return DueNode(node, group.id, DisruptionReason.REPAIR, due, None, action, text)
            held = Reason.of(
                ReasonCode.NOT_SICK_LONG_ENOUGH, condition=text, since=since, needs=rule.after
            )
            sick = DueNode(node, group.id, DisruptionReason.REPAIR, since, held, action, text)
            waiting.append((due, sick))
        return min(waiting, key=lambda entry: entry[0])[1] if waiting else None

    def _too_many(self, group: NodeGroupState, memory: Mapping[str, NodeMemory]) -> Reason | None:
        """Return why no node of a group is repaired: too many are sick by any rule, or in repair
        already. Then the cause is rarely the nodes."""
        if not self.rules:
            return None
        sick = sum(bool(item.sick) or name in self.repaired for name, item in memory.items())
        share = self.lifecycle.max_unhealthy
        size = len(group.nodes)
        most = max(1, int(share * size + 1e-9))
        if sick <= most:
            return None
        return Reason.of(
            ReasonCode.TOO_MANY_UNHEALTHY, group=group.id, unhealthy=sick, of=size, share=share
        )


def _is_certain(due_node: DueNode) -> bool:
    """Return whether a node is due by now, as far as the time of its condition is concerned."""
    return due_node.held is None or due_node.held.code is not ReasonCode.NOT_SICK_LONG_ENOUGH


def _not_after(condition: SickCondition, now: float) -> SickCondition:
    """Return what is remembered without instants from the future, which a wrong clock wrote."""
    return SickCondition(
        min(condition.since, now), min(condition.seen_at, now), min(condition.ended, now)
    )


def _lasting(
    condition: SickCondition | None, rule: RepairRule, began: float, now: float
) -> SickCondition:
    """Return what is remembered of a condition that is there now. condition: as remembered before;
    began: its last transition, 0.0 if unknown. An unchanged one is renewed only after half of
    flapTime, because every renewal is a write."""
    if condition is None or began - (condition.ended or condition.seen_at) > rule.flap_time:
        return SickCondition(now, now)
    is_unchanged = not condition.ended and began <= condition.seen_at
    if is_unchanged and now - condition.seen_at <= rule.flap_time / 2:
        return condition
    return SickCondition(condition.since, now)


def _key(rule: RepairRule) -> str:
    return f"{rule.condition}={','.join(sorted(rule.status))}"


def _groups_named(names: Iterable[str], state: ClusterState, pools: PoolNames) -> frozenset[str]:
    """Return the ids of the groups of these pools, or of all groups without any name."""
    if not names:
        return frozenset(state.groups)
    groups: set[str] = set()
    for name in names:
        pool = pools.find(name)
        if pool is not None:
            groups.update(pool.groups)
    return frozenset(groups)


def _busy(group: NodeGroupState, instance: Instance | None, *, is_repair: bool) -> Reason | None:
    """Return who changes a node or its group now, or repairs it by itself."""
    who = (instance.busy if instance else "") or group.group.busy or group.group.scale_down_held
    who = who or (instance.repaired_by if instance and is_repair else "")
    return Reason.of(ReasonCode.GROUP_BUSY, who=who) if who else None


def _in_repair(state: ClusterState) -> frozenset[str]:
    """Return the nodes that open operations repair, or that replacements have for repair."""
    kinds = {OperationKind.DELETE_NODES, OperationKind.RESTART_NODE}
    nodes: set[str] = set()
    for operation in state.memory.operations:
        spec = operation.spec
        is_repair = spec.kind in kinds and spec.reason == DisruptionReason.REPAIR.value
        if operation.is_open and is_repair:
            nodes.update(target.node for target in spec.targets)
    for row in state.memory.replacements.values():
        if row.reason is DisruptionReason.REPAIR and row.state is not ReplacementState.FAILED:
            nodes.update(row.nodes)
    return frozenset(nodes)
