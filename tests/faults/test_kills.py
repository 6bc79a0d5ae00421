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
LATER = {"once": (), "again-before-it-takes-over": (1,), "again-after-its-step": (4,)}
"""Writes from the kill to further ones: the next executor sends its watch, claims, changes something, and records."""
KILLS = (("once", False), ("once", True), ("again-before-it-takes-over", True), ("again-after-its-step", False))
"""Kills of `make test`: when again, and whether after the write; `make test-slow` has every combination."""


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


@pytest.mark.parametrize(("later", "after"), KILLS, ids=lambda value: {False: "at", True: "after"}.get(value, value))
@pytest.mark.parametrize("kind", KINDS)
def test_removal_killed_at_a_write_of_each_kind_goes_on_in_time(kind: str, later: str, *, after: bool) -> None:
    number = next(number for number, write in enumerate(undisturbed(), 1) if KINDS[kind] in write)
    _killed(number, LATER[later], after=after)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, WRITES + 1))
def test_removal_killed_at_any_write_once_and_twice_goes_on_in_time(number: int) -> None:
    assert len(undisturbed()) > WRITES
    for later in LATER.values():
        for after in (False, True):
            _killed(number, later, after=after)


def _killed(number: int, later: tuple[int, ...], *, after: bool) -> None:
    """Kills executors at that write, and so many writes later."""
    numbers = [number, *(number + each for each in later)]
    run = removals([Strike(KILL, each, function=ACT, writing=True, after=after) for each in numbers])
    assert len([made for made in run.world.invocations if made.killed_at]) == len(numbers)
