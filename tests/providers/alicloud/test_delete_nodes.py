"""Removals, rollbacks and target decreases of Alibaba Cloud: what the suite (tests/providers/suite)
and tests/providers/alicloud do not show."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.node import Node
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.alicloud.delete_nodes import TURN
from chalicelib.providers.kit.errors import Conflict, Transient
from infra.emulators.alicloud.models import AlicloudProvisioningFate
from infra.emulators.vendor_common.fault_injection import VendorFault
from infra.emulators.vendor_common.http_messages import Answer, Incoming
from tests.cases import each_row
from tests.providers.alicloud.emulated import (
    EmulatedEss,
    continued,
    discard,
    grow,
    refusal,
    remove,
    shrink,
)
from tests.providers.alicloud.fixture import drive


def _ended(ess: EmulatedEss, status: str, *problems: AlicloudProvisioningFate) -> None:
    """Ends the newest activity although its instances are in service."""
    activity = ess.group.activities[-1]
    activity.status, activity.ended, activity.problems = status, ess.now(), list(problems)
    for name in activity.machines:
        ess.cloud.set_state(name, "InService")


@each_row("desired", [True, False], ids=["desired", "plain"])
def test_alicloud_remove_deletes_one_and_lowers_the_target(desired: bool) -> None:
    ess = EmulatedEss(3, desired=desired)
    first, second, third = ess.machines("asg-1")
    assert isinstance(drive(ess, remove(ess, 3, second)), Succeeded)
    assert ess.changes() == [f"remove asg-1 {second}"]
    assert ess.machines("asg-1") == [first, third]
    assert ess.groups()[0].target == 2
    assert ess.chosen_by_ess() == []


def test_alicloud_remove_after_a_lowered_desired_capacity_costs_no_other_machine() -> None:
    """Five instances exist, two are to be removed, and a user has meanwhile set three:
    these two are the surplus."""
    ess = EmulatedEss(5)
    names = ess.machines("asg-1")
    ess.group.desired = 3
    assert isinstance(drive(ess, remove(ess, 5, *names[3:])), Succeeded)
    assert ess.chosen_by_ess() == []
    assert (ess.target("asg-1"), ess.machines("asg-1")) == (3, names[:3])


def test_alicloud_remove_first_uses_the_surplus_of_a_lowered_desired_capacity() -> None:
    ess = EmulatedEss(6)
    names = ess.machines("asg-1")
    ess.group.desired = 5
    assert isinstance(drive(ess, remove(ess, 6, *names[3:])), Succeeded)
    accepted = [call.parameters for call in ess.look() if call.writes and not call.code]
    assert [
        sum(key.startswith("InstanceIds.") for key in parameters) for parameters in accepted
    ] == [1, 2]
    assert ess.chosen_by_ess() == []
    assert (ess.target("asg-1"), ess.machines("asg-1")) == (3, names[:3])


def test_alicloud_remove_counts_leaving_as_removed_and_does_not_repeat_it() -> None:
    ess = EmulatedEss(3)
    operation = remove(ess, 3, ess.machines("asg-1")[0])
    for _ in range(3):
        ess.build().delete_nodes(operation)
    assert isinstance(ess.build().delete_nodes(operation), Succeeded)
    assert len(ess.changes()) == 1
    assert ess.target("asg-1") == 2


def test_alicloud_remove_refused_for_a_vanished_instance_is_retried_without_it() -> None:
    ess = EmulatedEss(3)
    first, second, third = ess.machines("asg-1")

    def refused(_: Incoming) -> Answer:
        ess.cloud.vanish(first)
        return refusal("InvalidInstanceId.NotFound", 404)

    ess.server.reply(" RemoveInstances$", refused)
    assert isinstance(drive(ess, remove(ess, 3, first, second)), Succeeded)
    assert ess.machines("asg-1") == [third]


@each_row(
    ("code", "cls"),
    [
        ("InvalidInstanceId.NotFound", "NotFound"),  # for an instance that exists
        ("IncorrectCapacity.MinSize", "InvalidRequest"),
    ],
)
def test_alicloud_remove_reports_a_refusal_by_ess(code: str, cls: str) -> None:
    ess = EmulatedEss(3)
    ess.fail("RemoveInstances", code)
    outcome = ess.build().delete_nodes(remove(ess, 3, ess.machines("asg-1")[0]))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == (cls, code)


@each_row("specs", [(), ("0:10:asg-1",)], ids=["both groups in the policy", "one in the policy"])
def test_alicloud_remove_of_another_groups_instance_is_refused_before_any_write(
    specs: tuple[str, ...],
) -> None:
    ess = EmulatedEss(3, 3)
    outcome = ess.build(*specs).delete_nodes(
        remove(ess, 3, ess.machines("asg-1")[0], ess.machines("asg-2")[0])
    )
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert "asg-2" in outcome.message
    assert ess.changes() == []


def test_alicloud_remove_one_of_two_thousand_reads_only_that_one() -> None:
    ess = EmulatedEss(2000, most=2000)
    operation = remove(ess, 2000, "i-0008")
    outcome = ess.build("0:2000:asg-1").delete_nodes(operation)
    assert ess.actions() == ["DescribeScalingGroups", "DescribeScalingInstances", "RemoveInstances"]
    assert ess.queries()[2]["InstanceIds.1"] == "i-0008"
    operation = continued(operation, outcome)
    ess.settle(60.0)
    assert isinstance(ess.build("0:2000:asg-1").poll(operation), Succeeded)
    assert ess.actions() == ["DescribeScalingGroups", "DescribeScalingInstances"]


@each_row(
    ("spec", "least", "minimum"),
    [("3:10:asg-1", 0, 3), ("0:10:asg-1", 2, 2)],
    ids=["policy", "scaling group"],
)
def test_alicloud_remove_batch_below_the_minimum_is_refused_as_a_whole(
    spec: str, least: int, minimum: int
) -> None:
    ess = EmulatedEss(5, least=least)
    names = ess.machines("asg-1")
    outcome = ess.build(spec).delete_nodes(remove(ess, 5, *names[minimum - 1 :]))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert f"below the minimum {minimum}" in outcome.message
    assert ess.changes() == []
    assert isinstance(ess.build(spec).delete_nodes(remove(ess, 5, *names[minimum:])), InProgress)


def test_alicloud_remove_below_the_minimum_is_retried_while_an_activity_runs() -> None:
    ess = EmulatedEss(5)
    names = ess.machines("asg-1")
    ess.build("3:10:asg-1").delete_nodes(remove(ess, 5, names[4]))
    with pytest.raises(Conflict, match="a scaling activity is under way"):
        ess.build("3:10:asg-1").delete_nodes(remove(ess, 5, *names[1:4], op="another"))


def test_alicloud_remove_at_the_minimum_waits_for_a_late_listed_removal() -> None:
    ess = EmulatedEss(2)
    operation = remove(ess, 2, ess.machines("asg-1")[0])
    ess.build("1:10:asg-1").delete_nodes(operation)
    # the list lags behind the group
    ess.cloud.set_state(operation.spec.targets[0].handle, "InService")
    with pytest.raises(Conflict):
        ess.build("1:10:asg-1").delete_nodes(operation)
    assert len(ess.changes()) == 1


def test_alicloud_remove_reports_partial_failure_per_instance() -> None:
    ess = EmulatedEss(4)
    first, locked, third, stays = ess.machines("asg-1")
    ess.cloud.machine(locked).health = "Locked"
    outcome = drive(ess, remove(ess, 4, first, locked, third))
    assert isinstance(outcome, Failed)
    assert locked in outcome.message
    assert "OperationDenied.Locked" in outcome.message
    assert first not in outcome.message
    assert outcome.facts["removed"] == 2
    assert ess.machines("asg-1") == [locked, stays]
    for name, lives in ((first, False), (locked, True)):
        assert ess.build().cancel_delete(remove(ess, 4, name)) is lives


def test_alicloud_remove_refused_for_a_single_instance_fails_with_its_code() -> None:
    ess = EmulatedEss(2)
    name = ess.machines("asg-1")[0]
    ess.cloud.machine(name).health = "Locked"
    for empty in (True, False):
        ess.cloud.takes_empty_removals = empty
        outcome = ess.build().delete_nodes(remove(ess, 2, name, op=f"remove-{empty}"))
        assert isinstance(outcome, Failed)
        assert outcome.code == "OperationDenied.Locked"
        ess.settle(60.0)


@each_row(
    ("state", "more", "word"),
    [
        ("Protected", {}, "protected"),
        ("InService", {"CreationType": "Attached"}, "attached manually"),
    ],
)
def test_alicloud_remove_keeps_user_protected_instances_only(
    state: str, more: dict[str, str], word: str
) -> None:
    ess = EmulatedEss(2)
    first, second = ess.machines("asg-1")
    (protected,) = ess.fill(1, state, **more)
    outcome = drive(ess, remove(ess, 3, first, protected))
    assert isinstance(outcome, Failed)
    assert word in outcome.message
    assert outcome.facts["removed"] == 1
    assert ess.machines("asg-1") == [second, protected]
    assert ess.changes() == [f"remove asg-1 {first}"]


def test_alicloud_remove_from_a_busy_group_is_retried() -> None:
    ess = EmulatedEss(3)
    first, second, _ = ess.machines("asg-1")
    ess.build().delete_nodes(remove(ess, 3, first))
    operation = remove(ess, 2, second, op="second")
    with pytest.raises(Conflict):
        ess.build().delete_nodes(operation)
    ess.settle(60.0)
    assert isinstance(drive(ess, operation), Succeeded)


def test_alicloud_remove_reports_a_failed_activity_with_its_code() -> None:
    ess = EmulatedEss(3)
    name = ess.machines("asg-1")[0]
    operation = remove(ess, 3, name)
    operation = continued(operation, ess.build().delete_nodes(operation))
    _ended(ess, "Failed", AlicloudProvisioningFate("IncorrectInstanceStatus", "not now"))
    outcome = ess.build().poll(operation)
    assert isinstance(outcome, Failed)
    assert outcome.code == "IncorrectInstanceStatus"
    assert name in outcome.message


def test_alicloud_remove_gives_up_on_a_vendor_that_reports_success_without_effect() -> None:
    ess = EmulatedEss(3)
    operation = remove(ess, 3, ess.machines("asg-1")[0])
    outcome = ess.build().delete_nodes(operation)
    _ended(ess, "Successful")
    for _ in range(30):
        if isinstance(outcome, InProgress):
            outcome = ess.build().poll(continued(operation, outcome))
    assert isinstance(outcome, Failed)
    assert "lists it still" in outcome.message
    assert len(ess.changes()) == 1


def test_alicloud_remove_refuses_a_target_without_any_id() -> None:
    ess = EmulatedEss(1)
    operation = remove(ess, 1, "i-1")
    nameless = msgspec.structs.replace(operation.spec.targets[0], instance="x", handle="")
    outcome = ess.build().delete_nodes(operation.with_spec(targets=(nameless,)))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"


def test_alicloud_rollback_reports_the_remaining_instances() -> None:
    ess = EmulatedEss(3)
    first, second, _ = ess.machines("asg-1")
    one, both = remove(ess, 3, first), remove(ess, 3, first, second)
    assert ess.build().cancel_delete(one) is True
    ess.build().delete_nodes(one)
    assert ess.build().cancel_delete(one) is False
    assert ess.build().cancel_delete(both) is True
    assert ess.build("0:5:asg-1").cancel_delete(remove(ess, 3, "i-gone")) is False


def test_alicloud_remove_respects_a_suspended_scale_in() -> None:
    ess = EmulatedEss(3)
    ess.group.suspended = {"ScaleIn"}
    outcome = ess.build().delete_nodes(remove(ess, 3, ess.machines("asg-1")[0]))
    assert isinstance(outcome, Failed)
    assert "ScaleIn" in outcome.message


# -- several removals in one request


def ready(ess: EmulatedEss, *handles: str) -> list[Operation]:
    """Returns a removal of each instance, as planned together."""
    size = ess.target("asg-1")
    return [remove(ess, size, handle, op=f"remove-{handle}") for handle in handles]


def lots(ess: EmulatedEss) -> list[int]:
    """Returns the number of instances of each request that ESS has accepted since the last look."""
    accepted = [
        call.parameters for call in ess.look() if call.action == "RemoveInstances" and not call.code
    ]
    return [sum(key.startswith("InstanceIds.") for key in parameters) for parameters in accepted]


def test_alicloud_shared_request_has_twenty_instances_at_most() -> None:
    ess = EmulatedEss(30, most=100)
    first, *others = ready(ess, *ess.machines("asg-1"))
    _, joined = ess.build("0:100:asg-1").delete_together(first, others)
    assert list(joined) == [other.spec.id for other in others[:19]]
    assert lots(ess) == [20]
    assert ess.target("asg-1") == 10


def test_alicloud_shared_request_takes_no_more_than_the_surplus() -> None:
    ess = EmulatedEss(5)
    first, *others = ready(ess, *ess.machines("asg-1")[:4])
    ess.group.desired = 3
    _, joined = ess.build().delete_together(first, others)
    assert len(joined) == 1
    assert lots(ess) == [2]
    assert ess.chosen_by_ess() == []
    assert (ess.target("asg-1"), len(ess.machines("asg-1"))) == (3, 3)


def test_alicloud_removal_whose_turn_has_not_come_waits_for_it_and_reads_no_other() -> None:
    ess = EmulatedEss(3)
    first, second, third = ready(ess, *ess.machines("asg-1"))
    ess.build().delete_nodes(first)
    others = iter([third])
    with pytest.raises(Conflict) as raised:
        ess.build().delete_together(second, others)
    assert (raised.value.code, raised.value.retry_after) == ("busy", TURN)
    assert list(others) == [third]
    assert len(ess.changes()) == 1


def test_alicloud_removal_that_takes_the_last_room_reads_no_other() -> None:
    ess = EmulatedEss(3, least=2)
    first, second, _ = ready(ess, *ess.machines("asg-1"))
    others = iter([second])
    assert isinstance(ess.build().delete_together(first, others)[0], InProgress)
    assert list(others) == [second]


def test_alicloud_shared_request_is_answered_for_each_removal() -> None:
    ess = EmulatedEss(5)
    names = ess.machines("asg-1")
    first, locked, third = ready(ess, *names[:3])
    ess.cloud.machine(names[1]).health = "Locked"
    outcome, joined = ess.build().delete_together(first, [locked, third])
    refused = joined[locked.spec.id]
    assert isinstance(refused, Failed)
    assert (refused.code, names[1] in refused.message) == ("OperationDenied.Locked", True)
    for operation, begun in ((first, outcome), (third, joined[third.spec.id])):
        assert isinstance(drive(ess, continued(operation, begun)), Succeeded)
    ess.settle(60.0)
    assert ess.machines("asg-1") == [names[1], *names[3:]]
    assert ess.target("asg-1") == 3


@each_row("destroyed", [True, False])
def test_alicloud_partly_failed_activity_fails_only_unfinished_removals(destroyed: bool) -> None:
    """The list may still have an instance that the activity has destroyed."""
    ess = EmulatedEss(4)
    first, second, *_ = ready(ess, *ess.machines("asg-1"))
    outcome, _ = ess.build().delete_together(first, [second])
    operation = continued(first, outcome)
    _ended(ess, "Warning", AlicloudProvisioningFate("IncorrectInstanceStatus", "not now"))
    if not destroyed:
        ess.group.activities[-1].machines.remove("i-0001")
    polled = ess.build().poll(operation)
    if destroyed:
        assert isinstance(polled, InProgress)
        ess.cloud.vanish("i-0001")
        assert isinstance(ess.build().poll(continued(operation, polled)), Succeeded)
    else:
        assert isinstance(polled, Failed)
        assert (polled.code, "i-0001" in polled.message) == ("IncorrectInstanceStatus", True)


def test_alicloud_shared_request_made_again_with_late_lists_is_the_same_to_ess() -> None:
    """The function has died after the request; the others come in another order."""
    ess = EmulatedEss(5)
    first, *others = ready(ess, *ess.machines("asg-1")[:3])
    ess.cloud.lag = 300.0
    ess.cloud.step()
    ess.build().delete_together(first, others)
    ess.settle(60.0)
    ess.build().delete_together(first, others[::-1])
    assert lots(ess) == [3, 3]
    assert len(ess.group.activities) == 1
    assert (ess.target("asg-1"), len(ess.machines("asg-1"))) == (2, 2)


def test_alicloud_node_that_has_changed_ends_its_own_removal_only() -> None:
    ess = EmulatedEss(4)
    changed, first, *_ = ready(ess, *ess.machines("asg-1"))
    targets = tuple(
        msgspec.structs.replace(target, uid="of-another-node") for target in changed.spec.targets
    )
    changed = changed.with_spec(targets=targets)
    outcome, joined = ess.build().delete_together(changed, [first])
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, joined) == ("Conflict", {})
    assert ess.changes() == []
    _, joined = ess.build().delete_together(first, [changed])
    assert joined == {}
    assert lots(ess) == [1]


def test_alicloud_shared_request_reads_the_nodes_and_the_other_instances_once() -> None:
    ess = EmulatedEss(12)
    first, *others = ready(ess, *ess.machines("asg-1")[:10])
    nodes, reads = ess.nodes(), list[str]()

    def listed() -> tuple[Node, ...]:
        reads.append("nodes")
        return nodes

    ess.nodes = listed  # type: ignore[method-assign]
    provider = ess.build()
    ess.look()
    provider.delete_together(first, others)
    assert reads == ["nodes"]
    read = ["DescribeScalingGroups", "DescribeScalingInstances"]
    assert ess.actions() == [
        *read,
        "DescribeScalingActivities",
        *read,
        "DescribeScalingInstances",
        "RemoveInstances",
    ]


# -- deletion of unregistered instances


def test_alicloud_delete_instances_ignores_the_minimum_and_spares_joined_ones() -> None:
    ess = EmulatedEss(3)
    joined, missing, _ = ess.machines("asg-1")
    ess.kubelets.silent.add(missing)
    outcome = ess.build("3:10:asg-1").delete_nodes(discard(ess, 3, joined, missing))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert joined in outcome.message
    assert ess.changes() == []
    assert isinstance(ess.build("3:10:asg-1").delete_nodes(discard(ess, 3, missing)), InProgress)


def test_alicloud_delete_instances_waits_for_a_silent_cluster() -> None:
    ess = EmulatedEss(3)
    operation = discard(ess, 3, ess.machines("asg-1")[0])
    ess.down = True
    with pytest.raises(Transient):
        ess.build().delete_nodes(operation)
    assert ess.changes() == []


def failed_growth(size: int, to_size: int) -> EmulatedEss:
    """Returns a group whose scale-up has found no stock, which there is not since."""
    ess = EmulatedEss(size)
    ess.cloud.stock["ecs.g7.xlarge", "cn-hangzhou-i"] = 0
    ess.build().scale_up(grow(ess, size, to_size))
    ess.settle(60.0)
    ess.look()
    return ess


def test_alicloud_placeholders_are_deleted_by_lowering_the_desired_capacity() -> None:
    ess = failed_growth(2, 5)
    handles = [each.handle for each in ess.groups()[0].instances if each.error]
    assert handles == ["placeholder-asg-1-0", "placeholder-asg-1-1", "placeholder-asg-1-2"]
    operation = discard(ess, 5, *handles)
    for _ in range(2):
        assert isinstance(ess.build().delete_nodes(operation), Succeeded)
    assert ess.changes() == ["scale asg-1 TotalCapacity 2 false"]
    assert ess.chosen_by_ess() == []
    (group,) = ess.groups()
    assert group.target == 2
    assert all(each.error is None for each in group.instances)


def test_alicloud_repeated_deletion_of_some_placeholders_lowers_once() -> None:
    ess = failed_growth(2, 5)
    for _ in range(3):
        assert isinstance(
            ess.build().delete_nodes(discard(ess, 5, "placeholder-asg-1-0")), Succeeded
        )
    assert ess.target("asg-1") == 4


def test_alicloud_placeholder_deletion_spares_instances_that_arrived_late() -> None:
    ess = failed_growth(2, 5)
    ess.cloud.add_machines("asg-1", 2)  # ESS has tried again by itself
    operation = discard(ess, 5, *(f"placeholder-asg-1-{number}" for number in range(3)))
    assert isinstance(ess.build().delete_nodes(operation), Succeeded)
    assert ess.chosen_by_ess() == []
    assert (ess.target("asg-1"), len(ess.machines("asg-1"))) == (4, 4)


def test_alicloud_placeholder_deletion_with_a_lost_answer_lowers_once() -> None:
    ess = failed_growth(2, 5)
    ess.server.reply(" ScaleWithAdjustment$", *[VendorFault.LOST_ANSWER] * 3)
    operation = discard(ess, 5, "placeholder-asg-1-0", "placeholder-asg-1-1")
    with pytest.raises(Transient):
        ess.build().delete_nodes(operation)
    assert isinstance(ess.build().delete_nodes(operation), Succeeded)
    assert ess.target("asg-1") == 3


def test_alicloud_placeholders_are_kept_during_ess_retries_or_after_a_resize() -> None:
    ess = failed_growth(2, 5)
    activity = ess.group.activities[-1]
    activity.status, activity.due = "InProgress", ess.now() + 60.0
    with pytest.raises(Conflict):
        ess.build().delete_nodes(discard(ess, 5, "placeholder-asg-1-0"))
    activity.status = "Failed"
    ess.group.desired = 7
    outcome = ess.build().delete_nodes(discard(ess, 5, "placeholder-asg-1-0"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert ess.changes() == []


def test_alicloud_maximum_lowered_below_the_size_costs_no_instance() -> None:
    ess = failed_growth(4, 6)
    ess.group.max = 3  # ESS would reduce 4 to 3 and remove one instance too many
    outcome = ess.build().delete_nodes(
        discard(ess, 6, "placeholder-asg-1-0", "placeholder-asg-1-1")
    )
    assert isinstance(outcome, Failed)
    assert "MaxSize 3" in outcome.message
    assert ess.changes() == []


def test_alicloud_placeholder_of_another_group_is_refused() -> None:
    ess = failed_growth(2, 5)
    outcome = ess.build().delete_nodes(discard(ess, 5, "placeholder-asg-2-0"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert ess.changes() == []


def test_alicloud_placeholder_rollback_reports_whether_capacity_was_lowered() -> None:
    ess = failed_growth(2, 5)
    operation = discard(ess, 5, "placeholder-asg-1-0")
    assert ess.build().cancel_delete(operation) is True
    ess.build().delete_nodes(operation)
    assert ess.build().cancel_delete(operation) is False


# -- target decrease


SHRINKS = [(3, 3, "Succeeded"), (4, 4, "Succeeded"), (5, 5, "Succeeded"), (2, 5, "InvalidRequest")]


@each_row(("to_size", "left", "expected"), SHRINKS)
def test_alicloud_decrease_target_lowers_an_unfulfilled_one_without_loss(
    to_size: int, left: int, expected: str
) -> None:
    ess = EmulatedEss(3)
    ess.group.desired = 5
    operation = shrink(ess, 5, to_size)
    for _ in range(2):
        outcome = ess.build().decrease_target(operation)
        assert (
            outcome.error_class if isinstance(outcome, Failed) else type(outcome).__name__
        ) == expected
    assert (ess.target("asg-1"), len(ess.machines("asg-1"))) == (left, 3)
    assert len(ess.changes()) <= 1
    assert ess.chosen_by_ess() == []


def test_alicloud_decrease_target_ignores_leaving_instances() -> None:
    ess = EmulatedEss(1)
    ess.fill(1, "Removing")
    ess.group.desired = 2
    assert isinstance(ess.build().decrease_target(shrink(ess, 2, 1)), Succeeded)


def test_alicloud_decrease_target_waits_for_an_activity_that_may_fulfil_it() -> None:
    ess = EmulatedEss(1)
    ess.build().scale_up(grow(ess, 1, 3))
    for name in ess.group.activities[0].machines:
        del ess.group.machines[name]  # not listed yet
    with pytest.raises(Conflict):
        ess.build().decrease_target(shrink(ess, 3, 1))
    assert len(ess.changes()) == 1


def test_alicloud_decrease_target_without_desired_capacity_does_nothing() -> None:
    ess = EmulatedEss(3, desired=False)
    assert isinstance(ess.build().decrease_target(shrink(ess, 5, 3)), Succeeded)
    refused = ess.build().decrease_target(shrink(ess, 3, 2))
    assert isinstance(refused, Failed)
    assert refused.error_class == "InvalidRequest"
    assert ess.changes() == []


def test_alicloud_decrease_target_stops_at_the_groups_own_minimum() -> None:
    ess = EmulatedEss(0, least=2)
    ess.group.desired = 3
    outcome = ess.build().decrease_target(shrink(ess, 3, 1))
    assert isinstance(outcome, Failed)
    assert "MinSize 2" in outcome.message
