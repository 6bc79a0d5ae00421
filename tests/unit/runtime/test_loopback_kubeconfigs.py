"""In a function, kubeconfigs may not lead to a loopback address; in a command they may."""

from __future__ import annotations

import json

import pytest

from chalicelib.cluster import errors
from chalicelib.model.errors import BadInput
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.runtime.runtime import LAMBDA, from_environment
from infra.emulators.deployed_functions import queues
from infra.emulators.scripted_http_server import HttpScript, Reply, Seen
from tests.unit.cluster.support import kubeconfig


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("HTTPS_PROXY", "http://127.0.0.1:9"),
        ("NO_PROXY", ""),
    ):
        monkeypatch.setenv(name, value)
    urls = {f"OUTSCALER_QUEUE_{name.upper()}": f"http://127.0.0.1:9/{name}" for name in queues()}
    return {**urls, "OUTSCALER_TABLE": "t"}


def connected(environment: dict[str, str], server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns the requested path after reading a node, or the reason why nothing was requested."""
    text = json.dumps(kubeconfig(server))

    def secrets(_: Seen) -> Reply:
        return Reply(200, {"SecretString": text}, {"Content-Type": "application/x-amz-json-1.1"})

    with HttpScript(secrets) as aws:
        monkeypatch.setenv("AWS_ENDPOINT_URL", aws.url)
        policy = Policy(
            name="shop", kubernetes=KubernetesAccess(kubeconfig_secret="outscaler/shop/kubeconfig")
        )
        try:
            cluster = from_environment(environment).kube_client(policy)
            return cluster.get("/api/v1/nodes/a").decode()
        except (BadInput, errors.ClusterError) as error:
            return str(error)


def test_function_reaches_no_loopback_address(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with HttpScript([Reply(200, {"kind": "Node"})]) as runtime_api:
        said = connected({**environment, LAMBDA: "reconcile"}, runtime_api.url, monkeypatch)
    assert "is a loopback address" in said
    assert runtime_api.requests == []


def test_command_may_reach_loopback_addresses(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with HttpScript([Reply(200, {"kind": "Node"})]) as server:
        assert json.loads(connected(environment, server.url, monkeypatch)) == {"kind": "Node"}
