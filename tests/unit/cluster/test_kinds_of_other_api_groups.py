"""Saved objects with the kind of a built-in resource but another API group must not be taken
for the built-in resource."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli.saved.saved_cluster import read
from chalicelib.model.snapshot import Snapshot

_TEMPLATE = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]},
}


def _object(kind: str, version: str, name: str, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "ns"},
        **fields,
    }


def _controller(kind: str, version: str, name: str) -> dict[str, Any]:
    return _object(kind, version, name, spec={"replicas": 1, "template": _TEMPLATE})


def _node(name: str) -> dict[str, Any]:
    return _object(
        "Node",
        "v1",
        name,
        spec={"providerID": f"example://a/{name}"},
        status={"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "110"}},
    )


def _read(folder: Path, *documents: Any) -> Snapshot:
    for at, document in enumerate((*documents, {"kind": "List", "items": [_node("a-0")]})):
        (folder / f"pods-{at}.json").write_text(json.dumps(document))
    (folder / "manifest.json").write_text('{"nodeGroups": []}')
    return read(folder, node_groups=None, cluster="c", taken_at=0.0)


def _listed(kind: str, items: list[dict[str, Any]], version: str) -> dict[str, Any]:
    """A list in the API's own form: the items do not repeat kind and version."""
    bare = [
        {key: value for key, value in item.items() if key not in {"kind", "apiVersion"}}
        for item in items
    ]
    return {"kind": f"{kind}List", "apiVersion": version, "items": bare}


@pytest.mark.parametrize("form", ["list", "mixed list", "typed list", "one object"])
@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("DaemonSet", "apps.kruise.io/v1alpha1"),
        ("StatefulSet", "apps.kruise.io/v1beta1"),
        ("Job", "batch.volcano.sh/v1alpha1"),
    ],
)
def test_foreign_api_group_controllers_are_not_taken_for_built_in_ones(
    tmp_path: Path, kind: str, version: str, form: str
) -> None:
    foreign = _controller(kind, version, "theirs")
    document = {
        "list": {"kind": "List", "apiVersion": "v1", "items": [foreign]},
        "mixed list": {"kind": "List", "apiVersion": "v1", "items": [foreign, _node("a-1")]},
        "typed list": _listed(kind, [foreign], version),
        "one object": foreign,
    }[form]
    found = _read(tmp_path, document)
    assert not found.controllers
    assert not found.daemonsets
    assert not found.controller_kinds, "that none was read must not mean that there is none"
    assert not found.gaps or {gap.kind for gap in found.gaps} == {
        "ReplicaSet",
        "DaemonSet",
        "PodDisruptionBudget",
    }


def test_foreign_and_built_in_api_groups_in_one_list_are_distinguished(tmp_path: Path) -> None:
    ours, theirs = (
        _controller("DaemonSet", "apps/v1", "ours"),
        _controller("DaemonSet", "apps.kruise.io/v1", "theirs"),
    )
    found = _read(tmp_path, {"kind": "List", "apiVersion": "v1", "items": [theirs, ours]})
    assert [each.name for each in found.daemonsets] == ["ours"]
    assert [each.name for each in found.controllers] == ["ours"]
    assert found.controller_kinds == ("DaemonSet",)


def test_foreign_api_group_nodes_of_a_storage_system_are_not_cluster_nodes(tmp_path: Path) -> None:
    longhorn = _object(
        "Node", "longhorn.io/v1beta2", "a-0", spec={"disks": {}}, status={"conditions": []}
    )
    found = _read(
        tmp_path,
        {"kind": "List", "items": [longhorn, _node("a-1")]},
        longhorn,
        _listed("Node", [longhorn], "longhorn.io/v1beta2"),
    )
    assert [node.name for node in found.nodes] == ["a-0", "a-1"]
    assert all(node.allocatable for node in found.nodes)
    assert "Node" not in {gap.kind for gap in found.gaps}


def test_old_version_of_the_built_in_api_group_still_counts(tmp_path: Path) -> None:
    found = _read(
        tmp_path, {"kind": "List", "items": [_controller("StatefulSet", "apps/v1beta2", "s")]}
    )
    assert [each.name for each in found.controllers] == ["s"]
