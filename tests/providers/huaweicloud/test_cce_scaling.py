"""Scale-up, deletion and target decrease over HTTP: absolute totals, other writers, lost
answers.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.kit.errors import ProviderError
from infra.emulators.huaweicloud.models import DEFAULT, SOLD_OUT, CcePool, ScaleGroup
from infra.emulators.vendor_common.fault_injection import VendorFault
from infra.emulators.vendor_common.http_messages import Answer, Incoming
from tests.providers.huaweicloud.fixture import HuaweiBench, carried, drive, order, scalings, tried


def two_groups(
    bench: HuaweiBench, own: int = 3, other: int = 2, *, most: int = 20
) -> tuple[str, str]:
    """A pool with two groups of ours: `default` and `az2`."""
    pool = bench.cloud.add_pool(bench.cluster, "web", size=own, most=most)
    bench.cloud.add_group(pool.uid, "az2", size=other)
    return f"{pool.uid}/{DEFAULT}", f"{pool.uid}/az2"


def sizes(bench: HuaweiBench, *groups: str) -> list[int]:
    return [bench.target(group) for group in groups]


def leaving(bench: HuaweiBench) -> list[str]:
    return [node.uid for pool in bench.cloud.pools() for node in pool.all_nodes() if node.leaves]


def raise_by(group: ScaleGroup, count: int) -> None:
    """Raises the pool as another user does in CCE's console."""
    group.desired += count


def step(bench: HuaweiBench, operation: Operation) -> tuple[Outcome | ProviderError, Operation]:
    """Makes one call; returns the operation as the table stores it then."""
    outcome = tried(bench, operation)
    return outcome, carried(operation, outcome) if isinstance(outcome, InProgress) else operation


# -- scale-up


def test_CCE_18_scale_up_names_the_pool_total_and_its_own_group(bench: HuaweiBench) -> None:
    own, other = two_groups(bench)
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, other, 2, 4))
    assert isinstance(outcome, Succeeded)
    assert outcome.facts["created"] == 2
    assert scalings(bench) == [(7, ["az2"])]
    assert (sizes(bench, own, other), leaving(bench)) == ([3, 4], [])


@pytest.mark.parametrize(
    "fault",
    [
        VendorFault.LOST_ANSWER,
        VendorFault.CUT_OFF,
        VendorFault.WEB_PAGE,
        VendorFault.HANGS_UP,
        VendorFault.SERVER_ERROR,
    ],
)
def test_CCE_18_timed_out_scale_up_reads_before_it_retries(
    bench: HuaweiBench, fault: VendorFault
) -> None:
    own, other = two_groups(bench)
    bench.server.faults.next(fault, on="scale-pool")
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, other, 2, 4)), Succeeded)
    got_through = fault in (VendorFault.LOST_ANSWER, VendorFault.CUT_OFF)
    assert scalings(bench) == [(7, ["az2"])] * (1 if got_through else 2)
    assert (sizes(bench, own, other), leaving(bench)) == ([3, 4], [])


@pytest.mark.parametrize("arrives", [True, False])
def test_CCE_18_another_writers_increase_is_never_undone(bench: HuaweiBench, arrives: bool) -> None:
    """Another user raises the pool to 9 while our answer is in flight, or before we retry."""
    own, other = two_groups(bench)
    bench.server.faults.next(
        VendorFault.LOST_ANSWER if arrives else VendorFault.HANGS_UP, on="scale-pool"
    )
    operation = order(bench, OperationKind.SCALE_UP, other, 2, 4)
    for _ in range(3):
        outcome, operation = step(bench, operation)
        if isinstance(outcome, ProviderError):
            break
    raise_by(bench.group(own), 4)
    assert isinstance(drive(bench, operation), Succeeded)
    totals = [total for total, _ in scalings(bench)]
    assert totals == ([7] if arrives else [7, 11])
    assert (sizes(bench, own, other), leaving(bench)) == ([7, 4], [])


def test_CCE_18_scale_up_adds_to_another_writers_earlier_increase(bench: HuaweiBench) -> None:
    own, other = two_groups(bench)
    outcome, operation = step(bench, order(bench, OperationKind.SCALE_UP, other, 2, 4))
    assert isinstance(outcome, InProgress)
    assert scalings(bench) == [], "the first call only announces"
    raise_by(bench.group(own), 4)
    assert isinstance(drive(bench, operation), Succeeded)
    assert scalings(bench) == [(11, ["az2"])]
    assert (sizes(bench, own, other), leaving(bench)) == ([7, 4], [])


def test_CCE_18_another_writers_increase_of_our_group_is_left_unchanged(bench: HuaweiBench) -> None:
    own, other = two_groups(bench)
    outcome, operation = step(bench, order(bench, OperationKind.SCALE_UP, other, 2, 4))
    assert isinstance(outcome, InProgress)
    raise_by(bench.group(other), 1)
    failed = drive(bench, operation)
    assert isinstance(failed, Failed)
    assert (failed.error_class, scalings(bench), sizes(bench, own, other)) == (
        "Conflict",
        [],
        [3, 3],
    )


def test_CCE_DANGER_1_pool_is_the_last_thing_read_before_scaling(bench: HuaweiBench) -> None:
    """Any call in between is time in which another writer may raise the pool."""
    own, other = two_groups(bench)
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, other, 2, 4)), Succeeded)
    bench.group(own).fates += [SOLD_OUT] * 9
    assert isinstance(
        drive(bench, order(bench, OperationKind.SCALE_UP, own, 3, 4, op="b-0123456789abcdef")),
        Failed,
    )
    assert isinstance(
        drive(
            bench, order(bench, OperationKind.DECREASE_TARGET, own, 4, 3, op="c-0123456789abcdef")
        ),
        Succeeded,
    )
    log = bench.server.log
    before = [log[at - 1] for at, call in enumerate(log) if call.operation == "scale-pool"]
    assert [call.operation for call in before] == ["show-pool"] * 3


def test_CCE_DANGER_1_total_is_never_omitted_or_below_the_existing_size(bench: HuaweiBench) -> None:
    own, other = two_groups(bench)
    drive(bench, order(bench, OperationKind.SCALE_UP, own, 3, 5, op="a-0123456789abcdef"))
    bench.group(other).fates += [SOLD_OUT] * 9
    drive(bench, order(bench, OperationKind.SCALE_UP, other, 2, 5, op="b-0123456789abcdef"))
    drive(bench, order(bench, OperationKind.DECREASE_TARGET, other, 5, 2, op="c-0123456789abcdef"))
    drive(bench, order(bench, OperationKind.DECREASE_TARGET, other, 2, 1, op="d-0123456789abcdef"))
    assert scalings(bench) == [(7, [DEFAULT]), (10, ["az2"]), (7, ["az2"])]
    assert (sizes(bench, own, other), leaving(bench)) == ([5, 2], [])


def test_CCE_DANGER_2_no_put_is_ever_sent(bench: HuaweiBench) -> None:
    """The changes that a pass can request need no PUT."""
    own, other = two_groups(bench)
    drive(bench, order(bench, OperationKind.SCALE_UP, own, 3, 5))
    drive(
        bench,
        order(
            bench,
            OperationKind.DELETE_NODES,
            other,
            2,
            1,
            bench.machines(other)[0],
            op="b-0123456789abcdef",
        ),
    )
    assert not [call for call in bench.server.log if call.method == "PUT"]


def test_huawei_interleaved_scale_ups_of_one_pool_both_get_all_nodes(bench: HuaweiBench) -> None:
    own, other = two_groups(bench)
    first = order(bench, OperationKind.SCALE_UP, own, 3, 5, op="a-0123456789abcdef")
    second = order(bench, OperationKind.SCALE_UP, other, 2, 5, op="b-0123456789abcdef")
    _, first = step(bench, first)
    _, second = step(bench, second)  # both have sent a total computed from the same reading
    _, first = step(bench, first)
    _, second = step(bench, second)
    assert isinstance(drive(bench, second), Succeeded)
    assert isinstance(drive(bench, first), Succeeded)
    assert (sizes(bench, own, other), leaving(bench)) == ([5, 5], [])
    assert [total for total, _ in scalings(bench)] == [7, 10]


@pytest.mark.parametrize("reading", [1, 2])
def test_huawei_scale_ups_from_one_reading_lose_no_node_and_report_the_loser(
    bench: HuaweiBench, reading: int
) -> None:
    """Another writer's request for the same total arrives right after one of our
    readings, before our request."""
    own, other = two_groups(bench)
    _, operation = step(bench, order(bench, OperationKind.SCALE_UP, other, 2, 4))
    readings: list[str] = []

    def watch(incoming: Incoming, _: Answer) -> None:
        if incoming.method == "GET" and incoming.path.endswith(own.partition("/")[0]):
            readings.append(incoming.path)
            if len(readings) == reading:
                raise_by(bench.group(own), 2)

    bench.server.front.watches.append(watch)
    outcome = drive(bench, operation)
    assert (sizes(bench, own, other), leaving(bench)) == (
        [5, 4] if isinstance(outcome, Succeeded) else [5, 2],
        [],
    )
    assert {total for total, _ in scalings(bench)} <= {7, 9}


@pytest.mark.parametrize("lag", [8.0, 40.0])
def test_huawei_lagging_status_never_buys_twice(bench: HuaweiBench, lag: float) -> None:
    own, other = two_groups(bench)
    bench.cloud.lag = lag
    bench.server.faults.next(VendorFault.LOST_ANSWER, on="scale-pool")
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, other, 2, 4))
    assert isinstance(outcome, Succeeded | Failed)
    assert (sizes(bench, own, other), leaving(bench)) == ([3, 4], [])
    assert scalings(bench) == [(7, ["az2"])]


@pytest.mark.parametrize(("most", "to", "said"), [(6, 4, "of its pool"), (20, 9, "maximum")])
def test_CCE_18_scale_up_past_a_maximum_sends_nothing(
    bench: HuaweiBench, most: int, to: int, said: str
) -> None:
    own, other = two_groups(bench, most=most)
    bench.group(other).most = 6
    failed = drive_quietly(bench, order(bench, OperationKind.SCALE_UP, other, 2, to))
    assert (failed.error_class, said in failed.message, scalings(bench)) == (
        "InvalidRequest",
        True,
        [],
    )
    assert sizes(bench, own, other) == [3, 2]


def drive_quietly(bench: HuaweiBench, operation: Operation) -> Failed:
    """Runs to the end, which must be a failure, raised or returned."""
    try:
        outcome = drive(bench, operation)
    except ProviderError as error:
        return Failed(error.error_class, error.message, error.code)
    assert isinstance(outcome, Failed), outcome
    return outcome


def _known(bench: HuaweiBench, pool: CcePool) -> None:
    bench.cloud.sell_out("c7.xlarge.2", "cn-north-4b", known=True)


def _hinted(bench: HuaweiBench, pool: CcePool) -> None:
    bench.cloud.sell_out("c7.xlarge.2", "cn-north-4b", hinted=True)


def _learnt(bench: HuaweiBench, pool: CcePool) -> None:
    bench.cloud.sell_out("c7.xlarge.2", "cn-north-4b")


def _quota(bench: HuaweiBench, pool: CcePool) -> None:
    bench.cloud.limit = 5


def _late_quota(bench: HuaweiBench, pool: CcePool) -> None:
    bench.cloud.limit, bench.cloud.refuses_quota = 5, False


@pytest.mark.parametrize(
    ("trouble", "cls"),
    [
        (_known, "OutOfStock"),
        (_hinted, "OutOfStock"),
        (_learnt, "OutOfStock"),
        (_quota, "QuotaExceeded"),
        (_late_quota, "QuotaExceeded"),
    ],
)
def test_CCE_A9_1_failed_node_creation_is_reported_with_its_class(
    bench: HuaweiBench, trouble: Callable[[HuaweiBench, CcePool], None], cls: str
) -> None:
    own, other = two_groups(bench)
    trouble(bench, bench.pool(other))
    failed = drive_quietly(bench, order(bench, OperationKind.SCALE_UP, other, 2, 4))
    assert failed.error_class == cls
    assert isinstance(
        drive(bench, order(bench, OperationKind.SCALE_UP, own, 3, 4, op="b-0123456789abcdef")),
        Succeeded,
    ) == (cls != "QuotaExceeded")


@pytest.mark.parametrize("phase", ["Upgrading", "Hibernation", "Unavailable"])
def test_huawei_cluster_that_refuses_orders_is_sent_none(bench: HuaweiBench, phase: str) -> None:
    own, _ = two_groups(bench)
    bench.cloud.clusters[bench.cluster].phase = phase
    for operation in (
        order(bench, OperationKind.SCALE_UP, own, 3, 4),
        order(
            bench,
            OperationKind.DELETE_NODES,
            own,
            3,
            2,
            bench.machines(own)[0],
            op="b-0123456789abcdef",
        ),
    ):
        outcome = tried(bench, operation)
        assert isinstance(outcome, ProviderError | Failed | InProgress)
    bench.look()
    assert not [call for call in bench.server.log if call.writes]


def test_huawei_pool_locked_by_another_order_is_retried(bench: HuaweiBench) -> None:
    own, other = two_groups(bench)
    bench.cloud.holds = 30.0
    first, second = bench.machines(own)[:2]
    assert isinstance(
        drive(bench, order(bench, OperationKind.DELETE_NODES, own, 3, 1, first, second)), Succeeded
    )
    assert isinstance(
        drive(bench, order(bench, OperationKind.SCALE_UP, other, 2, 3, op="b-0123456789abcdef")),
        Succeeded,
    )
    assert sizes(bench, own, other) == [1, 3]
