"""Operations on objects that all simulated controllers share: conflict-safe
writes, ownership, conditions.

Controllers evaluate the whole state repeatedly, and clients of the API may write at the same time.
A refused write is therefore not an error; the next step evaluates the state again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from chalicelib.model.timestamps import format_time
from infra.emulators.kube.objects import KubeObject, conditions_of
from infra.emulators.kube.status import ApiError
from infra.emulators.kube.store import ObjectStore

Json = Mapping[str, Any]
_KEPT = ("lastProbeTime", "lastHeartbeatTime", "lastUpdateTime")  # of a condition, by others


def listed(
    store: ObjectStore, plural: str, group: str = "", namespace: str | None = None
) -> list[KubeObject]:
    """Return store.list (READ ONLY), empty if the resource is not served, like custom resources
    before their CRD exists."""
    return store.list(plural, namespace, group) if store.resources.find(plural, group) else []


def write(store: ObjectStore, plural: str, obj: KubeObject, group: str = "") -> bool:
    """Replace the object that was read. Returns False, without writing, if it was changed or
    deleted in the meantime. The argument must not be changed afterwards."""
    try:
        store.replace(plural, obj, group)
    except ApiError as error:
        if error.code not in {404, 409}:
            raise
        return False
    return True


def changed(obj: KubeObject, part: str, **fields: Any) -> KubeObject:
    """Return the object with these fields of `metadata`, `spec` or `status`. The rest is
    shared with the argument."""
    return {**obj, part: {**(obj.get(part) or {}), **fields}}


def write_status(
    store: ObjectStore, plural: str, obj: KubeObject, status: KubeObject, group: str = ""
) -> bool:
    """Merge fields into an object's status. Nothing is written if they are present
    already (absent counts as 0)."""
    before = obj.get("status") or {}
    if all(before.get(key, 0 if value == 0 else None) == value for key, value in status.items()):
        return False
    return write(store, plural, changed(obj, "status", **status), group)


def erase(
    store: ObjectStore, plural: str, obj: KubeObject, group: str = "", grace: int | None = None
) -> None:
    """Delete as a user would. grace: seconds for a pod. An object that is gone
    already is not an error."""
    meta = obj["metadata"]
    try:
        store.delete(plural, meta["name"], meta.get("namespace", ""), group, grace)
    except ApiError as error:
        if error.code != 404:
            raise


def controller_of(obj: Json) -> KubeObject | None:
    """Return the owner reference that controls the object, or None."""
    # a loop, because it is called too often for a generator
    for ref in obj["metadata"].get("ownerReferences") or ():
        if ref.get("controller"):
            found: KubeObject = ref
            return found
    return None


def owned_by(owner: Json) -> list[KubeObject]:
    """Return the ownerReferences of an object that this object controls."""
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
    """Return objects by the uid of their controller, without those that have none."""
    found: dict[str, list[KubeObject]] = {}
    for obj in objects:
        ref = controller_of(obj)
        if ref is not None:
            found.setdefault(ref["uid"], []).append(obj)
    return found


def is_true(obj: Json, condition: str) -> bool:
    for each in conditions_of(obj):  # asked too often for a generator
        if each.get("type") == condition and each.get("status") == "True":
            return True
    return False


def condition(type_: str, *, value: bool | str, reason: str = "", message: str = "") -> KubeObject:
    """Return an entry for status.conditions. value: True, False, or `Unknown`."""
    made: KubeObject = {"type": type_, "status": str(value)}
    if reason:
        made["reason"] = reason
    if message:
        made["message"] = message
    return made


def with_conditions(obj: Json, now: float, *wanted: KubeObject) -> list[KubeObject]:
    """Return status.conditions with these added or replaced. lastTransitionTime changes
    only if the status changes."""
    conditions: list[KubeObject] = list(conditions_of(obj))
    for each in wanted:
        at = next((i for i, old in enumerate(conditions) if old.get("type") == each["type"]), None)
        old = conditions[at] if at is not None else {}
        moved = old.get("status") != each["status"] or not old.get("lastTransitionTime")
        made = {
            **each,
            "lastTransitionTime": format_time(now) if moved else old["lastTransitionTime"],
        }
        kept = {key: old[key] for key in _KEPT if key in old and key not in made}
        if at is None:
            conditions.append(made)
        else:
            conditions[at] = kept | made
    return conditions


class Changes:
    """Observes some resources of a store, each (plural, group). The first check
    always reports a change."""

    def __init__(self, store: ObjectStore, watched: Iterable[tuple[str, str]]) -> None:
        self._store, self._watched = store, tuple(watched)
        self._seen = [-1] * len(self._watched)
        self._looked = -1

    def any(self) -> bool:
        version = self._store.version
        if version == self._looked:
            return False
        self._looked, found = version, False
        for index, (plural, group) in enumerate(self._watched):
            latest, since = self._store.latest(plural, group), self._seen[index]
            if latest >= 0:  # the resource is served
                self._seen[index] = version
                found = found or since < latest or since < 0
        return found


class Moved:
    """A controller that runs only after changes of some resources of a store.

    step: one run of it. It must not depend on the clock, except to record the time, and must not
    defer work to a later run.
    """

    def __init__(
        self, step: Callable[[], None], store: ObjectStore, watched: Iterable[tuple[str, str]]
    ) -> None:
        self._step, self._changes = step, Changes(store, watched)

    def step(self) -> None:
        """Run, unless nothing has changed. The controller's own writes cause another run."""
        if self._changes.any():
            self._step()
