"""Members that their pool would create otherwise now, their replacement, and
restarts, over the emulated zone.
"""

from __future__ import annotations

import pytest

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.kit.base import NodeRestarter
from chalicelib.providers.kit.errors import Conflict, ProviderError, Transient, Unauthorized
from infra.emulators.exoscale.account import example_id
from infra.emulators.exoscale.models import Ending, ExoscaleDurations
from infra.emulators.exoscale.server import OPERATIONS
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.cases import each_row
from tests.providers.exoscale.fixture import ExoscaleFixture, drive, order, seen

OLD, NEW = (example_id("template", number) for number in (1, 2))
BOTH = [False, True]  # a Nodepool, and a standalone pool


def differences(bench: ExoscaleFixture, group: str) -> list[str]:
    return [each.outdated for each in seen(bench, group).instances]


# -- drift


@each_row("standalone", BOTH)
@each_row(
    "change, difference",
    [
        ({"template": NEW}, f"template {OLD}, the group's is {NEW}"),
        (
            {"type": "standard.large"},
            "instance type standard.medium, the group's is standard.large",
        ),
        (
            {"template": NEW, "type": "standard.large"},
            (
                f"template {OLD}, the group's is {NEW}; instance type standard.medium, the group's "
                "is standard.large"
            ),
        ),
        ({"disk": 100}, ""),  # the list of instances does not have the disk's size
    ],
)
def test_exoscale_member_is_outdated_if_its_pool_creates_others_now(
    standalone: bool, change: dict[str, object], difference: str
) -> None:
    with ExoscaleFixture(standalone=standalone) as bench:
        group = bench.add_group("web", size=2)
        assert differences(bench, group) == ["", ""]
        bench.zone.update_pool(group, **change)  # type: ignore[arg-type]
        bench.zone.add_members(group, 1)
        assert differences(bench, group) == [difference, difference, ""]


def test_exoscale_disk_is_compared_where_machines_are_read_one_by_one() -> None:
    with ExoscaleFixture(operations=OPERATIONS - {"list-instances"}) as bench:
        group = bench.add_group("web", size=1)
        bench.zone.update_pool(group, disk=100)
        bench.kubelets.silent.add(next(iter(bench.zone.vms.values())).name)
        assert differences(bench, group) == ["disk 50 GiB, the group's is 100 GiB"]


def test_exoscale_replacement_of_an_outdated_member_ends_at_the_size_before(
    bench: ExoscaleFixture,
) -> None:
    group = bench.add_group("web", size=2)
    first, second = bench.machines(group)
    bench.zone.update_pool(group, template=NEW)
    scale_up = order(bench, OperationKind.SCALE_UP, group, 2, 3, op="a-0123456789abcdef")
    assert isinstance(drive(bench, scale_up), Succeeded)
    bench.settle()
    assert bench.machines(group)[:2] == [first, second]
    removal = order(bench, OperationKind.DELETE_NODES, group, 3, 2, first, op="b-0123456789abcdef")
    assert isinstance(drive(bench, removal), Succeeded)
    bench.settle()
    assert bench.target(group) == 2
    assert second in bench.machines(group)
    assert first not in bench.machines(group)
    assert [bool(text) for text in differences(bench, group)] == [True, False]


def test_exoscale_leaving_member_is_not_called_outdated(bench: ExoscaleFixture) -> None:
    group = bench.add_group("web", size=1)
    bench.zone.update_pool(group, template=NEW)
    bench.zone.set_state(bench.machines(group)[0], "stopping")
    assert differences(bench, group) == [""]


def test_exoscale_group_is_busy_while_the_vendor_changes_it(bench: ExoscaleFixture) -> None:
    group = bench.add_group("web", size=2)
    assert (seen(bench, group).busy, seen(bench, group).spot) == ("", False)
    order_ = order(bench, OperationKind.SCALE_UP, group, 2, 3)
    assert isinstance(bench.provider().scale_up(order_), InProgress)
    assert "is being changed (scaling-up, Nodepool scaling)" in seen(bench, group).busy
    bench.settle()
    assert seen(bench, group).busy == ""


def test_exoscale_migrating_machine_is_busy(bench: ExoscaleFixture) -> None:
    group = bench.add_group("web", size=2)
    bench.zone.set_state(bench.machines(group)[1], "migrating")
    assert [each.busy for each in seen(bench, group).instances] == ["", "migrating"]


def test_exoscale_sold_out_type_is_out_of_stock(bench: ExoscaleFixture) -> None:
    group = bench.add_group("web", size=1)
    bench.zone.sold_out.add("standard.medium")
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 2))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "OutOfStock"


# -- restart


def restart(bench: ExoscaleFixture, group: str, *handles: str) -> Operation:
    size = bench.target(group)
    return order(bench, OperationKind.RESTART_NODE, group, size, size, *handles)


def reboots(bench: ExoscaleFixture) -> list[int]:
    return [len(vm.reboots) for vm in bench.zone.vms.values()]


@each_row("standalone", BOTH)
def test_exoscale_restart_reboots_one_member_and_is_followed_to_its_end(standalone: bool) -> None:
    with ExoscaleFixture(standalone=standalone) as bench:
        group = bench.add_group("web", size=2)
        assert seen(bench, group).restarts
        name = bench.machines(group)[1]
        operation = restart(bench, group, name)
        provider = bench.provider()
        assert isinstance(provider, NodeRestarter)
        begun = provider.restart(operation)
        assert isinstance(begun, InProgress)
        again = operation.with_status(step=begun.step, data=begun.data)
        # of an operation that takes a minute
        assert isinstance(bench.provider().poll(again), InProgress)
        assert drive(bench, again) == Succeeded({"restarted": name, "group": group})
        assert reboots(bench) == [0, 1]
        assert bench.target(group) == 2


def test_exoscale_restart_whose_operation_is_forgotten_is_not_made_again(
    bench: ExoscaleFixture,
) -> None:
    group = bench.add_group("web", size=1)
    operation = restart(bench, group, *bench.machines(group))
    begun = bench.provider().restart(operation)  # type: ignore[attr-defined]
    bench.zone.works.clear()
    outcome = bench.provider().poll(operation.with_status(step=begun.step, data=begun.data))
    assert isinstance(outcome, Succeeded)
    assert reboots(bench) == [1]


@each_row("state, cls", [("failure", "Conflict"), ("timeout", "Unknown")])
def test_exoscale_restart_that_the_vendor_ends_otherwise_fails(state: str, cls: str) -> None:
    with ExoscaleFixture() as bench:
        group = bench.add_group("web", size=1)
        bench.zone.reboot_endings.append(Ending(state, "busy" if state == "failure" else ""))
        outcome = drive(bench, restart(bench, group, *bench.machines(group)))
        assert isinstance(outcome, Failed)
        assert outcome.error_class == cls
        assert reboots(bench) == [0]


def refused(bench: ExoscaleFixture, operation: Operation) -> Failed:
    """Returns the failure of a restart that restarted nothing."""
    outcome = bench.provider().restart(operation)  # type: ignore[attr-defined]
    assert isinstance(outcome, Failed)
    assert bench.writes() == []
    return outcome


def test_exoscale_restart_of_another_groups_machine_is_refused(bench: ExoscaleFixture) -> None:
    group, other = bench.add_group("web", size=1), bench.add_group("db", size=1)
    failure = refused(bench, restart(bench, group, *bench.machines(other)))
    assert failure.error_class == "InvalidRequest"
    lonely = bench.zone.add_lonely()
    assert "no pool" in refused(bench, restart(bench, group, lonely)).message


def test_exoscale_restart_needs_exactly_one_machine(bench: ExoscaleFixture) -> None:
    group = bench.add_group("web", size=2)
    for handles in ((), tuple(bench.machines(group)), (f"placeholder-{group}-0",)):
        assert refused(bench, restart(bench, group, *handles)).error_class == "InvalidRequest"


def test_exoscale_restart_of_a_machine_that_is_gone_or_leaving_fails(
    bench: ExoscaleFixture,
) -> None:
    group = bench.add_group("web", size=2)
    gone, leaving = bench.machines(group)
    operations = [restart(bench, group, gone), restart(bench, group, leaving)]
    bench.zone.vanish(gone)
    bench.zone.set_state(leaving, "destroying")
    assert [refused(bench, operation).error_class for operation in operations] == [
        "NotFound",
        "NotFound",
    ]


def test_exoscale_restart_of_a_machine_that_is_another_node_now_is_a_conflict(
    bench: ExoscaleFixture,
) -> None:
    group = bench.add_group("web", size=2)
    operation = restart(bench, group, bench.machines(group)[0])
    (target,) = operation.spec.targets
    changed = operation.with_spec(
        targets=(type(target)("another", target.instance, target.handle),)
    )
    assert refused(bench, changed).error_class == "Conflict"


def test_exoscale_key_that_may_not_reboot_says_so_and_is_not_taken_for_a_wrong_key() -> None:
    with ExoscaleFixture(operations=OPERATIONS - {"reboot-instance"}) as bench:
        group = bench.add_group("web", size=1)
        outcome = drive(bench, restart(bench, group, *bench.machines(group)))
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "InvalidRequest"
        assert "allow reboot-instance to the API key" in outcome.message


@each_row(
    "fault, raised",
    [
        (VendorFault.SERVER_ERROR, Transient),
        (VendorFault.CONFLICT, Conflict),
        (VendorFault.LOST_ANSWER, Transient),
    ],
)
def test_exoscale_restart_with_an_error_is_tried_later_and_reboots_once(
    fault: VendorFault, raised: type[ProviderError]
) -> None:
    with ExoscaleFixture() as bench:
        group = bench.add_group("web", size=1)
        operation = restart(bench, group, *bench.machines(group))
        bench.server.faults.next(fault, on="write")
        with pytest.raises(raised):
            bench.provider().restart(operation)  # type: ignore[attr-defined]
        assert len(bench.writes()) == 1
        outcome = drive(bench, operation)
        assert isinstance(outcome, Succeeded)
        assert ("note" in outcome.facts) == (fault is VendorFault.LOST_ANSWER)
        assert reboots(bench) == [1]


def test_exoscale_restart_that_was_not_recorded_is_followed_by_the_next_call(
    bench: ExoscaleFixture,
) -> None:
    group = bench.add_group("web", size=1)
    operation = restart(bench, group, *bench.machines(group))
    first = bench.provider().restart(operation)  # type: ignore[attr-defined]
    assert bench.provider().restart(operation) == first  # type: ignore[attr-defined]
    assert isinstance(drive(bench, operation), Succeeded)
    assert reboots(bench) == [1]


def test_exoscale_restart_with_a_refused_key_is_unauthorized(bench: ExoscaleFixture) -> None:
    group = bench.add_group("web", size=1)
    operation = restart(bench, group, *bench.machines(group))
    outcome = bench.provider(credential="wrong").restart(operation)  # type: ignore[attr-defined]
    assert isinstance(outcome, Failed)
    assert outcome.error_class == Unauthorized.__name__


def test_exoscale_restart_without_an_operation_in_progress_ends_at_once() -> None:
    with ExoscaleFixture(times=ExoscaleDurations(operation=0.0)) as bench:
        group = bench.add_group("web", size=1)
        assert isinstance(drive(bench, restart(bench, group, *bench.machines(group))), Succeeded)
        assert reboots(bench) == [1]
