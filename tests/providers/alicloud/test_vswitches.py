"""The zones of the VSwitches of scaling groups."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.net.vendor_hosts import refused
from chalicelib.providers.alicloud.settings import Endpoints, Network, Service
from infra.emulators.alicloud.iam import read_policy
from infra.emulators.cloud_account import LOOPBACK
from tests.providers.alicloud.emulated import EmulatedEss
from tests.providers.alicloud.test_ali_permissions import FOLDER
from tests.providers.cherryservers.fixture import MemoryCache
from tests.providers.emulated import changed

ZONE_H, ZONE_I, ZONE_J = "cn-hangzhou-h", "cn-hangzhou-i", "cn-hangzhou-j"
ZONE = "topology.kubernetes.io/zone"


def account(*zones: str, size: int = 0, **more: Any) -> EmulatedEss:
    """Return an account with a group of a VSwitch per zone. Its passes share a cache."""
    ess = EmulatedEss(size, zones=zones, **more)
    ess.shared_cache = MemoryCache(ess.clock)
    return ess


def vswitch_calls(ess: EmulatedEss) -> list[str]:
    """Return the VSwitches that were asked for since the last look at the log."""
    return [
        call.parameters["VSwitchId"] for call in ess.look() if call.action == "DescribeVSwitches"
    ]


def without_permission(ess: EmulatedEss) -> None:
    """Take the permission from the key."""
    text = (
        (FOLDER / "ram-policy.json").read_text().replace('"vpc:DescribeVSwitches"', '"vpc:Nothing"')
    )
    ess.server.ring.keys[ess.key_id].permissions = read_policy(text)


def test_alicloud_empty_group_is_in_the_zones_of_its_vswitches() -> None:
    [group] = account(ZONE_H, ZONE_J, ZONE_I).groups()

    assert group.zones == (ZONE_H, ZONE_I, ZONE_J)
    assert group.template is not None
    assert ZONE not in group.template.labels


def answering_zone(ess: EmulatedEss, zone: str) -> EmulatedEss:
    """Return the account with another zone in the answer about the VSwitch of zone i."""
    fields: dict[object, dict[str, Any]] = {f"vsw-{ZONE_I}": {"ZoneId": zone}}
    ess.server.edit = lambda body: changed(body, "VSwitchId", fields)
    return ess


def test_alicloud_vswitches_in_one_zone_are_one_zone() -> None:
    [group] = answering_zone(account(ZONE_H, ZONE_I), ZONE_H).groups()

    assert group.zones == ()
    assert group.template is not None
    assert group.template.labels[ZONE] == ZONE_H


@pytest.mark.parametrize("zones", [(ZONE_H,), ()], ids=["one", "none"])
def test_alicloud_group_without_several_vswitches_costs_no_call(zones: tuple[str, ...]) -> None:
    ess = account(*zones)
    [group] = ess.groups()

    assert group.zones == ()
    assert vswitch_calls(ess) == []


def test_alicloud_zones_of_vswitches_are_read_once_in_a_week() -> None:
    ess = account(ZONE_H, ZONE_I)
    ess.groups()
    assert vswitch_calls(ess) == [f"vsw-{ZONE_H}", f"vsw-{ZONE_I}"]
    ess.clock.advance(6 * 86_400.0)
    ess.groups()
    assert vswitch_calls(ess) == []
    ess.clock.advance(2 * 86_400.0)
    ess.groups()
    assert vswitch_calls(ess) == [f"vsw-{ZONE_H}", f"vsw-{ZONE_I}"]


def test_alicloud_key_without_the_permission_knows_zones_of_instances_only() -> None:
    ess = account(ZONE_H, ZONE_I, size=1)
    without_permission(ess)
    observation = ess.build().observe(())

    [group] = observation.groups
    assert not group.error
    assert group.zones in ((ZONE_H, ""), (ZONE_I, ""))
    [gap] = [gap for gap in observation.gaps if gap.kind == "VSwitch"]
    assert "vpc:DescribeVSwitches" in gap.detail
    assert len(vswitch_calls(ess)) == 1
    again = ess.build().observe(())
    assert [gap.detail for gap in again.gaps if gap.kind == "VSwitch"] == [gap.detail]
    assert vswitch_calls(ess) == [], "for six hours"
    ess.clock.advance(7 * 3600.0)
    ess.groups()
    assert len(vswitch_calls(ess)) == 1


def test_alicloud_failure_to_read_zones_is_remembered_and_changes_nothing_else() -> None:
    ess = account(ZONE_H, ZONE_I, size=1)
    ess.fail("DescribeVSwitches", "ServiceUnavailable", times=1, status=503)
    observation = ess.build().observe(())

    [group] = observation.groups
    assert not group.error
    assert group.zones[-1] == ""
    assert not [gap for gap in observation.gaps if gap.kind == "VSwitch"]
    ess.look()
    ess.groups()
    assert vswitch_calls(ess) == []
    ess.clock.advance(700.0)
    assert ess.groups()[0].zones == (ZONE_H, ZONE_I)


def test_alicloud_pass_reads_at_most_ten_vswitches() -> None:
    zones = tuple(f"cn-hangzhou-{number}" for number in range(10, 25))
    ess = account(*zones)
    [first] = ess.groups()
    assert (len(vswitch_calls(ess)), first.zones[-1]) == (10, "")
    [second] = ess.groups()
    assert (len(vswitch_calls(ess)), second.zones) == (5, zones)


@pytest.mark.parametrize("zone", ["", "a b", "x" * 64, "../etc", "zone\n"])
def test_alicloud_zone_that_is_none_is_unknown(zone: str) -> None:
    assert answering_zone(account(ZONE_H, ZONE_I), zone).groups()[0].zones == (ZONE_H, "")


@pytest.mark.parametrize(
    ("network", "host"),
    [
        (Network.PUBLIC, "vpc.cn-beijing.aliyuncs.com"),
        (Network.VPC, "vpc-vpc.cn-beijing.aliyuncs.com"),
    ],
)
def test_alicloud_vpc_is_called_at_its_host_of_the_region(network: Network, host: str) -> None:
    # https://www.alibabacloud.com/help/en/vpc/developer-reference/api-vpc-2016-04-28-endpoint
    url = Endpoints("cn-beijing", network).url(Service.VPC)

    assert url == f"https://{host}"
    assert not refused("alicloud", url, LOOPBACK)
