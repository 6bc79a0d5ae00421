"""Validates objects as the API server does (422), as far as this program or a person testing it can encounter: names,
node taints and providerID, changes of existing pods, replicas, and the schemas of custom resources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from infra.emulators.kube import status
from infra.emulators.kube.objects import KubeObject, clone, dig
from infra.emulators.kube.resources import ServedResource, Version
from infra.emulators.kube.scale import number_causes
from infra.emulators.kube.schema import causes as schema_causes
from infra.emulators.kube.status import cause

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_LABELLED = frozenset({("", "namespaces"), ("", "services")})
_UNCHECKED = frozenset({("", "events")})  # core events may have any name, as recorded
Cause = dict[str, str]


def _name_causes(resource: ServedResource, meta: KubeObject) -> Iterator[Cause]:
    key = (resource.group, resource.plural)
    name, prefix = meta.get("name", ""), meta.get("generateName", "")
    if not name and not prefix:
        yield cause("FieldValueRequired", "Required value: name or generateName is required", "metadata.name")
    if key in _UNCHECKED or resource.group == "rbac.authorization.k8s.io":
        return
    pattern, text = (_LABEL, _LABEL_TEXT) if key in _LABELLED else (_SUBDOMAIN, _SUBDOMAIN_TEXT)
    if prefix:
        masked = f"{prefix[:-1]}a" if prefix.endswith("-") else prefix
        if not pattern.match(masked):
            yield cause("FieldValueInvalid", f'Invalid value: "{prefix}": {text}', "metadata.generateName")
            return
    if name and not pattern.match(name):
        yield cause("FieldValueInvalid", f'Invalid value: "{name}": {text}', "metadata.name")


def _taint_causes(node: KubeObject) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(dig(node, "spec", "taints") or ()):
        field, effect = f"metadata.taints[{index}]", taint.get("effect", "")
        if not taint.get("key"):
            yield cause("FieldValueInvalid", 'Invalid value: "": name part must be non-empty', f"{field}.key")
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
    yield from _taint_causes(node)  # the real server validates an update twice and reports errors twice (recorded)
    before, after = dig(old, "spec", "providerID") or "", dig(node, "spec", "providerID") or ""
    if before and before != after:
        text = 'Forbidden: node updates may not change providerID except from "" to valid'
        yield cause("FieldValueForbidden", text, "spec.providerID")


def _fixed(pod: KubeObject, *, gated: bool) -> KubeObject:
    """Return the immutable part of a pod's spec. While scheduling gates block the pod, its placement is mutable."""
    spec = clone(pod.get("spec") or {})
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        container.pop("image", None)
    free = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates")
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
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
            "existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously "
            "negative)"
        )
        yield cause("FieldValueForbidden", text, "spec")


def _event_causes(event: KubeObject, _: KubeObject | None) -> Iterator[Cause]:
    about, own = dig(event, "involvedObject", "namespace") or "", event["metadata"].get("namespace", "")
    if about != own and (about or own != "default"):
        text = f'Invalid value: "{about}": does not match event.namespace'
        yield cause("FieldValueInvalid", text, "involvedObject.namespace")


def _workload_causes(obj: KubeObject, _: KubeObject | None) -> Iterator[Cause]:
    replicas = dig(obj, "spec", "replicas")
    if isinstance(replicas, int) and replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        yield cause("FieldValueInvalid", text, "spec.replicas")
    selector, labels = dig(obj, "spec", "selector", "matchLabels"), dig(obj, "spec", "template", "metadata", "labels")
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


def check(resource: ServedResource, version: Version, obj: KubeObject, old: KubeObject | None = None) -> None:
    """Raise ApiError 422 with every cause unless the object may replace `old` (None: be created)."""
    found: list[Cause] = []
    if old is None:
        found.extend(_name_causes(resource, obj.get("metadata") or {}))
    rule = _RULES.get((resource.group, resource.plural))
    if rule is not None:
        found.extend(rule(obj, old))
    if version.schema is not None:
        found.extend(schema_causes(version.schema, obj))
    if not resource.native:
        found.extend(number_causes(version, obj))
        if old is not None and not obj["metadata"].get("resourceVersion"):
            text = "Invalid value: 0: must be specified for an update"
            found.append(cause("FieldValueInvalid", text, "metadata.resourceVersion"))
    if found:
        name = (obj.get("metadata") or {}).get("name", "")
        raise status.invalid(resource.kind, resource.group if not resource.alias else "", name, found)
