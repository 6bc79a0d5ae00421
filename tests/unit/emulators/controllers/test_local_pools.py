"""MachinePools with and without Machines, and pauses, in the emulated controllers."""

from __future__ import annotations

from typing import Any

import pytest

from infra.emulators.controllers import objects
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.capi.controller import CapiControllerSettings
from infra.emulators.controllers.capi.machine_deployments import on_delete, proportional
from infra.emulators.controllers.capi.machines import MachineTimes
from infra.emulators.controllers.kubelet import KubeletTimes
from infra.emulators.controllers.manager import Pace
from infra.emulators.controllers.object_writes import is_true
from infra.emulators.controllers.workloads import SetSize
from infra.emulators.kube.objects import KubeObject
from tests.unit.emulators.controllers.cluster import EmulatedCluster

PACE = Pace(
    kubelets=KubeletTimes(boot=10),
    machines=CapiControllerSettings(times=MachineTimes(provision=20, join=30, delete=10)),
)
VERSIONS = pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])


def of_pool(size: int = 2, **more: Any) -> EmulatedCluster:
    return EmulatedCluster(objects.machine_pool("pool", size, 0, 10, **more), pace=PACE)


def pool(cluster: EmulatedCluster) -> KubeObject:
    return cluster.the("machinepools", "pool", group=fields.GROUP)


def listed(cluster: EmulatedCluster) -> list[str]:
    return [each.rpartition("/")[2] for each in pool(cluster)["spec"].get("providerIDList") or ()]


@VERSIONS
@pytest.mark.parametrize("machines", [True, False])
def test_local_pool_instances_are_listed_and_join_after_their_delays(
    version: str, machines: bool
) -> None:
    cluster = of_pool(version=version, machines=machines)
    assert (listed(cluster), len(cluster.machines())) == ([], 2 if machines else 0)
    cluster.wait(21)
    assert (len(listed(cluster)), cluster.nodes()) == (2, [])
    cluster.wait(45)
    assert sorted(cluster.nodes()) == sorted(listed(cluster))
    status = pool(cluster)["status"]
    assert (status["replicas"], status["readyReplicas"], status["phase"]) == (2, 2, "Running")
    for node in cluster.store.list("nodes"):
        marks = node["metadata"]["annotations"]
        assert (marks[fields.OWNER_KIND], marks[fields.OWNER_NAME], marks[fields.CLUSTER_NAME]) == (
            "MachinePool",
            "pool",
            "local",
        )
        assert (fields.MACHINE in marks) is machines
    if machines:
        assert {each["metadata"]["labels"][fields.POOL_NAME] for each in cluster.machines()} == {
            "pool"
        }


@pytest.mark.parametrize(("how", "goes_first"), [("machines", "marked"), ("heedless", "first")])
def test_local_pool_infrastructure_provider_chooses_the_machine_to_delete(
    how: str, goes_first: str
) -> None:
    made = objects.machine_pool("pool", 3, 0, 10, machines=True)
    made["metadata"]["annotations"]["local.outscaler/pool"] = how
    cluster = EmulatedCluster(made, pace=PACE)
    cluster.wait(60)
    first, *_, last = sorted(cluster.nodes())
    marked = cluster.the("machines", last, group=fields.GROUP)
    marked["metadata"]["annotations"][fields.DELETE_MACHINE] = ""
    cluster.store.update("machines", marked, fields.GROUP)
    cluster.resize("machinepools", "pool", fields.GROUP, 2)
    cluster.wait(15)
    assert (last if goes_first == "marked" else first) not in cluster.nodes()
    assert len(cluster.nodes()) == len(listed(cluster)) == 2


def test_local_pool_without_machines_deletes_the_oldest_and_never_reuses_names() -> None:
    cluster = of_pool(3)
    cluster.wait(60)
    cluster.resize("machinepools", "pool", fields.GROUP, 2)
    cluster.wait(9)
    assert "pool-0000" in cluster.nodes()
    cluster.wait(2)
    assert cluster.nodes() == listed(cluster) == ["pool-0001", "pool-0002"]
    cluster.resize("machinepools", "pool", fields.GROUP, 3)
    cluster.wait(60)
    assert listed(cluster) == ["pool-0001", "pool-0002", "pool-0003"]


@pytest.mark.parametrize(
    ("fault", "exists", "joins"),
    [
        ("never-joins", True, False),
        ("out-of-stock", False, False),
        ("quota", False, False),
        ("slow", False, False),
    ],
)
@pytest.mark.parametrize("machines", [True, False])
def test_local_pool_instance_faults(fault: str, exists: bool, joins: bool, machines: bool) -> None:
    cluster = of_pool(0, machines=machines)
    cluster.sim.capi.fail_next("MachinePool/default/pool", fault)
    cluster.resize("machinepools", "pool", fields.GROUP, 1)
    cluster.wait(90, by=5)
    assert (len(listed(cluster)) == 1, len(cluster.nodes()) == 1) == (exists, joins)
    cluster.wait(500, by=25)
    assert (len(cluster.nodes()) == 1) is (fault == "slow")


@VERSIONS
@pytest.mark.parametrize(("fault", "word"), [("out-of-stock", "capacity"), ("quota", "quota")])
def test_local_capi_machine_without_stock_or_quota_has_conditions(
    fault: str, word: str, version: str
) -> None:
    cluster = EmulatedCluster(objects.machine_deployment("md", 0, 0, 5, version=version), pace=PACE)
    cluster.sim.capi.fail_next("default/md", fault)
    cluster.resize("machinedeployments", "md", fields.GROUP, 1)
    cluster.wait(25)
    [machine] = cluster.machines()
    [reported] = [
        each for each in machine["status"]["conditions"] if each["type"] == "InfrastructureReady"
    ]
    assert (reported["status"], word in reported["message"]) == ("False", True)
    assert (machine["status"]["phase"] == "Failed") is (version == "v1beta1")


@pytest.mark.parametrize(
    "made",
    [
        objects.machine_deployment("pool", 1, 0, 5),
        objects.machine_pool("pool", 1, 0, 5),
        objects.machine_pool("pool", 1, 0, 5, machines=True),
    ],
)
def test_local_capi_paused_cluster_does_not_change_and_reports_it(made: KubeObject) -> None:
    cluster = EmulatedCluster(objects.cluster(paused=True), made, pace=PACE)
    plural = objects.WHERE[made["kind"]][0]
    cluster.wait(80, by=10)
    assert (cluster.nodes(), cluster.machines()) == ([], [])
    assert is_true(cluster.the(plural, "pool", group=fields.GROUP), "Paused")
    own = cluster.the("clusters", "local", group=fields.GROUP)
    cluster.store.update(
        "clusters", {**own, "spec": {**own["spec"], "paused": False}}, fields.GROUP
    )
    cluster.wait(80, by=10)
    assert len(cluster.nodes()) == 1
    assert not is_true(cluster.the(plural, "pool", group=fields.GROUP), "Paused")


def size(name: str, asked: int) -> SetSize:
    return SetSize(name, asked, asked)


@pytest.mark.parametrize(
    ("wanted", "new", "old", "staying", "sizes"),
    [
        (3, 0, {"a": 3}, {"a": 3}, {"new": 0, "a": 3}),  # none has been deleted
        (3, 0, {"a": 3}, {"a": 2}, {"new": 1, "a": 2}),  # one is replaced
        # smaller: the outdated machines are deleted
        (2, 1, {"a": 2}, {"a": 2}, {"new": 1, "a": 1}),
        (1, 1, {"a": 2, "b": 1}, {"a": 2, "b": 1}, {"new": 1, "a": 0, "b": 0}),
        (4, 1, {"a": 2}, {"a": 2}, {"new": 2, "a": 2}),  # larger: the current set grows
        (1, 2, {"a": 1}, {"a": 1}, {"new": 1, "a": 0}),
    ],
)
def test_local_capi_deletion_order_with_outdated_on_delete_machines(
    wanted: int, new: int, old: dict[str, int], staying: dict[str, int], sizes: dict[str, int]
) -> None:
    assert (
        on_delete(wanted, size("new", new), [size(*each) for each in old.items()], staying) == sizes
    )


@pytest.mark.parametrize(
    ("wanted", "surge", "asked", "sizes"),
    [
        (2, 1, {"a": 3}, {"a": 2}),  # a single set follows the size
        (6, 0, {"a": 6, "b": 3}, {"a": 4, "b": 2}),
        (4, 1, {"a": 4, "b": 1}, {"a": 4, "b": 1}),
        (0, 1, {"a": 2, "b": 1}, {"a": 0, "b": 0}),
    ],
)
def test_local_capi_deletion_order_in_a_pause(
    wanted: int, surge: int, asked: dict[str, int], sizes: dict[str, int]
) -> None:
    assert proportional(wanted, surge, [], [size(*each) for each in asked.items()]) == sizes
