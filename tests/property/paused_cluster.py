"""A cluster whose watches bring nothing, and a process that follows its lists
and knows that they pause.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.list_state import ListState
from chalicelib.cluster.listed_resources import ListedResource
from chalicelib.cluster.live_cluster import KeptLists, ReadResult, read_live_cluster
from chalicelib.model.snapshot import ObservedGroups, Snapshot
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.server import ApiServer
from tests.contract.kube_api.cluster import NOW
from tests.property.cluster_history import UNTIL_ENDED, client_of

PAUSE = 2.0  # seconds
CLUSTER_WIDE = {"Node", "Namespace", "PersistentVolume", "StorageClass", "CSINode", "CSIDriver"}
SILENT = KubeFault(path="watch=1", edit=lambda _: b"", times=-1)


def written(resource: ListedResource, name: str) -> dict[str, Any]:
    meta = {"name": name} if resource.kind in CLUSTER_WIDE else {"name": name, "namespace": "app"}
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    }
    specs: dict[str, Any] = {"Pod": template["spec"], "PodDisruptionBudget": {"minAvailable": 1}}
    spec = specs.get(
        resource.kind, {"template": template, "selector": {"matchLabels": {"app": name}}}
    )
    return {"metadata": meta, "spec": spec}


@dataclass
class PausingCluster:
    """A cluster whose watches bring nothing, and a process that knows that they pause."""

    server: ApiServer
    client: Callable[[ApiServer], KubeClient] = client_of
    results: list[ReadResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept = KeptLists(10**9, lambda: 0.0, quiet=UNTIL_ENDED)

    def full(self) -> Snapshot:
        return read_live_cluster("prod", client_of(self.server), lambda _: ObservedGroups(), NOW)

    def read(self) -> Snapshot:
        kube: KubeClient = self.kept.client("prod", self.client(self.server))
        self.kept.pace("prod", kube).note(PAUSE)
        return read_live_cluster(
            "prod",
            kube,
            lambda _: ObservedGroups(),
            NOW,
            kept=self.kept,
            report=self.results.append,
        )

    def read_again(self) -> list[str]:
        """Make a pass that must have the snapshot of a full read; return the kinds of
        the lists that it has read."""
        assert msgspec.json.encode(self.read()) == msgspec.json.encode(self.full())
        return list(self.results[-1].reread)

    @property
    def lists(self) -> ListState:
        lists = self.kept.kept("prod")
        assert lists is not None
        return lists


def changed(
    cluster: PausingCluster, resource: ListedResource, name: str = "first", namespace: str = "app"
) -> None:
    store = cluster.server.store
    namespace = "" if resource.kind in CLUSTER_WIDE else namespace
    found = store.get(resource.plural, name, namespace, resource.group)
    assert found is not None
    count = int(found["metadata"].get("labels", {}).get("changes", "0"))
    found["metadata"]["labels"] = {"changes": str(count + 1)}
    store.update(resource.plural, found, resource.group)
