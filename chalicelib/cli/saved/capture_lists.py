"""Reads the lists of a live cluster for a capture: the same lists, by the
same table, as a pass reads.

A kind that the server does not serve is not requested. A list that is refused is recorded, so that
a plan of the capture reports the same missing data as a plan of the live cluster. Objects are
reduced to the fields that the snapshot reads: pod specs contain environment variables, arguments,
image names and annotations that may be confidential, and no decision depends on them.
"""

from __future__ import annotations

import functools
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, get_args, get_origin

import msgspec

from chalicelib.cluster import api_types
from chalicelib.cluster.client import KubeClient, path_segment
from chalicelib.cluster.errors import ClusterError, Forbidden, NotFound, Unauthorized, Unavailable
from chalicelib.cluster.listed_resources import (
    PRIORITY_CONFIG,
    RESOURCES,
    RULE_OBJECTS,
    ListedResource,
)
from chalicelib.cluster.node_decoding import NODE_ANNOTATIONS, unreadable_object
from chalicelib.cluster.snapshot_builder import wire_type
from chalicelib.cluster.storage import PRIORITIES, VOLUME_FIELDS
from chalicelib.model.errors import MALFORMED, BadInput
from chalicelib.model.snapshot import MissingData
from chalicelib.net.bounded_files import MOST_OBJECTS, content
from chalicelib.policy.horizontal_node_autoscaler import KIND as RULE_OBJECT
from chalicelib.providers.clusterapi.models import BOUND_ANNOTATIONS, DEFAULT_GROUP, CapiAnnotations
from chalicelib.providers.clusterapi.node_groups import read_bounds

NOT_SERVED = "the server does not serve it"
CONFIG_MAP = ListedResource(
    "ConfigMap", "", "configmaps", PRIORITY_CONFIG, weakens=("expander priority",)
)
EVERYTHING: tuple[ListedResource, ...] = (*RESOURCES, RULE_OBJECTS, CONFIG_MAP)
_LEVEL = 6  # of gzip


class ReadProgress(Protocol):
    """Reports the progress of reading."""

    def reading(self, plural: str, count: int) -> None:
        """Report how many objects of a list are read so far."""

    def complete(self, plural: str, count: int) -> None:
        """Report that a list is complete."""


class CapturedList(msgspec.Struct, frozen=True):
    """One list. count: number of objects; packed: the compressed JSON of a List,
    reduced to what a plan reads."""

    resource: ListedResource
    count: int
    packed: bytes


class Capture(msgspec.Struct, frozen=True):
    """What was read, in the order of the table, and the lists that could not be read."""

    lists: tuple[CapturedList, ...]
    missing: tuple[MissingData, ...]


class _DiscoveredKind(msgspec.Struct, frozen=True):
    name: str = ""


class _DiscoveredList(msgspec.Struct, frozen=True):
    resources: tuple[_DiscoveredKind, ...] = ()


class _Items(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


def read_lists(kube: KubeClient, namespace: str, progress: ReadProgress) -> Capture:
    """Read every list of the table, and the ConfigMap of the priority expander in that namespace.

    Raises BadInput if nodes or pods are refused, and ClusterError as `read_live_cluster` does: for
    a failure that is neither a refusal nor a missing resource.
    """
    lists: list[CapturedList] = []
    missing: list[MissingData] = []
    served: dict[str, frozenset[str] | None] = {}
    for resource in (*RESOURCES, RULE_OBJECTS):
        prefix = _prefix(resource)
        if prefix not in served:
            served[prefix] = _served(kube, prefix)
        names = served[prefix]
        if names is not None and resource.plural not in names and not resource.required:
            if resource is not RULE_OBJECTS:  # a vendor's extension, absent from most clusters
                missing.append(_gap(resource, NOT_SERVED))
            continue
        try:
            lists.append(_read_list(kube, resource, progress))
        except (Forbidden, NotFound) as refusal:
            if resource.required:
                problem = f"cannot be listed: {refusal.message}"
                remedy = (
                    "there is no plan without nodes and pods: use an account that may list both"
                )
                raise BadInput(resource.path, problem, remedy) from None
            missing.append(_gap(resource, refusal.message))
        except ClusterError as error:
            if resource is not RULE_OBJECTS:
                raise
            missing.append(_gap(resource, str(error)))
    try:
        body = kube.get(PRIORITY_CONFIG.format(path_segment(namespace)))
        lists.append(_captured(CONFIG_MAP, [reduced_object(CONFIG_MAP.kind, body)], progress))
    except NotFound:
        pass  # which is normal
    except Forbidden as refusal:
        gap = _gap(CONFIG_MAP, refusal.message)
        place = PRIORITY_CONFIG.format(namespace)
        missing.append(msgspec.structs.replace(gap, name=f"{namespace}/{PRIORITIES}", place=place))
    return Capture(tuple(lists), tuple(missing))


def _gap(resource: ListedResource, detail: str) -> MissingData:
    return MissingData(
        resource.kind, detail, place=resource.path, affected_decisions=resource.weakens
    )


def _prefix(resource: ListedResource) -> str:
    """Return the path of the resource's group and version."""
    parts = resource.path.split("/")
    return "/".join(parts[: 4 if resource.group else 3])


def _served(kube: KubeClient, prefix: str) -> frozenset[str] | None:
    """Return the plural names that a group version serves; None if discovery is refused or fails,
    and the lists are then requested all the same."""
    try:
        return frozenset(kind.name for kind in kube.read(prefix, _DiscoveredList).resources)
    except NotFound:
        return frozenset()
    except Unauthorized:
        raise
    except ClusterError:
        return None


def _read_list(
    kube: KubeClient, resource: ListedResource, progress: ReadProgress, paths: Sequence[str] = ()
) -> CapturedList:
    """Read one list, reduced and sorted. paths: where its parts are, the path of the resource
    unless given. Raises ClusterError, and BadInput if it is too large to be read again."""
    items: list[tuple[tuple[str, str], bytes]] = []
    for path in paths or (resource.path,):
        first = len(items)
        for page in kube.list_pages(path, query=resource.query):
            if page.first:
                del items[first:]
            else:
                progress.reading(resource.plural, len(items))
            try:
                raws = msgspec.json.decode(page.body, type=_Items).items or ()
            except msgspec.ValidationError as error:
                # complete JSON, but not a list of objects: another server
                raise Unavailable(f"{path}: {error}") from error
            items += (reduced_object(resource.kind, bytes(raw)) for raw in raws)
    return _captured(resource, items, progress)


def _captured(
    resource: ListedResource, items: Sequence[tuple[tuple[str, str], bytes]], progress: ReadProgress
) -> CapturedList:
    ordered = sorted(items)
    if sum(len(raw) for _, raw in ordered) > MOST_OBJECTS:
        raise BadInput(
            resource.path,
            f"has more than {MOST_OBJECTS} bytes",
            "use plan --kubeconfig, which keeps none",
        )
    head = {
        "kind": f"{resource.kind}List",
        "apiVersion": _prefix(resource).partition("/api")[2].partition("/")[2],
    }
    start = msgspec.json.encode(head)[:-1] + b',"items":[\n'
    text = start + b",\n".join(raw for _, raw in ordered) + b"\n]}\n"
    progress.complete(resource.plural, len(ordered))
    return CapturedList(resource, len(ordered), gzip.compress(text, _LEVEL, mtime=0))


# -- fields ----------------------------------------------------------------------------------------

Fields = Mapping[str, Any]
"""Names of the fields to keep; the value is the Fields of an object or of each item of a list, None
for everything. They follow from the API types of the snapshot, so both always agree: a field that
the snapshot starts to read is captured from then on."""

MACHINE_KINDS = {
    "MachineDeployment": "machinedeployments",
    "MachineSet": "machinesets",
    "MachinePool": "machinepools",
}
_META = ("name", "namespace", "uid", "creationTimestamp")


def reduced_object(kind: str, raw: bytes) -> tuple[tuple[str, str], bytes]:
    """Return (namespace, name) and the reduced JSON of one object. raw: its JSON.

    An object that is not JSON within the decoder's limits becomes its name and a pod's node: the
    plan then reports it as unreadable. Never raises.
    """
    try:
        body = msgspec.json.decode(raw)
        encoded = msgspec.json.encode(_reduced(body, _fields(kind)))
    except MALFORMED:
        names = unreadable_object(raw)
        body = {
            "metadata": {"namespace": names.namespace, "name": names.name},
            "spec": {"nodeName": names.node},
        }
        encoded = msgspec.json.encode(body)
    metadata = body.get("metadata") if isinstance(body, dict) else None
    metadata = metadata if isinstance(metadata, dict) else {}
    return (str(metadata.get("namespace", "")), str(metadata.get("name", ""))), encoded


def _reduced(value: Any, fields: Fields | None) -> Any:
    if fields is None:
        return value
    if isinstance(value, list):
        return [_reduced(item, fields) for item in value]
    if isinstance(value, dict):
        return {key: _reduced(item, fields[key]) for key, item in value.items() if key in fields}
    # text in place of an object: as invalid, and not shown
    return "" if isinstance(value, str) else value


@functools.cache
def _fields(kind: str) -> Fields:
    """Return the fields of one kind that the snapshot reads."""
    if kind == RULE_OBJECT:
        return {**_whole(("kind", "apiVersion", "spec")), "metadata": _whole(_META)}
    if kind in MACHINE_KINDS:
        metadata = {**_whole(_META), "annotations": _whole(BOUND_ANNOTATIONS)}
        return {**_whole(("kind", "apiVersion")), "metadata": metadata}
    wire = wire_type(kind)
    fields = dict(_of_type(wire) or {})
    if wire is api_types.ApiController:
        spec: dict[str, Any] = {"replicas": None}
        if kind == "DaemonSet":
            metadata = {"labels": None, "annotations": _of_type(api_types.Annotations)}
            spec["template"] = {"metadata": metadata, "spec": _pod_spec()}
        fields["spec"] = spec
    if wire is api_types.ApiPod:
        fields["spec"] = _pod_spec()
        conditions, statuses = _of_type(api_types.PodCondition), _of_type(api_types.ContainerStatus)
        fields["status"] = {
            **fields["status"],
            "conditions": conditions,
            "containerStatuses": statuses,
        }
    elif wire is api_types.ApiConfigMap:
        fields["data"] = _of_type(api_types.Priorities)
    annotations = fields["metadata"]["annotations"]
    if annotations is None:  # the type names none
        annotations = _whole(NODE_ANNOTATIONS if kind == "Node" else ())
    return {**fields, "metadata": {**fields["metadata"], "annotations": annotations}}


def _pod_spec() -> Fields:
    bound_to = _of_type(api_types.BoundTo) or {}
    return {**(_of_type(api_types.PodSpec) or {}), **bound_to, "volumes": _Volume(name=None)}


class _Volume(dict[str, Any]):
    """Fields of a pod's volume. Any name of a source is kept, because it names the plugin."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> Fields:
        return {**_whole(VOLUME_FIELDS), **(_of_type(api_types.Ephemeral) or {})}


def _whole(names: Iterable[str]) -> Fields:
    return dict.fromkeys(names)


def _of_type(kind: Any) -> Fields | None:
    """Return the fields of a struct, of a list of structs or of an optional one;
    None for any other type."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {field.encode_name: _of_type(field.type) for field in msgspec.structs.fields(kind)}
    if get_origin(kind) is dict:
        return None
    return next((fields for part in get_args(kind) if (fields := _of_type(part)) is not None), None)


# -- groups of Cluster API -------------------------------------------------------------------------

_KEYS = CapiAnnotations()
_DAMAGED: tuple[type[Exception], ...] = (EOFError, zlib.error, *MALFORMED)
MACHINE_FILES = frozenset(f"{plural}.json.gz" for plural in MACHINE_KINDS.values())


class _PreferredVersion(msgspec.Struct, frozen=True):
    version: str = ""


class _ApiGroup(msgspec.Struct, frozen=True, rename="camel"):
    preferred_version: _PreferredVersion = _PreferredVersion()


class _MachineGroupMeta(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""
    annotations: dict[str, str] | None = None


class _MachineGroup(msgspec.Struct, frozen=True):
    metadata: _MachineGroupMeta


def read_machine_groups(
    kube: KubeClient, progress: ReadProgress, namespaces: Sequence[str] = ("",)
) -> tuple[tuple[CapturedList, ...], tuple[str, ...]]:
    """Read the groups of a management cluster, which may be another one than the
    captured cluster; return them, and one text per list that could not be read. A
    cluster without Cluster API has none.

    They are no part of a snapshot: a draft of the manifest takes their bounds, and guesses them
    where they are missing. namespaces: ("",) for all, () for none. Never raises a ClusterError.
    """
    if not namespaces:
        return (), ()
    try:
        version = kube.read(f"/apis/{DEFAULT_GROUP}", _ApiGroup).preferred_version.version
    except NotFound:
        return (), ()
    except ClusterError as error:
        return (), (f"/apis/{DEFAULT_GROUP}: {error.message}",)
    lists: list[CapturedList] = []
    notes: list[str] = []
    for kind, plural in MACHINE_KINDS.items():
        base = f"/apis/{DEFAULT_GROUP}/{version}"
        path = f"{base}/{plural}"
        paths = [
            f"{base}/namespaces/{path_segment(name)}/{plural}" if name else path
            for name in namespaces
        ]
        try:
            lists.append(
                _read_list(kube, ListedResource(kind, DEFAULT_GROUP, plural, path), progress, paths)
            )
        except NotFound:
            continue
        except ClusterError as error:
            notes.append(f"{path}: {error.message}")
    return tuple(lists), tuple(notes)


def saved_bounds(folder: Path, namespaces: Sequence[str] = ("",)) -> dict[str, tuple[int, int]]:
    """Return (min, max) by group id, `MachineDeployment/NAMESPACE/NAME`, of the groups in a capture
    that have valid bounds. namespaces: ("",) for all. Raises BadInput for a damaged file."""
    return dict(_bounds(folder, namespaces))


def _bounds(folder: Path, namespaces: Sequence[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    for kind, plural in MACHINE_KINDS.items():
        path = folder / f"{plural}.json.gz"
        if not path.is_file():
            continue
        try:
            items = msgspec.json.decode(content(path, MOST_OBJECTS), type=_Items).items or ()
        except _DAMAGED as error:
            raise BadInput(
                path.name, f"is not a list of Cluster API's objects ({error})", "capture it again"
            ) from None
        for raw in items:
            try:
                meta = msgspec.json.decode(raw, type=_MachineGroup).metadata
                bounds = read_bounds(meta.annotations or {}, _KEYS, None, meta.name)
            except MALFORMED:
                continue  # the draft then guesses
            if bounds is not None and (meta.namespace in namespaces or "" in namespaces):
                yield f"{kind}/{meta.namespace}/{meta.name}", (bounds.min, bounds.max)
