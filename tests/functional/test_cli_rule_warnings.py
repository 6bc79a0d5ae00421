"""Warnings about skipped parts of saved HorizontalNodeAutoscalers, printed besides the output
of `plan` and `explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli.main import main
from tests.functional.saved_cluster import node, save


def _rules(name: str, **more: Any) -> dict[str, Any]:
    rule = {
        "ruleName": "busy",
        "type": "Metric",
        "action": {"type": "ScaleUp", "unit": "Node", "value": 2},
        "metricTrigger": {
            "metricName": "Cpu",
            "metricOperation": ">",
            "metricValue": "70",
            "unit": "%",
        },
        **more,
    }
    return {
        "metadata": {"name": name, "namespace": "kube-system", "uid": f"uid-{name}"},
        "spec": {"targetNodepoolIds": ["g"], "rules": [rule]},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One object with an unknown field, one that is rejected and also has such a
    field, and a correct one."""
    made = save(
        tmp_path / "saved", [node("g-1", "g")], [], [{"id": "g", "min": 0, "max": 3, "size": 1}]
    )
    items = [
        _rules("odd", colour="red"),
        _rules("wrong", colour="red", ruleName=7),
        _rules("sound"),
    ]
    (made / "rules.json").write_text(
        json.dumps({"kind": "HorizontalNodeAutoscalerList", "items": items})
    )
    return made


@pytest.mark.parametrize("command", [["plan"], ["explain", "node", "g-1"]])
def test_CCE_A2_skipped_object_fields_are_warned_of_outside_the_output(
    folder: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--snapshot", str(folder), "-o", "json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)
    assert captured.err == (
        "warning: HorizontalNodeAutoscaler kube-system/odd: spec.rules[0].colour: is no field of "
        "it, and passed over\n"
    )


def test_horizontal_node_autoscalers_not_in_use_cause_no_warning(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text(
        "apiVersion: outscaler.dev/v1\nkind: Cluster\nmetadata: {name: saved}\nspec:\n"
        "  kubernetes: {kubeconfigSecret: example}\n  providers: {clusterapi: {}}\n"
        "  scaleUp: {horizontalNodeAutoscalers: false}\n"
    )
    assert main(["plan", "--snapshot", str(folder), "--policy", str(policy), "-o", "json"]) == 0
    assert "HorizontalNodeAutoscaler" not in capsys.readouterr().err
