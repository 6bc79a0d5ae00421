"""`outscaler plan --compare-option`: two plans side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli.main import main
from tests.functional.saved_cluster import node, shop
from tests.unit.policy.policy_documents import GOOD

Said = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shop(tmp_path / "shop")


def compared(folder: Path, capsys: Said, *args: str | Path) -> dict[str, Any]:
    assert main(["plan", "--snapshot", str(folder), *map(str, args), "-o", "json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_comparison_has_both_plans_their_options_and_the_differences(
    folder: Path, capsys: Said
) -> None:
    answer = compared(folder, capsys, "--compare-option", "maxNodesTotal=3")
    assert [each["options"] for each in answer["plans"]] == [
        {"maxNodesTotal": 0},
        {"maxNodesTotal": 3},
    ]
    assert [
        [(up["group"], up["to"]) for up in each["plan"]["scaleUps"]] for each in answer["plans"]
    ] == [
        [("b", 2)],
        [("b", 1)],
    ]
    difference = answer["difference"]
    assert difference["groups"] == [
        {"group": "b", "from": 0, "to": [2, 1], "pods": [2, 1], "removals": [0, 0]}
    ]
    assert (difference["nodes"], difference["pods"], difference["left"]) == ([2, 1], [2, 1], [2, 3])
    assert len(difference["onlyFirst"]) == 1
    assert difference["onlySecond"] == []
    assert "cost" not in difference, "the policy says nothing about prices"


def test_several_compared_options_make_one_second_plan(folder: Path, capsys: Said) -> None:
    answer = compared(
        folder,
        capsys,
        "--option",
        "maxNodesTotal=3",
        "--compare-option",
        "maxNodesTotal=0",
        "--compare-option",
        "scaleDownUtilizationThreshold=0.99",
        "--compare-option",
        "maxNodesTotal=4",
    )
    assert [each["options"] for each in answer["plans"]] == [
        {"maxNodesTotal": 3, "scaleDownUtilizationThreshold": 0.5},
        {"maxNodesTotal": 4, "scaleDownUtilizationThreshold": 0.99},
    ]
    assert answer["difference"]["nodes"] == [1, 2]


def test_each_compared_plan_equals_a_plain_plan(folder: Path, capsys: Said) -> None:
    def bare(plan: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in plan.items() if key != "timings"}

    pair = compared(folder, capsys, "--compare-option", "maxNodesTotal=3")
    alone = [compared(folder, capsys), compared(folder, capsys, "--option", "maxNodesTotal=3")]
    assert [bare(each["plan"]) for each in pair["plans"]] == [bare(plan) for plan in alone]


def test_comparison_covers_removals(folder: Path, capsys: Said) -> None:
    pods = json.loads((folder / "pods.json").read_text())
    pods["items"] = [each for each in pods["items"] if each["metadata"]["name"] == "api-0"]
    (folder / "pods.json").write_text(json.dumps(pods))
    answer = compared(
        folder, capsys, "--assume-unneeded-for", "20m", "--compare-option", "scaleDownEnabled=false"
    )
    assert answer["difference"]["removals"] == [1, 0]
    assert answer["difference"]["groups"] == [
        {"group": "a", "from": 2, "to": [2, 2], "pods": [0, 0], "removals": [1, 0]}
    ]


def test_comparison_table_has_both_plans_side_by_side(folder: Path, capsys: Said) -> None:
    assert main(["plan", "--snapshot", str(folder), "--compare-option", "maxNodesTotal=3"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert {"maxNodesTotal 0 3", "new nodes 2 1", "b 0 -> 2 for 2 pods 0 -> 1 for 1 pods"} <= set(
        lines
    )


def test_comparison_has_prices_where_the_policy_has_them(
    folder: Path, tmp_path: Path, capsys: Said
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(GOOD + "  prices: {cpu: 0.05, memory: 0, node: 0.01}\n")
    answer = compared(folder, capsys, "--policy", policy, "--compare-option", "maxNodesTotal=3")
    assert answer["difference"]["cost"] == pytest.approx([0.22, 0.11]), (
        "two nodes of two cores, or one"
    )
    assert answer["difference"]["unpriced"] == []


def test_comparison_names_nodes_without_a_price_and_counts_zero_for_them(
    folder: Path, tmp_path: Path, capsys: Said
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(GOOD + "  prices: {instanceTypes: {std.large: 0.2}}\n")
    answer = compared(folder, capsys, "--policy", policy, "--compare-option", "maxNodesTotal=3")
    assert (answer["difference"]["cost"], answer["difference"]["unpriced"]) == ([0, 0], ["b"])


def test_comparison_of_expanders_shows_another_group(folder: Path, capsys: Said) -> None:
    """Group b wastes less with two nodes; group c needs only one."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["nodeGroups"].append(
        {"id": "c", "min": 0, "max": 1, "size": 0, "template": node("t", "c", "8")}
    )
    (folder / "manifest.json").write_text(json.dumps(manifest))
    answer = compared(folder, capsys, "--compare-option", "expander=least-nodes")
    assert [[up["group"] for up in each["plan"]["scaleUps"]] for each in answer["plans"]] == [
        ["b"],
        ["c"],
    ]
    assert (answer["difference"]["nodes"], answer["difference"]["pods"]) == ([2, 1], [2, 2])
    assert [each["options"]["expander"] for each in answer["plans"]] == [
        ["least-waste"],
        ["least-nodes"],
    ]


def test_compared_option_is_validated_like_any_other(folder: Path, capsys: Said) -> None:
    assert main(["plan", "--snapshot", str(folder), "--compare-option", "maxNodesTotl=3"]) == 2
    assert (
        capsys.readouterr().err
        == "--compare-option: maxNodesTotl: is unknown; did you mean maxNodesTotal?\n"
    )
