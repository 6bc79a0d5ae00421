"""Pods of a saved cluster that share a class, and pods that do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cluster.test_saved_cluster import _node, _pod, _read, _write

_ENV = {
    "containers": [
        {
            "name": "c",
            "env": [{"name": "nodeName", "value": "x"}],
            "resources": {"requests": {"cpu": "1"}},
        }
    ]
}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(_ENV, id="a-variable-called-nodeName"),
        pytest.param({"nodeSelector": {"nodeName": "a-0"}}, id="a-label-called-nodeName"),
        pytest.param({"nodeName": None}, id="null"),
    ],
)
def test_files_only_spec_node_name_says_where_a_pod_runs(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    pods = [
        _pod("runs", **{**spec, "nodeName": "a-0"}),
        _pod("waits", **spec),
        _pod("runs-too", **{**spec, "nodeName": "a-1"}),
        _pod("waits-too", **spec),
    ]
    snapshot = _read(_write(tmp_path, [_node(), *pods]))
    assert {pod.name: pod.node for pod in snapshot.pods} == {
        "waits": "",
        "waits-too": "",
        "runs": "a-0",
        "runs-too": "a-1",
    }
    assert {snapshot.cls(pod).node_selector.get("nodeName") for pod in snapshot.pods} == {
        spec.get("nodeSelector", {}).get("nodeName")
    }


@pytest.mark.parametrize("indent", [None, 1])
def test_files_node_name_does_not_change_the_requests_of_its_daemonset_pods(
    tmp_path: Path, indent: int | None
) -> None:
    owner = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    ]
    pods = []
    for name in ("cpu", "a-1"):
        pinned = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": [name]}
                            ]
                        }
                    ]
                }
            }
        }
        pods.append(_pod(f"d-{name}", nodeName=name, affinity=pinned))
        pods[-1]["metadata"]["ownerReferences"] = owner
    _write(tmp_path, [_node("cpu"), _node("a-1")])
    (tmp_path / "pods.json").write_text(
        json.dumps({"kind": "PodList", "items": pods}, indent=indent)
    )
    snapshot = _read(tmp_path)
    assert [snapshot.cls(pod).requests for pod in snapshot.pods] == [{"cpu": 1000}, {"cpu": 1000}]
    assert len(snapshot.classes) == 1, "a DaemonSet has one class, however many nodes there are"


def test_saved_pod_label_next_to_spec_node_name_is_not_used_as_node_name(tmp_path: Path) -> None:
    def bound(name: str, wants: str, on: str) -> dict[str, Any]:
        pod = _pod(name)
        return {**pod, "spec": {"nodeSelector": {"nodeName": wants}, **pod["spec"], "nodeName": on}}

    pods = [
        bound("p", "a-0", "a-0"),
        bound("q", "a-0", "a-0"),
        bound("r", "a-1", "a-0"),
        bound("s", "a-0", "a-1"),
    ]
    snapshot = _read(_write(tmp_path, [_node(), *pods]))
    assert {
        pod.name: (snapshot.cls(pod).node_selector["nodeName"], pod.node) for pod in snapshot.pods
    } == {
        "p": ("a-0", "a-0"),
        "q": ("a-0", "a-0"),
        "r": ("a-1", "a-0"),
        "s": ("a-0", "a-1"),
    }


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" , ", " : ")])
def test_files_json_spacing_does_not_split_a_pod_class(
    tmp_path: Path, separators: tuple[str, str]
) -> None:
    pods = [_pod(f"p{at}", nodeName=f"n{at}") for at in range(3)]
    _write(tmp_path, [_node()])
    (tmp_path / "pods.json").write_text(
        json.dumps({"kind": "List", "items": pods}, separators=separators)
    )
    snapshot = _read(tmp_path)
    assert [pod.node for pod in snapshot.pods] == ["n0", "n1", "n2"]
    assert len(snapshot.classes) == 1
