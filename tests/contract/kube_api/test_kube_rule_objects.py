"""HorizontalNodeAutoscalers written by users with the official client, and read and answered by
Outscaler with the service account of the shipped RBAC.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes
import pytest

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.connect import connect
from chalicelib.cluster.live_cluster import read_live_cluster
from chalicelib.journal.events import Event
from chalicelib.journal.recorder import ClusterWriter
from chalicelib.model.scaling_rules import RuleObject
from chalicelib.model.snapshot import ObservedGroups
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from infra.emulators.kube.auth import User
from infra.emulators.kube.server import ApiServer
from tests.contract.kube_api.cluster import NOW, filled_store
from tests.contract.kube_api.test_kube_client_against_simulation import ACCOUNT, shipped_rules

PLACE = ("autoscaling.cce.io", "v1alpha1", "kube-system", "horizontalnodeautoscalers")
BODY: dict[str, Any] = {
    "apiVersion": "autoscaling.cce.io/v1alpha1",
    "kind": "HorizontalNodeAutoscaler",
    "metadata": {"name": "pool-a-policy", "namespace": "kube-system"},
    "spec": {
        "disable": False,
        "targetNodepoolIds": ["7d48eca7-3419-11ea-bc29-0255ac1001a8"],
        "rules": [
            {
                "ruleName": "evening",
                "type": "Cron",
                "disable": False,
                "cronTrigger": {"schedule": "47 20 * * *"},
                "action": {"type": "ScaleUp", "unit": "Node", "value": 1},
            }
        ],
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    users = [
        User(ACCOUNT, "token-of-outscaler"),
        User("admin", "token-of-admin", groups=("system:masters",)),
    ]
    store = filled_store(nodes=1)
    store.create("namespaces", {"metadata": {"name": "kube-system"}})
    with ApiServer(store, users=users, rbac={ACCOUNT: shipped_rules()}) as started:
        yield started


@pytest.fixture
def person(server: ApiServer, tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "config").write_text(server.kubeconfig("admin"))
    made = kubernetes.config.new_client_from_config(config_file=str(tmp_path / "config"))
    yield made
    made.rest_client.pool_manager.clear()
    made.close()


@pytest.fixture
def kube(server: ApiServer) -> KubeClient:
    config = server.kubeconfig(ACCOUNT)
    return connect(
        KubernetesAccess(kubeconfig_secret="config"),
        lambda _: config,
        clock=lambda: NOW,
        sleep=lambda _: None,
        jitter=lambda: 0.5,
    )


def read(kube: KubeClient) -> tuple[RuleObject, ...]:
    taken = read_live_cluster("prod", kube, lambda nodes: ObservedGroups(), NOW, rules=True)
    assert taken.gaps == ()
    assert taken.rule_objects is not None
    return taken.rule_objects


def test_CCE_A2_official_client_creates_changes_and_deletes_rule_objects(
    person: Any, kube: KubeClient
) -> None:
    objects = kubernetes.client.CustomObjectsApi(person)
    assert read(kube) == ()
    made = objects.create_namespaced_custom_object(*PLACE, body=copy.deepcopy(BODY))
    [found] = read(kube)
    assert (found.key, found.uid) == ("kube-system/pool-a-policy", made["metadata"]["uid"])
    assert found.created > 0
    assert [(rule.name, rule.cron, rule.add) for rule in found.rules] == [
        ("evening", "47 20 * * *", 1)
    ]

    objects.patch_namespaced_custom_object(*PLACE, "pool-a-policy", {"spec": {"disable": True}})
    assert read(kube)[0].disabled
    listed = objects.list_namespaced_custom_object(*PLACE)
    assert [each["metadata"]["name"] for each in listed["items"]] == ["pool-a-policy"]
    objects.delete_namespaced_custom_object(*PLACE, "pool-a-policy")
    assert read(kube) == ()


def test_CCE_A2_invalid_rule_object_is_accepted_and_reports_the_error_in_its_status(
    person: Any, kube: KubeClient
) -> None:
    objects, core = kubernetes.client.CustomObjectsApi(person), kubernetes.client.CoreV1Api(person)
    body = copy.deepcopy(BODY)
    body["metadata"]["name"] = "bad"
    body["spec"]["rules"][0]["action"]["value"] = 0
    objects.create_namespaced_custom_object(*PLACE, body=body)
    [found] = read(kube)
    assert found.rules == ()
    ClusterWriter(lambda: kube).post(
        Event(
            "f",
            "HorizontalNodeAutoscaler",
            found.name,
            "HorizontalNodeAutoscalerInvalid",
            found.problems[0],
            "Warning",
            found.namespace,
            found.uid,
            body["apiVersion"],
        ),
        NOW,
    )
    [event] = core.list_namespaced_event(
        "kube-system", field_selector=f"involvedObject.uid={found.uid}"
    ).items
    assert (event.involved_object.kind, event.involved_object.api_version) == (
        body["kind"],
        body["apiVersion"],
    )
    assert event.message.startswith("spec.rules[0].action.value: 0 is not such a number")
    objects.delete_namespaced_custom_object(*PLACE, "bad")
