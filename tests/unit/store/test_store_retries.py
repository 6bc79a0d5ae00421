"""Requests that DynamoDB asks to retry are retried a limited number of times,
without duplicate effects.
"""

from __future__ import annotations

import pytest

from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.store import Store
from chalicelib.store.errors import LeaseLost, StoreThrottled, StoreUnavailable
from chalicelib.store.table_client import ATTEMPTS, LONGEST_WAIT
from infra.emulators.aws_faults import busy, cancelled
from tests.unit.store.support import StoreFixture

AFTER = Memory(groups={"g": GroupMemory(target=3)})

BUSY = [
    cancelled("None", "TransactionConflict"),
    cancelled("ThrottlingError", "None"),
    cancelled("None", "ProvisionedThroughputExceeded"),
    busy("ThrottlingException"),
    busy("Throttling"),
    busy("ProvisionedThroughputExceededException"),
    busy("TransactionInProgressException"),
    busy("RequestLimitExceeded"),
    busy("LimitExceededException"),
]


@pytest.mark.parametrize("error", BUSY, ids=lambda error: str(error.response)[:70])
def test_dynamodb_save_is_retried(bench: StoreFixture, error: Exception) -> None:
    bench.faults.instead("transact_write_items", error, error)
    bench.save(Memory(), AFTER)
    assert bench.load() == AFTER
    assert len(bench.waits) == 2


@pytest.mark.parametrize("code", ["TransactionConflictException", "ThrottlingException"])
def test_dynamodb_single_writes_and_reads_are_retried(bench: StoreFixture, code: str) -> None:
    for method in ("update_item", "query", "get_item"):
        bench.faults.instead(method, busy(code))
    bench.lease()
    assert bench.load() == Memory()
    assert len(bench.waits) == 3


def test_dynamodb_retries_are_bounded(bench: StoreFixture) -> None:
    bench.faults.instead("transact_write_items", *[cancelled("TransactionConflict")] * ATTEMPTS)
    lease = bench.lease()
    with pytest.raises(StoreThrottled):
        bench.store.memory.save(bench.cluster, Memory(), AFTER, (), lease)
    assert bench.load() == Memory()
    assert len(bench.waits) == ATTEMPTS - 1
    assert bench.waits == sorted(bench.waits)
    assert bench.waits[-1] <= LONGEST_WAIT


def test_dynamodb_failed_condition_is_an_answer_even_among_conflicts(bench: StoreFixture) -> None:
    bench.faults.instead(
        "transact_write_items", cancelled("ConditionalCheckFailed", "TransactionConflict")
    )
    lease = bench.lease()
    with pytest.raises(LeaseLost):
        bench.store.memory.save(bench.cluster, Memory(), AFTER, (), lease)
    assert bench.waits == []


def test_dynamodb_other_errors_are_not_retried_and_quote_the_service(bench: StoreFixture) -> None:
    bench.faults.instead("query", busy("AccessDeniedException"))
    with pytest.raises(StoreUnavailable, match="AccessDenied"):
        bench.load()
    assert bench.waits == []


def test_dynamodb_endpoint_without_an_answer_is_unavailable(bench: StoreFixture) -> None:
    store = Store(bench.table, clock=bench.clock, endpoint="http://127.0.0.1:9")
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:9"):
        store.policies.current("x")


def test_dynamodb_missing_table_is_unavailable(bench: StoreFixture) -> None:
    with pytest.raises(StoreUnavailable, match="ResourceNotFound"):
        Store("no-such-table", clock=bench.clock, client=bench.client).policies.current("x")


def test_dynamodb_unprocessed_keys_of_a_batch_are_requested_again(bench: StoreFixture) -> None:
    """DynamoDB may omit keys of a batch under load; the test also covers more than 100 keys."""
    groups = [("clusterapi", f"g{n}") for n in range(130)]
    bench.store.group_ownership.claim_groups(bench.cluster, groups)
    try:
        assert bench.store.group_ownership.claim_groups("other", groups) == dict.fromkeys(
            groups, bench.cluster
        )
    finally:
        bench.store.group_ownership.release(bench.cluster, groups)
