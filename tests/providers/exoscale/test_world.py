"""A complete simulated world with an Exoscale zone: instances are bought, join, run
pods, and are removed again.
"""

from __future__ import annotations

import pytest

from infra.emulators.controllers import objects
from infra.emulators.exoscale.attached_account import ExoscaleAccount, ExoscaleRegistrationOptions
from infra.emulators.exoscale.models import UNAVAILABLE, Ending, ExoscaleDurations, ExoscalePool
from infra.emulators.local_world import LocalWorld
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.amounts import examples
from tests.providers.exoscale.wire import checker

POLICY = """
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {{name: {name}}}
spec:
  mode: active
  scanInterval: 20s
  kubernetes: {{kubeconfigSecret: {kubeconfig}}}
  providers:
    exoscale: {settings}
  nodeGroups:
{groups}
  options: {{expander: priority, scaleDownUnneededTime: 2m, scaleDownDelayAfterAdd: 2m}}
"""


class ExoWorldFixture:
    """The world with its zone, a preferred SKS Nodepool, and a standalone pool."""

    def __init__(self, world: LocalWorld, account: ExoscaleAccount) -> None:
        self.world, self.account, self.zone = world, account, account.zone
        self.checker = checker()
        account.server.front.watches.append(self.checker.watch)
        cluster = self.zone.add_cluster("prod")
        self.sks: ExoscalePool = self.zone.add_nodepool(
            cluster.id, "web", type="standard.large"
        ).pool
        self.own: ExoscalePool = self.zone.add_pool("own", size=1, type="standard.large")
        world.apply_policy(
            POLICY.format(
                name=world.name,
                kubeconfig=world.kubeconfig_secret,
                settings=account.settings(),
                groups="\n".join(
                    (
                        f"    - {{provider: exoscale, id: {id_}, min: {least}, max: 5, priority: "
                        f"{priority}}}"
                    )
                    for id_, least, priority in (("prod/web", 0, 9), (self.own.id, 1, 1))
                ),
            )
        )
        world.seed(objects.node("system", cpu="2"))
        world.step(60.0)

    def demand(self, replicas: int) -> None:
        self.world.seed(objects.deployment("web", replicas=replicas, cpu="3", memory="1Gi"))

    def settled(self) -> bool:
        return not self.world.pending()


def test_exoscale_world_unavailable_first_choice_buys_second_and_scales_down() -> None:
    account = ExoscaleAccount(ways=ExoscaleRegistrationOptions(boot=20.0))
    with LocalWorld(quick=True, clouds=(account,), forgetful=True) as world:
        bed = ExoWorldFixture(world, account)
        bed.zone.spoil(bed.sks.id, UNAVAILABLE, 3)
        bed.demand(4)
        world.step_until(bed.settled, limit=900.0)
        world.step(180.0)
        assert (len(bed.own.staying), len(bed.sks.staying)) == (4, 0)
        assert bed.sks.size == 0, "what was never made is not waited for"
        deployment = world.kube.peek("deployments", "web", "default", "apps")
        assert deployment is not None
        world.kube.update(
            "deployments", {**deployment, "spec": {**deployment["spec"], "replicas": 0}}, "apps"
        )
        world.step_until(lambda: len(bed.zone.running()) == 1, limit=2400.0)
        world.step(120.0)
        assert (bed.own.size, len(bed.own.staying)) == (1, 1), "its minimum stays"
        assert len(world.nodes()) == 2
        others = [call for call in account.server.log if call.status not in {200, 409}]
        assert {(call.status, call.operation) for call in others} <= {(404, "get-instance")}, (
            "evicted ones are gone"
        )
        assert not bed.checker.problems


@pytest.mark.more
@pytest.mark.parametrize("place", ["grow:called", "act:stepped"][: examples(1, 2)])
def test_exoscale_world_dying_functions_and_lost_answers_buy_exactly_the_need(place: str) -> None:
    account = ExoscaleAccount(
        ways=ExoscaleRegistrationOptions(boot=20.0),
        times=ExoscaleDurations(operation=300.0, create=240.0),
    )
    with LocalWorld(quick=True, clouds=(account,), forgetful=True) as world:
        bed = ExoWorldFixture(world, account)
        world.kill_at(place, times=2)
        account.server.faults.next(VendorFault.LOST_ANSWER, on="write")
        bed.demand(3)
        world.step_until(bed.settled, limit=1200.0)
        world.step(120.0)
        assert sum(bool(each.killed_at) for each in world.invocations) == 2
        assert (len(bed.sks.staying), bed.sks.size, bed.own.size) == (2, 2, 1)
        assert not bed.checker.problems


@pytest.mark.more
@pytest.mark.parametrize("trouble", ["timeout", "success", "updating"][: examples(1, 3)])
def test_exoscale_world_pool_refusing_changes_keeps_no_pod_from_other_pools(trouble: str) -> None:
    account = ExoscaleAccount(ways=ExoscaleRegistrationOptions(boot=20.0))
    with LocalWorld(quick=True, clouds=(account,), forgetful=True) as world:
        bed = ExoWorldFixture(world, account)
        if trouble == "updating":
            bed.zone.set_state(bed.sks.id, trouble)
        else:
            bed.zone.end_next(bed.sks.id, Ending(trouble, done=False), 99)
        bed.demand(3)
        world.step_until(bed.settled, limit=600.0)
        assert (len(bed.own.staying), len(bed.sks.staying), bed.sks.size) == (3, 0, 0)
        assert not bed.checker.problems
