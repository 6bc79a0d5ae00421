"""The patch types: JSON patch (RFC 6902), merge patch (RFC 7386) and the strategic merge of built-in types.

Strategic merge knows the merge keys of the lists that are used here. Node taints have none: recorded responses show
that they are replaced as a whole, so a careless taint patch removes taints of other programs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from infra.emulators.kube import status
from infra.emulators.kube.objects import clone

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
            raise status.ApiError(500, "", f"map: {json.dumps(each)} does not contain declared merge key: {key}")
        at = next((index for index, old in enumerate(current) if old.get(key) == each[key]), None)
        if each.get("$patch") == "delete":
            current = [old for old in current if old.get(key) != each[key]]
        elif at is None:
            current.append(strategic({}, each))
        else:
            current[at] = strategic(current[at], each)
    return current


def json_patch(target: Any, operations: Any) -> Any:
    """Patch by RFC 6902. Raises ApiError 422 if an operation cannot be carried out, 400 if it is invalid."""
    if not isinstance(operations, list):
        raise status.bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch"
        )
    document = {"": clone(target)}
    for operation in operations:
        try:
            _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError):
            raise status.rejected() from None
    return document[""]


def _pointer(document: Any, text: str) -> tuple[Any, str]:
    """Return the container of the last token, and that token. The document is stored under the key ""."""
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
