"""The constraints of a class on other pods, with the counters that evaluate them, created once per class and pass."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chalicelib.model.pod import PodClass
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.simulation.pod_topology.pod_counts import Counting, PodCounter
from chalicelib.plan.simulation.pod_topology.selector_index import Matching


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
