"""With `observeSecret` the function that plans reads no credential that could change anything."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.model.policy import Policy
from chalicelib.policy.observing import observing
from infra.local.cherryservers.account import CherryAccount
from infra.local.controllers import seed
from infra.local.exoscale.account import ExoscaleAccount
from infra.local.exoscale.joining import Ways
from infra.local.services import QuickServices
from infra.local.world import LocalWorld
from tests.scenario.policies import document

READS = frozenset({"list-instance-pools", "get-instance-pool", "list-instances", "get-instance", "get-instance-type",
                   "get-quota", "get-operation", "list-sks-clusters"})
LOOKS, CHANGES = "outscaler/shop/{}-observe", "outscaler/shared/{}"


def asked(world: LocalWorld, provider: str) -> set[str]:
    """Secrets of that provider that were read since the last look."""
    assert isinstance(world.services, QuickServices)
    found = {name for name in world.services.secrets.asked if f"/{provider}" in name}
    world.services.secrets.asked.clear()
    return found


def look_then_grow(world: LocalWorld, provider: str, group: str, settings: dict[str, Any]) -> None:
    """First in mode shadow, then in mode active until all pods have a node."""
    looks, changes = LOOKS.format(provider), CHANGES.format(provider)
    spec: dict[str, Any] = {"providers": {provider: settings | {"observeSecret": looks}},
            "nodeGroups": [{"provider": provider, "id": group, "min": 0, "max": 5}]}
    world.seed(seed.node("system", cpu="2"), seed.deployment("web", replicas=2, cpu="3", memory="1Gi"))
    world.apply_policy(document(mode="shadow", **spec))
    world.step(200)
    assert world.plans()[-1]["scale_ups"]
    assert asked(world, provider) == {looks}
    world.apply_policy(document(mode="active", **spec))
    world.step_until(lambda: not world.pending(), limit=3600.0)
    assert {looks, changes} <= asked(world, provider)


def test_exoscale_is_looked_at_with_a_key_that_cannot_write() -> None:
    account = ExoscaleAccount(ways=Ways(boot=20.0))
    with LocalWorld(quick=True, clouds=(account,), forgetful=True) as world:
        account.server.ring.add("EXO-EXAMPLE-LOOKS", "example-secret-that-looks", READS)
        world.put_secret(LOOKS.format("exoscale"),
                         json.dumps({"apiKey": "EXO-EXAMPLE-LOOKS", "apiSecret": "example-secret-that-looks"}))
        account.zone.add_nodepool(account.zone.add_cluster("prod").id, "web", type="standard.large")
        look_then_grow(world, "exoscale", "prod/web", account.settings())
        assert {call.status for call in account.server.log} == {200}


def test_cherry_servers_is_looked_at_with_a_token_that_cannot_write() -> None:
    account = CherryAccount()
    with LocalWorld(quick=True, clouds=(account,), forgetful=True) as world:
        account.server.add_token("CHERRY-EXAMPLE-LOOKS", writes=False)
        world.put_secret(LOOKS.format("cherryservers"), "CHERRY-EXAMPLE-LOOKS")
        look_then_grow(world, "cherryservers", "workers", account.settings())
        assert all(call.status < 300 for call in account.server.log)


@pytest.mark.parametrize(("provider", "given", "used"), [
    ("exoscale", {"zone": "z", "credentialsSecret": "c"}, {"zone": "z", "credentialsSecret": "o"}),
    ("cherryservers", {"credentialsSecret": "c", "bootstrapTokenSecret": "b"},
     {"credentialsSecret": "o", "bootstrapTokenSecret": "b"}),
    ("huaweicloud", {"credentialsSecret": "c", "agencyName": "a", "agencyDomain": "d", "agencyDuration": "900"},
     {"credentialsSecret": "o"}),
    ("alicloud", {"credentialsSecret": "c", "roleArn": "r", "sessionName": "s"},
     {"credentialsSecret": "o", "sessionName": "s"}),
    ("alicloud", {"oidcProviderArn": "p", "oidcTokenSecret": "t", "roleArn": "r"}, {"credentialsSecret": "o"}),
    ("alicloud", {"metadataEndpoint": "m", "ramRole": "r"}, {"credentialsSecret": "o"}),
    ("clusterapi", {"kubeconfigSecret": "c", "context": "x"}, {"kubeconfigSecret": "o", "context": "x"}),
])
def test_nothing_of_the_credentials_for_changes_is_left(
    provider: str, given: dict[str, str], used: dict[str, str],
) -> None:
    without = Policy(name="shop", providers={provider: given})
    assert observing(without) == without
    policy = Policy(name="shop", providers={provider: given | {"observeSecret": "o"}})
    assert observing(policy).providers == {provider: used}
