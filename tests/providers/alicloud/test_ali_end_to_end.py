"""A complete simulated world with an Alibaba Cloud account: machines are bought, join, run
pods, and are removed again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.alicloud.models import NO_STOCK, AlicloudGroup
from infra.emulators.alicloud.node_registration import AlicloudRegistrationOptions
from infra.emulators.controllers import objects
from infra.emulators.local_world import LocalWorld
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.amounts import examples

POLICY = """
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {{name: {name}}}
spec:
  mode: active
  scanInterval: 20s
  kubernetes: {{kubeconfigSecret: {kubeconfig}}}
  providers:
    alicloud: {settings}
  nodeGroups:
{groups}
  options: {{expander: priority, scaleDownUnneededTime: 2m, scaleDownDelayAfterAdd: 2m}}
"""


class AliWorldFixture:
    """The world with its account and two groups: `first` is preferred to `second`."""

    def __init__(self, world: LocalWorld, account: AlicloudAccount) -> None:
        self.world, self.account, self.cloud = world, account, account.cloud
        self.first, self.second = (
            self.cloud.add_group(name, most=4) for name in ("first", "second")
        )
        world.apply_policy(
            POLICY.format(
                name=world.name,
                kubeconfig=world.kubeconfig_secret,
                settings=account.settings(),
                groups="\n".join(
                    self._entry(group, priority)
                    for group, priority in ((self.first, 9), (self.second, 1))
                ),
            )
        )
        world.seed(objects.node("system", cpu="2"))

    def _entry(self, group: AlicloudGroup, priority: int) -> str:
        return f"    - {{provider: alicloud, id: {group.id}, min: 0, max: 4, priority: {priority}}}"

    def settled(self) -> bool:
        return not self.world.pending()


@pytest.fixture(params=["", "alicloud://"])
def bed(request: pytest.FixtureRequest) -> Iterator[AliWorldFixture]:
    account = AlicloudAccount(ways=AlicloudRegistrationOptions(prefix=request.param, boot=20.0))
    with LocalWorld(quick=True, clouds=(account,), forgetful=True) as world:
        yield AliWorldFixture(world, account)


def test_alicloud_world_stockout_buys_second_choice_and_scales_down_again(
    bed: AliWorldFixture,
) -> None:
    world, cloud = bed.world, bed.cloud
    cloud.spoil(bed.first.id, NO_STOCK, 4)
    world.seed(objects.deployment("web", replicas=4, cpu="1500m", memory="1Gi"))
    took = world.step_until(bed.settled, limit=600.0)
    assert took < 300.0
    assert not bed.first.machines
    assert len(bed.second.machines) == 2
    names = {machine.id for machine in cloud.machines()}
    assert names < set(world.nodes())
    world.step(120.0)
    assert bed.first.desired == 0  # a machine that was never created is not awaited
    deployment = world.kube.peek("deployments", "web", "default", "apps")
    assert deployment is not None
    world.kube.update(
        "deployments", {**deployment, "spec": {**deployment["spec"], "replicas": 0}}, "apps"
    )
    world.step_until(lambda: not cloud.machines(), limit=1800.0)
    world.step(60.0)
    assert set(world.nodes()) == {"system"}
    assert bed.second.desired == 0
    refusals = {call.code for call in bed.account.server.log if call.code}
    assert refusals <= {"ScalingActivityInProgress"}


@pytest.mark.more
@pytest.mark.parametrize("place", ["grow:called", "act:stepped", "act:claimed"][: examples(1, 3)])
def test_alicloud_world_dying_functions_and_lagging_lists_buy_exactly_the_need(place: str) -> None:
    account = AlicloudAccount(ways=AlicloudRegistrationOptions(boot=20.0))
    with LocalWorld(quick=True, clouds=(account,), forgetful=True) as world:
        bed = AliWorldFixture(world, account)
        bed.cloud.lag = 15.0
        bed.cloud.step()
        world.kill_at(place, times=2)
        account.server.faults.next(VendorFault.LOST_ANSWER, on="write")
        world.seed(objects.deployment("web", replicas=4, cpu="1500m", memory="1Gi"))
        world.step_until(bed.settled, limit=900.0)
        world.step(120.0)
        assert sum(bool(each.killed_at) for each in world.invocations) == 2
        assert [each.status for each in bed.first.activities] == ["Successful"]
        assert (len(bed.first.machines), len(bed.second.machines)) == (2, 0)


def test_world_without_clouds_has_no_cloud_components() -> None:
    with LocalWorld(quick=True) as world:
        world.step(5.0)
        assert world.nodes() == ()
