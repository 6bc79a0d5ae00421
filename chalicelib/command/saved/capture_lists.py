"""Reads the lists of a live cluster for a capture: the same lists, by the same table, as a pass reads.

A kind that the server does not serve is not requested. A list that is refused is recorded, so that a plan of the
capture reports the same missing data as a plan of the live cluster.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from chalicelib.command.saved.captured_fields import kept
from chalicelib.kube.client import KubeClient, path_segment
from chalicelib.kube.errors import ClusterError, Forbidden, NotFound, Unauthorized, Unavailable
from chalicelib.model.errors import BadInput
from chalicelib.model.snapshot import MissingData
from chalicelib.net.bounded_files import MOST_OBJECTS
from chalicelib.snapshot.listed_resources import PRIORITY_CONFIG, RESOURCES, RULE_OBJECTS, ListedResource
from chalicelib.snapshot.storage import PRIORITIES

NOT_SERVED = "the server does not serve it"
CONFIG_MAP = ListedResource("ConfigMap", "", "configmaps", PRIORITY_CONFIG, weakens=("expander priority",))
EVERYTHING: tuple[ListedResource, ...] = (*RESOURCES, RULE_OBJECTS, CONFIG_MAP)
_LEVEL = 6  # of gzip


class ReadProgress(Protocol):
    """Reports the progress of reading."""

    def reading(self, plural: str, count: int) -> None:
        """Report how many objects of a list are read so far."""

    def complete(self, plural: str, count: int) -> None:
        """Report that a list is complete."""


class CapturedList(msgspec.Struct, frozen=True):
    """One list. count: number of objects; packed: the compressed JSON of a List, reduced to what a plan reads."""

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


def read_lists(kube: KubeClient, namespace: str, progress: ReadProgress) -> Capture:
    """Read every list of the table, and the ConfigMap of the priority expander in that namespace.

    Raises BadInput if nodes or pods are refused, and ClusterError as `read_live_cluster` does: for a failure that is
    neither a refusal nor a missing resource.
    """
    found: list[CapturedList] = []
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
            found.append(listed(kube, resource, progress))
        except (Forbidden, NotFound) as refusal:
            if resource.required:
                raise _needed(resource, refusal) from None
            missing.append(_gap(resource, refusal.message))
        except ClusterError as error:
            if resource is not RULE_OBJECTS:
                raise
            missing.append(_gap(resource, str(error)))
    _priorities(kube, namespace, found, missing, progress)
    return Capture(tuple(found), tuple(missing))


def _prefix(resource: ListedResource) -> str:
    """Return the path of the resource's group and version."""
    parts = resource.path.split("/")
    return "/".join(parts[: 4 if resource.group else 3])


def _served(kube: KubeClient, prefix: str) -> frozenset[str] | None:
    """Return the plural names that a group version serves; None if discovery is refused or fails, and the lists are
    then requested all the same."""
    try:
        return frozenset(each.name for each in kube.read(prefix, _DiscoveredList).resources)
    except NotFound:
        return frozenset()
    except Unauthorized:
        raise
    except ClusterError:
        return None


def listed(
    kube: KubeClient, resource: ListedResource, progress: ReadProgress, paths: Sequence[str] = ()
) -> CapturedList:
    """Read one list, reduced and sorted. paths: where its parts are, the path of the resource unless given. Raises
    ClusterError, and BadInput if it is too large to be read again."""
    items: list[tuple[tuple[str, str], bytes]] = []
    for path in paths or (resource.path,):
        before = len(items)
        for page in kube.list_pages(path, query=resource.query):
            if page.first:
                del items[before:]
            else:
                progress.reading(resource.plural, len(items))
            items += (kept(resource.kind, raw) for raw in _raws(page.body, path))
    return _captured(resource, items, progress)


def _captured(
    resource: ListedResource, items: Sequence[tuple[tuple[str, str], bytes]], progress: ReadProgress
) -> CapturedList:
    ordered = sorted(items)
    if sum(len(raw) for _, raw in ordered) > MOST_OBJECTS:
        raise BadInput(resource.path, f"has more than {MOST_OBJECTS} bytes", "use plan --kubeconfig, which keeps none")
    head = {"kind": f"{resource.kind}List", "apiVersion": _prefix(resource).partition("/api")[2].partition("/")[2]}
    start = msgspec.json.encode(head)[:-1] + b',"items":[\n'
    text = start + b",\n".join(raw for _, raw in ordered) + b"\n]}\n"
    progress.complete(resource.plural, len(ordered))
    return CapturedList(resource, len(ordered), gzip.compress(text, _LEVEL, mtime=0))


def _raws(body: bytes, path: str) -> Iterator[bytes]:
    try:
        items = msgspec.json.decode(body, type=_Items).items or ()
    except msgspec.ValidationError as error:  # complete JSON, but not a list of objects: another server answered
        raise Unavailable(f"{path}: {error}") from error
    yield from map(bytes, items)


class _Items(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


def _priorities(
    kube: KubeClient, namespace: str, found: list[CapturedList], missing: list[MissingData], progress: ReadProgress
) -> None:
    """Read the ConfigMap; a missing one is normal, a refused one is recorded."""
    path = PRIORITY_CONFIG.format(path_segment(namespace))
    try:
        body = kube.get(path)
    except NotFound:
        return
    except Forbidden as refusal:
        gap = _gap(CONFIG_MAP, refusal.message)
        missing.append(
            msgspec.structs.replace(gap, name=f"{namespace}/{PRIORITIES}", place=PRIORITY_CONFIG.format(namespace))
        )
        return
    found.append(_captured(CONFIG_MAP, [kept(CONFIG_MAP.kind, body)], progress))


def _gap(resource: ListedResource, detail: str) -> MissingData:
    return MissingData(resource.kind, detail, place=resource.path, affected_decisions=resource.weakens)


def _needed(resource: ListedResource, error: ClusterError) -> BadInput:
    return BadInput(
        resource.path,
        f"cannot be listed: {error.message}",
        "there is no plan without nodes and pods: use an account that may list both",
    )
