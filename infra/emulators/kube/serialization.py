"""Converts a stored object to its form in a response: in the requested version, and as an item of a list.

Custom resources change versions as with conversion strategy None: only apiVersion is rewritten, and fields that the
other version's schema does not contain are lost. events.k8s.io shows the core events with other field names.
"""

from __future__ import annotations

from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.resources import ServedResource, Version
from infra.emulators.kube.schema import prune

_EVENT_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_CORE_NAMES = {new: old for old, new in _EVENT_NAMES.items()}


def show(resource: ServedResource, version: Version, obj: KubeObject) -> KubeObject:
    """Return a stored object in this version. Both objects are READ ONLY."""
    api_version = resource.at(version.name)
    if resource.alias:
        renamed = {_EVENT_NAMES.get(key, key): value for key, value in obj.items()}
        return {**renamed, "apiVersion": api_version}
    if obj.get("apiVersion") == api_version:
        return obj
    shown: KubeObject = prune(version.schema, obj) if version.schema else dict(obj)
    shown["apiVersion"] = api_version
    return shown


def item(resource: ServedResource, version: Version, obj: KubeObject) -> KubeObject:
    """Return it as an item of a list: built-in items have no kind and apiVersion, custom ones have them."""
    shown = show(resource, version, obj)
    if not resource.native:
        return shown
    return {key: value for key, value in shown.items() if key not in {"kind", "apiVersion"}}


def wants_metadata(accept: str, *, form: str) -> bool:
    """Return whether the first media type that a client accepts is metadata alone. form: PartialObjectMetadata for a
    watch or PartialObjectMetadataList for a list, which the real server distinguishes."""
    kind, *parameters = [each.strip() for each in accept.partition(",")[0].split(";")]
    return kind == "application/json" and {f"as={form}", "g=meta.k8s.io", "v=v1"} <= set(parameters)


def metadata_of(obj: KubeObject) -> KubeObject:
    """Return an object as its metadata alone."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def taken_in(resource: ServedResource, obj: KubeObject) -> KubeObject:
    """Convert an object from a client to its stored form."""
    if resource.alias:
        return {**{_CORE_NAMES.get(key, key): value for key, value in obj.items()}, "apiVersion": "v1"}
    return {**obj, "apiVersion": resource.api_version, "kind": resource.kind}
