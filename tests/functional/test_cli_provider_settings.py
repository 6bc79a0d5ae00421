"""`validate` and `apply` report the providers' checks of their settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli.main import main
from tests.scenario.policies import document


def _file(place: Path, **providers: Any) -> str:
    groups = [{"provider": "alicloud", "id": "asg-1", "min": 1}]
    path = place / "policy.yaml"
    path.write_text(
        document(providers=providers, nodeGroups=groups if "alicloud" in providers else []), "utf-8"
    )
    return str(path)


@pytest.mark.parametrize("command", [["validate"], ["apply", "--dry-run"]])
def test_contradictory_provider_settings_are_all_reported_at_once(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _file(
        tmp_path,
        alicloud={"region": "cn-hangzhou", "roleArn": "acs:ram::1:role/scaler"},
        clusterapi={},
    )
    assert main([*command, file]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.removeprefix(f"{file}: ").partition(":")[0] for line in said] == [
        "spec.providers.alicloud.credentialsSecret",
        "spec.nodeGroups",
    ]
    assert all("; " in line for line in said), "each says what would be right"


def test_correct_provider_settings_give_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _file(tmp_path, clusterapi={"namespace": "default"})
    assert main(["validate", file, "-o", "json"]) == 0
    [verdict] = json.loads(capsys.readouterr().out)
    assert (verdict["name"], verdict["problems"]) == ("shop", [])
