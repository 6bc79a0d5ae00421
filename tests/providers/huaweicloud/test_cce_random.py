"""Scale-ups, removals and faults in random order, in a pool shared with another
group and another writer.

An operation may end in any way, but three things must never happen: a node goes that was not named,
more nodes are bought than were wanted, or a group ends with a size that differs from its nodes.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from chalicelib.model.group import Instance, InstanceState
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import InProgress, Succeeded
from chalicelib.providers.kit.errors import ProviderError
from infra.emulators.huaweicloud.account import CceCloud
from infra.emulators.huaweicloud.models import DEFAULT, NOT_INSTALLED, SOLD_OUT, CceDurations
from infra.emulators.huaweicloud.mutations import CceMutations
from tests.providers.huaweicloud.fixture import HuaweiBench, carried, order, tried
from tests.providers.suite.operations import OperationDriver
from tests.providers.suite.provider_fixture import Trouble
from tests.providers.suite.recording_provider import Ear

MOST, STEPS = 8, 4
KINDS = (
    Trouble.CONFLICT,
    Trouble.THROTTLED,
    Trouble.SERVER_ERROR,
    Trouble.CUT_OFF,
    Trouble.WEB_PAGE,
    Trouble.HANGS,
    Trouble.LOST_ANSWER,
)


def _as_it_is(_: CceCloud) -> None:
    """The emulator's default behaviour."""


def _counts_coming(cloud: CceCloud) -> None:
    cloud.counts_coming = True


def _lags(cloud: CceCloud) -> None:
    cloud.lag = 12.0


def _holds(cloud: CceCloud) -> None:
    cloud.holds = 20.0


def _never_again(cloud: CceCloud) -> None:
    cloud.retries, cloud.scale_status = False, 201


WAYS: tuple[tuple[Callable[[CceCloud], None], CceDurations], ...] = (
    (_as_it_is, CceDurations(build=5.0, install=5.0)),
    (_counts_coming, CceDurations()),
    (_lags, CceDurations(delete=200.0)),
    (_holds, CceDurations()),
    (_never_again, CceDurations(build=300.0)),
)


class _CceRandomWalk:
    """One group of a pool, and a second group that another writer changes at random. alive: nodes
    of both groups that were never allowed to go."""

    def __init__(self, bench: HuaweiBench, seed: int) -> None:
        self.bench, self.yard, self.random = (
            bench,
            OperationDriver(bench, Ear()),
            random.Random(seed),
        )
        pool = bench.cloud.add_pool(bench.cluster, "web", size=2, most=40)
        bench.cloud.add_group(pool.uid, "az2", size=3, most=MOST, least=1)
        self.pool, self.beside, self.group = pool, f"{pool.uid}/{DEFAULT}", f"{pool.uid}/az2"
        self.alive, self.wanted, self.others = self._there(), 3, 2

    def _there(self) -> list[str]:
        return [*self.bench.machines(self.group), *self.bench.machines(self.beside)]

    def step(self, number: int) -> None:
        """Runs one operation with a fault, then the repair that the core
        would do for what is missing."""
        running = self.yard.instances(self.group)
        for _ in range(self.random.randint(0, 2)):
            self.bench.trouble(
                self.random.choice(KINDS), on=self.random.choice(("read", "write", "any"))
            )
        if self.random.random() < 0.3:
            fate = self.random.choice((SOLD_OUT, NOT_INSTALLED))
            self.bench.cloud.spoil(self.pool.uid, fate, self.random.randint(1, 3), group="az2")
        if self.random.random() < 0.4:
            self._another_writer()
        if len(running) > 1 and self.random.random() < 0.5:
            self._remove(number, running)
        else:
            self._grow(number)
        self.bench.calm()
        self._check()
        self._mend(number)

    def _another_writer(self) -> None:
        self.others += self.random.randint(1, 2)
        self.bench.group(self.beside).desired = self.others
        CceMutations(self.bench.cloud)._settle(self.pool)

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
        self.alive = [
            each for each in self.alive if each not in {victim.handle for victim in victims}
        ]
        self.yard.run(
            self.yard.removal(self.group, *victims, op=f"remove-{number}"),
            dies=self.random.choice((0, 0, 1)),
        )

    def _check(self) -> None:
        self.bench.settle()
        there = self._there()
        assert set(self.alive) <= set(there), "one that nobody named is gone"
        assert len(self.bench.machines(self.group)) <= self.wanted, "more than anybody ever wanted"
        assert (
            self.bench.target(self.beside) == len(self.bench.machines(self.beside)) == self.others
        )

    def _mend(self, number: int) -> None:
        """Deletes nodes with errors, as the core does; afterwards the size
        equals the number of nodes."""
        for turn in range(4):
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
        self.alive, self.wanted = self._there(), len(self.bench.machines(self.group))


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_CCE_18_CCE_19_random_faults_remove_no_other_node_and_never_buy_twice(way: int) -> None:
    change, times = WAYS[way]
    with HuaweiBench(times=times) as bench:
        change(bench.cloud)
        walk = _CceRandomWalk(bench, seed=way)
        for number in range(STEPS):
            walk.step(number)
        bench.settle()
        bench.group(walk.group).most = MOST + 1
        assert isinstance(
            walk.yard.run(walk.yard.growth(walk.group, bench.target(walk.group) + 1, op="last")),
            Succeeded,
        )


class _Message:
    """A scale-up as the table stores it. Its message may be delivered twice, and its function may
    die after a request to CCE and before the table is written."""

    def __init__(self, operation: Operation) -> None:
        self.operation, self.over = operation, False

    def arrives(self, bench: HuaweiBench, *, dies: bool) -> None:
        outcome = tried(bench, self.operation)
        if dies or isinstance(outcome, ProviderError):
            return
        if isinstance(outcome, InProgress):
            self.operation = carried(self.operation, outcome)
        else:
            self.over = True


@pytest.mark.parametrize("seed", range(3))
def test_CCE_18_two_scale_ups_of_a_pool_with_crashes_and_repeats_buy_exactly_once(
    bench: HuaweiBench, seed: int
) -> None:
    chance = random.Random(seed)
    pool = bench.cloud.add_pool(bench.cluster, "web", size=2, most=40)
    bench.cloud.add_group(pool.uid, "az2", size=1, most=20)
    before = [node.uid for node in pool.all_nodes()]
    wanted = {DEFAULT: 2 + chance.randint(1, 4), "az2": 1 + chance.randint(1, 4)}
    starts = {DEFAULT: 2, "az2": 1}
    growths = [
        _Message(
            order(
                bench,
                OperationKind.SCALE_UP,
                f"{pool.uid}/{name}",
                starts[name],
                to,
                op=f"{name}-0123456789abcdef",
            )
        )
        for name, to in wanted.items()
    ]
    for _ in range(200):
        left = [each for each in growths if not each.over]
        if not left:
            break
        if chance.random() < 0.25:
            bench.trouble(chance.choice(KINDS), on=chance.choice(("read", "write")))
        size = pool.desired
        chance.choice(left).arrives(bench, dies=chance.random() < 0.3)
        assert pool.desired >= size, "a growth never makes a pool smaller"
        bench.settle(chance.choice((1.0, 5.0, 60.0)))
    bench.calm()
    bench.settle()
    assert [each.over for each in growths] == [True, True]
    assert {name: group.desired for name, group in pool.groups.items()} == wanted
    assert not set(before) - {node.uid for node in pool.all_nodes() if not node.leaves}
    last = growths[0].operation.with_status(step="", data={})
    assert isinstance(tried(bench, last), Succeeded), (
        "a message of a growth that is over long since"
    )
