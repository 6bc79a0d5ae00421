"""Functions are killed at every write of a replacement's life: one node is bought, the old one is
drained once, after its replacement is ready, and nothing is left behind
(docs/reference/consolidation.md, CONS_50)."""

from __future__ import annotations

import functools

import pytest

from tests.faults.fault_schedule import FAIL, KILL, LOSE, TABLE, Strike, Writes
from tests.faults.final_checks import restless
from tests.faults.replacing import ReplacementRun, replacing

MINUTES = 14
"""Minutes of a run. Undisturbed, the replacement takes five."""
WRITES = 78
"""An undisturbed run has more writes than this until the old node has gone."""
KINDS = {
    "plan": ("reconcile", "transact_write_items"),
    "message-of-the-purchase": ("reconcile", "send act_clusterapi"),
    "watch": ("act_clusterapi", "send act_clusterapi"),
    "claim": ("act_clusterapi", "update_item"),
    "purchase": ("act_clusterapi", "/scale"),
    "end-of-the-purchase": ("act_clusterapi", "transact_write_items"),
    "hard-taint": ("act_clusterapi", "PATCH /api/v1/nodes/"),
    "eviction": ("act_clusterapi", "/eviction"),
    "lease": ("reconcile", "update_item"),
}
"""Kinds of writes, with the function and words that only they have."""


def replaced(*strikes: Strike) -> tuple[ReplacementRun, list[str]]:
    """Plays a replacement to its end. One node was bought, one drained, and the
    row is gone. Raises Broken."""
    with replacing() as run:
        writes = Writes(KILL, 1)
        run.world.weather.strikes.extend([writes, *strikes])
        until = 0
        for _ in range(MINUTES):
            run.world.step(60.0)
            run.check()
            until = until or (len(writes.made) if run.world.size("large") == 1 else 0)
        counts = run.world.audit.counts
        assert counts["nodes bought by replacements"] == counts["grown"] == 1
        assert list(run.world.audit.bought.values()) == [1]
        assert counts["node gone by remove"] == 1
        assert counts["nodes drained by replacements"] >= 1
        assert (run.world.size("large"), run.world.size("small")) == (1, 3)
        assert run.world.store.memory.look(run.world.name).replacements == {}
        assert run.world.operations() == ()
        assert list(restless(run)) == []
        return run, writes.made[:until]


@functools.cache
def undisturbed() -> tuple[str, ...]:
    """The writes of a run without faults, until the old node has gone."""
    return tuple(replaced()[1])


def number_of(kind: str) -> int:
    """The number of the first write of a kind."""
    function, word = KINDS[kind]
    return next(
        at
        for at, write in enumerate(undisturbed(), 1)
        if write.startswith(function) and word in write
    )


@pytest.mark.parametrize("after", [False, True], ids=["at", "after"])
@pytest.mark.parametrize("kind", KINDS)
def test_cons_50_replacement_killed_at_a_write_of_each_kind_buys_and_drains_once(
    kind: str, *, after: bool
) -> None:
    run, _ = replaced(Strike(KILL, number_of(kind), writing=True, after=after))
    assert len([made for made in run.world.invocations if made.killed_at]) == 1


def test_replacement_survives_lost_answers_of_the_table() -> None:
    number = (
        undisturbed().index(
            next(write for write in undisturbed() if "transact_write_items" in write)
        )
        + 1
    )
    replaced(
        Strike(LOSE, number, door=TABLE, writing=True),
        Strike(FAIL, number + 9, door=TABLE, writing=True),
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, WRITES + 1))
def test_replacement_killed_at_any_write_once_and_twice_buys_and_drains_once(number: int) -> None:
    assert len(undisturbed()) > WRITES
    for later in ((), (1,), (4,)):
        for after in (False, True):
            numbers = [number, *(number + more for more in later)]
            replaced(*(Strike(KILL, each, writing=True, after=after) for each in numbers))
