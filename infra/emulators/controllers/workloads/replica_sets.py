"""ReplicaSets: the requested number of pods. Evicted pods are replaced, and surplus pods are deleted in the real
controller's order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from chalicelib.model.timestamps import parse_time
from infra.emulators.controllers.object_writes import by_controller, erase, is_true, owned_by, write_status
from infra.emulators.kube.objects import KubeObject, clone, dig
from infra.emulators.kube.store import ObjectStore

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_COST = "controller.kubernetes.io/pod-deletion-cost"


def is_active(pod: KubeObject) -> bool:
    """Return whether the pod is neither terminating nor finished."""
    return "deletionTimestamp" not in pod["metadata"] and dig(pod, "status", "phase") not in {"Succeeded", "Failed"}


def new_pod(owner: KubeObject, template: KubeObject) -> KubeObject:
    """Return a pod of the owner's template; the store generates its name."""
    meta = template.get("metadata") or {}
    made: KubeObject = {
        "metadata": {
            "generateName": owner["metadata"]["name"] + "-",
            "namespace": owner["metadata"]["namespace"],
            "ownerReferences": owned_by(owner),
        },
        "spec": clone(template["spec"]),
    }
    for field in ("labels", "annotations"):
        if meta.get(field):
            made["metadata"][field] = dict(meta[field])
    return made


def least_useful_first(pods: Sequence[KubeObject]) -> list[KubeObject]:
    """Sort pods as the real controller deletes them: unbound, pending, not ready, low deletion cost, crowded, newest
    first."""
    crowd = Counter(pod["spec"].get("nodeName") for pod in pods)

    def rank(pod: KubeObject) -> tuple[bool, int, bool, int, int, float, str]:
        node = pod["spec"].get("nodeName")
        cost = (pod["metadata"].get("annotations") or {}).get(_COST, "0")
        return (
            bool(node),
            _PHASES.get(dig(pod, "status", "phase") or "Pending", 1),
            is_true(pod, "Ready"),
            int(cost),
            -crowd[node],
            -parse_time(pod["metadata"]["creationTimestamp"]),
            pod["metadata"]["name"],
        )

    return sorted(pods, key=rank)


class ReplicaSets:
    """The ReplicaSet controller of one store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def step(self) -> None:
        """Create and delete pods until each set has the requested number, and update counters."""
        pods = by_controller(self._store.list("pods"))
        for owner in self._store.list("replicasets", None, "apps"):
            mine = pods.get(owner["metadata"]["uid"], [])
            active = [pod for pod in mine if is_active(pod)]
            if "deletionTimestamp" not in owner["metadata"]:
                self._match(owner, active)
            self._count(owner, active)

    def _match(self, owner: KubeObject, active: list[KubeObject]) -> None:
        missing = owner["spec"]["replicas"] - len(active)
        for _ in range(missing):
            self._store.create("pods", new_pod(owner, owner["spec"]["template"]))
        if missing < 0:
            for pod in least_useful_first(active)[:-missing]:
                erase(self._store, "pods", pod)

    def _count(self, owner: KubeObject, active: list[KubeObject]) -> None:
        ready = sum(is_true(pod, "Ready") for pod in active)
        write_status(
            self._store,
            "replicasets",
            owner,
            {
                "replicas": len(active),
                "fullyLabeledReplicas": len(active),
                "readyReplicas": ready,
                "availableReplicas": ready,
                "observedGeneration": owner["metadata"].get("generation", 1),
            },
            "apps",
        )
