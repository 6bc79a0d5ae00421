"""The status ConfigMap with the shipped rights alone: updated if present, never created, and
preserved by `kubectl apply`.

`kubectl apply` is simulated in both modes: by the server (`--server-side`), and by a three-way
patch, which deletes only what the last applied file had and the new one lacks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from chalicelib.cluster.connect import connect
from chalicelib.cluster.errors import NotFound
from chalicelib.journal.carry_over import PublishedStatus
from chalicelib.journal.recorder import ClusterWriter
from chalicelib.journal.status_configmap import KEY, publish
from chalicelib.model.plan import Plan
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from infra.emulators.kube.auth import MASTERS, User
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.server import ApiServer
from tests.contract.kube_api.cluster import NOW, Caller, filled_store
from tests.contract.kube_api.test_kube_client_against_simulation import (
    ACCOUNT,
    RBAC_FILE,
    shipped_rules,
)

MAPS = "/api/v1/namespaces/kube-system/configmaps"
PATH = f"{MAPS}/cluster-autoscaler-status"
LAST = "kubectl.kubernetes.io/last-applied-configuration"
[SHIPPED] = (doc for doc in yaml.safe_load_all(RBAC_FILE.read_text()) if doc["kind"] == "ConfigMap")


@pytest.fixture
def server() -> ApiServer:
    return ApiServer(
        filled_store(),
        users=[User(ACCOUNT, "token-of-outscaler"), User("person", "p", (MASTERS,))],
        rbac={ACCOUNT: shipped_rules()},
    )


def server_side(call: Caller) -> None:
    assert call(
        "PATCH",
        f"{PATH}?fieldManager=kubectl",
        json.dumps(SHIPPED).encode(),
        "application/apply-patch+yaml",
    ).status in {200, 201}


def three_ways(call: Caller) -> None:
    found = call("GET", PATH)
    written: KubeObject = json.loads(json.dumps(SHIPPED))
    written["metadata"]["annotations"] = {LAST: json.dumps(SHIPPED)}
    if found.status == 404:
        assert call("POST", MAPS, written).status == 201
        return
    last = (found.json()["metadata"].get("annotations") or {}).get(LAST)
    patch = merged(_deletions(json.loads(last) if last else {}, SHIPPED), written)
    assert call("PATCH", PATH, patch, "application/merge-patch+json").status == 200


def _deletions(last: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    gone: dict[str, Any] = {key: None for key in last if key not in now}
    deeper = {
        key: _deletions(value, now[key])
        for key, value in last.items()
        if key in now and isinstance(value, dict)
    }
    return gone | {key: value for key, value in deeper.items() if value}


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return one | {
        key: merged(one[key], value)
        if isinstance(value, dict) and isinstance(one.get(key), dict)
        else value
        for key, value in other.items()
    }


def status(server: ApiServer, **options: Any) -> None:
    """Runs the status write of a reconcile pass."""
    with server:
        config = server.kubeconfig(ACCOUNT)
        cluster = connect(
            KubernetesAccess(kubeconfig_secret="k"),
            lambda _: config,
            clock=lambda: NOW,
            sleep=lambda _: None,
            jitter=lambda: 0.5,
        )
        publish(
            Plan("plan", "shop", NOW),
            Options(**options),
            PublishedStatus(),
            ClusterWriter(lambda: cluster),
        )
        cluster.close()


@pytest.mark.parametrize("apply", [server_side, three_ways])
def test_status_configmap_survives_repeated_apply(
    server: ApiServer, apply: Callable[[Caller], None]
) -> None:
    person = Caller(server, "person")
    apply(person)
    status(server)
    before = person("GET", PATH).json()
    assert "autoscalerStatus: Running" in before["data"][KEY]
    for _ in range(2):
        apply(person)
        after = person("GET", PATH).json()
        assert after["data"] == before["data"]
        assert before["metadata"]["annotations"].items() <= after["metadata"]["annotations"].items()


@pytest.mark.parametrize("apply", [server_side, three_ways])
def test_status_configmap_of_an_older_version_survives_the_first_apply(
    server: ApiServer, apply: Callable[[Caller], None]
) -> None:
    person = Caller(server, "person")
    person("POST", MAPS, {**SHIPPED, "data": {KEY: "old", "theirs": "kept"}})
    apply(person)
    assert person("GET", PATH).json()["data"] == {KEY: "old", "theirs": "kept"}
    status(server)
    assert "Running" in person("GET", PATH).json()["data"][KEY]
    assert person("GET", PATH).json()["data"]["theirs"] == "kept"


def test_status_configmap_missing_causes_only_configmap_requests(server: ApiServer) -> None:
    with pytest.raises(NotFound):
        status(server)
    assert {(each.method, each.path, each.status) for each in server.requests} == {
        ("GET", PATH, 404)
    }


@pytest.mark.parametrize("options", [{"namespace": "scaling"}, {"status_config_map_name": "other"}])
def test_status_configmap_at_another_name_needs_its_own_role(
    server: ApiServer, options: dict[str, Any]
) -> None:
    """The name in the options must match the Role and the file; the Role
    permits no other ConfigMap."""
    server_side(Caller(server, "person"))
    with pytest.raises(Exception, match="cannot get resource"):
        status(server, **options)
