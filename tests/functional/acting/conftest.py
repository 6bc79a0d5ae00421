"""One emulated DynamoDB for all tests of the act function, one table per module, one stage per test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from infra.local.aws import LocalAws, client, create_table, environment
from tests.functional.acting.stage import Stage


@pytest.fixture(scope="session")
def dynamodb() -> Iterator[str]:
    with LocalAws() as aws:
        yield aws.endpoint


@pytest.fixture(scope="module")
def table(dynamodb: str) -> str:
    name = f"acting-{uuid.uuid4().hex}"
    create_table(client("dynamodb", dynamodb), name)
    return name


@pytest.fixture
def stage(dynamodb: str, table: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    for name, value in environment(dynamodb).items():
        monkeypatch.setenv(name, value)
    made = Stage(table)
    with made.server:
        made.policy()
        yield made
