"""Observation of scaling groups: sizes, states, failures, and isolation of a group with errors."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.group import InstanceState
from chalicelib.model.outcome import Failed
from chalicelib.providers.alicloud.api import MOVED
from chalicelib.providers.alicloud.decoding import TemplateOverride
from chalicelib.providers.errors import ProviderError, Throttled, Transient, Unauthorized
from tests.cases import each_row
from tests.unit.providers.alicloud.fake_api import (
    FakeAlicloudApi,
    FakeApiGroup,
    grow,
    node,
    provider,
    refusal,
    remove,
    tags,
)


def world(*sizes: int, **more: object) -> FakeAlicloudApi:
    groups = [FakeApiGroup(f"asg-{number}", **more) for number, _ in enumerate(sizes, 1)]  # type: ignore[arg-type]
    api = FakeAlicloudApi(*groups)
    for group, size in zip(groups, sizes, strict=True):
        api.fill(group.id, size)
    return api


def test_alicloud_instance_states() -> None:
    api = world(0)
    names = {
        state: api.fill("asg-1", 1, state)[0]
        for state in (
            "InService",
            "Protected",
            "Standby",
            "Pending",
            "Pending:Wait",
            "Removing",
            "Removing:Wait",
            "Stopped",
            "New",
        )
    }
    found = {each.handle: each.state for each in provider(api).observe(()).groups[0].instances}
    assert found == {
        names["InService"]: InstanceState.RUNNING,
        names["Protected"]: InstanceState.RUNNING,
        names["Standby"]: InstanceState.RUNNING,
        names["Pending"]: InstanceState.CREATING,
        names["Pending:Wait"]: InstanceState.CREATING,
        names["Removing"]: InstanceState.DELETING,
        names["Removing:Wait"]: InstanceState.DELETING,
        names["New"]: InstanceState.CREATING,
    }


def test_alicloud_leaving_and_stopped_instances_are_not_in_the_size() -> None:
    api = world(2, desired_mode=False)
    api.fill("asg-1", 1, "Removing")
    api.fill("asg-1", 1, "Stopped")
    group = provider(api).observe(()).groups[0]
    assert group.target == 2
    assert [each.state for each in group.instances] == [InstanceState.RUNNING] * 2 + [InstanceState.DELETING]


@each_row("scheme", ["", "alicloud://"])
def test_alicloud_instances_are_matched_and_spelled_like_the_nodes(scheme: str) -> None:
    api = world(3)
    names = list(api.all["asg-1"].instances)
    nodes = [
        node("a", f"{scheme}cn-hangzhou.{names[0]}"),
        node("b", f"{scheme}cn-hangzhou.{names[1]}"),
        node("c", ""),
        node("d", "kind://docker/x/y"),
    ]
    found = provider(api).observe(nodes).groups[0].instances
    assert [(each.id, each.node) for each in found] == [
        (f"{scheme}cn-hangzhou.{names[0]}", "a"),
        (f"{scheme}cn-hangzhou.{names[1]}", "b"),
        (f"{scheme}cn-hangzhou.{names[2]}", ""),
    ]


def test_alicloud_instance_missed_once_is_found_in_the_next_pass() -> None:
    api = world(1)
    ours = provider(api)
    hidden = api.all["asg-1"].instances
    api.all["asg-1"].instances = {}
    late = node("a", f"cn-hangzhou.{next(iter(hidden))}")
    assert ours.observe([late]).groups[0].instances == ()
    api.all["asg-1"].instances = hidden
    assert ours.observe([late]).groups[0].instances[0].node == "a"


def test_alicloud_node_with_an_open_lifecycle_hook_is_running() -> None:
    api = world(0)
    name = api.fill("asg-1", 1, "Pending:Wait")[0]
    found = provider(api).observe([node("a", f"cn-hangzhou.{name}")]).groups[0].instances
    assert found[0].state is InstanceState.RUNNING


@each_row(
    ("groups", "calls"),
    [
        (1, 1 + 3),
        (18, 1 + 17 + 3),  # fifty instances of a group per call
        (21, 2 + 4),
        (45, 3 + 6),  # fifty of the whole account
    ],
)
def test_alicloud_quiet_pass_costs_a_call_per_20_groups_and_per_50_instances(groups: int, calls: int) -> None:
    api = world(*([3] * (groups - 1)), 137, most=200)
    found = provider(api).observe(()).groups
    assert [len(each.instances) for each in found] == [3] * (groups - 1) + [137]
    assert len(api.calls) == calls


def test_alicloud_account_wide_list_counts_only_for_groups_with_matching_size() -> None:
    api = world(*([2] * 30))
    api.all["asg-1"].more = {"total_capacity": 3}
    api.fill("asg-2", 1, "Stopped")
    found = {each.id: len(each.instances) for each in provider(api).observe(()).groups}
    assert found == dict.fromkeys(found, 2), "stopped ones are left out, and nobody is lost"
    assert [call for call in api.calls if call.startswith("instances asg")] == ["instances asg-1"]


def test_alicloud_account_with_many_foreign_instances_is_read_by_group() -> None:
    api = world(*([1] * 30))
    api.all["asg-other"] = FakeApiGroup("asg-other", most=2000)
    api.fill("asg-other", 2000)
    found = provider(api, *(f"0:5:asg-{number + 1}" for number in range(30))).observe(()).groups
    assert [len(each.instances) for each in found] == [1] * 30
    assert len([call for call in api.calls if call.startswith("instances asg")]) == 30


@each_row("error", [Transient("moved", code=MOVED), Unauthorized("no", code="Forbidden.RAM")])
def test_alicloud_unreadable_account_wide_list_costs_no_group(error: ProviderError) -> None:
    api = world(*([1] * 30))
    api.trouble["instances"] = [error]
    found = provider(api).observe(()).groups
    assert [(each.error, len(each.instances)) for each in found] == [("", 1)] * 30


def test_alicloud_twenty_unreadable_groups_block_no_other() -> None:
    api = world(*([1] * 45))
    api.trouble["groups"] = [Transient("no answer")]
    found = provider(api).observe(()).groups
    assert [bool(each.error) for each in found] == [True] * 20 + [False] * 25
    assert "could not be read: Transient: no answer" in found[0].error
    api.trouble["groups"] = [Transient("no answer")] * 3
    with pytest.raises(Transient):
        provider(api).observe(())


@each_row("error", [Throttled("slow down"), Unauthorized("refused")])
def test_alicloud_refused_key_does_not_request_the_next_twenty_groups(error: ProviderError) -> None:
    api = world(*([1] * 45))
    api.trouble["groups"] = [error] * 3
    with pytest.raises(type(error)):
        provider(api).observe(())
    assert api.calls == ["groups 20"]


def test_alicloud_group_forbidden_to_the_key_hides_no_other() -> None:
    """RAM can grant permissions for single scaling groups."""
    api = world(1, 1, 1)
    api.trouble["instances"] = [refusal(Unauthorized, "Forbidden.RAM")]
    assert [bool(each.error) for each in provider(api).observe(()).groups] == [True, False, False]


def test_alicloud_key_without_group_permissions_is_not_tried_on_all_groups() -> None:
    api = world(*([1] * 15))
    api.trouble["instances"] = [refusal(Unauthorized, "Forbidden.RAM")] * 15
    assert all(each.error for each in provider(api).observe(()).groups)
    assert len(api.calls) == 1 + 5


def test_alicloud_silent_api_is_not_called_for_each_group() -> None:
    api = world(*([1] * 15))
    api.trouble["instances"] = [Transient("no answer")] * 15
    assert all(each.error for each in provider(api).observe(()).groups)
    assert len(api.calls) == 1 + 3
    api = world(*([1] * 15))
    api.trouble["instances"] = [Transient("it changes", code="ListMoved")] * 14
    assert [bool(each.error) for each in provider(api).observe(()).groups] == [True] * 14 + [False]


def test_alicloud_undecodable_group_is_reported_and_not_changed() -> None:
    api = world(2, 2)
    names = list(api.all["asg-1"].instances)
    api.all["asg-1"].more["problem"] = "cannot be understood: Expected int"
    first, second = provider(api).observe(()).groups
    assert "cannot be understood" in first.error
    assert second.error == ""
    for outcome in (provider(api).scale_up(grow(2, 3)), provider(api).delete_nodes(remove(2, names[0]))):
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "Unknown"
    assert api.writes() == []


# Failures


def failed_growth(made: int, **more: object) -> FakeAlicloudApi:
    api = world(1, stock=made, **more)
    api.scale("asg-1", "TotalCapacity", 5, token="t", at_once=True, metadata={"outscaler/operation": "grow-1"})
    api.step()
    return api


@each_row("made", [0, 2])
def test_alicloud_each_missing_machine_is_a_placeholder_with_its_error(made: int) -> None:
    group = provider(failed_growth(made)).observe(()).groups[0]
    assert group.target == 5
    missing = [each for each in group.instances if each.error]
    assert [each.id for each in missing] == [f"cn-hangzhou.placeholder-asg-1-{n}" for n in range(4 - made)]
    assert {each.state for each in missing} == {InstanceState.CREATING}
    assert {(each.error.cls, each.error.code) for each in missing if each.error} == {
        ("OutOfStock", "OperationDenied.NoStock")
    }


def test_alicloud_no_placeholder_while_a_machine_may_still_come() -> None:
    api = world(1)
    api.scale("asg-1", "TotalCapacity", 3, token="t", at_once=True, metadata={"outscaler/operation": "grow-1"})
    assert all(each.error is None for each in provider(api).observe(()).groups[0].instances)
    api = world(1)
    api.all["asg-1"].desired = 3  # manually, and nothing has failed yet
    assert all(each.error is None for each in provider(api).observe(()).groups[0].instances)


def test_alicloud_no_placeholder_for_machines_requested_by_the_groups_minimum() -> None:
    api = failed_growth(0, least=1)
    group = api.all["asg-1"]
    group.instances.clear()
    group.least = 4
    assert len([each for each in provider(api).observe(()).groups[0].instances if each.error]) == 1


def test_alicloud_group_without_desired_capacity_has_no_placeholders() -> None:
    api = world(1, desired_mode=False, stock=0)
    api.scale("asg-1", "QuantityChangeInCapacity", 2, token="t", at_once=True, metadata={"outscaler/operation": "g"})
    api.step()
    group = provider(api).observe(()).groups[0]
    assert group.target == 1
    assert all(each.error is None for each in group.instances)


def test_alicloud_unreadable_activities_are_a_gap() -> None:
    api = failed_growth(0)
    api.trouble["activities"] = [Transient("no answer")]
    observed = provider(api).observe(())
    assert len(observed.groups[0].instances) == 1
    assert any("no answer" in gap.detail for gap in observed.gaps)


# Groups with errors


BAD = [
    ({"lifecycle_state": "Deleting"}, "being deleted"),
    ({"lifecycle_state": "Inactive"}, "Inactive"),
    ({"group_type": "ECI"}, "ECI"),
    ({"system_suspended": True}, "suspended by Auto Scaling"),
    ({"suspended_processes": ["ScaleOut"]}, "ScaleOut"),
    ({"launch_template_overrides": [TemplateOverride("ecs.g7.xlarge", 4)]}, "weights"),
]


@each_row(("more", "word"), BAD)
def test_alicloud_disabled_group_reports_why_and_blocks_no_other(more: dict[str, object], word: str) -> None:
    api = world(2, 2)
    api.all["asg-1"].more = more
    bad, good = provider(api).observe(()).groups
    assert word in bad.error
    assert good.error == ""
    assert len(good.instances) == 2


def test_alicloud_deleted_group_is_reported_and_blocks_no_other() -> None:
    api = world(2)
    bad, good = provider(api, "0:5:asg-gone", "0:5:asg-1").observe(()).groups
    assert "no scaling group asg-gone in cn-hangzhou" in bad.error
    assert good.error == ""


def test_alicloud_suspended_scale_in_blocks_only_removals() -> None:
    api = world(2, more={"suspended_processes": ["ScaleIn", "AlarmNotification"]})
    group = provider(api).observe(()).groups[0]
    assert group.error == ""
    assert "ScaleIn" in group.scale_down_held


def test_alicloud_incomplete_instance_list_is_an_error_of_its_group_only() -> None:
    api = world(2, 2)
    api.trouble["instances"] = [Transient("no answer")]
    bad, good = provider(api).observe(()).groups
    assert "no answer" in bad.error
    assert (bad.target, good.error, len(good.instances)) == (2, "", 2)


@each_row("cls", [Throttled, Unauthorized])
def test_alicloud_throttled_or_refused_read_stops_further_calls(cls: type[ProviderError]) -> None:
    api = world(*([1] * 30))
    api.trouble["instances"] = [refusal(cls, "No")]
    groups = provider(api).observe(()).groups
    assert all("No" in group.error for group in groups)
    assert len([call for call in api.calls if call.startswith("instances")]) == 1


@each_row("method", ["groups"])
def test_alicloud_observation_fails_only_if_nothing_can_be_read(method: str) -> None:
    api = world(1)
    api.trouble[method] = [Unauthorized("no")]
    with pytest.raises(Unauthorized):
        provider(api).observe(())


@each_row("method", ["configurations", "instance_types"])
def test_alicloud_unreadable_node_template_is_not_an_error_of_the_group(method: str) -> None:
    api = world(1)
    api.trouble[method] = [Transient("no answer")]
    group = provider(api).observe(()).groups[0]
    assert group.error == ""
    assert group.template is None
    assert "no answer" in group.template_error


# Bounds and options


def test_alicloud_bounds_equal_those_that_ess_enforces_and_a_gap_says_so() -> None:
    api = world(2, least=1, most=5)
    observed = provider(api, "0:10:asg-1").observe(())
    assert (observed.groups[0].min, observed.groups[0].max) == (1, 5)
    assert any("min 0 is 1 there" in gap.detail and "max 10 is 5 there" in gap.detail for gap in observed.gaps)
    assert provider(api, "1:5:asg-1").observe(()).gaps == ()


def test_alicloud_disjoint_bounds_are_an_error_of_the_group() -> None:
    api = world(6, least=6, most=9)
    group = provider(api, "0:5:asg-1").observe(()).groups[0]
    assert "no size in common" in group.error


def test_alicloud_instances_protected_by_users_are_reported() -> None:
    api = world(1)
    name = api.fill("asg-1", 1, "Protected")[0]
    observed = provider(api).observe(())
    assert observed.groups[0].error == ""
    assert any(name in gap.detail for gap in observed.gaps)
    assert [bool(each.held) for each in observed.groups[0].instances] == [False, True]


def test_alicloud_attached_instance_entrusted_to_the_group_may_be_removed() -> None:
    api = world(0)
    for entrusted in (False, True):
        api.fill("asg-1", 1, "InService", creation_type="Attached", entrusted=entrusted)
    assert [bool(each.held) for each in provider(api).observe(()).groups[0].instances] == [True, False]


def test_alicloud_group_options_come_from_its_tags() -> None:
    prefix = "k8s.io/cluster-autoscaler/node-template/autoscaling-options/"
    api = world(
        1,
        more={
            "tags": tags(
                {
                    f"{prefix}scaledownutilizationthreshold": "0.7",
                    f"{prefix}scaledownunneededtime": "5m",
                    f"{prefix}ignoredaemonsetsutilization": "True",
                    f"{prefix}scaledownunreadytime": "soon",
                    f"{prefix}neverheardof": "1",
                }
            )
        },
    )
    observed = provider(api).observe(())
    options = observed.groups[0].options
    assert (options.scale_down_utilization_threshold, options.scale_down_unneeded_time) == (0.7, 300.0)
    assert options.ignore_daemonsets_utilization is True
    assert options.scale_down_unready_time is None
    assert any("soon" in gap.detail for gap in observed.gaps)


def test_alicloud_observation_survives_arbitrary_vendor_answers() -> None:
    api = world(2)
    found = api.all["asg-1"].instances
    first = next(iter(found))
    found["again"] = found[first]
    found[""] = msgspec.structs.replace(found[first], instance_id="")
    api.all["asg-1"].more = {"desired_capacity": 10**9, "suspended_processes": None, "v_switch_ids": None}
    group = provider(api).observe(()).groups[0]
    assert len({each.id for each in group.instances}) == len(group.instances) == 2
