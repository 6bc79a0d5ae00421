"""A complete simulated world with a CCE project: nodes are bought, join, run
pods, and are removed again.
"""

from __future__ import annotations

import json

from infra.emulators.controllers import objects
from infra.emulators.huaweicloud.attached_account import HuaweiAccount
from infra.emulators.huaweicloud.models import DEFAULT, CceDurations
from infra.emulators.huaweicloud.node_registration import CceRegistrationOptions
from infra.emulators.local_world import LocalWorld
from infra.emulators.vendor_common.fault_injection import VendorFault

POLICY = """
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {{name: {name}}}
spec:
  mode: active
  scanInterval: 20s
  kubernetes: {{kubeconfigSecret: {kubeconfig}}}
  providers:
    huaweicloud: {settings}
  options: {{expander: priority, scaleDownUnneededTime: 2m, scaleDownDelayAfterAdd: 2m}}
"""


class CceWorldFixture:
    """The world with its project: a preferred pool of two scale groups, and a
    pool with a single group."""

    def __init__(self, world: LocalWorld, account: HuaweiAccount) -> None:
        self.world, self.account, self.cloud = world, account, account.cloud
        self.web = self.cloud.add_pool(account.cluster.uid, "web", most=8, priority=10)
        self.cloud.add_group(self.web.uid, "az2", most=4, priority=5)
        self.own = self.cloud.add_pool(
            account.cluster.uid, "own", size=1, least=1, most=5, priority=1, az=self.cloud.zone("c")
        )
        world.apply_policy(
            POLICY.format(
                name=world.name, kubeconfig=world.kubeconfig_secret, settings=account.settings()
            )
        )
        world.seed(objects.node("system", cpu="2"))
        world.step(60.0)

    def demand(self, replicas: int) -> None:
        self.world.seed(objects.deployment("web", replicas=replicas, cpu="3", memory="1Gi"))

    def release(self) -> None:
        deployment = self.world.kube.peek("deployments", "web", "default", "apps")
        assert deployment is not None
        self.world.kube.update(
            "deployments", {**deployment, "spec": {**deployment["spec"], "replicas": 0}}, "apps"
        )

    def settled(self) -> bool:
        return not self.world.pending()

    def tried(self) -> list[str]:
        """Returns the groups that were asked for nodes, each once, in order."""
        pools = {pool.uid: pool.name for pool in (self.web, self.own)}
        calls = [call for call in self.account.server.log if call.operation == "scale-pool"]
        groups = [json.loads(call.body)["spec"]["scaleGroups"][0] for call in calls]
        asked = [pools[call.path.split("/")[-3]] for call in calls]
        return list(
            dict.fromkeys(f"{pool}/{group}" for pool, group in zip(asked, groups, strict=True))
        )

    def sizes(self) -> list[tuple[int, int]]:
        """Returns desired and existing sizes of `web/default`, `web/az2` and `own`."""
        groups = [self.web.groups[DEFAULT], self.web.groups["az2"], self.own.groups[DEFAULT]]
        return [(group.desired, len(group.staying)) for group in groups]


def test_CCE_11_sold_out_flavour_yields_to_next_flavour_then_pool_then_scale_down() -> None:
    account = HuaweiAccount(ways=CceRegistrationOptions(boot=5.0))
    with LocalWorld(quick=True, clouds=(account,), forgetful=True) as world:
        bed = CceWorldFixture(world, account)
        for zone in ("cn-north-4a", "cn-north-4b"):
            bed.cloud.sell_out("c7.xlarge.2", zone)
        bed.demand(3)
        world.step_until(bed.settled, limit=900.0)
        world.step(180.0)
        assert bed.tried()[:3] == ["web/az2", "web/default", "own/default"]
        assert bed.sizes() == [(0, 0), (0, 0), (3, 3)], "what was never made is not waited for"
        bed.release()
        world.step_until(lambda: len(bed.cloud.running()) == 1, limit=2400.0)
        world.step(120.0)
        assert bed.sizes() == [(0, 0), (0, 0), (1, 1)], "its minimum stays"
        assert len(world.nodes()) == 2
        calls = account.server.log
        assert not [call for call in calls if call.method == "PUT"]
        assert {call.status for call in calls} <= {200, 400, 409}
        assert all(call.path.partition("?")[2] == "" for call in calls if call.writes)


def test_CCE_18_world_with_crashes_and_lost_answers_buys_exactly_the_need() -> None:
    account = HuaweiAccount(
        ways=CceRegistrationOptions(boot=5.0), times=CceDurations(build=100.0, install=60.0)
    )
    with LocalWorld(quick=True, clouds=(account,), forgetful=True) as world:
        bed = CceWorldFixture(world, account)
        world.kill_at("grow:called", times=1)
        world.kill_at("act:stepped", times=1)
        account.server.faults.next(VendorFault.LOST_ANSWER, on="write")
        bed.demand(4)
        world.step_until(bed.settled, limit=1200.0)
        world.step(120.0)
        assert sum(bool(each.killed_at) for each in world.invocations) == 2
        assert (
            sum(size for size, _ in bed.sizes()) == sum(count for _, count in bed.sizes()) == 1 + 3
        )
        assert not [node for node in bed.cloud.running() if node.phase == "Deleting"]
