"""SQS on another clock than the wall's: delays and visibility timeouts pass when a test lets time pass.

For the process's whole emulation, as long as the context lasts. Long polls still wait in seconds of the wall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from moto.sqs import models

from infra.emulators.moto_gaps.replacement import original, replace


@contextmanager
def queues_on(clock: Callable[[], float]) -> Iterator[None]:
    """clock: epoch seconds."""
    real = original(models, "unix_time_millis")
    replace(models, unix_time_millis=lambda *given: real(*given) if given else clock() * 1000)
    try:
        yield
    finally:
        replace(models, unix_time_millis=real)
