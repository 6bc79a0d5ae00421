"""A table in memory and a harness for each test of the act function; a few
use moto's table instead.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from chalicelib.store import Store
from infra.emulators.aws import LocalAws
from infra.emulators.memory_table import MemoryAccount
from tests.functional.operations.harness import OperationHarness


@pytest.fixture
def new_store() -> Callable[..., Store]:
    """Creates a store on the table of this test; arguments: those of Store."""
    return partial(MemoryAccount().store, "acting")


@pytest.fixture
def stage(new_store: Callable[..., Store]) -> Iterator[OperationHarness]:
    yield from _staged(new_store)


@pytest.fixture
def moto_stage(aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[OperationHarness]:
    """A harness whose table the commands find in the environment."""
    for name, value in aws.env.items():
        monkeypatch.setenv(name, value)
    table = f"acting-{uuid.uuid4().hex}"
    aws.create_table(table)
    yield from _staged(partial(Store, table, client=aws.client("dynamodb")))


def _staged(new_store: Callable[..., Store]) -> Iterator[OperationHarness]:
    made = OperationHarness(new_store)
    with made.server:
        made.policy()
        yield made
