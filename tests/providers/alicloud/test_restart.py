"""Restarts of instances: what is asked of ECS, and what ends, refuses or repeats one."""

from __future__ import annotations

import pytest

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.kit.errors import Conflict, Transient
from infra.emulators.alicloud.models import AlicloudDurations
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.cases import each_row
from tests.providers.alicloud.emulated import GROUP, EmulatedEss, continued, refusal
from tests.providers.alicloud.fixture import drive, order
from tests.providers.alicloud.test_ali_permissions import policy


def restart(ess: EmulatedEss, *handles: str, group: str = GROUP) -> Operation:
    return order(ess, OperationKind.RESTART_NODE, group, 2, 2, *handles or ("i-0001",))


def announced(ess: EmulatedEss) -> Operation:
    """Returns the operation after its first call, which requests nothing."""
    operation = restart(ess)
    outcome = ess.build().restart(operation)
    assert isinstance(outcome, InProgress)
    assert (outcome.after, outcome.step) == (0.0, "announce")
    return continued(operation, outcome)


def reboots(ess: EmulatedEss) -> list[int]:
    return [each.reboots for each in ess.cloud.machines()]


def failed(outcome: Outcome) -> tuple[str, str]:
    assert isinstance(outcome, Failed), outcome
    return outcome.error_class, outcome.message


def test_alicloud_restart_is_announced_then_requested_with_force() -> None:
    ess = EmulatedEss(2)
    operation = announced(ess)
    assert [call.line for call in ess.look() if call.writes] == []
    outcome = ess.build().restart(operation)
    assert isinstance(outcome, InProgress)
    (call,) = (call for call in ess.look() if call.writes)
    assert (call.action, call.parameters["InstanceId"], call.parameters["ForceStop"]) == (
        "RebootInstance",
        "i-0001",
        "true",
    )
    assert isinstance(drive(ess, continued(operation, outcome)), Succeeded)
    assert reboots(ess) == [1, 0]


def test_alicloud_restart_that_ended_before_its_answer_was_recorded_is_not_repeated() -> None:
    """ECS says with minutes when an instance was started."""
    ess = EmulatedEss(2)
    ess.settle(60.0)
    operation = announced(ess)
    ess.build().restart(operation)
    ess.settle(300.0)
    assert isinstance(ess.build().restart(operation), Succeeded)
    assert reboots(ess) == [1, 0]


def test_alicloud_restart_that_runs_already_is_followed() -> None:
    ess = EmulatedEss(2)
    operation = announced(ess)
    ess.cloud.reboot("i-0001")
    ess.look()
    assert isinstance(drive(ess, operation), Succeeded)
    assert reboots(ess) == [1, 0]


def test_alicloud_restart_that_meets_another_one_is_followed() -> None:
    ess = EmulatedEss(2)
    operation = announced(ess)
    ess.server.reply(" RebootInstance$", refusal("IncorrectInstanceStatus", 403))
    outcome = ess.build().restart(operation)
    assert isinstance(outcome, InProgress)
    assert outcome.after > 0.0
    assert isinstance(drive(ess, continued(operation, outcome)), Succeeded)


def test_alicloud_restart_is_sent_once_per_call_although_the_vendor_fails() -> None:
    ess = EmulatedEss(2)
    operation = announced(ess)
    ess.server.faults.next(VendorFault.SERVER_ERROR, on="RebootInstance", times=-1)
    ess.look()
    with pytest.raises(Transient):
        ess.build().restart(operation)
    assert ess.actions().count("RebootInstance") == 1


def test_alicloud_stopped_instance_is_not_restarted() -> None:
    ess = EmulatedEss(2)
    ess.cloud.machine("i-0001").health = "Unhealthy"
    assert failed(ess.build().restart(restart(ess))) == (
        "InvalidRequest",
        "i-0001 is Stopped; ECS restarts only what is running",
    )
    assert reboots(ess) == [0, 0]


def test_alicloud_restart_of_an_instance_that_is_gone_fails() -> None:
    ess = EmulatedEss(2)
    operation = announced(ess)
    ess.cloud.vanish("i-0001")
    assert failed(ess.build().restart(operation)) == (
        "NotFound",
        "asg-1: i-0001 is gone or being removed",
    )


def test_alicloud_restart_of_an_instance_that_leaves_fails() -> None:
    ess = EmulatedEss(2)
    ess.cloud.set_state("i-0001", "Removing")
    assert failed(ess.build().restart(restart(ess)))[0] == "NotFound"


def test_alicloud_restart_during_which_ess_replaces_the_instance_fails() -> None:
    ess = EmulatedEss(2)
    operation = announced(ess)
    outcome = ess.build().restart(operation)
    ess.cloud.sicken("i-0001", at_once=True)
    assert failed(drive(ess, continued(operation, outcome)))[0] == "NotFound"


def test_alicloud_restart_that_does_not_end_fails_after_ten_minutes() -> None:
    ess = EmulatedEss(2, times=AlicloudDurations(reboot=100_000.0))
    started = ess.now()
    cls, message = failed(drive(ess, restart(ess)))
    assert (cls, message) == (
        "Unknown",
        "asg-1: i-0001 is Starting 600s after its restart was requested",
    )
    assert 600.0 <= ess.now() - started < 700.0


def test_alicloud_key_that_may_not_restart_names_the_permission() -> None:
    ess = EmulatedEss(2)
    ess.server.ring.keys[ess.key_id].permissions = policy("ram-policy.json")
    cls, message = failed(drive(ess, restart(ess)))
    assert cls == "Unauthorized"
    assert "grant ecs:RebootInstance, or write action: replace" in message


def test_alicloud_key_that_sees_no_instances_names_the_permission() -> None:
    ess = EmulatedEss(2)
    ess.server.ring.keys[ess.key_id].permissions = policy("ram-policy-restart.json")
    assert failed(ess.build().restart(restart(ess)))[0] == "Unauthorized"
    held = policy("ram-policy.json")
    ess.server.ring.keys[ess.key_id].permissions = type(held)(
        tuple(
            type(each)(
                each.allows,
                tuple(name for name in each.actions if "DescribeInstances" not in name),
                ("*",),
            )
            for each in held.statements
        )
    )
    assert "the key lacks ecs:DescribeInstances" in failed(ess.build().restart(restart(ess)))[1]


@each_row("handles", [("i-0001", "i-0002"), ("placeholder-asg-1-0",)])
def test_alicloud_restart_is_of_exactly_one_instance(handles: tuple[str, ...]) -> None:
    ess = EmulatedEss(2)
    assert failed(ess.build().restart(restart(ess, *handles))) == (
        "InvalidRequest",
        "a restart is of exactly one instance",
    )


def test_alicloud_restart_of_a_group_that_the_policy_does_not_name_is_refused() -> None:
    ess = EmulatedEss(2, 2)
    outcome = ess.build(f"0:10:{GROUP}").restart(restart(ess, "i-0003", group="asg-2"))
    assert failed(outcome)[0] == "InvalidRequest"
    assert reboots(ess) == [0] * 4


def test_alicloud_restart_waits_while_the_clusters_nodes_cannot_be_read() -> None:
    ess = EmulatedEss(2)
    operation = restart(ess)
    ess.down = True
    with pytest.raises((Transient, Conflict)):
        ess.build().restart(operation)
    assert reboots(ess) == [0, 0]
