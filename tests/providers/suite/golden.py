"""Compares node templates with reviewed golden files, alike for all providers.

A file describes the node in readable form: `OUTSCALER_WRITE_GOLDEN=1` rewrites it, and
the diff is to be reviewed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chalicelib.model.node import Node

WRITE = "OUTSCALER_WRITE_GOLDEN"


def as_json(node: Node, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns a node template as plain data in the units of model.Node, without empty fields. more:
    related data (attach limits, devices)."""
    found: dict[str, Any] = {
        "name": node.name,
        "labels": dict(sorted(node.labels.items())),
        "capacity": dict(sorted(node.capacity.items())),
        "allocatable": dict(sorted(node.allocatable.items())),
        "taints": [str(taint) for taint in node.taints],
        "annotations": dict(sorted(node.annotations.items())),
        "unschedulable": node.unschedulable,
        **{key: value for key, value in (more or {}).items() if value},
    }
    return {
        key: value for key, value in found.items() if value or key in {"name", "labels", "capacity"}
    }


def assert_golden(node: Node | None, path: Path, **more: Any) -> None:
    """Asserts that the node equals the file, field by field; with the environment's
    OUTSCALER_WRITE_GOLDEN=1 the file is
    written first. more: further named parts, compared where they are not empty."""
    assert node is not None, f"{path.name}: there is no template node"
    found = as_json(node, more)
    if os.environ.get(WRITE) == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    assert path.is_file(), f"{path.name} is missing; write it with {WRITE}=1 and review it"
    assert found == json.loads(path.read_text(encoding="utf-8")), (
        f"{path.name} differs; {WRITE}=1 writes it anew"
    )
