"""Scheduled bounds and a provider's own bounds: no size is requested that
the provider would reject.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from infra.emulators.controllers import objects
from infra.emulators.local_world import START, LocalWorld
from tests.scenario.policies import document

GROUP = "MachineDeployment/default/workers"


def _evening(**bounds: int) -> dict[str, Any]:
    """A schedule that opens three minutes after the world begins."""
    opens = datetime.fromtimestamp(START + 180, UTC)
    return {
        "name": "evening",
        "groups": [GROUP],
        "cron": f"{opens.minute} {opens.hour} * * *",
        "duration": "2h",
        **bounds,
    }


@pytest.mark.parametrize(
    ("entry", "bounds", "size"),
    [
        pytest.param(
            None,
            {"min": 6, "max": 8},
            4,
            id="a-group-that-nodeGroups-does-not-name-keeps-its-own-maximum",
        ),
        pytest.param({"min": 1}, {"min": 6}, 4, id="a-minimum-above-the-providers-maximum"),
        pytest.param(
            {"min": 1, "max": 4}, {"min": 6, "max": 8}, 6, id="wider-where-nodeGroups-gives-bounds"
        ),
        pytest.param({"priority": 1}, {"max": 0}, 2, id="no-node-at-all-costs-nobody-the-group"),
    ],
)
def test_scheduled_bounds_are_combined_with_the_providers_own_bounds(
    entry: dict[str, Any] | None, bounds: dict[str, int], size: int
) -> None:
    named: dict[str, Any] = (
        {} if entry is None else {"nodeGroups": [{"provider": "clusterapi", "id": GROUP, **entry}]}
    )
    with LocalWorld(quick=True) as world:
        world.apply_policy(
            document(schedules=[_evening(**bounds)], options={"scaleDownEnabled": False}, **named)
        )
        world.seed(
            objects.machine_deployment("workers", 2, 1, 4),
            objects.deployment("web", replicas=1, cpu="1"),
        )
        world.step(400)
        assert world.size("workers") == size
        assert [
            event["message"]
            for event in world.kube.list("events")
            if "Failed" in event["reason"] and "Scale" in event["reason"]
        ] == []
        assert GROUP in world.memory().groups
