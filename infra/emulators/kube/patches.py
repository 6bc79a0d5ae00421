"""The patch types: JSON patch (RFC 6902), merge patch (RFC 7386), strategic merge of built-in
types, and server-side apply.

Strategic merge knows the merge keys of the lists that are used here. Node taints have none:
recorded responses show that they are replaced as a whole, so a careless taint patch removes taints
of other programs. Owners of fields are stored apart from the objects, and only for objects written
through the API; lists are owned as a whole.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from infra.emulators.kube import status
from infra.emulators.kube.objects import KubeObject, clone, dig

# field name -> merge key of its list, for built-in types (each name has one meaning in all of them)
_MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "addresses": "type",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "hostIPs": "ip",
    "secrets": "name",
}
_PRIMITIVE = frozenset({"finalizers", "podCIDRs"})


def decode(body: bytes) -> Any:
    """Return the JSON of a patch. Raises ApiError 400 with the text of Go's decoder."""
    try:
        return json.loads(body)
    except ValueError as error:
        at = getattr(error, "pos", len(body))
        rest = body[at:].strip()
        why = (
            f"invalid character '{chr(rest[0])}' looking for beginning of value"
            if rest[1:]
            else ("unexpected end of JSON input")
        )
        raise status.bad_request(f"error decoding patch: {why}") from None


def merge(target: Any, patch: Any) -> Any:
    """Merge by RFC 7386: objects are merged, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return clone(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def strategic(target: Any, patch: dict[str, Any]) -> Any:
    """Merge one object strategically, with `$patch`, `$retainKeys`, `$deleteFromPrimitiveList` and
    `$setElementOrder`."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: clone(value) for key, value in patch.items() if not key.startswith("$")}
    if directive == "delete":
        return {}
    merged = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        merged = {key: value for key, value in merged.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            merged[field] = [each for each in merged.get(field, ()) if each not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            merged.pop(key, None)
        elif isinstance(value, list):
            merged[key] = _strategic_list(key, merged.get(key), value)
        elif isinstance(value, dict):
            merged[key] = strategic(merged.get(key), value)
        else:
            merged[key] = value
    return merged


def _merge_key(field: str, items: Sequence[Any]) -> str | None:
    if field == "ports":
        return "containerPort" if any("containerPort" in each for each in items) else "port"
    return _MERGE_KEYS.get(field)


def _strategic_list(field: str, target: Any, patch: list[Any]) -> list[Any]:
    current = list(target) if isinstance(target, list) else []
    if field in _PRIMITIVE:
        return current + [each for each in patch if each not in current]
    objects = [each for each in patch if isinstance(each, dict)]
    key = _merge_key(field, objects) if objects and len(objects) == len(patch) else None
    if any(each.get("$patch") == "replace" for each in objects):
        return [clone(each) for each in objects if each.get("$patch") != "replace"]
    if key is None:
        return [clone(each) for each in patch]
    for each in objects:
        if key not in each:
            raise status.ApiError(
                500, "", f"map: {json.dumps(each)} does not contain declared merge key: {key}"
            )
        at = next((index for index, old in enumerate(current) if old.get(key) == each[key]), None)
        if each.get("$patch") == "delete":
            current = [old for old in current if old.get(key) != each[key]]
        elif at is None:
            current.append(strategic({}, each))
        else:
            current[at] = strategic(current[at], each)
    return current


def json_patch(target: Any, operations: Any) -> Any:
    """Patch by RFC 6902. Raises ApiError 422 if an operation cannot be carried
    out, 400 if it is invalid."""
    if not isinstance(operations, list):
        raise status.bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type "
            "jsonpatch.Patch"
        )
    document = {"": clone(target)}
    for operation in operations:
        try:
            _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError):
            raise status.rejected() from None
    return document[""]


def _pointer(document: Any, text: str) -> tuple[Any, str]:
    """Return the container of the last token, and that token. The document is
    stored under the key ""."""
    if text and not text.startswith("/"):
        raise ValueError(text)
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in text.split("/")]
    holder = document
    for token in tokens[:-1]:
        holder = holder[int(token)] if isinstance(holder, list) else holder[token]
    return holder, tokens[-1]


def _read(document: Any, text: str) -> Any:
    holder, token = _pointer(document, text)
    return holder[int(token)] if isinstance(holder, list) else holder[token]


def _add(document: Any, text: str, value: Any) -> None:
    holder, token = _pointer(document, text)
    if isinstance(holder, list):
        at = len(holder) if token == "-" else int(token)
        if not 0 <= at <= len(holder):
            raise IndexError(at)
        holder.insert(at, value)
    else:
        holder[token] = value


def _remove(document: Any, text: str) -> Any:
    holder, token = _pointer(document, text)
    return holder.pop(int(token)) if isinstance(holder, list) else holder.pop(token)


def _operate(document: Any, operation: dict[str, Any]) -> None:
    path = operation["path"]
    match operation["op"]:
        case "add":
            _add(document, path, clone(operation["value"]))
        case "remove":
            _remove(document, path)
        case "replace":
            _read(document, path)
            holder, token = _pointer(document, path)
            holder[int(token) if isinstance(holder, list) else token] = clone(operation["value"])
        case "test":
            if _read(document, path) != operation.get("value"):
                raise ValueError(path)
        case "move":
            _add(document, path, _remove(document, operation["from"]))
        case "copy":
            _add(document, path, clone(_read(document, operation["from"])))
        case other:
            raise ValueError(other)


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


def decode_applied(body: bytes) -> KubeObject:
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


def _set_field(obj: KubeObject, path: Path, value: Any) -> None:
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
        self.note(manager, None, made)
        with self._lock:
            self._applied[(made["metadata"]["uid"], manager)] = {
                path for path, _ in _leaves(config)
            }

    def forget(self, uid: str) -> None:
        with self._lock:
            self._owners.pop(uid, None)
            for key in [key for key in self._applied if key[0] == uid]:
                del self._applied[key]

    def merge(
        self, manager: str, current: KubeObject, config: KubeObject, *, force: bool
    ) -> KubeObject:
        """Return the object after the apply. Raises ApiError 409 that names the other managers of
        fields that would change."""
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
            raise _apply_conflict(taken)
        merged = clone(current)
        for path in before - wanted.keys():
            if owners.get(path, ("",))[0] == manager:
                _unset(merged, path)
        for path, value in wanted.items():
            _set_field(merged, path, clone(value))
        with self._lock:
            self._applied[(uid, manager)] = set(wanted)
            self._owners.setdefault(uid, {}).update(
                dict.fromkeys(wanted, (manager, config.get("apiVersion", "v1")))
            )
        return merged


def _apply_conflict(taken: list[tuple[tuple[str, str], str]]) -> status.ApiError:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{manager}" using {version}',
            "field": field,
        }
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
    return status.ApiError(
        409, "Conflict", f"Apply failed with {len(causes)} conflicts: {text}", {"causes": causes}
    )
