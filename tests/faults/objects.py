"""What the audit asks of single objects, read off them plainly and with none of the product's code."""

from __future__ import annotations

from collections.abc import Mapping

from infra.emulators.kube.objects import KubeObject, dig

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"


def marks_of(obj: KubeObject) -> Mapping[str, str]:
    """Empty where there are none."""
    return obj["metadata"].get("annotations") or {}


def owner_kind(obj: KubeObject) -> str:
    """Of the controller, empty without one."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((str(each["kind"]) for each in owners if each.get("controller")), "")


def must_move(pod: KubeObject) -> bool:
    """It is alive, and somebody would miss it if its node went."""
    over = dig(pod, "status", "phase") in {"Succeeded", "Failed"} or "deletionTimestamp" in pod["metadata"]
    return not over and owner_kind(pod) != "DaemonSet"


def is_protected(pod: KubeObject) -> bool:
    """A person said that it must not be evicted, or nobody would make it again."""
    said = marks_of(pod).get(SAFE_TO_EVICT)
    return said == "false" or (not owner_kind(pod) and said != "true")


def taint_of(node: KubeObject, key: str) -> KubeObject | None:
    """The taint with that key."""
    return next((dict(each) for each in node["spec"].get("taints") or () if each["key"] == key), None)


def is_ready(node: KubeObject) -> bool:
    """Its Ready condition is True."""
    conditions = dig(node, "status", "conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
