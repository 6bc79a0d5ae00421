"""`outscaler plan` on clusters captured from a real control plane, and on unusable input."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli.main import main
from tests.functional.saved_cluster import shop
from tests.reference_data import SHARED, needs_shared

BUSY, QUIET = (
    SHARED / "data" / "captures" / "shop-busy",
    SHARED / "data" / "captures" / "shop-quiet",
)
_TAINTED = "node(s) had untolerated taint(s)"


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Runs the command and parses its JSON."""

    def run(*args: str | Path) -> dict[str, Any]:
        assert main(["plan", *map(str, args), "-o", "json"]) == 0
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    return run


def _workload(pod: str) -> str:
    """A pod's name without the suffixes of its Deployment and ReplicaSet."""
    return re.sub(r"-[a-z0-9]+-[a-z0-9]+$", "", pod)


def _refused_by_the_real_scheduler() -> dict[str, str]:
    """pod -> the real scheduler's message, for the pods it rejected."""
    refused = {}
    for pod in json.loads((BUSY / "pods.json").read_text())["items"]:
        for condition in pod["status"].get("conditions", ()):
            if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
                refused[f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"] = condition[
                    "message"
                ]
    return refused


@needs_shared
def test_shop_busy_has_a_verdict_for_every_rejected_pod(
    plan: Callable[..., dict[str, Any]],
) -> None:
    answer = plan("--snapshot", BUSY, "--now", (BUSY / "captured-at").read_text().strip())
    reported = [
        pod
        for part in ("scaleUps", "unschedulable", "notLookedAt")
        for entry in answer[part]
        for pod in entry["pods"]
    ] + answer["fitsExisting"]
    assert len(reported) == len(set(reported)), "nobody is told twice"
    refused = _refused_by_the_real_scheduler()
    assert len(refused) == 34
    assert set(refused) <= set(reported)
    unseen = {entry["code"]: len(entry["pods"]) for entry in answer["notLookedAt"]}
    assert unseen == {"Expendable": 6, "SchedulingGated": 2}
    left = [pod for entry in answer["unschedulable"] for pod in entry["pods"]]
    assert [_workload(pod) for pod in left] == ["ml/huge"], (
        "nothing is left that a new node could take"
    )


@needs_shared
def test_shop_busy_scales_up_the_only_group_that_fits(plan: Callable[..., dict[str, Any]]) -> None:
    answer = plan("--snapshot", BUSY)
    by_group: dict[str, dict[str, int]] = {}
    for entry in answer["scaleUps"]:
        for pod in entry["pods"]:
            count = by_group.setdefault(entry["group"], {})
            count[_workload(pod)] = count.get(_workload(pod), 0) + 1
    assert by_group["batch"] == {"jobs/crunch": 14}
    assert by_group["gpu"] == {"ml/train": 3}
    assert by_group["arm"]["ml/edge-arm"] == 5
    assert {s["group"]: s["to"] - s["from"] for s in answer["scaleUps"]}["gpu"] == 3


@needs_shared
def test_shop_busy_gives_every_placed_pod_exactly_one_place(
    plan: Callable[..., dict[str, Any]],
) -> None:
    answer = plan("--snapshot", BUSY)
    placed = sorted(
        [pod for entry in answer["scaleUps"] for pod in entry["pods"]] + answer["fitsExisting"]
    )
    assert sorted(pod for promise in answer["promises"] for pod in promise["pods"]) == placed
    grown = {entry["group"]: entry["to"] - entry["from"] for entry in answer["scaleUps"]}
    promised = {
        (promise["group"], promise["number"])
        for promise in answer["promises"]
        if "group" in promise
    }
    assert promised == {
        (group, number + 1) for group, nodes in grown.items() for number in range(nodes)
    }, "no new node is left empty"


@needs_shared
def test_shop_busy_reasons_per_group_use_the_schedulers_words(
    plan: Callable[..., dict[str, Any]],
) -> None:
    answer = plan("--snapshot", BUSY)
    why = {_workload(entry["pods"][0]): entry["reasons"] for entry in answer["unschedulable"]}
    general = ["Insufficient cpu", "Insufficient memory"]
    assert why["ml/huge"] == {
        "arm": ["Insufficient cpu"],
        "batch": [_TAINTED],
        "gpu": [_TAINTED],
        "general-a": general,
        "general-b": general,
        "general-c": general,
    }


@needs_shared
def test_shop_busy_agrees_with_the_schedulers_rejections_on_existing_nodes(
    plan: Callable[..., Any],
) -> None:
    assert plan("--snapshot", BUSY)["fitsExisting"] == [], (
        "the real scheduler found no room for any of them either"
    )


@needs_shared
def test_shop_quiet_has_removable_nodes_and_reasons_for_the_others(
    plan: Callable[..., dict[str, Any]],
) -> None:
    answer = plan("--snapshot", QUIET, "--assume-unneeded-for", "11m")
    assert [(s["node"], s["group"], s["kind"]) for s in answer["scaleDowns"]] == [
        ("batch-0", "batch", "empty"),
        ("general-a-2", "general-a", "drain"),
    ]
    assert answer["unneeded"] == ["batch-0", "general-a-2", "general-b-2"]
    held = {v["node"]: (v["code"], _workload(v.get("pod", ""))) for v in answer["unremovable"]}
    assert held == {
        "batch-1": ("NoPlaceToMovePods", "jobs/crunch"),
        "general-a-0": ("BlockedByPod", "data/cache"),
        "general-a-1": ("BlockedByPod", "shop/gateway"),
        "general-b-0": ("BlockedByPod", "shop/uploads"),
        "general-b-1": ("BlockedByPod", "data/cache"),
        "general-b-2": ("ParallelismReached", ""),
        "general-c-0": ("BlockedByPod", "data/cache"),
        "general-c-1": ("NotUnderutilized", ""),
        "general-c-2": ("BlockedByPod", "data/cache"),
    }
    assert len(answer["scaleDowns"]) + len(held) == 11, "every node has an answer"


@needs_shared
def test_saved_memory_carries_unneeded_times_into_the_next_plan(
    plan: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    kept = tmp_path / "memory.json"
    first = plan("--snapshot", QUIET, "--save-memory", kept)
    assert first["scaleDowns"] == []
    assert {v["code"] for v in first["unremovable"] if v["node"] in first["unneeded"]} == {
        "NotUnneededLongEnough"
    }
    later = plan("--snapshot", QUIET, "--memory", kept, "--now", "2026-11-21T07:31:44Z")
    assert [s["node"] for s in later["scaleDowns"]] == ["batch-0", "general-a-2"]


@needs_shared
def test_options_on_the_command_line_change_the_plan(plan: Callable[..., dict[str, Any]]) -> None:
    more = plan(
        "--snapshot",
        QUIET,
        "--assume-unneeded-for",
        "11m",
        "--option",
        "maxDrainParallelism=5",
        "--option",
        "scaleDownUtilizationThreshold=0.8",
    )
    assert "general-b-2" in [s["node"] for s in more["scaleDowns"]]


@needs_shared
def test_plan_command_does_not_depend_on_input_order(
    plan: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    for path in BUSY.iterdir():
        if path.suffix == ".json" and path.name != "manifest.json":
            document = json.loads(path.read_text())
            document["items"].reverse()
            with gzip.open(tmp_path / f"{path.name}.gz", "wt") as out:
                json.dump(document, out)
    shutil.copy(BUSY / "manifest.json", tmp_path)

    def bare(answer: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in answer.items() if k not in {"timings", "cluster", "plan"}}

    now = "2026-11-21T07:20:54Z"
    assert bare(plan("--snapshot", tmp_path, "--now", now)) == bare(
        plan("--snapshot", BUSY, "--now", now)
    )


@needs_shared
def test_plan_table_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--snapshot", str(BUSY)]) == 0
    out = capsys.readouterr().out
    order = [
        "28 pending pods",
        "Node groups",
        "Pods without a place",
        "Ignored pods",
        "Blocked removals",
    ]
    assert [out.index(part) for part in order] == sorted(out.index(part) for part in order)
    assert "arm: Insufficient cpu (needs 40, template offers 7750m)" in out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param(["plan"], "name a folder of saved files, --kubeconfig FILE", id="no-source"),
        pytest.param(["plan", "--snapshot", "/no/such/place"], "/no/such/place", id="no-folder"),
        pytest.param(["plan", "/no/such/place"], "/no/such/place", id="no-positional-folder"),
        pytest.param(
            ["plan", ".", "--snapshot", "."], "--snapshot: is given beside DIR", id="two-folders"
        ),
        pytest.param(
            ["plan", ".", "--kubeconfig", "k"],
            "--kubeconfig: is given beside DIR",
            id="folder-and-cluster",
        ),
        pytest.param(
            ["plan", ".", "--context", "k"],
            "--context: belongs to --kubeconfig",
            id="folder-and-context",
        ),
        pytest.param(["plan", "--snapshot", ".", "--now", "noon"], "--now", id="no-time"),
        pytest.param(
            ["plan", "--snapshot", ".", "--option", "maxNodesTotal"],
            "NAME=VALUE",
            id="option-without-value",
        ),
        pytest.param(
            ["plan", "--snapshot", ".", "--option", "maxNodesTotl=3"],
            "maxNodesTotal",
            id="unknown-option",
        ),
        pytest.param(
            ["plan", "--snapshot", ".", "--assume-unneeded-for", "11"], "duration", id="no-duration"
        ),
        pytest.param(
            ["plan", "--snapshot", ".", "--memory", "/no/such/file"],
            "/no/such/file",
            id="no-memory",
        ),
    ],
)
def test_invalid_plan_input_is_a_one_line_error_with_exit_code_2(
    args: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert words in captured.err


@needs_shared
@pytest.mark.parametrize("cut", [1, 1000, 900_000])
def test_truncated_snapshot_file_is_an_error_and_not_half_a_plan(
    cut: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in BUSY.iterdir():
        shutil.copy(path, tmp_path)
    (tmp_path / "pods.json").write_bytes((BUSY / "pods.json").read_bytes()[:cut])
    assert main(["plan", "--snapshot", str(tmp_path), "-o", "json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "pods.json" in captured.err


def test_plan_of_a_folder_is_the_plan_of_its_snapshot(
    plan: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    folder = shop(tmp_path / "shop")
    assert {**plan(folder), "timings": {}} == {**plan("--snapshot", folder), "timings": {}}
    assert plan("--option", "maxNodesTotal=2", folder)["cluster"] == "shop"


def test_strict_plan_with_missing_data_exits_with_1(tmp_path: Path) -> None:
    folder = shop(tmp_path / "shop")
    assert main(["plan", str(folder)]) == 0
    (folder / "pdbs.json").unlink()
    assert main(["plan", str(folder)]) == 0
    assert main(["plan", str(folder), "--strict"]) == 1
