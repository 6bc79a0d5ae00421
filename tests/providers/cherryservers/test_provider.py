"""The provider protocol as the executor uses it: built from a policy, and correct
despite any interruption.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.group import InstanceState
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers.cherryservers.provider import build
from chalicelib.providers.kit.base import Connection, Provider
from chalicelib.providers.kit.errors import Conflict, ProviderError, Throttled, Transient
from infra.emulators.vendor_common.fault_injection import VendorFault
from infra.emulators.vendor_common.server import Scripted
from tests.amounts import examples
from tests.cases import each_row
from tests.providers.cherryservers.emulated import (
    CONFIG,
    POOL,
    EmulatedCloud,
    claimed,
    grow,
    operation,
    refusal,
    remove,
)
from tests.providers.emulated import RecordedLimits


def connection(**settings: str) -> Connection:
    def read(name: str) -> str:
        raise OutscalerError(f"{name}: no answer")

    return Connection(
        "ours",
        {"credentialsSecret": "cherry", "clusterName": "c", **settings},
        (GroupPolicy("cherryservers", POOL, 0, 5),),
        read,
        None,
        lambda: 0.0,
    )


def test_cherry_provider_is_built_without_a_call_or_a_secret() -> None:
    made: Provider = build(connection(cloudConfigSecret="config"))
    assert made.name == "cherryservers"


def test_cherry_provider_invalid_settings_are_bad_input() -> None:
    with pytest.raises(BadInput, match=r"providers\.cherryservers\.cloudConfig"):
        build(connection())


def test_cherry_provider_temporarily_unreadable_definitions_are_read_later() -> None:
    with pytest.raises(Transient, match="no answer"):
        build(connection(cloudConfigSecret="config")).observe([])


def test_cherry_provider_invalid_definitions_fail_a_change_and_name_the_path() -> None:
    made = build(connection(cloudConfig=f"{CONFIG}colour=red\n"))
    outcome = made.scale_up(grow(0, 1))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert "colour" in outcome.message


@each_row(("status", "cls"), [(500, Transient), (429, Throttled), (409, Conflict)])
@each_row("kind", list(OperationKind))
def test_cherry_provider_raises_temporary_errors(
    status: int, cls: type[ProviderError], kind: OperationKind
) -> None:
    cloud = EmulatedCloud(2)
    cloud.fail("GET /v1/projects", status)
    asked = operation(
        kind, POOL, 2, 3 if kind is OperationKind.SCALE_UP else 1, remove(2, 1000).spec.targets
    )
    with pytest.raises(cls):
        cloud.build().poll(claimed(asked))


def test_cherry_provider_returns_permanent_errors_with_class_and_code() -> None:
    cloud = EmulatedCloud()
    cloud.fail("GET /v1/projects", 403, message="no")
    outcome = cloud.build().scale_up(claimed(grow(0, 1)))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == ("Unauthorized", "403")
    assert outcome.message.endswith("no")


class _Chaos:
    """An executor that dies and repeats itself, and a vendor that loses orders and
    answers and whose lists lag."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        lags = [self.random.choice([0.0, 3.0, 10.0, 30.0]) for _ in range(2)]
        self.cloud = EmulatedCloud(lag=lags[0], delete_lag=lags[1])
        # its table costs more than all the rest
        self.cloud._pacer = RecordedLimits()  # type: ignore[assignment]
        self.asked: Counter[str] = Counter()
        self.named: set[int] = set()
        self.old: list[Operation] = []

    def run(self) -> None:
        for turn in range(12):
            self.cloud.cloud.stock["e5_1620v4", "eu_nord_1"] = self.random.choice(
                [1000, 1000, 0, 1, 3]
            )
            whole = self._plan(turn)
            if whole is not None:
                self._carry_out(whole)
                self.old.append(whole)
            for number in self.cloud.alive():
                server = self.cloud.all[number]
                server.state, server.status = (
                    "active",
                    self.random.choice(["deployed", "failed deployment"]),
                )
            self._check()

    def _plan(self, turn: int) -> Operation | None:
        self.cloud.server.unscript()
        self.cloud.settle()  # the lists show what there is
        group = self.cloud.group()
        failed = [
            int(each.handle)
            for each in group.instances
            if each.error and each.state is InstanceState.CREATING
        ]
        living = [
            int(each.handle) for each in group.instances if each.state is not InstanceState.DELETING
        ]
        if failed or (living and self.random.random() < 0.4):
            some = self.random.sample(
                failed or living, self.random.randint(1, len(failed or living))
            )
            self.named.update(some)
            whole = remove(
                group.target,
                *some,
                kind=OperationKind.DELETE_INSTANCES if failed else OperationKind.DELETE_NODES,
            )
            return whole.with_spec(id=f"remove-{turn}")
        more = self.random.randint(1, 4)
        if group.target + more > group.max:
            return None
        whole = grow(group.target, group.target + more).with_spec(id=f"grow-{turn}")
        self.asked[whole.spec.id] = more
        return whole

    def _fate(self) -> Scripted:
        faults = (VendorFault.LOST_ANSWER, VendorFault.HANGS_UP)
        refusals = (refusal(429, Retry_After="1"), refusal(400), refusal(400, "Not enough stock"))
        return self.random.choice((None, None, None, None, *faults, *refusals))

    def _carry_out(self, whole: Operation) -> None:
        current, first = claimed(whole), True
        for _ in range(200):
            self.cloud.server.unscript()
            self.cloud.server.reply("POST", *(self._fate() for _ in range(6)))
            for requests in ("GET /v1/projects", "DELETE", "GET /v1/plans"):
                self.cloud.fail(requests, 503, 3 if self.random.random() < 0.1 else 0)
            outcome = self._step(current, first=first)
            if self.random.random() < 0.25:
                outcome = None  # dead before it was recorded
            if isinstance(outcome, Succeeded | Failed):
                self._ended(whole, outcome)
                return
            if isinstance(outcome, InProgress):
                current, first = current.with_status(data=outcome.data, step=outcome.step), False
                self.cloud.settle(outcome.after)
            current = claimed(current)
        raise AssertionError(f"{whole.spec.id} did not come to an end")

    def _step(self, current: Operation, *, first: bool) -> Outcome | None:
        found = self.cloud.build()
        begin = (
            found.scale_up if current.spec.kind is OperationKind.SCALE_UP else found.delete_nodes
        )
        try:
            return begin(current) if first else found.poll(current)
        except (Transient, Throttled, Conflict) as error:
            self.cloud.settle(max(1.0, error.retry_after))
            return None

    def _made(self, name: str) -> int:
        return sum(
            self.cloud.all[number].tags["outscaler-operation"] == name
            for number in self.cloud.alive()
        )

    def _ended(self, whole: Operation, outcome: Succeeded | Failed) -> None:
        if whole.spec.kind is OperationKind.SCALE_UP:
            assert self._made(whole.spec.id) == outcome.facts["created"]
            assert isinstance(outcome, Failed) == (
                outcome.facts["created"] != self.asked[whole.spec.id]
            )
        elif isinstance(outcome, Succeeded):
            assert set(self.cloud.alive()).isdisjoint(
                int(target.handle) for target in whole.spec.targets
            )

    def _check(self) -> None:
        for name, count in self.asked.items():
            assert self._made(name) <= count, "more was bought than was asked for"
        hostnames = [self.cloud.all[number].hostname for number in self.cloud.alive()]
        assert len(hostnames) == len(set(hostnames)), "one machine was bought twice"
        assert set(self.cloud.deleted) <= self.named, "a server was deleted that nobody named"
        assert len(self.cloud.alive()) <= 10


@pytest.mark.more
@each_row("seed", range(examples(4, 12)))
def test_cherry_provider_never_exceeds_the_plan_or_removes_an_unnamed_server(seed: int) -> None:
    _Chaos(seed).run()
