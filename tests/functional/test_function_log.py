"""The framework must not silence the functions' log, which operators read first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = """
import contextlib, io, sys
from chalicelib.runtime.log import logger
with contextlib.redirect_stdout(io.StringIO()):
    import app
logger.info("reconciled", cluster="shop")
"""


def test_line_is_logged_even_if_the_app_was_created_with_another_output() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        env={"AWS_DEFAULT_REGION": "eu-west-1", "PATH": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [line] = done.stdout.splitlines()
    assert '"reconciled"' in line
