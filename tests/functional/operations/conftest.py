"""One emulated DynamoDB for all tests of the act function, one table per module, one harness per test."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.store import Store
from infra.emulators.aws import LocalAws, create_table, environment
from tests.functional.operations.harness import OperationHarness


@pytest.fixture(scope="session")
def dynamodb() -> Iterator[Any]:
    """The client that a store creates for itself, created once, because its creation takes longer than most of these
    tests."""
    with LocalAws() as aws, pytest.MonkeyPatch.context() as patch:
        for name, value in aws.env.items():
            patch.setenv(name, value)
        yield Store("none", clock=time.time).table.client


@pytest.fixture(scope="module")
def table(dynamodb: Any) -> str:
    name = f"acting-{uuid.uuid4().hex}"
    create_table(dynamodb, name)
    return name


@pytest.fixture
def stage(dynamodb: Any, table: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[OperationHarness]:
    for name, value in environment(dynamodb.meta.endpoint_url).items():
        monkeypatch.setenv(name, value)
    made = OperationHarness(table, dynamodb)
    with made.server:
        made.policy()
        yield made
