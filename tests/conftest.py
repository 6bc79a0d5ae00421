"""Restores global state that tests change."""

from __future__ import annotations

import gc
import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

import botocore.session
import pytest
from botocore.loaders import Loader, create_loader

from chalicelib.runtime.log import logger

# Thousands of small worlds are created and dropped; garbage collection after every 700 objects
# would take a twelfth of the run.
gc.set_threshold(200_000, 20, 50)

_LONGEST, _AGAIN = 3600.0, 60.0
"""Seconds after which a test is ended, and again, where the end of the test waits as well."""
_UNLIMITED = frozenset({"slow", "more", "strict"})
_loader_caches: dict[str | None, dict[Any, Any]] = {}


def _loader(path: str | None = None) -> Loader:
    """botocore's loader with a cache that all sessions share.

    Every session parses the descriptions of its services, and moto has boto3 begin a session in
    every test: that took half of such a test.
    """
    loader = create_loader(path)
    vars(loader)["_cache"] = _loader_caches.setdefault(path, {})
    return loader


vars(botocore.session)["create_loader"] = _loader


def pytest_collection_finish() -> None:
    """Modules and collected tests live until the end of the run: full
    collections need not visit them."""
    gc.freeze()


class TestTooLong(BaseException):
    """A wait of a test has no end. Nothing that handles errors handles it."""

    __test__ = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Ends a test that waits for ever, so that the run ends: on a machine however
    busy, none takes so long."""
    if not _may_set_alarm() or _UNLIMITED & {mark.name for mark in item.iter_markers()}:
        return (yield)
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, _LONGEST, _AGAIN)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _may_set_alarm() -> bool:
    """Signals reach the main thread alone, and another program may have set an alarm already."""
    is_main = threading.current_thread() is threading.main_thread()
    return (
        is_main
        and hasattr(signal, "setitimer")
        and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    )


def _too_long(number: int, frame: object) -> NoReturn:
    raise TestTooLong(f"the test was not over after {_LONGEST:.0f} s")


@pytest.fixture(autouse=True)
def the_functions_log() -> Iterator[None]:
    """Restores the functions' log: worlds with thousands of invocations silence it, and
    the next test may read it."""
    log = logging.getLogger(logger.name)
    level, handlers = log.level, list(log.handlers)
    yield
    log.setLevel(level)
    log.handlers = handlers
