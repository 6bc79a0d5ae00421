"""Checks the comparison itself: a scenario with different results in the
two modes must be reported.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.emulators.aws import LocalAws
from infra.emulators.controllers import objects
from tests.scenario.policies import document
from tests.scenario.runner import ScenarioRunner
from tests.scenario.scenario_world import ScenarioWorld


def _reported(pods: int, world: ScenarioWorld) -> None:
    world.apply_policy(document())
    world.seed(objects.machine_deployment("workers", 1, 1, 5))
    world.minutes(1.5)
    world.seed(objects.deployment("web", replicas=pods, cpu="1"))
    world.minutes(1)


def test_second_mode_reports_a_decision_that_differs(aws: LocalAws, tmp_path: Path) -> None:
    ScenarioRunner(aws, "told", "one-process", tmp_path).play(lambda world: _reported(5, world))

    with pytest.raises(AssertionError, match=r"passes\[2\] differs between the modes"):
        ScenarioRunner(aws, "told", "restarted", tmp_path).play(lambda world: _reported(9, world))


def test_restarted_mode_creates_a_runtime_for_every_invocation(aws: LocalAws) -> None:
    made: dict[bool, int] = {}
    for forgetful in (False, True):
        with ScenarioWorld(aws, forgetful=forgetful) as world:
            _reported(5, world)
            made[forgetful] = world.runtimes
            invocations = len(world.invocations)
    assert made == {False: 1, True: invocations}
