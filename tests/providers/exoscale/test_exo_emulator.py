"""Tests of the emulated zone alone: accepted and refused requests, and its changes over time."""

from __future__ import annotations

import json

import pytest

from infra.emulators.exoscale.models import (
    NOT_STARTING,
    UNAVAILABLE,
    Ending,
    ExoscaleDurations,
    Nodepool,
)
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.exoscale.fixtures import ZoneClient

UNKNOWN_ID = "e5000000-0000-4000-8000-000000009999"


def _web(desk: ZoneClient, size: int = 2) -> tuple[Nodepool, str]:
    """Returns a Nodepool and its address."""
    cluster = desk.zone.add_cluster("prod")
    made = desk.zone.add_nodepool(cluster.id, "web", size=size)
    return made, f"/sks-cluster/{cluster.id}/nodepool/{made.id}"


def test_exoscale_emulator_lists_omit_empty_fields(desk: ZoneClient) -> None:
    assert (
        desk.ask("GET", "/instance-pool"),
        desk.ask("GET", "/instance"),
        desk.ask("GET", "/sks-cluster"),
    ) == (
        {},
        {},
        {},
    )
    pool = desk.zone.add_pool("own", size=1)
    empty = desk.zone.add_pool("empty")
    web, _ = _web(desk)
    lonely = desk.zone.add_lonely()
    pools = {each["id"]: each for each in desk.ask("GET", "/instance-pool")["instance-pools"]}
    assert pools.keys() == {pool.id, empty.id, web.pool.id}
    assert "instances" not in pools[empty.id]
    assert pools[web.pool.id]["manager"] == {"id": web.id, "type": "sks-nodepool"}
    assert "manager" not in pools[pool.id]
    everything = {each["id"] for each in desk.ask("GET", "/instance")["instances"]}
    managed = desk.ask("GET", "/instance", query={"manager-type": "instance-pool"})["instances"]
    of_one = desk.ask(
        "GET", "/instance", query={"manager-type": "instance-pool", "manager-id": pool.id}
    )["instances"]
    assert everything == {lonely} | {each["id"] for each in managed}
    assert [each["id"] for each in of_one] == list(pool.members)
    (cluster,) = desk.ask("GET", "/sks-cluster")["sks-clusters"]
    assert [each["name"] for each in cluster["nodepools"]] == ["web"]


def test_exoscale_emulator_updated_pool_changes_new_members_only(desk: ZoneClient) -> None:
    web, path = _web(desk, size=1)
    desk.zone.update_pool(web.pool.id, template=UNKNOWN_ID, type="standard.large", disk=80)
    (new,) = desk.zone.add_members(web.pool.id, 1)
    shown = desk.ask("GET", path)
    assert (shown["template"]["id"], shown["disk-size"]) == (UNKNOWN_ID, 80)
    members = [desk.ask("GET", f"/instance/{name}") for name in web.pool.members]
    assert [each["template"]["id"] == UNKNOWN_ID for each in members] == [False, True]
    assert [each["disk-size"] for each in members] == [50, 80]
    assert members[1]["id"] == new
    assert members[1]["instance-type"] == shown["instance-type"] != members[0]["instance-type"]


def test_exoscale_emulator_reboots_a_running_instance_in_an_operation(desk: ZoneClient) -> None:
    web, _ = _web(desk, size=1)
    (name,) = web.pool.members
    begun = desk.ask("PUT", f"/instance/{name}:reboot")
    assert (begun["state"], begun["reference"]["command"]) == ("pending", "get-instance")
    desk.after(60.0)
    assert desk.ask("GET", f"/operation/{begun['id']}")["state"] == "success"
    desk.zone.set_state(name, "stopped")
    desk.ask("PUT", f"/instance/{name}:reboot", status=409)
    desk.ask("PUT", f"/instance/{UNKNOWN_ID}:reboot", status=404)
    assert len(web.pool.members[name].reboots) == 1


def test_exoscale_emulator_nodepool_shows_labels_taints_and_pods(desk: ZoneClient) -> None:
    cluster = desk.zone.add_cluster("prod")
    made = desk.zone.add_nodepool(
        cluster.id,
        "gpu",
        type="gpu3.small",
        labels={"tier": "ml"},
        taints={"dedicated": ("ml", "NoSchedule")},
        max_pods=50,
    )
    reported = desk.ask("GET", f"/sks-cluster/{cluster.id}/nodepool/{made.id}")
    assert (
        reported["labels"],
        reported["taints"],
        reported["kubelet-max-pods"],
        reported["size"],
    ) == (
        {"tier": "ml"},
        {"dedicated": {"value": "ml", "effect": "NoSchedule"}},
        50,
        0,
    )
    kind = desk.ask("GET", f"/instance-type/{made.pool.kind.id}")
    assert (kind["family"], kind["size"], kind["gpus"]) == ("gpu3", "small", 1)
    plain = desk.ask("GET", f"/instance-type/{desk.zone.kind('standard.medium').id}")
    assert "gpus" not in plain
    assert plain["memory"] == 4 * 2**30


def test_exoscale_emulator_scale_up_takes_time_and_its_operation_reports_it(
    desk: ZoneClient,
) -> None:
    web, path = _web(desk)
    work = desk.ask("PUT", f"{path}:scale", {"size": 4})
    assert work["state"] == "pending"
    assert work["reference"] == {"id": web.id, "link": f"/v2{path}", "command": "get-sks-nodepool"}
    reported = desk.ask("GET", path)
    assert (reported["size"], reported["state"]) == (4, "scaling")
    assert [vm.state for vm in web.pool.members.values()] == ["running"] * 2 + ["starting"] * 2
    desk.after(45.0)
    assert [vm.state for vm in web.pool.members.values()] == ["running"] * 4
    assert desk.ask("GET", f"/operation/{work['id']}")["state"] == "pending"
    desk.after(15.0)
    assert desk.ask("GET", f"/operation/{work['id']}")["state"] == "success"
    assert desk.ask("GET", path)["state"] == "running"


def test_exoscale_emulator_operation_may_end_before_the_size_changes() -> None:
    quick = ZoneClient(ExoscaleDurations(operation=0.0))
    pool = quick.zone.add_pool("own", size=1)
    assert quick.ask("PUT", f"/instance-pool/{pool.id}:scale", {"size": 2})["state"] == "success"
    assert pool.state_now == "scaling-up", "its instance is still starting"
    slow = ZoneClient(ExoscaleDurations(operation=300.0))
    slow.zone.size_at_once = False
    pool = slow.zone.add_pool("own", size=1)
    slow.ask("PUT", f"/instance-pool/{pool.id}:scale", {"size": 2})
    slow.after(299.0)
    assert pool.size == 1
    slow.after(1.0)
    assert pool.size == 2


def test_exoscale_emulator_second_order_during_a_first_is_a_conflict(desk: ZoneClient) -> None:
    web, path = _web(desk)
    desk.ask("PUT", f"{path}:scale", {"size": 3})
    desk.ask("PUT", f"{path}:scale", {"size": 4}, status=409)
    desk.ask("PUT", f"{path}:evict", {"instances": list(web.pool.members)[:1]}, status=409)
    desk.after(60.0)
    desk.ask("PUT", f"{path}:scale", {"size": 4})


@pytest.mark.parametrize("state", ["creating", "updating", "suspended", "destroying"])
def test_exoscale_emulator_pool_that_is_not_running_refuses_orders(
    desk: ZoneClient, state: str
) -> None:
    web, path = _web(desk)
    desk.zone.set_state(web.pool.id, state)
    desk.ask("PUT", f"{path}:scale", {"size": 3}, status=409)
    desk.ask("GET", path)
    desk.zone.set_state(web.pool.id, "")
    desk.ask("PUT", f"{path}:scale", {"size": 3})


def test_exoscale_emulator_eviction_removes_the_named_and_lowers_the_size(desk: ZoneClient) -> None:
    pool = desk.zone.add_pool("own", size=4)
    first, second, third, fourth = pool.members
    desk.ask("PUT", f"/instance-pool/{pool.id}:evict", {"instances": [third, second]})
    reported = desk.ask("GET", f"/instance-pool/{pool.id}")
    assert (reported["size"], reported["state"]) == (2, "scaling-down")
    assert {each["id"] for each in reported["instances"]} == {first, second, third, fourth}, (
        "leaving, but still listed"
    )
    assert desk.ask("GET", f"/instance/{third}")["state"] == "destroying"
    desk.after(60.0)
    assert list(pool.members) == [first, fourth]
    desk.ask("GET", f"/instance/{third}", status=404)
    desk.ask("PUT", f"/instance-pool/{pool.id}:evict", {"instances": [third]}, status=400)


def test_exoscale_emulator_scale_down_removes_instances_of_its_choice(desk: ZoneClient) -> None:
    pool = desk.zone.add_pool("own", size=3)
    members = list(pool.members)
    desk.ask("PUT", f"/instance-pool/{pool.id}:scale", {"size": 1})
    desk.after(60.0)
    assert list(pool.members) == members[2:]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"size": -1}, 400),
        ({"size": "3"}, 400),
        ({"size": True}, 400),
        ({}, 400),
        ([1], 400),
        ({"size": 0}, 400),
    ],
)
def test_exoscale_emulator_refuses_an_invalid_size(body: object, status: int) -> None:
    desk = ZoneClient()
    pool = desk.zone.add_pool("own", size=1)
    desk.ask("PUT", f"/instance-pool/{pool.id}:scale", body, status=status)
    assert pool.size == 1


@pytest.mark.parametrize("ids", [[], [UNKNOWN_ID], ["../x"], "text", None])
def test_exoscale_emulator_refuses_an_empty_eviction(ids: object) -> None:
    desk = ZoneClient()
    pool = desk.zone.add_pool("own", size=2)
    desk.ask("PUT", f"/instance-pool/{pool.id}:evict", {"instances": ids}, status=400)
    assert (pool.size, len(pool.staying)) == (2, 2)


def test_exoscale_emulator_hidden_pool_changes_only_through_its_nodepool(desk: ZoneClient) -> None:
    web, path = _web(desk)
    desk.ask("PUT", f"/instance-pool/{web.pool.id}:scale", {"size": 3}, status=400)
    desk.ask(
        "PUT",
        f"/instance-pool/{web.pool.id}:evict",
        {"instances": list(web.pool.members)[:1]},
        status=400,
    )
    desk.ask("PUT", f"{path}:scale", {"size": 0})
    assert desk.ask("GET", "/instance-pool")["instance-pools"][0]["size"] == 0


@pytest.mark.parametrize(
    "path",
    [
        f"/instance/{UNKNOWN_ID}",
        f"/instance-pool/{UNKNOWN_ID}",
        f"/sks-cluster/{UNKNOWN_ID}",
        f"/operation/{UNKNOWN_ID}",
        f"/instance-type/{UNKNOWN_ID}",
        f"/sks-cluster/{UNKNOWN_ID}/nodepool/{UNKNOWN_ID}",
        "/quota/nothing",
    ],
)
def test_exoscale_emulator_absent_objects_are_not_found(desk: ZoneClient, path: str) -> None:
    assert "message" in desk.ask("GET", path, status=404)


def test_exoscale_emulator_refuses_invalid_ids_and_operations() -> None:
    desk = ZoneClient()
    desk.ask("GET", "/instance/x", status=400)
    desk.ask("GET", "/nothing", status=404)
    desk.ask("PUT", "/instance-pool", {}, status=404)
    assert len(desk.checker.problems) == 3, "the document knows none of these either"


def test_exoscale_emulator_reports_missing_capacity_when_the_operation_ends(
    desk: ZoneClient,
) -> None:
    web, path = _web(desk)
    desk.zone.spoil(web.pool.id, UNAVAILABLE, 3)
    work = desk.ask("PUT", f"{path}:scale", {"size": 4})
    assert work["state"] == "pending"
    desk.after(60.0)
    reported = desk.ask("GET", f"/operation/{work['id']}")
    assert (reported["state"], reported["reason"]) == ("failure", "unavailable")
    assert "capacity" in reported["message"]
    assert (desk.ask("GET", path)["size"], desk.ask("GET", path)["state"]) == (4, "degraded")
    again = desk.ask("PUT", f"{path}:scale", {"size": 4})
    desk.after(60.0)
    assert desk.ask("GET", f"/operation/{again['id']}")["reason"] == "partial"
    assert len(web.pool.staying) == 3


def test_exoscale_emulator_instance_that_does_not_start_ends_in_error(desk: ZoneClient) -> None:
    pool = desk.zone.add_pool("own", size=1)
    desk.zone.spoil(pool.id, NOT_STARTING)
    work = desk.ask("PUT", f"/instance-pool/{pool.id}:scale", {"size": 2})
    desk.after(60.0)
    assert desk.ask("GET", f"/operation/{work['id']}")["state"] == "success"
    assert [vm.state for vm in pool.members.values()] == ["running", "error"]


@pytest.mark.parametrize(
    ("ending", "size", "members"),
    [
        (Ending("failure", "busy"), 1, 1),
        (Ending("timeout"), 1, 1),
        (Ending("timeout", done=True), 3, 3),
        (Ending("failure", "fault", done=True), 3, 3),
    ],
)
def test_exoscale_emulator_operation_ends_as_configured(
    desk: ZoneClient, ending: Ending, size: int, members: int
) -> None:
    pool = desk.zone.add_pool("own", size=1)
    desk.zone.end_next(pool.id, ending)
    work = desk.ask("PUT", f"/instance-pool/{pool.id}:scale", {"size": 3})
    desk.after(60.0)
    reported = desk.ask("GET", f"/operation/{work['id']}")
    assert (reported["state"], reported.get("reason", "")) == (ending.state, ending.reason)
    assert (pool.size, len(pool.staying)) == (size, members)


def test_exoscale_emulator_quota_refuses_at_once_or_at_the_end(desk: ZoneClient) -> None:
    pool = desk.zone.add_pool("own", size=2)
    desk.zone.add_lonely()
    desk.zone.other_usage, desk.zone.limit = 4, 8
    assert desk.ask("GET", "/quota/instance") == {"resource": "instance", "usage": 7, "limit": 8}
    refused = desk.ask("PUT", f"/instance-pool/{pool.id}:scale", {"size": 4}, status=412)
    assert "Quota" in refused["message"]
    assert pool.size == 2
    desk.zone.refuses_quota = False
    work = desk.ask("PUT", f"/instance-pool/{pool.id}:scale", {"size": 4})
    desk.after(60.0)
    reported = desk.ask("GET", f"/operation/{work['id']}")
    assert (reported["state"], reported["reason"]) == ("failure", "partial")
    assert "quota" in reported["message"]
    assert (pool.size, len(pool.staying)) == (4, 3)
    desk.zone.limit = -1
    assert desk.ask("GET", "/quota/instance")["limit"] == -1


def test_exoscale_emulator_sks_heals_only_where_configured(desk: ZoneClient) -> None:
    web, path = _web(desk, size=0)
    desk.zone.spoil(web.pool.id, UNAVAILABLE, 3)
    desk.ask("PUT", f"{path}:scale", {"size": 2})
    desk.after(4000.0)
    assert (len(web.pool.staying), web.state_now) == (0, "degraded")
    desk.zone.heals = 300.0
    desk.ask("PUT", f"{path}:scale", {"size": 2})
    desk.after(60.0)
    assert len(web.pool.staying) == 1
    desk.after(400.0)
    assert (len(web.pool.staying), web.state_now) == (2, "running")


def test_exoscale_emulator_deleted_pool_vanishes_after_a_while(desk: ZoneClient) -> None:
    web, path = _web(desk)
    own = desk.zone.add_pool("own", size=1)
    desk.zone.delete_pool(web.pool.id)
    desk.zone.delete_pool(own.id)
    assert (desk.ask("GET", path)["state"], own.state_now) == ("deleting", "destroying")
    desk.after(60.0)
    desk.ask("GET", path, status=404)
    desk.ask("GET", f"/instance-pool/{own.id}", status=404)
    assert desk.ask("GET", "/instance") == {}


@pytest.mark.parametrize("form", ["message", "error", "problem", "text"])
def test_exoscale_emulator_error_bodies_have_all_vendor_forms(desk: ZoneClient, form: str) -> None:
    desk.front.form = form
    answer = desk.send("GET", f"/instance/{UNKNOWN_ID}")
    assert answer.status == 404
    reported = {
        "message": lambda body: json.loads(body)["message"],
        "error": lambda body: json.loads(body)["error"],
        "problem": lambda body: json.loads(body)["detail"],
        "text": lambda body: body.decode(),
    }[form](answer.body)
    assert UNKNOWN_ID in reported


def test_exoscale_emulator_rate_limit_states_when_to_retry(desk: ZoneClient) -> None:
    desk.front.throttle.limits["list-instances"] = (2, 10.0)
    for _ in range(2):
        desk.ask("GET", "/instance")
    answer = desk.send("GET", "/instance")
    assert (answer.status, answer.headers["Retry-After"]) == (429, "10")
    desk.ask("GET", "/instance-pool")
    desk.after(10.0)
    desk.ask("GET", "/instance")


def test_exoscale_emulator_faults_meet_the_configured_calls(desk: ZoneClient) -> None:
    pool = desk.zone.add_pool("own", size=1)
    desk.front.faults.next(VendorFault.SERVER_ERROR, on="write", times=2)
    desk.front.faults.next(VendorFault.LOST_ANSWER, on="scale-instance-pool")
    desk.front.faults.next(VendorFault.HANGS_UP, on="scale-instance-pool")
    desk.ask("GET", "/instance")
    path = f"/instance-pool/{pool.id}:scale"
    assert [desk.send("PUT", path, {"size": 2}).status for _ in range(2)] == [500, 500]
    assert pool.size == 1
    lost = desk.send("PUT", path, {"size": 2})
    assert lost.hang_up
    assert pool.size == 2, "it took effect, and nobody was told"
    desk.after(60.0)
    assert desk.send("PUT", path, {"size": 3}).hang_up
    assert pool.size == 2, "that one never arrived"
    assert [call.status for call in desk.front.log if call.writes][:2] == [500, 500]


def test_exoscale_emulator_log_shows_requests_and_no_secret(desk: ZoneClient) -> None:
    pool = desk.zone.add_pool("own", size=1)
    desk.send("PUT", f"/instance-pool/{pool.id}:scale", {"size": 2})
    (call,) = desk.front.log
    assert (call.operation, call.key, call.status, call.writes) == (
        "scale-instance-pool",
        "EXO-EXAMPLE-KEY-0001",
        200,
        True,
    )
    assert call.line == f'PUT scale-instance-pool /v2/instance-pool/{pool.id}:scale {{"size": 2}}'
    assert not any(signature in repr(call) for signature in desk.front.seen)
