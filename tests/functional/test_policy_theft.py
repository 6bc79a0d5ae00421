"""An attacker who can only write policies obtains no secret and no call, neither
by apply nor by PutItem.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from chalicelib.functions import read_api
from chalicelib.model.errors import InputErrors, OutscalerError
from chalicelib.model.policy_permissions import STRICT
from chalicelib.policy.load import digest, load
from chalicelib.policy.secret_names import observing
from chalicelib.runtime.messages import ReconcileMessage, encode
from chalicelib.runtime.runtime import install
from infra.emulators.aws_services import QuickServices
from infra.emulators.controllers.objects import machine_deployment
from infra.emulators.lambda_events import sqs_event, sqs_record
from infra.emulators.local_world import LocalWorld
from infra.emulators.scripted_http_server import HttpScript, Reply

ALI = {"region": "cn-hangzhou", "nodes": "0:5:asg-bp18p2yfxow2dloq0001"}
OIDC = ALI | {
    "oidcProviderArn": "acs:ram::1234567890123456:oidc-provider/x",
    "roleArn": "acs:ram::1234567890123456:role/x",
}
CHERRY = {
    "nodes": "0:5:pool1",
    "clusterName": "evil",
    "cloudConfigSecret": "outscaler/evil/cherryservers-config",
}
HUAWEI = {"region": "cn-north-4", "clusterId": "2292498e-1111-11ee-8b5e-0255ac1001ba"}
EXO = {"zone": "ch-gva-2"}

# The policy's provider settings, and the key that is rejected. MINE: a server of the
# attacker; FILE: an existing file.
THEFTS: dict[str, tuple[dict[str, Any], str]] = {
    "the-functions-environment": (
        {"alicloud": OIDC | {"oidcTokenFile": "/proc/self/environ", "stsEndpoint": "MINE"}},
        "oidcTokenFile",
    ),
    "a-file-at-the-vendors-host": ({"alicloud": OIDC | {"oidcTokenFile": "FILE"}}, "oidcTokenFile"),
    "a-kubeconfig-file": ({"clusterapi": {"kubeconfigFile": "FILE"}}, "kubeconfigFile"),
    "another-clusters-token": (
        {
            "cherryservers": CHERRY
            | {"credentialsSecret": "outscaler/shop/cherryservers", "endpoint": "MINE"}
        },
        "credentialsSecret",
    ),
    "another-clusters-token-at-the-vendors-host": (
        {"cherryservers": CHERRY | {"credentialsSecret": "outscaler/shop/cherryservers"}},
        "credentialsSecret",
    ),
    "the-own-token-at-a-foreign-host": (
        {
            "cherryservers": CHERRY
            | {"credentialsSecret": "outscaler/evil/cherryservers", "endpoint": "MINE"}
        },
        "endpoint",
    ),
    "any-secret-as-an-oidc-token": (
        {"alicloud": OIDC | {"oidcTokenSecret": "outscaler/shop/webhook", "stsEndpoint": "MINE"}},
        "oidcTokenSecret",
    ),
    "the-own-webhook-secret-as-an-oidc-token": (
        {"alicloud": OIDC | {"oidcTokenSecret": "outscaler/evil/webhook"}},
        "oidcTokenSecret",
    ),
    "signed-calls-of-exoscale": (
        {"exoscale": EXO | {"credentialsSecret": "outscaler/evil/exoscale", "endpoint": "MINE"}},
        "endpoint",
    ),
    "keys-that-another-cluster-looks-with": (
        {
            "exoscale": EXO
            | {
                "credentialsSecret": "outscaler/evil/exoscale",
                "observeSecret": "outscaler/shop/exoscale-observe",
            }
        },
        "observeSecret",
    ),
    "signed-calls-of-huawei": (
        {
            "huaweicloud": HUAWEI
            | {"credentialsSecret": "outscaler/evil/huaweicloud", "iamEndpoint": "MINE"}
        },
        "iamEndpoint",
    ),
    "a-metadata-service": ({"alicloud": ALI | {"metadataEndpoint": "MINE"}}, "metadataEndpoint"),
    "a-bucket-called-ess": (
        {
            "alicloud": ALI
            | {"region": "oss-cn-hangzhou", "credentialsSecret": "outscaler/evil/alicloud"}
        },
        "region",
    ),
    "a-management-cluster-of-others": (
        {"clusterapi": {"kubeconfigSecret": "outscaler/shop/clusterapi"}},
        "kubeconfigSecret",
    ),
}
GOOD = {"clusterapi": {"namespace": "default"}}


class PolicyTheftFixture:
    """A deployment with an honest cluster `shop`, and a server on which the attacker listens."""

    def __init__(self, world: LocalWorld, mine: HttpScript, file: Path) -> None:
        self.world, self.mine, self.file = world, mine, file
        assert isinstance(world.services, QuickServices)
        self.secrets = world.services.secrets

    def text(self, providers: dict[str, Any], **spec: Any) -> str:
        """The attacker's policy for a separate cluster, in mode shadow."""
        document = {
            "apiVersion": "outscaler.dev/v1",
            "kind": "Cluster",
            "metadata": {"name": "evil"},
            "spec": {
                "mode": "shadow",
                "kubernetes": {"kubeconfigSecret": "outscaler/evil/kubeconfig"},
                "providers": providers,
            }
            | spec,
        }
        return (
            json.dumps(document)
            .replace('"MINE"', json.dumps(self.mine.url))
            .replace("FILE", str(self.file))
        )

    def put_item(self, text: str) -> None:
        """Writes the row with PutItem, bypassing `outscaler apply`, and
        handles a message for it."""
        self.world.store.policies.put("evil", text, digest(text), None)

    def passes(self) -> None:
        """Runs ticks and passes of all clusters, and one message for the attacker's
        cluster that nothing delayed."""
        self.world.step(130)
        body = encode(ReconcileMessage("evil", "webhook", self.world.clock())).decode()
        self.world.invoke("reconcile", sqs_event(sqs_record("reconcile", "m", "r", body, {})))

    def stolen(self) -> tuple[list[str], list[str]]:
        """(what reached the attacker's server, which secrets besides the honest
        cluster's own were read)."""
        # the second one has no owner and does not exist
        honest = {"outscaler/shop/kubeconfig", "outscaler/-/webhook"}
        return [seen.path for seen in self.mine.requests], [
            name for name in self.secrets.asked if name not in honest
        ]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[PolicyTheftFixture]:
    file = tmp_path / "file"
    file.write_text("eyJhbGciOi.example.token")
    with HttpScript(lambda _: Reply(200, {})) as mine, LocalWorld(deployment=STRICT) as world:
        made = PolicyTheftFixture(world, mine, file)
        world.seed(machine_deployment("workers", 1, 1, 4))
        world.apply_policy(json.dumps(json.loads(made.text(GOOD).replace("evil", "shop"))))
        for name in ("evil/kubeconfig", "shop/clusterapi"):
            world.put_secret(f"outscaler/{name}", world.server.kubeconfig())
        for name in ("shop/cherryservers", "evil/cherryservers", "shop/webhook", "evil/webhook"):
            world.put_secret(f"outscaler/{name}", "example-token-of-sixteen-or-more")
        world.put_secret("outscaler/evil/exoscale", '{"apiKey": "EXOx", "apiSecret": "x"}')
        world.put_secret("outscaler/evil/huaweicloud", '{"accessKey": "x", "secretKey": "x"}')
        world.put_secret("outscaler/evil/alicloud", '{"accessKeyId": "x", "accessKeySecret": "x"}')
        yield made
    install(None)


@pytest.mark.parametrize(("providers", "word"), THEFTS.values(), ids=THEFTS)
def test_policy_that_steals_secrets_is_not_applied(
    scene: PolicyTheftFixture, providers: dict[str, Any], word: str
) -> None:
    with pytest.raises(InputErrors, match=word):
        scene.world.apply_policy(scene.text(providers))


@pytest.mark.parametrize(("providers", "word"), THEFTS.values(), ids=THEFTS)
def test_stored_policy_that_steals_secrets_has_no_effect(
    scene: PolicyTheftFixture,
    log: io.StringIO,
    providers: dict[str, Any],
    word: str,
) -> None:
    scene.put_item(scene.text(providers))
    scene.passes()
    assert scene.stolen() == ([], [])
    reported = [line for line in log.getvalue().splitlines() if word in line]
    assert reported
    assert all("policy evil, version 1" in line for line in reported)
    shown = {
        line["name"]: line["health"]
        for line in read_api.clusters(scene.world.new_runtime()).body["clusters"]
    }
    assert shown == {"evil": "unreadable", "shop": "ok"}
    assert (
        "spec.providers."
        in read_api.cluster("evil", scene.world.new_runtime()).body["policy"]["error"]
    )
    assert scene.world.plan_ids()  # the honest cluster continues


@pytest.mark.parametrize(("providers", "_"), THEFTS.values(), ids=THEFTS)
def test_function_rejects_a_stealing_policy_that_bypassed_other_checks(
    scene: PolicyTheftFixture, providers: dict[str, Any], _: str
) -> None:
    """The objects built for a function reject the policy again if it reached them unchecked: no
    foreign secret is read and no call is made."""
    rt = scene.world.new_runtime()
    policy, _warnings = load(scene.text(providers), place="unchecked")
    own = {
        "outscaler/evil/alicloud",
        "outscaler/evil/cherryservers",
        "outscaler/evil/cherryservers-config",
        "outscaler/evil/exoscale",
        "outscaler/evil/huaweicloud",
        "outscaler/evil/kubeconfig",
    }
    for made in (policy, observing(policy)):
        for provider in rt.providers(made, rt.kube_client(made), rt.read_secret):
            with suppress(OutscalerError):
                provider.observe(())
    sent, read = scene.stolen()
    assert sent == []
    assert set(read) <= own


@pytest.mark.parametrize(
    "spec",
    [
        {"kubernetes": {"kubeconfigSecret": "outscaler/shop/kubeconfig"}},
        {"kubernetes": {"kubeconfigSecret": "outscaler/shop/clusterapi"}},
        {"kubernetes": {"inClusterKubeconfigSecret": "outscaler/shop/kubeconfig"}},
        {"kubernetes": {"kubeconfigFile": "FILE"}},
        {"webhook": {"secret": "outscaler/shop/webhook"}},
        {"webhook": {"secret": "outscaler/evil/kubeconfig"}},
    ],
)
def test_cluster_access_uses_only_the_clusters_own_secrets(
    scene: PolicyTheftFixture, spec: dict[str, Any]
) -> None:
    text = scene.text(GOOD, **spec)
    with pytest.raises(InputErrors, match=r"spec\.(kubernetes|webhook)"):
        scene.world.apply_policy(text)
    scene.put_item(text)
    scene.passes()
    rt = scene.world.new_runtime()
    assert rt.webhook_credentials.for_cluster("evil").keys.hmac == ()
    assert scene.stolen() == ([], [])


def test_policy_that_uses_its_own_secrets_works(scene: PolicyTheftFixture) -> None:
    text = scene.text(GOOD, webhook={"secret": "outscaler/evil/webhook"})
    scene.world.apply_policy(text)
    scene.passes()
    shown = {
        line["name"]: line["health"]
        for line in read_api.clusters(scene.world.new_runtime()).body["clusters"]
    }
    assert shown == {"evil": "ok", "shop": "ok"}
    assert scene.world.new_runtime().webhook_credentials.for_cluster("evil").keys.hmac
