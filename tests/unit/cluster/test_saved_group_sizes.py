"""The size of a saved node group: counted from its nodes unless the manifest gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli.saved.saved_cluster import read
from chalicelib.model.errors import BadInput
from chalicelib.model.snapshot import Snapshot
from tests.functional.saved_cluster import node, save


def _saved(folder: Path, *groups: dict[str, Any]) -> Path:
    return save(folder / "saved", [node("a-0", "a"), node("a-1", "a")], (), groups)


def _read(folder: Path) -> Snapshot:
    return read(folder, node_groups=None, cluster="c", taken_at=0.0)


def test_saved_group_without_a_size_has_that_of_its_member_nodes(tmp_path: Path) -> None:
    snapshot = _read(_saved(tmp_path, {"id": "a"}, {"id": "empty"}))
    assert {group.id: group.target for group in snapshot.groups} == {"a": 2, "empty": 0}


def test_saved_size_below_the_member_nodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"nodeGroups\[0\]\.size: 1 is below the 2 nodes .* leave size out"
    ):
        _read(_saved(tmp_path, {"id": "a", "size": 1}))


def test_missing_manifest_error_names_the_command_that_drafts_it(tmp_path: Path) -> None:
    folder = _saved(tmp_path)
    (folder / "manifest.json").unlink()
    with pytest.raises(BadInput, match=r"outscaler groups .* > .*manifest\.json"):
        _read(folder)
