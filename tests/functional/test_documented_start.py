"""docs/start.md, typed block by block: from nothing to a running deployment, in an emulated
AWS account whose functions run, with a cluster beside it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import chalicelib
from infra.emulators.aws import LocalAws
from infra.emulators.other_autoscaler import address
from infra.emulators.practice import Practice
from tests.functional.artifact import artifact
from tests.functional.deployments import small_package
from tests.functional.documented_page import PageShell, PageStep, section, steps, unlike
from tests.source_trees import ROOT

PAGE = (ROOT / "docs" / "start.md").read_text("utf-8")
WITHOUT_A_CLONE = "Without a clone"
RELEASE = chalicelib.__version__
TICK = 10.0
"""Seconds between two ticks of the schedule, which makes passes once a minute in AWS."""
_LOOKS = 20
#: The cluster of the emulation has a private address, which is an error of the doctor's.
_IN_ITS_NETWORK = {
    "outscaler doctor ": "outscaler doctor --vpc ",
    "outscaler apply ": "outscaler apply --vpc ",
}

pytestmark = pytest.mark.skipif(
    not (shutil.which("aws") and shutil.which("kubectl") and address()),
    reason="the page needs the AWS CLI, kubectl, and an address besides loopback",
)


def typed(step: PageStep) -> str:
    """What is typed of a block, in the network of the emulation."""
    script = step.script
    for command, other in _IN_ITS_NETWORK.items():
        script = script.replace(command, other)
    return script


@contextmanager
def desk(home: Path) -> Iterator[PageShell]:
    """A person's shell with an empty account and a cluster. pipx, git, make and curl bring what
    this checkout has, and the functions' code is not uploaded: the emulation runs the artifact."""
    with LocalAws() as aws:
        aws.reset()
        with Practice(aws, artifact().zip, home, address(), TICK) as practice:
            release = home / "release"
            release.mkdir()
            package = small_package(release)
            package.rename(release / "deployment-arm64.zip")
            template = release / f"outscaler-{RELEASE}-template.json"
            template.write_text(json.dumps(artifact().published("prod")), "utf-8")
            tools = {
                "pipx": "",
                "git": "",
                "curl": f'cp "{release}/$(basename "$2")" .',
                "make": f'[ "$*" = "-C outscaler deploy STAGE=dev" ] && exec {sys.executable} '
                f"-m infra.aws.deploy deploy --stage dev --package {release}/deployment-arm64.zip",
            }
            shell = home / "shell"
            shell.mkdir()
            yield PageShell(shell, {**aws.env, "KUBECONFIG": str(practice.kubeconfig)}, tools)


def play(shell: PageShell, step: PageStep) -> None:
    """Types a block, and opens the page where it says so. What only looks is typed again until it
    shows what the page says: functions are at work meanwhile."""
    script = typed(step)
    if script == "outscaler ui\n":
        page = shell.open_page()
        assert "shop" in page
        assert "no pass yet" not in page
        return
    looks = script.startswith(("outscaler get", "outscaler history"))
    for _ in range(_LOOKS if looks else 1):
        printed = shell.run(script)
        wrong = unlike(step.output, printed) if step.output else []
        if not wrong:
            return
    raise AssertionError("\n".join([script, *wrong]))


def test_start_page_leads_from_nothing_to_an_active_deployment(tmp_path: Path) -> None:
    blocks = [step for step in steps(PAGE) if step not in steps(section(PAGE, WITHOUT_A_CLONE))]
    typed_words = {word for step in blocks for word in step.script.split()}
    assert typed_words >= {"capture", "plan", "deploy", "login", "doctor", "apply", "ui", "pause"}
    with desk(tmp_path) as shell:
        for step in blocks:
            play(shell, step)


def test_start_page_leads_to_a_first_pass_without_a_clone(tmp_path: Path) -> None:
    access, policy = (
        steps(section(PAGE, title)) for title in ("3. Give it access", "4. Apply a policy")
    )
    with desk(tmp_path) as shell:
        for step in steps(section(PAGE, WITHOUT_A_CLONE)):
            play(shell, step)
        for step in (*access, *policy):
            play(shell, step)
