"""Target decrease: never below the existing nodes of the group or of the pool."""

from __future__ import annotations

import pytest

from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.providers.kit.errors import Conflict, Transient
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.cases import each_row
from tests.providers.huaweicloud.emulated import CLUSTER, POOL, A, B, EmulatedCce, shrink, uid
from tests.providers.huaweicloud.fixture import drive


def short(desired: int = 5, existing: int = 3, second: int = 2) -> EmulatedCce:
    """A pool whose first group has a larger desired size than nodes."""
    cce = EmulatedCce(existing, second, most=20)
    cce.lack(desired - existing)
    return cce


def refused(cce: EmulatedCce, from_size: int, to_size: int, group: str = A) -> Failed:
    outcome = cce.step(shrink(cce, from_size, to_size, group))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, cce.changes()) == ("InvalidRequest", [])
    return outcome


def test_CCE_19_missing_nodes_are_removed_from_the_target_through_their_group() -> None:
    cce = short()
    assert isinstance(drive(cce, shrink(cce, 5, 3)), Succeeded)
    assert (cce.changes(), cce.chosen) == (["scale 5 default"], set())


@each_row("size", [2, 0, -1])
def test_CCE_19_size_below_the_existing_nodes_is_an_error(size: int) -> None:
    refused(short(), 5, size)


def test_CCE_19_nodes_shown_only_by_the_list_count_as_existing() -> None:
    cce = short()
    cce.cloud.add_nodes(POOL, 1, phase="Installing")
    refused(cce, 5, 3)
    assert isinstance(drive(cce, shrink(cce, 5, 4)), Succeeded)


def test_CCE_19_pool_total_is_never_below_its_nodes() -> None:
    cce = short()
    # more than the desired size of that group: with this total, CCE would
    # choose the nodes to delete
    cce.cloud.add_nodes(POOL, 3, group="c7-az2")
    assert "of its pool" in refused(cce, 5, 3).message


def test_huawei_decrease_target_does_not_count_leaving_nodes() -> None:
    cce = short()
    cce.node(uid(1)).phase = "Deleting"
    assert isinstance(drive(cce, shrink(cce, 5, 2)), Succeeded)
    assert cce.changes() == ["scale 4 default"]


def test_huawei_decrease_target_waits_while_groups_and_pool_disagree() -> None:
    cce = short()
    cce.answers[POOL] = {"spec.initialNodeCount": 8}
    with pytest.raises(Conflict):
        cce.step(shrink(cce, 5, 3))
    assert not cce.changes()


def test_huawei_decrease_target_with_a_lost_answer_is_not_repeated() -> None:
    cce = short()
    cce.cloud.lag = 60.0
    cce.server.faults.next(VendorFault.LOST_ANSWER, on="scale-pool")
    operation = shrink(cce, 5, 4)
    with pytest.raises(Transient):
        cce.step(operation)
    with pytest.raises(Conflict):  # the group still reports five, and the pool six
        cce.step(operation)
    assert isinstance(drive(cce, operation), Succeeded)
    assert cce.changes() == ["scale 6 default"]


def test_huawei_decrease_target_already_reached_or_changed_by_others() -> None:
    cce = short()
    assert isinstance(cce.step(shrink(cce, 6, 5)), Succeeded)
    outcome = cce.step(shrink(cce, 7, 4))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, cce.changes()) == ("Conflict", [])


def test_huawei_decrease_target_accepted_without_effect_fails_after_some_polls() -> None:
    cce = short()
    cce.cloud.lag = 60.0
    operation = cce.next(shrink(cce, 5, 3))
    for _ in range(4):
        operation = cce.next(operation)
    outcome = cce.step(operation)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, cce.changes()) == ("Unknown", ["scale 5 default"])


def test_CCE_DANGER_1_total_of_zero_is_sent_only_for_a_pool_without_nodes() -> None:
    cce = short(2, 0, 0)
    assert isinstance(drive(cce, shrink(cce, 2, 0)), Succeeded)
    assert (cce.changes(), cce.chosen) == (["scale 0 default"], set())
    refused(EmulatedCce(1), 1, 0)


def test_CCE_DANGER_1_no_change_ever_lets_the_vendor_choose_a_node() -> None:
    for first in range(4):
        for second in range(3):
            for missing in range(3):
                for goal in range(first + missing):
                    cce = short(first + missing, first, second)
                    drive(cce, shrink(cce, first + missing, goal))
                    drive(cce, shrink(cce, second, 0, B))
                    assert not cce.chosen


def test_huawei_decrease_target_waits_for_a_busy_cluster() -> None:
    cce = short()
    cce.cloud.clusters[CLUSTER].phase = "Upgrading"
    with pytest.raises(Conflict):
        cce.step(shrink(cce, 5, 3))
    assert not cce.changes()
