"""Provides a desk for the emulator's own tests and a bench for the provider's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.providers.huaweicloud.fixture import HuaweiBench
from tests.providers.huaweicloud.wire import ProjectClient


@pytest.fixture
def desk() -> Iterator[ProjectClient]:
    """A project and its API without a network."""
    made = ProjectClient()
    yield made
    assert not made.front.crashes, made.front.crashes


@pytest.fixture
def bench() -> Iterator[HuaweiBench]:
    """An empty cluster."""
    with HuaweiBench() as made:
        yield made
