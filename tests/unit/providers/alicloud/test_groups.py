"""What is observed of scaling groups: sizes, states, failures, and one bad group that stops no other."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.group import InstanceState
from chalicelib.model.outcome import Failed
from chalicelib.providers.alicloud.models import TemplateOverride
from chalicelib.providers.alicloud.pagination import MOVED
from chalicelib.providers.errors import ProviderError, Throttled, Transient, Unauthorized
from tests.cases import each_row
from tests.unit.providers.alicloud.fake_api import FakeApi, FakeApiGroup, grow, node, provider, refusal, remove, tags


def world(*sizes: int, **more: object) -> FakeApi:
    groups = [FakeApiGroup(f"asg-{number}", **more) for number, _ in enumerate(sizes, 1)]  # type: ignore[arg-type]
    api = FakeApi(*groups)
    for group, size in zip(groups, sizes, strict=True):
        api.fill(group.id, size)
    return api


def test_states_of_instances() -> None:
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


def test_ALI_DEFECT_11_leaving_and_stopped_instances_are_no_part_of_the_size() -> None:
    api = world(2, desired_mode=False)
    api.fill("asg-1", 1, "Removing")
    api.fill("asg-1", 1, "Stopped")
    group = provider(api).observe(()).groups[0]
    assert group.target == 2
    assert [each.state for each in group.instances] == [InstanceState.RUNNING] * 2 + [InstanceState.DELETING]


@each_row("scheme", ["", "alicloud://"])
def test_ALI_6_ALI_DEFECT_10_instances_are_matched_and_spelled_as_the_nodes_are(scheme: str) -> None:
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


def test_ALI_DEFECT_9_an_instance_that_was_missed_once_is_found_in_the_next_pass() -> None:
    api = world(1)
    ours = provider(api)
    hidden = api.all["asg-1"].instances
    api.all["asg-1"].instances = {}
    late = node("a", f"cn-hangzhou.{next(iter(hidden))}")
    assert ours.observe([late]).groups[0].instances == ()
    api.all["asg-1"].instances = hidden
    assert ours.observe([late]).groups[0].instances[0].node == "a"


def test_a_node_whose_life_cycle_hook_is_still_open_is_running() -> None:
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
def test_ALI_DEFECT_14_a_quiet_pass_costs_one_call_per_twenty_groups_and_one_per_fifty_instances(
    groups: int, calls: int
) -> None:
    api = world(*([3] * (groups - 1)), 137, most=200)
    found = provider(api).observe(()).groups
    assert [len(each.instances) for each in found] == [3] * (groups - 1) + [137]
    assert len(api.calls) == calls


def test_ALI_DEFECT_14_one_list_is_believed_only_of_groups_that_count_as_many() -> None:
    api = world(*([2] * 30))
    api.all["asg-1"].more = {"total_capacity": 3}
    api.fill("asg-2", 1, "Stopped")
    found = {each.id: len(each.instances) for each in provider(api).observe(()).groups}
    assert found == dict.fromkeys(found, 2), "stopped ones are left out, and nobody is lost"
    assert [call for call in api.calls if call.startswith("instances asg")] == ["instances asg-1"]


def test_ALI_DEFECT_14_in_an_account_of_others_each_group_is_asked_for() -> None:
    api = world(*([1] * 30))
    api.all["asg-other"] = FakeApiGroup("asg-other", most=2000)
    api.fill("asg-other", 2000)
    found = provider(api, *(f"0:5:asg-{number + 1}" for number in range(30))).observe(()).groups
    assert [len(each.instances) for each in found] == [1] * 30
    assert len([call for call in api.calls if call.startswith("instances asg")]) == 30


@each_row("error", [Transient("moved", code=MOVED), Unauthorized("no", code="Forbidden.RAM")])
def test_one_list_that_cannot_be_had_costs_no_group(error: ProviderError) -> None:
    api = world(*([1] * 30))
    api.trouble["instances"] = [error]
    found = provider(api).observe(()).groups
    assert [(each.error, len(each.instances)) for each in found] == [("", 1)] * 30


def test_ALI_15_twenty_groups_that_cannot_be_read_stop_none_of_the_others() -> None:
    api = world(*([1] * 45))
    api.trouble["groups"] = [Transient("no answer")]
    found = provider(api).observe(()).groups
    assert [bool(each.error) for each in found] == [True] * 20 + [False] * 25
    assert "could not be read: Transient: no answer" in found[0].error
    api.trouble["groups"] = [Transient("no answer")] * 3
    with pytest.raises(Transient):
        provider(api).observe(())


@each_row("error", [Throttled("slow down"), Unauthorized("refused")])
def test_who_is_refused_does_not_ask_for_the_next_twenty_groups(error: ProviderError) -> None:
    api = world(*([1] * 45))
    api.trouble["groups"] = [error] * 3
    with pytest.raises(type(error)):
        provider(api).observe(())
    assert api.calls == ["groups 20"]


def test_a_group_that_the_key_may_not_read_hides_none_of_the_others() -> None:
    """RAM gives permissions by scaling group, too."""
    api = world(1, 1, 1)
    api.trouble["instances"] = [refusal(Unauthorized, "Forbidden.RAM")]
    assert [bool(each.error) for each in provider(api).observe(()).groups] == [True, False, False]


def test_a_key_that_may_read_no_group_is_not_tried_on_all_of_them() -> None:
    api = world(*([1] * 15))
    api.trouble["instances"] = [refusal(Unauthorized, "Forbidden.RAM")] * 15
    assert all(each.error for each in provider(api).observe(()).groups)
    assert len(api.calls) == 1 + 5


def test_an_api_that_answers_nobody_is_not_asked_for_each_group() -> None:
    api = world(*([1] * 15))
    api.trouble["instances"] = [Transient("no answer")] * 15
    assert all(each.error for each in provider(api).observe(()).groups)
    assert len(api.calls) == 1 + 3
    api = world(*([1] * 15))
    api.trouble["instances"] = [Transient("it changes", code="ListMoved")] * 14
    assert [bool(each.error) for each in provider(api).observe(()).groups] == [True] * 14 + [False]


def test_a_group_that_cannot_be_understood_says_so_and_is_not_touched() -> None:
    api = world(2, 2)
    names = list(api.all["asg-1"].instances)
    api.all["asg-1"].more["problem"] = "cannot be understood: Expected int"
    first, second = provider(api).observe(()).groups
    assert "cannot be understood" in first.error
    assert second.error == ""
    for outcome in (provider(api).grow(grow(2, 3)), provider(api).remove(remove(2, names[0]))):
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "Unknown"
    assert api.writes() == []


# Failures


def failed_growth(made: int, **more: object) -> FakeApi:
    api = world(1, stock=made, **more)
    api.scale("asg-1", "TotalCapacity", 5, token="t", at_once=True, metadata={"outscaler/operation": "grow-1"})
    api.step()
    return api


@each_row("made", [0, 2])
def test_ALI_11_ALI_DEFECT_7_each_missing_machine_is_a_placeholder_with_its_error(made: int) -> None:
    group = provider(failed_growth(made)).observe(()).groups[0]
    assert group.target == 5
    missing = [each for each in group.instances if each.error]
    assert [each.id for each in missing] == [f"cn-hangzhou.placeholder-asg-1-{n}" for n in range(4 - made)]
    assert {each.state for each in missing} == {InstanceState.CREATING}
    assert {(each.error.cls, each.error.code) for each in missing if each.error} == {
        ("OutOfStock", "OperationDenied.NoStock")
    }


def test_no_placeholders_while_it_may_still_come_or_where_nobody_asked_for_it() -> None:
    api = world(1)
    api.scale("asg-1", "TotalCapacity", 3, token="t", at_once=True, metadata={"outscaler/operation": "grow-1"})
    assert all(each.error is None for each in provider(api).observe(()).groups[0].instances)
    api = world(1)
    api.all["asg-1"].desired = 3  # by hand, and nothing has failed yet
    assert all(each.error is None for each in provider(api).observe(()).groups[0].instances)


def test_no_placeholder_for_what_the_groups_own_minimum_keeps_asking_for() -> None:
    api = failed_growth(0, least=1)
    group = api.all["asg-1"]
    group.instances.clear()
    group.least = 4
    assert len([each for each in provider(api).observe(()).groups[0].instances if each.error]) == 1


def test_a_group_without_desired_capacity_has_no_placeholders() -> None:
    api = world(1, desired_mode=False, stock=0)
    api.scale("asg-1", "QuantityChangeInCapacity", 2, token="t", at_once=True, metadata={"outscaler/operation": "g"})
    api.step()
    group = provider(api).observe(()).groups[0]
    assert group.target == 1
    assert all(each.error is None for each in group.instances)


def test_activities_that_cannot_be_read_are_a_gap() -> None:
    api = failed_growth(0)
    api.trouble["activities"] = [Transient("no answer")]
    observed = provider(api).observe(())
    assert len(observed.groups[0].instances) == 1
    assert any("no answer" in gap.detail for gap in observed.gaps)


# Bad groups


BAD = [
    ({"lifecycle_state": "Deleting"}, "being deleted"),
    ({"lifecycle_state": "Inactive"}, "Inactive"),
    ({"group_type": "ECI"}, "ECI"),
    ({"system_suspended": True}, "suspended by Auto Scaling"),
    ({"suspended_processes": ["ScaleOut"]}, "ScaleOut"),
    ({"launch_template_overrides": [TemplateOverride("ecs.g7.xlarge", 4)]}, "weights"),
]


@each_row(("more", "word"), BAD)
def test_ALI_15_a_group_that_is_off_says_why_and_stops_no_other(more: dict[str, object], word: str) -> None:
    api = world(2, 2)
    api.all["asg-1"].more = more
    bad, good = provider(api).observe(()).groups
    assert word in bad.error
    assert good.error == ""
    assert len(good.instances) == 2


def test_ALI_15_a_group_that_is_gone_says_so_and_stops_no_other() -> None:
    api = world(2)
    bad, good = provider(api, "0:5:asg-gone", "0:5:asg-1").observe(()).groups
    assert "no scaling group asg-gone in cn-hangzhou" in bad.error
    assert good.error == ""


def test_a_suspended_scale_in_holds_removals_only() -> None:
    api = world(2, more={"suspended_processes": ["ScaleIn", "AlarmNotification"]})
    group = provider(api).observe(()).groups[0]
    assert group.error == ""
    assert "ScaleIn" in group.scale_down_held


def test_ALI_7_instances_that_cannot_be_read_whole_are_that_groups_error_only() -> None:
    api = world(2, 2)
    api.trouble["instances"] = [Transient("no answer")]
    bad, good = provider(api).observe(()).groups
    assert "no answer" in bad.error
    assert (bad.target, good.error, len(good.instances)) == (2, "", 2)


@each_row("cls", [Throttled, Unauthorized])
def test_who_is_throttled_or_refused_does_not_ask_on(cls: type[ProviderError]) -> None:
    api = world(*([1] * 30))
    api.trouble["instances"] = [refusal(cls, "No")]
    groups = provider(api).observe(()).groups
    assert all("No" in group.error for group in groups)
    assert len([call for call in api.calls if call.startswith("instances")]) == 1


@each_row("method", ["groups"])
def test_only_where_nothing_can_be_read_is_it_an_error(method: str) -> None:
    api = world(1)
    api.trouble[method] = [Unauthorized("no")]
    with pytest.raises(Unauthorized):
        provider(api).observe(())


@each_row("method", ["configurations", "instance_types"])
def test_a_template_that_cannot_be_read_is_no_error_of_the_group(method: str) -> None:
    api = world(1)
    api.trouble[method] = [Transient("no answer")]
    group = provider(api).observe(()).groups[0]
    assert group.error == ""
    assert group.template is None
    assert "no answer" in group.template_error


# Bounds and options


def test_ALI_DEFECT_17_bounds_are_those_that_ess_will_keep_and_a_gap_says_so() -> None:
    api = world(2, least=1, most=5)
    observed = provider(api, "0:10:asg-1").observe(())
    assert (observed.groups[0].min, observed.groups[0].max) == (1, 5)
    assert any("min 0 is 1 there" in gap.detail and "max 10 is 5 there" in gap.detail for gap in observed.gaps)
    assert provider(api, "1:5:asg-1").observe(()).gaps == ()


def test_bounds_without_a_size_in_common_are_an_error_of_the_group() -> None:
    api = world(6, least=6, most=9)
    group = provider(api, "0:5:asg-1").observe(()).groups[0]
    assert "no size in common" in group.error


def test_instances_that_a_person_keeps_are_told() -> None:
    api = world(1)
    name = api.fill("asg-1", 1, "Protected")[0]
    observed = provider(api).observe(())
    assert observed.groups[0].error == ""
    assert any(name in gap.detail for gap in observed.gaps)
    assert [bool(each.held) for each in observed.groups[0].instances] == [False, True]


def test_an_attached_instance_that_is_entrusted_to_the_group_may_go() -> None:
    api = world(0)
    for entrusted in (False, True):
        api.fill("asg-1", 1, "InService", creation_type="Attached", entrusted=entrusted)
    assert [bool(each.held) for each in provider(api).observe(()).groups[0].instances] == [True, False]


def test_options_of_a_group_come_from_its_tags() -> None:
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


def test_rubbish_from_the_vendor_is_no_crash() -> None:
    api = world(2)
    found = api.all["asg-1"].instances
    first = next(iter(found))
    found["again"] = found[first]
    found[""] = msgspec.structs.replace(found[first], instance_id="")
    api.all["asg-1"].more = {"desired_capacity": 10**9, "suspended_processes": None, "v_switch_ids": None}
    group = provider(api).observe(()).groups[0]
    assert len({each.id for each in group.instances}) == len(group.instances) == 2
