"""What all providers of a bench share, as all functions of a deployment do: the budget of calls, in a table."""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.store import Store
from chalicelib.store.rate_limits import Paces
from infra.emulators.aws import create_table
from infra.emulators.dynamodb.client import MemoryClient
from infra.emulators.dynamodb.tables import Tables


def shared(clock: Callable[[], float]) -> Paces:
    """A pacer of its own table."""
    return _store(clock).paces


def _store(clock: Callable[[], float]) -> Store:
    client = MemoryClient(Tables())
    create_table(client, "suite")
    return Store("suite", clock=clock, client=client, region="eu-west-1", sleep=lambda _: None, chance=lambda: 0.5)
