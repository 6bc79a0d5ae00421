"""Reduces API objects to the fields that the snapshot reads, for captures that leave the operator's machine.

Pod specs contain environment variables, arguments, image names and annotations that may be confidential, and no
decision depends on them. What is kept follows from the API types of the snapshot, so both always agree: a field that
the snapshot starts to read is captured from then on.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin

import msgspec

from chalicelib.model.errors import MALFORMED
from chalicelib.policy.horizontal_node_autoscaler import KIND as RULE_OBJECT
from chalicelib.providers.clusterapi.annotations import BOUND_ANNOTATIONS
from chalicelib.snapshot import api_types
from chalicelib.snapshot.node_decoding import NODE_ANNOTATIONS, unreadable_object
from chalicelib.snapshot.snapshot_builder import wire_type
from chalicelib.snapshot.storage import VOLUME_FIELDS

Fields = Mapping[str, Any]
"""Names of the fields to keep; the value is the Fields of an object or of each item of a list, None for everything."""

_MACHINE_GROUPS = ("MachineDeployment", "MachineSet", "MachinePool")
_META = ("name", "namespace", "uid", "creationTimestamp")


def kept(kind: str, raw: bytes) -> tuple[tuple[str, str], bytes]:
    """Return (namespace, name) and the reduced JSON of one object. raw: its JSON.

    An object that is not JSON within the decoder's limits becomes its name and a pod's node: the plan then reports it
    as unreadable. Never raises.
    """
    try:
        body = msgspec.json.decode(raw)
        reduced = _reduced(body, _fields(kind))
        encoded = msgspec.json.encode(reduced)
    except MALFORMED:
        left = unreadable_object(raw)
        body = {"metadata": {"namespace": left.namespace, "name": left.name}, "spec": {"nodeName": left.node}}
        encoded = msgspec.json.encode(body)
    meta = body.get("metadata") if isinstance(body, dict) else None
    known = meta if isinstance(meta, dict) else {}
    return (str(known.get("namespace", "")), str(known.get("name", ""))), encoded


def _reduced(value: Any, fields: Fields | None) -> Any:
    if fields is None:
        return value
    if isinstance(value, list):
        return [_reduced(each, fields) for each in value]
    if isinstance(value, dict):
        return {key: _reduced(each, fields[key]) for key, each in value.items() if key in fields}
    return "" if isinstance(value, str) else value  # text in place of an object: as invalid, and not shown


@functools.cache
def _fields(kind: str) -> Fields:
    """Return the fields of one kind that the snapshot reads."""
    if kind == RULE_OBJECT:
        return {**_whole(("kind", "apiVersion", "spec")), "metadata": _whole(_META)}
    if kind in _MACHINE_GROUPS:
        meta = {**_whole(_META), "annotations": _whole(BOUND_ANNOTATIONS)}
        return {**_whole(("kind", "apiVersion")), "metadata": meta}
    wire = wire_type(kind)
    fields = dict(_of_type(wire) or {})
    if wire is api_types.ApiController:
        spec: dict[str, Any] = {"replicas": None}
        if kind == "DaemonSet":
            meta = {"labels": None, "annotations": _of_type(api_types.Annotations)}
            spec["template"] = {"metadata": meta, "spec": _pod_spec()}
        fields["spec"] = spec
    if wire is api_types.ApiPod:
        fields["spec"] = _pod_spec()
        conditions, statuses = _of_type(api_types.PodCondition), _of_type(api_types.ContainerStatus)
        fields["status"] = {**fields["status"], "conditions": conditions, "containerStatuses": statuses}
    elif wire is api_types.ApiConfigMap:
        fields["data"] = _of_type(api_types.Priorities)
    notes = fields["metadata"]["annotations"]
    if notes is None:  # the type names none
        notes = _whole(NODE_ANNOTATIONS if kind == "Node" else ())
    return {**fields, "metadata": {**fields["metadata"], "annotations": notes}}


def _pod_spec() -> Fields:
    own = _of_type(api_types.BoundTo) or {}
    return {**(_of_type(api_types.PodSpec) or {}), **own, "volumes": _Volume(name=None)}


class _Volume(dict[str, Any]):
    """Fields of a pod's volume. Any name of a source is kept, because it names the plugin."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> Fields:
        return {**_whole(VOLUME_FIELDS), **(_of_type(api_types.Ephemeral) or {})}


def _whole(names: Iterable[str]) -> Fields:
    return dict.fromkeys(names)


def _of_type(kind: Any) -> Fields | None:
    """Return the fields of a struct, of a list of structs or of an optional one; None for any other type."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {field.encode_name: _of_type(field.type) for field in msgspec.structs.fields(kind)}
    if get_origin(kind) is dict:
        return None
    return next((found for each in get_args(kind) if (found := _of_type(each)) is not None), None)
