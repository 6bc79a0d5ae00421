"""`outscaler capture`: what it saves of a live cluster, what it leaves out, and that a plan of the
folder equals the plan of the cluster."""

from __future__ import annotations

import gzip
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli.commands.capture import CaptureProgress
from chalicelib.cli.kubeconfig_files import kubeconfig_of
from chalicelib.cli.main import main
from chalicelib.cli.saved.saved_cluster import write_capture
from chalicelib.model.errors import BadInput
from chalicelib.model.timestamps import parse_time
from infra.emulators.kube.auth import RbacRule
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.server import ApiServer
from tests.functional.captured_clusters import (
    SECRET,
    confidential,
    decisions,
    saved_objects,
    served,
)
from tests.functional.saved_cluster import node, shop
from tests.reference_data import SHARED, needs_shared

Said = pytest.CaptureFixture[str]
Served = tuple[ApiServer, Path]
NODES_AND_PODS = RbacRule(verbs=("list",), groups=("",), resources=("nodes", "pods"))
RULES = RbacRule(
    verbs=("list",), groups=("autoscaling.cce.io",), resources=("horizontalnodeautoscalers",)
)
CAPTURES = SHARED / "data" / "captures"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Served]:
    """A server with the shop and confidential values, and an administrator's kubeconfig."""
    with served(tmp_path, confidential(saved_objects(shop(tmp_path / "shop")))) as (
        server,
        kubeconfig,
    ):
        yield server, kubeconfig


def captured(folder: Path, kubeconfig: Path, *more: str) -> int:
    return main(["capture", str(folder), "--kubeconfig", str(kubeconfig), *more])


def listed(folder: Path, file: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(gzip.decompress((folder / file).read_bytes()))["items"]
    return items


def planned(capsys: Said, *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    code = main(["plan", *arguments, "-o", "json"])
    said = capsys.readouterr()
    assert code == 0, said.err
    answer: dict[str, Any] = json.loads(said.out)
    return answer


def refused(capsys: Said, folder: Path, kubeconfig: Path) -> str:
    capsys.readouterr()
    assert captured(folder, kubeconfig) == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


def same_plan(capsys: Said, folder: Path, kubeconfig: Path, manifest: Path) -> None:
    """Captures, and compares the plans of the folder and of the live cluster."""
    assert captured(folder, kubeconfig) == 0
    common = (
        "--node-groups",
        str(manifest),
        "--now",
        "2026-11-21T07:21:00Z",
        "--assume-unneeded-for",
        "11m",
    )
    live = planned(capsys, "--kubeconfig", str(kubeconfig), "--context", "simulated", *common)
    saved = planned(capsys, str(folder), *common)
    assert decisions({**saved, "cluster": ""}) == decisions({**live, "cluster": ""})


def test_plan_of_a_capture_is_the_plan_of_the_cluster(
    cluster: Served, tmp_path: Path, capsys: Said
) -> None:
    same_plan(capsys, tmp_path / "simulated", cluster[1], tmp_path / "shop" / "manifest.json")


@needs_shared
@pytest.mark.parametrize("name", ["shop-busy", "shop-quiet"])
def test_plan_of_a_captured_real_cluster_is_the_plan_of_it_live(
    name: str, tmp_path: Path, capsys: Said
) -> None:
    with served(tmp_path, saved_objects(CAPTURES / name)) as (_, kubeconfig):
        same_plan(capsys, tmp_path / "capture", kubeconfig, CAPTURES / name / "manifest.json")


def test_capture_holds_no_environment_arguments_images_or_foreign_annotations(
    cluster: Served, tmp_path: Path
) -> None:
    folder = tmp_path / "capture"
    assert captured(folder, cluster[1]) == 0
    texts = {
        path.name: gzip.decompress(path.read_bytes()).decode() for path in folder.glob("*.json.gz")
    }
    assert [name for name, text in texts.items() if SECRET in text or "managedFields" in text] == []
    [mirror] = [
        pod for pod in listed(folder, "pods.json.gz") if pod["metadata"]["name"] == "static"
    ]
    assert mirror["metadata"]["annotations"] == {"kubernetes.io/config.mirror": "x"}
    assert mirror["spec"]["containers"] == [
        {"name": "c", "resources": {"requests": {"cpu": "100m"}}}
    ]


def test_capture_reads_no_secrets(cluster: Served, tmp_path: Path) -> None:
    assert captured(tmp_path / "capture", cluster[1]) == 0
    assert [each.path for each in cluster[0].requests if "secrets" in each.path] == []
    assert {each.method for each in cluster[0].requests} == {"GET"}


def test_capture_is_readable_by_its_owner_only_and_has_its_time(
    cluster: Served, tmp_path: Path
) -> None:
    folder = tmp_path / "capture"
    assert captured(folder, cluster[1]) == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert parse_time((folder / "captured-at").read_text().strip()) > 0


def test_two_captures_of_an_unchanged_cluster_have_the_same_files(
    cluster: Served, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        assert captured(tmp_path / name, cluster[1]) == 0
    names = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert {"nodes.json.gz", "pods.json.gz", "replicasets.json.gz"} <= set(names)
    for name in names:
        if name != "captured-at":
            assert (tmp_path / "first" / name).read_bytes() == (
                tmp_path / "second" / name
            ).read_bytes()


@pytest.mark.parametrize(
    "fault",
    [
        KubeFault(
            "GET",
            r"^/apis/storage\.k8s\.io/v1$",
            status=200,
            body=b'{"resources": [{"name": "csinodes"}]}',
        ),
        KubeFault("GET", r"^/apis/storage\.k8s\.io/v1$", status=404, body=b"{}"),
    ],
    ids=["kind", "group"],
)
def test_capture_lists_only_what_the_server_serves(
    fault: KubeFault, cluster: Served, tmp_path: Path, capsys: Said
) -> None:
    cluster[0].faults.add(fault)
    assert captured(tmp_path / "capture", cluster[1]) == 0
    assert (
        "csistoragecapacities: not captured: the server does not serve it"
        in capsys.readouterr().err
    )
    assert [each.path for each in cluster[0].requests if "csistoragecapacities" in each.path] == []


def test_capture_lists_everything_where_discovery_is_refused(
    cluster: Served, tmp_path: Path, capsys: Said
) -> None:
    cluster[0].faults.add(
        KubeFault("GET", r"^/(api|apis/[^/]+)/v1$", status=403, body=b"{}", times=-1)
    )
    assert captured(tmp_path / "capture", cluster[1]) == 0
    assert capsys.readouterr().err == ""
    assert (tmp_path / "capture" / "csistoragecapacities.json.gz").exists()


def test_capture_goes_on_where_a_list_is_forbidden(tmp_path: Path, capsys: Said) -> None:
    objects = saved_objects(shop(tmp_path / "shop"))
    with served(tmp_path, objects, [NODES_AND_PODS, RULES]) as (_, kubeconfig):
        same_plan(capsys, tmp_path / "capture", kubeconfig, tmp_path / "shop" / "manifest.json")
        assert captured(tmp_path / "capture", kubeconfig) == 0
    warnings = capsys.readouterr().err.splitlines()
    assert any(
        "poddisruptionbudgets: not captured: " in line and "forbidden" in line for line in warnings
    )
    gaps = planned(
        capsys, str(tmp_path / "capture"), "--node-groups", str(tmp_path / "shop" / "manifest.json")
    )["gaps"]
    assert {gap["kind"] for gap in gaps} >= {
        "PodDisruptionBudget",
        "ReplicaSet",
        "StatefulSet",
        "ConfigMap",
    }


@pytest.mark.parametrize("resource", ["nodes", "pods"])
def test_capture_without_nodes_or_pods_writes_nothing(
    resource: str, tmp_path: Path, capsys: Said
) -> None:
    rules = [RbacRule(verbs=("list",), groups=("",), resources=(resource,))]
    with served(tmp_path, (), rules) as (_, kubeconfig):
        line = refused(capsys, tmp_path / "capture", kubeconfig)
    assert "cannot be listed" in line
    assert "there is no plan without nodes and pods" in line
    assert not (tmp_path / "capture").exists()


def test_capture_refuses_a_folder_with_other_files(
    cluster: Served, tmp_path: Path, capsys: Said
) -> None:
    before = sorted((tmp_path / "shop").iterdir())
    assert "did not make it" in refused(capsys, tmp_path / "shop", cluster[1])
    assert "is not a directory" in refused(capsys, cluster[1], cluster[1])
    assert sorted((tmp_path / "shop").iterdir()) == before
    assert cluster[0].requests == []


def test_capture_rewrites_its_own_folder_and_keeps_the_manifest(
    cluster: Served, tmp_path: Path
) -> None:
    folder = tmp_path / "capture"
    assert captured(folder, cluster[1]) == 0
    (folder / "manifest.json").write_text('{"nodeGroups": []}')
    cluster[0].store.load("nodes", [node("a-9", "a")])
    cluster[0].faults.add(KubeFault("GET", "/apis/apps/v1/statefulsets", status=403, body=b"{}"))
    assert captured(folder, cluster[1]) == 0
    assert [each["metadata"]["name"] for each in listed(folder, "nodes.json.gz")] == [
        "a-0",
        "a-1",
        "a-9",
    ]
    assert (folder / "manifest.json").exists()
    assert not (folder / "statefulsets.json.gz").exists(), "an older list would count as current"


def test_empty_folder_can_be_captured_into(cluster: Served, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert captured(tmp_path / "empty", cluster[1]) == 0


class _Interrupted(dict[str, bytes]):
    """Files of which only the first can be written."""

    def items(self) -> Any:
        yield next(iter(super().items()))
        raise KeyboardInterrupt


def test_interrupted_capture_leaves_no_half_file_and_no_mixture(
    cluster: Served, tmp_path: Path, capsys: Said
) -> None:
    folder = tmp_path / "capture"
    assert captured(folder, cluster[1]) == 0
    before = {path.name: path.read_bytes() for path in folder.glob("*.json.gz")}
    with pytest.raises(KeyboardInterrupt):
        write_capture(
            folder, _Interrupted({"nodes.json.gz": b"new", "pods.json.gz": b"new"}), frozenset(), ()
        )
    assert {path.name: path.read_bytes() for path in folder.glob("*.json.gz")} == {
        **before,
        "nodes.json.gz": b"new",
    }
    for command in ("plan", "groups"):
        capsys.readouterr()
        assert main([command, str(folder)]) == 2
        assert "is an incomplete capture, because it was interrupted" in capsys.readouterr().err
    (folder / ".outscaler-capture-1-pods.json.gz.tmp").write_bytes(b"left by a killed process")
    assert captured(folder, cluster[1]) == 0
    assert {path.name: path.read_bytes() for path in folder.glob("*.json.gz")} == before
    assert list(folder.glob(".*")) == []


def test_capture_of_an_object_nested_too_deeply_keeps_the_others(
    cluster: Served, tmp_path: Path
) -> None:
    deep = b"[" * 5000 + b"]" * 5000
    body = (
        b'{"metadata": {}, "items": [{"metadata": {"name": "deep", "labels": %b}}, '
        b'{"metadata": {"name": "b"}}]}'
    ) % deep
    cluster[0].faults.add(KubeFault("GET", "/api/v1/namespaces", status=200, body=body))
    assert captured(tmp_path / "capture", cluster[1]) == 0
    assert "b" in [
        each["metadata"]["name"] for each in listed(tmp_path / "capture", "namespaces.json.gz")
    ]


def test_capture_of_something_that_is_not_a_list_is_a_one_line_error(
    cluster: Served, tmp_path: Path, capsys: Said
) -> None:
    body = b'{"metadata": {}, "items": {"a": 1}}'
    cluster[0].faults.add(KubeFault("GET", "/api/v1/namespaces", status=200, body=body))
    assert "/api/v1/namespaces: " in refused(capsys, tmp_path / "capture", cluster[1])
    assert not (tmp_path / "capture").exists()


def test_capture_reads_all_pages_of_a_list_in_order_of_names(
    cluster: Served, tmp_path: Path
) -> None:
    cluster[0].store.load(
        "namespaces", [{"metadata": {"name": f"team-{at}"}} for at in range(1100)]
    )
    assert captured(tmp_path / "capture", cluster[1]) == 0
    names = [
        each["metadata"]["name"] for each in listed(tmp_path / "capture", "namespaces.json.gz")
    ]
    assert len(names) > 1100
    assert names == sorted(names)


def test_capture_prints_its_lists_as_json(cluster: Served, tmp_path: Path, capsys: Said) -> None:
    assert captured(tmp_path / "capture", cluster[1], "-o", "json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["lists"][0] == {"kind": "Node", "objects": 2, "file": "nodes.json.gz"}
    assert answer["notRead"] == []


def test_capture_names_the_next_command(cluster: Served, tmp_path: Path, capsys: Said) -> None:
    folder = tmp_path / "capture"
    assert captured(folder, cluster[1]) == 0
    assert f"outscaler groups {folder} > {folder}/manifest.json" in capsys.readouterr().out


def test_context_of_the_command_line_is_named_as_such(
    cluster: Served, tmp_path: Path, capsys: Said
) -> None:
    assert captured(tmp_path / "capture", cluster[1], "--context", "nope") == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("--context: 'nope' is not among contexts")


def test_kubeconfig_is_found_as_kubectl_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").write_text("")
    assert kubeconfig_of({"KUBECONFIG": str(tmp_path / "own")}) == tmp_path / "own"
    assert kubeconfig_of({"KUBECONFIG": f"{tmp_path}/missing:{tmp_path}/own"}) == tmp_path / "own"
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BadInput, match=r"\.kube/config: does not exist"):
        kubeconfig_of({})
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("")
    assert kubeconfig_of({}) == tmp_path / ".kube" / "config"


def test_progress_is_silent_for_a_second_unless_at_a_terminal() -> None:
    for at_once, expected in (
        (True, ["nodes: 3\n", "pods: 500 so far\n", "pods: 600\n"]),
        (False, ["nodes: 3\npods: 500 so far\n", "pods: 600\n"]),
    ):
        now, said = [0.0], list[str]()
        progress = CaptureProgress(lambda now=now: now[0], said.append, at_once=at_once)  # type: ignore[misc]
        progress.complete("nodes", 3)
        progress.reading("pods", 250)
        now[0] = 1.5
        progress.reading("pods", 500)
        progress.complete("pods", 600)
        assert said == expected
