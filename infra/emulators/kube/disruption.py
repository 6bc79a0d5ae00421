"""The disruption controller: counts healthy pods and writes the status of
PodDisruptionBudgets (`disruptionsAllowed`).

It is a plain function over the store, called by the controller manager. Eviction (below)
reads this status and decrements it, so a budget is never exceeded between two calls, as
with the real controller.
"""

from __future__ import annotations

from typing import Any

from chalicelib.model.timestamps import format_time, parse_time
from infra.emulators.kube import selectors, status
from infra.emulators.kube.objects import KubeObject, clone, condition, conditions_of, dig
from infra.emulators.kube.store import ObjectStore

# seconds after which an evicted pod that does not terminate counts as not evicted
_EVICTED_FOR = 120.0
_REPLICAS = {
    "ReplicaSet": "replicasets",
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
}


def budgets_of(store: ObjectStore, pod: KubeObject) -> list[KubeObject]:
    """Return the budgets whose selector matches a pod (READ ONLY)."""
    labels = pod["metadata"].get("labels") or {}
    return [
        budget
        for budget in store.list(
            "poddisruptionbudgets", pod["metadata"].get("namespace", ""), "policy"
        )
        if selectors.holds(selectors.from_object(dig(budget, "spec", "selector")), labels)
    ]


def is_ready(pod: KubeObject) -> bool:
    return any(
        each.get("type") == "Ready" and each.get("status") == "True" for each in conditions_of(pod)
    )


def reconcile_budgets(store: ObjectStore) -> int:
    with store.transaction():
        return sum(
            _reconcile(store, budget)
            for budget in store.list("poddisruptionbudgets", group="policy")
        )


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
        if is_ready(pod)
        and "deletionTimestamp" not in pod["metadata"]
        and pod["metadata"]["name"] not in disrupted
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
    staying = {
        pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]
    }
    granted = dig(budget, "status", "disruptedPods") or {}
    return {
        name: at
        for name, at in granted.items()
        if name in staying and now < parse_time(at) + _EVICTED_FOR
    }


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


_BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."
_TWO_BUDGETS = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
    "support."
)


def evict(
    store: ObjectStore, namespace: str, name: str, eviction: KubeObject, *, dry_run: bool = False
) -> KubeObject:
    """Evict a pod and return the response's Status (201). Raises ApiError 404, 409 (uid), 429
    (budget), 500 (two budgets)."""
    options: dict[str, Any] = eviction.get("deleteOptions") or {}
    dry = dry_run or "All" in (options.get("dryRun") or ())
    with store.transaction():
        pod = store.peek("pods", name, namespace)
        if pod is None:
            raise status.not_found("pods", "", name)
        _check_uid(pod, (options.get("preconditions") or {}).get("uid"))
        if not _needs_no_budget(pod):
            _take_from_budget(store, pod, dry=dry)
        if not dry:
            if "deletionTimestamp" not in pod["metadata"]:
                _mark(store, pod)
            store.delete("pods", name, namespace, grace=options.get("gracePeriodSeconds"))
    return status.success(201)


def _check_uid(pod: KubeObject, uid: str | None) -> None:
    have, name = pod["metadata"]["uid"], pod["metadata"]["name"]
    if uid is not None and uid != have:
        raise status.ApiError(
            409,
            "Conflict",
            f'Operation cannot be fulfilled on Pod "{name}": the UID in the precondition ({uid}) '
            "does not match the "
            f"UID in record ({have}). The object might have been deleted and then recreated",
            status.about(name, "", "Pod"),
        )


def _needs_no_budget(pod: KubeObject) -> bool:
    phase = dig(pod, "status", "phase")
    return phase in {"Succeeded", "Failed", "Pending"} or "deletionTimestamp" in pod["metadata"]


def _unhealthy_may_go(pod: KubeObject, budget: KubeObject) -> bool:
    if is_ready(pod) or dig(pod, "status", "phase") != "Running":
        return False
    if dig(budget, "spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    healthy, desired = (
        dig(budget, "status", "currentHealthy") or 0,
        dig(budget, "status", "desiredHealthy") or 0,
    )
    return healthy >= desired > 0


def _take_from_budget(store: ObjectStore, pod: KubeObject, *, dry: bool) -> None:
    budgets = budgets_of(store, pod)
    if len(budgets) > 1:
        raise status.ApiError(500, "", _TWO_BUDGETS)
    if not budgets or _unhealthy_may_go(pod, budgets[0]):
        return
    budget = clone(budgets[0])
    name, state = budget["metadata"]["name"], budget["status"]
    if state.get("observedGeneration", 0) < budget["metadata"].get("generation", 1):
        raise _blocked(
            f"The disruption budget {name} is still being processed by the server.", retry_after=10
        )
    if state["disruptionsAllowed"] <= 0:
        raise _blocked(
            f"The disruption budget {name} needs {state['desiredHealthy']} healthy pods and has "
            f"{state['currentHealthy']} currently"
        )
    if not dry:
        state["disruptionsAllowed"] -= 1
        state.setdefault("disruptedPods", {})[pod["metadata"]["name"]] = format_time(store.clock())
        store.update("poddisruptionbudgets", budget, "policy")


def _blocked(why: str, retry_after: int = 0) -> status.ApiError:
    details: dict[str, Any] = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    headers = {"Retry-After": str(retry_after)} if retry_after else {}
    return status.ApiError(429, "TooManyRequests", _BLOCKED, details, headers)


def _mark(store: ObjectStore, pod: KubeObject) -> None:
    marked = clone(pod)
    state = marked.setdefault("status", {})
    conditions = [
        each for each in state.get("conditions", ()) if each.get("type") != "DisruptionTarget"
    ]
    state["conditions"] = [
        *conditions,
        {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": format_time(store.clock()),
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        },
    ]
    store.update("pods", marked)


def bind(store: ObjectStore, namespace: str, name: str, binding: KubeObject) -> KubeObject:
    """pods/binding: bind a pod to a node. Raises 409 if it is bound already."""
    target = dig(binding, "target", "name")
    if not target:
        why = status.cause("FieldValueRequired", "Required value", "target.name")
        raise status.invalid("Binding", "", name, [why])
    with store.transaction():
        pod = store.get("pods", name, namespace)
        if pod is None:
            raise status.not_found("pods", "", name)
        if pod["spec"].get("nodeName"):
            why_not = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
            message = f'Operation cannot be fulfilled on pods/binding "{name}": {why_not}'
            raise status.ApiError(409, "Conflict", message, status.about(name, "", "pods/binding"))
        if "deletionTimestamp" in pod["metadata"]:
            raise status.conflict(
                "pods", "", name, f"pod {name} is being deleted, cannot be assigned to a host"
            )
        pod["spec"]["nodeName"] = target
        conditions = [
            c
            for c in pod.setdefault("status", {}).get("conditions", ())
            if c["type"] != "PodScheduled"
        ]
        now = format_time(store.clock())
        pod["status"]["conditions"] = [
            *conditions,
            {
                "type": "PodScheduled",
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": now,
            },
        ]
        store.update("pods", pod)
    return status.success(201)
