"""Indexes which pod classes a selector matches, computed once per pass through the labels that it names.

A cluster of 5,000 nodes has thousands of classes and hundreds of terms. Almost every selector requires one value of one
label, so an index by label leaves a handful of classes to check instead of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.pod import PodAffinityTerm, PodClass, SpreadConstraint
from chalicelib.model.selector import Requirement, Selector

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
    """Maps selectors and terms to the classes they select. namespaces: name -> labels, as far as they could be read."""

    def __init__(self, classes: Sequence[PodClass], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self._classes = classes
        self._namespaces = namespaces
        self._by_label = _labelled(classes)
        self._known: dict[tuple[object, ...], Members] = {}
        self._sets: dict[Members, Members] = {}
        # Whether a selector matches a namespace, cached by object identity, because hashing a large selector costs
        # as much as matching.
        self._spaces: dict[tuple[str, int], bool] = {}
        self._objectors = _index(classes, self._by_label)

    def spread(self, cls: int, constraint: SpreadConstraint) -> Members:
        """Return the classes that a constraint of `cls` counts: its own namespace, the selector, and the pod's own
        values of the matchLabelKeys. An absent or empty selector counts no pods."""
        pod = self._classes[cls]
        selector = self.widened(pod, constraint)
        if constraint.selector is None or not selector.requirements:
            return frozenset()
        return self._select(selector, (pod.namespace,), None)

    @staticmethod
    def widened(pod: PodClass, constraint: SpreadConstraint) -> Selector:
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
        return self._select(term.selector, *_where(self._classes[cls], term))

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
        asked = _rarest(selector, self._by_label)
        if asked is None:
            return range(len(self._classes))
        index = self._by_label.get(asked.key, {})
        return [at for value in asked.values for at in index.get(value, ())]


def _where(pod: PodClass, term: PodAffinityTerm) -> tuple[tuple[str, ...], Selector | None]:
    """Return the namespaces of a term: those named and those selected, or the pod's own if it has neither."""
    if not term.namespaces and term.namespace_selector is None:
        return (pod.namespace,), None
    return term.namespaces, term.namespace_selector


def _labelled(classes: Sequence[PodClass]) -> ClassesByLabel:
    index: ClassesByLabel = {}
    for at, cls in enumerate(classes):
        for key, value in cls.labels.items():
            index.setdefault(key, {}).setdefault(value, []).append(at)
    return index


def _rarest(selector: Selector, index: ClassesByLabel) -> Requirement | None:
    """Return the requirement of certain values that the fewest classes have; None where there is no such
    requirement."""
    asked = [each for each in selector.requirements if each.operator == "In"]
    if len(asked) < 2:
        return asked[0] if asked else None

    def having(requirement: Requirement) -> int:
        values = index.get(requirement.key, {})
        return sum(len(values.get(value, ())) for value in requirement.values)

    return min(asked, key=having)


def _index(
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
        objector = AntiAffinityOwner(term, _where(classes[min(members)], term), frozenset(members))
        asked = _rarest(term.selector, by_label) if term.selector is not None else None
        for place in [(asked.key, value) for value in asked.values] if asked else [None]:
            index.setdefault(place, []).append(objector)
    return index
