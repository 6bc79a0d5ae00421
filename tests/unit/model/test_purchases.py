"""The purchases of a scale-up request (docs/reference/node-groups.md "Scale-up requests")."""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import GroupMemory, PurchaseRow, ScaleUpRequest
from chalicelib.model.operation import AwaitedPods
from chalicelib.model.pod import Owner, PodClass
from chalicelib.model.purchases import (
    MOST_AWAITED,
    MOST_AWAITED_TOGETHER,
    MOST_PURCHASES,
    after_shrink,
    awaited_pods,
    request_of,
    still_missing,
    with_purchase,
    without_failed,
)

FIRST, SECOND = PurchaseRow(3, 100.0, 1000.0, 90.0), PurchaseRow(5, 200.0, 1100.0, 190.0)


class _EarlierRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What earlier releases know of a request."""

    increase: int
    since: float
    expected_at: float


def test_request_of_an_earlier_release_is_one_purchase() -> None:
    stored = msgspec.json.encode(
        {"target": 4, "request": {"increase": 3, "since": 100.0, "expected_at": 1000.0}}
    )
    request = msgspec.json.decode(stored, type=GroupMemory).request
    assert request is not None
    assert request.purchases == (PurchaseRow(3, 100.0, 1000.0),)
    assert request_of(request.purchases) == request


def test_earlier_release_reads_the_sum_with_the_dates_of_the_last_purchase() -> None:
    stored = msgspec.json.encode(request_of([FIRST, SECOND]))
    assert msgspec.json.decode(stored, type=_EarlierRequest) == _EarlierRequest(8, 200.0, 1100.0)
    assert msgspec.json.decode(stored, type=ScaleUpRequest).purchases == (FIRST, SECOND)


def test_request_that_an_earlier_release_has_changed_is_one_purchase() -> None:
    mixed = ScaleUpRequest(9, 300.0, 1200.0, (FIRST, SECOND))
    assert mixed.purchases == (PurchaseRow(9, 300.0, 1200.0),)


def test_nodes_that_join_fulfil_the_oldest_purchase_first() -> None:
    assert still_missing([FIRST, SECOND], 8) == (3, 5)
    assert still_missing([FIRST, SECOND], 6) == (1, 5)
    assert still_missing([FIRST, SECOND], 2) == (0, 2)
    assert still_missing([FIRST, SECOND], -1) == (0, 0)
    assert still_missing([FIRST, SECOND], 20) == (3, 5), "somebody else has raised the target"


def test_failed_instance_belongs_to_the_newest_purchase_that_is_older() -> None:
    assert without_failed([FIRST, SECOND], [95.0]) == (
        msgspec.structs.replace(FIRST, count=2),
        SECOND,
    )
    assert without_failed([FIRST, SECOND], [190.5]) == (
        FIRST,
        msgspec.structs.replace(SECOND, count=4),
    )
    assert without_failed([FIRST, SECOND], [10.0]) == (
        msgspec.structs.replace(FIRST, count=2),
        SECOND,
    )
    assert without_failed([FIRST, SECOND], [500.0] * 6) == (
        msgspec.structs.replace(FIRST, count=2),
    )
    assert without_failed([FIRST], [500.0] * 9) == ()


def test_purchases_beyond_the_limit_are_one_row_and_the_oldest_keeps_its_date() -> None:
    request: ScaleUpRequest | None = None
    for at in range(3 * MOST_PURCHASES):
        request = with_purchase(request, PurchaseRow(1, 100.0 + at, 1000.0 + at, 90.0 + at))
    assert request is not None
    rows = request.purchases
    assert (len(rows), request.increase) == (MOST_PURCHASES, 3 * MOST_PURCHASES)
    assert [row.expected_at for row in rows[:3]] == [1000.0, 1001.0, 1002.0]
    assert (rows[-1].count, rows[-1].expected_at) == (2 * MOST_PURCHASES + 1, request.expected_at)
    assert rows[-1].planned_at == 90.0 + MOST_PURCHASES - 1, (
        "its oldest instances are no stranger's"
    )


def test_pods_of_a_purchase_are_bounded_and_the_rest_is_summed() -> None:
    classes = [
        PodClass("default", {}, {}, Owner("ReplicaSet", f"rs-{at}", "u")) for at in range(60)
    ]
    pods, more = awaited_pods({at: at + 1 for at in range(60)}, classes)
    assert (len(pods), pods[0].owner, pods[0].count) == (
        MOST_AWAITED,
        "default/ReplicaSet/rs-59",
        60,
    )
    assert more == sum(range(1, 11))
    request: ScaleUpRequest | None = None
    for at in range(MOST_PURCHASES + 5):
        request = with_purchase(request, PurchaseRow(1, float(at), at + 900.0, 0.0, pods, more))
    assert request is not None
    rows = request.purchases
    assert sum(len(row.pods) for row in rows) <= MOST_AWAITED_TOGETHER
    everything = sum(entry.count for row in rows for entry in row.pods) + sum(
        row.more_pods for row in rows
    )
    assert everything == (MOST_PURCHASES + 5) * sum(range(1, 61))


def test_same_pods_of_merged_purchases_are_one_entry() -> None:
    web = AwaitedPods("default/ReplicaSet/web", "0", 2)
    request: ScaleUpRequest | None = None
    for at in range(MOST_PURCHASES + 1):
        request = with_purchase(request, PurchaseRow(1, float(at), at + 900.0, 0.0, (web,)))
    assert request is not None
    assert request.purchases[-1].pods == (AwaitedPods("default/ReplicaSet/web", "0", 4),)


def test_lowered_target_ends_what_was_given_up_and_then_the_oldest_purchases() -> None:
    request = request_of([FIRST, SECOND], given_up=2)
    assert after_shrink(request, 2) == request_of([FIRST, SECOND])
    assert after_shrink(request, 6) == request_of([msgspec.structs.replace(SECOND, count=4)])
    assert after_shrink(request, 10) is None
    assert after_shrink(None, 3) is None
