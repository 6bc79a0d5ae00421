"""Random histories of an emulated cluster: what users, controllers and kubelets
write between two passes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.connect import connect
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore

Json = dict[str, Any]

_NAMESPACES = ("app", "app-b", "data")


NOW = 1_790_000_000.0
UNTIL_ENDED = float("inf")
"""Seconds of quiet where watches end by themselves (ApiServer.longest_watch): no test
depends on how fast it runs."""


def client_of(server: ApiServer) -> KubeClient:
    """Return a client without delays."""
    config = server.kubeconfig()
    access = KubernetesAccess(kubeconfig_secret="config")
    return connect(
        access, lambda _: config, clock=lambda: NOW, sleep=lambda _: None, jitter=lambda: 0.5
    )


class ClusterHistory:
    """Writes to a store. The same seed writes the same."""

    def __init__(self, store: ObjectStore, seed: int) -> None:
        self._store, self._random = store, random.Random(seed)
        self._made = 0
        for name in _NAMESPACES:
            store.create("namespaces", {"metadata": {"name": name}})
        for _ in range(4):
            self._node_added()
        for _ in range(12):
            self._pod_added()

    def happen(self, count: int) -> None:
        """Write `count` changes."""
        for _ in range(count):
            self._random.choice(_ACTIONS)(self)

    def _name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}-{self._made}"

    def _some(self, plural: str, group: str = "") -> Json | None:
        found = self._store.list(plural, None, group)
        if not found:
            return None
        meta = self._random.choice(found)["metadata"]
        return self._store.get(plural, meta["name"], meta.get("namespace", ""), group)

    def _gone(self, plural: str, group: str = "") -> None:
        if (found := self._some(plural, group)) is not None:
            meta = found["metadata"]
            self._store.remove(plural, meta["name"], meta.get("namespace", ""), group)

    def _pod_added(self) -> None:
        owner = self._random.randrange(4)
        spec: Json = {
            "containers": [
                {
                    "name": "main",
                    "image": "i",
                    "resources": {
                        "requests": {"cpu": self._random.choice(("100m", "1", "no quantity"))}
                    },
                    "volumeMounts": [
                        {"name": f"kube-api-access-{self._random.randrange(10_000, 99_999)}"}
                    ],
                }
            ],
        }
        if self._random.random() < 0.3:
            template = {
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                }
            }
            spec["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
        reference = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": f"set-{owner}",
            "uid": f"uid-{owner}",
        }
        meta: Json = {
            "name": self._name("pod"),
            "namespace": self._random.choice(_NAMESPACES),
            "labels": {"app": f"app-{owner}", "zone": self._random.choice("ab")},
            "ownerReferences": [{**reference, "controller": True}],
        }
        if self._random.random() < 0.2:
            meta["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        self._store.create(
            "pods",
            {
                "metadata": meta,
                "spec": spec,
                "status": {"phase": "Pending", "conditions": [condition]},
            },
        )

    def _pod_bound(self) -> None:
        pod, node = self._some("pods"), self._some("nodes")
        if pod is None or node is None or pod["spec"].get("nodeName"):
            return
        pod["spec"]["nodeName"] = node["metadata"]["name"]
        pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self._store.update("pods", pod)

    def _pod_reported(self) -> None:
        if (pod := self._some("pods")) is not None:
            ready = self._random.choice(("True", "False"))
            pod["status"] = {**pod["status"], "conditions": [{"type": "Ready", "status": ready}]}
            self._store.update("pods", pod)

    def _pod_ended(self) -> None:
        if (pod := self._some("pods")) is not None:
            pod["status"] = {**pod["status"], "phase": self._random.choice(("Succeeded", "Failed"))}
            self._store.update("pods", pod)

    def _pod_recreated(self) -> None:
        if (pod := self._some("pods")) is not None:
            meta = pod["metadata"]
            self._store.remove("pods", meta["name"], meta["namespace"])
            kept = {key: meta[key] for key in ("name", "namespace", "labels")}
            self._store.create(
                "pods",
                {"metadata": kept, "spec": {"containers": []}, "status": {"phase": "Pending"}},
            )

    def _node_added(self) -> None:
        room = {"cpu": "4", "memory": "8Gi", "pods": "20"}
        name = self._name("node")
        self._store.create(
            "nodes",
            {
                "metadata": {"name": name, "labels": {"zone": self._random.choice("ab")}},
                "spec": {"providerID": f"memory://{name}"},
                "status": {
                    "capacity": room,
                    "allocatable": room,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        )

    def _node_changed(self) -> None:
        if (node := self._some("nodes")) is not None:
            node["metadata"]["labels"] = {"zone": self._random.choice("abc")}
            if self._random.random() < 0.2:
                node["status"] = {"conditions": "not a list"}
            self._store.update("nodes", node)

    def _workload_changed(self) -> None:
        plural, kind = self._random.choice(
            (("replicasets", "ReplicaSet"), ("daemonsets", "DaemonSet"))
        )
        found = self._some(plural, "apps")
        if found is not None and self._random.random() < 0.6:
            found["spec"]["replicas"] = self._random.randrange(5)
            self._store.update(plural, found, "apps")
            return
        name = self._name(kind.lower())
        template = {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "i"}]},
        }
        spec = {"selector": {"matchLabels": {"app": name}}, "template": template, "replicas": 1}
        self._store.create(
            plural, {"metadata": {"name": name, "namespace": "app"}, "spec": spec}, "apps"
        )

    def _budget_changed(self) -> None:
        name = self._name("budget")
        spec = {
            "minAvailable": 1,
            "selector": {"matchLabels": {"app": f"app-{self._random.randrange(4)}"}},
        }
        self._store.create(
            "poddisruptionbudgets",
            {"metadata": {"name": name, "namespace": "app"}, "spec": spec},
            "policy",
        )

    def _claim_changed(self) -> None:
        pod = self._some("pods")
        if pod is None or not pod["spec"].get("volumes"):
            return
        name = f"{pod['metadata']['name']}-scratch"
        namespace = pod["metadata"]["namespace"]
        if self._store.peek("persistentvolumeclaims", name, namespace) is None:
            spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            self._store.create(
                "persistentvolumeclaims",
                {"metadata": {"name": name, "namespace": namespace}, "spec": spec},
            )

    def _namespace_labelled(self) -> None:
        if (found := self._some("namespaces")) is not None:
            found["metadata"]["labels"] = {"team": self._random.choice("xyz")}
            self._store.update("namespaces", found)


def _gone(plural: str, group: str = "") -> Callable[[ClusterHistory], None]:
    return lambda history: history._gone(plural, group)


_ACTIONS: tuple[Callable[[ClusterHistory], None], ...] = (
    *[ClusterHistory._pod_added] * 3,
    *[ClusterHistory._pod_bound] * 3,
    ClusterHistory._pod_reported,
    ClusterHistory._pod_ended,
    ClusterHistory._pod_recreated,
    ClusterHistory._node_added,
    ClusterHistory._node_changed,
    ClusterHistory._workload_changed,
    ClusterHistory._budget_changed,
    ClusterHistory._claim_changed,
    ClusterHistory._namespace_labelled,
    _gone("pods"),
    _gone("nodes"),
    _gone("replicasets", "apps"),
    _gone("daemonsets", "apps"),
    _gone("poddisruptionbudgets", "policy"),
    _gone("persistentvolumeclaims"),
)
