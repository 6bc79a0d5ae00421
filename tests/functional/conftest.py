"""One emulated AWS for all functional tests of a worker, one table per module, one app client per test."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from botocore.loaders import JSONFileLoader

from chalicelib.runtime.log import logger
from chalicelib.runtime.runtime import install
from infra.emulators.aws import LocalAws
from tests.functional.app_client import AppClient, Premises

_load_file = cache(JSONFileLoader().load_file)


@pytest.fixture(scope="session", autouse=True)
def descriptions_read_once() -> Iterator[None]:
    """Commands make a session each, and botocore parses its descriptions of AWS in every session: a tenth of the CPU
    time of these tests."""

    def load_file(self: JSONFileLoader, file_path: str) -> Any:
        return _load_file(file_path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", load_file)
        yield


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
