"""An empty zone: with the provider's fixture, or as a client sees it on the wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.providers.exoscale.fixture import ExoscaleFixture, opened
from tests.providers.exoscale.wire import ZoneClient


@pytest.fixture
def bench() -> ExoscaleFixture:
    return opened()


@pytest.fixture
def desk() -> Iterator[ZoneClient]:
    """At the end, all traffic must match the vendor's document."""
    made = ZoneClient()
    yield made
    assert not made.front.crashes, made.front.crashes
    assert not made.checker.problems, made.checker.problems
