"""`outscaler plan` reads a cluster in the forms that kubectl saves: a dump, YAML, one file."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cli.main import main
from tests.functional.captured_clusters import decisions, saved_objects
from tests.functional.saved_cluster import NOW, node, pod, shop, workload

Said = pytest.CaptureFixture[str]
LISTS = {"Pod": "pods", "ReplicaSet": "replicasets", "DaemonSet": "daemonsets"}
Dump = Callable[[Any], str]


def listed(kind: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    """A list as the API server writes it: its items have no kind."""
    bare = [{key: value for key, value in item.items() if key != "kind"} for item in items]
    return {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {}, "items": bare}


def dump_of(folder: Path, objects: list[dict[str, Any]], output: str = "json") -> Path:
    """Writes the folder of `kubectl cluster-info dump`."""
    dump: Dump = json.dumps if output == "json" else yaml.safe_dump
    folder.mkdir()
    nodes = [item for item in objects if item["kind"] == "Node"]
    (folder / f"nodes.{output}").write_text(dump(listed("Node", nodes)))
    for space in {item["metadata"]["namespace"] for item in objects if item["kind"] != "Node"}:
        own = [item for item in objects if item["metadata"].get("namespace") == space]
        (folder / space).mkdir()
        for kind, plural in LISTS.items():
            items = [item for item in own if item["kind"] == kind]
            (folder / space / f"{plural}.{output}").write_text(dump(listed(kind, items)))
        (folder / space / f"events.{output}").write_text(dump(listed("Event", [])))
        logs = folder / space / "api-0"
        logs.mkdir()
        (logs / "logs.txt").write_text('==== START logs\n{"kind": "Pod"}\n')
    return folder


def planned(said: Said, *arguments: str) -> dict[str, Any]:
    assert main(["plan", *arguments, "--now", NOW, "-o", "json"]) == 0
    document: dict[str, Any] = json.loads(said.readouterr().out)
    return document


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_a_dump_is_planned_like_a_captured_folder(
    output: str, tmp_path: Path, capsys: Said
) -> None:
    saved = shop(tmp_path / "shop")
    groups = ("--node-groups", str(saved / "manifest.json"))
    expected = planned(capsys, str(saved))
    folder = dump_of(tmp_path / "dump", saved_objects(saved), output)
    plan = planned(capsys, str(folder), *groups)
    for part in ("scaleUps", "unschedulable", "fitsExisting"):
        assert plan[part] == expected[part]
    (gap,) = plan["gaps"]
    for kind in ("PodDisruptionBudget", "PersistentVolume", "StorageClass", "CSINode", "Namespace"):
        assert kind in gap["detail"]


def test_a_dump_of_few_namespaces_says_that_pods_of_others_are_missing(
    tmp_path: Path, capsys: Said
) -> None:
    folder = dump_of(tmp_path / "dump", [node("a-0", "a"), pod("web", "1", on="a-0")])
    (gap,) = planned(capsys, str(folder))["gaps"]
    assert "pods of shop only: dump with -A" in gap["detail"]


def test_a_dump_to_standard_output_is_refused_with_the_command(
    tmp_path: Path, capsys: Said
) -> None:
    file = tmp_path / "dump.json"
    file.write_text('{"kind": "NodeList"}\n==== START logs for container c of pod a/b ====\n')
    assert main(["plan", str(file)]) == 2
    assert "--output-directory=DIR" in capsys.readouterr().err


def cluster() -> list[dict[str, Any]]:
    return [
        node("a-0", "a"),
        pod("web", "1500m", on="a-0", owner="ReplicaSet/web"),
        pod("next", "1500m", owner="ReplicaSet/web"),
        workload("ReplicaSet", "web", 2),
    ]


FORMS: dict[str, Callable[[list[dict[str, Any]]], str]] = {
    "one list": lambda items: yaml.safe_dump({"kind": "List", "items": items}),
    "several documents": yaml.safe_dump_all,
    "JSON": lambda items: json.dumps({"kind": "List", "items": items}),
    "lists of the server": lambda items: yaml.safe_dump_all(
        [listed(kind, [item for item in items if item["kind"] == kind]) for kind in ("Node", "Pod")]
        + [item for item in items if item["kind"] == "ReplicaSet"]
    ),
    "with other documents": lambda items: (
        "# saved\n---\n" + yaml.safe_dump_all([*items, {"kind": "Service"}]) + "---\n# end\n"
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["cluster.yaml", "cluster.yml", "cluster", "folder/objects.yaml"])
def test_a_yaml_file_and_a_folder_of_yaml_are_planned(
    form: str, name: str, tmp_path: Path, capsys: Said
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(FORMS[form](cluster()))
    if form == "JSON" and name.endswith(("yaml", "yml")):
        assert yaml.safe_load(path.read_text())  # JSON is YAML
    source = path.parent if "/" in name else path
    plan = planned(capsys, str(source))
    assert [up["group"] for up in plan["scaleUps"]] == ["a"]


def test_standard_input_is_planned(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = FORMS["one list"](cluster())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert planned(capsys, "-")["cluster"] == "stdin"


def test_groups_are_drafted_where_no_manifest_is_and_one_note_says_so(
    tmp_path: Path, capsys: Said
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(FORMS["one list"](cluster()))
    assert main(["plan", str(path), "--now", NOW]) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if "drafted" in line]
    assert len(notes) == 1
    assert "1 node group drafted from the nodes" in notes[0]
    assert main(["groups", str(path)]) == 0
    drafted = json.loads(capsys.readouterr().out)
    assert [group["id"] for group in drafted["nodeGroups"]] == ["a"]


BROKEN = "kind: {kind}\nmetadata:\n  name: broken\n  namespace: shop\nspec:\n  {more}\n  a: [\n"


@pytest.mark.parametrize(
    ("kind", "more", "on"),
    [("Pod", "nodeName: a-0", "a-0"), ("Pod", "b: 1", ""), ("ConfigMap", "b: 1", "")],
)
def test_one_document_that_is_not_yaml_is_named_and_the_others_count(
    kind: str, more: str, on: str, tmp_path: Path, capsys: Said
) -> None:
    path = tmp_path / "cluster.yaml"
    broken = BROKEN.format(kind=kind, more=more)
    path.write_text(yaml.safe_dump_all(cluster()) + "---\n" + broken)
    lines = path.read_text().count("\n")
    gaps = [gap for gap in planned(capsys, str(path))["gaps"] if "is not YAML" in gap["detail"]]
    assert [(gap["kind"], gap.get("node", "")) for gap in gaps] == [(kind, on)]
    name, _, line = gaps[0]["place"].partition(":")
    assert name == "cluster.yaml"
    assert lines - 8 <= int(line) <= lines + 1


@pytest.mark.parametrize(
    "text",
    [
        "kind: PodList\nitems:\n- a: [\n",
        "kind: List\nitems: [\n",
        "a: &a [x]\nb: &b [*a,*a,*a]\nkind: List\nitems: " + "[" * 60 + "]" * 60,
    ],
)
def test_a_list_that_is_not_yaml_is_refused_with_its_line(
    text: str, tmp_path: Path, capsys: Said
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(cluster()) + "---\n" + text)
    assert main(["plan", str(path)]) == 2
    said = capsys.readouterr()
    assert len(said.err.splitlines()) == 1
    assert "cluster.yaml:" in said.err
    assert "nothing was used" in said.err


HOSTILE = {
    "aliases": "kind: Pod\na: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{name}: &{name} [{','.join([f'*{above}'] * 9)}]\n"
        for above, name in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "depth": "kind: Pod\na: " + "[" * 100_000,
    "number": "kind: Pod\na: " + "1:" * 10_000 + "1",
    "key": "kind: Pod\n? [a]\n: 1\n",
    "tag": "kind: Pod\na: !!python/object:x {}\n",
    "date": "kind: Pod\na: 2026-99-99\n",
    "large number": "kind: Pod\na: " + "9" * 300 + "\n",
    "scalar": "just text\n",
    "numbers": "[1, 2, 3]\n",
    "kind of numbers": "kind: 5\n",
    "keys": "kind: Pod\n1: {true: 1, null: 2, 1.5: 3}\nmetadata: {name: x}\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document_costs_no_more_than_itself(
    name: str, tmp_path: Path, capsys: Said
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(cluster()) + "---\n" + HOSTILE[name])
    plan = planned(capsys, str(path))
    assert [up["group"] for up in plan["scaleUps"]] == ["a"]


def test_many_small_alias_documents_share_one_limit(tmp_path: Path, capsys: Said) -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b]\n"
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(cluster()) + ("---\nkind: ConfigMap\n" + bomb) * 2_000)
    assert main(["plan", str(path)]) == 2
    assert "once aliases are written out" in capsys.readouterr().err


def test_a_folder_with_neither_json_nor_yaml_is_refused(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "notes.txt").write_text("x")
    assert main(["plan", str(tmp_path)]) == 2
    assert "holds no *.json, *.json.gz or *.yaml" in capsys.readouterr().err
    assert main(["plan", str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("captured", [True, False])
def test_yaml_beside_lists_in_json_is_not_read(
    captured: bool, tmp_path: Path, capsys: Said
) -> None:
    folder = shop(tmp_path / "shop")
    if captured:
        (folder / "capture-info").write_text('{"kind": "outscaler/capture", "complete": true}')
    expected = planned(capsys, str(folder))
    (folder / "more.yaml").write_text(yaml.safe_dump_all(cluster()))
    assert decisions(planned(capsys, str(folder))) == decisions(expected)
