"""The scale subresource: reads and writes another object's replicas as an autoscaling/v1 Scale.

Paths come from the resource's table row or its CRD. As recorded, a response omits replicas of 0,
and a write counts as a write to the object (same resourceVersion, same conflict, next generation).
"""

from __future__ import annotations

from typing import Any

from infra.emulators.kube import selectors, status
from infra.emulators.kube.objects import KubeObject, clone, dig
from infra.emulators.kube.resources import ServedResource, Version


def _path(text: str) -> list[str]:
    return text.strip(".").split(".")


def scale_of(version: Version, obj: KubeObject) -> KubeObject:
    paths, meta = version.scale or {}, obj["metadata"]
    replicas = dig(obj, *_path(paths["specReplicasPath"])) or 0
    shown: dict[str, Any] = {"replicas": dig(obj, *_path(paths["statusReplicasPath"])) or 0}
    selector = (
        dig(obj, *_path(paths["labelSelectorPath"])) if paths.get("labelSelectorPath") else None
    )
    if isinstance(selector, dict):
        selector = ",".join(str(each) for each in selectors.from_object(selector) or ())
    if selector:
        shown["selector"] = selector
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: meta[field] for field in kept if field in meta},
        "spec": {"replicas": replicas} if replicas else {},
        "status": shown,
    }


def apply_scale(
    resource: ServedResource, version: Version, obj: KubeObject, scale: KubeObject
) -> KubeObject:
    """Return a copy of the object with the replicas and the resourceVersion of a Scale. Raises
    ApiError 422 for an invalid number."""
    replicas = dig(scale, "spec", "replicas") or 0
    name = obj["metadata"]["name"]
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise status.bad_request(
            "json: cannot unmarshal into Go struct field ScaleSpec.spec.replicas of type int32"
        )
    if replicas < 0 and resource.native:
        why = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise status.invalid(
            "Scale", "autoscaling", name, [status.cause("FieldValueInvalid", why, "spec.replicas")]
        )
    field = (version.scale or {})["specReplicasPath"]
    if replicas < 0:
        raise status.invalid(resource.kind, resource.group, name, [_negative(replicas, field)])
    changed = clone(obj)
    *parents, last = _path(field)
    holder = changed
    for each in parents:
        holder = holder.setdefault(each, {})
    holder[last] = replicas
    given = scale.get("metadata") or {}
    if given.get("uid", obj["metadata"]["uid"]) != obj["metadata"]["uid"]:
        raise status.conflict(resource.plural, resource.group, name)
    if given.get("resourceVersion"):
        changed["metadata"]["resourceVersion"] = given["resourceVersion"]
    else:
        changed["metadata"].pop("resourceVersion", None)
    return changed


def _negative(value: int, field: str) -> dict[str, str]:
    return status.cause(
        "FieldValueInvalid", f"Invalid value: {value}: should be a non-negative integer", field
    )


def number_causes(version: Version, obj: KubeObject) -> list[dict[str, str]]:
    """Return the scale path's errors about replicas that are not a number, as recorded in addition
    to the schema's own error."""
    if version.scale is None:
        return []
    field = version.scale["specReplicasPath"]
    value = dig(obj, *_path(field))
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        if isinstance(value, int) and value < 0:
            return [_negative(value, field)]
        return []
    names = {
        str: "string",
        bool: "bool",
        float: "float64",
        list: "[]interface {}",
        dict: "map[string]interface {}",
    }
    text = (
        f"Invalid value: 0: {field} accessor error: {value} is of the type {names[type(value)]}, "
        "expected int64"
    )
    return [status.cause("FieldValueInvalid", text, field)]
