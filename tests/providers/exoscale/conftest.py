"""Provides a desk for the emulator's own tests and a bench for the provider's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.providers.exoscale.fixtures import ZoneClient
from tests.providers.provider_fixtures.exoscale import ExoscaleBench


@pytest.fixture
def desk() -> Iterator[ZoneClient]:
    """A zone and its API without a network. At the end, all traffic must
    match the vendor's document."""
    made = ZoneClient()
    yield made
    assert not made.front.crashes, made.front.crashes
    assert not made.checker.problems, made.checker.problems


@pytest.fixture
def bench() -> Iterator[ExoscaleBench]:
    """An empty zone."""
    with ExoscaleBench() as made:
        yield made
