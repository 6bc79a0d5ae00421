"""Restores global state that tests change."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest
from botocore.loaders import Loader, create_loader

from chalicelib.runtime.log import logger

# Thousands of small worlds are created and dropped; garbage collection after every 700 objects would take a twelfth
# of the run.
gc.set_threshold(200_000, 20, 50)

_loader_caches: dict[str | None, dict[Any, Any]] = {}


def _loader(path: str | None = None) -> Loader:
    """botocore's loader with a cache that all sessions share.

    Every session parses the descriptions of its services, and moto has boto3 begin a session in every test: that took
    half of such a test.
    """
    loader = create_loader(path)
    vars(loader)["_cache"] = _loader_caches.setdefault(path, {})
    return loader


vars(botocore.session)["create_loader"] = _loader


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
