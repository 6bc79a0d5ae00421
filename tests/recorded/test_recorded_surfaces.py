"""Commands, routes and pages answer what was recorded, line by line.

`python -m tests.recorded.surfaces` says how the recording is made.
"""

from __future__ import annotations

import difflib

import pytest

from tests.recorded import deployment, surfaces
from tests.recorded.answer_recorder import Answers

RECORDED = surfaces.recorded()
ANSWERS: dict[str, Answers] = RECORDED["answers"]
MOST_LINES, MOST_ANSWERS = 30, 5
"""Shown of a difference, and of the answers that differ."""


def difference(recorded: list[str], now: list[str]) -> str:
    """The first lines that differ."""
    lines = difflib.unified_diff(recorded, now, "recorded", "now", lineterm="", n=1)
    return "\n".join(line[:200] for _, line in zip(range(MOST_LINES), lines, strict=False))


def test_every_surface_has_a_recording() -> None:
    assert list(ANSWERS) == sorted(surfaces.SURFACES)


@pytest.mark.parametrize("surface", surfaces.SURFACES)
def test_a_surface_answers_what_was_recorded(surface: str) -> None:
    recorded, now = ANSWERS[surface], surfaces.SURFACES[surface](RECORDED["deployment"])
    assert sorted(recorded) == sorted(now), "the questions are others"
    differ = [question for question in now if recorded[question] != now[question]]
    shown = [
        f"{question}\n{difference(recorded[question], now[question])}"
        for question in differ[:MOST_ANSWERS]
    ]
    assert not differ, f"{len(differ)} of {len(now)} answers of {surface}:\n\n" + "\n\n".join(shown)


def test_the_recorded_deployment_has_every_reason_and_every_metric() -> None:
    assert sorted(deployment.lacks(RECORDED["deployment"])) == []
