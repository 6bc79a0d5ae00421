"""The GitHub workflows are valid, have no more rights than needed, and run the same
commands as a developer.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.policy.providers import PROVIDERS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
BIN = Path(sys.executable).parent
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
EVERY = pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
_PINNED = re.compile(r"uses: ([\w.-]+/[\w./-]+)@([0-9a-f]{40}) # v(\d+\.\d+\.\d+)$")


def read(file: Path) -> dict[str, Any]:
    """A workflow. YAML reads the key `on` as a truth value."""
    found: dict[Any, Any] = yaml.safe_load(file.read_text())
    return {("on" if key is True else key): value for key, value in found.items()}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / command[0]), *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )


def valid(file: Path, schema: str) -> bool:
    return (
        run("check-jsonschema", "--builtin-schema", f"vendor.{schema}", str(file)).returncode == 0
    )


def audited(folder: Path) -> int:
    """The exit code of zizmor: 0 without findings."""
    return run(
        "zizmor", "--offline", "--no-progress", "--quiet", "--persona", "auditor", str(folder)
    ).returncode


def test_workflows_exist_for_tests_fault_seeds_and_releases() -> None:
    assert [file.name for file in WORKFLOWS] == ["faults.yml", "release.yml", "test.yml"]


@EVERY
def test_workflow_has_a_form_that_github_accepts(file: Path) -> None:
    assert valid(file, "github-workflows")


def test_dependabot_configuration_has_a_form_that_github_accepts() -> None:
    assert valid(ROOT / ".github" / "dependabot.yml", "dependabot")


@pytest.mark.parametrize(
    ("name", "schema"),
    [("config", "issue-config"), ("bug", "issue-forms"), ("feature", "issue-forms")],
)
def test_issue_form_has_a_form_that_github_accepts(name: str, schema: str) -> None:
    assert valid(ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml", f"github-{schema}")


def test_bug_report_offers_every_provider() -> None:
    form = read(ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml")
    [options] = [
        each["attributes"]["options"] for each in form["body"] if each.get("id") == "provider"
    ]
    assert len(options) == 1 + len(PROVIDERS)


def test_linters_detect_an_invalid_workflow(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yml"
    broken.write_text("on: push\njobs: {a: {steps: []}}\n")
    assert not valid(broken, "github-workflows")
    place = tmp_path / ".github" / "workflows"
    place.mkdir(parents=True)
    text = (
        (FOLDER / "test.yml").read_text().replace("08c6903cd8c0fde910a37f88322edcfb5dd907a8", "v5")
    )
    (place / "test.yml").write_text(text)
    assert audited(tmp_path) != 0


def test_workflow_audit_has_no_findings() -> None:
    assert audited(ROOT / ".github") == 0


@EVERY
def test_every_action_is_pinned_to_a_commit_with_its_version(file: Path) -> None:
    lines = [
        line.strip().removeprefix("- ") for line in file.read_text().splitlines() if "uses:" in line
    ]
    assert lines
    assert [line for line in lines if not _PINNED.fullmatch(line)] == []


def test_each_action_has_the_same_commit_everywhere() -> None:
    pins = {
        (match[1], match[2], match[3])
        for file in WORKFLOWS
        for line in file.read_text().splitlines()
        if (match := _PINNED.search(line))
    }
    assert len({action for action, _, _ in pins}) == len(pins)


@EVERY
def test_every_job_has_a_timeout_and_only_a_release_may_write(file: Path) -> None:
    workflow = read(file)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    assert workflow["concurrency"]["group"]
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 90
        writes = {right for right, given in job.get("permissions", {}).items() if given == "write"}
        assert not writes or (file.stem, name) in {("release", "publish"), ("release", "index")}


def test_tests_run_on_every_supported_python() -> None:
    pythons = read(FOLDER / "test.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest, beyond = (int(found) for found in re.findall(r"3\.(\d+)", wanted))
    assert pythons == [f"3.{minor}" for minor in range(oldest, beyond)]


def test_job_with_write_access_runs_no_code_of_the_repository() -> None:
    """The build has no right to publish; the publishing jobs verify checksums and build nothing."""
    jobs = read(FOLDER / "release.yml")["jobs"]
    programs = {}
    for name in ("publish", "index"):
        steps = jobs[name]["steps"]
        assert not [step for step in steps if "checkout" in step.get("uses", "")]
        programs[name] = [step["run"].split()[0] for step in steps if "run" in step]
    assert programs == {"publish": ["sha256sum", "gh"], "index": ["sha256sum", "install"]}
    assert (jobs["publish"]["needs"], jobs["index"]["needs"]) == ("build", "publish")
    assert "write" not in jobs["build"]["permissions"].values()


def test_make_targets_used_by_workflows_exist() -> None:
    recipes = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = set(
        re.findall(r"run: make ([a-z-]+)", "\n".join(file.read_text() for file in WORKFLOWS))
    )
    assert called == {"test", "faults", "release"}
    assert called <= recipes
