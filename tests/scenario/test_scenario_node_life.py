"""Whole stories at emulated vendors: a definition changes, a vendor takes a spot node back, a
machine is restarted. The planner, the executors, the vendor's API and the cluster are all there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.cherryservers.attached_account import CherryAccount, CherryRegistrationOptions
from infra.emulators.cherryservers.models import CherryDurations
from infra.emulators.controllers import objects
from infra.emulators.exoscale.attached_account import ExoscaleAccount, ExoscaleRegistrationOptions
from infra.emulators.huaweicloud import simulation as cce
from infra.emulators.huaweicloud.attached_account import HuaweiAccount
from infra.emulators.huaweicloud.node_registration import CceRegistrationOptions
from infra.emulators.kube.objects import clone
from infra.emulators.local_world import LocalWorld
from tests.scenario.policies import document

MINUTE = 60.0
OPTIONS = {"scaleDownUnneededTime": "10h", "maxNodeProvisionTime": "2h"}
REPLACED = {"drift": "replace"}


def begin(world: LocalWorld, providers: dict[str, Any], *, scan: str = "60s", **spec: Any) -> None:
    """Puts the policy in force."""
    world.apply_policy(
        document(
            scan=scan, secret=world.kubeconfig_secret, providers=providers, options=OPTIONS, **spec
        )
    )
    world.seed(objects.node("system", cpu="1"))


def web(world: LocalWorld, replicas: int = 2) -> None:
    """Pods of which each fills a node."""
    world.seed(objects.deployment("web", replicas=replicas, cpu="2500m", memory="1Gi"))
    world.step_until(lambda: ready(world) == replicas, limit=90 * MINUTE)


def ready(world: LocalWorld) -> int:
    """How many pods run on a node."""
    return sum(
        pod["status"].get("phase") == "Running" and pod["metadata"].get("deletionTimestamp") is None
        for pod in world.kube.list("pods", "default")
    )


def test_life_10_a_changed_nodepool_renews_its_members_and_keeps_its_size() -> None:
    account = ExoscaleAccount(ways=ExoscaleRegistrationOptions(boot=20.0))
    with LocalWorld(quick=True, clouds=(account,)) as world:
        cluster = account.zone.add_cluster("prod")
        pool = account.zone.add_nodepool(cluster.id, "web", type="standard.large", size=2).pool
        groups = [{"provider": "exoscale", "id": "prod/web", "min": 2, "max": 3}]
        begin(
            world,
            {"exoscale": json.loads(json.dumps(account.settings()))},
            nodeGroups=groups,
            nodeLifecycle=REPLACED,
        )
        web(world)
        old, sizes = set(pool.members), set[int]()
        account.zone.update_pool(pool.id, type="standard.extra-large")
        for _ in range(60):
            world.step(MINUTE)
            sizes.add(pool.size)
            if not old & set(pool.members):
                break
        assert not old & set(pool.members)
        world.step(5 * MINUTE)
        # GROW first, then evict
        assert (sizes | {pool.size}, pool.size, len(pool.members)) == ({2, 3}, 2, 2)
        assert {member.kind.name for member in pool.members.values()} == {"standard.extra-large"}
        assert ready(world) == 2


def test_life_11_a_server_of_an_old_definition_stays_until_its_successor_is_ready() -> None:
    times = CherryDurations(deploy=45 * MINUTE, terminate=30.0)
    account = CherryAccount(times=times, ways=CherryRegistrationOptions(boot=20.0, adopt=10.0))
    with LocalWorld(quick=True, clouds=(account,)) as world:
        groups = [{"provider": "cherryservers", "id": "metal", "min": 0, "max": 2}]

        def define(image: str) -> None:
            pools = {"metal": {"plan": "e5_1620v4", "os": image}}
            providers = {"cherryservers": account.settings(pools)}
            world.apply_policy(
                document(
                    secret=world.kubeconfig_secret,
                    providers=providers,
                    options=OPTIONS,
                    nodeGroups=groups,
                    nodeLifecycle=REPLACED,
                )
            )

        define("ubuntu_18_04")
        world.seed(objects.node("system", cpu="1"))
        web(world, 1)
        (old,) = account.cloud.servers
        define("ubuntu_22_04_64bit")
        both = 0
        for _ in range(120):
            world.step(MINUTE)
            names = {node["metadata"]["name"] for node in world.kube.list("nodes")}
            assert ready(world) == 1 or len(names) > 2, "the pod only moves when both are nodes"
            both += len(account.cloud.servers) == 2
            if old not in account.cloud.servers:
                break
        assert old not in account.cloud.servers
        assert both >= 45  # minutes in which the new server was installed and the old one ran
        world.step(5 * MINUTE)
        assert (ready(world), len(account.cloud.servers)) == (1, 1)


def test_spot_4_pods_leave_a_preemptible_instance_before_ecs_takes_it() -> None:
    account = AlicloudAccount()
    with LocalWorld(quick=True, clouds=(account,)) as world:
        group = account.cloud.add_group("spot", size=2, most=5, spot="SpotAsPriceGo")
        groups = [{"provider": "alicloud", "id": group.id, "min": 0, "max": 5}]
        begin(world, {"alicloud": account.settings()}, nodeGroups=groups, spot={})
        web(world)
        victim = sorted(group.machines)[0]
        ends = account.cloud.interrupt(victim)
        world.step_until(
            lambda: not any(pod["spec"].get("nodeName") == victim for pod in running(world)),
            limit=300.0,
        )
        assert world.clock() < ends - 2 * MINUTE
        world.step_until(lambda: ready(world) == 2, limit=10 * MINUTE)
        world.step(10 * MINUTE)
        assert victim not in {node["metadata"]["name"] for node in world.kube.list("nodes")}
        memory = world.store.memory.look(world.name).groups[group.id]
        assert memory.risk is not None
        assert (round(memory.risk.interruptions), memory.failed_removals, memory.backoff) == (
            1,
            {},
            None,
        )


def running(world: LocalWorld) -> list[dict[str, Any]]:
    """The pods of the Deployment."""
    pods: list[dict[str, Any]] = world.kube.list("pods", "default")
    return pods


@pytest.mark.parametrize(("scan", "left"), [("60s", 120.0), ("20s", 160.0)])
def test_spot_2_a_notice_of_cce_is_seen_while_so_much_of_it_is_left(scan: str, left: float) -> None:
    account = HuaweiAccount(ways=CceRegistrationOptions(boot=20.0, check=120.0))
    with LocalWorld(quick=True, clouds=(account,), grain=5.0) as world:
        pool = account.cloud.add_pool(
            account.cluster.uid, "spot", size=2, most=5, extend={"marketType": "spot"}
        )
        begin(world, {"huaweicloud": account.settings()}, scan=scan, spot={})
        web(world)
        node = next(node for node in account.cloud.running() if node.pool == pool.uid)
        began = world.clock()
        cce.give_notice(account.cloud, node.uid)
        world.step_until(lambda: any(op.spec.interrupted for op in world.operations()), limit=300.0)
        # the pass itself, and the step of this test
        assert began + 300.0 - world.clock() >= left - 10.0
        world.step_until(lambda: account.cloud.node(node.uid) is None, limit=400.0)
        world.step(5 * MINUTE)
        assert ready(world) == 2


def test_life_15_a_sick_node_is_restarted_by_its_vendor_and_takes_pods_again() -> None:
    account = AlicloudAccount()
    with LocalWorld(quick=True, clouds=(account,)) as world:
        group = account.cloud.add_group("web", size=3, least=3, most=3)
        groups = [{"provider": "alicloud", "id": group.id, "min": 3, "max": 3}]
        repair = [{"condition": "KernelDeadlock", "after": "1m", "action": "restart"}]
        lifecycle = {"drift": "off", "repair": repair, "maxUnhealthy": "50%"}
        begin(world, {"alicloud": account.settings()}, nodeGroups=groups, nodeLifecycle=lifecycle)
        web(world)
        sick = sorted(pod["spec"]["nodeName"] for pod in running(world))[0]
        node = clone(world.kube.peek("nodes", sick) or {})
        node["status"]["conditions"].append({"type": "KernelDeadlock", "status": "True"})
        node["status"]["nodeInfo"] = {**node["status"].get("nodeInfo", {}), "bootID": "before"}
        world.kube.update("nodes", node)
        world.step_until(lambda: account.cloud.machine(sick).reboots == 1, limit=15 * MINUTE)
        assert all(pod["spec"].get("nodeName") != sick for pod in running(world)), (
            "it was drained first"
        )
        node = clone(world.kube.peek("nodes", sick) or {})
        node["status"]["conditions"] = [
            c for c in node["status"]["conditions"] if c["type"] != "KernelDeadlock"
        ]
        node["status"]["nodeInfo"]["bootID"] = "after"
        world.kube.update("nodes", node)
        world.step(15 * MINUTE)
        node = world.kube.peek("nodes", sick) or {}
        assert not node["spec"].get("taints")
        assert not node["spec"].get("unschedulable")
        assert (account.cloud.machine(sick).reboots, len(group.machines), ready(world)) == (1, 3, 2)
