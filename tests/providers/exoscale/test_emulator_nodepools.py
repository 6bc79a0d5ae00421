"""Nodepools that a key creates and deletes in the emulated zone: contents, refusals, faults."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.providers.exoscale.decoding import NewNodepool, Ref
from chalicelib.providers.exoscale.error_mapping import work_error
from chalicelib.providers.kit.errors import (
    Conflict,
    NotFound,
    OutOfStock,
    QuotaExceeded,
    Transient,
)
from infra.emulators.exoscale.account import MOST_NODEPOOLS, example_id
from infra.emulators.exoscale.models import NOT_STARTING, UNAVAILABLE, Ending
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.cases import each_row
from tests.providers.exoscale.fixture import MEDIUM, OURS, ExoscaleFixture, opened
from tests.providers.exoscale.wire import ZoneClient

ID = "e5000000-0000-4000-8000-000000009999"
OTHER = "e5000000-0000-4000-8000-000000009998"
LEAST: dict[str, Any] = {
    "name": "web",
    "size": 2,
    "disk-size": 50,
    "instance-type": {"id": MEDIUM},
}
FULL: dict[str, Any] = {
    **LEAST,
    "description": "for the shop",
    "instance-prefix": "shop",
    "public-ip-assignment": "dual",
    "kubelet-max-pods": 64,
    "labels": {"tier": "web"},
    "taints": {"dedicated": {"value": "web", "effect": "NoSchedule"}},
    "security-groups": [{"id": ID}, {"id": OTHER}],
    "private-networks": [{"id": ID}],
    "anti-affinity-groups": [{"id": OTHER}],
}
WEB = NewNodepool("web", 2, 50, Ref(MEDIUM))


def _path(desk: ZoneClient) -> str:
    """Returns the address of the Nodepools of a new cluster."""
    return f"/sks-cluster/{desk.zone.add_cluster('prod').id}/nodepool"


def _listed(desk: ZoneClient) -> list[dict[str, Any]]:
    [cluster] = desk.ask("GET", "/sks-cluster")["sks-clusters"]
    assert desk.ask("GET", f"/sks-cluster/{cluster['id']}") == cluster
    nodepools: list[dict[str, Any]] = cluster.get("nodepools", [])
    return nodepools


def _state(desk: ZoneClient, work: dict[str, Any]) -> tuple[str, str]:
    reported = desk.ask("GET", f"/operation/{work['id']}")
    return reported["state"], reported.get("reason", "")


def prod() -> ExoscaleFixture:
    """Returns a zone with an empty cluster."""
    zone = opened()
    zone.zone.add_cluster("prod")
    return zone


# -- what is made and deleted


@pytest.mark.parametrize("body", [LEAST, FULL])
def test_exoscale_emulator_created_nodepool_has_all_that_was_requested(
    desk: ZoneClient, body: dict[str, Any]
) -> None:
    path = _path(desk)
    work = desk.ask("POST", path, body)
    assert (work["state"], work["reference"]["command"]) == ("pending", "get-sks-nodepool")
    [nodepool] = _listed(desk)
    assert nodepool["id"] == work["reference"]["id"]
    assert nodepool["state"] == "creating"
    desk.after(60.0)
    assert _state(desk, work) == ("success", "")
    nodepool = desk.ask("GET", f"{path}/{nodepool['id']}")
    assert [nodepool] == _listed(desk)
    assert nodepool["state"] == "running"
    assert {field: nodepool[field] for field in body} == body
    pool = desk.ask("GET", f"/instance-pool/{nodepool['instance-pool']['id']}")
    assert (pool["size"], len(pool["instances"])) == (2, 2)
    assert pool["manager"] == {"id": nodepool["id"], "type": "sks-nodepool"}
    names = [instance["name"] for instance in desk.ask("GET", "/instance")["instances"]]
    prefix = body.get("instance-prefix", "pool")
    assert all(name.startswith(f"{prefix}-") for name in names)


def test_exoscale_emulator_new_nodepool_is_busy_until_its_operation_ends(desk: ZoneClient) -> None:
    path = _path(desk)
    nodepool = desk.ask("POST", path, LEAST)["reference"]["id"]
    desk.ask("PUT", f"{path}/{nodepool}:scale", {"size": 3}, status=409)
    desk.ask("DELETE", f"{path}/{nodepool}", status=409)
    desk.after(60.0)
    desk.ask("PUT", f"{path}/{nodepool}:scale", {"size": 3})


def test_exoscale_emulator_deleted_nodepool_takes_its_members_along(desk: ZoneClient) -> None:
    path = _path(desk)
    nodepool = f"{path}/{desk.ask('POST', path, LEAST)['reference']['id']}"
    desk.after(60.0)
    work = desk.ask("DELETE", nodepool)
    assert (work["state"], desk.ask("GET", nodepool)["state"]) == ("pending", "deleting")
    desk.ask("DELETE", nodepool, status=409)
    desk.after(60.0)
    assert _state(desk, work) == ("success", "")
    desk.ask("GET", nodepool, status=404)
    desk.ask("DELETE", nodepool, status=404)
    assert _listed(desk) == []
    assert desk.ask("GET", "/instance") == {}
    assert desk.ask("GET", "/instance-pool") == {}


def test_exoscale_emulator_failed_deletion_changes_nothing(desk: ZoneClient) -> None:
    path = _path(desk)
    nodepool = f"{path}/{desk.ask('POST', path, LEAST)['reference']['id']}"
    desk.after(60.0)
    [pool] = desk.zone.pools
    desk.zone.end_next(pool, Ending(reason="fault"))
    work = desk.ask("DELETE", nodepool)
    desk.after(60.0)
    assert _state(desk, work) == ("failure", "fault")
    assert desk.ask("GET", nodepool)["size"] == 2


# -- refusals


@each_row("field", ["name", "size", "disk-size", "instance-type"])
def test_exoscale_emulator_nodepool_needs_each_required_field(field: str) -> None:
    desk = ZoneClient()
    body = {name: value for name, value in LEAST.items() if name != field}
    assert field in desk.ask("POST", _path(desk), body, status=400)["message"]
    assert not desk.zone.pools


@each_row(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "Web"),
        ("name", "x" * 256),
        ("size", 0),
        ("size", -1),
        ("size", True),
        ("size", "2"),
        ("size", 1.5),
        ("disk-size", 19),
        ("disk-size", 51_201),
        ("instance-type", MEDIUM),
        ("instance-type", {"id": "standard.medium"}),
        ("instance-type", {}),
        ("description", "x" * 256),
        ("instance-prefix", ""),
        ("instance-prefix", "x" * 31),
        ("labels", {"tier": 7}),
        ("labels", []),
        ("taints", {"a": {"value": "", "effect": "NoSchedule"}}),
        ("taints", {"a": {"value": "x" * 256, "effect": "NoSchedule"}}),
        ("taints", {"a": {"effect": "NoSchedule"}}),
        ("taints", {"a": {"value": "b"}}),
        ("taints", {"a": {"value": "b", "effect": "Never"}}),
        ("anti-affinity-groups", [{"id": example_id("vm", number)} for number in range(9)]),
        ("security-groups", [{"id": example_id("vm", number)} for number in range(17)]),
        ("private-networks", [{"id": example_id("vm", number)} for number in range(17)]),
        ("security-groups", [{"id": ID}, {"id": ID}]),
        ("security-groups", [ID]),
        ("private-networks", [{"id": "x"}]),
        ("kubelet-max-pods", 0),
        ("kubelet-max-pods", 65_536),
        ("public-ip-assignment", "none"),
        ("instance_prefix", "shop"),
    ],
)
def test_exoscale_emulator_refuses_a_nodepool_that_the_document_forbids(
    field: str, value: object
) -> None:
    desk = ZoneClient()
    assert "message" in desk.ask("POST", _path(desk), {**LEAST, field: value}, status=400)
    assert not desk.zone.pools
    assert not desk.zone.works


def test_exoscale_emulator_refuses_nodepools_of_unknown_objects() -> None:
    desk = ZoneClient()
    path = _path(desk)
    withheld = desk.zone.kind("gpua5000.small").id
    refused: list[tuple[str, str, object, int]] = [
        ("POST", path, {**LEAST, "instance-type": {"id": ID}}, 404),
        ("POST", path, {**LEAST, "instance-type": {"id": withheld}}, 403),
        ("POST", f"/sks-cluster/{ID}/nodepool", LEAST, 404),
        ("POST", "/sks-cluster/x/nodepool", LEAST, 400),
        ("POST", path, [LEAST], 400),
        ("DELETE", f"{path}/{ID}", None, 404),
        ("DELETE", f"{path}/x", None, 400),
        ("DELETE", path, None, 404),
    ]
    for method, target, body, status in refused:
        assert "message" in desk.ask(method, target, body, status=status), (target, body)
    assert not desk.zone.pools


def test_exoscale_emulator_lists_all_quotas(desk: ZoneClient) -> None:
    desk.zone.nodepool_limit = 3
    desk.ask("POST", _path(desk), LEAST)
    nodepools = {"resource": "sks-nodepool", "usage": 1, "limit": 3}
    assert desk.ask("GET", "/quota") == {
        "quotas": [{"resource": "instance", "usage": 2, "limit": 500}, nodepools]
    }
    assert desk.ask("GET", "/quota/sks-nodepool") == nodepools


def test_exoscale_emulator_quota_of_instances_refuses_a_new_nodepool(desk: ZoneClient) -> None:
    desk.zone.limit = 1
    assert "Quota" in desk.ask("POST", _path(desk), LEAST, status=412)["message"]
    assert not desk.zone.pools


# -- faults, as the product's client meets them


def test_exoscale_client_lost_answer_to_a_creation_is_an_error_and_one_nodepool() -> None:
    zone = prod()
    zone.server.faults.next(VendorFault.LOST_ANSWER, on="create-sks-nodepool")
    with pytest.raises(Transient):
        zone.api().create_nodepool(OURS, WEB)
    [cluster] = zone.api().clusters()
    assert [nodepool.name for nodepool in cluster.nodepools] == ["web"]
    assert zone.operations().count("create-sks-nodepool") == 1


def test_exoscale_client_lost_answer_to_a_deletion_is_an_error() -> None:
    zone = opened(("web", "prod", 2))
    [nodepool] = zone.zone.clusters[OURS].nodepools
    zone.server.faults.next(VendorFault.LOST_ANSWER, on="delete-sks-nodepool")
    with pytest.raises(Transient):
        zone.api().delete_nodepool(OURS, nodepool)
    zone.settle(60.0)
    assert zone.operations() == ["delete-sks-nodepool"]
    assert zone.zone.clusters[OURS].nodepools == {}
    with pytest.raises(NotFound):
        zone.api().delete_nodepool(OURS, nodepool)


def test_exoscale_client_lists_show_a_new_nodepool_after_the_delay() -> None:
    zone = prod()
    zone.zone.listing_delay = 90.0
    api = zone.api()
    assert api.create_nodepool(OURS, WEB).state == "pending"
    zone.settle(89.0)
    assert (api.clusters()[0].nodepools, api.pools()) == ((), ())
    zone.settle(1.0)
    [nodepool] = api.clusters()[0].nodepools
    [pool] = api.pools()
    assert (nodepool.name, nodepool.instance_pool.id, pool.size) == ("web", pool.id, 2)


def test_exoscale_client_used_up_quota_of_nodepools_is_an_exceeded_quota() -> None:
    zone = prod()
    zone.zone.nodepool_limit = 1
    zone.api().create_nodepool(OURS, WEB)
    with pytest.raises(QuotaExceeded, match="Nodepool quota exceeded"):
        zone.api().create_nodepool(OURS, WEB)
    assert len(zone.zone.clusters[OURS].nodepools) == 1


def test_exoscale_client_full_cluster_is_an_exceeded_quota() -> None:
    zone = prod()
    for number in range(MOST_NODEPOOLS):
        zone.zone.add_nodepool(OURS, f"web-{number}")
    with pytest.raises(QuotaExceeded, match="Nodepool limit reached"):
        zone.api().create_nodepool(OURS, WEB)


def test_exoscale_client_second_nodepool_of_a_name_is_refused_if_names_are_unique() -> None:
    zone = prod()
    zone.api().create_nodepool(OURS, WEB)
    zone.api().create_nodepool(OURS, WEB)
    zone.zone.unique_names = True
    with pytest.raises(Conflict, match="exists already"):
        zone.api().create_nodepool(OURS, WEB)
    assert len(zone.zone.clusters[OURS].nodepools) == 2


def test_exoscale_client_creation_without_stock_leaves_a_nodepool_without_machines() -> None:
    zone = prod()
    zone.zone.sold_out.add("standard.medium")
    work = zone.api().create_nodepool(OURS, WEB)
    zone.settle(60.0)
    ended = zone.api().work(work.id)
    assert (ended.state, ended.reason) == ("failure", "unavailable")
    assert isinstance(work_error(ended), OutOfStock)
    [nodepool] = zone.api().clusters()[0].nodepools
    assert (nodepool.state, nodepool.size) == ("degraded", 2)
    assert zone.api().instances() == ()


def test_exoscale_client_creation_can_fail_in_part() -> None:
    zone = prod()
    zone.zone.creation_fates = [UNAVAILABLE, NOT_STARTING]
    work = zone.api().create_nodepool(OURS, WEB)
    zone.settle(60.0)
    assert zone.api().work(work.id).reason == "partial"
    assert [instance.state for instance in zone.api().instances()] == ["error"]


def test_exoscale_client_creation_can_fail_without_a_nodepool() -> None:
    zone = prod()
    zone.zone.creation_endings.append(Ending(reason="unavailable"))
    work = zone.api().create_nodepool(OURS, WEB)
    zone.settle(60.0)
    ended = zone.api().work(work.id)
    assert (ended.state, ended.reason) == ("failure", "unavailable")
    assert zone.api().clusters()[0].nodepools == ()
    assert zone.api().pools() == ()


def test_exoscale_client_reads_what_it_created() -> None:
    zone = prod()
    new = NewNodepool(
        "web",
        2,
        80,
        Ref(MEDIUM),
        description="for the shop",
        instance_prefix="shop",
        public_ip_assignment="dual",
        kubelet_max_pods=64,
        labels={"tier": "web"},
        security_groups=(Ref(ID), Ref(OTHER)),
        private_networks=(Ref(ID),),
        anti_affinity_groups=(Ref(OTHER),),
    )
    work = zone.api().create_nodepool(OURS, new)
    [nodepool] = zone.api().clusters()[0].nodepools
    assert work.reference is not None
    assert work.reference.id == nodepool.id
    assert not nodepool.is_partial
    fields = [field for field in NewNodepool.__struct_fields__ if field != "taints"]
    assert [getattr(nodepool, field) for field in fields] == [
        getattr(new, field) for field in fields
    ]
