"""Resizing at ESS: requested once, followed to the end, and never beyond the plan."""

from __future__ import annotations

import pytest

from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.errors import Conflict, Throttled, Transient
from tests.cases import each_row
from tests.unit.providers.alicloud.fake_api import (
    FakeAlicloudApi,
    FakeApiGroup,
    continued,
    grow,
    operation,
    provider,
    refusal,
)

MODES = pytest.mark.parametrize("desired", [True, False], ids=["desired", "plain"])


def world(size: int, *, desired: bool = True, **more: object) -> FakeAlicloudApi:
    api = FakeAlicloudApi(FakeApiGroup("asg-1", desired_mode=desired, **more))  # type: ignore[arg-type]
    api.fill("asg-1", size)
    return api


@MODES
def test_alicloud_scale_up_is_one_call_whose_activity_is_polled(desired: bool) -> None:
    api = world(2, desired=desired)
    asked = grow(2, 5)
    outcome = provider(api).scale_up(asked)
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
def test_alicloud_scale_up_with_a_lost_answer_is_retried_with_the_same_token(desired: bool) -> None:
    api = world(0, desired=desired)
    api.lost.add("scale")
    with pytest.raises(Transient):
        provider(api).scale_up(grow(0, 4))
    again = provider(api).scale_up(grow(0, 4))
    api.step()
    assert isinstance(provider(api).poll(continued(grow(0, 4), again)), Succeeded)
    assert api.made == {"asg-1": 4}
    assert len(api.writes()) == 1  # the second call found the activity of the first


@MODES
def test_alicloud_cold_starts_during_an_activity_make_no_second_scale_up(desired: bool) -> None:
    api = world(1, desired=desired)
    for _ in range(3):
        assert isinstance(provider(api).scale_up(grow(1, 3)), InProgress)
    api.step()
    for _ in range(2):
        assert isinstance(provider(api).scale_up(grow(1, 3)), Succeeded)
    assert api.made == {"asg-1": 2}


def test_alicloud_token_alone_prevents_duplicates_before_the_activity_is_listed() -> None:
    api = world(1, desired=False)
    first = provider(api).scale_up(grow(1, 3))
    hidden, api.all["asg-1"].activities = api.all["asg-1"].activities, []
    second = provider(api).scale_up(grow(1, 3))
    assert first == second
    api.all["asg-1"].activities = hidden
    api.step()
    assert api.made == {"asg-1": 2}


@MODES
def test_alicloud_scale_up_leaves_a_target_changed_by_others(desired: bool) -> None:
    api = world(4, desired=desired)
    outcome = provider(api).scale_up(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert api.writes() == []


def test_alicloud_scale_up_with_the_target_already_reached_is_done() -> None:
    api = world(5)
    assert isinstance(provider(api).scale_up(grow(2, 5)), Succeeded)
    assert api.writes() == []


def test_alicloud_scale_up_past_the_policys_maximum_is_refused_before_any_call() -> None:
    api = world(2)
    outcome = provider(api, "0:4:asg-1").scale_up(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert api.calls == []


def test_alicloud_scale_up_past_the_groups_maximum_is_refused_and_not_clamped() -> None:
    api = world(2, most=3)
    outcome = provider(api).scale_up(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert "MaxSize 3" in outcome.message
    assert api.writes() == []


def test_alicloud_scale_up_reports_a_maximum_lowered_meanwhile_without_waiting() -> None:
    api = world(2, desired=False)
    asked = grow(2, 6)
    outcome = provider(api).scale_up(asked)
    group = api.all["asg-1"]
    group.most = group.stock = 4
    group.stock = 2
    api.step()
    group.activities[0] = type(group.activities[0])(
        "asa-x", status_code="Successful", created_capacity=2, activity_metadata=group.activities[0].activity_metadata
    )
    found = provider(api).scale_up(continued(asked, outcome))
    assert isinstance(found, Failed)
    assert found.facts["created"] == 2
    assert "MaxSize" in found.message


def test_alicloud_scale_up_counts_waiting_instances_and_never_lowers_the_size() -> None:
    api = world(1, desired=False, wait_hook=True)
    api.fill("asg-1", 2, "Pending:Wait")
    api.fill("asg-1", 1, "Protected")
    api.fill("asg-1", 1, "Standby")
    observed = provider(api).observe(()).groups[0]
    assert observed.target == 5
    asked = grow(observed.target, 6)
    outcome = provider(api).scale_up(asked)
    assert isinstance(outcome, InProgress)
    api.step()
    assert isinstance(provider(api).poll(continued(asked, outcome)), Succeeded)
    assert len(api.all["asg-1"].living()) == 6
    assert api.scaled_in == []


def test_alicloud_group_still_shrinking_gets_no_size_below_its_instances() -> None:
    api = world(5)
    api.all["asg-1"].desired = 2
    with pytest.raises(Conflict):
        provider(api).scale_up(grow(2, 3))
    assert api.writes() == []


def test_alicloud_desired_capacity_is_the_target_while_ess_lags() -> None:
    api = world(0)
    provider(api).scale_up(grow(0, 3))
    observed = provider(api).observe(()).groups[0]  # no instance is listed yet
    assert observed.target == 3
    assert observed.instances == ()
    assert isinstance(provider(api).scale_up(grow(0, 3, plan="another")), Succeeded)
    assert len(api.writes()) == 1


def test_alicloud_scale_up_of_a_busy_group_is_retried_and_not_failed() -> None:
    api = world(2)
    api.trouble["scale"] = [refusal(Conflict, "ScalingActivityInProgress")]
    with pytest.raises(Conflict) as caught:
        provider(api).scale_up(grow(2, 3))
    assert caught.value.code == "ScalingActivityInProgress"
    assert isinstance(provider(api).scale_up(grow(2, 3)), InProgress)


def test_alicloud_throttled_scale_up_is_retried() -> None:
    api = world(2)
    api.trouble["scale"] = [Throttled("slow down", code="Throttling.User", retry_after=3.0)]
    with pytest.raises(Throttled):
        provider(api).scale_up(grow(2, 3))


@pytest.mark.parametrize(("made", "status"), [(0, "Failed"), (2, "Warning")])
@MODES
def test_alicloud_scale_up_poll_reports_a_stockout_with_the_created_instances(
    desired: bool, made: int, status: str
) -> None:
    api = world(1, desired=desired, stock=made)
    asked = grow(1, 5)
    outcome = provider(api).scale_up(asked)
    api.step()
    assert api.all["asg-1"].activities[-1].status_code == status
    found = provider(api).poll(continued(asked, outcome))
    assert isinstance(found, Failed)
    assert (found.error_class, found.code, found.facts["created"]) == ("OutOfStock", "OperationDenied.NoStock", made)


def test_alicloud_quota_and_stockout_have_different_classes() -> None:
    api = world(0, stock=0, code="QuotaExceed.ElasticQuota")
    outcome = provider(api).scale_up(grow(0, 1))
    api.step()
    found = provider(api).poll(continued(grow(0, 1), outcome))
    assert isinstance(found, Failed)
    assert found.error_class == "QuotaExceeded"


@each_row("size", [3, 2])
def test_alicloud_scale_up_without_effect_is_investigated(size: int) -> None:
    api = world(2)
    api.trouble["scale"] = [refusal(Conflict, "IncorrectCapacity.NoChange")]
    group = api.all["asg-1"]
    whole = api.groups

    def moved(ids: list[str]) -> object:
        found = whole(ids)
        group.desired = size  # another writer set it between our two reads, or nothing was changed
        return found

    api.groups = moved  # type: ignore[method-assign,assignment]
    if size == 3:
        assert isinstance(provider(api).scale_up(grow(2, 3)), Succeeded)
    else:
        with pytest.raises(Conflict):
            provider(api).scale_up(grow(2, 3))


def test_alicloud_scale_up_polls_become_rarer_and_end_after_ten_minutes() -> None:
    api = world(0)
    asked = grow(0, 1)
    outcome = provider(api).scale_up(asked)
    waits = []
    while isinstance(outcome, InProgress):
        waits.append(outcome.after)
        outcome = provider(api).poll(continued(asked, outcome))
    assert isinstance(outcome, Succeeded)
    assert waits[:4] == [5.0, 5.0, 10.0, 20.0]
    assert max(waits) == 30.0
    assert 600 <= sum(waits) <= 640


def test_alicloud_scale_up_waits_for_its_activity_despite_invalid_data() -> None:
    api = world(0)
    outcome = provider(api).scale_up(grow(0, 1))
    hidden, api.all["asg-1"].activities = api.all["asg-1"].activities, []
    later = continued(grow(0, 1), outcome)
    later.status.data["polls"] = "many"
    waiting = provider(api).poll(later)
    assert isinstance(waiting, InProgress)
    api.all["asg-1"].activities = hidden
    api.step()
    assert isinstance(provider(api).poll(continued(later, waiting)), Succeeded)


@each_row("state", ["Inactive", "Deleting"])
def test_alicloud_disabled_group_is_not_scaled_up(state: str) -> None:
    api = world(1, more={"lifecycle_state": state})
    outcome = provider(api).scale_up(grow(1, 2))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert api.writes() == []


def test_alicloud_deleted_group_is_not_found() -> None:
    api = world(1)
    del api.all["asg-1"]
    outcome = provider(api, "0:5:asg-1").scale_up(grow(1, 2))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "NotFound"


def test_alicloud_group_outside_the_policy_is_never_changed() -> None:
    api = FakeAlicloudApi(FakeApiGroup("asg-1"), FakeApiGroup("asg-theirs"))
    found = provider(api, "0:5:asg-1")
    for outcome in (
        found.scale_up(grow(0, 1, group="asg-theirs")),
        found.decrease_target(operation(OperationKind.DECREASE_TARGET, "asg-theirs", 2, 1)),
    ):
        assert isinstance(outcome, Failed)
    assert api.calls == []


SHRINKS = [(3, 3, "Succeeded"), (4, 4, "Succeeded"), (5, 5, "Succeeded"), (2, 5, "InvalidRequest")]


@each_row(("to_size", "left", "expected"), SHRINKS)
def test_alicloud_decrease_target_lowers_an_unfulfilled_one_without_loss(
    to_size: int, left: int, expected: str
) -> None:
    api = world(3)
    api.all["asg-1"].desired = 5
    asked = operation(OperationKind.DECREASE_TARGET, "asg-1", 5, to_size)
    for _ in range(2):
        outcome = provider(api).decrease_target(asked)
        assert (outcome.error_class if isinstance(outcome, Failed) else type(outcome).__name__) == expected
    api.step()
    assert api.all["asg-1"].desired == left
    assert len(api.all["asg-1"].living()) == 3
    assert len(api.writes()) <= 1


def test_alicloud_decrease_target_ignores_leaving_instances() -> None:
    api = world(1)
    api.fill("asg-1", 1, "Removing")
    api.all["asg-1"].desired = 2
    assert isinstance(provider(api).decrease_target(operation(OperationKind.DECREASE_TARGET, "asg-1", 2, 1)), Succeeded)


def test_alicloud_decrease_target_waits_for_an_activity_that_may_fulfil_it() -> None:
    api = world(1)
    provider(api).scale_up(grow(1, 3))
    with pytest.raises(Conflict):
        provider(api).decrease_target(operation(OperationKind.DECREASE_TARGET, "asg-1", 3, 1))
    assert len(api.writes()) == 1


def test_alicloud_decrease_target_without_desired_capacity_does_nothing() -> None:
    api = world(3, desired=False)
    assert isinstance(provider(api).decrease_target(operation(OperationKind.DECREASE_TARGET, "asg-1", 5, 3)), Succeeded)
    refused = provider(api).decrease_target(operation(OperationKind.DECREASE_TARGET, "asg-1", 3, 2))
    assert isinstance(refused, Failed)
    assert refused.error_class == "InvalidRequest"
    assert api.writes() == []


def test_alicloud_decrease_target_stops_at_the_groups_own_minimum() -> None:
    api = world(0, least=2)
    api.all["asg-1"].desired = 3
    outcome = provider(api).decrease_target(operation(OperationKind.DECREASE_TARGET, "asg-1", 3, 1))
    assert isinstance(outcome, Failed)
    assert "MinSize 2" in outcome.message
