"""What an observation says of running instances: notices, interruption rates, drift, who
changes or repairs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from chalicelib.model.group import NodeGroup
from chalicelib.providers.alicloud.decoding import SpotAdvice
from chalicelib.providers.kit.base import Observation
from infra.emulators.alicloud.iam import read_policy
from infra.emulators.vendor_common.fault_injection import VendorFault
from infra.emulators.vendor_common.http_messages import scripted
from tests.cases import each_row
from tests.providers.alicloud.emulated import GROUP, EmulatedEss, grow
from tests.providers.alicloud.test_ali_permissions import FOLDER
from tests.providers.cherryservers.fixture import MemoryCache

SPOT = "SpotAsPriceGo"
INSTANCES = " DescribeInstances$"


def observed(ess: EmulatedEss, *specs: str) -> Observation:
    return ess.build(*specs).observe(ess.nodes())


def first(ess: EmulatedEss) -> NodeGroup:
    return observed(ess).groups[0]


def leaving(groups: tuple[NodeGroup, ...]) -> list[str]:
    return [each.handle for group in groups for each in group.instances if each.leaves_at]


def notice_calls(ess: EmulatedEss) -> list[Mapping[str, str]]:
    """Returns the parameters of the calls of DescribeInstances since the
    last look, without dry runs."""
    calls = [call.parameters for call in ess.look() if call.action == "DescribeInstances"]
    return [call for call in calls if "DryRun" not in call]


def without(*names: str) -> EmulatedEss:
    """An account with two spot instances, and a key that lacks these permissions."""
    ess = EmulatedEss(2, spot=SPOT)
    ess.shared_cache = MemoryCache(ess.clock)
    text = (FOLDER / "ram-policy.json").read_text()
    for name in names:
        text = text.replace(f'"{name}"', '"ecs:DescribeRegions"')
    ess.server.ring.keys[ess.key_id].permissions = read_policy(text)
    return ess


# -- taken back


def test_spot_4_one_call_finds_the_instances_that_ecs_takes_back() -> None:
    ess = EmulatedEss(250, 2, spot=SPOT)
    # the last is in a group that another cluster's policy names
    for name in ("i-0007", "i-0250", "i-0252"):
        ess.cloud.interrupt(name)
    groups = observed(ess, f"0:300:{GROUP}").groups
    assert leaving(groups) == ["i-0007", "i-0250"]
    assert {each.leaves_at for each in groups[0].instances} == {0.0, ess.now() + 300.0}
    (call,) = notice_calls(ess)
    assert (call["LockReason"], call["MaxResults"]) == ("Recycling", "100")


def test_alicloud_account_without_spot_instances_is_not_asked_for_notices() -> None:
    ess = EmulatedEss(3)
    ess.cloud.add_group("empty-spot", spot=SPOT)
    assert not leaving(observed(ess).groups)
    assert notice_calls(ess) == []


def test_alicloud_spot_instance_of_a_mixed_group_is_found_too() -> None:
    ess = EmulatedEss(2, spot=SPOT)
    ess.group.multi_zone = "COST_OPTIMIZED"
    ess.cloud.interrupt("i-0002")
    group = first(ess)
    assert not group.spot
    assert leaving((group,)) == ["i-0002"]


def test_alicloud_notices_beyond_a_page_are_read_page_by_page() -> None:
    ess = EmulatedEss(150, spot=SPOT)
    for name in list(ess.group.machines):
        ess.cloud.interrupt(name)
    assert len(leaving(observed(ess, f"0:200:{GROUP}").groups)) == 150
    assert [call.get("NextToken", "") for call in notice_calls(ess)] == ["", "100"]


def test_alicloud_endless_list_of_notices_is_read_for_twenty_pages() -> None:
    ess = EmulatedEss(1, spot=SPOT)
    page = {"Instances": {"Instance": []}, "NextToken": "again"}
    ess.server.reply(INSTANCES, lambda _: scripted(200, page), always=True)
    assert not leaving((first(ess),))
    # a dry run
    assert (
        len([each for each in ess.server.requests if each.line.endswith(INSTANCES[:-1])]) == 20 + 1
    )


@pytest.mark.parametrize("fault", [*VendorFault])
def test_alicloud_failing_notices_are_one_gap_and_fail_nothing_else(fault: VendorFault) -> None:
    ess = EmulatedEss(2, spot=SPOT)
    good = observed(ess)
    ess.cloud.interrupt("i-0001")
    ess.server.faults.next(fault, on="DescribeInstances", times=-1)
    seen = observed(ess)
    assert seen.groups == good.groups
    (gap,) = seen.gaps
    assert (gap.kind, gap.place) == ("Interruption", "spec.providers.alicloud")
    assert "could not be read" in gap.detail or "the key may not" in gap.detail


@each_row(
    "body",
    [
        {},
        {"Instances": "none"},
        {"Instances": {"Instance": [7, None, {"InstanceId": ""}, {"InstanceId": "i-0001"}]}},
        {"Instances": {"Instance": [{"InstanceId": "i-0001", "OperationLocks": "Recycling"}]}},
        {
            "Instances": {
                "Instance": [{"InstanceId": "i-0001", "OperationLocks": {"LockReason": [None, 3]}}]
            }
        },
        {
            "Instances": {
                "Instance": [
                    {"InstanceId": "i-0001", "OperationLocks": [{"LockReason": "security"}]}
                ]
            }
        },
    ],
)
def test_alicloud_answer_of_another_shape_names_no_instance(body: dict[str, Any]) -> None:
    ess = EmulatedEss(2, spot=SPOT)
    ess.server.reply(INSTANCES, lambda _: scripted(200, body), always=True)
    group = first(ess)
    assert (len(group.instances), group.error) == (2, "")
    assert not leaving((group,))


def test_alicloud_lock_reason_counts_in_any_spelling() -> None:
    ess = EmulatedEss(2, spot=SPOT)
    lock = {"InstanceId": "i-0002", "OperationLocks": {"LockReason": [{"LockReason": "recycling"}]}}
    ess.server.reply(INSTANCES, scripted(200, {"Instances": {"Instance": [lock]}}))
    assert leaving((first(ess),)) == ["i-0002"]


def test_alicloud_key_that_sees_no_instances_is_one_gap_with_the_permission() -> None:
    """ECS answers such a key with an empty list, as if nothing was taken back."""
    ess = without("ecs:DescribeInstances")
    for _ in range(3):
        (gap,) = observed(ess).gaps
        assert "it needs ecs:DescribeInstances" in gap.detail
    dry_runs = [call for call in ess.look() if call.parameters.get("DryRun")]
    assert len(dry_runs) <= 2, "once, and once more in case the key has changed"
    ess.server.ring.keys[ess.key_id].permissions = None
    ess.clock.advance(601.0)
    assert observed(ess).gaps == ()


def test_alicloud_permission_is_checked_every_six_hours_without_interruptions() -> None:
    ess = without()
    for _ in range(10):
        assert observed(ess).gaps == ()
        ess.clock.advance(1800.0)
    assert len([call for call in ess.look() if call.parameters.get("DryRun")]) == 1


@each_row("remedy", [True, False])
def test_alicloud_group_that_replaces_interrupted_instances_says_so(remedy: bool) -> None:
    assert first(EmulatedEss(1, spot=SPOT, remedy=remedy)).replaces_interrupted == remedy
    assert not first(EmulatedEss(1, remedy=remedy)).replaces_interrupted


# -- interruption rates


@each_row(
    ("text", "rate"),
    [
        ("0-3%", 0.015),
        ("3-5%", 0.04),
        ("5-10%", 0.075),
        ("10-100%", 0.55),
        ("10-100", 0.55),
        ("", 0.0),
        ("0-0%", 0.0),
        ("100-10%", 0.0),
        ("3-500%", 0.0),
        ("-3-5%", 0.0),
        ("3-5%" * 1000, 0.0),
        ("\u0663-\u0665%", 0.0),  # digits, but not of ASCII
    ],
)
def test_alicloud_interruption_rate_is_the_middle_of_the_range(text: str, rate: float) -> None:
    zone = {
        "ZoneId": "z",
        "AvailableSpotResources": [{"InstanceType": "t", "InterruptRateDesc": text}],
    }
    advice = msgspec.convert({"AvailableSpotZones": [zone, "nonsense"]}, SpotAdvice)
    assert advice.rate("t", "z") == advice.rate("t", "") == pytest.approx(rate)
    assert advice.rate("t", "y") == advice.rate("s", "z") == 0.0


def test_alicloud_spot_group_has_the_interruption_rate_of_its_type_and_zone() -> None:
    ess = EmulatedEss(1, spot=SPOT)
    ess.cloud.add_group("plain", size=1)
    ess.cloud.interruptions |= {
        ("ecs.g7.xlarge", "cn-hangzhou-i"): "5-10%",
        ("ecs.g7.xlarge", "cn-hangzhou-h"): "3-5%",
    }
    assert [group.interruption_rate for group in observed(ess).groups] == [0.075, 0.0]


def test_alicloud_advice_is_asked_for_the_one_zone_of_a_group() -> None:
    ess = without()
    first(ess)
    calls = [call.parameters for call in ess.look() if call.action == "DescribeSpotAdvice"]
    assert [call.get("ZoneId") for call in calls] == ["cn-hangzhou-i"]


def test_alicloud_spot_group_without_a_known_zone_has_the_highest_rate_of_all_zones() -> None:
    ess = EmulatedEss(0, spot=SPOT, zones=("cn-hangzhou-h", "cn-hangzhou-i"))
    ess.cloud.interruptions |= {
        ("ecs.g7.xlarge", "cn-hangzhou-i"): "5-10%",
        ("ecs.g7.xlarge", "cn-hangzhou-h"): "3-5%",
    }
    assert first(ess).interruption_rate == 0.075


def test_alicloud_interruption_rate_is_asked_again_after_six_hours() -> None:
    ess = without()
    for _ in range(7):
        assert first(ess).interruption_rate == 0.015
        ess.clock.advance(3600.0)
    assert ess.actions().count("DescribeSpotAdvice") == 2


def test_alicloud_key_without_the_permission_for_rates_is_one_gap() -> None:
    ess = without("ecs:DescribeSpotAdvice")
    for _ in range(3):
        seen = observed(ess)
        (gap,) = seen.gaps
        assert gap.kind == "InterruptionRate"
        assert "it needs ecs:DescribeSpotAdvice" in gap.detail
        assert seen.groups[0].interruption_rate == 0.0
        assert seen.groups[0].price > 0.0
    assert ess.actions().count("DescribeSpotAdvice") <= 2, (
        "once, and once more in case the key has changed"
    )


def test_alicloud_failing_rates_change_nothing_but_the_rate() -> None:
    ess = EmulatedEss(1, spot=SPOT)
    good = first(ess)
    ess.server.faults.next(VendorFault.SERVER_ERROR, on="DescribeSpotAdvice", times=-1)
    seen = observed(ess)
    assert seen.gaps == ()
    assert seen.groups[0] == msgspec.structs.replace(good, interruption_rate=0.0)


# -- outdated


def test_alicloud_instance_of_an_older_configuration_names_both() -> None:
    ess = EmulatedEss(1)
    ess.cloud.redefine(GROUP)
    (instance,) = first(ess).instances
    assert (
        instance.outdated
        == "scaling configuration asc-1, the group's is scaling configuration asc-2"
    )


def test_alicloud_instance_of_an_older_template_version_is_outdated() -> None:
    ess = EmulatedEss(2, template=True)
    assert [each.outdated for each in first(ess).instances] == ["", ""]
    ess.cloud.redefine(GROUP)
    assert [each.outdated for each in first(ess).instances] == [
        "version 1 of launch template lt-1, the group's is 2"
    ] * 2


@each_row("version", ["1", "Default", "Latest"])
def test_alicloud_group_of_a_fixed_template_version_is_outdated_by_no_newer_one(
    version: str,
) -> None:
    ess = EmulatedEss(1, template=True)
    ess.group.template_version = version
    ess.cloud.redefine(GROUP)
    (instance,) = first(ess).instances
    assert bool(instance.outdated) == (version != "1")


def test_alicloud_group_that_changes_to_a_template_outdates_its_instances() -> None:
    ess = EmulatedEss(1, 1)
    other = ess.cloud.add_group("from-template", size=1, template=True)
    ess.group.template, ess.group.template_version = other.template, "Default"
    ess.group.configuration = ""
    (instance,) = first(ess).instances
    assert instance.outdated == "scaling configuration asc-1, the group's is launch template lt-1"


@each_row(
    "fields",
    [
        {"ScalingConfigurationId": ""},
        {"ScalingConfigurationId": None},
        {
            "LaunchTemplateId": "lt-1",
            "LaunchTemplateVersion": "Default",
            "ScalingConfigurationId": "",
        },
    ],
)
def test_alicloud_instance_of_which_nothing_is_known_is_not_outdated(
    fields: dict[str, Any],
) -> None:
    ess = EmulatedEss(1, template="LaunchTemplateId" in fields)
    ess.answers["i-0001"] = fields
    ess.cloud.redefine(GROUP)
    (instance,) = first(ess).instances
    assert instance.outdated == ""


def test_alicloud_unreadable_template_outdates_nothing() -> None:
    ess = EmulatedEss(1, template=True)
    ess.cloud.redefine(GROUP)
    ess.server.faults.next(VendorFault.FORBIDDEN, on="DescribeLaunchTemplateVersions", times=-1)
    (instance,) = first(ess).instances
    assert instance.outdated == ""


@each_row("wrong", [[1], {"a": [None]}, 7, "x" * 1000, [["NONE"], {}]])
def test_alicloud_fields_of_another_shape_leave_the_group_as_it_is(wrong: Any) -> None:
    ess = EmulatedEss(2, spot=SPOT)
    ess.cloud.machine("i-0001").health = "Unhealthy"
    ess.answers[ess.group.name] = {
        "SpotInstanceRemedy": wrong,
        "HealthCheckType": wrong,
        "HealthCheckTypes": wrong,
    }
    ess.answers["i-0001"] = {"LaunchTemplateId": wrong, "LaunchTemplateVersion": wrong}
    group = first(ess)
    assert (group.error, group.target, len(group.instances)) == ("", 2, 2)
    assert not group.replaces_interrupted
    assert all(len(each.outdated) < 300 for each in group.instances)


# -- changed and repaired by the vendor


@each_row(
    ("state", "group", "instance"),
    [
        ("InService", "", ""),
        ("Protected", "", ""),
        ("Standby", "", ""),
        ("Pending", "is adding 1 and removing 0 instances", "is adding it to its group (Pending)"),
        (
            "Pending:Wait",
            "is adding 1 and removing 0 instances",
            "is adding it to its group (Pending:Wait)",
        ),
        ("Removing", "is adding 0 and removing 1 instances", "is removing it"),
        ("Removing:Wait", "is adding 0 and removing 1 instances", "is removing it"),
    ],
)
def test_alicloud_group_is_busy_while_ess_adds_or_removes_instances(
    state: str, group: str, instance: str
) -> None:
    ess = EmulatedEss(1)
    (name,) = ess.fill(1, state)
    seen = first(ess)
    busy = {each.handle: each.busy for each in seen.instances}
    assert (seen.busy, busy[name]) == (
        group and f"Auto Scaling {group}",
        instance and f"Auto Scaling {instance}",
    )
    assert busy["i-0001"] == ""


def test_alicloud_group_is_busy_while_an_activity_runs_that_has_no_instance() -> None:
    ess = EmulatedEss(1)
    ess.cloud.sell_out(group=GROUP)
    ess.build().scale_up(grow(ess, 1, 2))
    assert first(ess).busy == "scaling activity asa-1 is running"
    ess.settle(30.0)
    assert first(ess).busy == ""


def test_alicloud_locked_group_is_busy_and_has_an_error() -> None:
    ess = EmulatedEss(1)
    ess.group.state = "Locked"
    group = first(ess)
    assert group.busy == "Auto Scaling has locked the scaling group"
    assert "is Locked" in group.error


@each_row(
    ("health", "check", "suspended", "repaired"),
    [
        ("Healthy", "ECS", (), False),
        ("Unhealthy", "ECS", (), True),
        ("Unhealthy", "NONE", (), False),
        ("Unhealthy", "ECS", ("HealthCheck",), False),
    ],
)
def test_alicloud_health_check_repairs_what_it_has_found_unhealthy(
    health: str, check: str, suspended: tuple[str, ...], repaired: bool
) -> None:
    ess = EmulatedEss(2)
    ess.cloud.machine("i-0001").health = health
    ess.group.health_check, ess.group.suspended = check, set(suspended)
    by = {each.handle: each.repaired_by for each in first(ess).instances}
    assert by == {"i-0001": "the health check of Auto Scaling" if repaired else "", "i-0002": ""}
