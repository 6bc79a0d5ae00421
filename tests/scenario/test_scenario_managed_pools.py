"""Groups that Outscaler makes itself, from the first pass to their deletion: Nodepools at Exoscale,
and servers with tags at Cherry Servers, each beside one group that a person has made.
"""

from __future__ import annotations

import contextlib
import io
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest

from chalicelib.cli.main import main as outscaler
from chalicelib.model.memory import Control
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.journal import Journal, JournalEntry
from chalicelib.store.tables import OFFERS
from infra.emulators.cherryservers.attached_account import CherryAccount
from infra.emulators.cherryservers.models import CherryDurations
from infra.emulators.controllers import objects
from infra.emulators.exoscale.attached_account import ExoscaleAccount
from infra.emulators.exoscale.models import Ending, Nodepool
from infra.emulators.kube.objects import KubeObject
from infra.emulators.local_world import LocalWorld
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.scenario.policies import document

MINUTE, HOUR = 60.0, 3600.0
WORKERS, POOL = "workers", "general"
TYPE_LABEL = "node.kubernetes.io/instance-type"
CREATE, DELETE, SCALE = "create-sks-nodepool", "delete-sks-nodepool", "scale-sks-nodepool"
OPTIONS = {
    "expander": "least-cost",
    "scaleDownUnneededTime": "3m",
    "scaleDownDelayAfterAdd": "2m",
}
SHAPES = {"thin": ("3", "2Gi", 3), "fat": ("1", "24Gi", 1)}
"""Workload -> cpu and memory of a pod, and replicas: neither fits a worker, and one of each fits
a machine of 4 cores and 32 GiB."""

TWO_THIN = ("3", "2Gi", 2)


@dataclass(frozen=True)
class ManagedPoolsCluster:
    """What both vendors' clusters have."""

    world: LocalWorld

    def run(self, **shapes: tuple[str, str, int]) -> None:
        self.world.seed(
            *(
                objects.deployment(name, replicas=replicas, cpu=cpu, memory=memory)
                for name, (cpu, memory, replicas) in shapes.items()
            )
        )

    def end(self, *names: str) -> None:
        for name in names:
            self.world.kube.delete("deployments", name, "default", "apps")

    def wait_for_pods(self, limit: float = 10 * MINUTE) -> None:
        self.world.step_until(lambda: not self.world.pending(), limit=limit)

    def nodes(self) -> list[KubeObject]:
        """Return the nodes that were bought."""
        nodes = self.world.kube.list("nodes")
        return [node for node in nodes if node["metadata"]["name"] != "system"]

    def types(self) -> Counter[str]:
        return Counter(node["metadata"]["labels"][TYPE_LABEL] for node in self.nodes())

    def growths(self) -> list[str]:
        """Return the groups of all scale-ups that were planned."""
        plans = self.world.plans()
        return [growth["group"] for plan in plans for growth in plan.get("scale_ups", ())]

    def targets(self) -> dict[str, int]:
        """Return what memory says of own groups that have machines."""
        groups = self.world.memory().groups
        return {
            name: group.target
            for name, group in groups.items()
            if name.startswith("osc-") and group.target
        }

    def command(self, *words: str) -> tuple[int, str]:
        """Return the exit code and the output of a command."""
        out = io.StringIO()
        with (
            mock.patch("chalicelib.store.Store", return_value=self.world.store),
            mock.patch("time.time", self.world.clock),
            mock.patch.dict("os.environ", {"OUTSCALER_TABLE": "emulated"}),
            contextlib.redirect_stdout(out),
        ):
            code = outscaler(words)
        return code, out.getvalue()


@dataclass(frozen=True)
class ManagedNodepools(ManagedPoolsCluster):
    """A cluster at Exoscale."""

    account: ExoscaleAccount
    workers: Nodepool

    def apply(
        self, mode: str = "active", pool: Mapping[str, Any] | None = None, **spec: Any
    ) -> None:
        """Puts the policy in force. pool: further fields of the declaration."""
        workers = {"provider": "exoscale", "id": self.workers.pool.id, "min": 0, "max": 2}
        declared = {
            "name": POOL,
            "provider": "exoscale",
            "copyFrom": WORKERS,
            "labels": {"tier": "general"},
            **(pool or {}),
        }
        self.world.apply_policy(
            document(
                mode=mode,
                scan="20s",
                providers={"exoscale": self.account.settings()},
                nodeGroups=[workers],
                prices={"cpu": 0.05, "currency": "EUR"},
                options=OPTIONS,
                managedPools=[declared],
                **spec,
            )
        )

    def disks(self) -> Counter[int]:
        """Return GiB of disk -> machines."""
        pools = self.account.zone.pools.values()
        return Counter(vm.disk for pool in pools for vm in pool.staying)

    def own(self) -> dict[str, int]:
        """Return own Nodepools -> size; none of them twice."""
        nodepools = [
            nodepool
            for cluster in self.account.zone.clusters.values()
            for nodepool in cluster.nodepools.values()
            if nodepool.name != WORKERS
        ]
        sizes = {nodepool.name: nodepool.pool.size for nodepool in nodepools}
        assert len(sizes) == len(nodepools)
        return sizes

    def own_types(self) -> set[str]:
        pools = self.account.zone.pools.values()
        return {pool.kind.name for pool in pools if pool is not self.workers.pool}

    def machines(self) -> int:
        return sum(len(pool.staying) for pool in self.account.zone.pools.values())

    def calls(self, *operations: str) -> int:
        log = self.account.server.log
        return sum(call.operation in operations and call.status < 300 for call in log)


class WatchedWorld(LocalWorld):
    """A world that knows the runtime of the invocation in progress."""

    current: Runtime

    def new_runtime(self) -> Runtime:
        self.current = super().new_runtime()
        return self.current


@pytest.fixture
def nodepools() -> Iterator[ManagedNodepools]:
    account = ExoscaleAccount()
    with WatchedWorld(quick=True, forgetful=True, clouds=(account,)) as world:
        cluster = account.zone.add_cluster("prod")
        made = account.zone.add_nodepool(cluster.id, WORKERS, labels={"team": "shop"})
        world.seed(objects.node("system", cpu="2"))
        yield ManagedNodepools(world, account, made)


def test_nodepools_are_opened_for_odd_pods_and_pruned_when_empty(
    nodepools: ManagedNodepools,
) -> None:
    world = nodepools.world
    nodepools.run(**SHAPES)
    nodepools.apply()

    nodepools.wait_for_pods()

    first, second = world.plans()[:2]
    assert not first.get("scale_ups"), "the first pass knows no catalogue"
    assert second["scale_ups"]
    assert second["at"] - first["at"] < 10.0, "which asks for another one at once"
    bought = nodepools.types()
    assert bought == {"standard.large": 2, "memory.extra-large": 1}
    nodes = nodepools.nodes()
    assert len(nodes) == 3
    for node in nodes:
        labels = node["metadata"]["labels"]
        named = labels["outscaler.dev/pool"], labels["tier"], labels["team"]
        assert named == (POOL, "general", "shop")
    world.step(10 * MINUTE)
    assert nodepools.own() == nodepools.targets()
    assert sorted(nodepools.own().values()) == [1, 2]
    groups = sorted(nodepools.own())
    assert sorted(nodepools.growths()) == groups, "each was asked for once"

    nodepools.end(*SHAPES)
    world.step(2 * HOUR)

    assert not nodepools.nodes()
    assert not nodepools.machines()
    assert nodepools.own() == dict.fromkeys(groups, 0), "empty Nodepools stay"
    assert not nodepools.targets()
    assert not world.operations()
    assert sorted(nodepools.growths()) == groups, "and nothing was bought again"

    code, said = nodepools.command("pools", "prune", world.name, "--pool", POOL)
    assert code == 0
    assert all(group in said for group in groups)
    world.step(10 * MINUTE)

    assert not nodepools.own()
    assert len(nodepools.account.zone.pools) == 1, "the one that a person has made stays"
    assert nodepools.calls(DELETE) == 2
    assert not world.operations()
    world.step(10 * MINUTE)
    assert nodepools.calls(CREATE, DELETE) == 4
    ended = Counter(
        operation.status.state for operation in world.store.operations.ended(world.name)
    )
    assert set(ended) == {"succeeded"}


def test_pruned_nodepool_is_opened_again_under_its_name(nodepools: ManagedNodepools) -> None:
    world = nodepools.world
    nodepools.run(**SHAPES)
    nodepools.apply()
    nodepools.wait_for_pods()
    groups = sorted(nodepools.own())
    nodepools.end(*SHAPES)
    world.step(30 * MINUTE)
    nodepools.command("pools", "prune", world.name)
    world.step(10 * MINUTE)
    assert not nodepools.own()

    nodepools.run(**SHAPES)
    nodepools.wait_for_pods()
    world.step(10 * MINUTE)

    assert sorted(nodepools.own()) == groups
    assert nodepools.own() == nodepools.targets()
    assert not world.operations()


def test_other_machine_type_is_bought_where_the_cheapest_is_sold_out(
    nodepools: ManagedNodepools,
) -> None:
    world = nodepools.world
    nodepools.account.zone.sold_out = {"standard.large"}
    nodepools.run(thin=TWO_THIN)
    nodepools.apply()

    nodepools.wait_for_pods()

    assert len(nodepools.nodes()) == sum(nodepools.types().values())
    assert "standard.large" not in nodepools.types()
    failed = [
        operation
        for operation in world.store.operations.ended(world.name)
        if operation.status.state == "failed"
    ]
    assert len(failed) == 1
    world.step(20 * MINUTE)
    assert not world.operations()
    assert {name: size for name, size in nodepools.own().items() if size} == nodepools.targets()
    assert sum(nodepools.own().values()) == nodepools.machines(), "nothing is asked for in vain"
    assert nodepools.calls(CREATE) == 2
    assert nodepools.calls(SCALE) == 1, "only for the size 0 of the one without machines"
    names = [node["metadata"]["name"] for node in nodepools.nodes()]
    assert len(names) == nodepools.machines()


def test_nodepools_that_the_vendor_calls_invalid_are_tried_a_few_times_a_day(
    nodepools: ManagedNodepools,
) -> None:
    world = nodepools.world
    refusal = Ending(reason="unsupported", message="the image does not run on this type")
    nodepools.account.zone.creation_endings = [refusal] * 1000
    nodepools.run(thin=TWO_THIN)
    nodepools.apply()

    world.step(HOUR)

    assert nodepools.calls(CREATE) == 3
    assert len({*nodepools.growths()}) == 3
    assert not nodepools.own()
    code, said = nodepools.command("get", "pools", world.name)
    assert code == 0
    assert "the vendor refuses 3 machine types of general: unsupported" in " ".join(said.split())

    world.step(8 * HOUR)

    tried = nodepools.calls(CREATE)
    assert 3 < tried <= 9
    assert len({*nodepools.growths()}) == tried, "none of them twice"


@pytest.mark.parametrize("place", ["grow:called", "act:stepped", "act:recorded", "grow:polled"])
def test_killed_function_leaves_one_nodepool(nodepools: ManagedNodepools, place: str) -> None:
    world = nodepools.world
    world.kill_at(place, function="act_exoscale")
    nodepools.run(thin=TWO_THIN)
    nodepools.apply()

    nodepools.wait_for_pods()
    world.step(10 * MINUTE)

    assert [made.killed_at for made in world.invocations if made.killed_at] == [place]
    assert list(nodepools.own().values()) == [2]
    assert nodepools.own() == nodepools.targets()
    assert nodepools.machines() == 2
    assert nodepools.calls(CREATE) == 1
    assert not world.operations()


def test_lost_answer_of_a_creation_leaves_one_nodepool(nodepools: ManagedNodepools) -> None:
    world = nodepools.world
    nodepools.account.server.faults.next(VendorFault.LOST_ANSWER, on=CREATE)
    nodepools.run(thin=TWO_THIN)
    nodepools.apply()

    nodepools.wait_for_pods()
    world.step(10 * MINUTE)

    assert list(nodepools.own().values()) == [2]
    assert nodepools.machines() == 2
    assert nodepools.calls(CREATE) == 1
    assert not world.operations()


def test_outage_of_the_list_of_sks_clusters_neither_buys_nor_deletes(
    nodepools: ManagedNodepools,
) -> None:
    world = nodepools.world
    nodepools.run(**SHAPES)
    nodepools.apply()
    nodepools.wait_for_pods()
    world.step(10 * MINUTE)
    own, known, growths = nodepools.own(), nodepools.targets(), nodepools.growths()

    faults = nodepools.account.server.faults
    faults.next(VendorFault.SERVER_ERROR, on="list-sks-clusters", times=-1)
    world.step(30 * MINUTE)

    assert nodepools.targets() == known
    faults.clear()
    world.step(10 * MINUTE)
    assert nodepools.own() == own == nodepools.targets()
    assert nodepools.growths() == growths
    assert not world.operations()
    assert not world.pending()


def test_pool_39_lost_table_buys_nothing_twice(nodepools: ManagedNodepools) -> None:
    world = nodepools.world
    nodepools.run(**SHAPES, wide=("7", "2Gi", 1))
    nodepools.apply()
    nodepools.wait_for_pods()
    world.step(10 * MINUTE)
    before = nodepools.own()
    assert len(before) == 3
    table = world.store.table
    rows = table.client.scan(TableName=table.name)["Items"]
    lost = [row for row in rows if not row["item"]["S"].startswith(("policy#", "!"))]
    for row in lost:
        table.client.delete_item(
            TableName=table.name, Key={"cluster": row["cluster"], "item": row["item"]}
        )
    assert len(lost) > 5
    assert not world.memory().groups

    world.step(HOUR)

    assert nodepools.own() == before == nodepools.targets()
    assert nodepools.calls(CREATE) == 3
    assert not world.operations()


def test_pool_42_pods_are_planned_again_where_a_person_deletes_the_nodepool(
    nodepools: ManagedNodepools,
) -> None:
    world, zone = nodepools.world, nodepools.account.zone
    nodepools.run(thin=TWO_THIN)
    nodepools.apply()
    world.step_until(lambda: bool(nodepools.own()), limit=10 * MINUTE)
    (deleted,) = nodepools.own()
    (operation,) = world.operations()
    (pool,) = [pool for pool in zone.pools.values() if pool is not nodepools.workers.pool]
    zone.delete_pool(pool.id)

    nodepools.wait_for_pods(20 * MINUTE)
    world.step(10 * MINUTE)

    ended = {made.spec.id: made for made in world.store.operations.ended(world.name)}
    assert ended[operation.spec.id].status.state == "failed"
    assert deleted not in nodepools.own(), "it is in back-off"
    assert "standard.large" not in nodepools.types()
    assert nodepools.own() == nodepools.targets()
    assert sum(nodepools.own().values()) == nodepools.machines() == len(nodepools.nodes())
    assert not world.operations()


SHADOW = "shadow"
NOT_IN_SHADOW = ("operation#", "memory#operation#", "memory#prune")
"""Rows of what passes and executors do."""


def test_pool_56_shadow_mode_names_groups_and_prices(nodepools: ManagedNodepools) -> None:
    world = nodepools.world
    nodepools.run(**SHAPES)
    nodepools.apply(SHADOW)

    world.step(5 * MINUTE)

    bought = {
        (growth["choice"]["instance_type"], growth["to"], growth["price"], growth["opens"])
        for growth in world.plans()[-1]["scale_ups"]
    }
    assert bought == {
        ("standard.large", 2, 0.18096, True),
        ("memory.extra-large", 1, 0.21528, True),
    }
    assert all(group.startswith("osc-") for group in nodepools.growths())


def test_pool_56_shadow_mode_writes_nothing_at_the_vendor_and_buys_in_no_row(
    nodepools: ManagedNodepools,
) -> None:
    world = nodepools.world
    nodepools.run(**SHAPES)
    nodepools.apply(SHADOW)

    world.step(5 * MINUTE)

    log = nodepools.account.server.log
    assert log
    assert [call.operation for call in log if call.writes] == []
    assert len(nodepools.own()) == 0
    assert not world.operations()
    table = world.store.table
    rows = table.client.scan(TableName=table.name)["Items"]
    items = [item["item"]["S"] for item in rows if item["cluster"]["S"] == world.name]
    assert "lease" in items
    assert [item for item in items if item.startswith(NOT_IN_SHADOW)] == []
    planned = [row for name, row in world.memory().groups.items() if name.startswith("osc-")]
    assert len(planned) == 2
    assert all(row.control is Control.WATCHED and row.request is None for row in planned)


# -- the declaration changes

GIB_BEFORE, GIB_AFTER = 50, 100
BUDGET = "disruptionBudgets"
REPLACED: dict[str, Any] = {
    "nodeLifecycle": {"drift": "replace"},
    BUDGET: [{"name": "all", "nodes": 1}],
}
CLOSED = {"deleteEmpty": True, "keepEmpty": "10m"}


def test_pool_52_nodes_of_a_changed_declaration_are_replaced_one_by_one(
    nodepools: ManagedNodepools,
) -> None:
    world = nodepools.world
    nodepools.run(thin=TWO_THIN)
    nodepools.apply(pool=CLOSED, **REPLACED)
    nodepools.wait_for_pods()
    world.step(10 * MINUTE)
    (old,) = nodepools.own()
    assert nodepools.disks() == {GIB_BEFORE: 2}

    nodepools.apply(pool={**CLOSED, "disk": GIB_AFTER}, **REPLACED)
    seen = set[tuple[int, int]]()
    for _ in range(3 * 60):
        world.step(MINUTE)
        disks = nodepools.disks()
        seen.add((disks[GIB_BEFORE], disks[GIB_AFTER]))

    assert not world.pending()
    (new,) = nodepools.own()
    assert new != old
    assert nodepools.own() == {new: 2} == nodepools.targets()
    assert seen <= {(2, 0), (2, 1), (1, 1), (1, 2), (0, 2)}, "the successor comes first"
    assert {(1, 1), (0, 2)} <= seen
    assert (nodepools.calls(CREATE), nodepools.calls(DELETE)) == (2, 1)
    assert not world.operations()


def test_pool_52_value_that_comes_back_makes_the_old_groups_current_again(
    nodepools: ManagedNodepools,
) -> None:
    world = nodepools.world
    held = {**REPLACED, BUDGET: [{"name": "none", "nodes": 0}]}
    nodepools.run(thin=TWO_THIN)
    nodepools.apply(pool=CLOSED, **held)
    nodepools.wait_for_pods()
    world.step(10 * MINUTE)
    before, names = nodepools.own(), {node["metadata"]["name"] for node in nodepools.nodes()}

    nodepools.apply(pool={**CLOSED, "disk": GIB_AFTER}, **held)
    world.step(2 * HOUR)
    assert nodepools.own() == before, "no budget, no replacement"
    nodepools.apply(pool=CLOSED, **REPLACED)
    world.step(3 * HOUR)

    assert nodepools.own() == before == nodepools.targets()
    assert {node["metadata"]["name"] for node in nodepools.nodes()} == names
    assert (nodepools.calls(CREATE), nodepools.calls(DELETE)) == (1, 0)
    nodepools.run(more=("3", "2Gi", 1))
    nodepools.wait_for_pods()
    assert list(nodepools.own().values()) == [3], "and they grow"


def test_pass_killed_between_its_catalogue_and_its_decision_leaves_both_explained(
    nodepools: ManagedNodepools,
) -> None:
    world, place, append = nodepools.world, "journal:offered", Journal.append
    assert isinstance(world, WatchedWorld)

    def checked(journal: Journal, cluster: str, entry: JournalEntry) -> None:
        if entry.fits is not None:
            world.current.checkpoint(place)
        append(journal, cluster, entry)

    nodepools.apply()
    world.step(2 * MINUTE)
    world.kill_at(place)
    nodepools.run(giant=("400", "1Gi", 1))
    with mock.patch.object(Journal, "append", checked):
        while place not in [made.killed_at for made in world.invocations]:
            world.step(5.0)
        rows = world.store.table.query(world.name, OFFERS)
        assert len(list(rows)) == 2, "the second one is of no decision yet"
        (pod,) = world.pending()
        code, said = nodepools.command("explain", "group", WORKERS, "--cluster", world.name)
        assert code == 0, said

        world.step(2 * MINUTE)

    code, said = nodepools.command("explain", "pod", pod, "--cluster", world.name)
    assert code == 0
    words = "8 machine types x zones x markets > 1 fail at gpus > 7 candidates > 0 fit the pod."
    assert f"general: {words}" in said
    assert not world.operations()


def names_of(nodes: list[KubeObject]) -> set[str]:
    return {node["metadata"]["name"] for node in nodes}


@pytest.mark.parametrize("lifecycle", [{}, {"nodeLifecycle": {"drift": "off"}}])
def test_pool_54_groups_of_a_deleted_declaration_are_drained_on_request(
    nodepools: ManagedNodepools, lifecycle: dict[str, Any]
) -> None:
    world = nodepools.world
    nodepools.run(thin=("3", "2Gi", 5))
    nodepools.apply(**lifecycle)
    nodepools.wait_for_pods()
    world.step(10 * MINUTE)
    old, groups = names_of(nodepools.nodes()), nodepools.own()
    assert sum(groups.values()) == len(old) == 5

    nodepools.apply(pool={"name": "later"}, **lifecycle)
    world.step(3 * HOUR)

    assert names_of(nodepools.nodes()) == old, "nothing goes by itself"
    assert nodepools.own() == groups
    code, said = nodepools.command("pools", "drain", world.name, "--pool", "later")
    assert code == 2, "none of its groups retires"

    code, said = nodepools.command("pools", "drain", world.name)
    assert code == 0
    assert all(group in said for group in groups)
    left = [old]
    for _ in range(540):
        world.step(20.0)
        nodes = names_of(nodepools.nodes())
        left.append(nodes & old)
        assert len(nodes) <= 6, "one node is bought for one that goes"
    assert max(len(before - after) for before, after in itertools.pairwise(left)) == 1
    assert not left[-1]
    assert not world.pending()
    assert len(nodepools.nodes()) == nodepools.machines()
    assert not groups.keys() & nodepools.own().keys(), "empty, they are deleted"
    assert nodepools.calls(DELETE) == len(groups)
    assert not world.operations()
    step = len(world.plans())
    world.step(HOUR)
    assert not any(plan.get("closings") for plan in world.plans()[step:])


# -- Cherry Servers


@dataclass(frozen=True)
class ManagedServers(ManagedPoolsCluster):
    """A cluster at Cherry Servers."""

    account: CherryAccount

    def apply(self) -> None:
        workers = {"provider": "cherryservers", "id": WORKERS, "min": 0, "max": 2}
        pool = {
            "name": POOL,
            "provider": "cherryservers",
            "requirements": {"zones": ["eu_nord_1", "LT-Siauliai"], "cpu": "4..16"},
        }
        settings = self.account.settings({WORKERS: {"plan": "cloud_vps_2", "region": "eu_west_1"}})
        self.world.apply_policy(
            document(
                scan="20s",
                providers={"cherryservers": settings},
                nodeGroups=[workers],
                prices={"cpu": 0.05, "currency": "EUR"},
                options=OPTIONS,
                managedPools=[pool],
            )
        )

    def servers(self) -> Counter[str]:
        """Return pool -> servers that are not being deleted."""
        servers = self.account.cloud.servers.values()
        return Counter(server.tags["k8s-nodepool"] for server in servers if not server.leaving)

    def plans(self) -> Counter[str]:
        servers = self.account.cloud.servers.values()
        return Counter(server.order.plan for server in servers if not server.leaving)

    def orders(self) -> int:
        return sum(call.action == "create_server" for call in self.account.server.log)


@pytest.fixture
def servers() -> Iterator[ManagedServers]:
    account = CherryAccount(times=CherryDurations(deploy=120.0))
    with LocalWorld(quick=True, forgetful=True, clouds=(account,)) as world:
        world.seed(objects.node("system", cpu="2"))
        yield ManagedServers(world, account)


def test_servers_are_ordered_for_odd_pods_and_nothing_stays_of_an_empty_group(
    servers: ManagedServers,
) -> None:
    world = servers.world
    servers.run(**SHAPES)
    servers.apply()

    servers.wait_for_pods()
    world.step(10 * MINUTE)

    assert servers.plans() == {"cloud_vps_4": 2, "e5_1620v4": 1}
    assert servers.types() == servers.plans()
    assert dict(servers.servers()) == servers.targets()
    assert sorted(servers.growths()) == sorted(servers.servers()), "each was asked for once"

    servers.end(*SHAPES)
    world.step(2 * HOUR)

    assert not servers.nodes()
    assert not servers.servers()
    assert not servers.targets()
    assert not world.operations()
    assert servers.orders() == 3
    code, said = servers.command("pools", "prune", world.name)
    assert code == 0
    assert "nothing to delete" in said


def test_other_plan_is_ordered_where_the_cheapest_has_sold_out_since_it_was_listed(
    servers: ManagedServers,
) -> None:
    world = servers.world
    servers.apply()
    world.step(2 * MINUTE)
    servers.account.cloud.sell_out("cloud_vps_4", "LT-Siauliai")
    servers.run(thin=TWO_THIN)

    servers.wait_for_pods()
    world.step(10 * MINUTE)

    assert servers.plans() == {"e3_1240v3": 2}
    assert dict(servers.servers()) == servers.targets()
    assert not world.operations()


@pytest.mark.parametrize("place", ["grow:called", "act:stepped", "act:recorded"])
def test_killed_function_orders_no_server_twice(servers: ManagedServers, place: str) -> None:
    world = servers.world
    world.kill_at(place, function="act_cherryservers", times=2)
    servers.run(thin=TWO_THIN)
    servers.apply()

    servers.wait_for_pods(20 * MINUTE)
    world.step(10 * MINUTE)

    killed = [made.killed_at for made in world.invocations if made.killed_at]
    assert killed == [place, place]
    assert servers.plans() == {"cloud_vps_4": 2}
    assert dict(servers.servers()) == servers.targets()
    assert servers.orders() == 2
    assert not world.operations()
