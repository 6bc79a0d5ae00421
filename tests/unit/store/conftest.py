"""The store's suite runs on moto and on infra/emulators/dynamodb, or on what OUTSCALER_TEST_DYNAMODB names instead
(make test-strict: Amazon's DynamoDB Local).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from infra.emulators.aws import LocalAws, client, create_table, environment
from infra.emulators.aws_faults import Faults
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.dynamodb.client import MemoryClient
from infra.emulators.dynamodb.tables import Tables
from infra.emulators.dynamodb_local import VARIABLE
from infra.emulators.in_process_botocore import DirectWay
from tests.unit.store.support import START, Bench

NOWHERE = "http://127.0.0.1:9"  # the table in memory has no address
KINDS = (os.environ[VARIABLE],) if VARIABLE in os.environ else ("moto", "memory")


@pytest.fixture(scope="session", params=KINDS, ids=lambda kind: "strict" if "://" in kind else kind)
def connected(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One client for all stores: making one takes longer than most of these tests."""
    if request.param == "memory":
        yield MemoryClient(Tables(), checked=True)
    elif request.param == "moto":
        with LocalAws() as aws:  # and no socket on the way to it, which takes longer than moto (test_local_aws.py)
            yield DirectWay().take(client("dynamodb", aws.endpoint))
    else:
        yield client("dynamodb", request.param)


@pytest.fixture(scope="module")
def table(connected: Any) -> str:
    """A table of the module's own: moto copies the whole table for every transaction."""
    name = f"outscaler-{uuid.uuid4().hex}"
    create_table(connected, name)
    return name


@pytest.fixture
def bench(connected: Any, table: str, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Stores, a clock and faults, for a cluster that no other test knows."""
    for name, value in environment(getattr(connected.meta, "endpoint_url", NOWHERE)).items():
        monkeypatch.setenv(name, value)
    return Bench(table, f"cluster-{uuid.uuid4().hex[:12]}", connected, ManualClock(START), Faults())
