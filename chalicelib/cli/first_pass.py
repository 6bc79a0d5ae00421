"""Waits for the next pass of clusters: `outscaler apply --wait`, and the end of `make deploy`.

A pass is stored when it has ended, with a decision or with a failure. That it appears shows that
the schedule or a message started it, that its function runs, and that the tables can be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from chalicelib import DOCS
from chalicelib.model.errors import OutscalerError
from chalicelib.reasons.words import counted

if TYPE_CHECKING:
    from chalicelib.store import Store
    from chalicelib.store.leases import ScanState

LONGEST = 150.0
"""Seconds to wait: the schedule starts a pass within a minute, and the pass may take another."""
EVERY = 2.0
"""Seconds between two looks."""
MOST_LINES = 10
"""Clusters with a line of their own."""


class FirstPass(msgspec.Struct, frozen=True):
    """The next pass of a cluster. seconds: of waiting for it; None where none ended in time.
    failure: why it failed, "" where it made a decision."""

    cluster: str
    seconds: float | None
    failure: str = ""

    @property
    def succeeded(self) -> bool:
        """Return whether a pass made a decision in time."""
        return self.seconds is not None and not self.failure

    def line(self) -> str:
        """Return what a person reads."""
        if self.seconds is None:
            missing = f"no pass of {self.cluster} within {LONGEST:.0f} s"
            return f"{missing}: {DOCS}/runbook.md#missing-passes"
        after = f"first pass of {self.cluster} after {self.seconds:.0f} s"
        return f"{after} failed: {self.failure}" if self.failure else after


class PassWatch:
    """The passes of clusters since the watch was made.

    clusters: their names. clock, sleep: of seconds; the waiting ends by this clock.
    """

    def __init__(
        self,
        store: Store,
        clusters: Sequence[str],
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._store, self._clock, self._sleep = store, clock, sleep
        self._earlier = {name: state.last_pass for name, state in self._states(clusters).items()}

    def passes(self, longest: float = LONGEST) -> Iterator[FirstPass]:
        """Yield each cluster's next pass when it has ended, then those without one. Raises
        StoreError."""
        began, waiting = self._clock(), set(self._earlier)
        while waiting:
            for name, state in sorted(self._states(sorted(waiting)).items()):
                if state.last_pass > self._earlier[name]:
                    waiting.remove(name)
                    yield FirstPass(name, self._clock() - began, _failure(state))
            if waiting and self._clock() - began >= longest:
                break
            if waiting:
                self._sleep(EVERY)
        for name in sorted(waiting):
            yield FirstPass(name, None)

    def _states(self, clusters: Sequence[str]) -> dict[str, ScanState]:
        states = self._store.scan_states.due_by(clusters)
        for state in states.values():
            if isinstance(state, OutscalerError):
                raise state
        return {name: state for name, state in states.items() if not isinstance(state, Exception)}


def _failure(state: ScanState) -> str:
    """Return why the last pass failed, "" where it made a decision."""
    failure = state.failure
    if failure is None or state.last_success >= state.last_pass:
        return ""
    return f"{failure.cls}: {failure.message}"


def report(passes: Sequence[FirstPass]) -> list[str]:
    """Return the lines for a person: one per cluster, or of many clusters a summary and the ones
    without a decision."""
    if len(passes) <= MOST_LINES:
        return [item.line() for item in passes]
    good = [item for item in passes if item.succeeded]
    seconds = [item.seconds for item in good if item.seconds is not None]
    bad = [item for item in passes if not item.succeeded]
    lines = [item.line() for item in bad[:MOST_LINES]]
    if seconds:
        lines.insert(0, f"first pass of {counted(len(good), 'cluster')} after {max(seconds):.0f} s")
    more = len(bad) - MOST_LINES
    return [*lines, f"and {more} more; outscaler get lists them"] if more > 0 else lines
