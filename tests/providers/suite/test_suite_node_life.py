"""Tests of what happens to running machines: taken back by the vendor, outdated, changed
by the vendor, restarted.

A bench joins by the methods of NodeLifeFixture; the tests of a method that it does not
have are skipped for it.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.kit.base import NodeRestarter
from chalicelib.providers.kit.errors import ProviderError
from tests.providers.suite.operations import OperationDriver, class_of
from tests.providers.suite.provider_fixture import Trouble

NOTICE = 3600.0
"""Seconds: no vendor announces longer before that it takes a machine back."""


def _leaving(group: NodeGroup) -> list[str]:
    return [each.handle for each in group.instances if each.leaves_at]


def _outdated(group: NodeGroup) -> list[str]:
    return [each.handle for each in group.instances if each.outdated]


def _interrupted(yard: OperationDriver, group: str, *instances: Instance) -> Operation:
    """Builds the removal of machines that the vendor takes back."""
    return yard.removal(group, *instances).with_spec(reason=DisruptionReason.INTERRUPTED)


def _ask_twice(yard: OperationDriver, order: Operation) -> Outcome | ProviderError:
    """Returns the first answer to a restart that is asked for twice with the same data."""
    first, _ = (yard.ask(lambda provider: provider.restart(order)) for _ in range(2))
    return first


def test_provider_states_nothing_of_machines_to_which_nothing_happens(
    yard: OperationDriver,
) -> None:
    group = yard.group(yard.bench.add_group("g", size=2))
    assert (group.spot, group.busy, group.replaces_interrupted) == (False, "", False)
    assert len(group.instances) == 2
    for each in group.instances:
        assert (each.leaves_at, each.outdated, each.busy, each.repaired_by) == (0.0, "", "", "")


# -- taken back


def test_provider_names_the_machine_that_its_vendor_takes_back(yard: OperationDriver) -> None:
    bench = yard.life("add_spot_group", "interrupt")
    group, other = bench.add_spot_group("spot", size=3), bench.add_group("plain", size=1)
    assert yard.group(group).spot
    assert not _leaving(yard.group(group))
    machine = bench.machines(group)[1]
    ends = bench.interrupt(machine)
    seen = yard.group(group)
    assert _leaving(seen) == [machine]
    (leaves_at,) = (each.leaves_at for each in seen.instances if each.leaves_at)
    assert bench.now() < leaves_at <= ends < bench.now() + NOTICE
    assert not _leaving(yard.group(other))
    assert not bench.writes()


def test_provider_does_not_name_another_clusters_machine_that_is_taken_back(
    yard: OperationDriver,
) -> None:
    bench = yard.life("add_spot_group", "interrupt")
    ours, theirs = (
        bench.add_spot_group("ours", size=2),
        bench.add_spot_group("theirs", size=2, cluster="theirs"),
    )
    bench.interrupt(bench.machines(theirs)[0])
    (group,) = yard.observe().groups
    assert group.id == ours
    assert len(group.instances) == 2
    assert not _leaving(group)


def test_provider_reports_no_machine_after_the_vendor_has_taken_it_back(
    yard: OperationDriver,
) -> None:
    bench = yard.life("add_spot_group", "interrupt")
    group = bench.add_spot_group("spot", size=2)
    machine = bench.machines(group)[0]
    bench.settle(bench.interrupt(machine) - bench.now() + 600.0)
    assert machine not in {each.handle for each in yard.group(group).instances}
    assert not _leaving(yard.group(group))


def test_provider_ends_the_removal_of_a_machine_that_is_taken_back(yard: OperationDriver) -> None:
    bench = yard.life("add_spot_group", "interrupt")
    group = bench.add_spot_group("spot", size=3)
    before = bench.machines(group)
    bench.interrupt(before[1])
    (leaving,) = (each for each in yard.instances(group) if each.leaves_at)
    assert isinstance(yard.drive(_interrupted(yard, group, leaving)), Succeeded)
    assert before[1] not in yard.finish(group)
    assert {before[0], before[2]} <= set(bench.machines(group))


def test_provider_counts_a_machine_that_was_taken_back_as_removed(yard: OperationDriver) -> None:
    bench = yard.life("add_spot_group", "interrupt")
    group = bench.add_spot_group("spot", size=3)
    victim = yard.instances(group)[1]
    order, others = (
        _interrupted(yard, group, victim),
        {each.handle for each in yard.instances(group)} - {victim.handle},
    )
    bench.settle(bench.interrupt(victim.handle) - bench.now() + 60.0)
    assert isinstance(yard.drive(order), Succeeded)
    assert others <= set(yard.finish(group))


def test_provider_removal_at_the_minimum_ends_although_the_machine_leaves(
    yard: OperationDriver,
) -> None:
    """It may be refused, as the machine goes anyway; it must not wait for
    something that never comes."""
    bench = yard.life("add_spot_group", "interrupt")
    group = bench.add_spot_group("spot", size=2, least=2)
    victim = yard.instances(group)[0]
    bench.interrupt(victim.handle)
    assert isinstance(yard.drive(_interrupted(yard, group, victim)), Succeeded | Failed)
    assert len(yard.finish(group)) >= 1


# -- outdated


def test_provider_names_the_machines_that_their_group_would_create_otherwise(
    yard: OperationDriver,
) -> None:
    bench = yard.life("redefine")
    group, other = bench.add_group("g", size=2), bench.add_group("other", size=1)
    old = bench.machines(group)
    bench.redefine(group)
    assert sorted(_outdated(yard.group(group))) == sorted(old)
    assert all(len(each.outdated) < 300 for each in yard.group(group).instances)
    assert not _outdated(yard.group(other))
    yard.run(yard.growth(group, 3))
    new = set(yard.finish(group)) - set(old)
    assert len(new) == 1
    assert sorted(_outdated(yard.group(group))) == sorted(old)


# -- busy


def test_provider_says_so_while_the_vendor_changes_a_group(yard: OperationDriver) -> None:
    bench = yard.life("occupy")
    group, other = bench.add_group("g", size=2), bench.add_group("other", size=1)
    bench.occupy(group)
    assert yard.group(group).busy
    assert not yard.group(other).busy
    bench.settle()
    assert not yard.group(group).busy


# -- restarted


def test_provider_restarts_if_and_only_if_its_groups_say_so(yard: OperationDriver) -> None:
    group = yard.group(yard.bench.add_group("g", size=1))
    assert (
        group.restarts
        == isinstance(yard.bench.provider(), NodeRestarter)
        == hasattr(yard.bench, "reboots")
    )


def test_provider_restarts_exactly_the_named_machine(yard: OperationDriver) -> None:
    bench = yard.life("reboots")
    group = bench.add_group("g", size=3)
    machines, victim = bench.machines(group), yard.instances(group)[1]
    assert isinstance(yard.drive(yard.restart(group, victim)), Succeeded)
    bench.settle()
    assert [bench.reboots(each) for each in machines] == [0, 1, 0]
    assert (bench.machines(group), bench.target(group)) == (machines, 3)
    assert len(yard.group(group).instances) == 3


def test_provider_repeated_restart_restarts_once(yard: OperationDriver) -> None:
    """Each call is made twice with the same data, as by a function that ends before it
    records the first answer."""
    bench = yard.life("reboots")
    group = bench.add_group("g", size=2)
    victim = yard.instances(group)[0]
    order = yard.restart(group, victim)
    for _ in range(30):
        first = _ask_twice(yard, order)
        if isinstance(first, Succeeded):
            break
        assert isinstance(first, InProgress)
        order = order.with_status(step=first.step, data=first.data)
        bench.settle(first.after)
    assert isinstance(first, Succeeded)
    bench.settle()
    assert bench.reboots(victim.handle) == 1


def test_provider_restart_whose_answer_is_lost_restarts_once(yard: OperationDriver) -> None:
    bench = yard.life("reboots")
    yard.needs(Trouble.LOST_ANSWER.value)
    group = bench.add_group("g", size=1)
    order = yard.restart(group, yard.instances(group)[0])
    bench.trouble(Trouble.LOST_ANSWER, on="write", times=1)
    assert isinstance(yard.drive(order), Succeeded)
    bench.settle()
    assert bench.reboots(bench.machines(group)[0]) == 1


def test_provider_does_not_restart_a_machine_of_another_group(yard: OperationDriver) -> None:
    bench = yard.life("reboots")
    group, other = bench.add_group("g", size=1), bench.add_group("other", size=1)
    theirs = bench.add_group("theirs", size=1, cluster="theirs")
    order = yard.restart(group, yard.instances(other)[0])
    bench.calls()
    assert class_of(yard.ask(lambda provider: provider.restart(order))) not in {"Done", "Pending"}
    handle = bench.machines(theirs)[0]
    (target,) = order.spec.targets
    foreign = order.with_spec(
        targets=(msgspec.structs.replace(target, instance=handle, handle=handle),)
    )
    answer = yard.ask(lambda provider: provider.restart(foreign))
    assert isinstance(answer, Failed | ProviderError)
    assert not bench.writes()
    bench.settle()
    assert bench.reboots(bench.machines(other)[0]) == bench.reboots(handle) == 0


def test_provider_does_not_restart_a_machine_that_is_another_node_now(
    yard: OperationDriver,
) -> None:
    bench = yard.life("reboots")
    group = bench.add_group("g", size=2)
    order = yard.restart(group, yard.instances(group)[0])
    (target,) = order.spec.targets
    other = order.with_spec(targets=(msgspec.structs.replace(target, node="another-name"),))
    bench.calls()
    answer = yard.ask(lambda provider: provider.restart(other))
    assert class_of(answer) == "Conflict"
    assert not bench.writes()
    bench.settle()
    assert bench.reboots(target.handle) == 0
