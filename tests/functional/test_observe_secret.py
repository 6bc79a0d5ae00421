"""With `observeSecret` the planning function reads no credential that could change anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chalicelib.policy.secret_names import observing
from chalicelib.policy.settings.cluster_policy import Policy
from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.alicloud.iam import Policy as RamPolicy
from infra.emulators.alicloud.iam import read_policy
from infra.emulators.alicloud.node_registration import AlicloudRegistrationOptions as AliWays
from infra.emulators.aws_services import QuickServices
from infra.emulators.cherryservers.attached_account import CherryAccount
from infra.emulators.controllers import objects
from infra.emulators.exoscale.attached_account import ExoscaleAccount
from infra.emulators.exoscale.attached_account import ExoscaleRegistrationOptions as ExoWays
from infra.emulators.huaweicloud.attached_account import HuaweiAccount
from infra.emulators.kube.auth import RbacRule, User
from infra.emulators.local_world import LocalWorld
from tests.scenario.policies import document

INFRA = Path(__file__).resolve().parents[2] / "infra"
LOOKS, CHANGES = "outscaler/shop/{}-observe", "outscaler/shop/{}"


class ObserveSecretFixture(msgspec.Struct, frozen=True):
    """group, settings: for the policy, without names of secrets. looks, changes: values of the two
    secrets. refused: calls rejected by the vendor so far; written: who made changes."""

    group: str
    settings: dict[str, Any]
    looks: str
    changes: str
    refused: Callable[[], Sequence[str]]
    written: Callable[[], set[str]]
    looker: str


def _alicloud(world: LocalWorld, account: AlicloudAccount) -> ObserveSecretFixture:
    """The key has the rights of the first statement of the shipped policy, which only describes."""
    shipped = read_policy((INFRA / "alicloud/ram-policy.json").read_text("utf-8"))
    account.server.ring.add(
        "LTAI-EXAMPLE-LOOKS", "example-secret-that-looks", RamPolicy(shipped.statements[:1])
    )
    group = account.cloud.add_group("web", most=5)
    return ObserveSecretFixture(
        group.id,
        account.settings(),
        account.secret("LTAI-EXAMPLE-LOOKS"),
        account.secret(),
        lambda: [
            f"{call.key} {call.action} {call.code}" for call in account.server.log if call.code
        ],
        lambda: {call.key for call in account.server.log if not call.action.startswith("Describe")},
        "LTAI-EXAMPLE-LOOKS",
    )


def _huaweicloud(world: LocalWorld, account: HuaweiAccount) -> ObserveSecretFixture:
    """The equivalent with Huawei Cloud's policy."""
    shipped = json.loads((INFRA / "huaweicloud/policy.json").read_text("utf-8"))["Statement"][0][
        "Action"
    ]
    account.server.ring.add("HPUA-EXAMPLE-LOOKS", "example-secret-that-looks", frozenset(shipped))
    account.cloud.add_pool(account.cluster.uid, "web")
    return ObserveSecretFixture(
        "web",
        account.settings(),
        account.secret("HPUA-EXAMPLE-LOOKS"),
        account.secret(),
        lambda: [
            f"{call.key} {call.operation} {call.code}" for call in account.server.log if call.code
        ],
        lambda: {call.key for call in account.server.log if call.method != "GET"},
        "HPUA-EXAMPLE-LOOKS",
    )


def _exoscale(world: LocalWorld, account: ExoscaleAccount) -> ObserveSecretFixture:
    reads = frozenset(
        {
            "list-instance-pools",
            "get-instance-pool",
            "list-instances",
            "get-instance",
            "get-instance-type",
            "get-quota",
            "get-operation",
            "list-sks-clusters",
        }
    )
    account.server.ring.add("EXO-EXAMPLE-LOOKS", "example-secret-that-looks", reads)
    account.zone.add_nodepool(account.zone.add_cluster("prod").id, "web", type="standard.large")
    return ObserveSecretFixture(
        "prod/web",
        account.settings(),
        account.secret("EXO-EXAMPLE-LOOKS"),
        account.secret(),
        lambda: [str(call) for call in account.server.log if call.status >= 300],
        lambda: {call.key for call in account.server.log if call.method != "GET"},
        "EXO-EXAMPLE-LOOKS",
    )


def _cherryservers(world: LocalWorld, account: CherryAccount) -> ObserveSecretFixture:
    account.server.add_token("CHERRY-EXAMPLE-LOOKS", writes=False)
    return ObserveSecretFixture(
        "workers",
        account.settings(),
        "CHERRY-EXAMPLE-LOOKS",
        next(iter(account.secrets().values())),
        lambda: [str(call) for call in account.server.log if call.status >= 300],
        lambda: {"the log names no token" for call in account.server.log if call.method != "GET"},
        "CHERRY-EXAMPLE-LOOKS",
    )


def _clusterapi(world: LocalWorld, _: None) -> ObserveSecretFixture:
    """Both kubeconfigs are for the one simulated server, with two users."""
    reads = RbacRule(verbs=("get", "list"), groups=("*",), resources=("*",))
    world.server.api.authority.admit(User("looks", "token-that-looks"), [reads])
    world.seed(objects.machine_deployment("web", 0, 0, 5))

    def mine() -> list[Any]:
        return [call for call in world.server.requests if "cluster.x-k8s.io" in call.path]

    return ObserveSecretFixture(
        "MachineDeployment/default/web",
        {"clusterName": "local", "namespace": "default"},
        world.server.kubeconfig("looks"),
        world.server.kubeconfig(),
        lambda: [str(call) for call in mine() if call.status in {401, 403}],
        lambda: {call.user for call in mine() if call.method != "GET"},
        "looks",
    )


SCENES: dict[
    str, tuple[Callable[[], Any] | None, Callable[[LocalWorld, Any], ObserveSecretFixture], str]
] = {
    "alicloud": (lambda: AlicloudAccount(ways=AliWays(boot=20.0)), _alicloud, "credentialsSecret"),
    "cherryservers": (CherryAccount, _cherryservers, "credentialsSecret"),
    "clusterapi": (None, _clusterapi, "kubeconfigSecret"),
    "exoscale": (lambda: ExoscaleAccount(ways=ExoWays(boot=20.0)), _exoscale, "credentialsSecret"),
    "huaweicloud": (HuaweiAccount, _huaweicloud, "credentialsSecret"),
}


def asked(world: LocalWorld, provider: str) -> set[str]:
    """Which of the two secrets were read since the last call."""
    assert isinstance(world.services, QuickServices)
    found = {LOOKS.format(provider), CHANGES.format(provider)} & set(world.services.secrets.asked)
    world.services.secrets.asked.clear()
    return found


@pytest.mark.parametrize("provider", SCENES)
def test_passes_use_the_read_only_key_and_operations_the_write_key(provider: str) -> None:
    """First in mode shadow, then in mode active until all pods have a node."""
    make, prepare, key = SCENES[provider]
    account = make() if make is not None else None
    looks, changes = LOOKS.format(provider), CHANGES.format(provider)
    with LocalWorld(
        quick=True, clouds=() if account is None else (account,), forgetful=True
    ) as world:
        scene = prepare(world, account)
        world.put_secret(looks, scene.looks)
        world.put_secret(changes, scene.changes)
        spec: dict[str, Any] = {
            "providers": {provider: scene.settings | {key: changes, "observeSecret": looks}},
            "nodeGroups": [{"provider": provider, "id": scene.group, "min": 0, "max": 5}],
        }
        world.seed(
            objects.node("system", cpu="2"),
            objects.deployment("web", replicas=2, cpu="3", memory="1Gi"),
        )
        world.apply_policy(document(mode="shadow", **spec))
        world.step(200)
        assert world.plans()[-1]["scale_ups"]
        assert asked(world, provider) == {looks}
        world.apply_policy(document(mode="active", **spec))
        world.step_until(lambda: not world.pending(), limit=3600.0)
        assert asked(world, provider) == {looks, changes}
        assert scene.refused() == []
        assert scene.written()
        assert scene.looker not in scene.written()


@pytest.mark.parametrize(
    ("provider", "given", "used"),
    [
        (
            "exoscale",
            {"zone": "z", "credentialsSecret": "c"},
            {"zone": "z", "credentialsSecret": "o"},
        ),
        (
            "cherryservers",
            {"credentialsSecret": "c", "bootstrapTokenSecret": "b"},
            {"credentialsSecret": "o", "bootstrapTokenSecret": "b"},
        ),
        (
            "huaweicloud",
            {
                "credentialsSecret": "c",
                "agencyName": "a",
                "agencyDomain": "d",
                "agencyDuration": "900",
            },
            {"credentialsSecret": "o"},
        ),
        (
            "alicloud",
            {"credentialsSecret": "c", "roleArn": "r", "sessionName": "s"},
            {"credentialsSecret": "o", "sessionName": "s"},
        ),
        (
            "alicloud",
            {"oidcProviderArn": "p", "oidcTokenSecret": "t", "roleArn": "r"},
            {"credentialsSecret": "o"},
        ),
        ("alicloud", {"metadataEndpoint": "m", "ramRole": "r"}, {"credentialsSecret": "o"}),
        (
            "clusterapi",
            {"kubeconfigSecret": "c", "context": "x"},
            {"kubeconfigSecret": "o", "context": "x"},
        ),
    ],
)
def test_policy_for_passes_contains_no_write_credentials(
    provider: str,
    given: dict[str, str],
    used: dict[str, str],
) -> None:
    without = Policy(name="shop", providers={provider: given})
    assert observing(without) == without
    policy = Policy(name="shop", providers={provider: given | {"observeSecret": "o"}})
    assert observing(policy).providers == {provider: used}
