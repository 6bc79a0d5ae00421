"""Reads plain API objects and a manifest with the production reader but
without files: thousands per minute.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from chalicelib.cli.saved import saved_cluster
from chalicelib.cluster.snapshot_builder import SnapshotBuilder
from chalicelib.model.snapshot import ObservedGroups, Snapshot

Json = Any
Lists = Mapping[str, Sequence[Json]]  # contents of each file: "nodes", "pods", "workloads" …


def read(
    lists: Lists,
    manifest: Json,
    now: float,
    *,
    shuffle: random.Random | None = None,
    cluster: str = "generated",
) -> Snapshot:
    """The snapshot of these objects. shuffle: reorders files, their objects and the groups."""
    names, folder = list(lists), SnapshotBuilder()
    if shuffle is not None:
        shuffle.shuffle(names)
        manifest = {
            **manifest,
            "nodeGroups": shuffle.sample(manifest["nodeGroups"], len(manifest["nodeGroups"])),
        }
    for name in names:
        items = list(lists[name])
        if shuffle is not None:
            shuffle.shuffle(items)
        folder.add_page(
            msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}),
            f"{name}.json",
        )
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(msgspec.json.encode(manifest))
        file.flush()
        groups = saved_cluster.groups(Path(file.name), folder.nodes)
    return folder.snapshot(cluster, now, ObservedGroups(groups))
