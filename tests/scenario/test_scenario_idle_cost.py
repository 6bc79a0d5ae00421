"""An idle cluster costs next to nothing, whatever its size (docs/cost.md "Counted requests")."""

from __future__ import annotations

from infra.emulators.controllers import objects
from tests.scenario.policies import document
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import Requests, ScenarioWorld


@scenario(grain=60.0)
def test_quiet_tick_of_200_nodes_writes_a_handful_of_items(world: ScenarioWorld) -> None:
    """Of 200 nodes 20 belong to a group and are unneeded, so their timers are
    confirmed in every pass."""
    world.apply_policy(document(options={"scaleDownUnneededTime": "1h"}))
    world.seed(
        *(objects.node(f"fixed-{n:03d}") for n in range(180)),
        objects.machine_deployment("workers", 20, 0, 50),
        objects.deployment("web", replicas=180, cpu="1"),
    )
    world.minutes(4)
    assert len(world.nodes()) == 200
    asked = len(world.server.requests)

    for _ in range(3):
        world.requests = Requests()
        world.minutes(1)

        assert world.requests.items <= 3
        assert world.requests.reads <= 25

    changes = [request.path for request in world.server.requests[asked:] if request.method != "GET"]
    # once a minute
    assert changes == ["/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"] * 3
    assert len(world.last_known_nodes()) > 10
    assert world.last_known_nodes().popitem()[1].confirmed_at == world.passed_at()[-1]
