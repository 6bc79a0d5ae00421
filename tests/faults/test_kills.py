"""The executors of removals are killed at each of their writes: the next step begins within 30
seconds, also if the next executor is killed, too, and nodes go once and without a taint left."""

from __future__ import annotations

import functools

import msgspec
import pytest

from chalicelib.model.operation import OperationState
from chalicelib.operations.executor import decode
from tests.faults.fault_schedule import KILL, Io, Strike
from tests.faults.faulty_world import FaultWorld
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
"""Writes from the kill to further ones: the next executor sends its watch, claims,
changes something, and records."""
ONCE = (("once", False), ("once", True))
AGAIN = (("again-before-it-takes-over", True), ("again-after-its-step", False))
KILLS = [(kind, *kill) for at, kind in enumerate(KINDS) for kill in (*ONCE, AGAIN[at % len(AGAIN)])]
"""Kills of `make test`: at which write, when again, and whether after the write. `make
test-slow` has all of them."""


class Listener(Strike):
    """A strike that kills nothing. It lists the writes of executors, and of their claims
    (operation, executor) those that stand before their watch is in the queue."""

    world: FaultWorld | None = None
    writes: list[str] = msgspec.field(default_factory=list)
    claims: set[tuple[str, str]] = msgspec.field(default_factory=set)
    unwatched: set[tuple[str, str]] = msgspec.field(default_factory=set)

    def meets(self, io: Io) -> bool:
        """See Strike."""
        if io.function == ACT:
            if io.writes:
                self.writes.append(f"{io.verb} {io.what}")
            self._look_at_claims()
        return False

    def _look_at_claims(self) -> None:
        assert self.world is not None
        claims = {
            (operation.spec.id, operation.status.claimed_by.rpartition(".")[0])
            for operation in self.world.operations()
            if operation.status.state is OperationState.RUNNING
        } - self.claims
        if claims:
            messages = [
                decode(message.body) for message in self.world.queues.sent if message.queue == ACT
            ]
            self.unwatched |= claims - {(message.operation, message.watch) for message in messages}
            self.claims |= claims


def removals(strikes: list[Strike]) -> tuple[FaultRun, Listener]:
    """Plays a cluster that removes nodes, and returns the run. Every claim has
    its watch. Raises Broken."""
    with FaultRun(1) as run:
        listener = Listener(KILL, 1, world=run.world)
        run.world.weather.strikes.extend([listener, *strikes])
        for _ in range(12):
            run.world.step(60.0)
            run.check()
        assert list(restless(run)) == []
        assert run.world.audit.counts["node gone by remove"] == NODES
        assert len(listener.claims) > NODES
        assert listener.unwatched == set()
        return run, listener


@functools.cache
def undisturbed() -> tuple[str, ...]:
    """The writes of a run without kills."""
    run, listener = removals([])
    assert not run.world.audit.counts.get("continued in time after a kill")
    return tuple(listener.writes)


@pytest.mark.parametrize(
    ("kind", "later", "after"),
    KILLS,
    ids=lambda value: {False: "at", True: "after"}.get(value, value),
)
def test_removal_killed_at_a_write_of_each_kind_goes_on_in_time(
    kind: str, later: str, *, after: bool
) -> None:
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
    run, _ = removals(
        [Strike(KILL, each, function=ACT, writing=True, after=after) for each in numbers]
    )
    assert len([made for made in run.world.invocations if made.killed_at]) == len(numbers)
