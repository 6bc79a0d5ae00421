"""Evicts pods through the eviction API, which is the only way that respects disruption budgets.

A refusal is a result, not an error: the drain requests the eviction again later. evict() therefore returns what
happened, and raises only where the response says nothing about this pod.
"""

from __future__ import annotations

import msgspec

from chalicelib.kube.client import KubeClient, path_segment
from chalicelib.kube.errors import ClusterError, Conflict, NotFound, TooManyRequests, Unavailable, clean

# The server's message where it can never decide whether the pod may be evicted (there is no machine-readable reason).
_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
# Both messages for a failed uid precondition: the eviction's own, and the store's.
_OTHER_UID = ("the uid in the precondition", "uid in precondition")
_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """The pod is being deleted; it exists until its kubelet confirms."""


class Blocked(msgspec.Struct, frozen=True, tag=True):
    """The pod cannot be evicted now. message: the budget's own text where one is the cause. retry_after: seconds, 0.0
    if none was named."""

    message: str
    retry_after: float = 0.0


class PodGone(msgspec.Struct, frozen=True, tag=True):
    """The pod no longer exists; a pod of that name may be its successor (another uid), which is not evicted."""


EvictResult = Accepted | Blocked | PodGone


def evict(kube: KubeClient, namespace: str, name: str, uid: str, grace_seconds: int | None = None) -> EvictResult:
    """Evict exactly this pod. grace_seconds: None for the pod's own.

    Raises Forbidden and similar errors; Unavailable if the response was lost, when a retry is safe: a terminating pod
    accepts a second eviction, and a successor has another uid.
    """
    options: dict[str, object] = {}
    if uid:
        options["preconditions"] = {"uid": uid}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": options,
    }
    path = f"/api/v1/namespaces/{path_segment(namespace)}/pods/{path_segment(name)}/eviction"
    try:
        kube.request("POST", path, body=body)
    except NotFound:
        return PodGone()
    except (TooManyRequests, Conflict, Unavailable) as refusal:
        return _refused(refusal)
    return Accepted()


def _refused(error: ClusterError) -> EvictResult:
    """Return what a 409, 429 or 5xx means for the pod; raises it again where it means nothing."""
    if isinstance(error, Conflict):
        if any(words in error.message.lower() for words in _OTHER_UID):
            return PodGone()
        return Blocked(error.message)  # the pod or its budget changed concurrently
    if isinstance(error, TooManyRequests):
        budgets = [cause.message for cause in error.details.causes if cause.reason == "DisruptionBudget"]
        return Blocked(clean("; ".join(budgets)) or error.message, error.retry_after)
    if _SEVERAL_BUDGETS in error.message:
        return Blocked(error.message)
    raise error


def get_pod(kube: KubeClient, namespace: str, name: str) -> bytes:
    """Return the current Pod. Raises NotFound."""
    return kube.get(f"/api/v1/namespaces/{path_segment(namespace)}/pods/{path_segment(name)}")


def pods_on_node(kube: KubeClient, node: str) -> bytes:
    """Return the PodList of one node without finished pods, read from the store, because a drain must not decide on
    stale data."""
    return kube.get("/api/v1/pods", query={"fieldSelector": f"spec.nodeName={_field_value(node)},{_UNFINISHED}"})


def _field_value(text: str) -> str:
    """Escape a value inside a field selector, where these three characters have a meaning."""
    return text.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
