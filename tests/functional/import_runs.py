"""Runs `outscaler import` on texts, and describes its result for assertions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from chalicelib.cli.main import main

Said = pytest.CaptureFixture[str]
ALICLOUD = ("--cloud-provider=alicloud", "--nodes=1:10:asg-bp18p2yfxow2dloq0001")
GIVEN = (
    "--name",
    "shop",
    "--region",
    "cn-hangzhou",
    "--credentials-secret",
    "outscaler/shop/alicloud",
)


class Imported(msgspec.Struct, frozen=True):
    """One run. rows: of the report, as JSON has them."""

    code: int
    out: str
    err: str
    document: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []

    @property
    def options(self) -> dict[str, Any]:
        """Return spec.options, empty where there are none."""
        found: dict[str, Any] = self.document["spec"].get("options", {})
        return found

    def rows_of(self, word: str) -> list[tuple[str, str]]:
        """Return (verdict, text) of the rows whose word has this text."""
        return [(row["verdict"], row["text"]) for row in self.rows if word in row["word"]]


def imported(said: Said, *arguments: str) -> Imported:
    """Import with JSON output."""
    code = main(["import", *arguments, "-o", "json"])
    found = said.readouterr()
    if not found.out:
        return Imported(code, found.out, found.err)
    document = json.loads(found.out)
    return Imported(code, found.out, found.err, document, document["report"])


def written(folder: Path, text: str, name: str = "deploy.yaml") -> str:
    """Write a file of the input and return its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def container(
    command: Iterable[Any] | None = None, args: Iterable[Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return a container of the autoscaler."""
    found: dict[str, Any] = {
        "name": "cluster-autoscaler",
        "image": "registry.example/cluster-autoscaler:v1.35.0",
    }
    if command is not None:
        found["command"] = list(command)
    if args is not None:
        found["args"] = list(args)
    return found | more


def workload(
    *containers: dict[str, Any], kind: str = "Deployment", name: str = "cluster-autoscaler"
) -> dict[str, Any]:
    """Return a workload with these containers."""
    spec: dict[str, Any] = {"containers": list(containers)}
    if kind != "Pod":
        spec = {"template": {"spec": spec}}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    return {"kind": kind, "metadata": {"name": name, "namespace": "kube-system"}, "spec": spec}


def manifest(*documents: dict[str, Any]) -> str:
    """Return the documents as YAML."""
    return yaml.safe_dump_all(documents, sort_keys=False)


def import_flags(said: Said, folder: Path, *flags: str, given: Iterable[str] = GIVEN) -> Imported:
    """Import a Deployment of alicloud with further flags."""
    text = manifest(workload(container(["./cluster-autoscaler", *ALICLOUD, *flags])))
    return imported(said, written(folder, text), *given)
