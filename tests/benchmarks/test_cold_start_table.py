"""Prints the start time of each function, as ratios measured in one run,
and the size of the zip.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.functional import cold_start
from tests.functional.artifact import artifact
from tests.functional.stack import HANDLERS

ROOT = Path(__file__).resolve().parents[2]
FEWEST, MOST = 3, 120  # rounds


def test_cold_start_table_is_printed() -> None:
    """Runs in its own process, because a child's peak memory is at least that of
    the process that starts it."""
    command = [sys.executable, "-m", "tests.functional.cold_start"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    print(f"\n{done.stdout}")
    rows = [
        line.split("|")[1].strip() for line in done.stdout.splitlines() if line.startswith("| ")
    ]
    assert rows == ["Function", "(session)", *HANDLERS]
    assert "zip: " in done.stdout


@pytest.mark.parametrize("function", HANDLERS)
def test_cold_start_costs_a_limited_multiple_of_importing_botocore(function: str) -> None:
    """The minimum of each counts, since other load on the machine only adds CPU time. Further
    rounds run while the limit is exceeded, because on a busy machine the minimum comes late."""
    handler, task = HANDLERS[function], artifact().task
    sessions: list[float] = []
    starts: list[float] = []
    while len(starts) < MOST:
        sessions.append(cold_start.session(task).cpu)
        starts.append(cold_start.start(task, handler).cpu)
        if len(starts) >= FEWEST and min(starts) <= cold_start.limit(handler) * min(sessions):
            break
    ratio = min(starts) / min(sessions)
    assert ratio <= cold_start.limit(handler), (
        f"{function} takes {ratio:.2f} times the CPU of botocore's session"
    )
