"""`outscaler explain` for a pod, a node or a group."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cli.main import main
from tests.functional.saved_cluster import node, pod, save, shop
from tests.reference_data import SHARED, needs_shared

BUSY, QUIET = (
    SHARED / "data" / "captures" / "shop-busy",
    SHARED / "data" / "captures" / "shop-quiet",
)
Said = pytest.CaptureFixture[str]
Explain = Callable[..., dict[str, Any]]


@pytest.fixture
def explain(tmp_path: Path, capsys: Said) -> Explain:
    """The JSON output about an object of a small shop, or of --snapshot."""

    def run(kind: str, name: str, *args: str | Path) -> dict[str, Any]:
        folder = tmp_path / "shop"
        where = (
            []
            if "--snapshot" in args
            else ["--snapshot", folder if folder.exists() else shop(folder)]
        )
        assert main(["explain", kind, name, *map(str, [*where, *args]), "-o", "json"]) == 0
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert (answer["kind"], answer["says"][0].endswith(".")) == (kind, True)
        return answer

    return run


# -- pods ------------------------------------------------------------------------------------------


def test_explain_pod_for_which_a_group_scales_up(explain: Explain) -> None:
    answer = explain("pod", "shop/web-0")
    assert (answer["name"], answer["verdict"], answer["group"]) == ("shop/web-0", "newNode", "b")
    assert answer["growth"] == {"group": "b", "from": 0, "to": 2, "max": 5}
    other = explain("pod", "shop/web-1")
    assert {answer["number"], other["number"]} == {1, 2}, "each is too big to share a node"
    (says,) = answer["says"]
    place = f"new node {answer['number']} of group b"
    assert says == f"Pod shop/web-0 is expected on {place}, which grows 0 -> 2 (max 5)."


def test_explain_unschedulable_pod_has_every_groups_reasons_with_numbers(explain: Explain) -> None:
    answer = explain("pod", "huge")
    assert (answer["name"], answer["verdict"]) == ("shop/huge", "unschedulable")
    assert answer["nodes"] >= max(answer["against"].values()) > 0, (
        "what the nodes that exist have against it"
    )
    assert answer["reasons"]["b"] == ["Insufficient cpu"]
    (reason,) = answer["details"]["b"]
    assert reason["message"] == "Insufficient cpu (needs 40, template offers 2)"
    assert reason["params"] == {"resource": "cpu", "needs": 40_000, "offers": 2_000}
    assert answer["reasons"]["a"] == ["Insufficient cpu"], "a larger maximum would not help"
    assert answer["skipped"]["a"]["message"] == "max node group size reached (max 2)"
    assert answer["pod"]["schedulerSays"] == "0/2 nodes"


def test_explain_pod_that_fits_an_existing_node(explain: Explain) -> None:
    answer = explain("pod", "shop/small")
    assert (answer["verdict"], answer["fitsOn"], answer["upcoming"]) == (
        "fitsExisting",
        "a-0",
        False,
    )
    assert explain("node", "a-0")["expected"] == ["shop/small"]


def test_explain_pod_that_is_not_considered(explain: Explain) -> None:
    answer = explain("pod", "gated")
    assert (answer["verdict"], answer["reason"]["code"]) == ("notLookedAt", "SchedulingGated")
    assert answer["says"] == ["Pod shop/gated is not looked at: scheduling is gated (quota)."]


def test_explain_running_pod_shows_its_node_and_why_the_node_stays(explain: Explain) -> None:
    answer = explain("pod", "db-0")
    assert (answer["verdict"], answer["node"], answer["nodeVerdict"]) == ("runs", "a-1", "stays")
    assert answer["nodeReason"]["code"] == "NotUnderutilized"
    (says,) = answer["says"]
    assert says == (
        "Pod shop/db-0 runs on node a-1. The node stays: not underutilized (cpu 95%, threshold "
        "50%)."
    )


@pytest.fixture
def idle(tmp_path: Path) -> Path:
    """Two nodes; one pod on a hardly used node that can move to n-1, and one that blocks n-1."""
    return save(
        tmp_path / "idle",
        [node("n-0", "n"), node("n-1", "n")],
        [
            pod("move", "100m", on="n-0"),
            pod("logs", "50m", on="n-0", owner="DaemonSet/logs"),
            pod("bare", "200m", on="n-1", owner=""),
        ],
        [{"id": "n", "min": 0, "max": 3, "size": 2, "template": node("t", "n")}],
    )


def test_explain_running_pod_of_a_removed_node_shows_its_destination(
    idle: Path, explain: Explain
) -> None:
    answer = explain(
        "pod",
        "move",
        "--snapshot",
        idle,
        "--assume-unneeded-for",
        "11m",
        "--option",
        "minReplicaCount=0",
    )
    assert (answer["nodeVerdict"], answer["destination"]) == ("removed", "n-1")
    assert (
        "would be removed now (drain): the pod is evicted, and there is room for it on n-1."
        in answer["says"][0]
    )
    daemon = explain("pod", "logs", "--snapshot", idle, "--assume-unneeded-for", "11m")
    assert daemon["says"][0].endswith("it goes with its node.")


def test_explain_running_pod_on_an_unneeded_node_shows_the_remaining_wait(
    idle: Path, explain: Explain
) -> None:
    answer = explain("pod", "move", "--snapshot", idle)
    assert (answer["nodeVerdict"], answer["nodeReason"]["code"]) == (
        "unneeded",
        "NotUnneededLongEnough",
    )


def test_explain_pod_that_blocks_its_node(idle: Path, explain: Explain) -> None:
    answer = explain("pod", "bare", "--snapshot", idle)
    assert answer["nodeReason"]["pod"] == "shop/bare"
    assert "The node stays: because of this pod: blocked by pod shop/bare" in answer["says"][0]


def test_explain_shows_only_missing_data_that_affects_the_answer(
    explain: Explain, tmp_path: Path
) -> None:
    folder = shop(tmp_path / "less")
    for name in ("workloads", "pdbs"):
        (folder / f"{name}.json").unlink()
    wants = explain("pod", "huge", "--snapshot", folder)
    assert [gap["kind"] for gap in wants["gaps"]] == ["DaemonSet"], (
        "budgets and owners matter to removals only"
    )
    runs = explain("pod", "db-0", "--snapshot", folder)
    assert {gap["kind"] for gap in runs["gaps"]} == {
        "DaemonSet",
        "PodDisruptionBudget",
        "ReplicaSet",
    }


def test_explain_unreadable_pod_differs_from_an_unknown_pod(
    explain: Explain, tmp_path: Path
) -> None:
    folder = save(
        tmp_path / "odd",
        [node("n-0", "n")],
        [pod("odd", "lots")],
        [{"id": "n", "max": 3, "size": 1}],
    )
    answer = explain("pod", "shop/odd", "--snapshot", folder)
    assert answer["verdict"] == "unreadable"
    assert "lots" in answer["says"][0]


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            "pod web-0",
            "explain pod: 'web-0' is in 2 namespaces; write one of other/web-0, shop/web-0",
        ),
        (
            "pod web",
            (
                "explain pod: no pod is called 'web'; did you mean other/web-0, shop/web-0, "
                "shop/web-1?"
            ),
        ),
        ("pod shop/hgue", "explain pod: no pod is called 'shop/hgue'; did you mean shop/huge?"),
        (
            "pod xyzzy-12345",
            "explain pod: no pod is called 'xyzzy-12345'; there are other/web-0, shop/api-0,",
        ),
        ("node a-3", "explain node: no node is called 'a-3'; did you mean a-"),
        ("group bb", "explain group: no node group is called 'bb'; did you mean b?"),
        (
            "deployment web",
            "outscaler explain: argument KIND: 'deployment' is not one of pod, node, group",
        ),
    ],
)
def test_unknown_name_is_a_one_line_error_with_the_nearest_name(
    asked: str, says: str, tmp_path: Path, capsys: Said
) -> None:
    assert main(["explain", *asked.split(), "--snapshot", str(shop(tmp_path / "shop"))]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(says)
    assert len(said.err.splitlines()) == 1


# -- nodes -----------------------------------------------------------------------------------------


def test_explain_node_that_stays(explain: Explain) -> None:
    answer = explain("node", "a-0")
    assert (answer["verdict"], answer["group"], answer["ready"]) == ("stays", "a", True)
    assert answer["reason"]["code"] == "NotUnderutilized"
    assert answer["pods"] == ["shop/api-0", "shop/logs-0", "shop/lone", "shop/static"]


def test_explain_removed_node_shows_destinations_of_its_pods(idle: Path, explain: Explain) -> None:
    answer = explain("node", "n-0", "--snapshot", idle, "--assume-unneeded-for", "11m")
    assert (answer["verdict"], answer["how"], answer["evict"]) == (
        "removed",
        "drain",
        ["shop/move"],
    )
    assert answer["destinations"] == {"shop/move": "n-1"}


def test_explain_node_blocked_by_a_pod(idle: Path, explain: Explain) -> None:
    answer = explain("node", "n-1", "--snapshot", idle)
    assert (answer["verdict"], answer["holds"]) == ("stays", "shop/bare")


# -- groups ----------------------------------------------------------------------------------------


def test_explain_group_that_scales_up(explain: Explain) -> None:
    answer = explain("group", "b")
    assert (answer["verdict"], answer["size"], answer["min"], answer["max"]) == ("grows", 0, 0, 5)
    assert answer["growth"] == {"from": 0, "to": 2, "max": 5, "pods": ["shop/web-0", "shop/web-1"]}
    assert {tuple(each["pods"]) for each in answer["noHelpTo"]} == {
        ("shop/huge",),
        ("other/web-0",),
    }


def test_explain_group_shows_its_price_or_why_there_is_none(
    explain: Explain, tmp_path: Path, capsys: Said
) -> None:
    folder = shop(tmp_path / "shop")
    none = "its provider names no price, and no spec.prices are given"
    assert explain("group", "b")["price"] == {"noPrice": none}
    manifest = json.loads((folder / "manifest.json").read_text())
    for group in manifest["nodeGroups"]:
        group |= {"price": 0.24, "currency": "EUR"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    now = ("--now", "2026-11-21T07:21:00Z")
    stated = {"perHour": 0.24, "currency": "EUR", "source": "provider", "date": "2026-11-21"}
    assert explain("group", "b", *now)["price"] == stated
    assert main(["explain", "group", "b", "--snapshot", str(folder), *now]) == 0
    assert "0.24 EUR (provider, 2026-11-21)" in capsys.readouterr().out


def test_explain_group_that_is_skipped(explain: Explain) -> None:
    answer = explain("group", "a")
    assert (answer["verdict"], answer["nodes"]) == ("skipped", ["a-0", "a-1"])
    assert answer["says"] == ["Node group a is not grown: max node group size reached (max 2)."]


def test_explain_backed_off_group_shows_end_and_cause(explain: Explain, tmp_path: Path) -> None:
    memory = tmp_path / "memory.json"
    memory.write_text(
        json.dumps(
            {
                "groups": {
                    "b": {
                        "backoff": {
                            "duration": 300.0,
                            "until": 1_795_245_900.0,
                            "last_failed": 1_795_245_600.0,
                            "cls": "OutOfStock",
                            "code": "E1",
                            "message": "none left",
                        }
                    }
                }
            }
        )
    )
    answer = explain("group", "b", "--memory", memory, "--now", "2026-11-21T07:21:00Z")
    assert answer["backoff"]["class"] == "OutOfStock"
    assert answer["skipped"]["code"] == "BackOff"
    assert "OutOfStock E1 none left" in answer["says"][0]


# -- output formats --------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["pod huge", "pod db-0", "node a-0", "group b"])
def test_explain_output_formats_have_the_same_content(
    asked: str, tmp_path: Path, capsys: Said
) -> None:
    command = ["explain", *asked.split(), "--snapshot", str(shop(tmp_path / "shop"))]
    assert main([*command, "-o", "json"]) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert main([*command, "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    assert main(command) == 0
    assert capsys.readouterr().out.startswith(as_json["says"][0])


@pytest.mark.parametrize(
    "words",
    [("node", "a-0"), ("no", "a-0"), ("nodes", "a-0"), ("node/a-0",), ("no/a-0",)],
    ids=" ".join,
)
def test_explain_takes_the_folder_as_plan_does(
    words: tuple[str, ...], tmp_path: Path, capsys: Said
) -> None:
    folder = str(shop(tmp_path / "shop"))
    assert main(["explain", "node", "a-0", "--snapshot", folder]) == 0
    answer = capsys.readouterr().out
    assert main(["explain", *words, folder]) == 0
    assert capsys.readouterr().out == answer
    assert main(["explain", *words, "--seed", "0", folder]) == 0
    assert capsys.readouterr().out == answer


def test_explain_applies_what_if_changes_and_reports_them(explain: Explain) -> None:
    answer = explain("pod", "shop/api-0", "--remove-node", "a-0")
    assert answer["verdict"] == "newNode"
    assert answer["assumed"][0].startswith("node a-0 is gone")


@needs_shared
def test_explain_has_an_answer_for_every_pod_of_a_captured_cluster(explain: Explain) -> None:
    pods = json.loads((BUSY / "pods.json").read_text())["items"]
    pending = [
        f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        for each in pods
        if not each["spec"].get("nodeName") and each["status"]["phase"] == "Pending"
    ]
    assert len(pending) > 30
    for name in pending[::5]:
        assert explain("pod", name, "--snapshot", BUSY)["verdict"] in {
            "newNode",
            "fitsExisting",
            "unschedulable",
            "notLookedAt",
        }, name


@needs_shared
def test_explain_table_of_a_captured_cluster_is_readable(capsys: Said) -> None:
    assert main(["explain", "pod", "ml/huge-6588488df7-4f97b", "--snapshot", str(BUSY)]) == 0
    out = capsys.readouterr().out
    assert "has no place" in out
    assert "Insufficient cpu (needs 40, template offers" in out
    assert "the scheduler says" in out
