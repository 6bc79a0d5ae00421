"""The comparison itself: a story that came out differently in the other mode must be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.emulators.aws import LocalAws
from infra.emulators.controllers import objects
from tests.scenario.policies import document
from tests.scenario.runner import ScenarioRunner
from tests.scenario.scenario_world import StoryWorld


def _told(pods: int, world: StoryWorld) -> None:
    world.apply_policy(document())
    world.seed(objects.machine_deployment("workers", 1, 1, 5))
    world.minutes(1.5)
    world.seed(objects.deployment("web", replicas=pods, cpu="1"))
    world.minutes(1)


def test_the_second_mode_finds_what_the_first_decided_differently(aws: LocalAws, tmp_path: Path) -> None:
    ScenarioRunner(aws, "told", "one-process", tmp_path).play(lambda world: _told(5, world))

    with pytest.raises(AssertionError, match=r"passes\[2\] differs between the modes"):
        ScenarioRunner(aws, "told", "restarted", tmp_path).play(lambda world: _told(9, world))


def test_every_invocation_of_the_restarted_mode_gets_a_runtime_of_its_own(aws: LocalAws) -> None:
    made: dict[bool, int] = {}
    for forgetful in (False, True):
        with StoryWorld(aws, forgetful=forgetful) as world:
            _told(5, world)
            made[forgetful] = world.runtimes
            invocations = len(world.invocations)
    assert made == {False: 1, True: invocations}
