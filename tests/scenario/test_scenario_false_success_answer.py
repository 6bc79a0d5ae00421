"""Found by the fault test (tests/faults, seed 1029): a proxy answers 200 in the API server's
place.
"""

from __future__ import annotations

from infra.emulators.controllers import objects
from infra.emulators.controllers.capi import fields
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.objects import clone
from tests.scenario.policies import document
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld

PAGE = KubeFault(method="PATCH", path="/machines/", status=200, body=b"<html>a proxy's page</html>")


@scenario(grain=10.0)
def test_delete_annotation_lost_in_a_proxy_costs_no_other_machine(world: ScenarioWorld) -> None:
    """The annotation was never set, but the answer was 200. A size lowered on this basis would
    remove an arbitrary machine: here one whose node a user has protected."""
    world.apply_policy(document(options={"scaleDownUnneededTime": "1m"}))
    world.seed(objects.machine_deployment("workers", 2, 1, 5))
    world.minutes(1.5)
    protected, _ = sorted(world.nodes())
    node = clone(world.node(protected))
    node["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/scale-down-disabled"] = "true"
    world.kube.update("nodes", node)
    world.server.faults.add(PAGE)

    world.minutes(8)

    assert protected in world.nodes()
    machines = world.kube.list("machines", "default", fields.GROUP)
    assert [each["metadata"]["name"] for each in machines] == [protected]
