"""pods/eviction: deletes a pod only if its disruption budget permits.

Rules and texts follow recorded responses: finished, unstarted and terminating pods need no budget; two budgets for one
pod cause the real server's 500; a granted eviction is subtracted from the budget at once.
"""

from __future__ import annotations

from typing import Any

from chalicelib.model.timestamps import format_time
from infra.emulators.kube import status
from infra.emulators.kube.disruption import budgets_of, is_ready
from infra.emulators.kube.objects import KubeObject, clone, dig
from infra.emulators.kube.store import ObjectStore

_BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."
_TWO_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


def evict(store: ObjectStore, namespace: str, name: str, eviction: KubeObject, *, dry_run: bool = False) -> KubeObject:
    """Evict a pod and return the response's Status (201). Raises ApiError 404, 409 (uid), 429 (budget), 500 (two
    budgets)."""
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
            f'Operation cannot be fulfilled on Pod "{name}": the UID in the precondition ({uid}) does not match the '
            f"UID in record ({have}). The object might have been deleted and then recreated",
            status.about(name, "", "Pod"),
        )


def _needs_no_budget(pod: KubeObject) -> bool:
    phase = dig(pod, "status", "phase")
    return phase in {"Succeeded", "Failed", "Pending"} or "deletionTimestamp" in pod["metadata"]


def _unhealthy_may_go(pod: KubeObject, budget: KubeObject) -> bool:
    """Evaluate spec.unhealthyPodEvictionPolicy for a running pod that is not ready."""
    if is_ready(pod) or dig(pod, "status", "phase") != "Running":
        return False
    if dig(budget, "spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    healthy, desired = dig(budget, "status", "currentHealthy") or 0, dig(budget, "status", "desiredHealthy") or 0
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
        raise _blocked(f"The disruption budget {name} is still being processed by the server.", retry_after=10)
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
    conditions = [each for each in state.get("conditions", ()) if each.get("type") != "DisruptionTarget"]
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
            raise status.conflict("pods", "", name, f"pod {name} is being deleted, cannot be assigned to a host")
        pod["spec"]["nodeName"] = target
        conditions = [c for c in pod.setdefault("status", {}).get("conditions", ()) if c["type"] != "PodScheduled"]
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
