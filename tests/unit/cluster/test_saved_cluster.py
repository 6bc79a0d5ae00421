"""Saved clusters: valid ones are read completely; an invalid object is a gap; an invalid file
is an error with its path."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli.saved.saved_cluster import read
from chalicelib.model.errors import BadInput
from chalicelib.model.snapshot import Snapshot
from tests.reference_data import SHARED, needs_shared


def _node(name: str = "a-0", group: str = "a", **status: Any) -> dict[str, Any]:
    offers = {"cpu": "2", "memory": "4Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"x": "y"}},
        "spec": {"providerID": f"example://{group}/{name}"},
        "status": {"allocatable": offers, "capacity": offers, **status},
    }


def _pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], **spec},
    }


def _group(**fields: Any) -> dict[str, Any]:
    return {"id": "a", "min": 0, "max": 3, "template": _node("t"), **fields}


def _write(folder: Path, items: list[Any], groups: list[Any] | None = None) -> Path:
    (folder / "all.json").write_text(json.dumps({"kind": "List", "items": items}))
    for kind in ("pods", "workloads", "pdbs"):  # saved, with no objects
        (folder / f"{kind}.json").write_text('{"kind": "List", "items": []}')
    (folder / "manifest.json").write_text(
        json.dumps({"nodeGroups": groups if groups is not None else [_group()]})
    )
    return folder


def _read(folder: Path) -> Snapshot:
    return read(folder, node_groups=None, cluster="c", taken_at=0.0)


def test_files_manifest_may_state_a_groups_node_price(tmp_path: Path) -> None:
    assert _read(_write(tmp_path, [_node()], [_group(price=0.25)])).groups[0].price == 0.25
    assert _read(_write(tmp_path, [_node()])).groups[0].price == 0.0
    with pytest.raises(
        BadInput, match=r"nodeGroups\[0\]\.price: -1 is negative; write what a node costs per hour"
    ):
        _read(_write(tmp_path, [_node()], [_group(price=-1)]))


def test_files_lists_single_objects_and_gzip_are_read(tmp_path: Path) -> None:
    _write(tmp_path, [_node(), _pod()])
    (tmp_path / "one.json").write_text(json.dumps(_pod("q")))
    (tmp_path / "more.json.gz").write_bytes(
        gzip.compress(
            json.dumps(
                {"kind": "PodList", "items": [{k: v for k, v in _pod("r").items() if k != "kind"}]}
            ).encode()
        )
    )
    snapshot = _read(tmp_path)
    assert [pod.name for pod in snapshot.pods] == ["p", "q", "r"]
    assert len(snapshot.classes) == 1, "alike to the scheduler, so one class"
    assert [i.node for i in snapshot.groups[0].instances] == ["a-0"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, {"cpu": 2000, "memory": 4 * 2**30, "pods": 110}),
        ({"allocatable": {"cpu": "1"}}, {"cpu": 1000}),
        ({"allocatable": None}, {}),
        ({"allocatable": {}}, {}),
    ],
)
def test_files_template_with_capacity_only_is_reported_as_such(
    tmp_path: Path, given: Any, kept: Any
) -> None:
    template = (
        _read(_write(tmp_path, [_node()], [_group(template=_node("t", **given))]))
        .groups[0]
        .template
    )
    assert template is not None
    assert template.capacity == {"cpu": 2000, "memory": 4 * 2**30, "pods": 110}
    assert template.allocatable == kept


def test_files_sibling_pods_on_different_nodes_are_one_class(tmp_path: Path) -> None:
    token = {"name": "kube-api-access-{}", "projected": {"sources": []}}
    pods = [
        _pod(f"p{at}", nodeName=f"n{at}", volumes=[{**token, "name": f"kube-api-access-abc{at}x"}])
        for at in range(5)
    ]
    snapshot = _read(_write(tmp_path, [_node(), *pods]))
    assert {pod.cls for pod in snapshot.pods} == {0}
    assert [pod.node for pod in snapshot.pods] == ["n0", "n1", "n2", "n3", "n4"]


def _daemon(name: str, node: str, *others: str) -> dict[str, Any]:
    """A DaemonSet pod, pinned to its node as the controller does it. others:
    nodes named in another term."""
    fields = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    terms = [
        fields,
        *(
            {"matchExpressions": [{"key": "x", "operator": "In", "values": [other]}]}
            for other in others
        ),
    ]
    pod = _pod(
        name,
        nodeName=node,
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        },
    )
    pod["metadata"]["ownerReferences"] = [
        {"kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    ]
    return pod


def test_files_daemonset_pods_of_different_nodes_are_one_class(tmp_path: Path) -> None:
    snapshot = _read(
        _write(tmp_path, [_node(), *(_daemon(f"d{at}", f"n{at}", "other") for at in range(4))])
    )
    assert ({pod.cls for pod in snapshot.pods}, [pod.node for pod in snapshot.pods]) == (
        {0},
        ["n0", "n1", "n2", "n3"],
    )


def test_files_daemonset_pod_on_a_node_that_all_its_siblings_name_is_separate(
    tmp_path: Path,
) -> None:
    """The text does not show which of the two names is its own."""
    pods = [
        _daemon("d1", "n1", "n3"),
        _daemon("d2", "n2", "n3"),
        _daemon("d3", "n3", "n3"),
        _daemon("d4", "n4", "n3"),
    ]
    one, two, three, four = _read(_write(tmp_path, [_node(), *pods])).pods
    assert one.cls == two.cls == four.cls != three.cls


@pytest.mark.parametrize(
    "named",
    [
        {"nodeSelector": {"kubernetes.io/hostname": "NODE"}},
        {"hostname": "NODE"},
        {"containers": [{"name": "NODE"}]},
        {"containers": [{"name": "c", "env": [{"name": "nodeName", "value": "NODE"}]}]},
    ],
)
def test_files_pod_naming_its_node_twice_in_the_spec_is_read_alone(
    tmp_path: Path, named: dict[str, Any]
) -> None:
    """Siblings are recognized by their text, and the parsed fields of each must still be its
    own."""
    pods = [
        json.loads(json.dumps(_pod(f"p-{node}", **named, nodeName=node)).replace("NODE", node))
        for node in ("n1", "n2", "n1", "n2", "n3")
    ]
    snapshot = _read(_write(tmp_path, [_node(), *pods]))
    assert {pod.name: pod.node for pod in snapshot.pods} == {
        "p-n1": "n1",
        "p-n2": "n2",
        "p-n3": "n3",
    }
    for pod in snapshot.pods:
        selector = snapshot.cls(pod).node_selector
        assert selector == ({"kubernetes.io/hostname": pod.node} if "nodeSelector" in named else {})


@pytest.mark.parametrize("change", ["labels", "annotations", "namespace", "spec", "owner"])
def test_files_siblings_that_differ_in_a_relevant_field_are_separate_classes(
    tmp_path: Path, change: str
) -> None:
    pods = [_pod(f"p{at}", nodeName=f"n{at}") for at in range(4)]
    for pod in pods:
        pod["metadata"]["ownerReferences"] = [
            {"kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
        ]
    odd = pods[2]
    odd["metadata"] |= {
        "labels": {"labels": {"a": "b"}},
        "namespace": {"namespace": "other"},
        "annotations": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
        "owner": {
            "ownerReferences": [{"kind": "ReplicaSet", "name": "s", "uid": "v", "controller": True}]
        },
    }.get(change, {})
    if change == "spec":
        odd["spec"]["priority"] = 7
    classes = {pod.name: pod.cls for pod in _read(_write(tmp_path, [_node(), *pods])).pods}
    assert classes["p0"] == classes["p1"] == classes["p3"] != classes["p2"]


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "PodList", "items": [_pod("p"), _pod("q")]},
        {"items": [_pod("p"), _pod("q")], "kind": "PodList"},
        {"kind": "List", "items": [_pod("p"), _node("b-0", "b"), _pod("q")]},
        {"kind": "List", "metadata": {"note": {"kind": "Node"}}, "items": [_pod("p"), _pod("q")]},
        {
            "metadata": {"note": {"kind": "Node"}},
            "items": [{k: v for k, v in _pod(name).items() if k != "kind"} for name in ("p", "q")],
            "kind": "PodList",
        },
    ],
    ids=["of-pods", "kind-last", "of-all-kinds", "misleading", "misleading-and-kind-last"],
)
def test_files_list_is_read_whatever_its_first_bytes_suggest(tmp_path: Path, document: Any) -> None:
    _write(tmp_path, [_node()])
    (tmp_path / "pods.json").write_text(json.dumps(document))
    snapshot = _read(tmp_path)
    assert ([pod.name for pod in snapshot.pods], snapshot.gaps) == (["p", "q"], ())


def test_files_pods_are_ordered_by_namespace_and_name(tmp_path: Path) -> None:
    names = [("a", "z"), ("a-b", "a"), ("a.b", "a"), ("b", "a-b"), ("b", "a.b"), ("b", "a0")]
    pods = [
        {**_pod(name), "metadata": {"name": name, "namespace": namespace}}
        for namespace, name in reversed(names)
    ]
    assert [
        (pod.namespace, pod.name) for pod in _read(_write(tmp_path, [_node(), *pods])).pods
    ] == sorted(names)


def test_files_finished_pods_are_omitted(tmp_path: Path) -> None:
    done = {**_pod("done"), "status": {"phase": "Succeeded"}}
    assert [p.name for p in _read(_write(tmp_path, [_node(), _pod(), done])).pods] == ["p"]


@pytest.mark.parametrize(
    ("bad", "kind", "place", "detail"),
    [
        pytest.param(
            {**_node("b-0"), "status": None}, "Node", "items[1]", "status", id="node-without-status"
        ),
        pytest.param(
            _pod("bad", containers=[{"resources": {"requests": {"memory": "1.5Gii"}}}]),
            "Pod",
            "items[1]",
            "memory: '1.5Gii'",
            id="quantity",
        ),
        pytest.param(
            _pod("bad", containers=[{"resources": {"requests": {"memory": "-5Gi"}}}]),
            "Pod",
            "items[1]",
            "negative",
            id="negative-quantity",
        ),
        pytest.param(
            _pod("bad", containers="none"), "Pod", "items[1]", "containers", id="wrong-type"
        ),
        pytest.param({"kind": "Pod", "spec": {}}, "Pod", "items[1]", "metadata", id="no-metadata"),
        pytest.param(
            {
                "kind": "Node",
                "metadata": {"name": "b", "creationTimestamp": "soon"},
                "status": {"allocatable": {"cpu": "1"}},
            },
            "Node",
            "items[1]",
            "soon",
            id="time",
        ),
    ],
)
def test_files_one_malformed_object_among_many_is_a_gap(
    tmp_path: Path, bad: Any, kind: str, place: str, detail: str
) -> None:
    snapshot = _read(_write(tmp_path, [_node(), bad, _pod()]))
    assert ([n.name for n in snapshot.nodes if n.allocatable], [p.name for p in snapshot.pods]) == (
        ["a-0"],
        ["p"],
    )
    assert len(snapshot.gaps) == 1
    gap = snapshot.gaps[0]
    assert gap.kind == kind
    assert place in gap.place
    assert detail in gap.detail


MANY = [{"resources": {"requests": {"cpu": "many"}}}]


@pytest.mark.parametrize("others", [[_node()], [_pod("good")]], ids=["of-all-kinds", "of-pods"])
@pytest.mark.parametrize(
    "status", [{}, {"phase": "Running"}, {"phase": "Running", "containerStatuses": []}]
)
def test_files_malformed_pod_on_a_node_names_the_node(
    tmp_path: Path, others: list[Any], status: Any
) -> None:
    """This applies in every list, and however little of the pod is readable."""
    _write(tmp_path, [_node()])
    items = [*others, {**_pod("bad", nodeName="a-0", containers=MANY), "status": status}]
    (tmp_path / "pods.json").write_text(json.dumps({"kind": "List", "items": items}))
    assert [(gap.name, gap.node, gap.place) for gap in _read(tmp_path).gaps] == [
        ("ns/bad", "a-0", "pods.json: items[1]")
    ]


def test_files_every_malformed_pod_of_a_list_names_its_own_node(tmp_path: Path) -> None:
    _write(tmp_path, [_node()])
    pods = [
        _pod("p1", nodeName="n1", containers=MANY),
        _pod("p2", nodeName="n2"),
        _pod("p3", nodeName="n3", containers=MANY),
    ]
    for pod in pods:
        del pod["kind"]  # in the form of the API's own lists
    (tmp_path / "pods.json").write_text(json.dumps({"kind": "PodList", "items": pods}))
    snapshot = _read(tmp_path)
    assert [pod.name for pod in snapshot.pods] == ["p2"]
    assert [(gap.name, gap.node) for gap in snapshot.gaps] == [("ns/p1", "n1"), ("ns/p3", "n3")]


@pytest.mark.parametrize("item", ["x", None, 7, {"metadata": {"name": "a"}}])
def test_files_list_item_that_is_not_an_object_is_a_gap(tmp_path: Path, item: Any) -> None:
    gaps = _read(_write(tmp_path, [_node(), item])).gaps
    assert [(gap.kind, gap.place) for gap in gaps] == [("object", "all.json: items[1]")]


@pytest.mark.parametrize("field", ["name", "nodeName", "label"])
def test_files_bytes_that_are_not_text_are_a_gap_and_never_a_crash(
    tmp_path: Path, field: str
) -> None:
    _write(tmp_path, [_node()])
    pods = {"name": _pod("MARK"), "nodeName": _pod(nodeName="MARK"), "label": _pod()}
    pods["label"]["metadata"]["labels"] = {"a": "MARK"}
    bad = json.dumps({"kind": "PodList", "items": [_pod("good"), pods[field]]}).encode()
    (tmp_path / "pods.json").write_bytes(bad.replace(b"MARK", b"a\xffb"))
    snapshot = _read(tmp_path)
    assert ([pod.name for pod in snapshot.pods], len(snapshot.gaps)) == (["good"], 1)


@pytest.mark.parametrize("kind", ["PodList", "List"])
def test_files_pod_with_bytes_that_are_not_text_still_names_its_node(
    tmp_path: Path, kind: str
) -> None:
    _write(tmp_path, [_node()])
    bad = _pod("bad", nodeName="a-0")
    bad["metadata"]["labels"] = {"a": "MARK"}
    text = json.dumps({"kind": kind, "items": [_pod("good"), bad]}).encode()
    (tmp_path / "pods.json").write_bytes(text.replace(b"MARK", b"a\xffb"))
    assert [(gap.name, gap.node) for gap in _read(tmp_path).gaps] == [("ns/bad", "a-0")]


def test_files_endless_nesting_is_an_error(tmp_path: Path) -> None:
    _write(tmp_path, [_node()])
    (tmp_path / "pods.json").write_text(
        '{"kind": "List", "items": [{"kind": "Pod", "spec": ' + "[" * 100_000
    )
    with pytest.raises(BadInput, match=r"pods\.json"):
        _read(tmp_path)


def test_files_unsaved_kind_is_a_gap_but_nodes_and_pods_are_required(tmp_path: Path) -> None:
    folder = _write(tmp_path, [_node()])
    (folder / "pdbs.json").unlink()
    assert [gap.kind for gap in _read(folder).gaps] == ["PodDisruptionBudget"]
    (folder / "pods.json").unlink()
    with pytest.raises(BadInput, match="holds no Pod"):
        _read(folder)


@pytest.mark.parametrize(
    ("groups", "place", "words"),
    [
        pytest.param(
            [_group(provider="aws")],
            "nodeGroups[0].provider",
            "not a provider",
            id="unknown-provider",
        ),
        pytest.param([_group(mni=4)], "nodeGroups[0]", "mni", id="unknown-field"),
        pytest.param([_group(), _group()], "nodeGroups[1].id", "twice", id="id-twice"),
        pytest.param([_group(min=4)], "nodeGroups[0].max", "below min 4", id="min-above-max"),
        pytest.param(
            [_group(id="genral", size=1)],
            "nodeGroups[0].id",
            "no node's providerID names it",
            id="no-node-names-it",
        ),
        pytest.param([_group(max="3")], "nodeGroups[0]", "Expected `int`", id="wrong-type"),
        pytest.param([{"min": 1}], "nodeGroups[0]", "id", id="no-id"),
        pytest.param(
            [_group(template={**_node(), "status": {"allocatable": {"cpu": "1.5Gii"}}})],
            "nodeGroups[0].template.status.allocatable.cpu",
            "1.5Gii",
            id="template-quantity",
        ),
        pytest.param(
            [_group(template={"metadata": {"name": "t"}})],
            "nodeGroups[0].template",
            "status",
            id="template-status",
        ),
    ],
)
def test_files_invalid_manifest_error_names_its_place(
    tmp_path: Path, groups: list[Any], place: str, words: str
) -> None:
    with pytest.raises(BadInput) as caught:
        _read(_write(tmp_path, [_node()], groups))
    assert place in caught.value.place
    assert words in str(caught.value)


@pytest.mark.parametrize("members", [{"nodes": ["a-0"]}, {"nodeLabels": {"x": "y"}}])
def test_files_manifest_may_assign_nodes_to_groups(tmp_path: Path, members: dict[str, Any]) -> None:
    stranger = {**_node(), "spec": {"providerID": "aws:///eu-1a/i-1"}}
    snapshot = _read(_write(tmp_path, [stranger], [_group(**members)]))
    assert [i.node for i in snapshot.groups[0].instances] == ["a-0"]


def test_files_group_without_nodes_has_size_0(tmp_path: Path) -> None:
    snapshot = _read(_write(tmp_path, [_node()], [_group(), _group(id="empty", size=0)]))
    assert {g.id: g.target for g in snapshot.groups} == {"a": 1, "empty": 0}


@pytest.mark.parametrize(
    "text", ['{"kind": "List", "items": [{"kind": "Node"', "", "[1, 2", "nonsense", '"a"', "[]"]
)
def test_files_broken_file_is_an_error_and_nothing_is_used(tmp_path: Path, text: str) -> None:
    _write(tmp_path, [_node()])
    (tmp_path / "broken.json").write_text(text)
    with pytest.raises(BadInput, match=r"broken\.json"):
        _read(tmp_path)


def test_files_truncated_gzip_is_an_error(tmp_path: Path) -> None:
    _write(tmp_path, [_node()])
    (tmp_path / "pods.json.gz").write_bytes(gzip.compress(b"x" * 1000)[:-9])
    with pytest.raises(BadInput, match=r"pods\.json\.gz"):
        _read(tmp_path)


@pytest.mark.parametrize("make", [lambda p: p / "absent", lambda p: p])
def test_files_missing_or_empty_folder_error_says_what_to_do(tmp_path: Path, make: Any) -> None:
    with pytest.raises(BadInput, match=r"outscaler capture|nodes\.json"):
        _read(make(tmp_path))


@needs_shared
@pytest.mark.parametrize(("name", "pods"), [("shop-busy", 121), ("shop-quiet", 49)])
def test_files_captures_of_a_real_control_plane_have_no_gaps(name: str, pods: int) -> None:
    snapshot = _read(SHARED / "data" / "captures" / name)
    assert (len(snapshot.nodes), len(snapshot.pods), snapshot.gaps) == (11, pods, ())
    assert {g.id: g.target for g in snapshot.groups} == {
        "general-a": 3,
        "general-b": 3,
        "general-c": 3,
        "batch": 2,
        "gpu": 0,
        "arm": 0,
    }
