"""One emulated AWS per worker, every scenario once per mode, and a directory in which
modes compare their records.
"""

from __future__ import annotations

import os
import zlib
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
    """One directory for all workers of this run (pytest-xdist gives each worker a
    directory in a common one)."""
    base = tmp_path_factory.getbasetemp()
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    made = common / "accounts"
    made.mkdir(exist_ok=True)
    return made


_ONE_OF = 6
"""`make test` runs one scenario of so many on moto."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark most scenarios on moto as slow. The choice depends on the name only: it is
    the same in all workers."""
    for item in items:
        if "on-moto" in item.name and zlib.crc32(item.name.encode()) % _ONE_OF:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=MODES)
def stage(request: pytest.FixtureRequest, accounts: Path) -> ScenarioRunner:
    """The runner of a scenario."""
    test = request.node.originalname + "".join(
        f"-{value}"
        for name, value in sorted(request.node.callspec.params.items())
        if name != "stage"
    )
    aws = request.getfixturevalue("aws") if request.param == "on-moto" else None
    return ScenarioRunner(aws, test, request.param, accounts)
