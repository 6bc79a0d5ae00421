"""Bytes and requests of passes of a server whose watches bring nothing, so
that silence says nothing.

300 nodes, 3,000 pods, 300 ReplicaSets and 20 objects of each other list. `python -m pytest -s
tests/benchmarks/test_paused_lists.py` prints a line for each pass. Without comparisons each of them
would be the first one, which reads everything.
"""

from __future__ import annotations

import json
from typing import Any, cast

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.list_page import TypedPage
from chalicelib.cluster.listed_resources import RESOURCES
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from tests.benchmarks import object_shapes
from tests.contract.kube_api.cluster import NOW
from tests.property.cluster_history import client_of
from tests.property.paused_cluster import SILENT, PausingCluster, changed, written

NODES, PODS, SETS, OTHERS = 300, 3_000, 300, 20
CHANGED = 20
_FILLED = {"Node", "Pod", "ReplicaSet", "Namespace"}


class MeasuredClient:
    """A client that counts its pages and their bytes."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube, self.sizes = kube, list[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kube, name)

    def list_page(self, *args: Any, **kwargs: Any) -> TypedPage:
        page = self._kube.list_page(*args, **kwargs)
        self.sizes.append(len(page.body))
        return page


def numbered(shape: dict[str, Any], number: int, share: int = 1) -> dict[str, Any]:
    text = json.dumps(shape).replace("@P", str(number)).replace("@N", str(number // share))
    made: dict[str, Any] = json.loads(text.replace("@R", str(number // share)))
    del made["metadata"]["uid"]
    made["metadata"].pop("resourceVersion", None)
    return made


def filled() -> ObjectStore:
    store = ObjectStore(lambda: NOW)
    for name in ("app", "default"):
        store.create("namespaces", {"metadata": {"name": name}})
    for number in range(NODES):
        store.create("nodes", numbered(object_shapes.node(), number))
    for number in range(SETS):
        store.create("replicasets", numbered(object_shapes.replica_set(), number), "apps")
    for number in range(PODS):
        store.create("pods", numbered(object_shapes.pod(), number, 10))
    for resource in RESOURCES:
        for number in range(OTHERS if resource.kind not in _FILLED else 0):
            store.create(resource.plural, written(resource, f"first-{number}"), resource.group)
    return store


def test_bytes_of_passes_of_a_server_that_pauses() -> None:
    clients: list[MeasuredClient] = []

    def measured(server: ApiServer) -> KubeClient:
        clients.append(MeasuredClient(client_of(server)))
        return cast(KubeClient, clients[-1])

    with ApiServer(filled(), longest_watch=0) as server:
        server.faults.add(SILENT)
        cluster = PausingCluster(server, measured)

        def megabytes(what: str) -> float:
            for client in clients:
                client.sizes.clear()
            cluster.read()
            sizes = [size for client in clients for size in client.sizes]
            again = sorted(cluster.results[-1].reread)
            print(
                f"{what:<24}{len(again):>3} lists in full{sum(sizes) / 1e6:>7.1f} "
                f"MB{len(sizes):>4} pages"
            )
            return sum(sizes) / 1e6

        nodes, pods, *_ = RESOURCES
        print()
        cold = megabytes("everything is read")
        assert max(megabytes("nothing has changed") for _ in range(3)) < 1.01 * cold
        assert megabytes("nothing has changed") < 0.6 * cold
        for resources in ((pods,), (pods,), (pods, nodes), (pods, nodes)):
            for resource in resources:
                for number in range(CHANGED):
                    pod = resource is pods
                    changed(
                        cluster,
                        resource,
                        f"web-{number // 10}-{number}" if pod else f"node-{number}",
                        "default",
                    )
            megabytes(" and ".join(f"{CHANGED} {resource.plural}" for resource in resources))
