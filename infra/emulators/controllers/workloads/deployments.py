"""Deployments: one ReplicaSet per pod template; the newest is scaled up and the others down."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from chalicelib.model.timestamps import parse_time
from infra.emulators.controllers.object_writes import (
    by_controller,
    condition,
    erase,
    is_true,
    owned_by,
    with_conditions,
    write,
    write_status,
)
from infra.emulators.controllers.rollout import SetSize, exchange, share
from infra.emulators.kube.objects import KubeObject, clone, dig
from infra.emulators.kube.store import ObjectStore

_HASH = "pod-template-hash"
_REVISION = "deployment.kubernetes.io/revision"
_DIGITS = "bcdfghjklmnpqrstvwxz2456789"


def template_hash(template: KubeObject) -> str:
    """Return a short name for a template, the same in every run."""
    number = zlib.crc32(msgspec.json.encode(template, order="sorted"))
    return "".join(_DIGITS[number // len(_DIGITS) ** place % len(_DIGITS)] for place in range(7))


def without_label(template: KubeObject, label: str) -> KubeObject:
    """Return a set's template as in its parent."""
    meta = dict(template.get("metadata") or {})
    meta["labels"] = {key: value for key, value in (meta.get("labels") or {}).items() if key != label}
    return {**template, "metadata": meta}


def _size(one: KubeObject) -> SetSize:
    return SetSize(one["metadata"]["name"], one["spec"]["replicas"], dig(one, "status", "availableReplicas") or 0)


def _sum(sets: list[KubeObject], field: str) -> int:
    return sum((dig(each, "status", field) or 0) for each in sets)


class Deployments:
    """The Deployment controller of one store."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock

    def step(self) -> None:
        """Move every deployment one step towards its template and size."""
        sets = by_controller(self._store.list("replicasets", None, "apps"))
        for deployment in self._store.list("deployments", None, "apps"):
            meta = deployment["metadata"]
            mine = sets.get(meta["uid"], [])
            if "deletionTimestamp" not in meta and not deployment["spec"].get("paused"):
                self._roll(deployment, mine)
            self._count(deployment, mine)

    def _roll(self, deployment: KubeObject, sets: list[KubeObject]) -> None:
        wanted = without_label(deployment["spec"]["template"], _HASH)
        current = next((s for s in sets if without_label(s["spec"]["template"], _HASH) == wanted), None)
        if current is None:
            self._store.create("replicasets", self._new_set(deployment, sets), "apps")
            return
        old = [s for s in sets if s is not current and s["spec"]["replicas"]]
        size = deployment["spec"]["replicas"]
        if not old:
            self._resize(current, size)
        elif deployment["spec"]["strategy"]["type"] == "Recreate":
            for each in old:
                self._resize(each, 0)
        else:
            self._exchange(deployment, current, old)

    def _exchange(self, deployment: KubeObject, current: KubeObject, old: list[KubeObject]) -> None:
        size, rolling = deployment["spec"]["replicas"], deployment["spec"]["strategy"].get("rollingUpdate") or {}
        surge = share(rolling.get("maxSurge", "25%"), size, up=True)
        unavailable = share(rolling.get("maxUnavailable", "25%"), size, up=False)
        sizes = exchange(size, surge, unavailable if surge or unavailable else 1, _size(current), list(map(_size, old)))
        for each in (current, *old):
            self._resize(each, sizes[each["metadata"]["name"]])

    def _resize(self, one: KubeObject, replicas: int) -> None:
        if one["spec"]["replicas"] != replicas:
            write(self._store, "replicasets", {**one, "spec": {**one["spec"], "replicas": replicas}}, "apps")

    def _new_set(self, deployment: KubeObject, sets: list[KubeObject]) -> KubeObject:
        meta, spec = deployment["metadata"], deployment["spec"]
        short = template_hash(spec["template"])
        template = clone(spec["template"])
        template.setdefault("metadata", {}).setdefault("labels", {})[_HASH] = short
        selector = clone(spec["selector"])
        selector.setdefault("matchLabels", {})[_HASH] = short
        revision = 1 + max((int((s["metadata"].get("annotations") or {}).get(_REVISION, 0)) for s in sets), default=0)
        first = spec["replicas"] if not sets else 0
        return {
            "metadata": {
                "name": f"{meta['name']}-{short}",
                "namespace": meta["namespace"],
                "labels": dict(template["metadata"]["labels"]),
                "annotations": {_REVISION: str(revision)},
                "ownerReferences": owned_by(deployment),
            },
            "spec": {"replicas": first, "selector": selector, "template": template},
        }

    def _count(self, deployment: KubeObject, sets: list[KubeObject]) -> None:
        spec = deployment["spec"]
        wanted = without_label(spec["template"], _HASH)
        newest = [s for s in sets if without_label(s["spec"]["template"], _HASH) == wanted]
        available, rolling = _sum(sets, "availableReplicas"), spec["strategy"].get("rollingUpdate") or {}
        enough = available >= spec["replicas"] - share(rolling.get("maxUnavailable", 0), spec["replicas"], up=False)
        word, text = ("Available", "has") if enough else ("Unavailable", "does not have")
        state = condition(
            "Available",
            value=enough,
            reason=f"MinimumReplicas{word}",
            message=f"Deployment {text} minimum availability.",
        )
        write_status(
            self._store,
            "deployments",
            deployment,
            {
                "replicas": _sum(sets, "replicas"),
                "updatedReplicas": _sum(newest, "replicas"),
                "readyReplicas": _sum(sets, "readyReplicas"),
                "availableReplicas": available,
                "unavailableReplicas": max(0, spec["replicas"] - available),
                "observedGeneration": deployment["metadata"].get("generation", 1),
                "conditions": with_conditions(deployment, self._clock(), state),
            },
            "apps",
        )


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
