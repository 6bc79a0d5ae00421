"""The simulated cluster of this pass: existing, upcoming and planned nodes, and the pods on them.

All questions about pod placement are answered here, for all rows at once. Constant results are
cached per class; the rest is arithmetic over columns and counters. Placed pods stay for the rest of
the pass, so that no room is promised twice; `rollback` undoes trial placements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.node import TO_BE_DELETED, Node, Taint
from chalicelib.model.pod import PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan import predicates
from chalicelib.plan.demand.pending_pods import PodBatch
from chalicelib.plan.predicates import NotSimulated
from chalicelib.plan.simulation.pod_constraints import (
    Counting,
    PodConstraints,
    PodConstraintTable,
    SpreadConstraint,
)
from chalicelib.plan.simulation.pod_topology import ExistingNodeTopology
from chalicelib.plan.simulation.unfinished_rows import UnfinishedRow, UnfinishedRows
from chalicelib.plan.simulation.unknown_zones import UnknownZones
from chalicelib.plan.simulation.volume_limits import Attached
from chalicelib.plan.state.node_labels import own_keys
from chalicelib.plan.state.pass_time import PassTime
from chalicelib.plan.tables import Bools, Ints, NodeTable, PortRivals, first_fit
from chalicelib.plan.volumes import Volumes

_LEAVING = Taint(TO_BE_DELETED, "NoSchedule")
_ASKED = 200  # rows that are checked individually for volume reasons
Put = tuple[int, Ints, Ints]  # class, rows, pods on each
Placements = dict[int, tuple[Ints, Ints]]  # class -> rows, pods on each


class Spare(msgspec.Struct, frozen=True):
    """Headroom on existing nodes: a number of virtual pods of a class."""

    name: str
    cls: int
    pods: int


class SimulatedCluster:
    """Rows with room. open: rows that may take pods at all (not leaving,
    not unready, not cordoned).

    real: rows of existing nodes; base: rows without planned nodes (upcoming ones follow the
    existing ones, and planned ones these). promised: node name -> a pending pod that is expected
    there. spare: headroom; its pods are not placed here (plan/scale_up/headroom_purchases.py).
    held: node name -> why it is neither removed nor given more pods. late: whether the search must
    stop. check: raises OutOfTime; called before every question about a class. unsettled: whether
    the search stopped before all pods were tried on existing nodes. unsure_nodes: names of upcoming
    nodes that are taken to come in a zone which nobody promises; zones: the verdicts on nodes whose
    zone is unknown. unfinished: rows of nodes that still lack something; the table has them as they
    will be. Only the methods change these.
    """

    def __init__(
        self,
        table: NodeTable,
        is_open: Bools,
        *,
        classes: tuple[PodClass, ...],
        constraints: PodConstraintTable,
        counting: Counting,
        volumes: Volumes,
        unsure: NotSimulated,
        real: int,
        limits: Sequence[Mapping[str, int]],
        held: Mapping[str, str],
        pass_time: PassTime,
        nominated: Sequence[tuple[int | None, int]] = (),
        in_zones: Mapping[str, Mapping[str, Node]] | None = None,
        unfinished: Mapping[int, UnfinishedRow] | None = None,
        coming: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """limits: per row, the attach limits of its CSI drivers; nominated: row and class of pods
        that are nominated to a node; in_zones: of groups in several zones, zone -> a new node
        there; unfinished: rows of nodes that still
        lack something; coming: group -> the rows of its upcoming nodes."""
        self.table, self.open, self.classes, self.real, self.base = (
            table,
            is_open,
            classes,
            real,
            len(table),
        )
        self.constraints, self.volumes, self.counting, self.held = (
            constraints,
            volumes,
            counting,
            held,
        )
        self.late, self.check = pass_time.late, pass_time.check
        self._unsure, self.coming = unsure, coming or {}
        self.promised: dict[str, str] = {}
        self.spare: tuple[Spare, ...] = ()
        self.unsettled = False
        self.rivals = PortRivals([cls.ports for cls in classes])
        self.rows = ExistingNodeTopology(table, self.counts_in_spread)
        self.generation = 0
        self.zones = UnknownZones(
            in_zones or {}, classes, table.columns, volumes, constraints.needs
        )
        self.unsure_nodes: frozenset[str] = frozenset()
        self.attached = Attached(volumes, table, limits)
        for row, cls in nominated:
            if volumes.concerns(cls):
                self.attached.expect(row, cls)
        self.unfinished = UnfinishedRows(unfinished or {}, table.columns, classes, volumes)
        self._waits_for_nothing = False
        self._static: dict[int, Bools] = {}
        self._masks: dict[object, Bools] = {}
        self._confined: dict[int, Callable[[int], bool]] = {}
        self._counted: dict[tuple[int, bool, bool], Bools] = {}
        self._leaving: Bools = np.zeros(len(table), dtype=np.bool_)
        self._removed: Bools = np.zeros(len(table), dtype=np.bool_)
        self._log: list[Put] = []
        #: The number of entries of the log that are summed up, and what stands after them.
        self._standing: tuple[int, Placements] = 0, {}

    def static(self, cls: int) -> Bools:
        """Return the rows that a class may use by the constant predicates, closed rows included."""
        mask = self._static.get(cls)
        if mask is None or len(mask) != len(self.table):
            # Many classes have equal node requirements and share one read-only mask.
            pod = self.classes[cls]
            key = (pod.tolerations, pod.required_affinity, tuple(pod.node_selector.items()))
            mask = self._masks.get(key)
            if mask is None or len(mask) != len(self.table):
                mask = self._masks[key] = predicates.static_mask(cls, pod, self.table)
            if self.volumes.concerns(cls):
                mask = mask & self.volumes.mask(cls, self.table)
            mask = self.zones.with_unknown(cls, self.table, mask)
            if self.unfinished:
                mask = self._with_unfinished(cls, mask)
            if cls in self._confined:
                inside = map(self._confined[cls], range(len(self.table)))
                mask = mask & np.fromiter(inside, dtype=np.bool_, count=len(self.table))
            self._static[cls] = mask
        return mask

    def _with_unfinished(self, cls: int, mask: Bools) -> Bools:
        """Add the unfinished rows that take a class as they are."""
        rows, taking = self.unfinished.rows, self.unfinished.taking(cls)
        changed = mask.copy()
        changed[rows] = taking if self._waits_for_nothing else mask[rows] | taking
        return changed

    def wait_for_nothing(self) -> None:
        """Let unfinished nodes be as they are, from now on: a pod that moves cannot
        wait for what they lack."""
        if self.unfinished:
            self._waits_for_nothing = True
            self._static.clear()

    def confine(self, cls: int, inside: Callable[[int], bool]) -> None:
        """Restrict a class of virtual pods to the rows for which `inside` is
        true, future rows included."""
        self._confined[cls] = inside
        self._static.pop(cls, None)

    def nowhere(self, cls: int, *, moving: bool = False) -> tuple[Reason, ...]:
        """Return the reasons for which a class fits no node at all: not simulated, or its claims.
        moving: the pod is a running pod, which releases its own use of a claim."""
        unsure = self._unsure.reasons(cls)
        reason = self.volumes.nowhere(cls, moving=moving) if self.volumes.concerns(cls) else None
        return (*unsure, reason) if reason is not None else unsure

    def is_independent(self, cls: int) -> bool:
        """Return whether a class has no rules about other pods, no host ports and no claims."""
        return (
            not self.classes[cls].ports
            and not self.volumes.concerns(cls)
            and self.needs(cls) is None
        )

    def is_plain(self, cls: int) -> bool:
        """Return whether only resources, constant predicates and rules between pods decide
        the placement of a class."""
        return not (
            self.classes[cls].ports or self.volumes.concerns(cls) or self._unsure.reasons(cls)
        )

    def capacity(self, cls: int, *, moving: bool = False) -> Ints:
        """Return how many more pods of a class every row takes now,
        regardless of rules between pods."""
        self.check()
        if self.nowhere(cls, moving=moving):
            return np.zeros(len(self.table), dtype=np.int64)
        ports = self.classes[cls].ports
        counts: Ints = np.where(
            self.static(cls) & self.open, self.table.room(cls, single=bool(ports)), 0
        )
        for row in self.table.ports if ports else ():
            if counts[row] and self.table.port_clash(row, ports):
                counts[row] = 0
        return self.attached.narrowed(cls, counts) if self.volumes.concerns(cls) else counts

    def quota(
        self, cls: int, *, moving: bool = False, preference: Ints | None = None
    ) -> tuple[Ints, bool]:
        """Return how many more pods of a class the rows may take at once, and whether to ask
        again afterwards. preference: all rows, in the order in which they share what a domain may
        take; by number if not given."""
        counts = self.capacity(cls, moving=moving)
        needs, again = self.constraints.needs(cls), False
        if needs is not None and counts.any():
            counts, again = self.rows.quota(needs, counts, preference)
        most = self.volumes.most(cls) if self.volumes.concerns(cls) else None
        if most is not None:
            counts = np.clip(most - (np.cumsum(counts) - counts), 0, counts)
        return counts, again

    def reasons(self, cls: int, row: int) -> tuple[Reason, ...]:
        """Return why a row takes no further pod of a class: the first failing
        predicate's reasons, () if it does."""
        self.check()
        reasons = self.nowhere(cls) or predicates.reasons(cls, self.classes[cls], self.table, row)
        if not reasons and self.volumes.concerns(cls):
            reasons = (
                self.claimed(cls) or self.attached.full(cls, row) or self.attached.unbound(cls, row)
            )
        needs = None if reasons else self.constraints.needs(cls)
        return reasons if needs is None else self.rows.reasons(needs, row)

    def tally(self, cls: int, rows: Bools) -> tuple[tuple[Reason, int], ...]:
        """Count how many of these rows each predicate rejects, as the scheduler
        does; most frequent first."""
        self.check()
        nowhere = self.nowhere(cls)
        if nowhere:
            return tuple((reason, int(rows.sum())) for reason in nowhere)
        counts, passing = predicates.tally(cls, self.classes[cls], self.table, rows)
        if self.volumes.concerns(cls):
            counts += self._tally_by_claims(cls, passing)
        needs = self.needs(cls)
        if needs is not None and passing.any():
            counts += self.rows.tally(needs, passing)
        reason_of = {reason.key: reason for reason, _ in counts}
        total = Counter[object]()
        for reason, count in counts:
            total[reason.key] += count
        ordered = sorted(reason_of.items(), key=lambda item: (-total[item[0]], item[1].key))
        return tuple((reason, total[key]) for key, reason in ordered)

    def _tally_by_claims(self, cls: int, passing: Bools) -> list[tuple[Reason, int]]:
        """Count the rows rejected by claims and attach limits, and remove them from the mask. Up to
        a number, rows are checked one by one; beyond it the first row's reasons stand for all,
        because a StatefulSet often has one class for every pod."""
        most = self.attached.most(cls)
        bindable = self.volumes.mask(cls, self.table) & self.attached.bindable(cls)
        rows = np.flatnonzero(passing & ~(bindable & (most > 0 if most is not None else True)))
        one_by_one = len(rows) <= _ASKED
        counts = [
            (reason, 1 if one_by_one else len(rows))
            for row in (rows if one_by_one else rows[:1])
            for reason in self.attached.full(cls, int(row)) or self.attached.unbound(cls, int(row))
        ]
        passing[rows] = False
        return counts

    def counts_in_spread(self, constraint: SpreadConstraint) -> Bools:
        """Return the rows that count for a spread constraint now."""
        rows = self.of_spread(constraint)
        if (
            constraint.honors_taints
            and self._leaving.any()
            and not self.tolerates_removal(constraint.cls)
        ):
            rows = rows & ~self._leaving
        return rows & ~self._removed if self._removed.any() else rows

    def of_spread(self, constraint: SpreadConstraint) -> Bools:
        """Return the rows that count for a spread constraint, closed and leaving rows included."""
        cls, pod = constraint.cls, self.classes[constraint.cls]
        key = (cls, constraint.honors_affinity, constraint.honors_taints)
        rows = self._counted.get(key)
        if rows is None or len(rows) != len(self.table):
            rows = np.ones(len(self.table), dtype=np.bool_)
            for label in constraint.keys:
                rows &= self.table.label(label)[0] >= 0
            if constraint.honors_affinity:
                rows &= predicates.affinity_mask(cls, pod, self.table)
            if constraint.honors_taints:
                rows &= predicates.taint_mask(cls, pod, self.table)
            self._counted[key] = rows
        return rows

    def tolerates_removal(self, cls: int) -> bool:
        """Return whether a class tolerates the removal taint; the leaving node then still counts
        for its spread constraints."""
        return predicates.untolerated(self.classes[cls].tolerations, (_LEAVING,)) is None

    def place(self, cls: int, rows: Ints, counts: Ints) -> None:
        """Place pods of a class on rows, each row named once; negative counts remove them."""
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
        """Place pods of a class on one row."""
        self.place(cls, np.array([row]), np.array([count]))

    def place_first_fit(
        self,
        cls: int,
        count: int,
        round_robin: RoundRobin | None = None,
        *,
        only: Sequence[int] | None = None,
    ) -> list[tuple[int, int]]:
        """Place up to `count` pods of a class, first fit by row or in turn, fewer once
        the time is up. only: the rows that may be used, all if not given. Returns (row,
        pods) in placement order."""
        placed: list[tuple[int, int]] = []
        again = True
        barred, first = self._barred(only) if only is not None else (None, None)
        while count > 0 and again and not self.late():
            quota, again = self.quota(cls, preference=first)
            if barred is not None:
                quota = np.where(barred, 0, quota)
            most = self.attached.at_once(cls, count)
            rows, pods = (
                first_fit(quota, most)
                if round_robin is None
                else round_robin.distribute(quota, most)
            )
            again = again or most < count
            if not len(rows):
                break
            self.place(cls, rows, pods)
            placed += zip(rows.tolist(), pods.tolist(), strict=True)
            count -= int(pods.sum())
        return placed

    def _barred(self, only: Sequence[int]) -> tuple[Bools, Ints]:
        """Return which rows are not among these, and all rows, these first."""
        barred: Bools = np.ones(len(self.table), dtype=np.bool_)
        barred[list(only)] = False
        return barred, np.argsort(barred, kind="stable")

    def checkpoint(self) -> int:
        """Return a checkpoint for `rollback`."""
        return len(self._log)

    def rollback(self, mark: int) -> None:
        """Undo all placements since a checkpoint."""
        for cls, rows, counts in reversed(self._log[mark:]):
            self.place(cls, rows, -counts)
        del self._log[mark:]
        if mark < self._standing[0]:
            self._standing = 0, {}

    def standing(self) -> Placements:
        """Return what was placed in this pass: class -> (rows, pods on each), rows in order."""
        count, standing = self._standing
        if count < len(self._log):
            standing = _after(standing, self._log[count:])
            self._standing = len(self._log), standing
        return dict(standing)

    def put_all(self, standing: Placements) -> None:
        """Place pods until the given placements exist; pods already placed are not placed again."""
        present = self.standing()
        for cls, (rows, counts) in standing.items():
            missing: Ints = np.zeros(len(self.table), dtype=np.int64)
            missing[rows] += counts
            if cls in present:
                missing[present[cls][0]] -= present[cls][1]
            where = np.flatnonzero(missing)
            if len(where):
                self.place(cls, where, missing[where])

    def reset(self, mark: int = 0) -> None:
        """Restore the initial state without planned nodes, except for placements
        made before the checkpoint."""
        self.rollback(mark)
        self.drop(self.base)

    def drop(self, length: int) -> None:
        """Drop all rows but the first ones; no pods of this pass are on the dropped rows."""
        self.table.truncate(length)
        self.open, self._leaving, self._removed = (
            mask[:length] for mask in (self.open, self._leaving, self._removed)
        )
        self.counting.reset(length)
        self.attached.truncate(length)
        self._static.clear()
        self._masks.clear()
        self._counted.clear()
        self.rows.forget()

    def extend(
        self, nodes: Sequence[Node], free: Ints, daemons: Sequence[int], limits: Mapping[str, int]
    ) -> range:
        """Add equal new nodes that already carry the pods of these classes (`free` is what is
        left). Returns their rows."""
        first = len(self.table)
        self.table.extend(nodes, free)
        self.open = np.concatenate([self.open, np.full(len(nodes), not nodes[0].unschedulable)])
        none: Bools = np.zeros(len(nodes), dtype=np.bool_)
        self._leaving = np.concatenate([self._leaving, none])
        self._removed = np.concatenate([self._removed, none])
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
        """Return a reason if a pod placed in this pass has taken a
        ReadWriteOncePod claim of the class."""
        claim = self.attached.exclusive(cls) if self.volumes.concerns(cls) else ""
        return (Reason.of(ReasonCode.EXCLUSIVE_CLAIM, claim=claim),) if claim else ()

    def needs(self, cls: int) -> PodConstraints | None:
        """Return the constraints of a class on other pods; None for most classes."""
        self.check()
        return self.constraints.needs(cls)

    def require_domains(self, cls: int, key: str, domains: int) -> None:
        """Let pods of a class be spread over at least so many domains of a key, until
        `constraints.as_declared`."""
        self.constraints.require_domains(cls, key, domains)
        self.rows.forget()

    def promise(self, pod_on_row: Mapping[int, str]) -> None:
        """Record nodes on which pending pods are expected. pod_on_row: row -> one of the pods."""
        self.promised.update((self.table.nodes[row].name, key) for row, key in pod_on_row.items())

    def doubt(self, names: Iterable[str]) -> None:
        """Record the upcoming nodes that may come in another zone than they are simulated in."""
        self.unsure_nodes = frozenset(names)

    def reserve(self, spare: tuple[Spare, ...]) -> None:
        """Record the headroom on existing nodes."""
        self.spare = spare

    def record_lateness(self) -> None:
        """Record whether the search has stopped before all pods were tried on existing nodes."""
        self.unsettled |= self.late()

    def close(self, row: int, *, is_open: bool = False) -> None:
        """Close a row for further pods, or open it again."""
        self.open[row] = is_open

    def mark_leaving(self, row: int) -> None:
        """Mark a node as leaving: its row takes no more pods but still counts as a domain,
        as the tainted node does."""
        self.open[row], self._leaving[row] = False, True
        self.rows.forget()

    def remove_node(self, row: int) -> None:
        """Remove a node that was leaving; it does not count as a domain any more."""
        self._removed[row] = True
        self.rows.forget()

    def restore_node(self, row: int, *, is_open: bool) -> None:
        """Undo `mark_leaving` and `remove_node`."""
        self.open[row], self._leaving[row], self._removed[row] = is_open, False, False
        self.rows.forget()

    def adjust_counts(self, cls: int, row: int, count: int) -> None:
        """Adjust the counters of a class on a row for the rules of other pods, without
        changing the row's room."""
        if self.counting.add_one(row, cls, count):
            self.rows.forget()


def _after(standing: Placements, puts: Sequence[Put]) -> Placements:
    """Return what stands after more placements and removals; classes and rows in order."""
    parts: dict[int, list[tuple[Ints, Ints]]] = {}
    for cls, rows, counts in puts:
        parts.setdefault(cls, []).append((rows, counts))
    changed = dict(standing)
    for cls, added in parts.items():
        before = changed.pop(cls, None)
        summed = added if before is None else [before, *added]
        all_rows = np.concatenate([rows for rows, _ in summed])
        counts = np.concatenate([counts for _, counts in summed])
        sums = np.bincount(all_rows, weights=counts).astype(np.int64)
        occupied = sums.nonzero()[0]
        if len(occupied):
            changed[cls] = (occupied, sums[occupied])
    return {cls: changed[cls] for cls in sorted(changed)}


def renamed(node: Node, names: Sequence[str]) -> list[Node]:
    """Return copies of a template under other names. The labels that are of one node get
    the name as their value."""
    own = own_keys(node.labels)
    return [
        msgspec.structs.replace(node, name=name, labels={**node.labels, **dict.fromkeys(own, name)})
        for name in names
    ]


class RoundRobin:
    """Distributes pods over rows in turn, one on each, beginning after the last row that took
    one."""

    def __init__(self) -> None:
        self._row = 0

    def begin_at(self, row: int) -> None:
        """Begin at this row."""
        self._row = row

    def distribute(self, quota: Ints, count: int) -> tuple[Ints, Ints]:
        """Return the rows that take `count` pods, at most the quota on each,
        and how many each takes."""
        order = np.roll(np.arange(len(quota)), -self._row)
        most = quota[order]
        low, high = 0, int(most.max(initial=0))
        while low < high:  # the largest number of full turns that does not exceed the count
            middle = (low + high + 1) // 2
            if int(np.minimum(most, middle).sum()) <= count:
                low = middle
            else:
                high = middle - 1
        dealt = np.minimum(most, low)
        last = np.flatnonzero(most > low)[: max(0, count - int(dealt.sum()))]
        dealt[last] += 1
        if len(last):
            self._row = int(order[last[-1]]) + 1
        elif dealt.any():
            self._row = int(order[np.flatnonzero(most >= low)[-1]]) + 1
        pods: Ints = np.zeros_like(quota)
        pods[order] = dealt
        rows = pods.nonzero()[0]
        return rows, pods[rows]


def place(
    simulated: SimulatedCluster,
    queue: Sequence[PodBatch],
    stop: Callable[[], bool] = lambda: False,
    round_robin: RoundRobin | None = None,
) -> tuple[PodBatch, ...]:
    """Place what fits, first fit by row; it stays placed. Returns what found no room.

    The order is the scheduler's: higher priority first, then older, then by name. Pods that wait
    for others to be placed are retried until nothing changes, as the scheduler does on every event.
    stop: called before every batch; batches not tried by then are returned. round_robin:
    distributes pods over the rows; without it they are placed first fit.
    """
    waiting = list(queue)
    while True:
        unplaced: list[PodBatch] = []
        # class -> the simulated cluster's generation when it found no room
        full: dict[int, int] = {}
        for batch in waiting:
            if full.get(batch.cls) == simulated.generation or stop() or simulated.late():
                unplaced.append(batch)
                continue
            placed = sum(
                pods
                for _, pods in simulated.place_first_fit(batch.cls, len(batch.pods), round_robin)
            )
            if placed < len(batch.pods):
                unplaced.append(batch.only(batch.pods[placed:]))
                full[batch.cls] = simulated.generation
        if simulated.late():
            return tuple(unplaced)
        retry = [batch for batch in unplaced if simulated.needs(batch.cls) is not None]
        if not retry or sum(len(b.pods) for b in unplaced) == sum(len(b.pods) for b in waiting):
            return tuple(unplaced)
        waiting = unplaced
