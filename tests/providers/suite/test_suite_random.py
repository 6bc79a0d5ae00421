"""Scale-ups and removals in random order, with failing calls and dying functions: at the end the
requested state is reached."""

from __future__ import annotations

import random

import pytest

from chalicelib.model.outcome import Succeeded
from tests.amounts import examples
from tests.providers.suite.operations import OperationDriver
from tests.providers.suite.provider_fixture import Trouble

MOST = 8
STEPS = 7
# Temporary errors: an operation succeeds despite each of these.
KINDS = (
    Trouble.CONFLICT,
    Trouble.THROTTLED,
    Trouble.THROTTLED_FOR,
    Trouble.SERVER_ERROR,
    Trouble.CUT_OFF,
    Trouble.WEB_PAGE,
    Trouble.HANGS,
    Trouble.LOST_ANSWER,
)


class _SuiteRandomWalk:
    """One group with one seed. alive: the handles that should exist."""

    def __init__(self, yard: OperationDriver, seed: int) -> None:
        self.yard, self.random = yard, random.Random(seed)
        self.group, self.beside = (
            yard.bench.add_group("g", size=2, most=MOST),
            yard.bench.add_group("h", size=2),
        )
        self.alive, self.others = yard.bench.machines(self.group), yard.bench.machines(self.beside)

    def step(self, number: int) -> None:
        """Runs one operation to its end."""
        removes = len(self.alive) == MOST or (len(self.alive) > 1 and self.random.random() < 0.5)
        self._disturb()
        (self._remove if removes else self._grow)(number)
        self.yard.bench.calm()
        found = self.yard.finish(self.group)
        if removes:
            assert found == self.alive
        else:
            assert [handle for handle in found if handle in self.alive] == self.alive
        self.alive = found
        assert self.yard.bench.target(self.group) == len(found)
        assert self.yard.bench.machines(self.beside) == self.others

    def _disturb(self) -> None:
        kinds = [kind for kind in KINDS if kind.value not in self.yard.bench.lacks]
        self.planned = [
            (
                self.random.choice(kinds),
                self.random.choice(("read", "write", "any")),
                self.random.randint(1, 2),
            )
            for _ in range(self.random.randint(0, 2))
        ]
        self.deaths = self.random.choice((0, 0, 1, 2))

    def _begin(self) -> None:
        for kind, on, times in self.planned:
            self.yard.bench.trouble(kind, on=on, times=times)

    def _grow(self, number: int) -> None:
        to = min(MOST, len(self.alive) + self.random.randint(1, 3))
        order = self.yard.growth(self.group, to, op=f"grow-{number}")
        self._begin()
        assert isinstance(self.yard.run(order, dies=self.deaths), Succeeded)
        self.yard.bench.calm()
        assert len(self.yard.finish(self.group)) == to

    def _remove(self, number: int) -> None:
        found = self.yard.instances(self.group)
        victims = self.random.sample(found, self.random.randint(1, min(3, len(found) - 1)))
        order = self.yard.removal(self.group, *victims, op=f"remove-{number}")
        self._begin()
        assert isinstance(self.yard.run(order, dies=self.deaths), Succeeded)
        gone = {each.handle for each in victims}
        self.alive = [handle for handle in self.alive if handle not in gone]


@pytest.mark.more
@pytest.mark.parametrize("seed", range(examples(1, 3)))
def test_provider_random_faults_still_end_in_the_requested_state(
    yard: OperationDriver, seed: int
) -> None:
    walk = _SuiteRandomWalk(yard, seed)
    for number in range(STEPS):
        walk.step(number)
