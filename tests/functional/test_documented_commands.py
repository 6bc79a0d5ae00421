"""The `outscaler …` commands of all pages, run as they stand on one emulated cluster and account.

A line that cannot run there has a row with the reason.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from chalicelib.cli.main import main
from infra.emulators.aws import LocalAws
from infra.emulators.controllers import objects
from infra.emulators.local_world import LocalWorld
from tests.unit.test_docs import DOCS, block_lines
from tests.unit.test_docs_commands import command_lines

POLICY = """
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: prod}
spec:
  mode: shadow
  kubernetes: {kubeconfigSecret: outscaler/prod/kubeconfig}
  providers: {clusterapi: {}}
  prices: {cpu: 0.03, memory: 0.004, currency: EUR}
  consolidation: {mode: shadow}
"""
INTERRUPTED = 130  # the exit code after Ctrl-C

#: Made from the parser; of older releases; typed by test_documented_start.py.
_OTHERS = ("commands.md", "CHANGELOG.md", "start.md")

#: Words of the pages that stand for a reader's own.
_PLACEHOLDERS = {
    "NAME": "prod",
    "CLUSTER": "prod",
    "DIR": "my-cluster",
    "GROUP": "workers",
    "new.yaml": "prod.yaml",
    "shop.yaml": "prod.yaml",
    "~/.kube/config": "kubeconfig",
    "kubeconfig.outscaler": "kubeconfig",
    "workload": "kubeconfig",
    "management": "kubeconfig",
}
#: Beginnings of lines that do not run here, and the reason.
NOT_RUN = {
    "apply": "moving_over.py and docs/start.md",
    "catalogue": "an account of each vendor, which test_cli_catalogue.py has",
    "config": "a login, which docs/start.md has",
    "doctor": "moving_over.py and docs/start.md",
    "import": "moving_over.py, and the importer's own tests",
    "init": "docs/start.md",
    "kubeconfig": "docs/start.md",
    "login": "docs/start.md",
    "release": "a tripped breaker",
    "replay": "a bucket with recorded decisions",
    "retry": "an operation that has failed",
    "ui": "docs/start.md",
    "uninstall": "moving_over.py",
    "get clusters --stage": "a login of that stage",
    "plan --context": "a kubeconfig with that context",
    "plan --kubeconfig kubeconfig --management-kubeconfig": "a second cluster",
    "plan -": "standard input",
    "plan my-cluster --catalogue": "a vendor's catalogue, which test_cli_managed_cost.py has",
    "cost my-cluster --managed": "a vendor's catalogue, which test_cli_managed_cost.py has",
    "pools prune prod --pool": "a policy with managed pools, which test_cli_pools.py has",
    "pools drain prod": "groups that retire, which test_cli_pools.py has",
    "plan dump": "a folder of kubectl cluster-info dump",
    "plan my-cluster --memory": "a memory of an earlier plan",
    "cost prod --with-policy": "a bucket with recorded decisions",
}


def lines() -> dict[str, str]:
    """Each command line of a block, with the page that has it first."""
    pages: dict[str, str] = {}
    for document in DOCS:
        if document.name in _OTHERS:
            continue
        for words in command_lines(block_lines(document)):
            if "…" in "".join(words):
                continue
            line = shlex.join(words)
            for word, value in _PLACEHOLDERS.items():
                line = re.sub(rf"(?<![\w./-]){re.escape(word)}(?![\w./-])", value, line)
            pages.setdefault(_with_files(line), document.name)
    return pages


def _with_files(line: str) -> str:
    line = re.sub(r"--kubeconfig FILE", "--kubeconfig kubeconfig", line)
    return re.sub(r"--(with-)?policy FILE", r"--\1policy prod.yaml", line)


def reason_not_to_run(line: str) -> str:
    """The longest row of NOT_RUN that a line begins with, "" for one that runs."""
    rows = [start for start in NOT_RUN if f"{line} ".startswith(f"{start} ")]
    return max(rows, key=len, default="")


def test_every_documented_command_runs_on_the_emulation_or_says_why_not() -> None:
    failures = []
    skipped: set[str] = set()
    ran = 0
    with _prepared():
        for line, page in lines().items():
            if row := reason_not_to_run(line):
                skipped.add(row)
                continue
            ran += 1
            code, said = _ran(line)
            if code:
                failures.append(f"{page}: outscaler {line}: exit {code}\n{said}")
    assert failures == []
    assert ran > 40
    assert skipped == NOT_RUN.keys()


def _ran(line: str) -> tuple[int, str]:
    """Run a line; one that looks again and again is interrupted when it first waits."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch("time.sleep", side_effect=KeyboardInterrupt),
    ):
        code = main(shlex.split(line))
    is_watching = " -w" in line or "--follow" in line
    return 0 if is_watching and code == INTERRUPTED else code, err.getvalue()


@contextlib.contextmanager
def _prepared() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as name, LocalAws() as aws:
        folder = Path(name)
        with LocalWorld(aws, name="prod") as world:
            environment = {
                **aws.env,
                "OUTSCALER_TABLE": world.services.table,
                "OUTSCALER_SECRET_PREFIX": "outscaler/",
                "KUBECONFIG": str(folder / "kubeconfig"),
            }
            before = Path.cwd()
            logging.disable(logging.CRITICAL)  # the log of the functions
            with (
                mock.patch.dict(os.environ, environment),
                mock.patch("time.time", world.clock),
                mock.patch("time.sleep", world.step),
            ):
                os.chdir(folder)
                try:
                    _furnish(world, folder)
                    yield
                finally:
                    os.chdir(before)
                    logging.disable(logging.NOTSET)


def _furnish(world: LocalWorld, folder: Path) -> None:
    """The cluster that the pages speak of, half an hour after its policy was applied."""
    web = objects.deployment("web", namespace="shop", replicas=4, cpu="1")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-7f9c-x2x", "namespace": "shop", "labels": {"app": "web"}},
        "spec": web["spec"]["template"]["spec"],
    }
    world.seed(
        objects.cluster(),
        *(
            objects.machine_deployment(name, size, 0, 8, labels={"pool": name})
            for name, size in (("workers", 2), ("web", 1), ("spot", 1))
        ),
        *(objects.node(f"worker-{number}") for number in (3, 4)),
        web,
    )
    world.step(300)
    world.seed(pod)
    (folder / "kubeconfig").write_text(world.server.kubeconfig(), "utf-8")
    (folder / "prod.yaml").write_text(POLICY, "utf-8")
    (folder / "deployment.yaml").write_text(json.dumps(web), "utf-8")
    world.apply_policy(POLICY)
    world.step(1800)
    for command in ("capture my-cluster", "groups my-cluster"):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            assert main(command.split()) == 0
        if command.startswith("groups"):
            (folder / "my-cluster" / "manifest.json").write_text(out.getvalue(), "utf-8")
