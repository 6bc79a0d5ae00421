"""A pass with the artifact alone: a cluster is read, planned and scaled up. Every function
runs in its own process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.policy.load import digest
from chalicelib.store import Store
from infra.emulators.aws import LocalAws
from infra.emulators.controllers import objects
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from tests.functional.app_client import sample
from tests.functional.artifact import artifact
from tests.functional.stack import Stack

POLICY = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: shop}
spec:
  mode: active
  kubernetes: {kubeconfigSecret: outscaler/prod/shop/kubeconfig}
  providers: {clusterapi: {clusterName: local}}
"""


@pytest.fixture
def cluster() -> Iterator[ApiServer]:
    """One full node, a group that can grow, and an unschedulable pod.

    The cluster's clock is a minute late, so the pod is old enough; a pass buys nothing for
    pods that are a second old.
    """
    store = ObjectStore(lambda: time.time() - 60.0)
    with ApiServer(store) as server:
        objects.apply(
            store,
            objects.node("n1", cpu="1", memory="2Gi"),
            objects.machine_deployment(
                "workers", replicas=0, min_size=0, max_size=5, cpu="4", memory="16Gi"
            ),
        )
        store.create(
            "pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "web-1", "namespace": "default"},
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example/web:1",
                            "resources": {"requests": {"cpu": "3", "memory": "1Gi"}},
                        }
                    ]
                },
            },
        )
        unschedulable = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu.",
        }
        path = "/api/v1/namespaces/default/pods/web-1/status"
        answer = server.handle(
            "PATCH",
            path,
            {**server.headers(), "Content-Type": "application/merge-patch+json"},
            json.dumps({"status": {"phase": "Pending", "conditions": [unschedulable]}}).encode(),
        )
        assert answer.status == 200, answer.body
        yield server


def _message(body: object) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(sample("sqs-message"))
    event["Records"][0]["body"] = json.dumps(body)
    return event


def test_pending_pod_makes_the_artifact_scale_up_a_group(
    cluster: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with LocalAws() as aws:
        stack = Stack(aws, artifact(), tmp_path_factory.mktemp("events"))
        store = Store(stack.ids["StateTable"], clock=time.time, client=aws.client("dynamodb"))
        store.policies.put("shop", POLICY, digest(POLICY), None)
        aws.put_secret("outscaler/prod/shop/kubeconfig", cluster.kubeconfig())

        assert stack.invoke("Tick", json.loads(sample("eventbridge-schedule")))["answer"][
            "queued"
        ] == ["shop"]
        [scan] = stack.messages("ReconcileQueue")
        made = stack.invoke("Reconcile", _message(scan))
        assert made["answer"] == {"batchItemFailures": []}, made["log"]

        queued = stack.messages("ActClusterapiQueue")
        assert len(queued) == 1, made["log"]
        [grow] = queued
        assert stack.invoke("ActClusterapi", _message(grow))["answer"] == {"batchItemFailures": []}
        workers = cluster.store.peek(
            "machinedeployments", "workers", "default", group="cluster.x-k8s.io"
        )
        assert workers is not None
        assert workers["spec"]["replicas"] == 1
        assert stack.invoke("Reconcile", _message({**scan, "at": 0}))["answer"] == {
            "batchItemFailures": []
        }
        assert len(stack.messages("ActClusterapiQueue")) == 1, "the same thing is not planned twice"
