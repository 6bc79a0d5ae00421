"""Ctrl-C and SIGTERM: commands clean up, print at most one line, and have exit code 130."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from chalicelib.model.policy_permissions import Deployment
from chalicelib.policy.load import digest
from chalicelib.store import Store
from infra.demo.fixture import status_page
from infra.emulators.aws import LocalAws
from infra.emulators.example_clusters import NOW, example
from tests.processes import PATIENCE, children, is_running, python, started

ROOT = Path(__file__).resolve().parents[2]
SIGNALS = (signal.SIGINT, signal.SIGTERM)
POLICY = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: mine}
spec:
  mode: active
  kubernetes: {kubeconfigSecret: outscaler/dev/mine/kubeconfig}
  providers:
    exoscale: {zone: ch-gva-2, credentialsSecret: outscaler/dev/all/exoscale, endpoint: \
"https://proxy.example"}
"""
WORKING = """
import sys, tempfile, time
from infra.tools.interruptible import run

def main():
    with tempfile.TemporaryDirectory() as folder:
        try:
            print(folder, flush=True)
            time.sleep(1000)
        finally:
            print("cleans up", flush=True)
            sys.stdin.readline()
    return 0

run(main)
"""


def line_with(process: subprocess.Popen[str], words: str) -> str:
    """The first line of the output with these words; the lines before it are read."""
    assert process.stdout is not None
    return next(line for line in process.stdout if words in line)


@pytest.mark.parametrize("first", SIGNALS)
@pytest.mark.parametrize("second", SIGNALS)
def test_further_signals_do_not_stop_the_cleaning_up(first: int, second: int) -> None:
    with started(python("-c", WORKING), cwd=ROOT) as process:
        folder = Path(line_with(process, os.sep).strip())
        process.send_signal(first)
        line_with(process, "cleans up")
        process.send_signal(second)
        out, err = process.communicate("\n", timeout=PATIENCE)
    assert (process.returncode, out, err, folder.exists()) == (130, "", "interrupted\n", False)


@pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="processes are not listed in /proc"
)
@pytest.mark.parametrize(
    ("number", "at"), [(signal.SIGINT, "Starting"), (signal.SIGTERM, "1. A small cluster")]
)
def test_interrupted_demonstration_leaves_nothing_behind(
    number: int, at: str, tmp_path: Path
) -> None:
    with started(
        python("-m", "infra.demo", "--place", str(tmp_path / "local")), cwd=ROOT
    ) as process:
        line_with(process, at)
        functions = children(process.pid)
        assert functions or at == "Starting"  # which is said before the first function is started
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, "interrupted\n")
    assert "Traceback" not in out
    assert {path.name for path in tmp_path.glob("local/*")} <= {"run.log"}
    assert [child for child in functions if is_running(child)] == []


def test_page_of_the_demonstration_ends_without_an_exception_in_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    before = set(threading.enumerate())
    with status_page(example(), lambda: NOW, Deployment()) as address:
        assert b"<h1>Clusters</h1>" in shown(address)
    new = set(threading.enumerate()) - before
    for thread in new:  # one that has just answered is still ending
        thread.join(PATIENCE)
    assert ({thread for thread in new if thread.is_alive()}, failures) == (set(), [])


def shown(address: str) -> bytes:
    """The page behind an address, with its cookie."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    with opener.open(address, timeout=PATIENCE) as answer:
        return bytes(answer.read())


@pytest.mark.parametrize("number", SIGNALS)
def test_ui_judges_as_the_functions_do_and_ends_at_a_signal(
    number: int, aws: LocalAws, tmp_path: Path
) -> None:
    table = f"page-{number}-state"
    aws.create_table(table)
    store = Store(table, clock=lambda: NOW, region="us-east-1", client=aws.client("dynamodb"))
    store.policies.put("mine", POLICY, digest(POLICY), None)
    store.deployment_settings().publish(
        Deployment(
            "outscaler/dev/",
            frozenset({"outscaler/dev/all/exoscale"}),
            frozenset({"proxy.example"}),
        )
    )
    environment = aws.env | {
        "OUTSCALER_PROFILE": str(tmp_path / "none.json"),
        "OUTSCALER_SECRET_PREFIX": "other/",
    }
    command = python("-m", "chalicelib", "ui", "--no-open", "--table", table)
    with started(command, environment, cwd=ROOT) as process:
        page = shown(line_with(process, "http://").strip()).decode()
        assert (re.findall(r'class="tag \w+ \w*">([^<]+)<', page), "Not judged here" in page) == (
            ["no passes"],
            False,
        )
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert err.splitlines()[1:] == []  # one line says how the page ends
