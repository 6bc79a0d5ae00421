"""make builds .venv with the newest working Python of the machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKS, BROKEN = "#!/bin/sh\nexit 0\n", "#!/bin/sh\necho 'command not found' >&2\nexit 127\n"
NO_VENV = '#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\nexit 0\n'


def chosen(folder: Path, commands: dict[str, str], **given: str) -> str:
    for name, script in commands.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    make = shutil.which("make")
    assert make is not None
    done = subprocess.run(
        [make, "-s", "--eval=chosen: ; $(info $(PYTHON))@:", "chosen"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=True,
        env={"PATH": str(folder), **given},
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("commands", "taken"),
    [
        (
            {"python3.14": WORKS, "python3.13": WORKS, "python3.11": WORKS, "python3": WORKS},
            "python3.14",
        ),
        (
            {"python3.13": BROKEN, "python3.12": WORKS, "python3.11": WORKS, "python3": WORKS},
            "python3.12",
        ),
        ({"python3.13": NO_VENV, "python3.11": WORKS, "python3": WORKS}, "python3.11"),
        (
            {"python3.13": BROKEN, "python3.12": BROKEN, "python3.11": BROKEN, "python3": WORKS},
            "python3",
        ),
        ({"python3.15": WORKS, "python3": WORKS}, "python3"),
        ({}, "python3"),
    ],
    ids=["newest", "broken-shim", "without-venv", "broken-shims", "only-newer", "none"],
)
def test_make_uses_the_newest_working_python(
    tmp_path: Path, commands: dict[str, str], taken: str
) -> None:
    assert chosen(tmp_path, commands) == taken


def test_make_uses_a_python_that_is_named(tmp_path: Path) -> None:
    assert chosen(tmp_path, {"python3.13": WORKS}, PYTHON="python3.11") == "python3.11"
