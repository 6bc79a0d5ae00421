"""docs/newcomer.md shows what the commands print in the hour of a newcomer."""

from __future__ import annotations

from tests.functional.newcomer_hour import STEPS, transcript
from tests.source_trees import ROOT


def test_the_newcomer_s_hour_is_the_one_of_the_page() -> None:
    assert transcript() == (ROOT / "docs" / "newcomer.md").read_text("utf-8"), "run make docs"


def test_the_newcomer_s_hour_has_every_step_of_moving_over() -> None:
    commands = [step.command.split()[1] for step in STEPS if step.command]
    assert list(dict.fromkeys(commands)) == [
        "capture",
        "groups",
        "plan",
        "import",
        "validate",
        "kubeconfig",
        "doctor",
        "apply",
        "shadow",
        "history",
        "uninstall",
    ]
