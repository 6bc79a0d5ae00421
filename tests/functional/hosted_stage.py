"""A deployed stage whose functions run under Lambda's runtime client, with a
cluster and four vendors.

Hosted functions connect to no loopback address, and to vendors only with TLS. Therefore the cluster
and the vendors are served on another address of this machine, with a certificate authority that is
in the functions' copy of certifi.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chalicelib.cli.main import main as outscaler
from chalicelib.runtime.webhook_authentication import sign
from chalicelib.store import Store
from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.aws import LocalAws
from infra.emulators.certificates import CertificateAuthority
from infra.emulators.cherryservers.account import PROJECT
from infra.emulators.cherryservers.attached_account import CherryAccount, CherryRegistrationOptions
from infra.emulators.cherryservers.models import CherryDurations as MetalTimes
from infra.emulators.controllers import objects
from infra.emulators.controllers.manager import ClusterSimulation
from infra.emulators.controllers.objects import apply_shipped
from infra.emulators.exoscale.attached_account import ExoscaleAccount
from infra.emulators.huaweicloud.attached_account import HuaweiAccount
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from infra.emulators.lambda_events import Json, http_event
from infra.emulators.lambda_runtime.hosted_functions import Ahead, Hosted
from infra.emulators.lambda_runtime.process import Made
from infra.emulators.other_autoscaler import address
from tests.functional.artifact import artifact
from tests.functional.deployments import deploy, small_package

PREFIX, TABLE = "outscaler-dev", "outscaler-dev-state"
SECRETS = "outscaler/dev/shop/"
HMAC = "hmac-value-for-tests"
METAL = "metal"
TAGS = "k8s.io/cluster-autoscaler/node-template/"
SCRIPT = """\
#!/bin/bash
echo 'KUBELET_EXTRA_ARGS=--node-labels=pool={{.NodeGroup}}' > /etc/default/kubelet
kubeadm join --token {{.BootstrapTokenID}}.{{.BootstrapTokenSecret}} {{.APIServerEndpoint}}
"""
GROWS = ("alicloud", "exoscale", "cherryservers", "huaweicloud")


class HostedStage:
    """aws, hosted, kube: the account, its functions, the cluster's objects. pools: vendor
    -> the label of its pool."""

    def __init__(self, place: Path, stack: ExitStack, patch: pytest.MonkeyPatch, host: str) -> None:
        self.clock, self._host, self._place = Ahead(), host, place
        self.aws = stack.enter_context(LocalAws())
        self.aws.reset()
        for name, value in {**self.aws.env, "OUTSCALER_PREFIX": PREFIX}.items():
            patch.setenv(name, value)
        # The emulated Lambda only stores the code: `Hosted` runs the artifact, and
        # test_deploy_stage.py uploads it.
        self.wrong = deploy(small_package(place), place / "deployed")
        authority = CertificateAuthority()
        self.kube = ObjectStore(self.clock)
        apply_shipped(self.kube)
        self.store = Store(TABLE, clock=self.clock, client=self.aws.client("dynamodb"))
        self.clouds: dict[str, Any] = self._accounts(authority.server(host))
        controllers = [cloud.attach(self.clock, self.kube) for cloud in self.clouds.values()]
        self.cluster = ClusterSimulation(self.kube, self.clock, more=controllers)
        self.server = stack.enter_context(ApiServer(self.kube, tls=True, address=host))
        for cloud in self.clouds.values():
            cloud.server.address = host
            stack.callback(cloud.stop)
            cloud.start()
        self._permit_endpoints()
        self.hosted = stack.enter_context(
            Hosted(self.aws, artifact().zip, place / "lambda", self.clock, authority.pem)
        )

    def _accounts(self, tls: Any) -> dict[str, Any]:
        return {
            "alicloud": AlicloudAccount(tls=tls),
            "exoscale": ExoscaleAccount(tls=tls),
            "cherryservers": CherryAccount(
                tls=tls,
                times=MetalTimes(deploy=60.0),
                ways=CherryRegistrationOptions(cluster="shop"),
                create_tokens=True,
            ),
            "huaweicloud": HuaweiAccount(tls=tls),
        }

    def _permit_endpoints(self) -> None:
        """Permits the endpoints as a deployment permits its own proxy: by a variable of every
        function and in the published settings, by which `apply` judges."""
        hosts = ",".join(cloud.server.host for cloud in self.clouds.values())
        functions = self.aws.client("lambda")
        for one in functions.list_functions()["Functions"]:
            variables = one["Environment"]["Variables"] | {"OUTSCALER_ALLOWED_ENDPOINTS": hosts}
            functions.update_function_configuration(
                FunctionName=one["FunctionName"], Environment={"Variables": variables}
            )
        rows = self.store.deployment_settings()
        settings = rows.read()
        assert settings is not None
        rows.publish(msgspec.structs.replace(settings, endpoints=frozenset(hosts.split(","))))

    # -- user actions

    def furnish(self) -> list[Json]:
        """Creates an empty group at each vendor; returns their names in the policy."""
        ali, exo, huawei = (self.clouds[name] for name in ("alicloud", "exoscale", "huaweicloud"))
        burst = ali.cloud.add_group("burst", most=3, machine_tags={f"{TAGS}label/pool": "alicloud"})
        sks = exo.zone.add_cluster("shop")
        exo_pool = exo.zone.add_nodepool(sks.id, "sks", labels={"pool": "exoscale"})
        cce = huawei.cloud.add_pool(
            huawei.cluster.uid, "cce", most=3, labels={"pool": "huaweicloud"}
        )
        return [
            {"provider": "alicloud", "id": burst.id, "min": 0, "max": 3},
            {"provider": "exoscale", "id": exo_pool.pool.id, "min": 0, "max": 3},
            {"provider": "cherryservers", "id": METAL, "min": 0, "max": 3},
            {"provider": "huaweicloud", "id": cce.uid, "min": 0, "max": 3},
        ]

    def connect(self) -> None:
        """Stores secrets under the cluster's own names and runs `outscaler apply`."""
        groups = self.furnish()
        self.aws.put_secret(f"{SECRETS}kubeconfig", self.server.kubeconfig())
        self.aws.put_secret(f"{SECRETS}webhook", json.dumps({"hmac": HMAC}))
        sections: Json = {"clusterapi": {"clusterName": "local"}}
        for name, cloud in self.clouds.items():
            text = json.dumps(cloud.settings())
            for number, (secret, value) in enumerate(cloud.secrets().items()):
                self.aws.put_secret(f"{SECRETS}{name}-{number}", value)
                text = text.replace(f'"{secret}"', f'"{SECRETS}{name}-{number}"')
            sections[name] = json.loads(text)
        metal = sections["cherryservers"]
        sections["cherryservers"] = {
            **{key: metal[key] for key in ("credentialsSecret", "endpoint")},
            "clusterName": "shop",
            "createBootstrapTokens": True,
            "nodeGroupDefs": {
                "default": {
                    "projectId": PROJECT,
                    "region": "LT-Siauliai",
                    "plan": "amd-ryzen-9950x",
                    "os": "ubuntu_24_04_64bit",
                    "apiServerEndpoint": "203.0.113.10:6443",
                    "cloudInit": SCRIPT,
                }
            },
        }
        self.apply(
            "shop",
            sections,
            nodeGroups=groups,
            webhook={"secret": f"{SECRETS}webhook"},
            options={"scaleDownUnneededTime": "1m", "scaleDownDelayAfterAdd": "1m"},
        )

    def apply(self, name: str, providers: Json, **spec: Any) -> None:
        """Runs `outscaler apply` with a policy."""
        access = spec.pop("kubernetes", {"kubeconfigSecret": f"outscaler/dev/{name}/kubeconfig"})
        file = self._place / f"{name}.yaml"
        file.write_text(
            json.dumps(
                {  # JSON is valid YAML
                    "apiVersion": "outscaler.dev/v1",
                    "kind": "Cluster",
                    "metadata": {"name": name},
                    "spec": {
                        "mode": "active",
                        "kubernetes": access,
                        "providers": providers,
                        **spec,
                    },
                }
            )
        )
        # The clusters of the emulation have private addresses.
        assert outscaler(["apply", str(file), "--accept-findings", "the emulation"]) == 0

    def scale(self, name: str, replicas: int) -> None:
        """Changes the replicas as `kubectl scale deployment` does."""
        found = self.kube.get("deployments", name, "default", "apps")
        assert found is not None
        found["spec"]["replicas"] = replicas
        self.kube.update("deployments", found, "apps")

    # -- time

    def play(self, minutes: int) -> None:
        """Advances minute by minute: the schedule, the queues, and the cluster's
        own controllers in between."""
        for _ in range(minutes):
            made = self.hosted.tick()
            assert not made.error, made.log
            for _ in range(4):
                self.cluster.step()
                self.hosted.deliver()
                self.hosted.pass_time(15.0)

    # -- observations

    def function(self, name: str) -> str:
        """The function's name in the account."""
        return PREFIX if name == "api_handler" else f"{PREFIX}-{name}"

    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, resource: str
    ) -> Made:
        """Sends a request through API Gateway to the function behind the routes."""
        parameters = {"name": target.split("/")[2]} if "{name}" in resource else {}
        return self.hosted.invoke(
            PREFIX, http_event(method, target, headers, body, resource, parameters, "r-1")
        )

    def post(self, body: bytes, key: str = HMAC, cluster: str = "shop") -> Made:
        """Sends a signed POST to the webhook."""
        at = str(int(self.clock()))
        headers = {
            "X-Outscaler-Timestamp": at,
            "X-Outscaler-Signature": sign(key.encode(), cluster, at, body),
        }
        return self.request(
            "POST", f"/clusters/{cluster}/events", headers, body, "/clusters/{name}/events"
        )

    def nodes(self, pool: str) -> int:
        """Nodes of the cluster with that pool's label."""
        return sum(
            node["metadata"].get("labels", {}).get("pool") == pool
            for node in self.kube.list("nodes")
        )

    def replicas(self, group: str) -> int:
        """Replicas of a MachineDeployment."""
        found = self.kube.peek("machinedeployments", group, "default", group="cluster.x-k8s.io")
        assert found is not None
        return int(found["spec"]["replicas"])


def shops(place: Path) -> Iterator[HostedStage]:
    """One shop, for a module's tests."""
    host = address()
    if not host:
        pytest.skip(
            "this machine has no address but loopback, to which hosted functions do not connect"
        )
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        shop = HostedStage(place, stack, patch, host)
        shop.connect()
        yield shop


def pods_for(pool: str) -> Json:
    """A Deployment of one pod that only fits nodes of that pool."""
    return objects.deployment(f"for-{pool}", replicas=1, cpu="500m", nodeSelector={"pool": pool})
