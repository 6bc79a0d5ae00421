"""Server-side apply as far as it is used here: field owners, conflicts, force.

Ownership is stored separately from the objects, not in managedFields, and only for objects written through the API.
Lists are owned as a whole, because apply does not know the merge keys of typed lists.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import yaml

from infra.emulators.kube import status
from infra.emulators.kube.objects import KubeObject, clone, dig

Path = tuple[str, ...]
_IDENTITY = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "generateName",
        "managedFields",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    }
)


def decode(body: bytes) -> KubeObject:
    """Return the object of an apply request (YAML or JSON). Raises ApiError 400."""
    try:
        found = yaml.load(body, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise status.bad_request(f"error decoding YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(found, dict):
        raise status.bad_request("error decoding YAML: json: cannot unmarshal into an object")
    return found


def _leaves(obj: KubeObject) -> Iterator[tuple[Path, Any]]:
    for key, value in obj.items():
        if key == "metadata" and isinstance(value, dict):
            kept = {name: each for name, each in value.items() if name not in _IDENTITY}
            if kept:
                yield from _below(("metadata",), kept)
        elif key not in {"apiVersion", "kind"}:
            yield from _below((key,), value)


def _below(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _below((*path, key), each)
    else:
        yield path, value


def _set(obj: KubeObject, path: Path, value: Any) -> None:
    for key in path[:-1]:
        below = obj.get(key)
        if not isinstance(below, dict):
            below = obj[key] = {}
        obj = below
    obj[path[-1]] = value


def _unset(obj: KubeObject, path: Path) -> None:
    holder = dig(obj, *path[:-1])
    if isinstance(holder, dict):
        holder.pop(path[-1], None)


class FieldOwners:
    """The writers of each field of the objects that came through the API."""

    def __init__(self) -> None:
        self._owners: dict[str, dict[Path, tuple[str, str]]] = {}
        self._applied: dict[tuple[str, str], set[Path]] = {}
        self._lock = threading.Lock()

    def note(self, manager: str, before: KubeObject | None, after: KubeObject) -> None:
        """Record that a manager wrote the fields in which `after` differs from `before`."""
        old = dict(_leaves(before)) if before else {}
        changed = [path for path, value in _leaves(after) if path not in old or old[path] != value]
        with self._lock:
            owners = self._owners.setdefault(after["metadata"]["uid"], {})
            owners.update(dict.fromkeys(changed, (manager, after["apiVersion"])))

    def created(self, manager: str, config: KubeObject, made: KubeObject) -> None:
        """Record an object that an apply created."""
        self.note(manager, None, made)
        with self._lock:
            self._applied[(made["metadata"]["uid"], manager)] = {path for path, _ in _leaves(config)}

    def forget(self, uid: str) -> None:
        """Drop the owners of a deleted object."""
        with self._lock:
            self._owners.pop(uid, None)
            for key in [key for key in self._applied if key[0] == uid]:
                del self._applied[key]

    def merge(self, manager: str, current: KubeObject, config: KubeObject, *, force: bool) -> KubeObject:
        """Return the object after the apply. Raises ApiError 409 that names the other managers of fields that would
        change."""
        uid = current["metadata"]["uid"]
        wanted = dict(_leaves(config))
        with self._lock:
            owners = dict(self._owners.get(uid, {}))
            before = set(self._applied.get((uid, manager), ()))
        taken = [
            (owners[path], "." + ".".join(path))
            for path, value in wanted.items()
            if path in owners and owners[path][0] != manager and dig(current, *path) != value
        ]
        if taken and not force:
            raise _conflict(taken)
        merged = clone(current)
        for path in before - wanted.keys():
            if owners.get(path, ("",))[0] == manager:
                _unset(merged, path)
        for path, value in wanted.items():
            _set(merged, path, clone(value))
        with self._lock:
            self._applied[(uid, manager)] = set(wanted)
            self._owners.setdefault(uid, {}).update(dict.fromkeys(wanted, (manager, config.get("apiVersion", "v1"))))
        return merged


def _conflict(taken: list[tuple[tuple[str, str], str]]) -> status.ApiError:
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{manager}" using {version}', "field": field}
        for (manager, version), field in taken
    ]
    if len(causes) == 1:
        return status.ApiError(
            409,
            "Conflict",
            f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}",
            {"causes": causes},
        )
    lines: list[str] = []
    for manager, version in dict.fromkeys(owner for owner, _ in taken):
        lines.append(f'conflicts with "{manager}" using {version}:')
        lines.extend(f"- {field}" for owner, field in taken if owner == (manager, version))
    text = "\n".join(lines)
    return status.ApiError(409, "Conflict", f"Apply failed with {len(causes)} conflicts: {text}", {"causes": causes})
