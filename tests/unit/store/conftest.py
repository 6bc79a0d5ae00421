"""The store's suite runs on the table in memory and on moto, or on the endpoint in
OUTSCALER_TEST_DYNAMODB (make test-strict: Amazon's DynamoDB Local).

moto takes twelve times the time. The table's contract always runs on both, since it shows that they
answer alike; all others run on moto in `make test-slow`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from infra.emulators.aws import client, environment
from infra.emulators.aws_faults import AwsFaults
from infra.emulators.aws_services import in_process
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.memory_table import MemoryAccount
from tests.unit.store.support import KINDS, START, StoreFixture, new_table

ALWAYS_ON_MOTO = frozenset({"test_table_contract.py", "test_store_tables.py"})
NOWHERE = "http://127.0.0.1:9"  # the table in memory has no address


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks the tests on moto as slow."""
    parameters = (
        item.callspec.params
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else {}
    )
    if parameters.get("connected") == "moto" and item.path.name not in ALWAYS_ON_MOTO:
        item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", params=KINDS, ids=lambda kind: "strict" if "://" in kind else kind)
def connected(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One client for all stores: creating one takes longer than most of these tests."""
    if request.param == "memory":
        yield MemoryAccount()
    elif request.param == "moto":
        yield in_process("dynamodb")
    else:
        yield client("dynamodb", request.param)


@pytest.fixture(scope="module")
def table(connected: Any) -> str:
    """One table per module, because moto copies the whole table for every transaction."""
    return new_table(connected)


@pytest.fixture
def bench(connected: Any, table: str, monkeypatch: pytest.MonkeyPatch) -> StoreFixture:
    """Stores, a clock and faults, for a cluster name that no other test uses."""
    for name, value in environment(getattr(connected.meta, "endpoint_url", NOWHERE)).items():
        monkeypatch.setenv(name, value)
    return StoreFixture(
        table, f"cluster-{uuid.uuid4().hex[:12]}", connected, ManualClock(START), AwsFaults()
    )
