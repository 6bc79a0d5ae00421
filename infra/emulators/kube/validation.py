"""Validates objects as the API server does (422): names, node taints, providerID, changes
of existing pods, replicas, and custom resources by their structural schemas, which also
prune and fill in defaults.

Schemas cover what the Cluster API definitions use, without CEL rules
(`x-kubernetes-validations`) and `format`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from infra.emulators.kube import status
from infra.emulators.kube.objects import KubeObject, clone, dig
from infra.emulators.kube.resources import ServedResource, Version
from infra.emulators.kube.scale import number_causes
from infra.emulators.kube.status import cause

Cause = dict[str, str]
Schema = dict[str, Any]
_PRESERVE, _INT_OR_STRING = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"


def _type_name(value: Any) -> str:
    for types, name in (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
        (dict, "object"),
    ):
        if isinstance(value, types):
            return name
    return "null"


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _fits(expected: str, actual: str) -> bool:
    return expected == actual or (expected == "number" and actual == "integer")


def _length_causes(schema: Schema, value: Any, path: str) -> Iterator[Cause]:
    size = len(value)
    for field, noun, words in (
        ("maxLength", "", f"Too long: may not be more than {schema.get('maxLength')} bytes"),
        (
            "maxItems",
            "items",
            f"Too many: {size}: must have at most {schema.get('maxItems')} items",
        ),
        (
            "maxProperties",
            "items",
            f"Too many: {size}: must have at most {schema.get('maxProperties')} items",
        ),
    ):
        if field in schema and size > schema[field]:
            yield cause("FieldValueTooMany" if noun else "FieldValueTooLong", words, path)
    for field, noun in (
        ("minLength", "chars long"),
        ("minItems", "items"),
        ("minProperties", "properties"),
    ):
        if field in schema and size < schema[field]:
            shown = _shown(value) if field == "minLength" else str(size)
            verb = "be" if field == "minLength" else "have"
            text = (
                f"Invalid value: {shown}: {path} in body should {verb} at least {schema[field]} "
                f"{noun}"
            )
            yield cause("FieldValueInvalid", text, path)


def _scalar_causes(schema: Schema, value: Any, path: str) -> Iterator[Cause]:
    if "enum" in schema and value not in schema["enum"]:
        options = ", ".join(_shown(each) for each in schema["enum"])
        text = f"Unsupported value: {_shown(value)}: supported values: {options}"
        yield cause("FieldValueNotSupported", text, path)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        for field, bad, words in (
            ("minimum", value < schema.get("minimum", value), "greater than or equal to"),
            ("maximum", value > schema.get("maximum", value), "less than or equal to"),
        ):
            if bad:
                text = f"Invalid value: {value}: {path} in body should be {words} {schema[field]}"
                yield cause("FieldValueInvalid", text, path)
    if (
        isinstance(value, str)
        and "pattern" in schema
        and not _pattern(schema["pattern"]).search(value)
    ):
        text = f"Invalid value: {_shown(value)}: {path} in body should match '{schema['pattern']}'"
        yield cause("FieldValueInvalid", text, path)


def causes(schema: Schema, value: Any, path: str = "") -> Iterator[Cause]:
    """Return all errors of a value in the order of the real server: contents
    first, then missing fields."""
    if value is None and schema.get("nullable"):
        return
    actual, expected = _type_name(value), schema.get("type")
    if expected and not schema.get(_INT_OR_STRING) and not _fits(expected, actual):
        text = f'Invalid value: "{actual}": {path} in body must be of type {expected}: "{actual}"'
        yield cause("FieldValueTypeInvalid", text, path)
        return
    yield from _scalar_causes(schema, value, path)
    if isinstance(value, (str, list, dict)):
        yield from _length_causes(schema, value, path)
    if isinstance(value, list) and "items" in schema:
        for index, each in enumerate(value):
            yield from causes(schema["items"], each, f"{path}[{index}]")
    if isinstance(value, dict):
        yield from _object_causes(schema, value, path)


def _object_causes(schema: Schema, value: Schema, path: str) -> Iterator[Cause]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, each in value.items():
        below = f"{path}.{name}" if path else name
        if name in properties:
            if below != "metadata":
                yield from causes(properties[name], each, below)
        elif isinstance(others, dict):
            yield from causes(others, each, below)
    for name in schema.get("required", ()):
        if name not in value:
            yield cause("FieldValueRequired", "Required value", f"{path}.{name}" if path else name)


def prune(schema: Schema, value: Any, *, top: bool = True) -> Any:
    """Return the value without fields that the schema does not contain; metadata of
    the object itself is kept."""
    if isinstance(value, list):
        items = schema.get("items")
        return [prune(items, each, top=False) for each in value] if items else value
    if not isinstance(value, dict):
        return value
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    keep_all = schema.get(_PRESERVE, False) or others is True
    kept: dict[str, Any] = {}
    for name, each in value.items():
        if top and name in {"apiVersion", "kind", "metadata"}:
            kept[name] = each
        elif name in properties:
            kept[name] = prune(properties[name], each, top=False)
        elif isinstance(others, dict):
            kept[name] = prune(others, each, top=False)
        elif keep_all:
            kept[name] = each
    return kept


def fill_defaults(schema: Schema, value: Any) -> None:
    """Add `default` values of missing fields, in place."""
    if isinstance(value, list) and "items" in schema:
        for each in value:
            fill_defaults(schema["items"], each)
    if not isinstance(value, dict):
        return
    for name, below in schema.get("properties", {}).items():
        if name not in value and "default" in below:
            value[name] = msgspec.json.decode(msgspec.json.encode(below["default"]))
        if name in value:
            fill_defaults(below, value[name])
    if isinstance(schema.get("additionalProperties"), dict):
        for name, each in value.items():
            if name not in schema.get("properties", {}):
                fill_defaults(schema["additionalProperties"], each)


_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_LABELLED = frozenset({("", "namespaces"), ("", "services")})
_UNCHECKED = frozenset({("", "events")})  # core events may have any name, as recorded


def _name_causes(resource: ServedResource, meta: KubeObject) -> Iterator[Cause]:
    key = (resource.group, resource.plural)
    name, prefix = meta.get("name", ""), meta.get("generateName", "")
    if not name and not prefix:
        yield cause(
            "FieldValueRequired",
            "Required value: name or generateName is required",
            "metadata.name",
        )
    if key in _UNCHECKED or resource.group == "rbac.authorization.k8s.io":
        return
    pattern, text = (_LABEL, _LABEL_TEXT) if key in _LABELLED else (_SUBDOMAIN, _SUBDOMAIN_TEXT)
    if prefix:
        masked = f"{prefix[:-1]}a" if prefix.endswith("-") else prefix
        if not pattern.match(masked):
            yield cause(
                "FieldValueInvalid", f'Invalid value: "{prefix}": {text}', "metadata.generateName"
            )
            return
    if name and not pattern.match(name):
        yield cause("FieldValueInvalid", f'Invalid value: "{name}": {text}', "metadata.name")


def _taint_causes(node: KubeObject) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(dig(node, "spec", "taints") or ()):
        field, effect = f"metadata.taints[{index}]", taint.get("effect", "")
        if not taint.get("key"):
            yield cause(
                "FieldValueInvalid",
                'Invalid value: "": name part must be non-empty',
                f"{field}.key",
            )
        if effect not in _EFFECTS:
            options = ", ".join(f'"{each}"' for each in _EFFECTS)
            text = f'Unsupported value: "{effect}": supported values: {options}'
            yield cause("FieldValueNotSupported", text, f"{field}.effect")
        elif (taint.get("key", ""), effect) in seen:
            text = f'Duplicate value: {{"key":"{taint["key"]}","effect":"{effect}"}}'
            yield cause("FieldValueDuplicate", text, field)
        seen.add((taint.get("key", ""), effect))


def _node_causes(node: KubeObject, old: KubeObject | None) -> Iterator[Cause]:
    yield from _taint_causes(node)
    if old is None:
        return
    # the real server validates an update twice and reports errors twice (recorded)
    yield from _taint_causes(node)
    before, after = dig(old, "spec", "providerID") or "", dig(node, "spec", "providerID") or ""
    if before and before != after:
        text = 'Forbidden: node updates may not change providerID except from "" to valid'
        yield cause("FieldValueForbidden", text, "spec.providerID")


def _fixed(pod: KubeObject, *, gated: bool) -> KubeObject:
    """Return the immutable part of a pod's spec. While scheduling gates block the pod,
    its placement is mutable."""
    spec = clone(pod.get("spec") or {})
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        container.pop("image", None)
    free = (
        "activeDeadlineSeconds",
        "terminationGracePeriodSeconds",
        "tolerations",
        "schedulingGates",
    )
    for field in (*free, "nodeSelector", "affinity") if gated else free:
        spec.pop(field, None)
    return spec


def _pod_causes(pod: KubeObject, old: KubeObject | None) -> Iterator[Cause]:
    if not dig(pod, "spec", "containers"):
        yield cause("FieldValueRequired", "Required value", "spec.containers")
    gated = bool(dig(old, "spec", "schedulingGates"))
    if old is not None and _fixed(pod, gated=gated) != _fixed(old, gated=gated):
        text = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
            "additions to "
            "existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 "
            "if it was previously "
            "negative)"
        )
        yield cause("FieldValueForbidden", text, "spec")


def _event_causes(event: KubeObject, _: KubeObject | None) -> Iterator[Cause]:
    about, own = (
        dig(event, "involvedObject", "namespace") or "",
        event["metadata"].get("namespace", ""),
    )
    if about != own and (about or own != "default"):
        text = f'Invalid value: "{about}": does not match event.namespace'
        yield cause("FieldValueInvalid", text, "involvedObject.namespace")


def _workload_causes(obj: KubeObject, _: KubeObject | None) -> Iterator[Cause]:
    replicas = dig(obj, "spec", "replicas")
    if isinstance(replicas, int) and replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        yield cause("FieldValueInvalid", text, "spec.replicas")
    selector, labels = (
        dig(obj, "spec", "selector", "matchLabels"),
        dig(obj, "spec", "template", "metadata", "labels"),
    )
    if dig(obj, "spec", "selector") is None:
        yield cause("FieldValueRequired", "Required value", "spec.selector")
    elif any((labels or {}).get(key) != value for key, value in (selector or {}).items()):
        text = "Invalid value: `selector` does not match template `labels`"
        yield cause("FieldValueInvalid", text, "spec.template.metadata.labels")


def _budget_causes(obj: KubeObject, _: KubeObject | None) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        text = "Invalid value: minAvailable and maxUnavailable cannot be both set"
        yield cause("FieldValueInvalid", text, "spec")


_RULES = {
    ("", "nodes"): _node_causes,
    ("", "pods"): _pod_causes,
    ("", "events"): _event_causes,
    ("apps", "deployments"): _workload_causes,
    ("apps", "replicasets"): _workload_causes,
    ("apps", "statefulsets"): _workload_causes,
    ("apps", "daemonsets"): _workload_causes,
    ("policy", "poddisruptionbudgets"): _budget_causes,
}


def check(
    resource: ServedResource, version: Version, obj: KubeObject, old: KubeObject | None = None
) -> None:
    """Raise ApiError 422 with every cause unless the object may replace
    `old` (None: be created)."""
    found: list[Cause] = []
    if old is None:
        found.extend(_name_causes(resource, obj.get("metadata") or {}))
    rule = _RULES.get((resource.group, resource.plural))
    if rule is not None:
        found.extend(rule(obj, old))
    if version.schema is not None:
        found.extend(causes(version.schema, obj))
    if not resource.native:
        found.extend(number_causes(version, obj))
        if old is not None and not obj["metadata"].get("resourceVersion"):
            text = "Invalid value: 0: must be specified for an update"
            found.append(cause("FieldValueInvalid", text, "metadata.resourceVersion"))
    if found:
        name = (obj.get("metadata") or {}).get("name", "")
        raise status.invalid(
            resource.kind, resource.group if not resource.alias else "", name, found
        )
