"""Removals that share a request: which are waited for, which are claimed, and which is woken (fakes
of the store and of the executor)."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from chalicelib.model.operation import Operation, OperationKind, OperationState
from chalicelib.model.outcome import InProgress
from chalicelib.net.sockets import allowance
from chalicelib.operations.executor import CLAIM, MARGIN, SHORTEST, Executor
from chalicelib.operations.sibling_removals import (
    CLAIMING,
    MOST,
    PLANNED_TOGETHER,
    RELEASED,
    Siblings,
)
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.store.errors import OperationClaimed
from tests.cases import each_row
from tests.operations import new_operation

NOW = 1000.0
DELETE = OperationKind.DELETE_NODES


def removal(
    id: str,  # noqa: A002
    *,
    step: str = "delete",
    state: OperationState = OperationState.WAITING,
    kind: OperationKind = DELETE,
    provider: str = "exoscale",
    group: str = "g",
    created: float = NOW - 300.0,
    due: float = NOW + 60.0,
    deadline: float = NOW + 600.0,
    reason: str = "",
) -> Operation:
    return new_operation(
        id,
        "ours",
        provider,
        group,
        kind,
        "plan",
        created,
        step=step,
        state=state,
        due_at=due,
        deadline=deadline,
        reason=reason,
    )


@dataclass
class SiblingsFixture:
    """The siblings of operation `own`. taken: ids that another executor has. moved: id ->
    the step it has come to."""

    others: tuple[Operation, ...]
    taken: frozenset[str] = frozenset()
    moved: dict[str, str] = field(default_factory=dict)
    now: float = NOW
    pace: float = 0.0
    joined: list[str] = field(default_factory=list)
    hastened: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    def siblings(self) -> Siblings:
        own = removal("own", state=OperationState.RUNNING)
        operations = SimpleNamespace(
            list_open=lambda cluster: (own, *self.others), hasten=self._hasten
        )
        runtime: Any = SimpleNamespace(
            clock=lambda: self.now,
            store=SimpleNamespace(operations=operations),
            checkpoint=lambda place: None,
            sender=SimpleNamespace(send=lambda queue, body, delay: self.sent.append(queue)),
        )
        executor: Any = SimpleNamespace(join=self._join)
        return Siblings(own, executor, Options(), runtime)

    def _join(self, other: Operation) -> Operation | None:
        self.joined.append(other.spec.id)
        self.now += self.pace
        if other.spec.id in self.taken:
            return None
        return other.with_status(step=self.moved.get(other.spec.id, other.status.step))

    def _hasten(self, cluster: str, name: str) -> None:
        if name in self.taken:
            raise OperationClaimed("another", NOW)
        self.hastened.append(name)


@each_row(
    ("step", "age", "waits"),
    [
        ("", 0.0, True),
        ("taint", PLANNED_TOGETHER - 1.0, True),
        ("delay", PLANNED_TOGETHER - 1.0, True),
        ("evict", PLANNED_TOGETHER, False),  # a drain, which takes as long as its pods do
        ("taint", -1.0, False),  # of a clock that is ahead
        ("delete", 1.0, False),
        ("poll", 600.0, True),
        ("confirm", 1.0, False),
        ("undo", 1.0, False),
    ],
)
def test_removal_waits_for_those_that_are_ready_in_a_moment(
    *, step: str, age: float, waits: bool
) -> None:
    assert (
        SiblingsFixture((removal("a", step=step, created=NOW - age),)).siblings().soon_ready(NOW)
        is waits
    )


@each_row("field", [{"group": "h"}, {"provider": "alicloud"}, {"kind": OperationKind.SCALE_UP}])
def test_operations_of_other_kinds_and_groups_are_no_siblings(field: dict[str, Any]) -> None:
    fixture = SiblingsFixture((removal("a", **field), removal("b", step="poll", **field)))
    siblings = fixture.siblings()
    siblings.wake_one()
    assert not siblings.soon_ready(NOW)
    assert list(siblings.claim_ready()) == []
    assert fixture.joined == fixture.hastened == []


def test_only_removals_that_wait_at_the_deletion_before_their_deadline_are_claimed() -> None:
    fixture = SiblingsFixture(
        (
            removal("ready"),
            removal("runs", state=OperationState.RUNNING),
            removal("drains", step="evict"),
            removal("late", deadline=NOW),
            removal("last"),
        )
    )
    assert [claimed.spec.id for claimed in fixture.siblings().claim_ready()] == ["ready", "last"]
    assert fixture.joined == ["ready", "last"]


def test_claimed_removal_is_released_at_its_step_unless_it_is_given_an_outcome() -> None:
    fixture = SiblingsFixture(
        (removal("a"), removal("b"), removal("c"), removal("d")), frozenset({"c"}), {"d": "undo"}
    )
    siblings = fixture.siblings()
    first, second = siblings.claim_ready()
    siblings.end_step(first, InProgress(3.0, "poll"))
    assert (first.spec.id, second.spec.id) == ("a", "b")
    outcomes = {claimed.spec.id: outcome for claimed, outcome in siblings.outcomes()}
    assert outcomes == {
        "a": InProgress(3.0, "poll"),
        "b": InProgress(RELEASED, "delete"),
        "d": InProgress(RELEASED, "undo"),
    }


@each_row(("pace", "count"), [(0.0, MOST), (1.0, int(CLAIMING))])
def test_claims_for_a_shared_request_are_limited_in_number_and_time(
    *, pace: float, count: int
) -> None:
    fixture = SiblingsFixture(tuple(removal(f"r{n:03}") for n in range(MOST + 5)), pace=pace)
    assert len(list(fixture.siblings().claim_ready())) == len(fixture.joined) == count


@each_row(
    ("dues", "taken", "hastened", "sent"),
    [
        ((60.0, 30.0), (), ["r0"], 1),
        ((60.0, 0.0), (), [], 0),  # one tries now
        ((60.0,), ("r0",), [], 0),
        ((), (), [], 0),
    ],
)
def test_end_of_a_change_wakes_one_removal(
    *, dues: tuple[float, ...], taken: tuple[str, ...], hastened: list[str], sent: int
) -> None:
    others = tuple(removal(f"r{n}", due=NOW + due) for n, due in enumerate(dues))
    fixture = SiblingsFixture(others, frozenset(taken))
    fixture.siblings().wake_one()
    assert (fixture.hastened, len(fixture.sent)) == (hastened, sent)


class _SiblingClaims:
    """The store's claims. lost: operations that another executor takes over before
    their claim is extended."""

    def __init__(self) -> None:
        self.now, self.lost = NOW, set[str]()
        self.extended: list[str] = []

    def hasten(self, cluster: str, name: str) -> None:
        pass

    def claim(self, cluster: str, name: str, owner: str, ttl: float) -> Operation:
        claimed = removal(name, state=OperationState.RUNNING)
        return claimed.with_status(claimed_by=owner, claimed_until=self.now + ttl)

    def extend(self, operation: Operation, ttl: float) -> float:
        if operation.spec.id in self.lost:
            raise OperationClaimed("another", self.now + CLAIM)
        self.extended.append(operation.spec.id)
        return self.now + ttl


def test_request_for_several_removals_is_sent_only_while_each_of_their_claims_lasts() -> None:
    store, sent = _SiblingClaims(), list[str]()
    runtime: Any = SimpleNamespace(
        clock=lambda: store.now,
        owner=lambda: "me",
        checkpoint=lambda place: None,
        store=SimpleNamespace(operations=store),
        sender=SimpleNamespace(send=lambda queue, body, delay: sent.append(queue)),
    )
    executor = Executor(runtime, 60.0)
    own = store.claim("ours", "own", "me.1", CLAIM)
    with executor.working(own):
        seconds = allowance()
        assert seconds is not None
        store.now += 2.0
        assert executor.join(removal("other")) is not None
        assert len(sent) == 2, "its watches"
        assert seconds() == CLAIM - 2.0 - MARGIN, "the earlier of both"
        assert store.extended == []
        store.now = NOW + CLAIM - SHORTEST + 1.0
        seconds()
        assert store.extended == ["own"]
        store.now += 2.0
        seconds()
        assert store.extended == ["own", "other"]
        store.now += CLAIM - SHORTEST + 1.0
        store.lost.add("other")
        with pytest.raises(OperationClaimed):
            seconds()


def test_removals_that_a_vendor_or_a_restart_decides_are_nobodys_siblings() -> None:
    interrupted = removal("a", reason="interrupted")
    fixture = SiblingsFixture(
        (interrupted, removal("b", kind=OperationKind.RESTART_NODE), removal("c"))
    )
    assert [operation.spec.id for operation in fixture.siblings().claim_ready()] == ["c"]
    waiting = SiblingsFixture((removal("a", step="evict", created=NOW, reason="interrupted"),))
    assert not waiting.siblings().soon_ready(NOW)
