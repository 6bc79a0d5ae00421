"""One emulated AWS per worker, every scenario once per mode, and a directory in which modes compare their records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.emulators.aws import LocalAws
from tests.scenario.runner import MODES, ScenarioRunner


@pytest.fixture(scope="session")
def aws() -> Iterator[LocalAws]:
    """The emulated account; every world has its own table in it."""
    with LocalAws() as running:
        yield running


@pytest.fixture(scope="session")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory for all workers of this run (pytest-xdist gives each worker a directory in a common one)."""
    base = tmp_path_factory.getbasetemp()
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    made = common / "accounts"
    made.mkdir(exist_ok=True)
    return made


@pytest.fixture(params=MODES)
def stage(request: pytest.FixtureRequest, aws: LocalAws, accounts: Path) -> ScenarioRunner:
    """The runner of a scenario. The restarted mode uses the fast world, so that comparing the modes also compares the
    in-memory table and direct calls with moto and a socket."""
    test = request.node.originalname + "".join(
        f"-{value}" for name, value in sorted(request.node.callspec.params.items()) if name != "stage"
    )
    return ScenarioRunner(None if request.param == "restarted" else aws, test, request.param, accounts)
