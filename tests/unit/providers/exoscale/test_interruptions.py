"""Duplicate messages, dying functions and lost answers: the zone ends in the requested state, and no machine is removed
that
was not named."""

from __future__ import annotations

import random
from typing import cast

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.errors import Conflict, Throttled, Transient
from tests.cases import each_row
from tests.unit.providers.exoscale.fake_api import (
    A,
    FakeApiPool,
    FakeExoscaleApi,
    continued,
    grow,
    provider,
    remove,
    seen,
)

TROUBLES = (Transient("503"), Throttled("429"), Conflict("409"))
METHODS = (
    "pool",
    "clusters",
    "work",
    "instances",
    "instance",
    "scale_nodepool",
    "scale_pool",
    "evict_nodepool",
    "evict_pool",
    "quota",
)


class _DisorderRandomWalk:
    """One zone and one seed: consecutive operations, each run with random faults."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        sks = bool(seed % 2)
        pool = FakeApiPool(size=3) if sks else FakeApiPool(A, "db", "", size=3)
        pool.lag, pool.steps = self.chance.random() < 0.3, self.chance.randint(1, 3)
        self.api, self.pool, self.sks = FakeExoscaleApi(pool), pool, sks

    def disturb(self) -> None:
        for method in self.chance.sample(METHODS, self.chance.randint(0, 3)):
            self.api.trouble[method] = [self.chance.choice(TROUBLES)]
        if self.chance.random() < 0.4:
            self.api.lost.add(self.chance.choice(METHODS[5:9]))

    def drive(self, asked: Operation) -> Outcome:
        fresh = asked
        verb = first = "scale_up" if asked.spec.kind is OperationKind.SCALE_UP else "delete_nodes"
        for _ in range(150):
            outcome = self.ask(verb, asked)
            if isinstance(outcome, Succeeded | Failed):
                return outcome
            if isinstance(outcome, InProgress) and self.chance.random() < 0.25:
                verb, asked = first, fresh  # the function died before it wrote anything
            # otherwise the same message is delivered again
            elif isinstance(outcome, InProgress) and self.chance.random() < 0.8:
                verb, asked = "poll", continued(asked, outcome)
            if self.chance.random() < 0.7:
                self.api.step()
        raise AssertionError("not over")

    def ask(self, verb: str, asked: Operation) -> Outcome | None:
        """Returns None where the caller is to retry; any other error is an error of the test."""
        try:
            return cast(Outcome, getattr(provider(self.api, f"0:20:{A}"), verb)(asked))
        except (Transient, Throttled, Conflict):
            return None

    def settle(self) -> None:
        self.api.trouble.clear()
        self.api.lost.clear()
        self.api.step(10)


@each_row("seed", range(40))
def test_exoscale_fake_random_faults_still_end_in_the_requested_state(seed: int) -> None:
    walk = _DisorderRandomWalk(seed)
    for _ in range(6):
        size, before = walk.pool.size, list(walk.pool.members)
        named: list[str] = []
        walk.disturb()
        if size < 3 or walk.chance.random() < 0.5:
            wanted = size + walk.chance.randint(1, 3)
            outcome = walk.drive(grow(size, wanted))
        else:
            named = walk.chance.sample(before, walk.chance.randint(1, 2))
            wanted = size - len(named)
            outcome = walk.drive(remove(size, *named))
        walk.settle()
        assert isinstance(outcome, Succeeded)
        assert walk.pool.size == len(walk.pool.members) == wanted
        assert [name for name in before if name not in named] == walk.pool.members[: len(before) - len(named)]
        assert walk.api.chosen == []


@each_row("seed", range(40))
def test_exoscale_fake_random_faults_abandon_only_missing_machines(seed: int) -> None:
    walk = _DisorderRandomWalk(seed)
    walk.pool.stock = walk.chance.randint(0, 2)
    stock = walk.pool.stock
    walk.disturb()
    outcome = walk.drive(grow(3, 6))
    walk.settle()
    assert isinstance(outcome, Failed | Succeeded)
    assert len(walk.pool.members) == 3 + stock
    lost = [each.handle for each in seen(walk.api, f"0:20:{A}")[A].instances if each.error]
    assert len(lost) == 3 - stock
    walk.disturb()
    assert isinstance(walk.drive(remove(6, *lost, kind=OperationKind.DELETE_INSTANCES)), Succeeded)
    walk.settle()
    assert walk.pool.size == len(walk.pool.members) == 3 + stock
    assert walk.api.chosen == []
