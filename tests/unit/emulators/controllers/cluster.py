"""A simulated cluster with a clock that the test sets, and short queries of its content."""

from __future__ import annotations

from infra.emulators.controllers import objects as cluster_objects
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.controllers.manager import ClusterSimulation, Pace
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore

START = 1_795_245_654.0


class EmulatedCluster:
    def __init__(
        self, *objects: KubeObject, pace: Pace | None = None, seed_number: int = 1
    ) -> None:
        self.clock = ManualClock(START)
        self.store = ObjectStore(self.clock, seed=seed_number)
        self.sim = ClusterSimulation(self.store, self.clock, pace)
        cluster_objects.apply(self.store, *objects)
        self.sim.step()

    def wait(self, seconds: float, by: float = 1.0) -> None:
        """Lets time pass in small steps; the controllers run to rest after each."""
        until = self.clock() + seconds
        while self.clock() < until:
            self.clock.advance(min(by, until - self.clock()))
            self.sim.step()

    def pods(self, namespace: str | None = None) -> list[KubeObject]:
        return self.store.list("pods", namespace)

    def running(self) -> list[KubeObject]:
        return [pod for pod in self.pods() if pod["status"]["phase"] == "Running"]

    def nodes(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.store.list("nodes")]

    def machines(self) -> list[KubeObject]:
        return self.store.list("machines", group=fields.GROUP)

    def the(
        self, plural: str, name: str, namespace: str = "default", group: str = ""
    ) -> KubeObject:
        found = self.store.get(plural, name, namespace, group)
        assert found is not None, f"{plural} {namespace}/{name}"
        return found

    def resize(self, plural: str, name: str, group: str, replicas: int) -> None:
        obj = self.the(plural, name, group=group)
        obj["spec"]["replicas"] = replicas
        self.store.update(plural, obj, group)
        self.sim.step()
