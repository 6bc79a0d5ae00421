"""A gauge of a pass whose measurements a test sets: memory is not measured in an emulated world."""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.model.errors import MemoryExceeded
from chalicelib.model.pass_footprint import Reading
from chalicelib.runtime.memory_usage import READING, MemoryGauge


class ScriptedGauge(MemoryGauge):
    """A gauge that reports the measurements set by the test. reads: MB that the process has while it reads."""

    def __init__(self, takes: Callable[[], Reading | None], reads: Callable[[], int]) -> None:
        super().__init__(None)
        self._takes, self._reads = takes, reads

    def begin(self) -> None:
        """See MemoryGauge."""

    def check(self, size: int) -> None:
        """See MemoryGauge."""
        if self._reads() > size * READING:
            raise MemoryExceeded(f"the cluster's lists need more than {size * READING:.0f} MB of {size} MB")

    def end(self) -> Reading | None:
        """See MemoryGauge."""
        return self._takes()
