"""Observation of scaling groups: sizes, states, failures, and isolation of a group with errors."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.group import InstanceState, NodeGroup
from chalicelib.model.outcome import Failed
from chalicelib.providers.kit.errors import ProviderError, Throttled, Transient, Unauthorized
from infra.emulators.vendor_common.http_messages import NO_ANSWER, Answer, scripted
from tests.cases import each_row
from tests.providers.alicloud.emulated import (
    EmulatedEss,
    grow,
    instances_page,
    node,
    refusal,
    remove,
)

GROUPS, INSTANCES = " DescribeScalingGroups$", " DescribeScalingInstances$"
ATTEMPTS = 3
FORBIDDEN, THROTTLED = refusal("Forbidden.RAM", 403), refusal("Throttling.User")
NO_MONEY = refusal("InsufficientBalance", 403)  # for every group, unlike a permission
MOVING = instances_page(range(3), 5)
"""A page of a list that changes while it is read, which is read twice."""


def listed(ess: EmulatedEss) -> list[str]:
    """Returns the groups, or "" for the account, of all reads of instances."""
    requests = [
        each.parameters() for each in ess.server.requests if each.line.endswith(INSTANCES[:-1])
    ]
    return [parameters.get("ScalingGroupId", "") for parameters in requests]


def errors(groups: list[NodeGroup]) -> list[bool]:
    return [bool(each.error) for each in groups]


def test_alicloud_instance_states() -> None:
    ess = EmulatedEss(0)
    expected = {
        "InService": InstanceState.RUNNING,
        "Protected": InstanceState.RUNNING,
        "Standby": InstanceState.RUNNING,
        "Pending": InstanceState.CREATING,
        "Pending:Wait": InstanceState.CREATING,
        "Removing": InstanceState.DELETING,
        "Removing:Wait": InstanceState.DELETING,
        "New": InstanceState.CREATING,
    }
    names = {ess.fill(1, state)[0]: wanted for state, wanted in expected.items()}
    ess.fill(1, "Stopped")
    assert {each.handle: each.state for each in ess.groups()[0].instances} == names


def test_alicloud_leaving_and_stopped_instances_are_not_in_the_size() -> None:
    ess = EmulatedEss(2, desired=False)
    ess.fill(1, "Removing")
    ess.fill(1, "Stopped")
    (group,) = ess.groups()
    assert group.target == 2
    assert [each.state for each in group.instances] == [InstanceState.RUNNING] * 2 + [
        InstanceState.DELETING
    ]


@each_row("scheme", ["", "alicloud://"])
def test_alicloud_instances_are_matched_and_spelled_like_the_nodes(scheme: str) -> None:
    ess = EmulatedEss(3)
    first, second, third = ess.machines("asg-1")
    nodes = [
        node("a", f"{scheme}cn-hangzhou.{first}"),
        node("b", f"{scheme}cn-hangzhou.{second}"),
        node("c", ""),
        node("d", "kind://docker/x/y"),
    ]
    assert [(each.id, each.node) for each in ess.groups(nodes=nodes)[0].instances] == [
        (f"{scheme}cn-hangzhou.{first}", "a"),
        (f"{scheme}cn-hangzhou.{second}", "b"),
        (f"{scheme}cn-hangzhou.{third}", ""),
    ]


def test_alicloud_instance_missed_once_is_found_in_the_next_pass() -> None:
    ess = EmulatedEss(1)
    provider, nodes = ess.build(), [node("a", "cn-hangzhou.i-0001")]
    hidden, ess.group.machines = ess.group.machines, {}
    assert provider.observe(nodes).groups[0].instances == ()
    ess.group.machines = hidden
    assert provider.observe(nodes).groups[0].instances[0].node == "a"


def test_alicloud_node_with_an_open_lifecycle_hook_is_running() -> None:
    ess = EmulatedEss(0)
    (name,) = ess.fill(1, "Pending:Wait")
    (instance,) = ess.groups(nodes=[node("a", f"cn-hangzhou.{name}")])[0].instances
    assert instance.state is InstanceState.RUNNING


@each_row(
    ("groups", "calls"),
    [
        (1, 1 + 3),
        (18, 1 + 17 + 3),  # fifty instances of a group per call
        (21, 2 + 4),
        (45, 3 + 6),  # fifty of the whole account
    ],
)
def test_alicloud_quiet_pass_costs_a_call_per_20_groups_and_per_50_instances(
    groups: int, calls: int
) -> None:
    sizes = [*([3] * (groups - 1)), 137]
    ess = EmulatedEss(*sizes, most=200)
    assert [len(each.instances) for each in ess.groups()] == sizes
    cached = {"DescribeScalingConfigurations", "DescribeInstanceTypes", "DescribePrice"}
    assert len([action for action in ess.actions() if action not in cached]) == calls


def test_alicloud_account_wide_list_counts_only_for_groups_with_matching_size() -> None:
    ess = EmulatedEss(*([2] * 30))
    ess.answers["asg-1"] = {"TotalCapacity": 3}
    ess.fill(1, "Stopped", group="asg-2")
    found = [len(each.instances) for each in ess.groups()]
    assert found == [2] * 30, "stopped ones are left out, and no other is lost"
    assert [group for group in listed(ess) if group] == ["asg-1"]


def test_alicloud_account_with_many_foreign_instances_is_read_by_group() -> None:
    ess = EmulatedEss(*([1] * 30))
    ess.cloud.add_group("asg-31", size=2000, most=2000)
    found = ess.groups(*(f"0:5:asg-{number + 1}" for number in range(30)))
    assert [len(each.instances) for each in found] == [1] * 30
    assert len([group for group in listed(ess) if group]) == 30


@each_row("answers", [[MOVING] * 2, [FORBIDDEN]], ids=["moving", "forbidden"])
def test_alicloud_unreadable_account_wide_list_costs_no_group(answers: list[Answer]) -> None:
    ess = EmulatedEss(*([1] * 30))
    ess.server.reply(INSTANCES, *answers)
    assert [(each.error, len(each.instances)) for each in ess.groups()] == [("", 1)] * 30


def test_alicloud_twenty_unreadable_groups_block_no_other() -> None:
    ess = EmulatedEss(*([1] * 45))
    ess.server.reply(GROUPS, *[NO_ANSWER] * ATTEMPTS)
    found = ess.groups()
    assert errors(found) == [True] * 20 + [False] * 25
    assert "could not be read: Transient: DescribeScalingGroups" in found[0].error
    ess.server.reply(GROUPS, *[NO_ANSWER] * ATTEMPTS * 3)
    with pytest.raises(Transient):
        ess.groups()


@each_row(
    ("answer", "cls", "calls"),
    [(THROTTLED, Throttled, ATTEMPTS), (NO_MONEY, Unauthorized, 1)],
    ids=["slow", "money"],
)
def test_alicloud_refused_key_does_not_request_the_next_twenty_groups(
    answer: Answer, cls: type[ProviderError], calls: int
) -> None:
    ess = EmulatedEss(*([1] * 45))
    ess.server.reply(GROUPS, answer, always=True)
    with pytest.raises(cls):
        ess.groups()
    assert [query["ScalingGroupIds.20"] for query in ess.queries()] == ["asg-20"] * calls


def test_alicloud_group_forbidden_to_the_key_hides_no_other() -> None:
    """RAM can grant permissions for single scaling groups."""
    ess = EmulatedEss(1, 1, 1)
    ess.server.reply(INSTANCES, FORBIDDEN)
    assert errors(ess.groups()) == [True, False, False]


def test_alicloud_key_without_group_permissions_is_not_tried_on_all_groups() -> None:
    ess = EmulatedEss(*([1] * 15))
    ess.server.reply(INSTANCES, FORBIDDEN, always=True)
    assert all(errors(ess.groups()))
    assert len(listed(ess)) == 5


def test_alicloud_silent_api_is_not_called_for_each_group() -> None:
    ess = EmulatedEss(*([1] * 15))
    ess.server.reply(INSTANCES, NO_ANSWER, always=True)
    assert all(errors(ess.groups()))
    assert len(listed(ess)) == 3 * ATTEMPTS
    ess = EmulatedEss(*([1] * 15))
    ess.server.reply(INSTANCES, *[MOVING] * 2 * 14)
    assert errors(ess.groups()) == [True] * 14 + [False]


def test_alicloud_undecodable_group_is_reported_and_not_changed() -> None:
    ess = EmulatedEss(2, 2)
    ess.answers["asg-1"] = {"MinSize": "few"}
    first, second = ess.groups()
    assert "cannot be understood" in first.error
    assert second.error == ""
    removal = remove(ess, 2, ess.machines("asg-1")[0])
    for outcome in (ess.build().scale_up(grow(ess, 2, 3)), ess.build().delete_nodes(removal)):
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "Unknown"
    assert ess.changes() == []


# Failures


def failed_growth(made: int, **more: Any) -> EmulatedEss:
    ess = EmulatedEss(1, **more)
    ess.cloud.stock["ecs.g7.xlarge", "cn-hangzhou-i"] = made
    ess.build().scale_up(grow(ess, 1, 5))
    ess.settle(60.0)
    return ess


@each_row("made", [0, 2])
def test_alicloud_each_missing_machine_is_a_placeholder_with_its_error(made: int) -> None:
    (group,) = failed_growth(made).groups()
    assert group.target == 5
    missing = [each for each in group.instances if each.error]
    assert [each.id for each in missing] == [
        f"cn-hangzhou.placeholder-asg-1-{n}" for n in range(4 - made)
    ]
    assert {each.state for each in missing} == {InstanceState.CREATING}
    assert {(each.error.cls, each.error.code) for each in missing if each.error} == {
        ("OutOfStock", "OperationDenied.NoStock")
    }


def test_alicloud_no_placeholder_while_a_machine_may_still_come() -> None:
    ess = EmulatedEss(1)
    ess.build().scale_up(grow(ess, 1, 3))
    for name in ess.group.activities[0].machines:
        del ess.group.machines[name]  # not listed yet
    assert all(each.error is None for each in ess.groups()[0].instances)
    ess = EmulatedEss(1)
    ess.group.desired = 3  # manually, and nothing has failed yet
    assert all(each.error is None for each in ess.groups()[0].instances)


def test_alicloud_no_placeholder_for_machines_requested_by_the_groups_minimum() -> None:
    ess = failed_growth(0, least=1)
    ess.group.machines.clear()
    ess.group.min = 4
    assert len([each for each in ess.groups()[0].instances if each.error]) == 1


def test_alicloud_group_without_desired_capacity_has_no_placeholders() -> None:
    (group,) = failed_growth(0, desired=False).groups()
    assert group.target == 1
    assert all(each.error is None for each in group.instances)


def test_alicloud_unreadable_activities_are_a_gap() -> None:
    ess = failed_growth(0)
    ess.server.reply(" DescribeScalingActivities$", *[NO_ANSWER] * ATTEMPTS)
    observed = ess.build().observe(())
    assert len(observed.groups[0].instances) == 1
    assert any("why machines are missing could not be read" in gap.detail for gap in observed.gaps)


# Groups with errors


@each_row(
    ("fields", "word"),
    [
        ({"LifecycleState": "Deleting"}, "being deleted"),
        ({"LifecycleState": "Inactive"}, "Inactive"),
        ({"GroupType": "ECI"}, "ECI"),
        ({"SystemSuspended": True}, "suspended by Auto Scaling"),
        ({"SuspendedProcesses": ["ScaleOut"]}, "ScaleOut"),
        (
            {"LaunchTemplateOverrides": [{"InstanceType": "ecs.g7.xlarge", "WeightedCapacity": 4}]},
            "weights",
        ),
    ],
)
def test_alicloud_disabled_group_reports_why_and_blocks_no_other(
    fields: dict[str, object], word: str
) -> None:
    ess = EmulatedEss(2, 2)
    ess.answers["asg-1"] = fields
    bad, good = ess.groups()
    assert word in bad.error
    assert (good.error, len(good.instances)) == ("", 2)


def test_alicloud_deleted_group_is_reported_and_blocks_no_other() -> None:
    bad, good = EmulatedEss(2).groups("0:5:asg-gone", "0:5:asg-1")
    assert "no scaling group asg-gone in cn-hangzhou" in bad.error
    assert good.error == ""


def test_alicloud_suspended_scale_in_blocks_only_removals() -> None:
    ess = EmulatedEss(2)
    ess.group.suspended = {"ScaleIn", "AlarmNotification"}
    (group,) = ess.groups()
    assert group.error == ""
    assert "ScaleIn" in group.scale_down_held


def test_alicloud_incomplete_instance_list_is_an_error_of_its_group_only() -> None:
    ess = EmulatedEss(2, 2)
    ess.server.reply(INSTANCES, *[NO_ANSWER] * ATTEMPTS)
    bad, good = ess.groups()
    assert "its instances could not be read: Transient" in bad.error
    assert (bad.target, good.error, len(good.instances)) == (2, "", 2)


@each_row(("answer", "calls"), [(THROTTLED, ATTEMPTS), (NO_MONEY, 1)], ids=["throttled", "refused"])
def test_alicloud_throttled_or_refused_read_stops_further_calls(answer: Answer, calls: int) -> None:
    ess = EmulatedEss(*([1] * 30))
    ess.server.reply(INSTANCES, answer, always=True)
    assert all("Said." in group.error for group in ess.groups())
    assert len(listed(ess)) == calls


def test_alicloud_observation_fails_only_if_nothing_can_be_read() -> None:
    ess = EmulatedEss(1)
    ess.server.reply(GROUPS, FORBIDDEN)
    with pytest.raises(Unauthorized):
        ess.groups()


@each_row("action", ["DescribeScalingConfigurations", "DescribeInstanceTypes"])
def test_alicloud_unreadable_node_template_is_not_an_error_of_the_group(action: str) -> None:
    ess = EmulatedEss(1)
    ess.server.reply(f" {action}$", *[NO_ANSWER] * ATTEMPTS)
    (group,) = ess.groups()
    assert group.error == ""
    assert group.template is None
    assert action in group.template_error


# Bounds and options


def test_alicloud_bounds_equal_those_that_ess_enforces_and_a_gap_says_so() -> None:
    ess = EmulatedEss(2, least=1, most=5)
    (group,) = ess.groups("0:10:asg-1")
    assert (group.min, group.max) == (1, 5)
    assert "min 0 is 1 there, max 10 is 5 there" in ess.warnings("0:10:asg-1")
    assert ess.warnings("1:5:asg-1") == ""


def test_alicloud_disjoint_bounds_are_an_error_of_the_group() -> None:
    (group,) = EmulatedEss(6, least=6, most=9).groups("0:5:asg-1")
    assert "no size in common" in group.error


def test_alicloud_instances_protected_by_users_are_reported() -> None:
    ess = EmulatedEss(1)
    (name,) = ess.fill(1, "Protected")
    (group,) = ess.groups()
    assert group.error == ""
    assert name in ess.warnings()
    assert [bool(each.held) for each in group.instances] == [False, True]


def test_alicloud_attached_instance_entrusted_to_the_group_may_be_removed() -> None:
    ess = EmulatedEss(0)
    for entrusted in (False, True):
        ess.fill(1, CreationType="Attached", Entrusted=entrusted)
    assert [bool(each.held) for each in ess.groups()[0].instances] == [True, False]


def test_alicloud_group_options_come_from_its_tags() -> None:
    prefix = "k8s.io/cluster-autoscaler/node-template/autoscaling-options/"
    ess = EmulatedEss(
        1,
        tags={
            f"{prefix}scaledownutilizationthreshold": "0.7",
            f"{prefix}scaledownunneededtime": "5m",
            f"{prefix}ignoredaemonsetsutilization": "True",
            f"{prefix}scaledownunreadytime": "soon",
            f"{prefix}neverheardof": "1",
        },
    )
    options = ess.groups()[0].options
    assert (options.scale_down_utilization_threshold, options.scale_down_unneeded_time) == (
        0.7,
        300.0,
    )
    assert options.ignore_daemonsets_utilization is True
    assert options.scale_down_unready_time is None
    assert "soon" in ess.warnings()


@each_row(("names", "count"), [(("i-0001", "i-0002", "i-0001"), 2), (("i-0001", "i-0002", ""), 0)])
def test_alicloud_observation_survives_arbitrary_vendor_answers(
    names: tuple[str, ...], count: int
) -> None:
    ess = EmulatedEss(2)
    items = [{"InstanceId": name, "LifecycleState": "InService"} for name in names]
    ess.server.reply(INSTANCES, scripted(200, {"TotalCount": 2, "ScalingInstances": items}))
    ess.answers["asg-1"] = {
        "DesiredCapacity": 10**9,
        "SuspendedProcesses": None,
        "VSwitchIds": None,
    }
    (group,) = ess.groups()
    assert len({each.id for each in group.instances}) == len(group.instances) == count
    assert ("its instances could not be read" in group.error) == (count == 0), (
        "an instance without an id hides others"
    )


@each_row(
    ("switches", "tag", "zones"),
    [
        (["vsw-1"], "", ()),
        (["vsw-1", "vsw-1"], "", ()),
        (["vsw-1", "vsw-2"], "", ("cn-hangzhou-h", "cn-hangzhou-i", "")),
        (["vsw-1", "vsw-2"], "cn-hangzhou-i", ()),
        (None, "", ()),
    ],
)
def test_alicloud_group_with_several_vswitches_is_in_several_zones(
    switches: list[str] | None, tag: str, zones: tuple[str, ...]
) -> None:
    ess = EmulatedEss(0)
    ess.fill(1, ZoneId="cn-hangzhou-i")
    ess.fill(1, ZoneId="cn-hangzhou-h")
    label = "k8s.io/cluster-autoscaler/node-template/label/topology.kubernetes.io/zone"
    tags = {"Tags": [{"TagKey": label, "TagValue": tag}]} if tag else {}
    ess.answers["asg-1"] = {"VSwitchIds": switches, **tags}

    assert ess.groups()[0].zones == zones
