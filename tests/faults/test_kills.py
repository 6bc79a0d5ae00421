"""The executors of removals are killed at each of their writes: the next step begins within 30 seconds, also if the
next executor is killed, too, and nodes go once and without a taint left."""

from __future__ import annotations

import functools

import msgspec
import pytest

from tests.faults.fault_schedule import KILL, Io, Strike
from tests.faults.final_checks import restless
from tests.faults.run_state import FaultRun
from tests.faults.run_steps import ACT

NODES = 3
"""Nodes that an undisturbed run removes."""
WRITES = 130
"""An undisturbed run has more writes than this."""
KINDS = {
    "watch": "send act_clusterapi",
    "claim": "update_item",
    "taint": "PATCH /api/v1/nodes/",
    "eviction": "/eviction",
    "deletion-mark": "/machines/",
    "size": "/scale",
    "end": "transact_write_items",
    "wake-up": "send reconcile",
}
"""Kinds of writes, with words that only they have."""
STEPS = 4
"""Writes from the kill to the next one: an executor that has taken over has sent its watch, claimed and recorded."""


class Listener(Strike):
    """A strike that only lists the writes, and kills nothing."""

    writes: list[str] = msgspec.field(default_factory=list)

    def meets(self, io: Io) -> bool:
        """See Strike."""
        if io.function == ACT and io.writes:
            self.writes.append(f"{io.verb} {io.what}")
        return False


def removals(strikes: list[Strike]) -> FaultRun:
    """Plays a cluster that removes nodes, and returns the run. Raises Broken."""
    with FaultRun(1) as run:
        run.world.weather.strikes.extend(strikes)
        for _ in range(12):
            run.world.step(60.0)
            run.check()
        assert list(restless(run)) == []
        assert run.world.audit.counts["node gone by remove"] == NODES
        return run


@functools.cache
def undisturbed() -> tuple[str, ...]:
    """The writes of a run without kills."""
    listener = Listener(KILL, 1)
    run = removals([listener])
    assert not run.world.audit.counts.get("continued in time after a kill")
    return tuple(listener.writes)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("after", [False, True], ids=["at", "after"])
@pytest.mark.parametrize("kind", KINDS)
def test_removal_killed_at_a_write_of_each_kind_goes_on_in_time(kind: str, times: int, *, after: bool) -> None:
    number = next(number for number, write in enumerate(undisturbed(), 1) if KINDS[kind] in write)
    _killed(number, times, after=after)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, WRITES + 1))
def test_removal_killed_at_any_write_once_and_twice_goes_on_in_time(number: int) -> None:
    assert len(undisturbed()) > WRITES
    for times in (1, 2):
        for after in (False, True):
            _killed(number, times, after=after)


def _killed(number: int, times: int, *, after: bool) -> None:
    """Kills executors at that write and, `times` in all, STEPS writes later."""
    numbers = [number + STEPS * later for later in range(times)]
    run = removals([Strike(KILL, each, function=ACT, writing=True, after=after) for each in numbers])
    assert len([made for made in run.world.invocations if made.killed_at]) == times
