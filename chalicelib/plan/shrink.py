"""Which nodes are not needed, and which of them go now (scale-down.md §2, §3, §5, §7, §8).

A node is tried on a copy of the cluster: its pods are taken off and must all find another place. If they do, the moves
are kept for the rest of the pass, so that the next node is tried in a cluster without this one. Timers run whether or
not anything may be removed just now; every node that stays has a verdict.
"""

from __future__ import annotations

import msgspec
import numpy as np

from chalicelib.model.memory import Brake, NodeMemory
from chalicelib.model.node import Node
from chalicelib.model.plan import Mark, NodeVerdict, Removal
from chalicelib.model.pod import Pod
from chalicelib.model.reason import Code, Reason
from chalicelib.plan import drain
from chalicelib.plan.budgets import BudgetLedger
from chalicelib.plan.demand import is_expendable
from chalicelib.plan.drain.verdict import Action, Context
from chalicelib.plan.eligible import ineligible
from chalicelib.plan.explain import sentence, text
from chalicelib.plan.floor import Floor
from chalicelib.plan.pick import pick
from chalicelib.plan.utilization import Usage
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
    paused: Reason | None = None
    brake: Brake = Brake()
    marks: tuple[Mark, ...] = ()


def shrink(world: World, floor: Floor, assume_unneeded_for: float | None = None,
           hold: Reason | None = None) -> Shrinkage:
    """Plan the removals. assume_unneeded_for: treat every unneeded node as unneeded for at least so many seconds. hold:
    why none goes in this pass, though timers run."""
    trial = _Trial(world, floor)
    verdicts: dict[str, NodeVerdict] = {}
    candidates: list[Candidate] = []
    memory: dict[str, NodeMemory] = {}
    for node in _in_order(world):
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
    picked = pick(world, candidates, memory, hold)
    verdicts.update({name: NodeVerdict(name, reason) for name, reason in picked.held.items()})
    return Shrinkage(
        removals=tuple(
            Removal(c.node.name, c.group, "drain" if c.evict else "empty", c.evict, c.destinations)
            for c in picked.chosen),
        unneeded=tuple(sorted(c.node.name for c in candidates)),
        unremovable=tuple(verdicts[name] for name in sorted(verdicts)),
        memory=memory, paused=picked.paused, brake=picked.brake,
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


def _in_order(world: World) -> list[Node]:
    """Nodes without pods to move first, then last pass's candidates, then the rest; by name among equals."""
    occupancy = world.occupancy
    moves = np.array([*(not cls.is_daemonset and not cls.mirror for cls in world.snapshot.classes), False])
    busy = np.zeros(len(occupancy.index) + 1, dtype=np.bool_)
    busy[occupancy.where[moves[occupancy.cls]]] = True

    def key(node: Node) -> tuple[int, str]:
        if not busy[occupancy.index[node.name]]:
            return 0, node.name
        known = world.memory.nodes.get(node.name)
        return (1 if known is not None and known.unneeded_since else 2), node.name

    return sorted(world.snapshot.nodes, key=key)


class _Trial:
    """The cluster in which removals are tried. It shares the pass's table: what pending pods were promised is taken."""

    def __init__(self, world: World, floor: Floor) -> None:
        snapshot = world.snapshot
        self.world, self.floor = world, floor
        self.budgets = BudgetLedger(snapshot.budgets, snapshot.classes)
        self.context = Context(
            now=world.now, options=world.options, budgets=self.budgets,
            controllers={(c.kind, c.namespace, c.name): c for c in snapshot.controllers},
            controller_kinds=frozenset(snapshot.controller_kinds),
        )
        self.usage = Usage(world)
        self.unknown = {gap.node: gap for gap in snapshot.gaps if gap.node}
        # Pods that earlier removals of this pass would put on a node, with the record of where they end up: if that
        # node goes too, they must find yet another place.
        self.received: dict[str, list[tuple[Pod, dict[str, str]]]] = {}

    def judge(self, node: Node, known: NodeMemory) -> Candidate | NodeVerdict:
        """Whether a node could go, tried for real on the pass's table."""
        gap = self.unknown.get(node.name)
        if gap is not None:
            return NodeVerdict(node.name, Reason.of(Code.UNEXPECTED, detail=f"pod {gap.name} could not be read"),
                               gap.name)
        reason = ineligible(node, known, self.world, self.usage)
        if reason is None and node.name in self.floor.promised:
            reason = Reason.of(Code.PROMISED, pod=self.floor.promised[node.name])
        if reason is not None:
            return NodeVerdict(node.name, reason)
        moving: list[Pod] = []
        waits_for = ""
        for pod in self.world.occupancy.on(node.name):
            cls = self.floor.classes[pod.cls]
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
        floor = self.floor
        row = floor.table.index.get(node.name)
        was_open = bool(floor.open[row]) if row is not None else False
        mark = floor.mark()
        if row is not None:
            floor.close(row)
        destinations: dict[str, str] = {}
        guests = self.received.get(node.name, [])
        moved: list[tuple[int, Pod, dict[str, str]]] = []
        for pod, record in [*((pod, destinations) for pod in moving), *guests]:
            if row is not None and not is_expendable(floor.classes[pod.cls], self.world.options):
                floor.put_one(pod.cls, row, -1)     # expendable pods take no room in the first place
            place = self._place(pod)
            if place is None:
                what = self._nowhere(pod.cls)
                floor.rewind(mark)
                if row is not None:
                    floor.close(row, is_open=was_open)
                return NodeVerdict(node.name, Reason.of(Code.NO_PLACE_TO_MOVE_PODS, pod=pod.key, what=what), pod.key)
            moved.append((place, pod, record))
        for at, pod, record in moved:
            name = floor.table.nodes[at].name
            record[pod.key] = name
            self.received.setdefault(name, []).append((pod, record))
        self.received.pop(node.name, None)
        return Candidate(
            node=node, group=self.world.group_of[node.name], waits_for=waits_for, destinations=destinations,
            risky=self.budgets.use([pod.cls for pod in moving]), evict=tuple(pod.key for pod in moving),
        )

    def _nowhere(self, cls: int) -> str:
        """Why a pod of a class has no other node, in the scheduler's words and counts."""
        unsure = self.floor.nowhere(cls)
        if unsure:
            return "; ".join(sentence(reason) for reason in unsure)
        rows = self.floor.open & (np.arange(len(self.floor.table)) < self.floor.real)
        counts = self.floor.tally(cls, rows)
        return f"0/{int(rows.sum())} nodes: " + ", ".join(f"{count} {text(reason)}" for reason, count in counts)

    def _place(self, pod: Pod) -> int | None:
        """A row of a node that exists; upcoming and planned ones are no destination (scale-down.md §2)."""
        quota, _ = self.floor.quota(pod.cls)
        rows = np.flatnonzero(quota[: self.floor.real])
        if not len(rows):
            return None
        self.floor.put_one(pod.cls, int(rows[0]))
        return int(rows[0])
