"""The disruption controller: counts healthy pods and writes the status of PodDisruptionBudgets (`disruptionsAllowed`).

It is a plain function over the store, called by the controller manager. Eviction (eviction.py) reads this status and
decrements it, so a budget is never exceeded between two calls, as with the real controller.
"""

from __future__ import annotations

from typing import Any

from chalicelib.model.timestamps import format_time, parse_time
from infra.emulators.kube import selectors
from infra.emulators.kube.objects import KubeObject, condition, conditions_of, dig
from infra.emulators.kube.store import ObjectStore

_EVICTED_FOR = 120.0  # seconds after which an evicted pod that does not terminate counts as not evicted
_REPLICAS = {"ReplicaSet": "replicasets", "Deployment": "deployments", "StatefulSet": "statefulsets"}


def budgets_of(store: ObjectStore, pod: KubeObject) -> list[KubeObject]:
    """Return the budgets whose selector matches a pod (READ ONLY)."""
    labels = pod["metadata"].get("labels") or {}
    return [
        budget
        for budget in store.list("poddisruptionbudgets", pod["metadata"].get("namespace", ""), "policy")
        if selectors.holds(selectors.from_object(dig(budget, "spec", "selector")), labels)
    ]


def is_ready(pod: KubeObject) -> bool:
    """Return whether the pod's Ready condition is True."""
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions_of(pod))


def reconcile_budgets(store: ObjectStore) -> int:
    """Update the status of every budget. Returns how many changed."""
    with store.transaction():
        return sum(_reconcile(store, budget) for budget in store.list("poddisruptionbudgets", group="policy"))


def _reconcile(store: ObjectStore, budget: KubeObject) -> bool:
    now, meta = store.clock(), budget["metadata"]
    wanted = selectors.from_object(dig(budget, "spec", "selector"))
    pods = [
        pod
        for pod in store.list("pods", meta["namespace"])
        if selectors.holds(wanted, pod["metadata"].get("labels") or {})
    ]
    disrupted = _disrupted(budget, pods, now)
    expected, desired = _expected(store, budget, pods)
    healthy = sum(
        1
        for pod in pods
        if is_ready(pod) and "deletionTimestamp" not in pod["metadata"] and pod["metadata"]["name"] not in disrupted
    )
    allowed = max(0, healthy - desired) if expected > 0 else 0
    status: dict[str, Any] = {
        "observedGeneration": meta.get("generation", 1),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "conditions": [_allowed_condition(budget, allowed, now)],
    }
    if disrupted:
        status["disruptedPods"] = disrupted
    if status == budget.get("status"):
        return False
    store.update("poddisruptionbudgets", {**budget, "status": status}, "policy")
    return True


def _allowed_condition(budget: KubeObject, allowed: int, now: float) -> KubeObject:
    verdict = "True" if allowed else "False"
    old = condition(budget, "DisruptionAllowed")
    since = old["lastTransitionTime"] if old and old.get("status") == verdict else format_time(now)
    return {
        "type": "DisruptionAllowed",
        "status": verdict,
        "observedGeneration": budget["metadata"].get("generation", 1),
        "lastTransitionTime": since,
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
    }


def _disrupted(budget: KubeObject, pods: list[KubeObject], now: float) -> dict[str, str]:
    """Return granted evictions whose pods are not terminating yet."""
    staying = {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
    granted = dig(budget, "status", "disruptedPods") or {}
    return {name: at for name, at in granted.items() if name in staying and now < parse_time(at) + _EVICTED_FOR}


def _expected(store: ObjectStore, budget: KubeObject, pods: list[KubeObject]) -> tuple[int, int]:
    """Return (expected pods, pods that must stay healthy)."""
    spec = budget["spec"]
    if spec.get("maxUnavailable") is not None:
        expected = _wanted_by_owners(store, pods)
        return expected, max(0, expected - _amount(spec["maxUnavailable"], expected))
    floor = spec.get("minAvailable", 1)
    if isinstance(floor, int):
        return len(pods), floor
    expected = _wanted_by_owners(store, pods)
    return expected, _amount(floor, expected)


def _amount(value: int | str, of: int) -> int:
    """Return a number or a percentage of pods, rounded up."""
    if isinstance(value, int):
        return value
    return -(-int(value.rstrip("%")) * of // 100)


def _wanted_by_owners(store: ObjectStore, pods: list[KubeObject]) -> int:
    """Return the sum of the scales of the pods' controllers, each counted once."""
    scales: dict[str, int] = {}
    for pod in pods:
        owner = _controller(pod)
        obj = _find(store, pod["metadata"]["namespace"], owner)
        above = _controller(obj) if obj else None
        if above is not None and above["kind"] == "Deployment":
            obj = _find(store, pod["metadata"]["namespace"], above)
        if obj is not None:
            scales[obj["metadata"]["uid"]] = dig(obj, "spec", "replicas") or 0
    return sum(scales.values())


def _controller(obj: KubeObject) -> KubeObject | None:
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((dict(each) for each in owners if each.get("controller")), None)


def _find(store: ObjectStore, namespace: str, owner: KubeObject | None) -> KubeObject | None:
    plural = _REPLICAS.get(owner["kind"]) if owner else None
    if owner is None or plural is None:
        return None
    return store.peek(plural, owner["name"], namespace, "apps")
