"""SQS with a clock other than the wall clock: delays and visibility timeouts elapse when a test advances the time.

It applies to the whole emulation of the process while the context is active. Long polls still wait in wall seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from moto.sqs import models

from infra.emulators.moto_gaps.replacement import original, replace


@contextmanager
def queues_on(clock: Callable[[], float]) -> Iterator[None]:
    """Use a clock for the queues. clock: epoch seconds."""
    real = original(models, "unix_time_millis")
    replace(models, unix_time_millis=lambda *given: real(*given) if given else clock() * 1000)
    try:
        yield
    finally:
        replace(models, unix_time_millis=real)
