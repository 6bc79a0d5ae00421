"""A simulated API server, a client whose waiting moves a clock, and the writer of taints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.connect import connect
from chalicelib.model.plan import TaintUpdate
from chalicelib.passes.soft_taints import apply
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore

NOW = 1_795_245_654.0


class MarkingFixture:
    def __init__(self, server: ApiServer, clock: ManualClock) -> None:
        self.server, self.kube, self.clock = server, server.store, clock
        self.api: KubeClient = connect(
            KubernetesAccess(kubeconfig_secret="k"),
            lambda name: server.kubeconfig(),
            clock=clock,
            sleep=clock.advance,
            jitter=lambda: 0.5,
        )

    def node(
        self, name: str, *taints: dict[str, str], cordoned: bool = False, **notes: str
    ) -> None:
        spec: dict[str, Any] = {"taints": list(taints)} if taints else {}
        self.kube.create(
            "nodes",
            {
                "metadata": {"name": name, "annotations": notes},
                "spec": {**spec, **({"unschedulable": True} if cordoned else {})},
            },
        )

    def state(self, name: str) -> tuple[list[str], bool, dict[str, str]]:
        """Returns a node's taint keys, whether it is cordoned, and its annotations."""
        node = self.kube.peek("nodes", name)
        assert node is not None
        keys = [taint["key"] for taint in node["spec"].get("taints") or ()]
        return (
            keys,
            bool(node["spec"].get("unschedulable")),
            node["metadata"].get("annotations") or {},
        )

    def apply(self, *marks: TaintUpdate, **options: Any) -> list[str]:
        written = apply(marks, self.api, Options(**options), self.clock, self.clock.advance)
        return [mark.node for mark in written]

    def writes(self) -> int:
        return sum(request.method == "PATCH" for request in self.server.requests)


@contextmanager
def marking() -> Iterator[MarkingFixture]:
    """An empty cluster."""
    clock = ManualClock(NOW)
    with ApiServer(ObjectStore(clock)) as server:
        yield MarkingFixture(server, clock)
