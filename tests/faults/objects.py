"""Reads the object fields that the audit needs, plainly and without the product's code."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from infra.emulators.kube.objects import KubeObject, dig

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
NOTICE = "aws-node-termination-handler/spot-itn"
"""The taint of a node that its vendor takes back."""
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"


def marks_of(obj: KubeObject) -> Mapping[str, str]:
    """The annotations; empty if there are none."""
    return obj["metadata"].get("annotations") or {}


def owner_kind(obj: KubeObject) -> str:
    """The kind of the controller, empty without one."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((str(each["kind"]) for each in owners if each.get("controller")), "")


def must_move(pod: KubeObject) -> bool:
    """Whether the pod is alive and must run elsewhere if its node is removed."""
    over = (
        dig(pod, "status", "phase") in {"Succeeded", "Failed"}
        or "deletionTimestamp" in pod["metadata"]
    )
    return not over and owner_kind(pod) != "DaemonSet"


def is_protected(pod: KubeObject) -> bool:
    """Whether a user forbade its eviction, or no controller would recreate it."""
    said = marks_of(pod).get(SAFE_TO_EVICT)
    return said == "false" or (not owner_kind(pod) and said != "true")


def taint_of(node: KubeObject, key: str) -> KubeObject | None:
    """The taint with that key."""
    return next(
        (dict(each) for each in node["spec"].get("taints") or () if each["key"] == key), None
    )


def is_ready(node: KubeObject) -> bool:
    """Whether its Ready condition is True."""
    conditions = dig(node, "status", "conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def conditions_of(obj: KubeObject) -> Mapping[str, tuple[str, float]]:
    """Its conditions: type -> (status, instant of its last change)."""
    conditions = dig(obj, "status", "conditions") or ()
    return {
        each["type"]: (each["status"], datetime.fromisoformat(at).timestamp())
        for each in conditions
        if (at := each.get("lastTransitionTime"))
    }


def created_at(obj: KubeObject) -> float:
    """The instant of its creation."""
    return datetime.fromisoformat(obj["metadata"]["creationTimestamp"]).timestamp()
