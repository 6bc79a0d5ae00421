"""The commands of docs/start.md, run as written on a simulated cluster: their output is the
one that the page shows.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli.main import main
from tests.functional.captured_clusters import served
from tests.functional.saved_cluster import LONG_AGO, node, pod, workload
from tests.source_trees import ROOT

PAGE = ROOT / "docs" / "start.md"
_STEP = re.compile(
    r"```sh\n(?P<command>outscaler [^\n]+)\n```\n+```\n(?P<output>.*?)```\n", re.DOTALL
)
_CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\d\.\d{3} s"), "SECONDS"),
)
POOL, TYPE = "cce.cloud.com/cce-nodepool", "node.kubernetes.io/instance-type"


def _cluster() -> list[dict[str, Any]]:
    """Two pools and a control plane; pending pods that need nodes, one of which fits nowhere."""
    web = {"app": "web"}
    objects = [
        node("control-1", "", cpu="4", **{"node-role.kubernetes.io/control-plane": ""}),
        *(
            node(f"workers-{at}", "", cpu="4", **{POOL: "workers", TYPE: "c7.xlarge.2"})
            for at in (1, 2)
        ),
        node("batch-1", "", cpu="8", **{POOL: "batch", TYPE: "c7.2xlarge.2"}),
        *(
            pod(f"web-{at}", "3", on=f"workers-{at}", owner="ReplicaSet/web", labels=web)
            for at in (1, 2)
        ),
        *(pod(f"web-{at}", "3", owner="ReplicaSet/web", labels=web) for at in (3, 4, 5)),
        pod("train-0", "2", owner="StatefulSet/train", namespace="ml", nodeSelector={"gen": "4"}),
        pod("report-1", "6", on="batch-1", owner="Job/report"),
        {**workload("ReplicaSet", "web", 5), "apiVersion": "apps/v1"},
        workload("StatefulSet", "train", 1, namespace="ml"),
        workload("Job", "report"),
    ]
    for each in objects:
        if each["kind"] == "Node":
            name = each["metadata"]["name"]
            each["spec"]["providerID"] = f"id-of-{name}"
            if name == "control-1":
                each["spec"]["taints"] = [
                    {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
                ]
    found: list[dict[str, Any]] = json.loads(
        json.dumps(objects).replace(LONG_AGO, "2020-01-01T00:00:00Z")
    )
    return found


def _ran(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Runs one command line; returns what a terminal shows. `> FILE` is obeyed."""
    line, _, target = command.partition(" > ")
    if target:
        Path(target).write_text("")
    assert main(shlex.split(line)[1:]) == 0, capsys.readouterr().err
    said = capsys.readouterr()
    if target:
        Path(target).write_text(said.out)
    return said.err + ("" if target else said.out)


def _steady(text: str) -> str:
    for pattern, word in _CHANGING:
        text = pattern.sub(word, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def test_commands_of_the_start_page_print_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [
        (found["command"], found["output"]) for found in _STEP.finditer(PAGE.read_text("utf-8"))
    ]
    assert [command.split()[1] for command, _ in steps] == ["capture", "groups", "plan", "explain"]
    with served(tmp_path, _cluster()) as (_, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        monkeypatch.chdir(tmp_path)
        for command, output in steps:
            assert _steady(_ran(command, capsys)) == _steady(output), command
