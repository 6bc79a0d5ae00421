"""Scale-ups, removals and faults in random order, with a vendor that behaves in one of
several documented ways.

An operation may end in any way, but three things must never happen: a machine goes that was
not named, more machines are bought than were wanted, or a group ends with a size that
differs from its machines.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from chalicelib.model.group import Instance, InstanceState
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Succeeded
from infra.emulators.exoscale.account import Zone
from infra.emulators.exoscale.models import NOT_STARTING, UNAVAILABLE, Ending, ExoscaleDurations
from tests.amounts import examples
from tests.providers.exoscale.fixture import ExoscaleFixture
from tests.providers.suite.operations import OperationDriver
from tests.providers.suite.provider_fixture import Trouble
from tests.providers.suite.recording_provider import Ear

MOST, STEPS = 8, 5
KINDS = (
    Trouble.CONFLICT,
    Trouble.THROTTLED,
    Trouble.SERVER_ERROR,
    Trouble.CUT_OFF,
    Trouble.WEB_PAGE,
    Trouble.HANGS,
    Trouble.LOST_ANSWER,
)
ENDINGS = (
    Ending("failure", "busy"),
    Ending("failure", "fault", done=True),
    Ending("timeout"),
    Ending("timeout", done=True),
    Ending("failure", "interrupted"),
)


def _late_size(zone: Zone) -> None:
    zone.size_at_once = False


def _leavers_hidden(zone: Zone) -> None:
    zone.shows_leaving = False


def _heals(zone: Zone) -> None:
    zone.heals = 400.0


def _as_it_is(_: Zone) -> None:
    """The emulator's default behaviour."""


WAYS: tuple[tuple[Callable[[Zone], None], ExoscaleDurations], ...] = (
    (_as_it_is, ExoscaleDurations(operation=0.0, create=90.0)),
    (_late_size, ExoscaleDurations()),
    (_leavers_hidden, ExoscaleDurations(destroy=200.0)),
    (_heals, ExoscaleDurations()),
    (_as_it_is, ExoscaleDurations(operation=400.0, create=300.0)),
)


class _ExoRandomWalk:
    """One group, and one that must never change. alive: the machines that
    were never allowed to go."""

    def __init__(self, bench: ExoscaleFixture, seed: int) -> None:
        self.bench, self.yard, self.random = (
            bench,
            OperationDriver(bench, Ear()),
            random.Random(seed),
        )
        self.group = bench.add_group("g", size=3, least=1, most=MOST)
        self.beside = bench.add_group("h", size=2, least=1)
        self.alive, self.others = bench.machines(self.group), bench.machines(self.beside)
        self.wanted = 3

    def step(self, number: int) -> None:
        """Runs one operation with a fault, then the repair that the core
        would do for what is missing."""
        running = self.yard.instances(self.group)
        for _ in range(self.random.randint(0, 2)):
            self.bench.trouble(
                self.random.choice(KINDS), on=self.random.choice(("read", "write", "any"))
            )
        if self.random.random() < 0.3:
            self.bench.zone.end_next(self.group, self.random.choice(ENDINGS))
        if self.random.random() < 0.3:
            fate = self.random.choice((UNAVAILABLE, NOT_STARTING))
            self.bench.zone.spoil(self.group, fate, self.random.randint(1, 3))
        if len(running) > 1 and self.random.random() < 0.5:
            self._remove(number, running)
        else:
            self._grow(number)
        self.bench.calm()
        self.bench.pool(self.group).endings.clear()
        self._check()
        self._mend(number)

    def _grow(self, number: int) -> None:
        start = self.bench.target(self.group)
        to = min(MOST, start + self.random.randint(1, 3))
        if to > start:
            self.wanted = max(self.wanted, to)
            self.yard.run(
                self.yard.growth(self.group, to, op=f"grow-{number}"),
                dies=self.random.choice((0, 0, 1)),
            )

    def _remove(self, number: int, running: list[Instance]) -> None:
        victims = self.random.sample(running, self.random.randint(1, min(2, len(running) - 1)))
        for each in victims:
            if each.handle in self.alive:
                self.alive.remove(each.handle)
        self.yard.run(
            self.yard.removal(self.group, *victims, op=f"remove-{number}"),
            dies=self.random.choice((0, 0, 1)),
        )

    def _check(self) -> None:
        self.bench.settle()
        there = self.bench.machines(self.group)
        assert set(self.alive) <= set(there), "one that nobody named is gone"
        assert len(there) <= self.wanted, "more than anybody ever wanted"
        assert self.bench.machines(self.beside) == self.others

    def _mend(self, number: int) -> None:
        """Deletes instances with errors, as the core does; afterwards the size
        equals the number of machines."""
        for turn in range(3):
            dead = [each for each in self.yard.group(self.group).instances if each.error]
            if not dead:
                break
            self.yard.run(
                self.yard.removal(
                    self.group,
                    *dead,
                    kind=OperationKind.DELETE_INSTANCES,
                    op=f"discard-{number}-{turn}",
                )
            )
            self.bench.settle()
        found = self.yard.group(self.group)
        assert not [each for each in found.instances if each.error]
        assert {each.state for each in found.instances} <= {InstanceState.RUNNING}
        assert (
            self.bench.target(self.group)
            == len(self.bench.machines(self.group))
            == len(found.instances)
        )
        self.alive = self.bench.machines(self.group)
        self.wanted = len(self.alive)


CASES = [(way, bool((way + other) % 2)) for other in (0, 1) for way in range(len(WAYS))]


@pytest.mark.more
@pytest.mark.parametrize(("way", "standalone"), CASES[: examples(len(WAYS), len(CASES))])
def test_exoscale_random_faults_remove_no_other_machine_and_never_buy_twice(
    way: int, standalone: bool
) -> None:
    change, times = WAYS[way]
    with ExoscaleFixture(standalone=standalone, times=times) as bench:
        change(bench.zone)
        walk = _ExoRandomWalk(bench, seed=way)
        for number in range(STEPS):
            walk.step(number)
        bench.bind(walk.group, 1, MOST + 1)
        assert isinstance(
            walk.yard.run(walk.yard.growth(walk.group, bench.target(walk.group) + 1, op="last")),
            Succeeded,
        )
