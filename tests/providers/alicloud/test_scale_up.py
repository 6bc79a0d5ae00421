"""Scale-ups of Alibaba Cloud: what the suite (tests/providers/suite) and
tests/providers/alicloud do not show.
"""

from __future__ import annotations

import pytest

from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.kit.errors import Conflict
from infra.emulators.alicloud.models import AlicloudDurations
from infra.emulators.vendor_common.http_messages import Answer, Incoming, scripted
from tests.cases import each_row
from tests.providers.alicloud.emulated import EmulatedEss, continued, grow, refusal, shrink

MODES = pytest.mark.parametrize("desired", [True, False], ids=["desired", "plain"])
NOTHING_LISTED = scripted(200, {"TotalCount": 0, "ScalingActivities": []})


@MODES
def test_alicloud_scale_up_is_one_call_whose_activity_is_polled(desired: bool) -> None:
    ess = EmulatedEss(2, desired=desired)
    operation = grow(ess, 2, 5)
    outcome = ess.build().scale_up(operation)
    assert ess.changes() == [
        "scale asg-1 TotalCapacity 5 true"
        if desired
        else "scale asg-1 QuantityChangeInCapacity 3 false"
    ]
    operation = continued(operation, outcome)
    running = ess.build().poll(operation)
    assert isinstance(running, InProgress)
    assert running.after > 0
    ess.settle(60.0)
    done = ess.build().poll(continued(operation, running))
    assert isinstance(done, Succeeded)
    assert done.facts["created"] == 3
    assert len(ess.machines("asg-1")) == 5
    assert ess.changes() == []


def test_alicloud_token_alone_prevents_duplicates_before_the_activity_is_listed() -> None:
    ess = EmulatedEss(1, desired=False)
    ess.cloud.lag = 300.0
    ess.cloud.step()
    first = ess.build().scale_up(grow(ess, 1, 3))
    ess.server.reply(" DescribeScalingActivities$", NOTHING_LISTED)
    assert ess.build().scale_up(grow(ess, 1, 3)) == first
    assert len(ess.changes()) == 2
    ess.settle(60.0)
    assert len(ess.machines("asg-1")) == 3


@each_row(
    ("size", "most", "spec", "expected", "words"),
    [
        (4, 20, "0:10:asg-1", "Conflict", "size 4"),  # changed by others
        (5, 20, "0:10:asg-1", "Succeeded", ""),
        (2, 20, "0:4:asg-1", "InvalidRequest", "maximum 4"),
        (2, 3, "0:10:asg-1", "InvalidRequest", "MaxSize 3"),  # ESS would cap the size silently
    ],
)
def test_alicloud_scale_up_to_a_size_that_cannot_be_requested_writes_nothing(
    size: int, most: int, spec: str, expected: str, words: str
) -> None:
    ess = EmulatedEss(size, most=most)
    outcome = ess.build(spec).scale_up(grow(ess, 2, 5))
    assert (
        outcome.error_class if isinstance(outcome, Failed) else type(outcome).__name__
    ) == expected
    assert words in str(outcome)
    assert ess.changes() == []
    assert bool(ess.server.requests) == ("maximum" not in words), (
        "what the policy forbids needs no call"
    )


def test_alicloud_scale_up_reports_a_maximum_lowered_meanwhile_without_waiting() -> None:
    ess = EmulatedEss(2, desired=False)
    operation = grow(ess, 2, 6)
    operation = continued(operation, ess.build().scale_up(operation))
    activity = ess.group.activities[0]
    ess.group.max = 4
    for name in activity.machines[2:]:
        ess.cloud.vanish(name)
    del activity.machines[2:]
    ess.settle(60.0)
    assert activity.status == "Successful"
    outcome = ess.build().scale_up(operation)
    assert isinstance(outcome, Failed)
    assert outcome.facts["created"] == 2
    assert "MaxSize" in outcome.message


def test_alicloud_group_still_shrinking_gets_no_size_below_its_instances() -> None:
    ess = EmulatedEss(5)
    ess.group.desired = 2
    with pytest.raises(Conflict):
        ess.build().scale_up(grow(ess, 2, 3))
    assert ess.changes() == []


def test_alicloud_desired_capacity_is_the_target_while_no_instance_is_listed() -> None:
    ess = EmulatedEss(0)
    ess.build().scale_up(grow(ess, 0, 3))
    ess.group.machines.clear()
    (group,) = ess.groups()
    assert (group.target, group.instances) == (3, ())
    assert isinstance(ess.build().scale_up(grow(ess, 0, 3, op="another")), Succeeded)
    assert len(ess.changes()) == 1


def test_alicloud_scale_up_of_a_busy_group_is_retried_and_not_failed() -> None:
    ess = EmulatedEss(2)
    ess.fail("ScaleWithAdjustment", "ScalingActivityInProgress")
    with pytest.raises(Conflict) as caught:
        ess.build().scale_up(grow(ess, 2, 3))
    assert caught.value.code == "ScalingActivityInProgress"
    assert isinstance(ess.build().scale_up(grow(ess, 2, 3)), InProgress)


@pytest.mark.parametrize(("made", "status"), [(0, "Failed"), (2, "Warning")])
@MODES
def test_alicloud_scale_up_poll_reports_a_stockout_with_the_created_instances(
    desired: bool, made: int, status: str
) -> None:
    ess = EmulatedEss(1, desired=desired)
    ess.cloud.stock["ecs.g7.xlarge", "cn-hangzhou-i"] = made
    operation = grow(ess, 1, 5)
    operation = continued(operation, ess.build().scale_up(operation))
    ess.settle(60.0)
    assert ess.group.activities[-1].status == status
    outcome = ess.build().poll(operation)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == ("OutOfStock", "OperationDenied.NoStock")
    assert outcome.facts["created"] == made


@each_row("size", [3, 2])
def test_alicloud_scale_up_without_effect_is_investigated(size: int) -> None:
    ess = EmulatedEss(2)

    def refused(_: Incoming) -> Answer:
        # another writer set it between our two reads, or nothing was changed
        ess.group.desired = size
        return refusal("IncorrectCapacity.NoChange")

    ess.server.reply(" ScaleWithAdjustment$", refused)
    if size == 3:
        assert isinstance(ess.build().scale_up(grow(ess, 2, 3)), Succeeded)
    else:
        with pytest.raises(Conflict):
            ess.build().scale_up(grow(ess, 2, 3))


def test_alicloud_scale_up_polls_become_rarer_and_end_after_ten_minutes() -> None:
    ess = EmulatedEss(0, times=AlicloudDurations(create=100_000.0))
    operation = grow(ess, 0, 1)
    outcome, waits = ess.build().scale_up(operation), list[float]()
    while isinstance(outcome, InProgress):
        waits.append(outcome.after)
        outcome = ess.build().poll(continued(operation, outcome))
    assert isinstance(outcome, Succeeded)
    assert waits[:4] == [5.0, 5.0, 10.0, 20.0]
    assert max(waits) == 30.0
    assert 600 <= sum(waits) <= 640


def test_alicloud_scale_up_waits_for_its_activity_despite_invalid_data() -> None:
    ess = EmulatedEss(0)
    operation = grow(ess, 0, 1)
    operation = continued(operation, ess.build().scale_up(operation))
    operation.status.data["polls"] = "many"
    ess.server.reply(" DescribeScalingActivities$", NOTHING_LISTED)
    waiting = ess.build().poll(operation)
    assert isinstance(waiting, InProgress)
    ess.settle(60.0)
    assert isinstance(ess.build().poll(continued(operation, waiting)), Succeeded)


@each_row("state", ["Inactive", "Deleting"])
def test_alicloud_disabled_group_is_not_scaled_up(state: str) -> None:
    ess = EmulatedEss(1)
    ess.group.state = state
    outcome = ess.build().scale_up(grow(ess, 1, 2))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert ess.changes() == []


def test_alicloud_deleted_group_is_not_found() -> None:
    ess = EmulatedEss(1)
    ess.cloud.groups.clear()
    outcome = ess.build("0:5:asg-1").scale_up(grow(ess, 1, 2))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "NotFound"


def test_alicloud_group_outside_the_policy_is_never_changed() -> None:
    ess = EmulatedEss(0, 0)
    provider = ess.build("0:5:asg-1")
    for outcome in (
        provider.scale_up(grow(ess, 0, 1, "asg-2")),
        provider.decrease_target(shrink(ess, 2, 1, "asg-2")),
    ):
        assert isinstance(outcome, Failed)
    assert ess.server.requests == []
