"""A management cluster separate from the workload cluster: two API servers with a kubeconfig each.

Machines are created in one and become Nodes in the other; the functions must never confuse them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infra.emulators.controllers import objects
from infra.emulators.controllers.capi.controller import ClusterApi
from infra.emulators.controllers.capi.fields import DELETE_MACHINE, GROUP, marks
from infra.emulators.controllers.manager import Controller
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from infra.emulators.local_world import LocalWorld
from tests.scenario.policies import document

SECRET = "outscaler/shop/clusterapi"
PROVIDER = {"kubeconfigSecret": SECRET, "clusterName": "ours", "namespace": "default"}
OPTIONS = {"scaleDownUnneededTime": "2m", "scaleDownDelayAfterAdd": "1m"}


class ScenarioManagement:
    """The management cluster as something beside the world's own
    (infra/emulators/cloud_account.py)."""

    def attach(self, clock: Callable[[], float], cluster: ObjectStore) -> Controller:
        """Its controllers, whose Machines become Nodes of that cluster."""
        self.store = ObjectStore(clock, seed=7)
        self.server = ApiServer(self.store, seed=7)
        return ClusterApi(self.store, clock, workload=cluster)

    def start(self) -> None:
        self.server.start()

    def secrets(self) -> dict[str, str]:
        return {SECRET: self.server.kubeconfig()}

    def stop(self) -> None:
        self.server.stop()

    def size(self, name: str) -> int:
        found = self.store.peek("machinedeployments", name, "default", GROUP)
        assert found is not None
        return int(found["spec"]["replicas"])


@pytest.mark.parametrize("forgetful", [False, True], ids=["one-process", "restarted"])
def test_separate_management_cluster_scales_up_and_drains(forgetful: bool) -> None:
    management = ScenarioManagement()
    with LocalWorld(quick=True, forgetful=forgetful, clouds=(management,)) as world:
        objects.apply(
            management.store,
            objects.cluster("ours"),
            objects.cluster("theirs"),
            objects.machine_deployment("workers", 1, 1, 4, cluster="ours"),
            objects.machine_deployment("workers-of-others", 0, 0, 4, cluster="theirs"),
        )
        world.apply_policy(
            document(providers={"clusterapi": PROVIDER}, options=OPTIONS, scan="20s")
        )
        world.step(180)
        assert len(world.nodes()) == 1
        world.seed(objects.deployment("web", replicas=3, cpu="3"))
        world.step_until(lambda: len(world.nodes()) == 3 and not world.pending(), limit=900)
        assert management.size("workers") == 3
        web = world.kube.get("deployments", "web", "default", "apps")
        assert web is not None
        world.kube.update("deployments", {**web, "spec": {**web["spec"], "replicas": 1}}, "apps")
        world.step_until(lambda: len(world.nodes()) == 1 and not world.operations(), limit=1800)
        assert (
            management.size("workers"),
            management.size("workers-of-others"),
            world.pending(),
        ) == (1, 0, ())
        assert not [
            each
            for each in management.store.list("machines", group=GROUP)
            if DELETE_MACHINE in marks(each)
        ]
        assert {"/".join(each.path.split("/")[:3]) for each in management.server.requests} == {
            f"/apis/{GROUP}"
        }
        assert not [each.path for each in world.server.requests if GROUP in each.path]
