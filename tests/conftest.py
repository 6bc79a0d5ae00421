"""What every test leaves behind as it found it."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest

from chalicelib.runtime.log import logger

# Thousands of small worlds are made and dropped; looking for cycles after every 700 objects takes a twelfth of it.
gc.set_threshold(200_000, 20, 50)


def pytest_collection_finish() -> None:
    """Modules and collected tests live until the end of the run: full collections need not visit them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def the_functions_log() -> Iterator[None]:
    """Worlds that play thousands of invocations silence the functions' log; the next test may want to read it."""
    log = logging.getLogger(logger.name)
    level, handlers = log.level, list(log.handlers)
    yield
    log.setLevel(level)
    log.handlers = handlers
