"""Shell completion knows every command, its arguments and their files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from chalicelib.command.commands.completion import SHELLS
from chalicelib.command.main import COMMANDS, main

Said = pytest.CaptureFixture[str]


def script(shell: str, capsys: Said) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_script_names_every_command(shell: str, capsys: Said) -> None:
    text = script(shell, capsys)
    assert [each.name for each in COMMANDS if each.name not in text] == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="this machine has no bash")
def test_bash_completes_commands_and_arguments(tmp_path: Path, capsys: Said) -> None:
    path = tmp_path / "completion"
    path.write_text(script("bash", capsys))
    for words, expected in (
        ("outscaler cap", "capture"),
        ("outscaler plan --kubec", "--kubeconfig"),
        ("outscaler plan -o j", "json"),
    ):
        *before, last = words.split()
        call = f"""source {path}; COMP_WORDS=({words}); COMP_CWORD={len(before)}
            _shtab_outscaler "outscaler" "{last}" "x"
            printf '%s\\n' "${{COMPREPLY[@]}}" """
        done = subprocess.run(["bash", "-c", call], capture_output=True, text=True, timeout=600, check=True)
        assert expected in done.stdout.split(), words


def test_completion_for_an_unknown_shell_is_refused(capsys: Said) -> None:
    assert main(["completion", "cmd"]) == 2
    assert "invalid choice: 'cmd'" in capsys.readouterr().err
