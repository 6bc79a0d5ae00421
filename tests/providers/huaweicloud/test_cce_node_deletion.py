"""Deletion of nodes and target decrease over HTTP: ids, minima, protection and lost answers."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest

from chalicelib.model.group import InstanceState
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.providers.kit.errors import Conflict, ProviderError
from infra.emulators.huaweicloud.models import NOT_INSTALLED, SOLD_OUT
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.huaweicloud.fixture import (
    HuaweiBench,
    drive,
    order,
    scalings,
    seen,
    shared_cache,
    tried,
)
from tests.providers.huaweicloud.test_cce_scaling import drive_quietly, leaving, sizes, two_groups

# -- removal


def test_CCE_19_CCE_DANGER_3_two_nodes_are_two_deletions_by_id_without_a_query(
    bench: HuaweiBench,
) -> None:
    own, other = two_groups(bench)
    first, second, third = bench.machines(own)
    bench.look()
    assert isinstance(
        drive(bench, order(bench, OperationKind.DELETE_NODES, own, 3, 1, third, first)), Succeeded
    )
    writes = [call for call in bench.look() if call.writes]
    assert sorted(urlsplit(call.path).path.rpartition("/")[2] for call in writes) == [first, third]
    assert {(call.method, urlsplit(call.path).query, call.body) for call in writes} == {
        ("DELETE", "", "")
    }
    assert (bench.machines(own), sizes(bench, own, other)) == ([second], [1, 2])


def test_CCE_19_node_of_another_group_pool_or_cluster_stops_the_whole_removal(
    bench: HuaweiBench,
) -> None:
    own, other = two_groups(bench)
    beside = bench.add_group("beside", size=1)
    theirs = bench.add_group("theirs", size=1, cluster="theirs")
    lonely = bench.cloud.add_lonely(bench.cluster).uid
    bench.look()
    for stranger in (bench.machines(other)[0], bench.machines(beside)[0], lonely):
        failed = drive_quietly(
            bench,
            order(bench, OperationKind.DELETE_NODES, own, 3, 1, bench.machines(own)[0], stranger),
        )
        assert failed.error_class == "InvalidRequest"
    drive_all(bench, order(bench, OperationKind.DELETE_NODES, own, 3, 2, bench.machines(theirs)[0]))
    assert not [call for call in bench.look() if call.writes]
    assert sizes(bench, own, other, beside, theirs) == [3, 2, 1, 1]


def drive_all(bench: HuaweiBench, operation: Operation) -> None:
    """Runs to the end, whatever it is: a node that our cluster does not know counts as gone."""
    try:
        drive(bench, operation)
    except ProviderError:
        return


@pytest.mark.parametrize("of", ["group", "pool"])
def test_CCE_19_removal_below_a_minimum_sends_nothing(bench: HuaweiBench, of: str) -> None:
    own, other = two_groups(bench)
    if of == "pool":
        bench.pool(own).least = 5
    else:
        bench.group(other).least = 2
    failed = drive_quietly(
        bench, order(bench, OperationKind.DELETE_NODES, other, 2, 1, bench.machines(other)[0])
    )
    assert (failed.error_class, "minimum" in failed.message) == ("InvalidRequest", True)
    assert not [call for call in bench.look() if call.writes]


def test_CCE_19_a_size_below_what_exists_is_refused(bench: HuaweiBench) -> None:
    own, other = two_groups(bench)
    failed = drive_quietly(bench, order(bench, OperationKind.DECREASE_TARGET, other, 2, 1))
    assert (failed.error_class, scalings(bench), leaving(bench)) == ("InvalidRequest", [], [])
    assert sizes(bench, own, other) == [3, 2]


def test_CCE_19_decrease_target_removes_only_nodes_never_created(bench: HuaweiBench) -> None:
    own, other = two_groups(bench)
    bench.group(other).fates += [SOLD_OUT] * 20
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, other, 2, 4)), Failed)
    missing = [each for each in seen(bench, other).instances if each.error]
    assert [(each.state, each.error.cls if each.error else "") for each in missing] == [
        (InstanceState.CREATING, "OutOfStock")
    ] * 2
    assert [each.handle for each in missing] == [
        f"{other}/placeholder-{number}" for number in range(2)
    ]
    bench.look()
    discard = order(
        bench,
        OperationKind.DELETE_INSTANCES,
        other,
        4,
        2,
        *(each.handle for each in missing),
        op="b-0123456789abcdef",
    )
    assert isinstance(drive(bench, discard), Succeeded)
    assert scalings(bench) == [(5, ["az2"])]
    assert isinstance(drive(bench, discard), Succeeded), "a message that comes twice"
    assert (scalings(bench), leaving(bench), sizes(bench, own, other)) == ([], [], [3, 2])


def test_CCE_A9_2_node_with_failed_installation_is_reported_and_deleted_by_id(
    bench: HuaweiBench,
) -> None:
    own, other = two_groups(bench)
    before = bench.machines(other)
    bench.group(other).fates += [NOT_INSTALLED]
    drive(bench, order(bench, OperationKind.SCALE_UP, other, 2, 3))
    bench.settle(120.0)
    (dead,) = [each for each in seen(bench, other).instances if each.error]
    assert (dead.error.cls if dead.error else "") == "InstallFailed"
    assert isinstance(
        drive(
            bench,
            order(
                bench,
                OperationKind.DELETE_INSTANCES,
                other,
                3,
                2,
                dead.handle,
                op="b-0123456789abcdef",
            ),
        ),
        Succeeded,
    )
    bench.settle()
    assert (bench.machines(other), sizes(bench, own, other)) == (before, [3, 2])


@pytest.mark.parametrize("marked", [1, 3])
def test_CCE_A8_3_protected_nodes_survive(bench: HuaweiBench, marked: int) -> None:
    """CCE reports only the number of protected nodes: where all are
    protected, none may be removed."""
    own, _ = two_groups(bench)
    machines = bench.machines(own)
    for uid in machines[:marked]:
        node = bench.cloud.node(uid)
        assert node is not None
        node.protected = True
    outcome = tried(bench, order(bench, OperationKind.DELETE_NODES, own, 3, 1, *machines[1:]))
    if marked == 3:
        assert isinstance(outcome, Failed | ProviderError)
    assert machines[0] in bench.machines(own)


def test_huawei_deletion_with_a_lost_answer_lowers_the_size_once(bench: HuaweiBench) -> None:
    own, other = two_groups(bench)
    first, second, third = bench.machines(own)
    bench.server.faults.next(VendorFault.LOST_ANSWER, on="delete-node")
    operation = order(bench, OperationKind.DELETE_NODES, own, 3, 1, first, second)
    assert isinstance(drive(bench, operation), Succeeded)
    assert isinstance(drive(bench, operation), Succeeded), "a message that comes twice"
    bench.settle()
    assert (bench.machines(own), sizes(bench, own, other)) == ([third], [1, 2])


def test_huawei_node_deleted_by_others_counts_as_removed(bench: HuaweiBench) -> None:
    own, _ = two_groups(bench)
    first, second, third = bench.machines(own)
    operation = order(bench, OperationKind.DELETE_NODES, own, 3, 1, first, second)
    bench.cloud.vanish(first)
    assert isinstance(drive(bench, operation), Succeeded)
    assert third in bench.machines(own)
    assert not [
        call for call in bench.look() if call.operation == "delete-node" and first in call.path
    ]


def test_huawei_conflicts_and_limits_are_retried_without_a_failure(bench: HuaweiBench) -> None:
    own, other = two_groups(bench)
    for fault in (VendorFault.CONFLICT, VendorFault.THROTTLED, VendorFault.THROTTLED_FOR):
        bench.server.faults.next(fault, on="write")
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, other, 2, 4)), Succeeded)
    assert (sizes(bench, own, other), leaving(bench)) == ([3, 4], [])
    assert {
        json.loads(call.body)["spec"]["desiredNodeCount"]
        for call in bench.server.log
        if call.operation == "scale-pool"
    } == {7}


def test_huawei_shared_cache_reduces_the_calls_of_a_scale_up(bench: HuaweiBench) -> None:
    bench.shared_cache = shared_cache(bench)
    _, other = two_groups(bench)
    seen(bench, other)
    bench.look()
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, other, 2, 4)), Succeeded)
    calls = [call.operation for call in bench.look()]
    assert len(calls) <= 14, calls
    assert Conflict.__name__ not in {call.code for call in bench.server.log}
