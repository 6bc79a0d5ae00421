"""One emulated AWS account for the simulated worlds of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.emulators.aws import LocalAws


@pytest.fixture(scope="session")
def aws() -> Iterator[LocalAws]:
    """The emulated account."""
    with LocalAws() as running:
        yield running
