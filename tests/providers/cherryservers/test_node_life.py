"""Notices of spot servers, servers made from another definition, and restarts."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from chalicelib.cluster.errors import Unavailable
from chalicelib.model.group import Instance
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.model.timestamps import format_time
from chalicelib.providers.cherryservers.pool_definition import fingerprint
from chalicelib.providers.kit.base import NodeRestarter
from chalicelib.providers.kit.errors import ProviderError, Throttled, Transient
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.cases import each_row
from tests.providers.cherryservers.emulated import (
    CONFIG,
    POOL,
    EmulatedCloud,
    claimed,
    definition,
    drive,
    grow,
    operation,
    remove,
)

SCRIPT = (
    b"#!/bin/bash\nkubeadm join --token {{.BootstrapTokenID}}.{{.BootstrapTokenSecret}} "
    b"{{.APIServerEndpoint}}\n"
)


def encoded(script: bytes) -> str:
    return base64.b64encode(script).decode()


def instances(cloud: EmulatedCloud, config: str = CONFIG) -> dict[str, Instance]:
    return {each.handle: each for each in cloud.group(config=config).instances}


# -- notices


def test_cherry_notice_of_a_spot_server_is_when_it_leaves_until_withdrawn() -> None:
    cloud = EmulatedCloud()
    cloud.add(2, spot=True)
    cloud.cloud.give_notice(1001, 110.0)
    leaves_at = cloud.now() + 110.0
    assert {handle: each.leaves_at for handle, each in instances(cloud).items()} == {
        "1000": 0.0,
        "1001": leaves_at,
    }
    cloud.settle(60.0)
    assert instances(cloud)["1001"].leaves_at == leaves_at
    cloud.cloud.withdraw_notice(1001)
    assert instances(cloud)["1001"].leaves_at == 0.0
    cloud.cloud.give_notice(1000, 30.0)
    cloud.settle(31.0)
    assert cloud.alive() == [1001]


@each_row(
    "seconds, spot, counts",
    [
        (110.0, True, True),
        (86_400.0, True, True),
        (86_401.0, True, False),
        (-60.0, True, True),  # late, and still listed: it may go at any moment
        (-3_601.0, True, False),
        (110.0, False, False),
    ],
)
def test_cherry_termination_date_counts_for_spot_servers_and_near_dates(
    seconds: float, spot: bool, counts: bool
) -> None:
    cloud = EmulatedCloud()
    at = cloud.now() + seconds
    cloud.add(spot=spot, termination_date=format_time(at))
    (instance,) = cloud.group().instances
    assert instance.leaves_at == (at if counts else 0.0)


@each_row(
    "date",
    [
        "None",
        "",
        "tomorrow",
        "9999-99-99T00:00:00Z",
        1_800_000_060,
        ["2027-01-15T08:01:00Z"],
        "x" * 10_000,
    ],
)
def test_cherry_unreadable_termination_date_is_no_notice_and_hides_no_server(date: Any) -> None:
    cloud = EmulatedCloud()
    cloud.add(spot=True, termination_date=date)
    cloud.add(spot=True)
    assert [each.leaves_at for each in cloud.group().instances] == [0.0, 0.0]


def test_cherry_date_of_a_server_that_outscaler_has_deleted_is_no_notice() -> None:
    cloud = EmulatedCloud(delete_lag=600.0)
    cloud.add(2, spot=True)
    cloud.cloud.give_notice(1000, 110.0)
    cloud.cloud.give_notice(1001, 110.0)
    assert isinstance(drive(cloud, remove(2, 1000)), Succeeded)
    leaving = {handle: each.leaves_at > 0.0 for handle, each in instances(cloud).items()}
    assert leaving == {"1000": False, "1001": True}


def test_cherry_sold_out_spot_plan_is_out_of_stock() -> None:
    cloud = EmulatedCloud()
    cloud.cloud.sell_out("e5_1620v4")
    outcome = drive(cloud, grow(0, 1), config=CONFIG + "spot-market=true\n")
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "OutOfStock"
    assert "on the spot market" in outcome.message


# -- drift


def bought(config: str = CONFIG) -> EmulatedCloud:
    """A pool of one server that Outscaler has bought, which runs."""
    cloud = EmulatedCloud()
    assert isinstance(drive(cloud, grow(0, 1), config=config), Succeeded)
    cloud.settle()
    return cloud


OTHER = "made from another definition of its group"


@each_row(
    "before, after, difference",
    [
        ("", "", ""),
        ("plan=e5_1620v4", "plan=e3_1240v3", "plan e5_1620v4, the group's is e3_1240v3"),
        ("region=eu_nord_1", "region=eu_west_1", "region eu_nord_1, the group's is eu_west_1"),
        ("os=ubuntu_18_04", "os=ubuntu_22_04_64bit", OTHER),
        ("", "spot-market=true", "no spot server, the group's are"),
        ("spot-market=true", "spot-market=false", "a spot server, the group's are not"),
        ("", "os-partition-size=60", OTHER),
        ("", "ssh-key-ids=101", OTHER),
        ("ssh-key-ids=101\nssh-key-ids=102", "ssh-key-ids=102\nssh-key-ids=101", ""),
        ("", f"cloudinit={encoded(b'echo')}", OTHER),
        ("", "cpu-override=3", ""),
        ("", "hostname-pattern=w-{{.RandString8}}", ""),
        ("", "api-server-endpoint=203.0.113.11:6443", ""),
    ],
)
def test_cherry_server_is_outdated_if_its_definition_makes_another_machine(
    before: str, after: str, difference: str
) -> None:
    cloud = bought(f"{CONFIG}{before}\n")
    assert [each.outdated for each in cloud.group(config=f"{CONFIG}{before}\n").instances] == [""]
    (instance,) = cloud.group(config=f"{CONFIG}{after}\n").instances
    assert instance.outdated == difference


def test_cherry_several_differences_are_all_named() -> None:
    (instance,) = bought().group(config=f"{CONFIG}plan=e3_1240v3\nregion=eu_west_1\n").instances
    assert instance.outdated == (
        "plan e5_1620v4, the group's is e3_1240v3; region eu_nord_1, the group's is eu_west_1"
    )


def test_cherry_plan_and_region_by_another_name_are_no_difference() -> None:
    (instance,) = bought().group(config=f"{CONFIG}plan=113\nregion=EU-Nord-1\n").instances
    assert instance.outdated == OTHER  # the texts differ, the plan does not


@each_row("tag", [None, "", "v0-0123456789abcdef", "v1-0123", "v1-0123456789ABCDEF", "mine"])
def test_cherry_server_without_a_comparable_tag_is_not_called_outdated(tag: str | None) -> None:
    cloud = bought()
    tags = {
        key: value for key, value in cloud.all[1000].tags.items() if key != "outscaler-definition"
    }
    cloud.change(1000, tags=tags if tag is None else {**tags, "outscaler-definition": tag})
    (instance,) = cloud.group(config=f"{CONFIG}plan=e3_1240v3\n").instances
    assert instance.outdated == ""


def test_cherry_leaving_server_is_not_called_outdated() -> None:
    cloud = bought()
    cloud.cloud.terminate(cloud.all[1000])
    (instance,) = cloud.group(config=f"{CONFIG}plan=e3_1240v3\n").instances
    assert instance.outdated == ""


def test_cherry_fingerprint_covers_the_endpoint_of_the_script_and_no_token() -> None:
    script = encoded(SCRIPT)
    one = definition(cloudinit=script)
    assert fingerprint(one) == fingerprint(
        definition(cloudinit=script, cluster_name="renamed", cpu_override=3)
    )
    assert fingerprint(one) != fingerprint(
        definition(cloudinit=script, api_server_endpoint="203.0.113.11:6443")
    )
    assert fingerprint(definition()) == fingerprint(
        definition(api_server_endpoint="203.0.113.11:6443")
    )


# -- restart


def restart(*targets: int | RemovalTarget, pool: str = POOL) -> Operation:
    named = tuple(
        target
        if isinstance(target, RemovalTarget)
        else RemovalTarget(f"{POOL}-{target}", f"cherryservers://{target}", str(target))
        for target in targets
    )
    return operation(OperationKind.RESTART_NODE, pool, 2, 2, named)


def refused(cloud: EmulatedCloud, asked: Operation, **more: Any) -> Failed:
    """Returns the failure of a restart that restarted nothing."""
    outcome = cloud.build(**more).restart(claimed(asked))
    assert isinstance(outcome, Failed)
    assert cloud.changes() == []
    return outcome


def test_cherry_restart_reboots_the_one_server_in_one_request() -> None:
    cloud = EmulatedCloud(2)
    provider = cloud.build(kube=[(f"{POOL}-1001", "cherryservers://1001", {})])
    assert isinstance(provider, NodeRestarter)
    assert cloud.group().restarts
    assert provider.restart(claimed(restart(1001))) == Succeeded({"restarted": 1001, "group": POOL})
    assert cloud.changes() == ["reboot 1001"]
    assert [len(server.reboots) for server in cloud.all.values()] == [0, 1]
    assert cloud.alive() == [1000, 1001]


@each_row("number, pool", [(1002, POOL), (1000, "pool2")])
def test_cherry_restart_of_another_pools_server_is_refused(number: int, pool: str) -> None:
    cloud = EmulatedCloud(2)
    cloud.add(1, "pool2")
    failure = refused(cloud, restart(number, pool=pool))
    assert failure.error_class == "InvalidRequest"
    assert "does not belong to" in failure.message


@each_row("targets", [(), (1000, 1001), (RemovalTarget("pool3-1000", ""),)])
def test_cherry_restart_needs_exactly_one_server_by_its_id(targets: tuple[Any, ...]) -> None:
    assert refused(EmulatedCloud(2), restart(*targets)).error_class == "InvalidRequest"


def test_cherry_restart_of_a_pool_that_the_policy_does_not_name_is_refused() -> None:
    cloud = EmulatedCloud()
    cloud.add(1, "pool9")
    assert "names no pool" in refused(cloud, restart(1000, pool="pool9")).message


def test_cherry_restart_of_a_server_that_is_gone_or_leaving_fails() -> None:
    cloud = EmulatedCloud(2)
    cloud.cloud.vanish(1000)
    cloud.cloud.terminate(cloud.all[1001])
    for number in (1000, 1001):
        assert refused(cloud, restart(number)).error_class == "NotFound"


def test_cherry_restart_of_a_control_plane_node_is_refused() -> None:
    nodes = [
        (f"{POOL}-1000", "cherryservers://1000", {"node-role.kubernetes.io/control-plane": ""})
    ]
    assert "control plane" in refused(EmulatedCloud(2), restart(1000), kube=nodes).message


@each_row(
    "nodes",
    [
        [("other", "cherryservers://1000", {})],
        [(f"{POOL}-1000", "cherryservers://1000", {}), ("twin", "cherryservers://1000", {})],
        [(f"{POOL}-1000", "cherryservers://1001", {})],
    ],
)
def test_cherry_restart_of_a_machine_that_is_no_longer_the_node_is_a_conflict(nodes: Any) -> None:
    assert refused(EmulatedCloud(2), restart(1000), kube=nodes).error_class == "Conflict"


def test_cherry_restart_waits_while_the_nodes_cannot_be_read() -> None:
    cloud = EmulatedCloud(2)
    with pytest.raises(Transient):
        cloud.build(kube=Unavailable("no answer")).restart(claimed(restart(1000)))
    assert cloud.changes() == []


@each_row(
    "fault, raised",
    [
        (VendorFault.SERVER_ERROR, Transient),
        (VendorFault.THROTTLED, Throttled),
        (VendorFault.LOST_ANSWER, Transient),
        (VendorFault.CUT_OFF, Transient),
    ],
)
def test_cherry_restart_with_an_error_is_tried_later_and_reboots_once(
    fault: VendorFault, raised: type[ProviderError]
) -> None:
    cloud, asked = EmulatedCloud(2), claimed(restart(1000))
    cloud.server.faults.next(fault, on="write")
    with pytest.raises(raised):
        cloud.build().restart(asked)
    assert cloud.changes() == ["reboot 1000"]
    cloud.settle(60.0)
    outcome = cloud.build().restart(claimed(asked))
    assert isinstance(outcome, Succeeded)
    lost = fault in (VendorFault.LOST_ANSWER, VendorFault.CUT_OFF)
    assert ("note" in outcome.facts) == lost
    assert len(cloud.changes()) == (1 if lost else 2)
    assert len(cloud.all[1000].reboots) == 1


def test_cherry_restart_of_another_operation_reboots_again() -> None:
    cloud = EmulatedCloud(2)
    for plan in ("p", "q"):
        asked = operation(OperationKind.RESTART_NODE, POOL, 2, 2, restart(1000).spec.targets, plan)
        assert isinstance(cloud.build().restart(claimed(asked)), Succeeded)
        assert isinstance(cloud.build().restart(claimed(asked)), Succeeded)
    assert cloud.changes() == ["reboot 1000"] * 2


def test_cherry_refused_restart_is_not_taken_for_an_order_without_stock() -> None:
    cloud = EmulatedCloud(2)
    cloud.fail("POST", 400, 1, "the plan of this server has reached its limit of reboots")
    outcome = cloud.build().restart(claimed(restart(1000)))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"


def test_cherry_server_in_rescue_mode_is_busy() -> None:
    cloud = EmulatedCloud(1)
    cloud.add(status="Rescue mode")
    assert [each.busy for each in cloud.group().instances] == ["", "rescue mode"]
