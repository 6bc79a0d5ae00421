"""Moving over from Cluster Autoscaler, as docs/from-cluster-autoscaler.md says it."""

from __future__ import annotations

from tests.functional.moving_over import STEPS, lacking


def test_every_command_of_moving_over_works_in_its_order() -> None:
    assert lacking() == []


def test_moving_over_has_every_step_from_the_capture_to_the_uninstall() -> None:
    commands = [step.command.split()[1] for step in STEPS]
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
