"""The store's suite runs on moto, or on whatever OUTSCALER_TEST_DYNAMODB names (make test-strict: DynamoDB Local)."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from infra.local.aws import LocalAws, client, create_table, environment
from infra.local.aws_faults import Faults
from infra.local.controllers.clock import ManualClock
from infra.local.dynamodb_local import VARIABLE
from tests.unit.store.support import START, Bench


@pytest.fixture(scope="session")
def dynamodb() -> Iterator[str]:
    """An endpoint, found through the environment as a Lambda finds its own."""
    given = os.environ.get(VARIABLE)
    if given:
        yield given
        return
    with LocalAws() as aws:
        yield aws.endpoint


@pytest.fixture(scope="session")
def connected(dynamodb: str) -> Any:
    """One client for all stores: making one takes longer than most of these tests."""
    return client("dynamodb", dynamodb)


@pytest.fixture(scope="module")
def table(connected: Any) -> str:
    """A table of the module's own: moto copies the whole table for every transaction."""
    name = f"outscaler-{uuid.uuid4().hex}"
    create_table(connected, name)
    return name


@pytest.fixture
def bench(dynamodb: str, connected: Any, table: str, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Stores, a clock and faults, for a cluster that no other test knows."""
    for name, value in environment(dynamodb).items():
        monkeypatch.setenv(name, value)
    return Bench(table, f"cluster-{uuid.uuid4().hex[:12]}", connected, ManualClock(START), Faults())
