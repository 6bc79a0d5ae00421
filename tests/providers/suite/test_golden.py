"""The comparison with golden files detects differences, and writes only on request."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.model.node import Node, Taint
from tests.providers.suite.golden import WRITE, assert_golden

NODE = Node(
    "t", {"b": "2", "a": "1"}, {"cpu": 900}, {"cpu": 1000}, taints=(Taint("k", "NoSchedule", "v"),)
)


def test_golden_file_equals_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "golden" / "t.json"
    with pytest.raises(AssertionError, match="missing"):
        assert_golden(NODE, path)
    monkeypatch.setenv(WRITE, "1")
    assert_golden(NODE, path, volumes={"d": 25}, devices={})
    monkeypatch.delenv(WRITE)
    assert_golden(NODE, path, volumes={"d": 25})
    with pytest.raises(AssertionError, match="differs"):
        assert_golden(NODE, path)


@pytest.mark.parametrize(
    "other",
    [
        Node("t", {"b": "2"}, {"cpu": 900}, {"cpu": 1000}, taints=NODE.taints),
        Node("t", NODE.labels, {"cpu": 901}, {"cpu": 1000}, taints=NODE.taints),
        Node("t", NODE.labels, {"cpu": 900}, {"cpu": 1000}),
        Node("t", NODE.labels, {"cpu": 900}, {"cpu": 1000}, taints=NODE.taints, unschedulable=True),
    ],
)
def test_golden_comparison_detects_any_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: Node
) -> None:
    path = tmp_path / "t.json"
    monkeypatch.setenv(WRITE, "1")
    assert_golden(NODE, path)
    monkeypatch.delenv(WRITE)
    with pytest.raises(AssertionError, match="differs"):
        assert_golden(other, path)


def test_golden_comparison_reports_a_missing_template(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no template node"):
        assert_golden(None, tmp_path / "t.json")
