"""Closes the emulated vendors that a test has opened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.providers.emulated import OPENED


@pytest.fixture(autouse=True)
def _closed_vendors() -> Iterator[None]:
    """Fails for an error of an emulator, and for a request that the vendor does not document."""
    yield
    with OPENED:
        """Its exit closes what was opened, in reverse order."""
