"""Forbidden resources, and credentials that change during operation."""

from __future__ import annotations

import pytest

from infra.emulators.controllers import objects
from infra.emulators.kube.faults import KubeFault
from tests.scenario.policies import document, refusal
from tests.scenario.runner import ScenarioRunner, scenario
from tests.scenario.scenario_world import ScenarioWorld


@pytest.mark.parametrize("plural", ["poddisruptionbudgets", "replicasets"])
def test_forbidden_resource_is_missing_data_and_the_pass_continues(
    stage: ScenarioRunner, plural: str
) -> None:
    def tell(world: ScenarioWorld) -> None:
        world.apply_policy(
            document(options={"scaleDownUnneededTime": "1m", "scaleDownDelayAfterAdd": "1m"})
        )
        world.seed(objects.machine_deployment("workers", 1, 1, 5))
        world.minutes(1.5)
        world.server.faults.add(
            KubeFault(path=f"/{plural}[?]", times=-1, **refusal(403, f"{plural} is forbidden"))
        )
        world.seed(objects.deployment("web", replicas=5, cpu="1"))

        world.minutes(3)

        assert world.size("workers") == len(world.nodes()) == 2
        (gap,) = world.last_plan()["gaps"]
        assert gap["place"].endswith(plural)
        assert gap["weakens"]
        assert "forbidden" in gap["detail"]

        world.scale("web", 1)
        world.minutes(4.5)

        assert len(world.nodes()) == 1

    stage.play(tell, grain=20.0)


@scenario(grain=20.0)
def test_credentials_rotated_between_two_calls_are_read_again(world: ScenarioWorld) -> None:
    world.apply_policy(document())
    world.seed(objects.machine_deployment("workers", 1, 1, 5))
    world.minutes(1.5)
    passes = len(world.passes)
    # planned with the old ones, executed with the new ones
    world.at("reconcile:observed", world.rotate_credentials)
    world.seed(objects.deployment("web", replicas=5, cpu="1"))

    world.minutes(1)

    assert len(world.passes) > passes
    assert world.size("workers") == 2
    assert [line for line in world.log if line["level"] in {"ERROR", "WARNING"}] == []
    assert world.token.removeprefix("rotated-") not in world.lines.getvalue()


@scenario(grain=20.0)
def test_single_rejected_credential_has_no_consequence(world: ScenarioWorld) -> None:
    world.apply_policy(document())
    world.seed(objects.machine_deployment("workers", 1, 1, 5))
    world.minutes(1.5)
    before = len(world.passes)
    world.server.faults.add(KubeFault(path="/api/v1/pods", **refusal(401, "Unauthorized")))

    world.minutes(1)

    assert len(world.passes) == before + 1
    assert all(not invocation.failed_messages for invocation in world.invocations)
