"""One emulated AWS for all functional tests of a worker, one table per module, one app client per test."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from chalicelib.runtime.log import logger
from chalicelib.runtime.runtime import install
from infra.emulators.aws import LocalAws
from tests.functional.app_client import AppClient, Premises


@pytest.fixture(scope="session")
def aws() -> Iterator[LocalAws]:
    """The emulated account."""
    with LocalAws() as running:
        yield running


@pytest.fixture(scope="module")
def premises(aws: LocalAws) -> Iterator[Premises]:
    """The objects that a module's app clients share."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in aws.env.items():
            patch.setenv(name, value)
        yield Premises(aws)


@pytest.fixture
def desk(premises: Premises) -> Iterator[AppClient]:
    """The deployment that a test calls; it is this process's runtime while the test runs."""
    opened = premises.desk()
    install(opened.runtime)
    yield opened
    install(None)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """The functions' log, as lines for CloudWatch."""
    kept = io.StringIO()
    handler = logging.StreamHandler(kept)
    handler.setFormatter(logger.registered_formatter)
    lines = logging.getLogger(logger.name)
    lines.addHandler(handler)
    yield kept
    lines.removeHandler(handler)
