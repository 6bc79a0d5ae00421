"""The cluster's room in this pass: nodes that exist, are on their way or are being planned, and the pods on them.

All questions about where a pod may go are asked here, for all rows at once: what does not change is remembered per
class, the rest is arithmetic over columns and counters. What is put down stays down for the rest of the pass, so that
no room is promised twice; `rewind` takes back what was only tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.node import HOSTNAME_LABEL, TO_BE_DELETED, Node, Taint
from chalicelib.model.pod import PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan import predicates
from chalicelib.plan.predicates import node_affinity, taint_toleration
from chalicelib.plan.predicates.not_simulated import NotSimulated
from chalicelib.plan.predicates.volumes import Volumes
from chalicelib.plan.simulation.pod_topology.constraints import PodConstraints, PodConstraintTable, SpreadConstraint
from chalicelib.plan.simulation.pod_topology.existing_nodes import ExistingNodeTopology
from chalicelib.plan.simulation.pod_topology.pod_counts import Counting
from chalicelib.plan.simulation.volume_limits import Attached
from chalicelib.plan.tables.array_types import Bools, Ints
from chalicelib.plan.tables.host_ports import PortRivals
from chalicelib.plan.tables.node_table import NodeTable

_LEAVING = Taint(TO_BE_DELETED, "NoSchedule")
_ASKED = 200  # rows of which each says itself why its volumes do not let a pod in
Put = tuple[int, Ints, Ints]  # class, rows, pods on each
Placements = dict[int, tuple[Ints, Ints]]  # class -> rows, pods on each


class Spare(msgspec.Struct, frozen=True):
    """Headroom that nodes that exist hold: so many virtual pods of a class."""

    name: str
    cls: int
    pods: int


class ConstraintState(msgspec.Struct, frozen=True):
    """What the floor asks: the rules between pods, volumes, and what is not simulated."""

    classes: tuple[PodClass, ...]
    society: PodConstraintTable
    counting: Counting
    volumes: Volumes
    unsure: NotSimulated


class SimulatedCluster:
    """Rows with room. open: rows that may take pods at all (not leaving, not unready, not cordoned)."""

    def __init__(
        self,
        table: NodeTable,
        is_open: Bools,
        parts: ConstraintState,
        *,
        real: int,
        limits: Sequence[Mapping[str, int]],
        nominated: Sequence[tuple[int | None, int]] = (),
    ) -> None:
        """real: rows of nodes that exist; limits: per row, what its CSI drivers attach at most; nominated: row and
        class of pods that have a node to come to."""
        self.table, self.open, self.classes = table, is_open, parts.classes
        self.real = real  # rows of nodes that exist; those on their way and planned ones come after
        self.base = len(table)  # rows without planned nodes
        self.promised: dict[str, str] = {}  # node name -> a pending pod that is expected there
        self.spare: tuple[Spare, ...] = ()  # headroom; its pods do not stand here (plan/headroom.py)
        self.society, self.volumes, self.unsure, self.counting = (
            parts.society,
            parts.volumes,
            parts.unsure,
            parts.counting,
        )
        self.rivals = PortRivals([cls.ports for cls in parts.classes])
        self.held: Mapping[str, str] = {}  # node name -> why it is neither removed nor given more pods
        self.late: Callable[[], bool] = lambda: False  # whether the search must come to its end
        self.unsettled = False  # whether it ended before everybody was tried on the nodes that exist
        self.rows = ExistingNodeTopology(table, self.counts_in_spread)
        self.generation = self.turn = 0  # turn: the row at which dealing in turn begins
        self.attached = Attached(parts.volumes, table, limits)
        for row, cls in nominated:
            if parts.volumes.concerns(cls):
                self.attached.expect(row, cls)
        self._static: dict[int, Bools] = {}
        self._masks: dict[object, Bools] = {}
        self._confined: dict[int, Callable[[int], bool]] = {}
        self._counted: dict[tuple[int, str, tuple[str, ...], bool, bool], Bools] = {}
        self._ghosts: Bools = np.zeros(len(table), dtype=np.bool_)
        self._gone: Bools = np.zeros(len(table), dtype=np.bool_)
        self._log: list[Put] = []

    # -- asking ---------------------------------------------------------------------------------------------------

    def static(self, cls: int) -> Bools:
        """Rows that a class may use by the filters that do not change, closed ones included."""
        found = self._static.get(cls)
        if found is None or len(found) != len(self.table):
            found = self._alike(self.classes[cls], cls)
            if self.volumes.concerns(cls):
                found = found & self.volumes.mask(cls, self.table)
            if cls in self._confined:
                inside = map(self._confined[cls], range(len(self.table)))
                found = found & np.fromiter(inside, dtype=np.bool_, count=len(self.table))
            self._static[cls] = found
        return found

    def confine(self, cls: int, inside: Callable[[int], bool]) -> None:
        """A class, that of virtual pods, may use only rows of which this is true, those to come included."""
        self._confined[cls] = inside
        self._static.pop(cls, None)

    def _alike(self, pod: PodClass, cls: int) -> Bools:
        """Many classes ask the same of a node; they share one mask, which nobody writes into."""
        key = (pod.tolerations, pod.required_affinity, tuple(pod.node_selector.items()))
        found = self._masks.get(key)
        if found is None or len(found) != len(self.table):
            found = self._masks[key] = predicates.static_mask(cls, pod, self.table)
        return found

    def nowhere(self, cls: int, *, moving: bool = False) -> tuple[Reason, ...]:
        """Reasons for which a class fits no node whatever: not simulated, or its claims. moving: a running pod is
        looked at, which takes its own use of a claim along."""
        unsure = self.unsure.reasons(cls)
        reason = self.volumes.nowhere(cls, moving=moving) if self.volumes.concerns(cls) else None
        return (*unsure, reason) if reason is not None else unsure

    def is_plain(self, cls: int) -> bool:
        """Whether resources, what does not change and rules between pods are all that decides where it may go."""
        return not (self.classes[cls].ports or self.volumes.concerns(cls) or self.unsure.reasons(cls))

    def capacity(self, cls: int, *, moving: bool = False) -> Ints:
        """How many more pods of a class every row takes now, the rules between pods aside."""
        if self.nowhere(cls, moving=moving):
            return np.zeros(len(self.table), dtype=np.int64)
        ports = self.classes[cls].ports
        counts: Ints = np.where(self.static(cls) & self.open, self.table.room(cls, single=bool(ports)), 0)
        for row in self.table.ports if ports else ():
            if counts[row] and self.table.port_clash(row, ports):
                counts[row] = 0
        return self.attached.narrowed(cls, counts) if self.volumes.concerns(cls) else counts

    def quota(self, cls: int, *, moving: bool = False) -> tuple[Ints, bool]:
        """How many more pods of a class the rows may take at once, and whether to ask again afterwards."""
        counts = self.capacity(cls, moving=moving)
        needs, again = self.society.needs(cls), False
        if needs is not None and counts.any():
            counts, again = self.rows.quota(cls, needs, counts)
        most = self.volumes.most(cls) if self.volumes.concerns(cls) else None
        if most is not None:
            counts = np.clip(most - (np.cumsum(counts) - counts), 0, counts)
        return counts, again

    def reasons(self, cls: int, row: int) -> tuple[Reason, ...]:
        """Why a row takes no more pod of a class: the first failing filter's reasons, () if it does."""
        found = self.nowhere(cls) or predicates.reasons(cls, self.classes[cls], self.table, row)
        if not found and self.volumes.concerns(cls):
            found = self.claimed(cls) or self.attached.full(cls, row) or self.attached.unbound(cls, row)
        needs = None if found else self.society.needs(cls)
        return found or (self.rows.reasons(cls, needs, row) if needs is not None else ())

    def tally(self, cls: int, rows: Bools) -> tuple[tuple[Reason, int], ...]:
        """Of these rows, how many each filter turns away, as the scheduler counts them; commonest first."""
        pod = self.classes[cls]
        nowhere = self.nowhere(cls)
        if nowhere:
            return tuple((reason, int(rows.sum())) for reason in nowhere)
        counts, left = predicates.tally(cls, pod, self.table, rows)
        if self.volumes.concerns(cls):
            counts += self._by_claims(cls, left)
        needs = self.needs(cls)
        if needs is not None and left.any():
            counts += self.rows.tally(cls, needs, left)
        known = {reason.key: reason for reason, _ in counts}
        many = Counter[object]()
        for reason, count in counts:
            many[reason.key] += count
        return tuple(
            sorted(((reason, many[key]) for key, reason in known.items()), key=lambda pair: (-pair[1], pair[0].key))
        )

    def _by_claims(self, cls: int, left: Bools) -> list[tuple[Reason, int]]:
        """What claims and attach limits turn away of these rows, which are struck out. Rows are asked one by one up to
        a number; beyond it the first speaks for all, since a class for every pod of a StatefulSet is the rule here."""
        most = self.attached.most(cls)
        bindable = self.volumes.mask(cls, self.table) & self.attached.bindable(cls)
        failing = left & ~(bindable & (most > 0 if most is not None else True))
        rows = np.flatnonzero(failing)
        asked = rows if len(rows) <= _ASKED else rows[:1]
        counts = [
            (reason, 1 if len(asked) == len(rows) else len(rows))
            for row in asked
            for reason in self.attached.full(cls, int(row)) or self.attached.unbound(cls, int(row))
        ]
        left[rows] = False
        return counts

    def counts_in_spread(self, cls: int, even: SpreadConstraint, keys: tuple[str, ...]) -> Bools:
        """Rows that count for a spread constraint now."""
        found = self.of_spread(cls, even, keys)
        if even.honors_taints and self._ghosts.any() and not self.tolerates_removal(cls):
            found = found & ~self._ghosts
        return found & ~self._gone if self._gone.any() else found

    def of_spread(self, cls: int, even: SpreadConstraint, keys: tuple[str, ...]) -> Bools:
        """Rows that count for a spread constraint (scale-up.md §5.4 rule 1), closed ones and those on their way out
        included."""
        key = (cls, even.key, keys, even.honors_affinity, even.honors_taints)
        found = self._counted.get(key)
        if found is None or len(found) != len(self.table):
            found = np.ones(len(self.table), dtype=np.bool_)
            for each in keys:
                found &= self.table.label(each)[0] >= 0
            if even.honors_affinity:
                found &= node_affinity.mask(cls, self.classes[cls], self.table)
            if even.honors_taints:
                found &= taint_toleration.mask(cls, self.classes[cls], self.table)
            self._counted[key] = found
        return found

    def tolerates_removal(self, cls: int) -> bool:
        """Whether a class tolerates the taint of a node on its way out, which goes on counting for it then."""
        return taint_toleration.untolerated(self.classes[cls].tolerations, (_LEAVING,)) is None

    def place(self, cls: int, rows: Ints, counts: Ints) -> None:
        """Pods of a class onto rows, each named once; negative counts take them off."""
        self.table.put(cls, rows, counts, self.classes[cls].ports)
        counted = self.counting.add(rows, cls, counts)
        if self.volumes.concerns(cls):
            for row, count in zip(rows, counts, strict=True):
                self.attached.add(int(row), cls, int(count))
        self._log.append((cls, rows, counts))
        if counted:
            self.rows.forget()
        self.generation += 1

    def put_one(self, cls: int, row: int, count: int = 1) -> None:
        """The same for one row."""
        self.place(cls, np.array([row]), np.array([count]))

    def place_first_fit(self, cls: int, count: int, *, around: bool = False) -> list[tuple[int, int]]:
        """Up to `count` pods of a class, first fit by row, fewer once it is late. Returns (row, pods) in the order
        placed. around: one pod a row in turn, beginning after the last row that took one (scale-up.md §2)."""
        done: list[tuple[int, int]] = []
        again = True
        while count > 0 and again and not self.late():
            quota, again = self.quota(cls)
            most = self.attached.at_once(cls, count)
            rows, here = self._in_turn(quota, most) if around else first_fit(quota, most)
            again = again or most < count
            if not len(rows):
                break
            self.place(cls, rows, here)
            done += zip(rows.tolist(), here.tolist(), strict=True)
            count -= int(here.sum())
        return done

    def _in_turn(self, quota: Ints, count: int) -> tuple[Ints, Ints]:
        """So many pods dealt over the rows in turn, at most the quota on each."""
        order = np.roll(np.arange(len(quota)), -self.turn)
        most = quota[order]
        low, high = 0, int(most.max(initial=0))
        while low < high:  # the most full turns that do not deal too many
            middle = (low + high + 1) // 2
            if int(np.minimum(most, middle).sum()) <= count:
                low = middle
            else:
                high = middle - 1
        dealt = np.minimum(most, low)
        last = np.flatnonzero(most > low)[: max(0, count - int(dealt.sum()))]
        dealt[last] += 1
        if len(last):
            self.turn = int(order[last[-1]]) + 1
        elif dealt.any():
            self.turn = int(order[np.flatnonzero(most >= low)[-1]]) + 1
        here: Ints = np.zeros_like(quota)
        here[order] = dealt
        rows = np.flatnonzero(here)
        return rows, here[rows]

    def checkpoint(self) -> int:
        """A point to rewind to."""
        return len(self._log)

    def rollback(self, mark: int) -> None:
        """Take back everything put down since."""
        for cls, rows, counts in reversed(self._log[mark:]):
            self.place(cls, rows, -counts)
        del self._log[mark:]

    def standing(self) -> Placements:
        """What was placed in this pass: class -> (rows, pods on each), rows in order."""
        found: Placements = {}
        by_class: dict[int, list[tuple[Ints, Ints]]] = {}
        for cls, rows, counts in self._log:
            by_class.setdefault(cls, []).append((rows, counts))
        for cls in sorted(by_class):
            all_rows = np.concatenate([rows for rows, _ in by_class[cls]])
            counts = np.concatenate([counts for _, counts in by_class[cls]])
            sums = np.bincount(all_rows, weights=counts).astype(np.int64)
            rows = np.flatnonzero(sums)
            if len(rows):
                found[cls] = (rows, sums[rows])
        return found

    def put_all(self, standing: Placements) -> None:
        """Pods until these stand; what stands already is not put again."""
        here = self.standing()
        for cls, (rows, counts) in standing.items():
            more: Ints = np.zeros(len(self.table), dtype=np.int64)
            more[rows] += counts
            if cls in here:
                more[here[cls][0]] -= here[cls][1]
            where = np.flatnonzero(more)
            if len(where):
                self.place(cls, where, more[where])

    def reset(self, mark: int = 0) -> None:
        """As it was built, without planned nodes, but for what was placed before the mark."""
        self.rollback(mark)
        self.table.truncate(self.base)
        self.open, self._ghosts, self._gone = (each[: self.base] for each in (self.open, self._ghosts, self._gone))
        self.counting.reset(self.base)
        self.attached.truncate(self.base)
        self._static.clear()
        self._masks.clear()
        self._counted.clear()
        self.rows.forget()

    def extend(self, nodes: Sequence[Node], free: Ints, daemons: Sequence[int], limits: Mapping[str, int]) -> range:
        """New alike nodes, each already carrying the pods of these classes (free says what is left). Returns rows."""
        first = len(self.table)
        self.table.extend(nodes, free)
        self.open = np.concatenate([self.open, np.full(len(nodes), not nodes[0].unschedulable)])
        nowhere: Bools = np.zeros(len(nodes), dtype=np.bool_)
        self._ghosts, self._gone = (np.concatenate([each, nowhere]) for each in (self._ghosts, self._gone))
        self.counting.extend(len(nodes))
        self.attached.extend([node.name for node in nodes], [limits] * len(nodes))
        added = range(first, first + len(nodes))
        rows, ones = np.arange(first, first + len(nodes)), np.ones(len(nodes), dtype=np.int64)
        for cls in daemons:
            self.counting.add(rows, cls, ones)
            for row in added if self.classes[cls].ports else ():
                self.table.hold(row, self.classes[cls].ports)
        self.rows.forget()
        self.generation += 1
        return added

    def claimed(self, cls: int) -> tuple[Reason, ...]:
        """A reason if a claim that only one pod may use is taken by a pod placed in this pass."""
        claim = self.attached.exclusive(cls) if self.volumes.concerns(cls) else ""
        return (Reason.of(ReasonCode.EXCLUSIVE_CLAIM, claim=claim),) if claim else ()

    def needs(self, cls: int) -> PodConstraints | None:
        """What a class asks of other pods; None for most."""
        return self.society.needs(cls)

    def close(self, row: int, *, is_open: bool = False) -> None:
        """No more pods onto a row, or open it again."""
        self.open[row] = is_open

    def mark_leaving(self, row: int) -> None:
        """A node on its way out: no more pods onto its row, which goes on counting as a domain as the tainted node
        does (scale-down.md §5.2)."""
        self.open[row], self._ghosts[row] = False, True
        self.rows.forget()

    def remove_node(self, row: int) -> None:
        """It has left, and is no domain any more (§5.4)."""
        self._gone[row] = True
        self.rows.forget()

    def restore_node(self, row: int, *, is_open: bool) -> None:
        """Take either back."""
        self.open[row], self._ghosts[row], self._gone[row] = is_open, False, False
        self.rows.forget()

    def adjust_counts(self, cls: int, row: int, count: int) -> None:
        """Pods of a class counted on a row, or no more (negative), for others' rules; their room is not touched."""
        if self.counting.add_one(row, cls, count):
            self.rows.forget()


def first_fit(quota: Ints, count: int) -> tuple[Ints, Ints]:
    """The first rows that take `count` pods in all under these quotas, and how many each."""
    rows = np.flatnonzero(quota)
    total = np.cumsum(quota[rows])
    if not len(rows) or total[-1] <= count:
        return rows, quota[rows]
    last = int(np.searchsorted(total, count))
    here = quota[rows[: last + 1]].copy()
    here[last] -= total[last] - count
    return rows[: last + 1], here


def renamed(node: Node, names: Sequence[str]) -> list[Node]:
    """Copies of a node under other names, host name label included."""
    return [msgspec.structs.replace(node, name=name, labels={**node.labels, HOSTNAME_LABEL: name}) for name in names]
