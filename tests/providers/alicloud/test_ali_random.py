"""Random runs of a group over HTTP: whatever is lost, refused or sold out,
only planned changes happen.

Each step can meet lost answers, broken bodies, throttling, temporary refusals, sold-out
machines and vanishing machines.
Each provider is new, as after a cold start, and each message can be delivered twice.
"""

from __future__ import annotations

import random

import pytest

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import InProgress, Outcome, Succeeded
from chalicelib.providers.kit.errors import Conflict, Throttled, Transient
from infra.emulators.alicloud.iam import read_policy
from infra.emulators.alicloud.models import NO_STOCK, NOT_STARTING, QUOTA, AlicloudDurations
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.amounts import examples
from tests.operations import ask
from tests.providers.alicloud.fixture import AlicloudBench, order, seen
from tests.providers.alicloud.test_ali_permissions import UPSTREAM

_FAULTS = (
    VendorFault.LOST_ANSWER,
    VendorFault.LOST_ANSWER,
    VendorFault.CUT_OFF,
    VendorFault.SERVER_ERROR,
    VendorFault.HANGS_UP,
    VendorFault.WEB_PAGE,
    VendorFault.THROTTLED,
    VendorFault.THROTTLED_FOR,
    VendorFault.CONFLICT,
    VendorFault.OLD_TIME,
)
_MOST = 12


class Life:
    """A group, a second group that must not change, and the operations planned so far."""

    def __init__(self, seed: int, lag: float = 0.0, rights: str = "") -> None:
        """rights: the RAM policy of the key; all rights without one. With one every
        group has a desired capacity."""
        self.dice = random.Random(seed)
        check = self.dice.choice((7200.0, 7200.0, 45.0))
        self.bench = AlicloudBench(
            desired=self.dice.random() < 0.5 or bool(rights),
            prefix=self.dice.choice(("", "alicloud://")),
            times=AlicloudDurations(check=check),
        )
        if rights:
            self.bench.server.ring.keys[self.bench.key_id].permissions = read_policy(rights)
        self.bench.cloud.takes_empty_removals = self.dice.random() < 0.5
        self.group = self.bench.add_group("g", size=self.dice.randint(0, 3), most=_MOST)
        self.other = self.bench.add_group("other", size=2)
        self.held = self.bench.cloud.groups[self.group]
        self.bench.cloud.lag = lag
        self.bench.cloud.step()
        self.held.hook_in, self.held.hook_out = (
            self.dice.choice((0.0, 0.0, 60.0)) for _ in range(2)
        )
        self.doomed: set[str] = set()  # machines whose removal was planned, or that vanished
        self.ops = 0

    def live(self, steps: int) -> None:
        neighbour = self.bench.machines(self.other)
        with self.bench:
            for _ in range(steps):
                self.dice.choice(
                    (self._grow, self._grow, self._remove, self._discard, self._vanish)
                )()
                self._check()
            assert self.bench.machines(self.other) == neighbour

    # -- events

    def _order(self, kind: OperationKind, start: int, end: int, *handles: str) -> Operation:
        self.ops += 1
        return order(
            self.bench,
            kind,
            self.group,
            start,
            end,
            *handles,
            op=f"{kind}-{self.ops:04d}-0123456789",
        )

    def _grow(self) -> None:
        start = seen(self.bench, self.group).target
        if start >= _MOST:
            return
        if self.dice.random() < 0.3:
            fate = self.dice.choice((NO_STOCK, QUOTA, NOT_STARTING))
            self.bench.cloud.spoil(self.group, fate, self.dice.randint(1, 3))
        operation = self._order(
            OperationKind.SCALE_UP, start, min(_MOST, start + self.dice.randint(1, 4))
        )
        before, outcome = len(self.held.machines), self._drive(operation)
        asked = operation.spec.to_size - (
            operation.spec.from_size if self.held.desired is None else min(before, start)
        )
        ours = [each for each in self.held.activities if f'"{operation.spec.id}"' in each.metadata]
        assert len(ours) <= 1
        assert sum(len(each.machines) for each in ours) <= asked
        if self.held.desired is not None:
            assert self.held.total <= max(before, operation.spec.to_size)
        self.bench.calm()
        self._catch_up()
        if isinstance(outcome, Succeeded) and before == start:
            assert seen(self.bench, self.group).target == operation.spec.to_size

    def _remove(self) -> None:
        observed = seen(self.bench, self.group)
        there = [each.handle for each in observed.instances if each.node and not each.error]
        there = [each for each in there if each in self.bench.machines(self.group)]
        chosen = self.dice.sample(there, k=min(len(there), self.dice.randint(1, 3)))
        if chosen:
            self.doomed |= set(chosen)
            outcome = self._drive(
                self._order(
                    OperationKind.DELETE_NODES,
                    observed.target,
                    observed.target - len(chosen),
                    *chosen,
                )
            )
            if isinstance(outcome, Succeeded):
                self.bench.settle(300.0)
                assert not set(chosen) & set(self.held.machines)

    def _discard(self) -> None:
        observed = seen(self.bench, self.group)
        broken = [each.handle for each in observed.instances if each.error]
        if broken:
            there = set(self.held.machines)
            self._drive(
                self._order(
                    OperationKind.DELETE_INSTANCES,
                    observed.target,
                    observed.target - len(broken),
                    *broken,
                )
            )
            assert {
                each for each in there if each not in self.held.machines
            } <= self.doomed | self._failed()

    def _vanish(self) -> None:
        if self.held.machines and self.dice.random() < 0.5:
            lost = self.dice.choice(sorted(self.held.machines))
            self.doomed.add(lost)
            self.bench.cloud.vanish(lost)

    def _catch_up(self) -> None:
        """Waits until a query shows the state at the end of the last step."""
        self.bench.settle(2.0 * self.bench.cloud.lag)

    def _drive(self, operation: Operation) -> Outcome:
        """Runs to the end; faults happen on the way, and sometimes the first
        message is delivered again."""
        for _ in range(self.dice.randint(0, 4)):
            self.bench.server.faults.next(
                self.dice.choice(_FAULTS), on=self.dice.choice(("any", "write", "read"))
            )
        first = operation
        for _ in range(200):
            if self.dice.random() < 0.1:
                operation = first  # the message is delivered twice; the step's data are lost
            try:
                outcome = ask(self.bench.provider(), operation)
            except (Conflict, Throttled, Transient) as error:
                self.bench.settle(max(10.0, error.retry_after))
                continue
            if not isinstance(outcome, InProgress):
                self.bench.server.faults.clear()
                return outcome
            operation = operation.with_status(step=outcome.step, data=outcome.data)
            self.bench.settle(max(1.0, outcome.after))
        raise AssertionError(f"{first.spec.kind} is not over: {self.bench.calls()[-10:]}")

    # -- invariants

    def _failed(self) -> set[str]:
        return {
            each.machine.id for each in self.bench.cloud.released if each.machine.fate is not None
        }

    def _check(self) -> None:
        assert self.held.total <= _MOST
        gone = {each.machine.id for each in self.bench.cloud.released}
        assert gone <= self.doomed | self._failed(), (
            f"nobody planned that {gone - self.doomed} should go"
        )


@pytest.mark.more
@pytest.mark.parametrize("seed", range(examples(3, 12)))
def test_alicloud_random_faults_buy_nothing_twice_and_remove_only_named_nodes(seed: int) -> None:
    Life(seed).live(8)


# the last four runs meet a client without tokens
@pytest.mark.more
@pytest.mark.parametrize("seed", [100, 101, 106, 114, 116, 142][: examples(3, 6)])
def test_alicloud_random_faults_with_ten_second_old_lists_never_buy_twice(seed: int) -> None:
    Life(seed, lag=10.0).live(8)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(200, 200 + examples(3, 12)))
def test_alicloud_random_faults_with_upstreams_rights_buy_nothing_twice(seed: int) -> None:
    life = Life(seed, rights=UPSTREAM)
    life.live(8)
    # ScaleWithAdjustment gives it
    assert not [each for each in life.held.activities if each.metadata]


@pytest.mark.more
@pytest.mark.parametrize("seed", range(300, 300 + examples(2, 6)))
def test_alicloud_random_faults_with_upstreams_rights_and_old_lists_never_buy_twice(
    seed: int,
) -> None:
    Life(seed, lag=10.0, rights=UPSTREAM).live(8)
