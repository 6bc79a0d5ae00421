"""Compares lists that were followed with lists that the server gives of the same versions.

A busy cluster changes between two reads, so what is read now says nothing about what was followed. A list is therefore
asked for as it was at the version that was followed (`resourceVersionMatch: Exact`). The server has compacted most
versions that are older than five minutes; those lists cannot be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from chalicelib.kube.client import KubeClient
from chalicelib.kube.errors import Expired
from chalicelib.kube.list_page import HOSTED
from chalicelib.snapshot.cluster_lists import READERS, ClusterLists, fold_list
from chalicelib.snapshot.folded_objects import FoldedObjects
from chalicelib.snapshot.list_reader import ListReader
from chalicelib.snapshot.listed_resources import RESOURCES
from chalicelib.snapshot.snapshot_builder import collector_paused

COMPACTED = "not comparable: compacted"
_MOST_NAMED = 20  # objects of a list whose names are given


class Comparison(msgspec.Struct, frozen=True):
    """differences: `KIND: NAME, ...` for each list whose objects differ. incomparable: kinds of lists, and why."""

    differences: tuple[str, ...]
    incomparable: Mapping[str, str]


def compare(kube: KubeClient, lists: ClusterLists) -> Comparison:
    """Read all lists at the versions that were followed, and compare their objects. Raises ClusterError."""
    exact = ClusterLists(lists.namespace)
    exact.bound(lists.check)
    resources = [each for each in RESOURCES if each.kind in lists.versions]
    incomparable: dict[str, str] = {}
    differences: list[str] = []
    with collector_paused(), ThreadPoolExecutor(READERS, thread_name_prefix="exact") as pool:
        try:
            started = [
                (each, ListReader(kube, each, pool, HOSTED, at=lists.versions[each.kind], check=lists.check))
                for each in resources
            ]
            for resource, parts in started:
                try:
                    fold_list(resource, parts, exact)
                except Expired:
                    incomparable[resource.kind] = COMPACTED
                    exact.builder.reset(resource.kind)
                    continue
                if resource.kind in exact.versions and (
                    names := _different(resource.kind, lists.builder.objects, exact.builder.objects)
                ):
                    differences.append(f"{resource.kind}: {', '.join(names[:_MOST_NAMED])}")
        finally:
            pool.shutdown(cancel_futures=True)
    return Comparison(tuple(differences), incomparable)


def _different(kind: str, objects: FoldedObjects, other_objects: FoldedObjects) -> list[str]:
    """Return the names of the objects of a kind that differ, `NAMESPACE/NAME`, sorted."""
    mine, theirs = _contents(kind, objects), _contents(kind, other_objects)
    keys = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
    return ["/".join(part for part in key.split("\0") if part) for key in keys]


def _contents(kind: str, objects: FoldedObjects) -> dict[str, Any]:
    """Return what is known of each object by its key, without numbers of classes: they depend on the order in which
    pods were read."""
    classes = objects.table.classes
    contents: dict[str, Any] = dict(objects.held(kind))
    if kind == "Pod":
        contents = {key: (msgspec.structs.replace(pod, cls=0), classes[pod.cls]) for key, pod in objects.pods.items()}
    elif kind == "DaemonSet":
        contents |= {key: (each.uid, classes[each.cls]) for key, each in objects.daemonsets.items()}
    return contents | {key: gap for (of, key), gap in objects.malformed.items() if of == kind}
