"""Removal by instance id: exactly the named ones, a result for each, and never below a minimum."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, Transient
from tests.cases import each_row
from tests.unit.providers.alicloud.fake_api import FakeAlicloudApi, FakeApiGroup, continued, provider, refusal, remove


def world(size: int, **more: object) -> tuple[FakeAlicloudApi, list[str]]:
    api = FakeAlicloudApi(FakeApiGroup("asg-1", **more))  # type: ignore[arg-type]
    return api, api.fill("asg-1", size)


def to_the_end(api: FakeAlicloudApi, asked: Operation) -> Outcome:
    outcome = provider(api).delete_nodes(asked)
    for _ in range(20):
        if not isinstance(outcome, InProgress):
            break
        api.step()
        outcome = provider(api).poll(continued(asked, outcome))
    return outcome


@each_row("desired", [True, False], ids=["desired", "plain"])
def test_alicloud_remove_deletes_one_and_lowers_the_target(desired: bool) -> None:
    api, names = world(3, desired_mode=desired)
    assert isinstance(to_the_end(api, remove(3, names[1])), Succeeded)
    assert api.writes() == [f"remove asg-1 {names[1]}"]
    assert sorted(api.all["asg-1"].instances) == [names[0], names[2]]
    assert provider(api).observe(()).groups[0].target == 2
    assert api.scaled_in == []


def test_alicloud_remove_after_a_lowered_desired_capacity_costs_no_other_machine() -> None:
    """Five instances exist, two are to be removed, and a user has meanwhile set three: these two are the surplus."""
    api, names = world(5)
    api.all["asg-1"].desired = 3
    assert isinstance(to_the_end(api, remove(5, names[3], names[4])), Succeeded)
    assert sorted(api.all["asg-1"].instances) == names[:3]
    assert (api.all["asg-1"].desired, api.scaled_in) == (3, [])


def test_alicloud_remove_first_uses_the_surplus_of_a_lowered_desired_capacity() -> None:
    api, names = world(6)
    api.all["asg-1"].desired = 5
    assert isinstance(to_the_end(api, remove(6, *names[3:])), Succeeded)
    assert [len(call.split()) - 2 for call in api.writes()] == [1, 2]
    assert sorted(api.all["asg-1"].instances) == names[:3]
    assert (api.all["asg-1"].desired, api.scaled_in) == (3, [])


def test_alicloud_remove_counts_leaving_as_removed_and_does_not_repeat_it() -> None:
    api, names = world(3)
    for _ in range(3):
        provider(api).delete_nodes(remove(3, names[0]))
    assert isinstance(provider(api).delete_nodes(remove(3, names[0])), Succeeded)
    assert len(api.writes()) == 1
    assert api.all["asg-1"].desired == 2


def test_alicloud_remove_with_a_lost_answer_removes_once() -> None:
    api, names = world(3)
    api.lost.add("remove")
    with pytest.raises(Transient):
        provider(api).delete_nodes(remove(3, names[0]))
    assert isinstance(to_the_end(api, remove(3, names[0])), Succeeded)
    assert len(api.all["asg-1"].living()) == 2
    assert api.all["asg-1"].desired == 2


def test_alicloud_remove_runs_in_sequential_batches_of_twenty() -> None:
    api, names = world(50, most=100)
    assert isinstance(to_the_end(api, remove(50, *names[:45])), Succeeded)
    assert [len(call.split()) - 2 for call in api.writes()] == [20, 20, 5]
    assert len(api.all["asg-1"].living()) == 5
    assert api.all["asg-1"].desired == 5


def test_alicloud_remove_instance_already_gone_blocks_no_other() -> None:
    api, names = world(3)
    api.all["asg-1"].instances.pop(names[0])
    api.all["asg-1"].desired = 2
    assert isinstance(to_the_end(api, remove(3, names[0], names[1])), Succeeded)
    assert list(api.all["asg-1"].instances) == [names[2]]


def test_alicloud_remove_instance_vanishing_before_the_request_counts_as_removed() -> None:
    api, names = world(3)
    whole = api.instances
    listed = whole("asg-1")
    api.instances = lambda group, ids=(): (  # type: ignore[method-assign]
        listed if len(api.writes()) == 0 else whole(group, ids)
    )
    api.all["asg-1"].instances.pop(names[0])
    assert isinstance(to_the_end(api, remove(3, names[0], names[1])), Succeeded)
    assert list(api.all["asg-1"].instances) == [names[2]]


def test_alicloud_remove_refused_for_a_vanished_instance_is_retried_without_it() -> None:
    api, names = world(3)
    whole, listed = api.instances, api.instances("asg-1")
    answers = [listed]
    api.instances = lambda group, ids=(): (  # type: ignore[method-assign]
        answers.pop() if answers else whole(group, ids)
    )
    api.all["asg-1"].instances.pop(names[0])
    api.trouble["remove"] = [refusal(NotFound, "InvalidInstanceId.NotFound")]
    assert isinstance(to_the_end(api, remove(3, names[0], names[1])), Succeeded)
    assert list(api.all["asg-1"].instances) == [names[2]]


def test_alicloud_remove_not_found_for_existing_instances_is_a_failure() -> None:
    api, names = world(3)
    api.trouble["remove"] = [refusal(NotFound, "InvalidInstanceId.NotFound")]
    outcome = provider(api).delete_nodes(remove(3, names[0]))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == ("NotFound", "InvalidInstanceId.NotFound")


def test_alicloud_remove_of_another_groups_instance_is_refused_before_any_write() -> None:
    api = FakeAlicloudApi(FakeApiGroup("asg-1"), FakeApiGroup("asg-2"))
    mine, theirs = api.fill("asg-1", 3), api.fill("asg-2", 3)
    outcome = provider(api).delete_nodes(remove(3, mine[0], theirs[0]))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert "asg-2" in outcome.message
    assert api.writes() == []


def test_alicloud_remove_from_a_group_outside_the_policy_is_refused() -> None:
    api = FakeAlicloudApi(FakeApiGroup("asg-1"), FakeApiGroup("asg-9"))
    mine, theirs = api.fill("asg-1", 3), api.fill("asg-9", 1)
    outcome = provider(api, "0:10:asg-1").delete_nodes(remove(3, mine[0], theirs[0]))
    assert isinstance(outcome, Failed)
    assert "asg-9" in outcome.message
    assert api.writes() == []


def test_alicloud_remove_one_of_two_thousand_reads_only_that_one() -> None:
    api, names = world(2000, most=2000)
    outcome = provider(api, "0:2000:asg-1").delete_nodes(remove(2000, names[7]))
    assert isinstance(outcome, InProgress)
    assert api.calls == ["groups 1", "instances asg-1", f"remove asg-1 {names[7]}"]
    api.calls.clear()
    api.step()
    assert isinstance(provider(api, "0:2000:asg-1").poll(continued(remove(2000, names[7]), outcome)), Succeeded)
    assert api.calls == ["groups 1", "instances asg-1"]


def test_alicloud_remove_batch_below_the_minimum_is_refused_as_a_whole() -> None:
    api, names = world(5)
    outcome = provider(api, "3:10:asg-1").delete_nodes(remove(5, *names[:4]))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert "below the minimum 3" in outcome.message
    assert api.writes() == []
    assert isinstance(provider(api, "3:10:asg-1").delete_nodes(remove(5, *names[:2])), InProgress)


def test_alicloud_remove_observes_the_groups_own_minimum() -> None:
    api, names = world(3, least=2)
    outcome = provider(api, "0:10:asg-1").delete_nodes(remove(3, *names[:2]))
    assert isinstance(outcome, Failed)
    assert "below the minimum 2" in outcome.message


def test_alicloud_remove_at_the_minimum_waits_for_a_late_listed_removal() -> None:
    api, names = world(2)
    provider(api, "1:10:asg-1").delete_nodes(remove(2, names[0]))
    api.set_state("asg-1", names[0], "InService")  # the list lags behind the group
    with pytest.raises(Conflict):
        provider(api, "1:10:asg-1").delete_nodes(remove(2, names[0]))
    assert len(api.writes()) == 1


def test_alicloud_remove_reports_a_refusal_by_ess() -> None:
    api, names = world(3)
    api.trouble["remove"] = [refusal(InvalidRequest, "IncorrectCapacity.MinSize")]
    outcome = provider(api).delete_nodes(remove(3, names[0]))
    assert isinstance(outcome, Failed)
    assert outcome.code == "IncorrectCapacity.MinSize"


def test_alicloud_remove_reports_partial_failure_per_instance() -> None:
    api, names = world(4)
    locked = api.all["asg-1"].instances[names[1]]
    api.all["asg-1"].instances[names[1]] = msgspec.structs.replace(locked, health_status="Locked")
    asked = remove(4, *names[:3])
    outcome = to_the_end(api, asked)
    assert isinstance(outcome, Failed)
    assert names[1] in outcome.message
    assert "OperationDenied.Locked" in outcome.message
    assert names[0] not in outcome.message
    assert outcome.facts["removed"] == 2
    assert sorted(api.all["asg-1"].instances) == sorted([names[1], names[3]])
    for name, lives in ((names[0], False), (names[1], True)):
        assert provider(api).cancel_delete(remove(4, name)) is lives


def test_alicloud_remove_refused_for_a_single_instance_fails_with_its_code() -> None:
    api, names = world(2)
    locked = api.all["asg-1"].instances[names[0]]
    api.all["asg-1"].instances[names[0]] = msgspec.structs.replace(locked, health_status="Locked")
    outcome = provider(api).delete_nodes(remove(2, names[0]))
    assert isinstance(outcome, Failed)
    assert outcome.code == "OperationDenied.Locked"


@each_row(
    ("state", "more", "word"),
    [
        ("Protected", {}, "protected"),
        ("InService", {"creation_type": "Attached"}, "attached manually"),
    ],
)
def test_alicloud_remove_keeps_user_protected_instances_only(state: str, more: dict[str, str], word: str) -> None:
    api, names = world(2)
    kept = api.fill("asg-1", 1, state, **more)[0]
    outcome = to_the_end(api, remove(3, names[0], kept))
    assert isinstance(outcome, Failed)
    assert word in outcome.message
    assert outcome.facts["removed"] == 1
    assert sorted(api.all["asg-1"].instances) == sorted([names[1], kept])
    assert all(kept not in call for call in api.writes())


def test_alicloud_remove_from_a_busy_group_is_retried() -> None:
    api, names = world(3)
    provider(api).delete_nodes(remove(3, names[0]))
    with pytest.raises(Conflict):
        provider(api).delete_nodes(remove(2, names[1]))
    api.step()
    assert isinstance(to_the_end(api, remove(2, names[1])), Succeeded)


def test_alicloud_remove_reports_a_failed_activity_with_its_code() -> None:
    api, names = world(3)
    asked = remove(3, names[0])
    outcome = provider(api).delete_nodes(asked)
    group = api.all["asg-1"]
    group.activities[0] = msgspec.structs.replace(
        group.activities[0], status_code="Failed", error_code="IncorrectInstanceStatus", error_message="not now"
    )
    api.set_state("asg-1", names[0], "InService")
    found = provider(api).poll(continued(asked, outcome))
    assert isinstance(found, Failed)
    assert found.code == "IncorrectInstanceStatus"
    assert names[0] in found.message


def test_alicloud_remove_gives_up_on_a_vendor_that_reports_success_without_effect() -> None:
    api, names = world(3)
    asked = remove(3, names[0])
    outcome = provider(api).delete_nodes(asked)
    group = api.all["asg-1"]
    group.activities[0] = msgspec.structs.replace(group.activities[0], status_code="Successful")
    api.set_state("asg-1", names[0], "InService")
    for _ in range(30):
        if isinstance(outcome, InProgress):
            outcome = provider(api).poll(continued(asked, outcome))
    assert isinstance(outcome, Failed)
    assert "lists it still" in outcome.message
    assert len(api.writes()) == 1


def test_alicloud_remove_refuses_a_target_without_any_id() -> None:
    api, _ = world(1)
    asked = remove(1, "i-1")
    nameless = msgspec.structs.replace(asked.spec.targets[0], instance="x", handle="")
    outcome = provider(api).delete_nodes(asked.with_spec(targets=(nameless,)))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"


def test_alicloud_release_reports_the_remaining_instances() -> None:
    api, names = world(3)
    assert provider(api).cancel_delete(remove(3, names[0])) is True
    provider(api).delete_nodes(remove(3, names[0]))
    assert provider(api).cancel_delete(remove(3, names[0])) is False
    assert provider(api).cancel_delete(remove(3, names[0], names[1])) is True
    assert provider(api, "0:5:asg-1").cancel_delete(remove(3, "i-gone")) is False


def test_alicloud_remove_respects_a_suspended_scale_in() -> None:
    api, names = world(3, more={"suspended_processes": ["ScaleIn"]})
    outcome = provider(api).delete_nodes(remove(3, names[0]))
    assert isinstance(outcome, Failed)
    assert "ScaleIn" in outcome.message
