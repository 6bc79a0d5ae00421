"""Prints what each function takes to start, as ratios measured in one run, and how large the zip is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.functional.stack import HANDLERS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_table_of_cold_starts() -> None:
    """In a process of its own: the peak memory of a child is at least that of the process that starts it."""
    command = [sys.executable, "-m", "tests.functional.cold_start"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    print(f"\n{done.stdout}")
    rows = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.startswith("| ")]
    assert rows == ["Function", "(session)", *HANDLERS]
    assert "zip: " in done.stdout
