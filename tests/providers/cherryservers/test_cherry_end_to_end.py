"""A complete simulated world with a Cherry Servers account: servers are bought, join, run
pods, and are removed again."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator

import pytest

from infra.emulators.cherryservers.attached_account import (
    TOKEN,
    CherryAccount,
    CherryRegistrationOptions,
)
from infra.emulators.cherryservers.models import (
    NEVER_JOINS,
    NO_STOCK,
    NOT_DEPLOYED,
    CherryDurations,
    CherryProvisioningFate,
)
from infra.emulators.controllers import objects
from infra.emulators.local_world import LocalWorld
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.amounts import examples

TIMES = CherryDurations(deploy=120.0, fail=40.0, terminate=30.0)
POOLS = {"first": {"plan": "e5_1620v4"}, "second": {"plan": "e3_1240v3"}}
POLICY = """
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {{name: {name}}}
spec:
  mode: active
  scanInterval: 20s
  kubernetes: {{kubeconfigSecret: {kubeconfig}}}
  providers:
    cherryservers: {settings}
  nodeGroups:
    - {{provider: cherryservers, id: first, min: 0, max: 4, priority: 9}}
    - {{provider: cherryservers, id: second, min: 0, max: 4, priority: 1}}
  options: {{expander: priority, scaleDownUnneededTime: 2m, scaleDownDelayAfterAdd: 2m, \
maxNodeProvisionTime: 8m}}
"""


class CherryWorldFixture:
    """The world with its account and two pools: `first` is preferred to `second`."""

    def __init__(self, world: LocalWorld, account: CherryAccount) -> None:
        self.world, self.account, self.cloud = world, account, account.cloud
        world.apply_policy(
            POLICY.format(
                name=world.name,
                kubeconfig=world.kubeconfig_secret,
                settings=json.dumps(account.settings(POOLS)),
            )
        )
        world.seed(objects.node("system", cpu="2"))

    def settled(self) -> bool:
        return not self.world.pending()

    def work(self, replicas: int) -> None:
        self.world.seed(objects.deployment("web", replicas=replicas, cpu="3000m", memory="1Gi"))

    def rest(self) -> None:
        deployment = self.world.kube.peek("deployments", "web", "default", "apps")
        assert deployment is not None
        self.world.kube.update(
            "deployments", {**deployment, "spec": {**deployment["spec"], "replicas": 0}}, "apps"
        )

    def ordered(self) -> list[str]:
        return [call.about for call in self.account.server.log if call.action == "create_server"]


@pytest.fixture
def bed() -> Iterator[CherryWorldFixture]:
    account = CherryAccount(times=TIMES, ways=CherryRegistrationOptions(boot=20.0, adopt=10.0))
    with LocalWorld(quick=True, clouds=(account,), forgetful=True) as world:
        yield CherryWorldFixture(world, account)


def test_cherry_world_stockout_buys_second_choice_and_scales_down_again(
    bed: CherryWorldFixture,
) -> None:
    world, cloud = bed.world, bed.cloud
    cloud.spoil("first", NO_STOCK, 9)
    bed.work(2)
    assert world.step_until(bed.settled, limit=900.0) < 600.0
    assert not cloud.members("first")
    names = {server.hostname for server in cloud.members("second")}
    assert len(names) == 2
    assert names < set(world.nodes())
    bed.rest()
    world.step_until(lambda: not cloud.servers, limit=1800.0)
    world.step(60.0)
    assert set(world.nodes()) == {"system"}
    assert {call.action for call in bed.account.server.log if call.status >= 400} <= {
        "create_server"
    }


@pytest.mark.more
@pytest.mark.parametrize("fate", [NEVER_JOINS, NOT_DEPLOYED][: examples(1, 2)])
def test_cherry_world_failed_or_never_joining_server_is_replaced(
    bed: CherryWorldFixture, fate: CherryProvisioningFate
) -> None:
    bed.cloud.spoil("first", fate)
    bed.work(1)
    bed.world.step_until(bed.settled, limit=2400.0)
    bed.world.step(300.0)
    assert len(bed.cloud.members("first")) + len(bed.cloud.members("second")) == 1
    assert len(bed.cloud.dropped) == 1


@pytest.mark.more
@pytest.mark.parametrize("place", ["grow:called", "act:stepped", "act:claimed"][: examples(1, 3)])
def test_cherry_world_dying_functions_and_lagging_lists_buy_exactly_the_need(
    bed: CherryWorldFixture, place: str
) -> None:
    world = bed.world
    bed.cloud.lag = 20.0
    world.kill_at(place, times=2)
    bed.account.server.faults.next(VendorFault.LOST_ANSWER, on="write")
    bed.work(2)
    world.step_until(bed.settled, limit=1500.0)
    world.step(120.0)
    assert sum(bool(each.killed_at) for each in world.invocations) == 2
    assert len(bed.ordered()) == len(set(bed.ordered())) == 2
    assert (len(bed.cloud.members("first")), len(bed.cloud.members("second"))) == (2, 0)


def test_cherry_world_managed_join_tokens_appear_only_in_user_data(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    account = CherryAccount(
        times=TIMES, ways=CherryRegistrationOptions(boot=20.0, check_token=True), create_tokens=True
    )
    with LocalWorld(quick=True, clouds=(account,), forgetful=True) as world:
        bed = CherryWorldFixture(world, account)
        bed.work(2)
        world.step_until(bed.settled, limit=900.0)
        tokens = [
            each
            for each in world.kube.list("secrets", "kube-system")
            if each["metadata"]["name"].startswith("bootstrap-token-")
        ]
        assert len(tokens) == 1
        assert len(account.cloud.members("first")) == 2
        rows = world.services.dynamodb.scan(TableName=world.services.table)["Items"]
        said = "".join(
            (
                json.dumps(world.plans()),
                repr(world.operations()),
                repr(account.server.log),
                repr(rows),
                json.dumps(world.metrics),
                caplog.text,
            )
        )
        secret = base64.b64decode(tokens[0]["data"]["token-secret"]).decode()
        scripts = {server.order.user_data for server in account.cloud.members("first")}
        assert all(secret in base64.b64decode(script).decode() for script in scripts)
        assert rows
        assert not [text for text in (secret, TOKEN, *scripts) if text in said]
