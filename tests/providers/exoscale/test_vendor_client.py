"""The vendor's own client drives the emulated zone, which shows that the emulator
behaves as that client expects.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from infra.emulators.exoscale.account import Zone
from infra.emulators.exoscale.models import UNAVAILABLE, ExoscaleDurations
from infra.emulators.exoscale.server import ExoscaleServer
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.exoscale.wire import checker

KEY, SECRET = "EXO-EXAMPLE-KEY-0001", "example-secret-0001"


class ExoClientClock:
    """The wall clock, which the client signs with, plus the time that a test lets pass."""

    def __init__(self) -> None:
        self.passed = 0.0

    def __call__(self) -> float:
        return time.time() + self.passed


class Drive:
    """A zone, and the client that is connected to it."""

    def __init__(
        self, server: ExoscaleServer, clock: ExoClientClock, make: Any, errors: Any
    ) -> None:
        self.server, self.zone, self.clock = server, server.zone, clock
        self.make, self.errors = make, errors
        self.client = make(KEY, SECRET, url=server.root)
        self.cluster = self.zone.add_cluster("prod")

    def after(self, seconds: float) -> None:
        self.clock.passed += seconds


@pytest.fixture(scope="module")
def official() -> tuple[Any, Any]:
    """The client's class and its errors; importing them is slow."""
    from exoscale.api import exceptions
    from exoscale.api.v2 import Client

    return Client, exceptions


@pytest.fixture
def drive(official: tuple[Any, Any]) -> Iterator[Drive]:
    clock, watching = ExoClientClock(), checker()
    server = ExoscaleServer(Zone(clock, times=ExoscaleDurations(operation=90.0)))
    server.ring.add(KEY, SECRET)
    server.front.watches.append(watching.watch)
    with server:
        yield Drive(server, clock, *official)
    assert not watching.problems


def test_exoscale_sdk_is_authenticated_and_reads_everything(drive: Drive) -> None:
    pool = drive.zone.add_pool("own", size=2)
    web = drive.zone.add_nodepool(drive.cluster.id, "web", size=1, labels={"tier": "web"})
    client = drive.client
    assert {each["id"] for each in client.list_instance_pools()["instance-pools"]} == {
        pool.id,
        web.pool.id,
    }
    members = client.list_instances(manager_id=pool.id, manager_type="instance-pool")["instances"]
    assert [each["id"] for each in members] == list(pool.members)
    assert client.get_instance(id=members[0]["id"])["manager"]["id"] == pool.id
    assert client.get_instance_pool(id=pool.id)["size"] == 2
    assert client.list_sks_clusters()["sks-clusters"][0]["nodepools"][0]["labels"] == {
        "tier": "web"
    }
    assert (
        client.get_sks_nodepool(id=drive.cluster.id, sks_nodepool_id=web.id)["instance-pool"]["id"]
        == web.pool.id
    )
    assert client.get_quota(entity="instance")["usage"] == 3
    assert client.get_instance_type(id=pool.kind.id)["family"] == "standard"
    assert client.list_zones()["zones"][0]["name"] == drive.zone.name


def test_exoscale_sdk_scales_and_evicts_both_kinds_of_pools(drive: Drive) -> None:
    pool = drive.zone.add_pool("own", size=1)
    web = drive.zone.add_nodepool(drive.cluster.id, "web", size=1)
    client, place = drive.client, {"id": drive.cluster.id, "sks_nodepool_id": web.id}
    works = [
        client.scale_instance_pool(id=pool.id, size=3),
        client.scale_sks_nodepool(**place, size=3),
    ]
    assert [client.get_operation(id=each["id"])["state"] for each in works] == [
        "pending",
        "pending",
    ]
    drive.after(90.0)
    assert [client.get_operation(id=each["id"])["state"] for each in works] == [
        "success",
        "success",
    ]
    assert [len(each.staying) for each in (pool, web.pool)] == [3, 3]
    first, second = next(iter(pool.members)), list(web.pool.members)[1]
    client.evict_instance_pool_members(id=pool.id, instances=[first])
    client.evict_sks_nodepool_members(**place, instances=[second])
    drive.after(90.0)
    assert [each["size"] for each in client.list_instance_pools()["instance-pools"]] == [2, 2]
    assert first not in pool.members
    assert second not in web.pool.members


def test_exoscale_sdk_creates_and_deletes_a_nodepool(drive: Drive) -> None:
    client, groups = drive.client, [{"id": "e5000000-0000-4000-8000-000000009999"}]
    work = client.create_sks_nodepool(
        id=drive.cluster.id,
        name="web",
        size=2,
        disk_size=80,
        instance_type={"id": drive.zone.kind("standard.large").id},
        description="for the shop",
        instance_prefix="shop",
        labels={"tier": "web"},
        taints={"dedicated": {"value": "web", "effect": "NoSchedule"}},
        security_groups=groups,
        kubelet_max_pods=64,
    )
    assert work["state"] == "pending"
    drive.after(90.0)
    assert client.get_operation(id=work["id"])["state"] == "success"
    place = {"id": drive.cluster.id, "sks_nodepool_id": work["reference"]["id"]}
    nodepool = client.get_sks_nodepool(**place)
    assert client.list_sks_clusters()["sks-clusters"][0]["nodepools"] == [nodepool]
    assert (nodepool["size"], nodepool["disk-size"], nodepool["instance-prefix"]) == (2, 80, "shop")
    assert (nodepool["security-groups"], nodepool["kubelet-max-pods"]) == (groups, 64)
    usage = {quota["resource"]: quota["usage"] for quota in client.list_quotas()["quotas"]}
    assert usage == {"instance": 2, "sks-nodepool": 1}
    assert client.delete_sks_nodepool(**place)["state"] == "pending"
    drive.after(90.0)
    with pytest.raises(drive.errors.ExoscaleAPIClientException) as missing:
        client.get_sks_nodepool(**place)
    assert missing.value.response.status_code == 404
    assert client.list_instances() == {}


def test_exoscale_sdk_sees_an_operation_fail(drive: Drive) -> None:
    web = drive.zone.add_nodepool(drive.cluster.id, "web", size=1)
    drive.zone.spoil(web.pool.id, UNAVAILABLE)
    work = drive.client.scale_sks_nodepool(id=drive.cluster.id, sks_nodepool_id=web.id, size=2)
    drive.after(90.0)
    with pytest.raises(drive.errors.ExoscaleAPIException, match="unavailable"):
        drive.client.wait(work["id"])


def test_exoscale_sdk_raises_its_own_errors(drive: Drive) -> None:
    unknown_id = "e5000000-0000-4000-8000-000000009999"
    pool = drive.zone.add_pool("own", size=1)
    with pytest.raises(drive.errors.ExoscaleAPIClientException) as missing:
        drive.client.get_instance(id=unknown_id)
    assert missing.value.response.status_code == 404
    with pytest.raises(drive.errors.ExoscaleAPIClientException) as wrong:
        drive.make(KEY, "another-secret", url=drive.server.root).list_instances()
    assert wrong.value.response.status_code == 401
    drive.server.ring.add("EXO-EXAMPLE-KEY-0002", SECRET, frozenset({"list-instances"}))
    narrow = drive.make("EXO-EXAMPLE-KEY-0002", SECRET, url=drive.server.root)
    narrow.list_instances()
    with pytest.raises(drive.errors.ExoscaleAPIAuthException):
        narrow.scale_instance_pool(id=pool.id, size=2)
    drive.client.scale_instance_pool(id=pool.id, size=2)
    with pytest.raises(drive.errors.ExoscaleAPIClientException) as busy:
        drive.client.scale_instance_pool(id=pool.id, size=3)
    assert busy.value.response.status_code == 409
    drive.server.faults.next(VendorFault.SERVER_ERROR)
    with pytest.raises(drive.errors.ExoscaleAPIServerException):
        drive.client.list_instances()
