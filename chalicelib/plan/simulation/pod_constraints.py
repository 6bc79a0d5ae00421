"""Rules between pods, by counting: the classes that a term selects, the count of their pods per
row, and the constraints of a class, created once per class and pass.

All rules between pods need these counts. A counter is created when a rule first needs it, from the
pods sorted by class, and follows every placement from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.pod import PodAffinityTerm, PodClass
from chalicelib.model.pod import SpreadConstraint as PodSpread
from chalicelib.model.reason import ReasonCode
from chalicelib.model.selector import Requirement, Selector
from chalicelib.plan.tables import Bools, Ints

Members = frozenset[int]
ClassesByLabel = dict[str, dict[str, list[int]]]
"""Label -> value -> the classes that have it."""
_NAME_LABEL = "kubernetes.io/metadata.name"
_MANY = 32  # number of members from which all pods are scanned once


class AntiAffinityOwner(msgspec.Struct, frozen=True):
    """Classes of one namespace with the same anti-affinity term, which excludes other pods
    from their domains of `key`."""

    term: PodAffinityTerm
    namespaces: tuple[tuple[str, ...], Selector | None]
    classes: frozenset[int]


class Matching:
    """Maps selectors and terms to the classes they select. namespaces: name -> labels, as
    far as they could be read.

    A cluster of 5,000 nodes has thousands of classes and hundreds of terms. Almost every
    selector requires one value of one label, so an index by label leaves a handful of classes
    to check instead of all.
    """

    def __init__(
        self, classes: Sequence[PodClass], namespaces: Mapping[str, Mapping[str, str]]
    ) -> None:
        self._classes = classes
        self._namespaces = namespaces
        self._by_label: ClassesByLabel = {}
        for at, cls in enumerate(classes):
            for key, value in cls.labels.items():
                self._by_label.setdefault(key, {}).setdefault(value, []).append(at)
        self._selected: dict[tuple[object, ...], Members] = {}
        self._sets: dict[Members, Members] = {}
        # Whether a selector matches a namespace, cached by object identity, because hashing a large
        # selector costs as much as matching.
        self._in_namespace: dict[tuple[str, int], bool] = {}
        self._owners = _anti_affinity_index(classes, self._by_label)

    def spread(self, cls: int, constraint: PodSpread) -> Members:
        """Return the classes that a constraint of `cls` counts: its own namespace, the
        selector, and the pod's own values of the matchLabelKeys. An absent or empty
        selector counts no pods."""
        pod = self._classes[cls]
        selector = self.widened(pod, constraint)
        if constraint.selector is None or not selector.requirements:
            return frozenset()
        return self._select(selector, (pod.namespace,), None)

    @staticmethod
    def widened(pod: PodClass, constraint: PodSpread) -> Selector:
        """Return the constraint's selector with the pod's own values of the matchLabelKeys; keys
        that it lacks are ignored."""
        own = tuple(
            Requirement(key, "In", (pod.labels[key],))
            for key in constraint.match_label_keys
            if key in pod.labels
        )
        return Selector((constraint.selector.requirements if constraint.selector else ()) + own)

    def term(self, cls: int, term: PodAffinityTerm) -> Members:
        """Return the classes that a required term of `cls` selects."""
        if term.selector is None:
            return frozenset()
        return self._select(term.selector, *_term_namespaces(self._classes[cls], term))

    def objectors(self, cls: int) -> dict[str, Members]:
        """Return topology key -> the classes whose own anti-affinity excludes pods of `cls` from
        their domains of that key."""
        pod = self._classes[cls]
        sets: dict[str, list[Members]] = {}
        for label in (None, *pod.labels.items()):
            for owner in self._owners.get(label, ()):
                assert owner.term.selector is not None
                if owner.term.selector.matches(pod.labels) and self._is_in(
                    pod.namespace, *owner.namespaces
                ):
                    sets.setdefault(owner.term.topology_key, []).append(owner.classes)
        # A single set is its own union: copying and hashing thousands of members for each of
        # thousands of classes takes minutes.
        return {
            key: sets[key][0]
            if len(sets[key]) == 1
            else self._shared(frozenset().union(*sets[key]))
            for key in sorted(sets)
        }

    def _shared(self, members: Members) -> Members:
        """Return one shared set for all equal sets, because many classes are refused
        by the same many classes."""
        return self._sets.setdefault(members, members)

    def _select(
        self, selector: Selector, namespaces: tuple[str, ...], by_label: Selector | None
    ) -> Members:
        key = (selector, namespaces, by_label)
        members = self._selected.get(key)
        if members is None:
            # The rarest required value of a label remains to be checked: a value that
            # all pods share leaves all.
            rarest = _rarest_requirement(selector, self._by_label)
            index = self._by_label.get(rarest.key, {}) if rarest is not None else {}
            candidates: Iterable[int] = (
                range(len(self._classes))
                if rarest is None
                else [at for value in rarest.values for at in index.get(value, ())]
            )
            members = self._selected[key] = self._shared(
                frozenset(
                    at
                    for at in candidates
                    if self._is_in(self._classes[at].namespace, namespaces, by_label)
                    and selector.matches(self._classes[at].labels)
                )
            )
        return members

    def _is_in(
        self, namespace: str, namespaces: tuple[str, ...], by_label: Selector | None
    ) -> bool:
        if namespace in namespaces or by_label is None:
            return namespace in namespaces
        key = (namespace, id(by_label))
        if key not in self._in_namespace:
            # every namespace has this label
            labels = self._namespaces.get(namespace) or {_NAME_LABEL: namespace}
            self._in_namespace[key] = by_label.matches(labels)
        return self._in_namespace[key]


def _term_namespaces(
    pod: PodClass, term: PodAffinityTerm
) -> tuple[tuple[str, ...], Selector | None]:
    """Return the namespaces of a term: those named and those selected, or the
    pod's own if it has neither."""
    if not term.namespaces and term.namespace_selector is None:
        return (pod.namespace,), None
    return term.namespaces, term.namespace_selector


def _rarest_requirement(selector: Selector, index: ClassesByLabel) -> Requirement | None:
    """Return the requirement of certain values that the fewest classes have; None where
    there is no such requirement."""

    def having(requirement: Requirement) -> int:
        values = index.get(requirement.key, {})
        return sum(len(values.get(value, ())) for value in requirement.values)

    requirements = [
        requirement for requirement in selector.requirements if requirement.operator == "In"
    ]
    return (
        requirements[0] if len(requirements) == 1 else min(requirements, key=having, default=None)
    )


def _anti_affinity_index(
    classes: Sequence[PodClass], by_label: ClassesByLabel
) -> dict[tuple[str, str] | None, list[AntiAffinityOwner]]:
    """Return anti-affinity terms by one label value that they require; None: terms that cannot be
    found this way. Equal terms of a namespace are one entry."""
    equal: dict[tuple[str, PodAffinityTerm], set[int]] = {}
    for at, cls in enumerate(classes):
        for term in cls.pod_anti_affinity:
            if term.selector is not None:
                equal.setdefault((cls.namespace, term), set()).add(at)
    index: dict[tuple[str, str] | None, list[AntiAffinityOwner]] = {}
    for (_, term), members in equal.items():
        owner = AntiAffinityOwner(
            term, _term_namespaces(classes[min(members)], term), frozenset(members)
        )
        rarest = _rarest_requirement(term.selector, by_label) if term.selector is not None else None
        for label in [(rarest.key, value) for value in rarest.values] if rarest else [None]:
            index.setdefault(label, []).append(owner)
    return index


class PodCounter:
    """How many pods of a set of classes (members) are on each row. settled:
    terminating pods are not counted."""

    def __init__(self, members: Members, rows: Ints, *, settled: bool) -> None:
        self.members, self.rows, self.settled = members, rows, settled


class Counting:
    """All counters of a pass."""

    def __init__(self, rows: Ints, classes: Ints, dying: Bools, count: int) -> None:
        """The existing pods: row and class of each, which of them are
        terminating; count: number of rows."""
        order = np.argsort(classes, kind="stable")
        self._rows, self._classes, self._dying = rows[order], classes[order], dying[order]
        self._count = count
        self._log: dict[int, list[tuple[Ints, Ints]]] = {}
        # class -> row -> pods, for placements counted one row at a time
        self._moved: dict[int, dict[int, int]] = {}
        self._counters: dict[tuple[Members, bool], PodCounter] = {}
        self._of: dict[int, list[PodCounter]] = {}

    def counter(self, members: Members, *, settled: bool = False) -> PodCounter:
        """Return the counter of a set of classes."""
        key = (members, settled)
        if key not in self._counters:
            counter = PodCounter(members, self._counted(members, settled=settled), settled=settled)
            self._counters[key] = counter
            for cls in members:
                self._of.setdefault(cls, []).append(counter)
        return self._counters[key]

    def _counted(self, members: Members, *, settled: bool) -> Ints:
        """Return the pods of these classes per row, existing and placed. Many classes are
        found in one scan: a search for each of thousands of classes, for each of thousands
        of rules, takes minutes."""
        parts: list[Bools | slice]
        if len(members) > _MANY:
            parts = [
                np.isin(self._classes, np.fromiter(members, dtype=np.int64, count=len(members)))
            ]
        else:
            parts = [
                slice(*np.searchsorted(self._classes, (cls, cls + 1)).tolist()) for cls in members
            ]
        counts: Ints = np.zeros(self._count, dtype=np.int64)
        for part in parts:
            rows = self._rows[part]
            np.add.at(counts, rows[~self._dying[part]] if settled else rows, 1)
        for cls in members & self._log.keys():
            for rows, pods in self._log[cls]:
                counts[rows] += pods
        for cls in members & self._moved.keys():
            for row, pods_moved in self._moved[cls].items():
                counts[row] += pods_moved
        return counts

    def add(self, rows: Ints, cls: int, counts: Ints) -> bool:
        """Add pods to rows (each named once), or remove them with negative counts; they count
        as not terminating. Returns whether any counter counts them, so that results derived
        from it must be recomputed."""
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
        """Add pods to one row, as `add` does: the removal simulation calls
        this thousands of times."""
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
        self._log = {
            cls: [entry for entry in entries if entry[0].max() < count]
            for cls, entries in self._log.items()
        }
        self._moved = {
            cls: {row: pods for row, pods in moved.items() if row < count}
            for cls, moved in self._moved.items()
        }
        for counter in self._counters.values():
            counter.rows = counter.rows[:count]


class AffinityTerm(msgspec.Struct, frozen=True):
    """Pod affinity: every key's domain must contain a counted pod. own: the class itself is
    counted, so its first pod may run anywhere that has the keys."""

    counter: PodCounter
    keys: tuple[str, ...]
    own: bool


class AntiAffinityTerm(msgspec.Struct, frozen=True):
    """Anti-affinity, the pod's own or that of other pods against it: no counted
    pod in the domain of `key`."""

    counter: PodCounter
    key: str
    own: bool
    code: ReasonCode


class SpreadConstraint(msgspec.Struct, frozen=True):
    """A spread constraint of a class. keys: of all its spread constraints, which a node must have
    to count for any of them. own: the pod increases the count of its domain."""

    cls: int
    keys: tuple[str, ...]
    counter: PodCounter
    key: str
    max_skew: int
    min_domains: int
    own: bool
    honors_affinity: bool
    honors_taints: bool


class PodConstraints(msgspec.Struct, frozen=True):
    """All constraints of a class."""

    attraction: AffinityTerm | None
    repulsions: tuple[AntiAffinityTerm, ...]
    evenness: tuple[SpreadConstraint, ...]

    @property
    def keys(self) -> frozenset[str]:
        """All topology keys that matter to it."""
        attracting = self.attraction.keys if self.attraction is not None else ()
        return frozenset(
            (*attracting, *(t.key for t in self.repulsions), *(s.key for s in self.evenness))
        )


class PodConstraintTable:
    """The constraints of every class; None for the many classes without any, own
    or of others against it."""

    def __init__(self, classes: Sequence[PodClass], matching: Matching, counting: Counting) -> None:
        self._classes, self._matching, self._counting = classes, matching, counting
        self._constraints: dict[int, PodConstraints | None] = {}
        self._required: dict[int, PodConstraints] = {}
        self.matters = any(
            cls.pod_affinity or cls.pod_anti_affinity or cls.spread for cls in classes
        )
        """True if any class has constraints on other pods."""

    def needs(self, cls: int) -> PodConstraints | None:
        """Return the constraints of a class, cached."""
        if cls in self._required:
            return self._required[cls]
        if cls not in self._constraints:
            self._constraints[cls] = self._compile(cls)
        return self._constraints[cls]

    def require_domains(self, cls: int, key: str, domains: int) -> None:
        """Raise minDomains of the spread constraints of a class over a key, until `as_declared`."""
        constraints = self.needs(cls)
        if constraints is None:
            return
        evenness = tuple(
            msgspec.structs.replace(spread, min_domains=max(spread.min_domains, domains))
            if spread.key == key
            else spread
            for spread in constraints.evenness
        )
        self._required[cls] = msgspec.structs.replace(constraints, evenness=evenness)

    def as_declared(self) -> None:
        """Require no other domains than the pods do."""
        self._required.clear()

    def soft_spread(self, cls: int) -> list[tuple[PodCounter, str]]:
        """Return what ScheduleAnyway constraints count, and over which key."""
        return [
            (
                self._counting.counter(self._matching.spread(cls, spread), settled=True),
                spread.topology_key,
            )
            for spread in self._classes[cls].preferred_spread
        ]

    def _compile(self, cls: int) -> PodConstraints | None:
        pod, matching, counting = self._classes[cls], self._matching, self._counting
        attraction = None
        if pod.pod_affinity:  # its pods must match all terms at once
            members = matching.term(cls, pod.pod_affinity[0])
            for term in pod.pod_affinity[1:]:
                members &= matching.term(cls, term)
            keys = tuple(dict.fromkeys(term.topology_key for term in pod.pod_affinity))
            attraction = AffinityTerm(counting.counter(members), keys, cls in members)
        refused = [
            (term.topology_key, matching.term(cls, term), ReasonCode.POD_ANTI_AFFINITY)
            for term in pod.pod_anti_affinity
        ]
        refused += [
            (key, who, ReasonCode.EXISTING_ANTI_AFFINITY)
            for key, who in matching.objectors(cls).items()
        ]
        repulsions = tuple(
            AntiAffinityTerm(counting.counter(members), key, cls in members, code)
            for key, members, code in refused
            if members
        )
        evenness = tuple(
            SpreadConstraint(
                cls=cls,
                keys=tuple(spread.topology_key for spread in pod.spread),
                counter=counting.counter(matching.spread(cls, spread), settled=True),
                key=spread.topology_key,
                max_skew=spread.max_skew,
                min_domains=spread.min_domains,
                own=spread.selector is not None
                and matching.widened(pod, spread).matches(pod.labels),
                honors_affinity=spread.node_affinity_policy != "Ignore",
                honors_taints=spread.node_taints_policy == "Honor",
            )
            for spread in pod.spread
        )
        if attraction is None and not repulsions and not evenness:
            return None
        return PodConstraints(attraction, repulsions, evenness)
