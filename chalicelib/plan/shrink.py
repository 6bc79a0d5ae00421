"""Which nodes are not needed, and which of them go now (scale-down.md §2, §3, §5, §7, §8).

A node is tried on a copy of the cluster: its pods are taken off and must all find another place. If they do, the moves
are kept for the rest of the pass, so that the next node is tried in a cluster without this one. Timers run whether or
not anything may be removed just now; every node that stays has a verdict.
"""

from __future__ import annotations

import msgspec
import numpy as np

from chalicelib.model.memory import NodeMemory
from chalicelib.model.node import Node
from chalicelib.model.plan import NodeVerdict, Removal
from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.reason import Code, Reason
from chalicelib.plan import drain
from chalicelib.plan.budgets import BudgetLedger
from chalicelib.plan.drain.verdict import Action, Context
from chalicelib.plan.eligible import ineligible
from chalicelib.plan.explain import sentence, text
from chalicelib.plan.fit import tally
from chalicelib.plan.pick import pick
from chalicelib.plan.place import Room
from chalicelib.plan.world import World


class Candidate(msgspec.Struct, frozen=True):
    """A node whose pods all found another place."""

    node: Node
    group: str
    evict: tuple[str, ...]
    destinations: dict[str, str]
    risky: bool
    waits_for: str = ""


class Shrinkage(msgspec.Struct, frozen=True):
    """The shrinking half of a plan. memory: the next memory of every node that has any."""

    removals: tuple[Removal, ...]
    unneeded: tuple[str, ...]
    unremovable: tuple[NodeVerdict, ...]
    memory: dict[str, NodeMemory]


def shrink(world: World, room: Room, assume_unneeded_for: float | None = None) -> Shrinkage:
    """Plan the removals. assume_unneeded_for: treat every unneeded node as unneeded for at least so many seconds."""
    trial = _Trial(world, room)
    verdicts: dict[str, NodeVerdict] = {}
    candidates: list[Candidate] = []
    memory: dict[str, NodeMemory] = {}
    for node in _in_order(world, trial.pods):
        known = world.memory.nodes.get(node.name, NodeMemory())
        result = trial.judge(node, known)
        if isinstance(result, Candidate):
            candidates.append(result)
            since = _since(known, world)
            if assume_unneeded_for is not None:
                since = min(since, world.now - assume_unneeded_for)
            memory[node.name] = NodeMemory(unneeded_since=since, confirmed_at=world.now)
        else:
            verdicts[node.name] = result
            until = known.unremovable_until
            if result.reason.code in _TRIED:
                until = world.now + world.options.unremovable_node_recheck_timeout
            if until > world.now:
                memory[node.name] = NodeMemory(unremovable_until=until)
    chosen, held = pick(world, candidates, memory)
    verdicts.update({name: NodeVerdict(name, reason) for name, reason in held.items()})
    return Shrinkage(
        removals=tuple(
            Removal(c.node.name, c.group, "drain" if c.evict else "empty", c.evict, c.destinations) for c in chosen),
        unneeded=tuple(sorted(c.node.name for c in candidates)),
        unremovable=tuple(verdicts[name] for name in sorted(verdicts)),
        memory=memory,
    )


_UNSEEN = 900.0  # seconds without a look after which nobody can say what a node was needed for meanwhile


def _since(known: NodeMemory, world: World) -> float:
    """Since when a node is unneeded. Time in which nobody looked (an outage, mode off) does not count: the timer pauses
    and goes on from where it was last confirmed (scale-down.md §13)."""
    if not known.unneeded_since:
        return world.now
    unseen = world.now - known.confirmed_at
    pause = unseen if unseen > max(_UNSEEN, 3 * world.policy.scan_interval) else 0.0
    return known.unneeded_since + pause


# A simulation that failed is not repeated for a while; a node that never came so far is looked at every time.
_TRIED = frozenset({Code.NO_PLACE_TO_MOVE_PODS, Code.BLOCKED_BY_POD})


def _in_order(world: World, pods: dict[str, list[Pod]]) -> list[Node]:
    """Nodes without pods to move first, then last pass's candidates, then the rest; by name among equals."""
    def key(node: Node) -> tuple[int, str]:
        if not any(not world.snapshot.classes[p.cls].is_daemonset and not world.snapshot.classes[p.cls].mirror
                   for p in pods.get(node.name, ())):
            return 0, node.name
        known = world.memory.nodes.get(node.name)
        return (1 if known is not None and known.unneeded_since else 2), node.name

    return sorted(world.snapshot.nodes, key=key)


class _Trial:
    """The cluster in which removals are tried. It shares the pass's table: what pending pods were promised is taken."""

    def __init__(self, world: World, room: Room) -> None:
        snapshot = world.snapshot
        self.world, self.room = world, room
        self.budgets = BudgetLedger(snapshot.budgets, snapshot.classes)
        self.context = Context(
            now=world.now, options=world.options, budgets=self.budgets,
            controllers={(c.kind, c.namespace, c.name): c for c in snapshot.controllers},
            controller_kinds=frozenset(snapshot.controller_kinds),
        )
        self.pods: dict[str, list[Pod]] = {}
        for pod in snapshot.pods:
            if pod.node:
                self.pods.setdefault(pod.node, []).append(pod)
        self.unknown = {gap.node: gap for gap in snapshot.gaps if gap.node}
        # Pods that earlier removals of this pass would put on a node, with the record of where they end up: if that
        # node goes too, they must find yet another place.
        self.received: dict[str, list[tuple[Pod, dict[str, str]]]] = {}

    def judge(self, node: Node, known: NodeMemory) -> Candidate | NodeVerdict:
        """Whether a node could go, tried for real on the pass's table."""
        pods = [(pod, self.room.classes[pod.cls]) for pod in self.pods.get(node.name, ())]
        gap = self.unknown.get(node.name)
        if gap is not None:
            return NodeVerdict(node.name, Reason.of(Code.UNEXPECTED, detail=f"pod {gap.name} could not be read"),
                               gap.name)
        reason = ineligible(node, pods, known, self.world)
        if reason is None and node.name in self.room.promised:
            reason = Reason.of(Code.PROMISED, pod=self.room.promised[node.name])
        if reason is not None:
            return NodeVerdict(node.name, reason)
        moving: list[Pod] = []
        waits_for = ""
        for pod, cls in pods:
            verdict = drain.assess(pod, cls, self.context)
            if verdict.action is Action.BLOCK and verdict.reason is not None:
                return NodeVerdict(node.name, Reason(Code.BLOCKED_BY_POD, {
                    "pod": pod.key, "rule": verdict.reason.code.value, **verdict.reason.params}), pod.key)
            if verdict.action is Action.MOVE:
                moving.append(pod)
            elif verdict.action is Action.WAIT:
                waits_for = pod.key
        return self._move(node, moving, waits_for)

    def _move(self, node: Node, moving: list[Pod], waits_for: str) -> Candidate | NodeVerdict:
        """Give every moving pod another node, or undo it all and say which pod has none."""
        row = self.room.table.index.get(node.name)
        was_open = bool(self.room.open[row]) if row is not None else False
        if row is not None:
            self._close(row, is_open=False)
        destinations: dict[str, str] = {}
        guests = self.received.get(node.name, [])
        moved: list[tuple[int, Pod, dict[str, str]]] = []
        for pod, record in [*((pod, destinations) for pod in moving), *guests]:
            place = self._place(pod)
            if place is None:
                what = self._nowhere(pod.cls)
                for at, other, _ in moved:
                    self.room.table.give(at, other.cls, 1, self.room.classes[other.cls].ports)
                if row is not None:
                    self._close(row, is_open=was_open)
                return NodeVerdict(node.name, Reason.of(Code.NO_PLACE_TO_MOVE_PODS, pod=pod.key, what=what), pod.key)
            moved.append((place, pod, record))
        for at, pod, record in moved:
            name = self.room.table.nodes[at].name
            record[pod.key] = name
            self.received.setdefault(name, []).append((pod, record))
        self.received.pop(node.name, None)
        return Candidate(
            node=node, group=self.world.group_of[node.name], waits_for=waits_for, destinations=destinations,
            risky=self.budgets.use([pod.cls for pod in moving]), evict=tuple(pod.key for pod in moving),
        )

    def _nowhere(self, cls: int) -> str:
        """Why a pod of a class has no other node, in the scheduler's words and counts."""
        unsure = self.room.unsure.reasons(cls)
        if unsure:
            return "; ".join(sentence(reason) for reason in unsure)
        rows = self.room.open & (np.arange(len(self.room.table)) < self.real_rows)
        counts = tally(cls, self.room.classes[cls], self.room.table, rows)
        return f"0/{int(rows.sum())} nodes: " + ", ".join(f"{count} {text(reason)}" for reason, count in counts)

    def _place(self, pod: Pod) -> int | None:
        cls: PodClass = self.room.classes[pod.cls]
        rows = np.flatnonzero(self.room.capacity(pod.cls))
        rows = rows[rows < self.real_rows]
        if not len(rows):
            return None
        place = int(rows[0])
        self.room.table.take(place, pod.cls, 1, cls.ports)
        return place

    @property
    def real_rows(self) -> int:
        """Rows of real nodes come first; upcoming ones are no destination (scale-down.md §2)."""
        return len(self.room.table) - sum(f.upcoming for f in self.world.groups.values() if f.template is not None)

    def _close(self, row: int, *, is_open: bool) -> None:
        self.room.open[row] = is_open
        for mask in self.room.masks.values():
            mask[row] = False
        if is_open:
            self.room.masks.clear()
