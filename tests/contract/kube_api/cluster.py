"""Shared parts of the tests of the simulated API server: a server with a few objects,
and a plain HTTP client.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from infra.emulators.kube.auth import MASTERS, RbacRule, User
from infra.emulators.kube.request import Response
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore

NOW = 1_800_000_000.0
READER = "system:serviceaccount:app:reader"
USERS = (User("admin", "token-of-admin", (MASTERS,)), User(READER, "token-of-reader"))
RBAC = {
    READER: (
        RbacRule(verbs=("get", "list", "watch"), groups=("",), resources=("nodes", "pods")),
        RbacRule(
            verbs=("create",), groups=("",), resources=("pods/eviction",), namespaces=("app",)
        ),
    )
}


def node(name: str, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": {"providerID": f"example://pool/{name}"},
        "status": {
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod(
    name: str, on: str = "", app: str = "web", *, phase: str = "Running", ready: bool = True
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "app", "labels": {"app": app}},
        "spec": {
            "containers": [
                {"name": "c", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
            ]
        },
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }
    if on:
        made["spec"]["nodeName"] = on
    return made


def budget(name: str, app: str = "web", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "app"},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }


def machine_deployment(name: str, replicas: int = 1) -> dict[str, Any]:
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineDeployment",
        "metadata": {"name": name, "namespace": "app"},
        "spec": {
            "clusterName": "c1",
            "replicas": replicas,
            "selector": {"matchLabels": {"d": name}},
            "template": {
                "spec": {
                    "clusterName": "c1",
                    "bootstrap": {"dataSecretName": "b"},
                    "infrastructureRef": {
                        "apiGroup": "infrastructure.example.com",
                        "kind": "Template",
                        "name": "t",
                    },
                }
            },
        },
    }


def filled_store(nodes: int = 3) -> ObjectStore:
    """A store with the nodes n0, n1, …, namespace app, and the running pods web-0 to web-2 on
    n0."""
    store = ObjectStore(lambda: NOW)
    store.create("namespaces", {"metadata": {"name": "app"}})
    for index in range(nodes):
        store.create("nodes", node(f"n{index}", zone="a" if index % 2 else "b"))
    for index in range(3):
        store.create("pods", pod(f"web-{index}", on="n0"))
    return store


@contextmanager
def running(store: ObjectStore | None = None, **options: Any) -> Iterator[ApiServer]:
    with ApiServer(store or filled_store(), users=USERS, rbac=RBAC, **options) as server:
        yield server


class Caller:
    """Sends requests without a network, as a given user."""

    def __init__(self, server: ApiServer, user: str = "admin") -> None:
        self.server, self.user = server, user

    def __call__(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Response:
        sent = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        headers = {"Content-Type": content_type, "User-Agent": "test/1"}
        if self.user:
            headers |= self.server.headers(self.user)
        return self.server.handle(method, path, headers, sent)


def caller(store: ObjectStore | None = None, user: str = "admin", **options: Any) -> Caller:
    return Caller(ApiServer(store or filled_store(), users=USERS, rbac=RBAC, **options), user)
