"""What this version does not simulate yet, said aloud: such a pod never silently fits (architecture §3).

Inter-pod affinity and anti-affinity (also that of pods already running which would object to the newcomer), topology
spread, claims on volumes and on devices. A class with one of them is neither promised a node nor moved to one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from chalicelib.model.pod import PodAffinityTerm, PodClass
from chalicelib.model.reason import Code, Reason

# Volumes that no filter of the scheduler looks at. Everything else may be refused by VolumeRestrictions, VolumeBinding,
# VolumeZone or NodeVolumeLimits, and so does not fit until those are simulated.
_HARMLESS = frozenset({"emptyDir", "emptyDirMemory", "hostPath", "configMap", "secret", "downwardAPI", "projected",
                       "nfs", "gitRepo", "image", "cephfs", "glusterfs", "flexVolume",
                       "csi"})  # an inline CSI volume, which no limit counts

# What a class may carry that is not simulated, with its name in the answer; in the order in which it is named.
_CARRIED: tuple[tuple[str, Callable[[PodClass], bool]], ...] = (
    ("inter-pod affinity", lambda cls: bool(cls.pod_affinity)),
    ("inter-pod anti-affinity", lambda cls: bool(cls.pod_anti_affinity)),
    ("topology spread", lambda cls: bool(cls.spread)),
    ("volumes", lambda cls: any(v.kind not in _HARMLESS for v in cls.volumes)),
    ("resource claims", lambda cls: bool(cls.resource_claims)),
)


class NotSimulated:
    """Knows the anti-affinity of running pods, and says of each class what about it is not simulated."""

    def __init__(self, classes: Sequence[PodClass], running: Collection[int],
                 namespaces: dict[str, dict[str, str]]) -> None:
        self._classes = classes
        self._namespaces = namespaces
        self._objectors = [(classes[at].namespace, term) for at in sorted(running)
                           for term in classes[at].pod_anti_affinity]
        self._known: dict[int, tuple[Reason, ...]] = {}

    def reasons(self, at: int) -> tuple[Reason, ...]:
        """A reason per thing that is not simulated; () for a class that is understood whole."""
        found = self._known.get(at)
        if found is None:
            cls = self._classes[at]
            what = [name for name, carried in _CARRIED if carried(cls)]
            if not cls.pod_anti_affinity and any(self._objects(ns, term, cls) for ns, term in self._objectors):
                what.append("inter-pod anti-affinity of running pods")
            found = self._known[at] = tuple(Reason.of(Code.NOT_SIMULATED, what=name) for name in what)
        return found

    def _objects(self, namespace: str, term: PodAffinityTerm, cls: PodClass) -> bool:
        if term.selector is None or not term.selector.matches(cls.labels):
            return False
        if not term.namespaces and term.namespace_selector is None:
            return cls.namespace == namespace
        by_label = term.namespace_selector is not None and term.namespace_selector.matches(
            self._namespaces.get(cls.namespace, {}))
        return cls.namespace in term.namespaces or by_label
