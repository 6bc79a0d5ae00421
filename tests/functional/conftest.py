"""One emulated AWS for all functional tests of a worker, one table per module, one app client per
test; and an account with empty tables for a test of commands."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from chalicelib.model.policy_permissions import STRICT
from chalicelib.runtime.log import logger
from chalicelib.runtime.runtime import install
from chalicelib.store import Store
from infra.emulators.aws import LocalAws, create_table
from tests.functional.app_client import AppClient, Premises

ACCOUNT_NOW = 1_795_000_000.0  # 2026-11-18T11:06:40Z
ACCOUNT_TABLE = "outscaler-cli"


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An account of its own at a fixed instant: empty tables that the environment names, and a
    deployment's settings without permissions beyond the defaults."""
    for name, value in {
        "AWS_DEFAULT_REGION": "eu-central-2",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "OUTSCALER_TABLE": ACCOUNT_TABLE,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("time.time", lambda: ACCOUNT_NOW)
    with mock_aws():
        create_table(boto3.client("dynamodb"), ACCOUNT_TABLE)
        store = Store(ACCOUNT_TABLE, clock=lambda: ACCOUNT_NOW)
        store.deployment_settings().publish(STRICT)
        yield store


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
