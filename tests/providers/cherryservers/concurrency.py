"""Random disturbance of one pool: the real provider runs over HTTP while users, the vendor and
the network change things.

Each operation runs to its end; each step uses a newly built provider and its own
attempt, and sometimes the outcome of a step is lost with the process. The invariants are
checked after every step.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from chalicelib.model.group import Instance, InstanceState, NodeGroup
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.kit.errors import Conflict, ProviderError, Throttled, Transient
from infra.emulators.cherryservers.models import (
    NEVER_JOINS,
    NO_CREDIT,
    NO_STOCK,
    NOT_DEPLOYED,
    CherryServer,
)
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.operations import ask
from tests.providers.cherryservers.fixture import CherryBench, claimed, follows, order, target

MOST, LEAST = 10, 1
FAULTS = (
    VendorFault.LOST_ANSWER,
    VendorFault.LOST_ANSWER,
    VendorFault.CUT_OFF,
    VendorFault.SERVER_ERROR,
    VendorFault.HANGS_UP,
    VendorFault.WEB_PAGE,
    VendorFault.THROTTLED,
    VendorFault.THROTTLED_FOR,
    VendorFault.UNAUTHORIZED,
)
CLASSES = {
    "Throttled",
    "OutOfStock",
    "QuotaExceeded",
    "Unauthorized",
    "NotFound",
    "Conflict",
    "InvalidRequest",
    "Transient",
    "Unknown",
}
_OURS = "outscaler-operation"


class Liar:
    """Changes answers so that they differ from the documentation. chance: the
    probability for each answer."""

    def __init__(self, dice: random.Random, chance: float) -> None:
        self.dice, self.chance = dice, chance

    def shaped(self, body: object) -> object:
        """Returns the answer, changed with the configured probability."""
        if self.dice.random() >= self.chance:
            return body
        return self.dice.choice((self.texts, self.doubled, self.strange, self.emptied, self.php))(
            body
        )

    def texts(self, body: object) -> object:
        """Turns ids into text."""
        return each(
            body,
            lambda row: {key: str(value) if key == "id" else value for key, value in row.items()},
        )

    def doubled(self, body: object) -> object:
        """Lists every element twice."""
        return body * 2 if isinstance(body, list) else body

    def strange(self, body: object) -> object:
        """Sets undocumented states."""
        return each(
            body,
            lambda row: {
                key: "Unheard-Of/\u2603" if key in ("state", "status") else value
                for key, value in row.items()
            },
        )

    def emptied(self, body: object) -> object:
        """Sets one field to null."""
        lost = self.dice.choice(
            (
                "state",
                "status",
                "hostname",
                "plan",
                "region",
                "available_regions",
                "specs",
                "ip_addresses",
                "created_at",
                "pricing",
            )
        )
        return each(
            body, lambda row: {key: None if key == lost else value for key, value in row.items()}
        )

    def php(self, body: object) -> object:
        """Turns an empty map into an empty list, as PHP does."""
        return each(
            body, lambda row: {key: [] if value == {} else value for key, value in row.items()}
        )


def each(body: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> object:
    """Applies a change to every row."""
    if isinstance(body, list):
        return [change(row) if isinstance(row, dict) else row for row in body]
    return change(body) if isinstance(body, dict) else body


class Disorder:
    """One pool and a second pool that must not change. people: users change servers during
    the test. lies: probability of an answer that is not as documented. Lists lag by less
    than the provider waits."""

    def __init__(self, seed: int, *, people: bool = False, lies: float = 0.0) -> None:
        self.dice, self.people = random.Random(seed), people
        self.bench = CherryBench(
            cap=self.dice.choice((None, 2, 5)),
            lag=self.dice.choice((0.0, 0.0, 12.0, 40.0)),
            delete_lag=self.dice.choice((0.0, 15.0, 300.0)),
        )
        self.cloud = self.bench.cloud
        self.group = self.bench.add_group("g", size=self.dice.randint(1, 4), least=LEAST, most=MOST)
        self.other = self.bench.add_group("other", size=2)
        self.liar = Liar(self.dice, lies)
        self.bench.server.front.shaped = self.liar.shaped
        # servers whose removal was planned, or that disappeared without us
        self.doomed: set[int] = set()
        self.lost: set[int] = set()  # servers that disappeared without us
        self.orders: dict[str, int] = {}  # scale-up -> number of servers it may buy
        self.number = 0
        self.said: list[str] = []  # all output that a user could read

    def live(self, steps: int) -> None:
        neighbours = self.bench.machines(self.other)
        with self.bench:
            for _ in range(steps):
                self.dice.choice(
                    (self.grow, self.grow, self.remove, self.remove, self.discard, self.vanish)
                )()
                self.check()
            assert self.bench.machines(self.other) == neighbours
            self.recovers()
            shown = "\n".join(self.said)
            assert not [secret for secret in self.bench.secrets() if secret in shown]

    # -- setup

    def grow(self) -> None:
        found = self.look()
        if found is None or found.error or found.target >= found.max:
            return
        if self.dice.random() < 0.4:
            self.cloud.spoil(
                self.group,
                self.dice.choice((NO_STOCK, NO_CREDIT, NOT_DEPLOYED, NEVER_JOINS)),
                self.dice.randint(1, 3),
            )
        to_size = min(found.max, found.target + self.dice.randint(1, 4))
        operation = self.order(OperationKind.SCALE_UP, found.target, to_size)
        self.orders[operation.spec.id] = to_size - found.target
        outcome = self.drive(operation)
        if isinstance(outcome, Succeeded) and not self.people:
            assert len(self.bought(operation.spec.id)) == to_size - found.target

    def remove(self) -> None:
        found = self.look()
        if found is None:
            return
        there = [
            each for each in found.instances if each.node and each.state is InstanceState.RUNNING
        ]
        chosen = self.dice.sample(there, k=min(len(there), self.dice.randint(1, 3)))
        if chosen and found.target - len(chosen) >= found.min:
            self.take(OperationKind.DELETE_NODES, found, chosen)

    def discard(self) -> None:
        found = self.look()
        if found is None:
            return
        joined = {node.name for node in self.bench.nodes()}
        broken = [each for each in found.instances if each.error or each.node not in joined]
        chosen = self.dice.sample(broken, k=self.dice.randint(0, len(broken)))
        if chosen:
            self.take(OperationKind.DELETE_INSTANCES, found, chosen)

    def take(self, kind: OperationKind, found: NodeGroup, chosen: list[Instance]) -> None:
        handles = {int(each.handle) for each in chosen}
        self.doomed |= handles
        outcome = self.drive(
            self.order(
                kind, found.target, found.target - len(chosen), *(target(each) for each in chosen)
            )
        )
        if isinstance(outcome, Succeeded):
            assert not [
                each
                for each in self.cloud.servers.values()
                if each.id in handles and not each.leaving
            ]

    def vanish(self) -> None:
        members = self.cloud.members(self.group)
        if members and self.dice.random() < 0.5:
            self.lose(self.dice.choice(members))

    def lose(self, server: CherryServer) -> None:
        self.doomed.add(server.id)
        self.lost.add(server.id)
        self.cloud.vanish(server.id)

    # -- operations

    def look(self) -> NodeGroup | None:
        """Returns the group as a reconcile pass reads it, or None if the read fails."""
        try:
            observed = self.bench.provider().observe(self.bench.nodes())
        except ProviderError as error:
            self.said.append(repr(error))
            return None
        self.said.append(repr(observed))
        for group in observed.groups:
            assert 0 <= group.min <= group.max
            assert len({each.handle for each in group.instances}) == len(group.instances)
        return next(group for group in observed.groups if group.id == self.group)

    def order(
        self, kind: OperationKind, start: int, end: int, *targets: RemovalTarget
    ) -> Operation:
        self.number += 1
        return order(
            self.bench,
            kind,
            self.group,
            start,
            end,
            *targets,
            op=f"{kind}-{self.number:04d}-0123456789",
        )

    def drive(self, operation: Operation) -> Outcome:
        for _ in range(self.dice.randint(0, 4)):
            self.bench.server.faults.next(
                self.dice.choice(FAULTS), on=self.dice.choice(("any", "write", "read"))
            )
        for _ in range(300):
            if self.people and self.dice.random() < 0.2:
                self.somebody()
            operation = claimed(operation)
            outcome = self.step(operation)
            if self.dice.random() < 0.15:  # the process died; the table keeps its previous state
                self.bench.settle(self.dice.choice((1.0, 30.0, 120.0)))
                continue
            if outcome is None:
                self.bench.settle(15.0)
                continue
            if not isinstance(outcome, InProgress):
                self.bench.calm()
                if isinstance(outcome, Failed):
                    assert outcome.error_class in CLASSES
                    assert outcome.message
                return outcome
            operation = follows(operation, outcome)
            self.said.append(repr(operation))
            self.bench.settle(outcome.after)
        raise AssertionError(f"{operation.spec.kind} is not over: {operation}")

    def step(self, operation: Operation) -> Outcome | None:
        """Runs one step. Returns None for a temporary error; the message is delivered again."""
        try:
            outcome = ask(self.bench.provider(), operation)
        except (Conflict, Throttled, Transient) as error:
            self.said.append(repr(error))
            return None
        except ProviderError as error:
            outcome = Failed(error.error_class, error.message, error.code)
        self.said.append(repr(outcome))
        self.check()
        return outcome

    # -- changes by users

    def somebody(self) -> None:
        members = self.cloud.members(self.group)
        one = self.dice.choice(members) if members else None
        deeds: list[Callable[[], object]] = [lambda: self.bench.provider(credential="rotated")]
        if one is not None:
            deeds += [
                lambda: self.lose(one),
                lambda: setattr(one, "hostname", f"renamed-{one.id}"),
                lambda: one.tags.pop(_OURS, None),
                lambda: one.tags.update({"note": "x"}),
            ]
        self.dice.choice(deeds)()

    # -- invariants

    def bought(self, operation: str) -> list[CherryServer]:
        """Returns all servers ever bought, including those that are gone."""
        return [
            each
            for each in (*self.cloud.servers.values(), *self.cloud.dropped)
            if each.order.tags.get(_OURS) == operation
        ]

    def check(self) -> None:
        self.cloud.step()
        for operation, most in self.orders.items():
            # A server deleted before it was listed is indistinguishable from an
            # order that never arrived.
            names = Counter(
                each.order.hostname for each in self.bought(operation) if each.id not in self.lost
            )
            assert sum(names.values()) <= most, (
                f"{operation} bought {names}, and {most} were wanted"
            )
            assert max(names.values(), default=0) <= 1
        gone = {
            each.id
            for each in (*self.cloud.servers.values(), *self.cloud.dropped)
            if each.leaving or each.id not in self.cloud.servers
        }
        assert gone <= self.doomed, f"nobody planned that {gone - self.doomed} should go"
        assert len([each for each in self.cloud.members(self.group) if not each.leaving]) <= MOST

    def recovers(self) -> None:
        """Checks that the pool can scale up again after the faults and changes end."""
        self.bench.calm()
        self.people, self.liar.chance = False, 0.0
        self.bench.settle(20_000.0)
        found = self.look()
        assert found is not None
        assert not found.error
        there = len([each for each in self.cloud.members(self.group) if not each.leaving])
        assert found.target == there
        if there < MOST:
            operation = self.order(OperationKind.SCALE_UP, there, there + 1)
            for _ in range(60):
                operation = claimed(operation)
                outcome = ask(self.bench.provider(), operation)
                if not isinstance(outcome, InProgress):
                    break
                operation = follows(operation, outcome)
                self.bench.settle(outcome.after)
            assert isinstance(outcome, Succeeded)
            assert len(self.bench.machines(self.group)) == there + 1
