"""Sizes at ESS: asked for once, followed to the end, and never more than was planned (alicloud.md §3.4, §5)."""

from __future__ import annotations

import pytest

from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.errors import Conflict, Throttled, Transient
from tests.cases import each_row
from tests.unit.providers.alicloud.fake_api import (
    FakeApi,
    FakeApiGroup,
    continued,
    grow,
    operation,
    provider,
    refusal,
)

MODES = pytest.mark.parametrize("desired", [True, False], ids=["desired", "plain"])


def world(size: int, *, desired: bool = True, **more: object) -> FakeApi:
    api = FakeApi(FakeApiGroup("asg-1", desired_mode=desired, **more))  # type: ignore[arg-type]
    api.fill("asg-1", size)
    return api


@MODES
def test_ALI_8_a_growth_is_one_call_and_its_activity_is_followed(desired: bool) -> None:
    api = world(2, desired=desired)
    asked = grow(2, 5)
    outcome = provider(api).grow(asked)
    assert api.writes() == [
        "scale asg-1 TotalCapacity 5 now" if desired else "scale asg-1 QuantityChangeInCapacity 3 later"
    ]
    later = continued(asked, outcome)
    running = provider(api).poll(later)
    assert isinstance(running, InProgress)
    assert running.after > 0
    api.step()
    done = provider(api).poll(continued(later, running))
    assert isinstance(done, Succeeded)
    assert done.facts["created"] == 3
    assert len(api.all["asg-1"].living()) == 5


@MODES
def test_ALI_9_ALI_DEFECT_6_a_lost_answer_is_asked_for_again_with_the_same_token(desired: bool) -> None:
    api = world(0, desired=desired)
    api.lost.add("scale")
    with pytest.raises(Transient):
        provider(api).grow(grow(0, 4))
    again = provider(api).grow(grow(0, 4))
    api.step()
    assert isinstance(provider(api).poll(continued(grow(0, 4), again)), Succeeded)
    assert api.made == {"asg-1": 4}
    assert len(api.writes()) == 1  # the second call found the activity of the first


@MODES
def test_ALI_17_two_cold_starts_in_mid_activity_make_no_second_growth(desired: bool) -> None:
    api = world(1, desired=desired)
    for _ in range(3):
        assert isinstance(provider(api).grow(grow(1, 3)), InProgress)
    api.step()
    for _ in range(2):
        assert isinstance(provider(api).grow(grow(1, 3)), Succeeded)
    assert api.made == {"asg-1": 2}


def test_ALI_9_the_token_alone_holds_where_the_activity_is_not_listed_yet() -> None:
    api = world(1, desired=False)
    first = provider(api).grow(grow(1, 3))
    hidden, api.all["asg-1"].activities = api.all["asg-1"].activities, []
    second = provider(api).grow(grow(1, 3))
    assert first == second
    api.all["asg-1"].activities = hidden
    api.step()
    assert api.made == {"asg-1": 2}


@MODES
def test_a_target_that_is_somebody_elses_is_left_alone(desired: bool) -> None:
    api = world(4, desired=desired)
    outcome = provider(api).grow(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert api.writes() == []


def test_a_target_that_is_there_already_is_done() -> None:
    api = world(5)
    assert isinstance(provider(api).grow(grow(2, 5)), Succeeded)
    assert api.writes() == []


def test_past_the_policys_maximum_is_refused_before_any_call() -> None:
    api = world(2)
    outcome = provider(api, "0:4:asg-1").grow(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert api.calls == []


def test_ALI_DEFECT_17_past_the_groups_own_maximum_is_refused_where_ess_would_clamp() -> None:
    api = world(2, most=3)
    outcome = provider(api).grow(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert "MaxSize 3" in outcome.message
    assert api.writes() == []


def test_ALI_DEFECT_17_a_maximum_lowered_meanwhile_is_told_and_not_waited_for() -> None:
    api = world(2, desired=False)
    asked = grow(2, 6)
    outcome = provider(api).grow(asked)
    group = api.all["asg-1"]
    group.most = group.stock = 4
    group.stock = 2
    api.step()
    group.activities[0] = type(group.activities[0])(
        "asa-x", status_code="Successful", created_capacity=2, activity_metadata=group.activities[0].activity_metadata
    )
    found = provider(api).grow(continued(asked, outcome))
    assert isinstance(found, Failed)
    assert found.facts["created"] == 2
    assert "MaxSize" in found.message


def test_ALI_DEFECT_4_waiting_instances_count_so_that_a_growth_never_shrinks() -> None:
    api = world(1, desired=False, wait_hook=True)
    api.fill("asg-1", 2, "Pending:Wait")
    api.fill("asg-1", 1, "Protected")
    api.fill("asg-1", 1, "Standby")
    observed = provider(api).observe(()).groups[0]
    assert observed.target == 5
    asked = grow(observed.target, 6)
    outcome = provider(api).grow(asked)
    assert isinstance(outcome, InProgress)
    api.step()
    assert isinstance(provider(api).poll(continued(asked, outcome)), Succeeded)
    assert len(api.all["asg-1"].living()) == 6
    assert api.scaled_in == []


def test_ALI_DEFECT_4_a_group_that_ess_still_shrinks_is_not_told_a_size_below_what_exists() -> None:
    api = world(5)
    api.all["asg-1"].desired = 2
    with pytest.raises(Conflict):
        provider(api).grow(grow(2, 3))
    assert api.writes() == []


def test_ALI_DEFECT_5_the_desired_capacity_is_the_target_while_ess_lags() -> None:
    api = world(0)
    provider(api).grow(grow(0, 3))
    observed = provider(api).observe(()).groups[0]  # not one instance is listed yet
    assert observed.target == 3
    assert observed.instances == ()
    assert isinstance(provider(api).grow(grow(0, 3, plan="another")), Succeeded)
    assert len(api.writes()) == 1


def test_ALI_10_ALI_DEFECT_8_a_busy_group_is_to_be_asked_again_and_has_not_failed() -> None:
    api = world(2)
    api.trouble["scale"] = [refusal(Conflict, "ScalingActivityInProgress")]
    with pytest.raises(Conflict) as caught:
        provider(api).grow(grow(2, 3))
    assert caught.value.code == "ScalingActivityInProgress"
    assert isinstance(provider(api).grow(grow(2, 3)), InProgress)


def test_ALI_10_a_throttled_growth_is_to_be_asked_again() -> None:
    api = world(2)
    api.trouble["scale"] = [Throttled("slow down", code="Throttling.User", retry_after=3.0)]
    with pytest.raises(Throttled):
        provider(api).grow(grow(2, 3))


@pytest.mark.parametrize(("made", "status"), [(0, "Failed"), (2, "Warning")])
@MODES
def test_ALI_11_ALI_DEFECT_7_no_stock_is_seen_by_the_poll_with_what_was_made(
    desired: bool, made: int, status: str
) -> None:
    api = world(1, desired=desired, stock=made)
    asked = grow(1, 5)
    outcome = provider(api).grow(asked)
    api.step()
    assert api.all["asg-1"].activities[-1].status_code == status
    found = provider(api).poll(continued(asked, outcome))
    assert isinstance(found, Failed)
    assert (found.error_class, found.code, found.facts["created"]) == ("OutOfStock", "OperationDenied.NoStock", made)


def test_a_quota_is_another_class_than_no_stock() -> None:
    api = world(0, stock=0, code="QuotaExceed.ElasticQuota")
    outcome = provider(api).grow(grow(0, 1))
    api.step()
    found = provider(api).poll(continued(grow(0, 1), outcome))
    assert isinstance(found, Failed)
    assert found.error_class == "QuotaExceeded"


@each_row("size", [3, 2])
def test_nothing_to_change_is_looked_into(size: int) -> None:
    api = world(2)
    api.trouble["scale"] = [refusal(Conflict, "IncorrectCapacity.NoChange")]
    group = api.all["asg-1"]
    whole = api.groups

    def moved(ids: list[str]) -> object:
        found = whole(ids)
        group.desired = size  # somebody set it between our two reads, or nobody did
        return found

    api.groups = moved  # type: ignore[method-assign,assignment]
    if size == 3:
        assert isinstance(provider(api).grow(grow(2, 3)), Succeeded)
    else:
        with pytest.raises(Conflict):
            provider(api).grow(grow(2, 3))


def test_polls_come_less_often_and_end_after_ten_minutes() -> None:
    api = world(0)
    asked = grow(0, 1)
    outcome = provider(api).grow(asked)
    waits = []
    while isinstance(outcome, InProgress):
        waits.append(outcome.after)
        outcome = provider(api).poll(continued(asked, outcome))
    assert isinstance(outcome, Succeeded)
    assert waits[:4] == [5.0, 5.0, 10.0, 20.0]
    assert max(waits) == 30.0
    assert 600 <= sum(waits) <= 640


def test_an_activity_that_is_not_listed_yet_is_waited_for_and_rubbish_in_the_data_is_no_end() -> None:
    api = world(0)
    outcome = provider(api).grow(grow(0, 1))
    hidden, api.all["asg-1"].activities = api.all["asg-1"].activities, []
    later = continued(grow(0, 1), outcome)
    later.status.data["polls"] = "many"
    waiting = provider(api).poll(later)
    assert isinstance(waiting, InProgress)
    api.all["asg-1"].activities = hidden
    api.step()
    assert isinstance(provider(api).poll(continued(later, waiting)), Succeeded)


@each_row("state", ["Inactive", "Deleting"])
def test_ALI_15_a_group_that_is_off_is_not_grown(state: str) -> None:
    api = world(1, more={"lifecycle_state": state})
    outcome = provider(api).grow(grow(1, 2))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert api.writes() == []


def test_ALI_15_a_group_that_is_gone_is_not_found() -> None:
    api = world(1)
    del api.all["asg-1"]
    outcome = provider(api, "0:5:asg-1").grow(grow(1, 2))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "NotFound"


def test_a_group_that_the_policy_does_not_name_is_never_touched() -> None:
    api = FakeApi(FakeApiGroup("asg-1"), FakeApiGroup("asg-theirs"))
    found = provider(api, "0:5:asg-1")
    for outcome in (
        found.grow(grow(0, 1, group="asg-theirs")),
        found.shrink_target(operation(OperationKind.DECREASE_TARGET, "asg-theirs", 2, 1)),
    ):
        assert isinstance(outcome, Failed)
    assert api.calls == []


SHRINKS = [(3, 3, "Done"), (4, 4, "Done"), (5, 5, "Done"), (2, 5, "InvalidRequest")]


@each_row(("to_size", "left", "expected"), SHRINKS)
def test_ALI_13_an_unfulfilled_target_is_lowered_and_no_instance_is_lost(
    to_size: int, left: int, expected: str
) -> None:
    api = world(3)
    api.all["asg-1"].desired = 5
    asked = operation(OperationKind.DECREASE_TARGET, "asg-1", 5, to_size)
    for _ in range(2):
        outcome = provider(api).shrink_target(asked)
        assert (outcome.error_class if isinstance(outcome, Failed) else type(outcome).__name__) == expected
    api.step()
    assert api.all["asg-1"].desired == left
    assert len(api.all["asg-1"].living()) == 3
    assert len(api.writes()) <= 1


def test_ALI_DEFECT_11_leaving_instances_do_not_hold_a_target_up() -> None:
    api = world(1)
    api.fill("asg-1", 1, "Removing")
    api.all["asg-1"].desired = 2
    assert isinstance(provider(api).shrink_target(operation(OperationKind.DECREASE_TARGET, "asg-1", 2, 1)), Succeeded)


def test_a_target_is_not_lowered_while_an_activity_runs_that_may_fill_it() -> None:
    api = world(1)
    provider(api).grow(grow(1, 3))
    with pytest.raises(Conflict):
        provider(api).shrink_target(operation(OperationKind.DECREASE_TARGET, "asg-1", 3, 1))
    assert len(api.writes()) == 1


def test_ALI_13_a_group_without_desired_capacity_has_nothing_to_lower() -> None:
    api = world(3, desired=False)
    assert isinstance(provider(api).shrink_target(operation(OperationKind.DECREASE_TARGET, "asg-1", 5, 3)), Succeeded)
    refused = provider(api).shrink_target(operation(OperationKind.DECREASE_TARGET, "asg-1", 3, 2))
    assert isinstance(refused, Failed)
    assert refused.error_class == "InvalidRequest"
    assert api.writes() == []


def test_a_target_is_not_lowered_below_the_groups_own_minimum() -> None:
    api = world(0, least=2)
    api.all["asg-1"].desired = 3
    outcome = provider(api).shrink_target(operation(OperationKind.DECREASE_TARGET, "asg-1", 3, 1))
    assert isinstance(outcome, Failed)
    assert "MinSize 2" in outcome.message
