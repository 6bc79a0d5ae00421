"""Restores global state that tests change."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest

from chalicelib.runtime.log import logger

# Thousands of small worlds are created and dropped; garbage collection after every 700 objects would take a twelfth
# of the run.
gc.set_threshold(200_000, 20, 50)


def pytest_collection_finish() -> None:
    """Modules and collected tests live until the end of the run: full collections need not visit them."""
    gc.freeze()


@pytest.fixture(autouse=True)
def the_functions_log() -> Iterator[None]:
    """Restores the functions' log: worlds with thousands of invocations silence it, and the next test may read it."""
    log = logging.getLogger(logger.name)
    level, handlers = log.level, list(log.handlers)
    yield
    log.setLevel(level)
    log.handlers = handlers
