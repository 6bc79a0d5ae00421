"""Bounds of Cluster API's node groups in a capture, so that a draft of the groups need not guess them.

The objects are in the management cluster, which may be another one than the captured cluster. They are no part of a
snapshot: a plan of a saved cluster takes its groups from the manifest.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from chalicelib.command.saved.capture_lists import CapturedList, ReadProgress, listed
from chalicelib.kube.client import KubeClient, path_segment
from chalicelib.kube.errors import ClusterError, NotFound
from chalicelib.model.errors import MALFORMED, BadInput
from chalicelib.net.bounded_files import MOST_OBJECTS, content
from chalicelib.providers.clusterapi.annotations import DEFAULT_GROUP, CapiAnnotations
from chalicelib.providers.clusterapi.node_groups import read_bounds
from chalicelib.snapshot.listed_resources import ListedResource

KEYS = CapiAnnotations()
KINDS = {"MachineDeployment": "machinedeployments", "MachineSet": "machinesets", "MachinePool": "machinepools"}
_DAMAGED: tuple[type[Exception], ...] = (EOFError, zlib.error, *MALFORMED)
FILES = frozenset(f"{plural}.json.gz" for plural in KINDS.values())


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


class _MachineGroups(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] = ()


def capture(
    kube: KubeClient, progress: ReadProgress, namespaces: Sequence[str] = ("",)
) -> tuple[tuple[CapturedList, ...], tuple[str, ...]]:
    """Read the groups of a management cluster; return them, and one text per list that could not be read. A cluster
    without Cluster API has none. namespaces: ("",) for all, () for none. Never raises a ClusterError: without bounds,
    a draft guesses them."""
    if not namespaces:
        return (), ()
    try:
        version = kube.read(f"/apis/{DEFAULT_GROUP}", _ApiGroup).preferred_version.version
    except NotFound:
        return (), ()
    except ClusterError as error:
        return (), (f"/apis/{DEFAULT_GROUP}: {error.message}",)
    found: list[CapturedList] = []
    notes: list[str] = []
    for kind, plural in KINDS.items():
        base = f"/apis/{DEFAULT_GROUP}/{version}"
        path = f"{base}/{plural}"
        paths = [f"{base}/namespaces/{path_segment(each)}/{plural}" if each else path for each in namespaces]
        try:
            found.append(listed(kube, ListedResource(kind, DEFAULT_GROUP, plural, path), progress, paths))
        except NotFound:
            continue
        except ClusterError as error:
            notes.append(f"{path}: {error.message}")
    return tuple(found), tuple(notes)


def saved_bounds(folder: Path, namespaces: Sequence[str] = ("",)) -> dict[str, tuple[int, int]]:
    """Return (min, max) by group id, `MachineDeployment/NAMESPACE/NAME`, of the groups in a capture that have valid
    bounds. namespaces: ("",) for all. Raises BadInput for a damaged file."""
    found: dict[str, tuple[int, int]] = {}
    for kind, plural in KINDS.items():
        path = folder / f"{plural}.json.gz"
        if not path.is_file():
            continue
        try:
            items = msgspec.json.decode(content(path, MOST_OBJECTS), type=_MachineGroups).items
        except _DAMAGED as error:
            raise BadInput(path.name, f"is not a list of Cluster API's objects ({error})", "capture it again") from None
        for raw in items:
            try:
                meta = msgspec.json.decode(raw, type=_MachineGroup).metadata
                bounds = read_bounds(meta.annotations or {}, KEYS, None, meta.name)
            except MALFORMED:
                continue  # the draft then guesses
            if bounds is not None and (meta.namespace in namespaces or "" in namespaces):
                found[f"{kind}/{meta.namespace}/{meta.name}"] = (bounds.min, bounds.max)
    return found
