"""The provider protocol as the executor uses it: built from a policy, and correct
despite any interruption.
"""

from __future__ import annotations

import random

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.model.group import InstanceState
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers.alicloud.provider import build
from chalicelib.providers.kit.base import Connection, Provider
from chalicelib.providers.kit.errors import Conflict, ProviderError, Throttled, Transient
from infra.emulators.alicloud.models import AlicloudDurations
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.amounts import examples
from tests.cases import each_row
from tests.operations import ask
from tests.providers.alicloud.emulated import (
    EmulatedEss,
    continued,
    discard,
    grow,
    remove,
    shrink,
)
from tests.providers.alicloud.fixture import order


def connection(**settings: str) -> Connection:
    return Connection(
        "ours",
        settings,
        (GroupPolicy("alicloud", "asg-1", 0, 5),),
        lambda name: "{}",
        None,
        lambda: 0.0,
    )


def test_alicloud_provider_is_built_without_a_call() -> None:
    made: Provider = build(connection(region="cn-hangzhou", credentialsSecret="ali"))
    assert made.name == "alicloud"


def test_alicloud_provider_invalid_settings_are_bad_input() -> None:
    with pytest.raises(BadInput, match=r"providers\.alicloud\.region"):
        build(connection(credentialsSecret="ali"))


@each_row(
    ("code", "status", "cls"),
    [
        ("InternalError", 500, "Transient"),
        ("Throttling.User", 400, "Throttled"),
        ("ScalingActivityInProgress", 400, "Conflict"),
        ("Forbidden.RAM", 403, "Unauthorized"),
        ("InvalidScalingGroupId.NotFound", 404, "NotFound"),
        ("InvalidParameter", 400, "InvalidRequest"),
        ("NeverHeardOf", 418, "Unknown"),
    ],
)
def test_alicloud_error_of_a_read_has_its_class_in_every_change(
    code: str, status: int, cls: str
) -> None:
    ess = EmulatedEss(3)
    ess.group.desired = 4
    changes = [
        grow(ess, 4, 5),
        remove(ess, 4, "i-0001"),
        discard(ess, 4, "placeholder-asg-1-0"),
        shrink(ess, 4, 3),
    ]
    for operation in changes:
        ess.fail(
            "DescribeScalingGroups", code, 3 if cls in {"Transient", "Throttled"} else 1, status
        )
        if cls in {"Throttled", "Transient", "Conflict"}:
            with pytest.raises(ProviderError) as raised:
                ask(ess.build(), operation)
            assert (raised.value.error_class, raised.value.code) == (cls, code)
            ess.settle(60.0)  # no pause is left
        else:
            outcome = ask(ess.build(), operation)
            assert isinstance(outcome, Failed)
            assert (outcome.error_class, outcome.code) == (cls, code)
            assert outcome.message.startswith("DescribeScalingGroups: ")
    assert ess.changes() == []


@each_row("kind", list(OperationKind))
def test_alicloud_provider_survives_invalid_operation_data(kind: OperationKind) -> None:
    ess = EmulatedEss(2)
    rubbish = {
        "activity": "asa-\u0000",
        "polls": "-7",
        "asked": ",,i-9",
        "refused": "[1",
        "late": "x",
    }
    for data in ({}, rubbish):
        for operation in (
            order(ess, kind, "asg-1", 2, -5, "i-9"),
            order(ess, kind, "asg-1", -1, 10**9, ""),
        ):
            outcome = ess.build().poll(operation.with_status(data=data))
            assert isinstance(outcome, Succeeded | InProgress | Failed)
    assert ess.changes() == []


def _begins(operation: Operation) -> bool:
    return operation.spec.kind is OperationKind.DELETE_NODES and not operation.status.step


class _Crowd:
    """Several concurrent operations on one group, one step at a time, as messages of several
    functions arrive, sometimes twice or without an answer of the vendor. ESS compares the group
    with its desired capacity every 45 s."""

    def __init__(self, seed: int, *, desired: bool) -> None:
        self.random = random.Random(seed)
        self.ess = EmulatedEss(0, desired=desired, most=12, times=AlicloudDurations(check=45.0))
        self.planned = 0  # instances that scale-ups requested
        self.named: set[str] = set()
        self.turn = self.shared = 0
        self.waiting: dict[str, Operation] = {}  # by id, as recorded

    def run(self) -> None:
        for self.turn in range(50):
            stock = self.random.choice([None, None, 0, 2])
            self.ess.cloud.stock = (
                {} if stock is None else {("ecs.g7.xlarge", "cn-hangzhou-i"): stock}
            )
            if len(self.waiting) < 5 and self.random.random() < 0.5:
                self.waiting |= {operation.spec.id: operation for operation in self._plan()}
            if self.waiting:
                for name, outcome in self._step(
                    self.random.choice(list(self.waiting.values()))
                ).items():
                    self._record(name, outcome)
            if self.random.random() < 0.5:
                self.ess.settle(50.0)
            self._check()

    def _record(self, name: str, outcome: Outcome) -> None:
        """Records what an operation has come to, unless the function is
        dead before: it then starts again."""
        operation = self.waiting[name]
        if self.random.random() < 0.1:
            self.waiting[name] = operation.with_status(data={}, step="")
        elif isinstance(outcome, InProgress):
            self.waiting[name] = continued(operation, outcome)
        else:
            del self.waiting[name]

    def _plan(self) -> list[Operation]:
        (group,) = self.ess.groups(nodes=self.ess.nodes())
        missing = [each.handle for each in group.instances if each.error]
        if missing:
            some = missing[: self.random.randint(1, len(missing))]
            return [discard(self.ess, group.target, *some, op=f"discard-{self.turn}")]
        nodes = [
            each.handle
            for each in group.instances
            if each.node and each.state is InstanceState.RUNNING
        ]
        if nodes and self.random.random() < 0.4:
            some = self.random.sample(nodes, self.random.randint(1, len(nodes)))
            self.named.update(some)
            if self.random.random() < 0.3:
                return [remove(self.ess, group.target, *some, op=f"remove-{self.turn}")]
            return [
                remove(self.ess, group.target, name, op=f"remove-{self.turn}-{name}")
                for name in some
            ]
        more = self.random.randint(1, 3)
        growing = any(each.spec.kind is OperationKind.SCALE_UP for each in self.waiting.values())
        if growing or group.target + more > group.max:
            return []
        self.planned += more
        return [grow(self.ess, group.target, group.target + more, op=f"grow-{self.turn}")]

    def _step(self, operation: Operation) -> dict[str, Outcome]:
        """Makes the next call of an operation, and returns outcomes by id. A removal that
        begins takes others along."""
        provider = self.ess.build()
        if self.random.random() < 0.2:
            self.ess.server.faults.next(
                VendorFault.LOST_ANSWER, on="write", times=self.random.choice((1, 3))
            )
        try:
            if not _begins(operation):
                return {operation.spec.id: ask(provider, operation)}
            ready = [
                other
                for other in self.waiting.values()
                if other is not operation and _begins(other)
            ]
            outcome, joined = provider.delete_together(operation, ready)
            self.shared += len(joined)
            return {operation.spec.id: outcome, **joined}
        except (Transient, Throttled, Conflict):
            return {}
        finally:
            self.ess.server.faults.clear()

    def _check(self) -> None:
        group = self.ess.group
        made = [name for each in group.activities if each.grows for name in each.machines]
        assert len(made) <= self.planned, "more was made than was planned"
        ours = [
            name
            for each in group.activities
            if not each.grows and each.trigger != "Ess"
            for name in each.machines
        ]
        assert not [
            each for each in group.activities if not each.grows and each.trigger == "Ess"
        ], "ESS took an instance that was not named"
        assert set(ours) <= self.named, "an instance was removed that was not named"
        assert len(ours) == len(set(ours))
        assert 0 <= group.total <= 12
        assert group.desired is None or group.desired >= 0


@pytest.mark.more
@pytest.mark.parametrize("desired", [True, False], ids=["desired", "plain"])
def test_alicloud_provider_concurrent_operations_do_not_affect_each_other(desired: bool) -> None:
    shared, seeds = 0, examples(2, 4)
    for seed in range(seeds):
        crowd = _Crowd(seed, desired=desired)
        crowd.run()
        shared += crowd.shared
    assert shared >= seeds, "too few removals have shared a request"
