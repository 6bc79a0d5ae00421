"""The provider protocol as the executor uses it: built from a policy, and correct despite any interruption."""

from __future__ import annotations

import random

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.model.group import InstanceState
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.model.policy import GroupPolicy
from chalicelib.providers.alicloud.provider import build
from chalicelib.providers.base import Connection, Provider
from chalicelib.providers.errors import Conflict, ProviderError, Throttled, Transient
from infra.emulators.alicloud.models import AlicloudDurations
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.cases import each_row
from tests.contract.alicloud.fixtures import order
from tests.operations import ask
from tests.unit.providers.alicloud.emulated import EmulatedEss, continued, discard, grow, remove, shrink


def connection(**settings: str) -> Connection:
    return Connection("ours", settings, (GroupPolicy("alicloud", "asg-1", 0, 5),), lambda name: "{}", None, lambda: 0.0)


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
def test_alicloud_error_of_a_read_has_its_class_in_every_change(code: str, status: int, cls: str) -> None:
    ess = EmulatedEss(3)
    ess.group.desired = 4
    changes = [grow(ess, 4, 5), remove(ess, 4, "i-0001"), discard(ess, 4, "placeholder-asg-1-0"), shrink(ess, 4, 3)]
    for operation in changes:
        ess.fail("DescribeScalingGroups", code, 3 if cls in {"Transient", "Throttled"} else 1, status)
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
    rubbish = {"activity": "asa-\u0000", "polls": "-7", "asked": ",,i-9", "refused": "[1", "late": "x"}
    for data in ({}, rubbish):
        for operation in (order(ess, kind, "asg-1", 2, -5, "i-9"), order(ess, kind, "asg-1", -1, 10**9, "")):
            outcome = ess.build().poll(operation.with_status(data=data))
            assert isinstance(outcome, Succeeded | InProgress | Failed)
    assert ess.changes() == []


class _Crowd:
    """Several concurrent operations on one group, one step at a time, as messages of several functions arrive,
    sometimes twice or without an answer of the vendor. ESS compares the group with its desired capacity every 45 s."""

    def __init__(self, seed: int, *, desired: bool) -> None:
        self.random = random.Random(seed)
        self.ess = EmulatedEss(0, desired=desired, most=12, times=AlicloudDurations(check=45.0))
        self.planned = 0  # instances that scale-ups requested
        self.named: set[str] = set()
        self.turn = 0

    def run(self) -> None:
        waiting: list[tuple[Operation, Operation | None]] = []
        for self.turn in range(50):
            stock = self.random.choice([None, None, 0, 2])
            self.ess.cloud.stock = {} if stock is None else {("ecs.g7.xlarge", "cn-hangzhou-i"): stock}
            operation = self._plan() if len(waiting) < 4 and self.random.random() < 0.4 else None
            growing = any(each.spec.kind is OperationKind.SCALE_UP for each, _ in waiting)
            if operation is not None and not (operation.spec.kind is OperationKind.SCALE_UP and growing):
                self.planned += max(0, operation.spec.to_size - operation.spec.from_size)
                waiting.append((operation, None))
            if waiting:
                whole, current = waiting.pop(self.random.randrange(len(waiting)))
                outcome = self._step(current or whole)
                if isinstance(outcome, InProgress):
                    again = self.random.random() < 0.1  # dead before it was recorded: from the start
                    waiting.append((whole, None if again else continued(whole, outcome)))
                elif outcome is None:
                    waiting.append((whole, current))
            if self.random.random() < 0.5:
                self.ess.settle(50.0)
            self._check()

    def _plan(self) -> Operation | None:
        (group,) = self.ess.groups(nodes=self.ess.nodes())
        missing = [each.handle for each in group.instances if each.error]
        if missing:
            some = missing[: self.random.randint(1, len(missing))]
            return discard(self.ess, group.target, *some, op=f"discard-{self.turn}")
        nodes = [each.handle for each in group.instances if each.node and each.state is InstanceState.RUNNING]
        if nodes and self.random.random() < 0.4:
            some = self.random.sample(nodes, self.random.randint(1, len(nodes)))
            self.named.update(some)
            return remove(self.ess, group.target, *some, op=f"remove-{self.turn}")
        more = self.random.randint(1, 3)
        if group.target + more > group.max:
            return None
        return grow(self.ess, group.target, group.target + more, op=f"grow-{self.turn}")

    def _step(self, operation: Operation) -> Outcome | None:
        if self.random.random() < 0.2:
            self.ess.server.faults.next(VendorFault.LOST_ANSWER, on="write", times=self.random.choice((1, 3)))
        try:
            return ask(self.ess.build(), operation)
        except (Transient, Throttled, Conflict):
            return None
        finally:
            self.ess.server.faults.clear()

    def _check(self) -> None:
        group = self.ess.group
        made = [name for each in group.activities if each.grows for name in each.machines]
        assert len(made) <= self.planned, "more was made than was planned"
        ours = [name for each in group.activities if not each.grows and each.trigger != "Ess" for name in each.machines]
        assert not [each for each in group.activities if not each.grows and each.trigger == "Ess"], (
            "ESS took an instance that was not named"
        )
        assert set(ours) <= self.named, "an instance was removed that was not named"
        assert len(ours) == len(set(ours))
        assert 0 <= group.total <= 12
        assert group.desired is None or group.desired >= 0


@each_row("desired", [True, False], ids=["desired", "plain"])
@each_row("seed", range(5))
def test_alicloud_provider_concurrent_operations_do_not_affect_each_other(seed: int, desired: bool) -> None:
    _Crowd(seed, desired=desired).run()
