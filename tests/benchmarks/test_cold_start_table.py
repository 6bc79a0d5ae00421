"""Prints the start time of each function, as ratios measured in one run, and the size of the zip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.functional.stack import HANDLERS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_cold_start_table_is_printed() -> None:
    """Runs in its own process, because a child's peak memory is at least that of the process that starts it."""
    command = [sys.executable, "-m", "tests.functional.cold_start"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    print(f"\n{done.stdout}")
    rows = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.startswith("| ")]
    assert rows == ["Function", "(session)", *HANDLERS]
    assert "zip: " in done.stdout
