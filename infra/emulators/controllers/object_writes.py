"""What every simulated controller does with objects: write without clobbering, own, and keep conditions.

Why: controllers look at the whole state again and again and must not mind losing a race against the API's users. A
refused write is no failure here, only a reason to look again in the next step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.model.timestamps import format_time
from infra.emulators.kube.objects import KubeObject, conditions_of
from infra.emulators.kube.status import ApiError
from infra.emulators.kube.store import ObjectStore

Json = Mapping[str, Any]
_KEPT = ("lastProbeTime", "lastHeartbeatTime", "lastUpdateTime")  # of a condition, by others


def listed(store: ObjectStore, plural: str, group: str = "", namespace: str | None = None) -> list[KubeObject]:
    """store.list (READ ONLY), empty where the resource is not served, as custom ones are before their CRD is there."""
    return store.list(plural, namespace, group) if store.resources.find(plural, group) else []


def write(store: ObjectStore, plural: str, obj: KubeObject, group: str = "") -> bool:
    """Replace the object that was read; False when it was changed or removed meanwhile, and nothing was written. What
    is given is handed over: it is not to be changed any more."""
    try:
        store.replace(plural, obj, group)
    except ApiError as error:
        if error.code not in {404, 409}:
            raise
        return False
    return True


def write_status(store: ObjectStore, plural: str, obj: KubeObject, status: KubeObject, group: str = "") -> bool:
    """Merge fields into an object's status; nothing is written when they are there already (absent counts as 0)."""
    before = obj.get("status") or {}
    if all(before.get(key, 0 if value == 0 else None) == value for key, value in status.items()):
        return False
    return write(store, plural, {**obj, "status": {**before, **status}}, group)


def erase(store: ObjectStore, plural: str, obj: KubeObject, group: str = "", grace: int | None = None) -> None:
    """Delete as a user would (grace: seconds for a pod); one that is gone already is fine."""
    meta = obj["metadata"]
    try:
        store.delete(plural, meta["name"], meta.get("namespace", ""), group, grace)
    except ApiError as error:
        if error.code != 404:
            raise


def controller_of(obj: Json) -> KubeObject | None:
    """The owner reference that controls the object, or None."""
    for ref in obj["metadata"].get("ownerReferences") or ():  # a loop: asked too often for a generator
        if ref.get("controller"):
            found: KubeObject = ref
            return found
    return None


def owned_by(owner: Json) -> list[KubeObject]:
    """The ownerReferences of something that this object controls."""
    meta = owner["metadata"]
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def by_controller(objects: Sequence[KubeObject]) -> dict[str, list[KubeObject]]:
    """Objects by the uid of what controls them; those nobody controls are left out."""
    found: dict[str, list[KubeObject]] = {}
    for obj in objects:
        ref = controller_of(obj)
        if ref is not None:
            found.setdefault(ref["uid"], []).append(obj)
    return found


def is_true(obj: Json, condition: str) -> bool:
    """Whether status.conditions has that type with status True."""
    for each in conditions_of(obj):  # noqa: SIM110 - asked too often for a generator
        if each.get("type") == condition and each.get("status") == "True":
            return True
    return False


def condition(type_: str, *, value: bool | str, reason: str = "", message: str = "") -> KubeObject:
    """An entry for status.conditions; value: True, False, or `Unknown`."""
    made: KubeObject = {"type": type_, "status": str(value)}
    if reason:
        made["reason"] = reason
    if message:
        made["message"] = message
    return made


def with_conditions(obj: Json, now: float, *wanted: KubeObject) -> list[KubeObject]:
    """status.conditions with these put in; lastTransitionTime moves only where the status did."""
    conditions: list[KubeObject] = list(conditions_of(obj))
    for each in wanted:
        at = next((i for i, old in enumerate(conditions) if old.get("type") == each["type"]), None)
        old = conditions[at] if at is not None else {}
        moved = old.get("status") != each["status"] or not old.get("lastTransitionTime")
        made = {**each, "lastTransitionTime": format_time(now) if moved else old["lastTransitionTime"]}
        kept = {key: old[key] for key in _KEPT if key in old and key not in made}
        if at is None:
            conditions.append(made)
        else:
            conditions[at] = kept | made
    return conditions
