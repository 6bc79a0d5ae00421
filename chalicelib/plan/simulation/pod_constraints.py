"""Rules between pods, by counting: the classes that a term selects, the count of their pods per row, and the
constraints of a class, created once per class and pass.

All rules between pods need these counts. A counter is created when a rule first needs it, from the pods sorted by
class, and follows every placement from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.pod import PodAffinityTerm, PodClass
from chalicelib.model.pod import SpreadConstraint as PodSpread
from chalicelib.model.reason import ReasonCode
from chalicelib.model.selector import Requirement, Selector
from chalicelib.plan.tables import Bools, Ints


class AffinityTerm(msgspec.Struct, frozen=True):
    """Pod affinity: every key's domain must contain a counted pod. own: the class itself is counted, so its first pod
    may run anywhere that has the keys."""

    counter: PodCounter
    keys: tuple[str, ...]
    own: bool


class AntiAffinityTerm(msgspec.Struct, frozen=True):
    """Anti-affinity, the pod's own or that of other pods against it: no counted pod in the domain of `key`."""

    counter: PodCounter
    key: str
    own: bool
    code: ReasonCode


class SpreadConstraint(msgspec.Struct, frozen=True):
    """A spread constraint. own: the pod increases the count of its domain."""

    counter: PodCounter
    key: str
    max_skew: int
    min_domains: int
    own: bool
    honors_affinity: bool
    honors_taints: bool


class PodConstraints(msgspec.Struct, frozen=True):
    """All constraints of a class. keys: topology keys of all its spread constraints, which a counting node must
    have."""

    attraction: AffinityTerm | None
    repulsions: tuple[AntiAffinityTerm, ...]
    evenness: tuple[SpreadConstraint, ...]

    @property
    def keys(self) -> frozenset[str]:
        """All topology keys that matter to it."""
        attracting = self.attraction.keys if self.attraction is not None else ()
        return frozenset((*attracting, *(r.key for r in self.repulsions), *self.spread_keys))

    @property
    def spread_keys(self) -> tuple[str, ...]:
        """The labels that a node must have to count for any of the spread constraints."""
        return tuple(even.key for even in self.evenness)


class PodConstraintTable:
    """The constraints of every class; None for the many classes without any, own or of others against it."""

    def __init__(self, classes: Sequence[PodClass], matching: Matching, counting: Counting) -> None:
        self._classes, self._matching, self._counting = classes, matching, counting
        self._known: dict[int, PodConstraints | None] = {}
        self.matters = any(cls.pod_affinity or cls.pod_anti_affinity or cls.spread for cls in classes)
        """True if any class has constraints on other pods."""

    def needs(self, cls: int) -> PodConstraints | None:
        """Return the constraints of a class, cached."""
        if cls not in self._known:
            self._known[cls] = self._make(cls)
        return self._known[cls]

    def soft_spread(self, cls: int) -> list[tuple[PodCounter, str]]:
        """Return what ScheduleAnyway constraints count, and over which key."""
        return [
            (self._counting.counter(self._matching.spread(cls, each), settled=True), each.topology_key)
            for each in self._classes[cls].preferred_spread
        ]

    def _make(self, cls: int) -> PodConstraints | None:
        pod, matching, counting = self._classes[cls], self._matching, self._counting
        attraction = None
        if pod.pod_affinity:
            members = matching.all_terms(cls)
            keys = tuple(dict.fromkeys(term.topology_key for term in pod.pod_affinity))
            attraction = AffinityTerm(counting.counter(members), keys, cls in members)
        repulsions = []
        for term in pod.pod_anti_affinity:
            members = matching.term(cls, term)
            if members:
                repulsions.append(
                    AntiAffinityTerm(
                        counting.counter(members), term.topology_key, cls in members, ReasonCode.POD_ANTI_AFFINITY
                    )
                )
        for key, members in matching.objectors(cls).items():
            repulsions.append(
                AntiAffinityTerm(counting.counter(members), key, cls in members, ReasonCode.EXISTING_ANTI_AFFINITY)
            )
        evenness = tuple(
            SpreadConstraint(
                counter=counting.counter(matching.spread(cls, c), settled=True),
                key=c.topology_key,
                max_skew=c.max_skew,
                min_domains=c.min_domains,
                own=c.selector is not None and matching.widened(pod, c).matches(pod.labels),
                honors_affinity=c.node_affinity_policy != "Ignore",
                honors_taints=c.node_taints_policy == "Honor",
            )
            for c in pod.spread
        )
        if attraction is None and not repulsions and not evenness:
            return None
        return PodConstraints(attraction, tuple(repulsions), evenness)


_MANY = 32  # number of members from which all pods are scanned once


class PodCounter:
    """How many pods of a set of classes (members) are on each row. settled: terminating pods are not counted."""

    def __init__(self, members: Members, rows: Ints, *, settled: bool) -> None:
        self.members, self.rows, self.settled = members, rows, settled


class Counting:
    """All counters of a pass."""

    def __init__(self, rows: Ints, classes: Ints, dying: Bools, count: int) -> None:
        """The existing pods: row and class of each, which of them are terminating; count: number of rows."""
        order = np.argsort(classes, kind="stable")
        self._rows, self._classes, self._dying = rows[order], classes[order], dying[order]
        self._count = count
        self._log: dict[int, list[tuple[Ints, Ints]]] = {}
        self._moved: dict[int, dict[int, int]] = {}  # class -> row -> pods, for placements counted one row at a time
        self._counters: dict[tuple[Members, bool], PodCounter] = {}
        self._of: dict[int, list[PodCounter]] = {}

    def counter(self, members: Members, *, settled: bool = False) -> PodCounter:
        """Return the counter of a set of classes."""
        key = (members, settled)
        found = self._counters.get(key)
        if found is None:
            found = self._counters[key] = PodCounter(members, self._counted(members, settled=settled), settled=settled)
            for cls in members:
                self._of.setdefault(cls, []).append(found)
        return found

    def _counted(self, members: Members, *, settled: bool) -> Ints:
        vector: Ints = np.zeros(self._count, dtype=np.int64)
        for rows in self._there(members, settled=settled):
            np.add.at(vector, rows, 1)
        for cls in members & self._log.keys():
            for where, counts in self._log[cls]:
                vector[where] += counts
        for cls in members & self._moved.keys():
            for row, count in self._moved[cls].items():
                vector[row] += count
        return vector

    def _there(self, members: Members, *, settled: bool) -> Iterator[Ints]:
        """Return the rows of the members' existing pods. Many members are found in one scan: a search for each of
        thousands of classes, for each of thousands of rules, takes minutes."""
        if len(members) > _MANY:
            here = np.isin(self._classes, np.fromiter(members, dtype=np.int64, count=len(members)))
            yield self._rows[here & ~self._dying] if settled else self._rows[here]
            return
        for cls in members:
            start, end = np.searchsorted(self._classes, (cls, cls + 1))
            rows = self._rows[start:end]
            yield rows[~self._dying[start:end]] if settled else rows

    def add(self, rows: Ints, cls: int, counts: Ints) -> bool:
        """Add pods to rows (each named once), or remove them with negative counts; they count as not terminating.
        Returns whether any counter counts them, so that results derived from it must be recomputed."""
        entries = self._log.setdefault(cls, [])
        if entries and entries[-1][0] is rows and np.array_equal(entries[-1][1], -counts):
            entries.pop()  # a rewind: without this the log would keep every attempt of the search
        else:
            entries.append((rows, counts))
        counters = self._of.get(cls, ())
        for counter in counters:
            counter.rows[rows] += counts
        return bool(counters)

    def add_one(self, row: int, cls: int, count: int) -> bool:
        """Add pods to one row, as `add` does: the removal simulation calls this thousands of times."""
        moved = self._moved.setdefault(cls, {})
        moved[row] = moved.get(row, 0) + count
        counters = self._of.get(cls, ())
        for counter in counters:
            counter.rows[row] += count
        return bool(counters)

    def followers(self, cls: int) -> Sequence[PodCounter]:
        """Return the counters that count a class."""
        return self._of.get(cls, ())

    def extend(self, count: int) -> None:
        """Append rows without pods."""
        self._count += count
        for counter in self._counters.values():
            counter.rows = np.concatenate([counter.rows, np.zeros(count, dtype=np.int64)])

    def reset(self, count: int) -> None:
        """Keep only the first rows; everything placed on others must have been removed before."""
        self._count = count
        self._log = {cls: [entry for entry in entries if entry[0].max() < count] for cls, entries in self._log.items()}
        self._moved = {
            cls: {row: pods for row, pods in moved.items() if row < count} for cls, moved in self._moved.items()
        }
        for counter in self._counters.values():
            counter.rows = counter.rows[:count]


Members = frozenset[int]
ClassesByLabel = dict[str, dict[str, list[int]]]
"""Label -> value -> the classes that have it."""
_NAME_LABEL = "kubernetes.io/metadata.name"


class AntiAffinityOwner(msgspec.Struct, frozen=True):
    """Classes of one namespace with the same anti-affinity term, which excludes other pods from their domains of
    `key`."""

    term: PodAffinityTerm
    where: tuple[tuple[str, ...], Selector | None]
    classes: frozenset[int]


class Matching:
    """Maps selectors and terms to the classes they select. namespaces: name -> labels, as far as they could be read.

    A cluster of 5,000 nodes has thousands of classes and hundreds of terms. Almost every selector requires one value of
    one label, so an index by label leaves a handful of classes to check instead of all.
    """

    def __init__(self, classes: Sequence[PodClass], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self._classes = classes
        self._namespaces = namespaces
        self._by_label = _classes_by_label(classes)
        self._known: dict[tuple[object, ...], Members] = {}
        self._sets: dict[Members, Members] = {}
        # Whether a selector matches a namespace, cached by object identity, because hashing a large selector costs
        # as much as matching.
        self._spaces: dict[tuple[str, int], bool] = {}
        self._objectors = _anti_affinity_index(classes, self._by_label)

    def spread(self, cls: int, constraint: PodSpread) -> Members:
        """Return the classes that a constraint of `cls` counts: its own namespace, the selector, and the pod's own
        values of the matchLabelKeys. An absent or empty selector counts no pods."""
        pod = self._classes[cls]
        selector = self.widened(pod, constraint)
        if constraint.selector is None or not selector.requirements:
            return frozenset()
        return self._select(selector, (pod.namespace,), None)

    @staticmethod
    def widened(pod: PodClass, constraint: PodSpread) -> Selector:
        """Return the constraint's selector with the pod's own values of the matchLabelKeys; keys that it lacks are
        ignored."""
        own = tuple(
            Requirement(key, "In", (pod.labels[key],)) for key in constraint.match_label_keys if key in pod.labels
        )
        return Selector((constraint.selector.requirements if constraint.selector else ()) + own)

    def term(self, cls: int, term: PodAffinityTerm) -> Members:
        """Return the classes that a required term of `cls` selects."""
        if term.selector is None:
            return frozenset()
        return self._select(term.selector, *_term_namespaces(self._classes[cls], term))

    def all_terms(self, cls: int) -> Members:
        """Return the classes that match every affinity term of `cls` at once."""
        terms = self._classes[cls].pod_affinity
        found = self.term(cls, terms[0])
        for term in terms[1:]:
            found &= self.term(cls, term)
        return found

    def objectors(self, cls: int) -> dict[str, Members]:
        """Return topology key -> the classes whose own anti-affinity excludes pods of `cls` from their domains of that
        key."""
        pod = self._classes[cls]
        candidates = list(self._objectors.get(None, ()))
        for label in pod.labels.items():
            candidates += self._objectors.get(label, ())
        found: dict[str, list[Members]] = {}
        for objector in candidates:
            assert objector.term.selector is not None
            if objector.term.selector.matches(pod.labels) and self._in(pod.namespace, *objector.where):
                found.setdefault(objector.term.topology_key, []).append(objector.classes)
        return {key: self._union(found[key]) for key in sorted(found)}

    def _union(self, sets: Sequence[Members]) -> Members:
        """Return all members, as one shared set for all equal unions, because many classes are refused by the same many
        classes. A single set is its own union: copying and hashing thousands of members for each of thousands of
        classes takes minutes."""
        return sets[0] if len(sets) == 1 else self._shared(frozenset().union(*sets))

    def _shared(self, members: Members) -> Members:
        """Return one shared set for all equal sets."""
        return self._sets.setdefault(members, members)

    def _select(self, selector: Selector, namespaces: tuple[str, ...], by_label: Selector | None) -> Members:
        key = (selector, namespaces, by_label)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._shared(
                frozenset(
                    at
                    for at in self._candidates(selector)
                    if self._in(self._classes[at].namespace, namespaces, by_label)
                    and selector.matches(self._classes[at].labels)
                )
            )
        return found

    def _in(self, namespace: str, namespaces: tuple[str, ...], selector: Selector | None) -> bool:
        if namespace in namespaces or selector is None:
            return namespace in namespaces
        found = self._spaces.get((namespace, id(selector)))
        if found is None:
            labels = self._namespaces.get(namespace) or {_NAME_LABEL: namespace}  # every namespace has this label
            found = self._spaces[namespace, id(selector)] = selector.matches(labels)
        return found

    def _candidates(self, selector: Selector) -> Iterable[int]:
        """Return the classes that the rarest required value of a label leaves: a value that all pods share leaves
        all."""
        asked = _rarest_requirement(selector, self._by_label)
        if asked is None:
            return range(len(self._classes))
        index = self._by_label.get(asked.key, {})
        return [at for value in asked.values for at in index.get(value, ())]


def _term_namespaces(pod: PodClass, term: PodAffinityTerm) -> tuple[tuple[str, ...], Selector | None]:
    """Return the namespaces of a term: those named and those selected, or the pod's own if it has neither."""
    if not term.namespaces and term.namespace_selector is None:
        return (pod.namespace,), None
    return term.namespaces, term.namespace_selector


def _classes_by_label(classes: Sequence[PodClass]) -> ClassesByLabel:
    index: ClassesByLabel = {}
    for at, cls in enumerate(classes):
        for key, value in cls.labels.items():
            index.setdefault(key, {}).setdefault(value, []).append(at)
    return index


def _rarest_requirement(selector: Selector, index: ClassesByLabel) -> Requirement | None:
    """Return the requirement of certain values that the fewest classes have; None where there is no such
    requirement."""
    asked = [each for each in selector.requirements if each.operator == "In"]
    if len(asked) < 2:
        return asked[0] if asked else None

    def having(requirement: Requirement) -> int:
        values = index.get(requirement.key, {})
        return sum(len(values.get(value, ())) for value in requirement.values)

    return min(asked, key=having)


def _anti_affinity_index(
    classes: Sequence[PodClass], by_label: ClassesByLabel
) -> dict[tuple[str, str] | None, list[AntiAffinityOwner]]:
    """Return anti-affinity terms by one label value that they require; None: terms that cannot be found this way. Equal
    terms of a namespace are one entry."""
    equal: dict[tuple[str, PodAffinityTerm], set[int]] = {}
    for at, cls in enumerate(classes):
        for term in cls.pod_anti_affinity:
            if term.selector is not None:
                equal.setdefault((cls.namespace, term), set()).add(at)
    index: dict[tuple[str, str] | None, list[AntiAffinityOwner]] = {}
    for (_, term), members in equal.items():
        objector = AntiAffinityOwner(term, _term_namespaces(classes[min(members)], term), frozenset(members))
        asked = _rarest_requirement(term.selector, by_label) if term.selector is not None else None
        for place in [(asked.key, value) for value in asked.values] if asked else [None]:
            index.setdefault(place, []).append(objector)
    return index
