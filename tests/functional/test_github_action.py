"""The GitHub Action, its example workflow and the hook of pre-commit: their forms, their
reports, their comments.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cli.main import COMMANDS
from infra.action.__main__ import LONGEST, MARK, fenced, main, report
from infra.release.wheel_build import repository
from tests.functional.test_workflows import WORKFLOWS, audited, valid
from tests.source_trees import ROOT

FOLDER = ROOT / "infra" / "action"
ACTION: dict[str, Any] = yaml.safe_load((FOLDER / "action.yml").read_text("utf-8"))
POLICY = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: prod}
spec:
  mode: shadow
  kubernetes: {kubeconfigSecret: outscaler/dev/prod/kubeconfig}
  providers:
    clusterapi: {clusterName: prod}
"""


@pytest.mark.parametrize(
    ("file", "schema"),
    [("action.yml", "github-actions"), ("example-workflow.yml", "github-workflows")],
)
def test_action_and_example_have_a_form_that_github_accepts(file: str, schema: str) -> None:
    assert valid(FOLDER / file, schema)


def test_audit_of_the_action_and_its_example_has_no_findings(tmp_path: Path) -> None:
    assert audited(FOLDER) == 0
    workflows = tmp_path / ".github" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "example.yml").write_text((FOLDER / "example-workflow.yml").read_text("utf-8"))
    assert audited(tmp_path) == 0


def test_action_and_workflows_use_the_same_commits_of_other_actions() -> None:
    texts = [file.read_text("utf-8") for file in (*WORKFLOWS, *FOLDER.glob("*.yml"))]
    uses = {name: set() for name in ("actions/checkout", "actions/setup-python")}  # type: dict[str, set[str]]
    for text in texts:
        for name, commit in re.findall(r"uses: ([\w./-]+)@([0-9a-f]{40}) # v", text):
            uses.setdefault(name, set()).add(commit)
    assert {name: len(commits) for name, commits in uses.items()} == dict.fromkeys(uses, 1)
    assert any(
        name == f"{repository().removeprefix('https://github.com/')}/infra/action" for name in uses
    )


def test_example_gives_inputs_that_the_action_has() -> None:
    example = yaml.safe_load((FOLDER / "example-workflow.yml").read_text("utf-8"))
    given = example["jobs"]["policies"]["steps"][-1]["with"]
    assert given
    assert set(given) <= set(ACTION["inputs"])


def test_scripts_of_the_action_get_inputs_by_variables_only() -> None:
    scripts = [step["run"] for step in ACTION["runs"]["steps"] if "run" in step]
    assert len(scripts) == 4
    assert [script for script in scripts if "${{" in script] == []


def test_action_installs_from_the_lock_of_its_own_commit() -> None:
    [install] = [step["run"] for step in ACTION["runs"]["steps"] if step.get("name") == "install"]
    assert '--require-hashes --only-binary=:all: -r "$SOURCE/requirements-cli.txt"' in install


@pytest.fixture
def repository_of_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A valid policy with a captured cluster, in the current folder."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "prod.yaml").write_text(POLICY)
    snapshot = tmp_path / "snapshots" / "prod"
    snapshot.mkdir(parents=True)
    (snapshot / "manifest.json").write_text('{"nodeGroups": []}')
    for kind in ("nodes", "pods"):
        (snapshot / f"{kind}.json").write_text(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": []})
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def reported(*arguments: str) -> tuple[int, str]:
    out = Path("report")
    return main([*arguments, "--out", str(out)]), out.read_text("utf-8")


def test_report_shows_the_check_and_the_plan_of_a_policy(repository_of_policies: Path) -> None:
    code, text = reported("--policies", "policies/*.yaml", "--snapshots", "snapshots")
    assert code == 0, text
    assert text.startswith(f"{MARK}\n")
    assert "1 of 1 policies are valid." in text
    assert "Cluster prod at " in text


def test_report_fails_where_a_policy_is_not_valid(repository_of_policies: Path) -> None:
    (repository_of_policies / "policies" / "lab.yaml").write_text(
        POLICY.replace("shadow", "sometimes")
    )
    code, text = reported("--policies", "policies/*.yaml\n\n")
    assert code == 1
    assert "1 of 2 policies are valid." in text
    assert "spec.mode" in text
    assert "Traceback" not in text


def test_report_without_a_policy_fails(repository_of_policies: Path) -> None:
    assert reported("--policies", "nowhere/*.yaml") == (
        2,
        f"{MARK}\n### Outscaler\n\nNo policy matches the patterns.\n",
    )


@pytest.mark.parametrize(
    "text", ["", "[]", "metadata: {name: ../..}", "metadata: 1", "a: [", "- " * 3000]
)
def test_hostile_policy_is_not_valid_and_never_fails_the_report(
    repository_of_policies: Path, text: str
) -> None:
    (repository_of_policies / "policies" / "prod.yaml").write_text(text)
    code, shown = reported("--policies", "policies/*.yaml", "--snapshots", "snapshots")
    assert code == 1
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    "place", ["file", "folder", "chain", "relative", "broken snapshot", "snapshot", "snapshots"]
)
def test_link_in_a_pull_request_is_not_followed(repository_of_policies: Path, place: str) -> None:
    top, policies = repository_of_policies, repository_of_policies / "policies"
    outside = top.parent / f"{top.name}-outside"
    outside.mkdir()
    secret = outside / "x.yaml"
    secret.write_text("the-secret-text: [")
    if place == "file":
        (policies / "x.yaml").symlink_to(secret)
    elif place == "chain":
        (top / "y").symlink_to(secret)
        (policies / "x.yaml").symlink_to(top / "y")
    elif place == "relative":
        (policies / "x.yaml").symlink_to(f"../../{outside.name}/x.yaml")
    elif place == "folder":
        (policies / "prod.yaml").unlink()
        policies.rmdir()
        policies.symlink_to(outside)
    elif place == "snapshots":
        (top / "snapshots").rename(outside / "snapshots")
        (top / "snapshots").symlink_to(outside / "snapshots")
    else:
        (top / "snapshots" / "prod" / "nodes.json").unlink()
        target = outside / "gone" if place == "broken snapshot" else secret
        (top / "snapshots" / "prod" / "nodes.json").symlink_to(target)
    code, text = reported("--policies", "policies/*.yaml", "--snapshots", "snapshots")
    assert code == 1
    assert "the-secret" not in text
    assert "link" in text
    assert "Cluster prod at" not in text or place in ("file", "chain", "relative")


def test_policy_outside_of_the_checkout_is_not_read(repository_of_policies: Path) -> None:
    outside = repository_of_policies.parent / f"{repository_of_policies.name}.yaml"
    outside.write_text("the-secret-text: [")
    code, text = reported("--policies", f"policies/../../{outside.name}")
    assert code == 1
    assert "outside of the checkout" in text
    assert "the-secret" not in text


def test_policy_with_the_name_of_a_flag_is_a_file(repository_of_policies: Path) -> None:
    (repository_of_policies / "--help.yaml").write_text(POLICY)
    code, text = reported("--policies=-*.yaml")
    assert code == 0
    assert "usage" not in text


@pytest.mark.parametrize("text", ["```\n<script>", "a ````` b", "plain"])
def test_text_cannot_end_its_block_of_code(text: str) -> None:
    first, *_, last = fenced(text).splitlines()
    assert first == last
    assert first not in text


def test_report_ends_before_a_comment_is_full() -> None:
    text = report(9, ["x" * 20_000] * 9)
    assert len(text) < LONGEST + 100
    assert text.endswith("\n7 more are left out.\n")


_GH = """\
#!/usr/bin/env bash
echo "$@" >> "$CALLS"
case "$*" in *--jq*) printf '%s' "$EARLIER" ;; esac
"""


@pytest.mark.parametrize(
    ("earlier", "call"),
    [
        ("", "api --method POST repos/o/r/issues/7/comments --field body=@report --silent"),
        (
            "41\n52\n",
            "api --method PATCH repos/o/r/issues/comments/41 --field body=@report --silent",
        ),
    ],
    ids=["first", "again"],
)
def test_comment_of_an_earlier_run_is_replaced(tmp_path: Path, earlier: str, call: str) -> None:
    (tmp_path / "gh").write_text(_GH)
    (tmp_path / "gh").chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "EARLIER": earlier,
        "REPOSITORY": "o/r",
        "NUMBER": "7",
        "REPORT": "report",
    }
    subprocess.run(["bash", str(FOLDER / "comment.sh")], env=environment, check=True, cwd=tmp_path)
    asked, done = (tmp_path / "calls").read_text().splitlines()
    assert MARK in asked
    assert done == call


def test_hook_runs_a_command_that_exists_on_policies() -> None:
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    program, command = hook["entry"].split()
    assert program == "outscaler"
    assert command in {each.name for each in COMMANDS}
    names = ("policies/a.yaml", "x/policies/b.yml", "docs/a.yaml", "policies/x/c.yaml")
    assert [name for name in names if re.search(hook["files"], name)] == [
        "policies/a.yaml",
        "x/policies/b.yml",
    ]
