"""Removal by node id, and deletion of unregistered nodes."""

from __future__ import annotations

import pytest

from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers.kit.errors import Conflict, ProviderError, Throttled, Transient
from infra.emulators.vendor_common.http_messages import Answer, Incoming
from tests.cases import each_row
from tests.providers.huaweicloud.emulated import (
    CLUSTER,
    OTHER,
    POOL,
    A,
    B,
    EmulatedCce,
    discard,
    entry,
    node,
    remove,
    uid,
)
from tests.providers.huaweicloud.fixture import drive

DISCARD = OperationKind.DELETE_INSTANCES


def refused(
    cce: EmulatedCce,
    *handles: str,
    error_class: str = "InvalidRequest",
    kind: OperationKind = OperationKind.DELETE_NODES,
    group: str = A,
    entries: tuple[GroupPolicy, ...] = (),
) -> Failed:
    """A removal that sends nothing."""
    outcome = cce.step(remove(cce, 3, *handles, group=group, kind=kind), *entries)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, cce.changes()) == (error_class, [])
    return outcome


def test_CCE_19_foreign_node_stops_the_whole_removal() -> None:
    cce = EmulatedCce(5, 2)
    cce.add_group("pool-b", size=1)
    mine, lonely = uid(1), cce.cloud.add_lonely(CLUSTER).uid
    assert OTHER in refused(cce, mine, cce.machines(f"{OTHER}/default")[0]).message
    assert "c7-az2" in refused(cce, mine, cce.machines(B)[0]).message
    assert "no pool" in refused(cce, mine, lonely).message


@each_row("handle", ["", "pool-a-1", "192.168.0.3", f"{B}/placeholder-0"])
def test_CCE_19_target_without_a_uid_or_of_another_group_stops_the_whole_removal(
    handle: str,
) -> None:
    refused(EmulatedCce(3, 2), uid(1), handle)


@each_row("kind", [OperationKind.DELETE_NODES, DISCARD])
@each_row("count", range(1, 5))
def test_CCE_DANGER_3_removals_name_every_node_and_the_vendor_never_chooses(
    count: int, kind: OperationKind
) -> None:
    cce = EmulatedCce(5, 2)
    if kind is DISCARD:
        cce.joined = ()
    names = cce.machines(A)[5 - count :]
    assert isinstance(drive(cce, remove(cce, 5, *names, kind=kind)), Succeeded)
    assert (cce.changes(), cce.chosen) == ([f"delete {name}" for name in names], set())
    assert (cce.target(A), cce.target(B)) == (5 - count, 2)


def test_huawei_remove_finds_a_node_by_its_own_data() -> None:
    cce = EmulatedCce(3, 2)
    assert isinstance(drive(cce, remove(cce, 3, f"huaweicloud:///{uid(1).upper()}")), Succeeded)
    assert cce.changes() == [f"delete {uid(1)}"]


def test_CCE_A6_1_pool_minimum_applies_to_all_its_groups_together() -> None:
    cce = EmulatedCce(3, 2, least=4)
    assert "4 of its pool" in refused(cce, uid(1), uid(2)).message
    assert isinstance(drive(cce, remove(cce, 3, uid(1))), Succeeded)


def test_CCE_A6_3_flavour_minimum_applies_to_its_group() -> None:
    cce = EmulatedCce(3, 2)
    cce.group(B).least = 2
    assert "minimum 2" in refused(cce, cce.machines(B)[0], group=B).message
    refused(EmulatedCce(3, 2), uid(1), uid(2), entries=(entry("pool-a/default", 2, 5),))


def test_huawei_delete_instances_may_go_below_the_minimum() -> None:
    cce = EmulatedCce(3, 2, least=5)
    cce.joined = ()
    assert isinstance(drive(cce, discard(cce, 3, uid(1))), Succeeded)
    assert cce.changes() == [f"delete {uid(1)}"]


def test_huawei_delete_instances_spares_a_joined_machine_however_it_is_matched() -> None:
    cce = EmulatedCce(3, 2)
    machine = cce.node(uid(1))
    for joined in (
        node(machine),
        node(machine, f"x://{machine.server}"),
        node(machine, ""),
        node(machine, "", machine.name),
    ):
        cce.joined = (joined,)
        refused(cce, uid(1), error_class="Conflict", kind=DISCARD)
    cce.joined = (node(cce.node(uid(2))),)
    assert isinstance(drive(cce, discard(cce, 3, uid(1))), Succeeded)


def test_CCE_A8_3_protected_or_prepaid_node_stays() -> None:
    cce = EmulatedCce(3, 2)
    cce.answers[uid(1)] = {"metadata.annotations": {"example.com/scale-down-disabled": "true"}}
    cce.node(uid(2)).billing = 1
    assert "protected" in refused(cce, uid(1)).message
    assert "prepaid" in refused(cce, uid(2), uid(3)).message


def test_CCE_A8_3_at_most_the_unprotected_number_is_removed() -> None:
    cce = EmulatedCce(3, 2)
    for number in (2, 3):
        cce.node(uid(number)).protected = True
    assert "2 of its 3" in refused(cce, uid(1), uid(2)).message
    assert isinstance(drive(cce, remove(cce, 3, uid(1))), Succeeded)


def test_huawei_remove_counts_vanished_and_leaving_nodes_as_removed() -> None:
    cce = EmulatedCce(3, 2)
    cce.node(uid(1)).phase = "Deleting"
    assert isinstance(cce.step(remove(cce, 3, uid(1), uid(99))), Succeeded)
    assert not cce.changes()


def test_huawei_remove_from_a_deleted_pool_is_done() -> None:
    cce = EmulatedCce()
    assert isinstance(cce.step(discard(cce, 3, uid(1), f"{A}/placeholder-0")), Succeeded)
    cce = EmulatedCce(3, 2)
    cce.fail(f"GET .*/nodepools/{POOL}", 404, "CCE.01404001", times=1)
    refused(cce, uid(1), error_class="NotFound")


def test_huawei_remove_looks_up_many_targets_with_one_list() -> None:
    cce = EmulatedCce(6, 0)
    drive(cce, remove(cce, 6, *cce.machines(A)[:5]))
    assert "show-node" not in {call.operation for call in cce.server.log}


def test_huawei_node_vanishing_between_two_calls_counts_as_removed() -> None:
    cce = EmulatedCce(3, 2)

    def vanish(request: Incoming) -> Answer:
        cce.cloud.vanish(uid(1))
        return cce.server.front.served(request)

    cce.server.reply("DELETE", vanish)
    assert isinstance(drive(cce, remove(cce, 3, uid(1))), Succeeded)
    assert [call.status for call in cce.server.log if call.operation == "delete-node"] == [404]


def test_huawei_deletion_with_404_for_an_existing_node_is_a_failure() -> None:
    cce = EmulatedCce(3, 2)
    cce.fail("DELETE", 404, "CCE.01404001", times=1)
    outcome = cce.step(remove(cce, 3, uid(1)))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "NotFound"


def test_huawei_failed_job_explains_why_a_node_still_exists() -> None:
    cce = EmulatedCce(3, 2)
    operation = cce.next(remove(cce, 3, uid(1)))
    cce.node(uid(1)).phase = "Active"
    assert isinstance(cce.step(operation), InProgress)
    (job,) = cce.cloud.jobs.values()
    job.phase, job.reason = "Failed", "Security group [example] not found"
    outcome = cce.step(operation)
    assert isinstance(outcome, Failed)
    assert "Security group" in outcome.message
    assert len(cce.changes()) == 1


def test_huawei_deletion_accepted_without_effect_fails_after_some_polls() -> None:
    cce = EmulatedCce(3, 2)
    operation = cce.next(remove(cce, 3, uid(1)))
    cce.node(uid(1)).phase = "Active"
    cce.cloud.jobs.clear()
    for _ in range(4):
        operation = cce.next(operation)
    assert isinstance(cce.step(operation), Failed)
    assert len(cce.changes()) == 1


@each_row(
    ("status", "code", "expected"),
    [(429, "CCE.02429001", Throttled), (429, "CCE.01429002", Conflict), (502, "", Transient)],
)
def test_huawei_remove_raises_temporary_errors(
    status: int, code: str, expected: type[ProviderError]
) -> None:
    cce = EmulatedCce(3, 2)
    cce.fail("DELETE", status, code, times=1)
    with pytest.raises(expected):
        cce.step(remove(cce, 3, uid(1)))
    assert len(cce.changes()) == 1


def test_huawei_busy_cluster_gets_no_deletion() -> None:
    cce = EmulatedCce(3, 2)
    cce.cloud.clusters[CLUSTER].phase = "Upgrading"
    with pytest.raises(Conflict):
        cce.step(remove(cce, 3, uid(1)))
    assert not cce.changes()


def short() -> EmulatedCce:
    """A pool of five whose first group gets only two of its four."""
    cce = EmulatedCce(2, 1)
    cce.lack(2)
    cce.settle(20.0)  # CCE knows it by now
    return cce


def test_CCE_A9_2_failed_node_is_deleted_by_uid_together_with_placeholders() -> None:
    cce = short()
    [broken] = cce.cloud.add_nodes(POOL, 1, phase="Error")
    assert isinstance(drive(cce, discard(cce, 4, broken, f"{A}/placeholder-0")), Succeeded)
    assert cce.changes() == ["scale 4 default", f"delete {broken}"]
    assert (cce.target(A), cce.chosen) == (2, set())


def test_huawei_placeholders_replaced_by_late_nodes_are_not_removed() -> None:
    cce = short()
    cce.cloud.add_nodes(POOL, 2)
    outcome = cce.step(discard(cce, 4, f"{A}/placeholder-0", f"{A}/placeholder-1"))
    assert isinstance(outcome, Succeeded)
    assert not cce.changes()


def test_huawei_placeholders_of_a_larger_size_conflict_and_of_a_smaller_are_done() -> None:
    cce = short()
    outcome = cce.step(discard(cce, 3, f"{A}/placeholder-0"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert isinstance(cce.step(discard(cce, 6, f"{A}/placeholder-0")), Succeeded)
    assert not cce.changes()


def test_huawei_release_reports_whether_a_target_still_exists() -> None:
    cce = short()
    one, missing = remove(cce, 4, uid(1)), discard(cce, 4, f"{A}/placeholder-0")
    assert cce.build().cancel_delete(one)
    cce.node(uid(1)).phase = "Deleting"
    assert not cce.build().cancel_delete(one)
    assert cce.build().cancel_delete(missing)
    assert not cce.build().cancel_delete(discard(cce, 5, f"{A}/placeholder-0"))
    assert not EmulatedCce().build().cancel_delete(missing)
    assert not cce.changes()
