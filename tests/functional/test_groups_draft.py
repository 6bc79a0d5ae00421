"""`outscaler groups`: the draft of node groups from saved nodes, which `outscaler
plan` accepts unchanged.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from chalicelib.cli.main import main
from chalicelib.cli.saved.group_draft import draft
from chalicelib.cluster import api_types
from chalicelib.cluster.node_decoding import OWNER_KIND, OWNER_NAME, OWNER_NAMESPACE, node_from_wire
from chalicelib.model.node import LEAVING_MARKS
from tests.cases import each_row
from tests.functional.saved_cluster import node, save
from tests.reference_data import SHARED, needs_shared

Said = pytest.CaptureFixture[str]
Json = dict[str, Any]
CAPTURES = SHARED / "data" / "captures"
TYPE = "node.kubernetes.io/instance-type"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


def member(
    name: str, provider_id: str, annotations: Mapping[str, str] | None = None, /, **labels: str
) -> Json:
    made = node(name, "", **labels)
    made["spec"]["providerID"] = provider_id
    made["metadata"]["annotations"] = dict(annotations or {})
    return made


def owned(kind: str, name: str) -> dict[str, str]:
    return {OWNER_KIND: kind, OWNER_NAME: name, OWNER_NAMESPACE: "prod"}


def drafted(*nodes: Json) -> list[Json]:
    read = [node_from_wire(msgspec.convert(each, api_types.ApiNode)) for each in nodes]
    found: list[Json] = draft(read).manifest["nodeGroups"]
    return found


def told(entry: Json) -> Any:
    """How the members of a drafted group are told."""
    return entry.get("nodeLabels", entry.get("nodes", "providerID"))


CCE = {"cce.cloud.com/cce-nodepool": "blue"}
EXOSCALE = {"node.exoscale.net/nodepool-id": "6d1f"}
ALICLOUD = {"alibabacloud.com/nodepool-id": "np7"}
DEPLOYMENT = owned("MachineSet", "md-0-x7f2k")


@each_row(
    "provider_id, annotations, labels, expected, selected",
    [
        ("9f6c2a", {}, CCE, "blue", CCE),
        ("exoscale://9f6c2a", {}, EXOSCALE, "6d1f", EXOSCALE),
        ("eu-central-1.i-9f6c2a", {}, ALICLOUD, "np7", ALICLOUD),
        ("cherryservers://9f6c2a", {}, {"pool": "web"}, "web", {"pool": "web"}),
        ("docker:////m-1", DEPLOYMENT, {}, "MachineDeployment/prod/md-0", ["n-1"]),
        ("docker:////m-1", owned("MachineSet", "workers"), {}, "MachineSet/prod/workers", ["n-1"]),
        ("docker:////m-1", owned("MachineSet", "pool-a"), {}, "MachineSet/prod/pool-a", ["n-1"]),
        ("docker:////m-1", owned("MachinePool", "mp-0"), {}, "MachinePool/prod/mp-0", ["n-1"]),
        ("example://workers/n-1", {}, {"pool": "web"}, "workers", "providerID"),
        ("9f6c2a", {}, {"pool": "web"}, "web", {"pool": "web"}),
        ("", {}, {TYPE: "m5.large"}, "m5.large", {TYPE: "m5.large"}),
        ("aws:///eu-1a/i-9f6c2a", {}, {TYPE: "m5.large"}, "m5.large", {TYPE: "m5.large"}),
        ("", {}, {}, "nodes", ["n-1"]),
    ],
)
def test_group_is_known_by_the_vendors_label_owner_id_or_type(
    provider_id: str,
    annotations: Mapping[str, str],
    labels: Mapping[str, str],
    expected: str,
    selected: Any,
) -> None:
    other = member("other", "example://another/other", **{TYPE: "small"})
    entries = {
        entry["id"]: entry
        for entry in drafted(other, member("n-1", provider_id, annotations, **labels))
    }
    assert sorted(entries) == sorted(["another", expected])
    assert told(entries[expected]) == selected


def test_bounds_are_guessed_and_the_size_is_left_out() -> None:
    def bounds(count: int) -> Json:
        [entry] = drafted(*(node(f"w-{each}", "w") for each in range(count)))
        return {key: entry[key] for key in ("min", "max", "size") if key in entry}

    assert bounds(1) == {"min": 0, "max": 10}
    assert bounds(6) == {"min": 0, "max": 12}


def test_template_has_what_all_members_have() -> None:
    first, second = (
        node("w-0", "w", cpu="4", zone="a", tier="x"),
        node("w-1", "w", cpu="2", zone="b", tier="x"),
    )
    first["metadata"]["labels"]["own.test/id"] = "w-0"
    kept, own = (
        {"key": "dedicated", "value": "w", "effect": "NoSchedule"},
        {"key": "odd", "effect": "NoExecute"},
    )
    passing = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
    marks = [{"key": key, "effect": "PreferNoSchedule"} for key in LEAVING_MARKS]
    first["spec"]["taints"] = [passing, kept, own, *marks]
    second["spec"]["taints"] = [kept, passing, *marks]
    first["status"]["allocatable"] = {
        **first["status"]["allocatable"],
        "nvidia.com/gpu": "1",
        "memory": "7000000001",
    }
    [entry] = drafted(first, second)
    assert entry["template"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "template-w", "labels": {"tier": "x"}},
        "spec": {"taints": [kept]},
        "status": {"allocatable": {"cpu": "2", "memory": "7000000001", "pods": "110"}},
    }


def test_control_plane_nodes_are_left_out() -> None:
    control = [
        node("cp-0", "w", **{CONTROL_PLANE: ""}),
        node("cp-1", "w", **{"node-role.kubernetes.io/master": ""}),
        member("cp-2", "docker:////m", owned("KubeadmControlPlane", "cp")),
    ]
    [entry] = drafted(*control, node("w-0", "w", **{TYPE: "small"}))
    assert entry["id"] == "w"
    assert told(entry) == {TYPE: "small"}, "the providerID names the control plane's nodes, too"


def test_nodes_without_any_name_are_grouped_by_type_and_shared_labels() -> None:
    nodes = [
        member(f"n-{at}", "", **{TYPE: "m5", "tier": "ab"[at % 2], "serial": f"s{at}"})
        for at in range(4)
    ]
    entries = drafted(*nodes)
    assert [(entry["id"], told(entry)) for entry in entries] == [
        ("m5", {"tier": "a"}),
        ("m5-2", {"tier": "b"}),
    ]


def test_place_of_a_node_alone_does_not_select_a_group() -> None:
    zone = "topology.kubernetes.io/zone"
    workers = [
        member(f"w-{at}", "", owned("MachineSet", "blue"), **{zone: "z1", "os.test/name": "x"})
        for at in (1, 2)
    ]
    other = member("o", "example://o/o", **{zone: "z2", "os.test/name": "x"})
    entries = {entry["id"]: entry for entry in drafted(*workers, other)}
    assert told(entries["MachineSet/prod/blue"]) == {zone: "z1", "os.test/name": "x"}


def test_label_that_selects_foreign_nodes_is_not_used_to_select_members() -> None:
    entries = drafted(
        member("a", "cherryservers://1", pool="x"), member("b", "example://g/b", pool="x", t="1")
    )
    assert [(entry["id"], told(entry)) for entry in entries] == [("g", "providerID"), ("x", ["a"])]


def planned(folder: Path, capsys: Said) -> Json:
    """The plan with the drafted groups, and nothing else added."""
    capsys.readouterr()
    assert main(["groups", str(folder)]) == 0
    (folder / "manifest.json").write_text(capsys.readouterr().out)
    assert main(["plan", str(folder), "-o", "json"]) == 0
    answer: Json = json.loads(capsys.readouterr().out)
    return answer


@needs_shared
@each_row("name", ["shop-busy", "shop-quiet"])
def test_draft_of_a_real_capture_has_the_groups_and_sizes_of_its_manifest(
    name: str, tmp_path: Path, capsys: Said
) -> None:
    folder = tmp_path / name
    shutil.copytree(CAPTURES / name, folder)
    manifest = json.loads((folder / "manifest.json").read_text())["nodeGroups"]
    (folder / "manifest.json").write_text("")  # as a shell leaves it before the command runs
    sizes = {group["group"]: group["target"] for group in planned(folder, capsys)["groups"]}
    assert sizes == {group["id"]: group["size"] for group in manifest if group["size"]}


@needs_shared
def test_drafts_of_small_real_clusters_are_accepted_by_plan(tmp_path: Path, capsys: Said) -> None:
    tried = 0
    for path in sorted((CAPTURES / "settled").iterdir()):
        objects = json.loads((path / "objects.json").read_text())["items"]
        nodes = sum(each["kind"] == "Node" for each in objects)
        if not nodes:
            continue  # plan refuses it, too
        folder = tmp_path / path.name
        folder.mkdir()
        shutil.copy(path / "objects.json", folder)
        groups = planned(folder, capsys)["groups"]
        assert sum(group["target"] for group in groups) == nodes, path.name
        tried += 1
    assert tried > 1


def test_draft_says_what_is_guessed_and_can_be_yaml(tmp_path: Path, capsys: Said) -> None:
    folder = save(
        tmp_path / "shop", [node("a-0", "a"), node("cp", "c", **{CONTROL_PLANE: ""})], (), ()
    )
    assert main(["groups", str(folder), "-o", "yaml"]) == 0
    said = capsys.readouterr()
    assert [each["id"] for each in yaml.safe_load(said.out)["nodeGroups"]] == ["a"]
    assert "are guesses" in said.err
    assert "control-plane nodes are left out: 1" in said.err


def test_draft_of_a_folder_without_nodes_is_refused(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "pods.json").write_text('{"kind": "PodList", "items": []}')
    assert main(["groups", str(tmp_path)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert (
        line == f"{tmp_path}: holds no Node; save the cluster into it: outscaler capture {tmp_path}"
    )
