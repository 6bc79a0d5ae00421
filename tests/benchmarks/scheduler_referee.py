"""Binds pending pods of a snapshot one by one, as a scheduler would: the referee of the benchmarks.

Which nodes take a pod is decided by the project's predicates. Which of them the pod gets is a
choice: by the scores of kube-scheduler's default profile, by LeastAllocated alone, or the first.
A snapshot has no images, Services and preferred rules between pods: they do not score. It has
no containers either: a class that does not request a resource counts as one container.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

import numpy as np

from chalicelib.model.memory import Memory
from chalicelib.model.node import HOSTNAME_LABEL
from chalicelib.model.pod import PodAffinityTerm, PodClass
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.predicates import affinity_mask, taint_mask, tolerates
from chalicelib.plan.removal.pod_destinations import IncrementalPodTopology
from chalicelib.plan.simulation.cluster_builder import build
from chalicelib.plan.simulation.pod_constraints import Matching
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.plan.tables import Bools, Ints, ResourceColumns
from chalicelib.policy.settings.cluster_policy import Policy
from infra.emulators.controllers.scheduler import score_formulas as formulas
from infra.emulators.controllers.scheduler.score_formulas import NodeSampling, SpreadCounts

_RESOURCES = ("cpu", "memory")
_ZONE = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")


class SchedulerScores(Enum):
    """How a referee chooses among the nodes that take a pod."""

    DEFAULT = "default"
    LEAST_ALLOCATED = "least-allocated"
    FIRST = "first"


CHOICES = [scores.value for scores in SchedulerScores]
"""Their names in commands."""


def referee(
    snapshot: Snapshot,
    classes: Sequence[int],
    scores: SchedulerScores = SchedulerScores.LEAST_ALLOCATED,
    sampling: NodeSampling | None = None,
) -> list[str]:
    """The node of a pod of each of these classes, in this order, "" for none. A pod that depends on
    another is tried again after it. sampling: of the default scores; it goes on from call to
    call."""
    scheduler = Referee(snapshot, scores, sampling)
    places = [""] * len(classes)
    waiting = list(range(len(classes)))
    while waiting:
        left = []
        for at in waiting:
            places[at] = scheduler.place(classes[at])
            if not places[at]:
                left.append(at)
        if len(left) == len(waiting):
            break
        waiting = [at for at in left if scheduler.depends(classes[at])]
    return places


class Chooser(Protocol):
    """Chooses the row of a pod and follows what was placed."""

    def choose(self, cls: int, fits: Bools) -> int: ...

    def placed(self, cls: int, row: int) -> None: ...


class Referee:
    """Binds pods one by one. chooser: its choice of nodes; rows: node -> its row there."""

    def __init__(
        self, snapshot: Snapshot, scores: SchedulerScores, sampling: NodeSampling | None = None
    ) -> None:
        state = build_cluster_state(snapshot, Policy(snapshot.cluster), Memory(), snapshot.taken_at)
        self._simulated = build(state, (), ResourceColumns(snapshot.classes))
        self._topology = IncrementalPodTopology(self._simulated)
        table = self._simulated.table
        self.rows: Mapping[str, int] = table.index
        self._able = self._simulated.open & (np.arange(len(table)) < self._simulated.real)
        self._full: set[int] = set()  # classes without rules that no node takes; room only shrinks
        self.chooser: Chooser = _First()
        if scores is SchedulerScores.LEAST_ALLOCATED:
            self.chooser = _Emptiest(self._simulated)
        elif scores is SchedulerScores.DEFAULT:
            self.chooser = DefaultScores(snapshot, self._simulated, sampling or NodeSampling())

    def depends(self, cls: int) -> bool:
        """Whether a class has rules about other pods."""
        return self._simulated.needs(cls) is not None

    def fitting(self, cls: int) -> Bools:
        """Which rows take a pod of a class now."""
        simulated, table = self._simulated, self._simulated.table
        if not simulated.is_plain(cls):
            quota: Bools = simulated.quota(cls)[0] > 0
            return self._able & quota
        fits: Bools = self._able & simulated.static(cls)
        for column, amount in zip(*table.columns.asked(cls), strict=True):
            fits &= table.free[:, column] >= amount
        if self.depends(cls):
            fits &= self._topology.mask(cls)
        return fits

    def place(self, cls: int) -> str:
        """The node that takes a pod of a class, "" if none does."""
        if cls in self._full:
            return ""
        fits = self.fitting(cls)
        if not fits.any():
            if not self.depends(cls):
                self._full.add(cls)
            return ""
        simulated, table = self._simulated, self._simulated.table
        row = self.chooser.choose(cls, fits)
        if simulated.is_plain(cls):
            columns, need = table.columns.asked(cls)
            table.free[row][columns] -= need
            self._topology.count(cls, row, 1)
        else:
            simulated.put_one(cls, row)
            self._topology.follow(cls, row, 1)
        self.chooser.placed(cls, row)
        return table.nodes[row].name


class _First:
    """The first row."""

    def choose(self, cls: int, fits: Bools) -> int:
        return int(fits.argmax())

    def placed(self, cls: int, row: int) -> None:
        """It scores nothing."""


class _Emptiest:
    """The row with the largest free share of cpu and memory, as in LeastAllocated without its
    rounding."""

    def __init__(self, simulated: SimulatedCluster) -> None:
        table = self._table = simulated.table
        names = table.columns.names
        self._columns = [names.index(name) for name in _RESOURCES if name in names]
        self._offers = np.maximum(table.allocatable[:, self._columns], 1)
        self._free = (table.free[:, self._columns] / self._offers).sum(axis=1)

    def choose(self, cls: int, fits: Bools) -> int:
        return int(np.where(fits, self._free, -np.inf).argmax())

    def placed(self, cls: int, row: int) -> None:
        self._free[row] = (self._table.free[row, self._columns] / self._offers[row]).sum()


class _PodCounts:
    """Pods per row of any set of classes, kept up to date. rows, classes: of the existing pods;
    size: number of rows."""

    def __init__(self, rows: Ints, classes: Ints, size: int) -> None:
        order = np.argsort(classes, kind="stable")
        self._rows, self._classes, self._size = rows[order], classes[order], size
        self._placed: dict[int, list[int]] = {}
        self._counts: dict[frozenset[int], Ints] = {}
        self._of: dict[int, list[Ints]] = {}

    def of(self, members: frozenset[int]) -> Ints:
        """The pods of these classes per row; later placements are added to the same array."""
        counts = self._counts.get(members)
        if counts is None:
            counts = self._counts[members] = np.zeros(self._size, dtype=np.int64)
            for cls in members:
                first, end = np.searchsorted(self._classes, (cls, cls + 1))
                rows = [*self._rows[first:end].tolist(), *self._placed.get(cls, ())]
                np.add.at(counts, rows, 1)
                self._of.setdefault(cls, []).append(counts)
        return counts

    def add(self, cls: int, row: int) -> None:
        """A pod was placed."""
        self._placed.setdefault(cls, []).append(row)
        for counts in self._of.get(cls, ()):
            counts[row] += 1


class _SpreadRule(NamedTuple):
    """A soft constraint of a class, or a default one. domains: code per row, -1 without the label;
    pods: matching pods per row, a live array; counted: rows that count."""

    key: str
    domains: Ints
    pods: Ints
    counted: Bools
    max_skew: int


class _SpreadRules(NamedTuple):
    """labelled: rows with the labels of all the pod's own constraints, None for the default
    ones, which need none."""

    rules: tuple[_SpreadRule, ...]
    labelled: Bools | None


class DefaultScores:
    """The scores of kube-scheduler's default profile over the rows of a simulated cluster."""

    def __init__(
        self, snapshot: Snapshot, simulated: SimulatedCluster, sampling: NodeSampling
    ) -> None:
        self._classes, self._table = snapshot.classes, simulated.table
        self._sampling = sampling
        size = len(self._table)
        known = [node for node in snapshot.nodes if self._table.index.get(node.name, -1) >= 0]
        zones = [tuple(node.labels.get(key, "") for key in _ZONE) for node in known]
        in_order = [known[at].name for at in formulas.sort_by_tree(zones)]
        self._order = np.array([self._table.index[name] for name in in_order], dtype=np.int64)
        self._offers = _amounts([node.allocatable for node in self._table.nodes])
        self._needs = _amounts([cls.requests for cls in self._classes])
        self._counted_needs = _amounts(
            [{**formulas.UNASKED, **cls.requests} for cls in self._classes]
        )
        bound = [
            (self._table.index[pod.node], pod.cls, bool(pod.deleted))
            for pod in snapshot.pods
            if pod.node in self._table.index
        ]
        rows, classes, dying = np.array(bound, dtype=np.int64).reshape(-1, 3).T
        self._used, self._counted = np.zeros_like(self._offers), np.zeros_like(self._offers)
        np.add.at(self._used, rows, self._needs[classes])
        np.add.at(self._counted, rows, self._counted_needs[classes])
        self._pods = _PodCounts(rows, classes, size)
        self._lasting = _PodCounts(rows[dying == 0], classes[dying == 0], size)
        self._matching = Matching(self._classes, snapshot.namespaces)
        self._by_owner: dict[tuple[str, str], set[int]] = {}
        self._attracting: list[tuple[int, PodAffinityTerm]] = []
        for at, cls in enumerate(self._classes):
            if cls.owner is not None:
                self._by_owner.setdefault((cls.namespace, cls.owner.uid), set()).add(at)
            self._attracting += [(at, term) for term in cls.pod_affinity]
        self._taints: dict[int, Ints] = {}
        self._preferred: dict[int, Ints | None] = {}
        self._spread: dict[int, _SpreadRules | None] = {}
        self._attracted: dict[int, list[tuple[Ints, Ints]]] = {}

    def choose(self, cls: int, fits: Bools) -> int:
        """The row for a pod of a class. fits: the rows that take it."""
        sample = self._order[self._sampling.take(fits[self._order])]
        if len(sample) == 1:
            return int(sample[0])
        totals = sum(self.scores(cls, sample).values(), np.zeros(len(sample), dtype=np.int64))
        return int(sample[formulas.choose(totals)])

    def placed(self, cls: int, row: int) -> None:
        """A pod was placed."""
        self._used[row] += self._needs[cls]
        self._counted[row] += self._counted_needs[cls]
        self._pods.add(cls, row)
        self._lasting.add(cls, row)

    def scores(self, cls: int, rows: Ints) -> Mapping[str, Ints]:
        """The weighted scores of the sampled rows, by plugin; one that does not score the class is
        left out."""
        offers = self._offers[rows]
        scores = {
            formulas.TAINTS: formulas.score_taints(self._untolerated(cls)[rows]),
            formulas.FIT: formulas.score_least_allocated(
                self._counted[rows] + self._counted_needs[cls], offers
            ),
        }
        if self._needs[cls].any():
            scores[formulas.BALANCE] = formulas.score_balanced_allocation(
                self._used[rows], self._needs[cls], offers
            )
        preferred = self._preferred_weights(cls)
        if preferred is not None:
            scores[formulas.NODES] = formulas.score_node_affinity(preferred[rows])
        spread = self._spread_rules(cls)
        if spread is not None:
            scores[formulas.SPREAD] = _spread_scores(spread, rows)
        weights = self._attraction(cls)
        if weights is not None:
            scores[formulas.PODS] = formulas.score_pod_affinity(weights[rows])
        return formulas.apply_weights(scores)

    def _untolerated(self, cls: int) -> Ints:
        counts = self._taints.get(cls)
        if counts is None:
            ids, sets = self._table.taint_sets()
            tolerations = self._classes[cls].tolerations
            of_set = [
                sum(
                    taint.effect == "PreferNoSchedule"
                    and not any(tolerates(toleration, taint) for toleration in tolerations)
                    for taint in taints
                )
                for taints in sets
            ]
            counts = self._taints[cls] = np.array(of_set, dtype=np.int64)[ids]
        return counts

    def _preferred_weights(self, cls: int) -> Ints | None:
        if cls not in self._preferred:
            terms = self._classes[cls].preferred_nodes
            weights = [
                sum(wish.weight for wish in terms if wish.term.matches(node.name, node.labels))
                for node in (self._table.nodes if terms else ())
            ]
            self._preferred[cls] = np.array(weights, dtype=np.int64) if terms else None
        return self._preferred[cls]

    def _spread_rules(self, cls: int) -> _SpreadRules | None:
        if cls not in self._spread:
            pod = self._classes[cls]
            own = bool(pod.spread or pod.preferred_spread)
            self._spread[cls] = self._own_rules(cls, pod) if own else self._default_rules(cls, pod)
        return self._spread[cls]

    def _own_rules(self, cls: int, pod: PodClass) -> _SpreadRules | None:
        if not pod.preferred_spread:
            return None
        labelled: Bools = np.ones(len(self._table), dtype=np.bool_)
        for constraint in pod.preferred_spread:
            labelled &= self._table.label(constraint.topology_key)[0] >= 0
        rules = []
        for constraint in pod.preferred_spread:
            counted = labelled.copy()
            if constraint.node_affinity_policy == "Honor":
                counted &= affinity_mask(cls, pod, self._table)
            if constraint.node_taints_policy == "Honor":
                counted &= taint_mask(cls, pod, self._table)
            pods = self._lasting.of(self._matching.spread(cls, constraint))
            key = constraint.topology_key
            domains = self._table.label(key)[0]
            rules.append(_SpreadRule(key, domains, pods, counted, constraint.max_skew))
        return _SpreadRules(tuple(rules), labelled)

    def _default_rules(self, cls: int, pod: PodClass) -> _SpreadRules | None:
        """The pods of the same controller are counted: its selector selects just them."""
        if pod.owner is None or pod.owner.kind not in formulas.OWNERS_WITH_SELECTOR:
            return None
        members = frozenset(self._by_owner[pod.namespace, pod.owner.uid])
        pods = self._lasting.of(members)
        counted = affinity_mask(cls, pod, self._table)
        rules = (
            _SpreadRule(key, self._table.label(key)[0], pods, counted, max_skew)
            for key, max_skew in formulas.DEFAULT_SPREAD
        )
        return _SpreadRules(tuple(rules), None)

    def _attraction(self, cls: int) -> Ints | None:
        """The weights per row of required affinity of running pods towards a class; None if there
        is none. Preferred terms are not in a snapshot."""
        if not self._attracting:
            return None
        if cls not in self._attracted:
            self._attracted[cls] = [
                (self._table.label(term.topology_key)[0], self._pods.of(frozenset({other})))
                for other, term in self._attracting
                if cls in self._matching.term(other, term)
            ]
        total, touched = np.zeros(len(self._table), dtype=np.int64), False
        every_row = np.arange(len(self._table))
        for domains, pods in self._attracted[cls]:
            sums, _ = formulas.count_by_domain(domains, pods, every_row)
            total += formulas.HARD_AFFINITY_WEIGHT * np.maximum(sums, 0)
            touched |= bool(pods[domains >= 0].any())
        return total if touched else None


def _spread_scores(spread: _SpreadRules, rows: Ints) -> Ints:
    able = None if spread.labelled is None else spread.labelled[rows]
    counted = []
    for rule in spread.rules:
        if rule.key == HOSTNAME_LABEL:
            # of the node, whatever the policies
            pods = np.where(rule.domains[rows] < 0, -1, rule.pods[rows])
            size = len(rows) if able is None else int(able.sum())
        else:
            by_row = np.where(rule.counted, rule.pods, 0)
            pods, size = formulas.count_by_domain(rule.domains, by_row, rows, able)
        counted.append(SpreadCounts(pods, size, rule.max_skew))
    return formulas.score_spread(counted, able)


def _amounts(resources: Sequence[Mapping[str, int]]) -> Ints:
    """Millicores and bytes, (rows, 2)."""
    rows = [[amounts.get(name, 0) for name in _RESOURCES] for amounts in resources]
    return np.array(rows, dtype=np.int64).reshape(-1, 2)
