"""The provider protocol as the executor uses it: built from a policy, and correct despite any interruption."""

from __future__ import annotations

import random

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.model.policy import GroupPolicy
from chalicelib.providers.alicloud.provider import build
from chalicelib.providers.base import Connection, Provider
from chalicelib.providers.errors import Conflict, ProviderError, Throttled, Transient, Unauthorized
from tests.cases import each_row
from tests.unit.providers.alicloud.fake_api import FakeAlicloudApi, FakeApiGroup, grow, operation, provider, remove


def connection(**settings: str) -> Connection:
    return Connection("ours", settings, (GroupPolicy("alicloud", "asg-1", 0, 5),), lambda name: "{}", None, lambda: 0.0)


def test_alicloud_provider_is_built_without_a_call() -> None:
    made: Provider = build(connection(region="cn-hangzhou", credentialsSecret="ali"))
    assert made.name == "alicloud"


def test_alicloud_provider_invalid_settings_are_bad_input() -> None:
    with pytest.raises(BadInput, match=r"providers\.alicloud\.region"):
        build(connection(credentialsSecret="ali"))


@each_row("cls", [Transient, Throttled, Conflict])
def test_alicloud_provider_raises_temporary_errors(cls: type[ProviderError]) -> None:
    api = FakeAlicloudApi(FakeApiGroup("asg-1"))
    api.trouble["groups"] = [cls("later")]
    with pytest.raises(cls):
        provider(api).scale_up(grow(0, 1))


def test_alicloud_provider_returns_permanent_errors_with_class_and_code() -> None:
    api = FakeAlicloudApi(FakeApiGroup("asg-1"))
    api.trouble["groups"] = [Unauthorized("no", code="Forbidden.RAM")]
    assert provider(api).scale_up(grow(0, 1)) == Failed("Unauthorized", "no", "Forbidden.RAM")


@each_row("kind", list(OperationKind))
def test_alicloud_provider_survives_invalid_operation_data(kind: OperationKind) -> None:
    api = FakeAlicloudApi(FakeApiGroup("asg-1"))
    api.fill("asg-1", 2)
    rubbish = {"activity": "asa-\u0000", "polls": "-7", "asked": ",,i-9", "refused": "[1", "late": "x"}
    for data in ({}, rubbish):
        for asked in (operation(kind, "asg-1", 2, -5, "i-9"), operation(kind, "asg-1", -1, 10**9, "")):
            outcome = provider(api).poll(asked.with_status(data=data))
            assert isinstance(outcome, Succeeded | InProgress | Failed)
    assert not any(call.startswith("remove") for call in api.calls)


class _Chaos:
    """An executor that dies, repeats itself and loses answers, on one group."""

    def __init__(self, seed: int, *, desired: bool) -> None:
        self.random = random.Random(seed)
        self.group = FakeApiGroup("asg-1", desired_mode=desired, most=12)
        self.api = FakeAlicloudApi(self.group)
        self.planned = 0  # instances that scale-ups requested
        self.named: set[str] = set()
        self.old: list[Operation] = []
        self.turn = 0

    def run(self) -> None:
        for self.turn in range(25):
            self.group.stock = self.random.choice([None, None, 0, 1])
            asked = self._plan()
            self._carry_out(asked)
            if asked is not None:
                self.old.append(asked)
            if self.random.random() < 0.3 and self.old:
                self._step(self.random.choice(self.old), first=True)  # an old message once more
            self.api.step()
            self._check()

    def _plan(self) -> Operation | None:
        group = provider(self.api).observe(()).groups[0]
        failed = [each.handle for each in group.instances if each.error]
        if failed:
            some = failed[: self.random.randint(1, len(failed))]
            return remove(group.target, *some, kind=OperationKind.DELETE_INSTANCES).with_spec(id=f"discard-{self.turn}")
        living = [each.handle for each in group.instances]
        if living and self.random.random() < 0.4:
            some = self.random.sample(living, self.random.randint(1, len(living)))
            self.named.update(some)
            return remove(group.target, *some).with_spec(id=f"remove-{self.turn}")
        more = self.random.randint(1, 3)
        if group.target + more > group.max:
            return None
        self.planned += more
        return grow(group.target, group.target + more).with_spec(id=f"grow-{self.turn}")

    def _carry_out(self, asked: Operation | None) -> None:
        if asked is None:
            return
        current, first = asked, True
        for _ in range(60):
            for method in ("scale", "remove"):
                if self.random.random() < 0.2:
                    self.api.lost.add(method)
            outcome = self._step(current, first=first)
            if isinstance(outcome, Succeeded | Failed):
                self._ended(asked, outcome)
                return
            first = self.random.random() < 0.3  # dead before it was recorded: from the start
            current = asked if first or outcome is None else asked.with_status(data=outcome.data, step=outcome.step)
            if self.random.random() < 0.3:
                self.api.step()
        raise AssertionError(f"{asked.spec.id} did not come to an end")

    def _ended(self, asked: Operation, outcome: Succeeded | Failed) -> None:
        if asked.spec.kind is OperationKind.SCALE_UP or isinstance(outcome, Failed):
            return
        living = {each.instance_id for each in self.group.living()}
        assert living.isdisjoint(target.handle for target in asked.spec.targets)

    def _step(self, current: Operation, *, first: bool) -> Outcome | None:
        found = provider(self.api)
        begin = found.scale_up if current.spec.kind is OperationKind.SCALE_UP else found.delete_nodes
        try:
            return begin(current) if first else found.poll(current)
        except (Transient, Throttled, Conflict):
            return None

    def _check(self) -> None:
        assert self.api.made.get("asg-1", 0) <= self.planned, "more was made than was planned"
        assert self.api.scaled_in == [], "ESS took an instance that nobody named"
        assert set(self.api.removed) <= self.named, "an instance was removed that nobody named"
        assert len(self.api.removed) == len(set(self.api.removed))
        assert 0 <= len(self.group.living()) <= 12
        assert self.group.desired >= 0


@each_row("desired", [True, False], ids=["desired", "plain"])
@each_row("seed", range(40))
def test_alicloud_provider_never_exceeds_the_plan_or_removes_an_unnamed_node(seed: int, desired: bool) -> None:
    _Chaos(seed, desired=desired).run()


class _Crowd(_Chaos):
    """Several concurrent operations on one group, one step at a time, as messages of several functions arrive."""

    def run(self) -> None:
        open_now: list[tuple[Operation, Operation | None]] = []
        for self.turn in range(120):
            self.group.stock = self.random.choice([None, None, 0, 2])
            asked = self._plan() if len(open_now) < 4 and self.random.random() < 0.4 else None
            growing = any(each.spec.kind is OperationKind.SCALE_UP for each, _ in open_now)
            if asked is not None and asked.spec.kind is OperationKind.SCALE_UP and growing:
                self.planned -= asked.spec.to_size - asked.spec.from_size
            elif asked is not None:
                open_now.append((asked, None))
            if open_now:
                place = self.random.randrange(len(open_now))
                whole, current = open_now.pop(place)
                outcome = self._step(current or whole, first=current is None)
                if isinstance(outcome, InProgress):
                    open_now.append((whole, whole.with_status(data=outcome.data, step=outcome.step)))
                elif outcome is None:
                    open_now.append((whole, current))
            if self.random.random() < 0.5:
                self.api.step()
            self._check()


@each_row("desired", [True, False], ids=["desired", "plain"])
@each_row("seed", range(25))
def test_alicloud_provider_concurrent_operations_do_not_affect_each_other(seed: int, desired: bool) -> None:
    _Crowd(seed, desired=desired).run()
