"""Shell completion knows every command, its arguments, their files, and the names in the tables."""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from argcomplete.finders import CompletionFinder

from chalicelib.cli.commands import completion
from chalicelib.cli.commands.completion import SHELLS
from chalicelib.cli.deployment_settings import Login, save_login
from chalicelib.cli.main import COMMANDS, main
from tests.functional.test_cli_get import LAB, SHOP, empty, lab, store

__all__ = ["empty", "lab", "store"]  # fixtures

ROOT = Path(__file__).resolve().parents[2]
Said = pytest.CaptureFixture[str]
Complete = Callable[[str], list[str]]


class QuietFinder(CompletionFinder):
    """Leaves the file descriptors of this process alone."""

    def _init_debug_stream(self) -> None:
        return


def script(shell: str, capsys: Said) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch) -> Complete:
    """What a shell offers at the end of a line."""

    def words(line: str) -> list[str]:
        for name, value in {
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n",
            "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
        }.items():
            monkeypatch.setenv(name, value)
        out = io.StringIO()
        finder = QuietFinder()
        with pytest.raises(SystemExit) as ended:
            finder(
                completion.typed_parser(line),
                always_complete_options=False,
                exit_method=sys.exit,
                output_stream=out,
            )
        assert ended.value.code in (0, None)
        return [word.strip() for word in out.getvalue().split("\n") if word]

    return words


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_script_calls_the_command_back(shell: str, capsys: Said) -> None:
    text = script(shell, capsys)
    assert "_ARGCOMPLETE" in text
    assert "outscaler" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_one_that_the_shell_reads(
    shell: str, tmp_path: Path, capsys: Said
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"this machine has no {shell}")
    path = tmp_path / "completion"
    path.write_text(script(shell, capsys))
    subprocess.run([shell, "-n", str(path)], check=True, timeout=600)


@pytest.mark.skipif(shutil.which("bash") is None, reason="this machine has no bash")
def test_bash_completes_commands_and_arguments(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "completion").write_text(script("bash", capsys))
    program = tmp_path / "outscaler"
    program.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m chalicelib "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for line, expected in (
        ("outscaler cap", "capture"),
        ("outscaler plan --kubec", "--kubeconfig"),
        ("outscaler get gro", "groups"),
    ):
        call = f"""source {tmp_path}/completion; COMP_LINE="{line}"; COMP_POINT={len(line)}; \
COMP_TYPE=9
            _python_argcomplete outscaler; printf '%s\\n' "${{COMPREPLY[@]}}" """
        done = subprocess.run(
            ["bash", "-c", call],
            capture_output=True,
            text=True,
            timeout=600,
            check=True,
            env=environment,
        )
        assert expected in done.stdout.split(), line
        assert done.stderr == ""


def test_commands_arguments_and_forms_are_completed(complete: Complete) -> None:
    assert complete("outscaler ") == [command.name for command in COMMANDS]
    assert complete("outscaler ca") == ["capture", "catalogue"]
    assert "--context" in complete("outscaler plan --")
    assert complete("outscaler plan -o ") == ["table", "json", "yaml", "jsonpath="]
    assert complete("outscaler get -o ") == ["table", "wide", "name", "json", "yaml", "jsonpath="]
    assert complete("outscaler explain ") == ["pod", "node", "group"]
    assert complete("outscaler completion z") == ["zsh"]


def test_files_are_completed_where_an_argument_takes_one(
    complete: Complete, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "policy.yaml").touch()
    (tmp_path / "saved").mkdir()
    monkeypatch.chdir(tmp_path)
    assert complete("outscaler validate p") == ["policy.yaml"]
    assert complete("outscaler capture ") == ["saved/"]


@pytest.mark.usefixtures("lab")
def test_names_of_clusters_groups_nodes_and_pods_come_from_the_tables(complete: Complete) -> None:
    assert complete("outscaler get nodes ") == [LAB, SHOP]
    assert complete("outscaler pause s") == [SHOP]
    assert complete("outscaler get clusters ") == [LAB, SHOP]
    assert complete(f"outscaler get nodes {SHOP} ") == ["busy", "idle"]
    assert complete(f"outscaler get gr {SHOP} ") == ["burst", "web"]
    assert complete(f"outscaler get po {SHOP} default/h") == ["default/huge-00003"]
    assert complete(f"outscaler get op {SHOP} ") == ["grow-1"]
    assert complete(f"outscaler pause {SHOP} --group w") == ["web"]
    assert complete(f"outscaler retry {SHOP} node b") == ["busy"]
    assert complete("outscaler explain node --cluster l") == [LAB]
    assert complete(f"outscaler explain --cluster {SHOP} node i") == ["idle"]


@pytest.mark.usefixtures("store")
def test_names_of_the_only_cluster_need_no_cluster(complete: Complete) -> None:
    assert complete("outscaler explain node ") == ["busy", "idle"]


def test_completion_is_silent_where_no_table_answers(
    complete: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OUTSCALER_TABLE", raising=False)
    monkeypatch.setenv("OUTSCALER_PROFILE", "/nonexistent/profile.json")
    assert complete("outscaler get nodes ") == []


def test_contexts_come_from_the_kubeconfig_that_kubectl_takes(
    complete: Complete, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(
        "contexts: [{name: prod, context: {}}, {name: lab, context: {}}]\n"
    )
    (tmp_path / "other").write_text("contexts: [{name: elsewhere, context: {}}]\n")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert complete("outscaler plan --context ") == ["prod", "lab"]
    assert complete("outscaler capture my-cluster --context p") == ["prod"]
    assert complete(f"outscaler plan --kubeconfig {tmp_path}/other --context ") == ["elsewhere"]
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    assert complete("outscaler plan --context ") == []


def test_deployments_are_those_that_login_has_kept(
    complete: Complete, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTSCALER_PROFILE", str(tmp_path / "profile.json"))
    assert complete("outscaler config use ") == []
    save_login(Login("dev", "outscaler-dev-state"))
    save_login(Login("prod", "outscaler-prod-state"))
    assert complete("outscaler config use ") == ["dev", "prod"]
    assert complete("outscaler get --stage p") == ["prod"]
    assert "rbac" in complete("outscaler manifests ")


def test_command_behind_a_stage_is_completed(complete: Complete) -> None:
    assert "groups" in complete("outscaler --stage dev get gro")
    assert "groups" in complete("outscaler --stage=dev get gro")
    assert "history" in complete("outscaler --stage dev his")


def test_kinds_of_history_and_columns_of_get_are_completed(complete: Complete) -> None:
    assert complete("outscaler history shop --kind gro") == ["growth"]
    assert complete("outscaler get nodes shop --sort-by mem") == ["memory"]


def test_names_that_would_do_more_in_a_shell_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["web", "a\nrm -rf x", "\x1b[2J", "--all", "", "pool a"]
    monkeypatch.setattr(completion, "read_names", lambda args, kind: names)
    assert completion.stored_names(argparse.Namespace(), "groups") == ["web", "pool a"]


def test_names_that_take_too_long_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def slow(args: argparse.Namespace, kind: str) -> list[str]:
        ended.wait()
        return ["late"]

    monkeypatch.setattr(completion, "read_names", slow)
    monkeypatch.setattr(completion, "WAITED", 0.0)
    assert completion.stored_names(argparse.Namespace(), "nodes") == []
    ended.set()


def test_completion_for_an_unknown_shell_is_refused(capsys: Said) -> None:
    assert main(["completion", "cmd"]) == 2
    assert "'cmd' is not one of bash, zsh, fish" in capsys.readouterr().err
