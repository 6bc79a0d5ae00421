"""Tests of what a reconcile pass reads: all groups of this cluster and no others, complete, with
the errors of their machines."""

from __future__ import annotations

import re

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.model.group import DEAREST, InstanceState
from tests.providers.suite.operations import OperationDriver
from tests.providers.suite.provider_fixture import Misfortune


def test_provider_without_groups_reports_no_error(yard: OperationDriver) -> None:
    """Applies where groups are discovered. A provider that needs configured names
    reports that it has none."""
    if "discovery" in yard.bench.lacks:
        with pytest.raises(BadInput, match=f"providers.{yard.bench.name}"):
            yard.provider()
    else:
        assert yard.observe().groups == ()


def test_provider_reads_one_group_completely(yard: OperationDriver) -> None:
    group = yard.bench.add_group("one", size=3, least=1, most=7)
    seen = yard.group(group)
    assert (seen.min, seen.max, seen.target, seen.provider) == (1, 7, 3, yard.bench.name)
    assert [each.state for each in seen.instances] == [InstanceState.RUNNING] * 3
    assert sorted(each.handle for each in seen.instances) == sorted(yard.bench.machines(group))
    assert {each.id for each in seen.instances} == {node.provider_id for node in yard.bench.nodes()}
    assert not yard.bench.writes()


def test_provider_group_has_a_node_template_or_a_reason_for_none(yard: OperationDriver) -> None:
    for number, size in enumerate((0, 2)):
        yard.bench.add_group(f"g{number}", size=size)
    for group in yard.observe().groups:
        assert (group.template is None) == bool(group.template_error)
        assert group.template is None or group.template.allocatable.get("cpu", 0) > 0


def test_provider_states_a_price_with_its_currency_or_none_at_all(yard: OperationDriver) -> None:
    for number, size in enumerate((0, 2)):
        yard.bench.add_group(f"g{number}", size=size)
    groups = yard.observe().groups
    assert len(groups) == 2
    for group in groups:
        assert 0.0 <= group.price <= DEAREST
        assert re.fullmatch(r"[A-Z]{3}" if group.price else "", group.currency)
        assert not (group.price and group.price_error)
        assert group.priced_at <= yard.bench.now()
        assert group.billed_per >= 1.0


def test_provider_does_not_read_a_group_of_another_cluster(yard: OperationDriver) -> None:
    ours = yard.bench.add_group("ours", size=1)
    yard.bench.add_group("theirs", size=2, cluster="theirs")
    assert [group.id for group in yard.observe().groups] == [ours]


def test_provider_never_changes_a_group_of_another_cluster(yard: OperationDriver) -> None:
    ours = yard.bench.add_group("mine", size=2)
    theirs = yard.bench.add_group("foreign", size=2, cluster="theirs")
    before = yard.bench.machines(theirs)
    yard.bench.calls()
    yard.run(yard.growth(ours, 4))
    yard.run(yard.removal(ours, yard.instances(ours)[0]))
    assert not [call for call in yard.bench.writes() if "foreign" in call or theirs in call]
    assert (yard.bench.target(theirs), yard.bench.machines(theirs)) == (2, before)


def test_provider_counts_a_requested_machine_before_it_has_a_node(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=1)
    yard.run(yard.growth(group, 3))
    seen = yard.group(group)
    assert seen.target == 3
    joined = {node.provider_id for node in yard.bench.nodes()}
    assert all(
        each.state is InstanceState.CREATING for each in seen.instances if each.id not in joined
    )
    yard.bench.settle()
    assert [each.state for each in yard.group(group).instances] == [InstanceState.RUNNING] * 3


def test_provider_reports_a_machine_in_deletion_as_leaving_or_gone(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=3)
    victim = yard.instances(group)[1]
    order = yard.removal(group, victim)
    yard.ask(lambda provider: provider.delete_nodes(order))
    yard.bench.settle(1.0)
    states = {each.handle: each.state for each in yard.group(group).instances}
    assert states.get(victim.handle, InstanceState.DELETING) is InstanceState.DELETING
    assert len(states) >= 2


@pytest.mark.parametrize(
    ("kind", "cls"),
    [
        (Misfortune.OUT_OF_STOCK, "OutOfStock"),
        (Misfortune.QUOTA, "QuotaExceeded"),
        (Misfortune.NEVER_COMES, ""),
    ],
)
def test_provider_reports_a_failed_machine_with_its_class_within_one_pass(
    yard: OperationDriver, kind: Misfortune, cls: str
) -> None:
    """Within one pass after the vendor knows it, either the operation has failed with the
    class, or the machine has."""
    yard.needs(kind.value)
    group = yard.bench.add_group("g", size=1)
    yard.bench.misfortune(group, kind, times=30)
    outcome = yard.run(yard.growth(group, 2))
    yard.bench.settle(120.0)
    reported = {getattr(outcome, "error_class", "")} | {
        each.error.cls for each in yard.group(group).instances if each.error
    }
    reported.discard("")
    assert reported == {cls} if cls else reported
    healthy = [each for each in yard.group(group).instances if not each.error]
    assert [each.state for each in healthy] == [InstanceState.RUNNING]


def test_provider_partial_failure_still_brings_the_other_machines(yard: OperationDriver) -> None:
    """Two of three machines are created, and only the third is reported as failed."""
    yard.needs(Misfortune.OUT_OF_STOCK.value)
    group = yard.bench.add_group("g", size=1)
    yard.bench.misfortune(group, Misfortune.OUT_OF_STOCK, times=1)
    outcome = yard.run(yard.growth(group, 4))
    yard.bench.settle(120.0)
    seen = yard.group(group)
    running = [each for each in seen.instances if each.state is InstanceState.RUNNING]
    failed = [each for each in seen.instances if each.error]
    assert len(running) >= 3
    assert len(running) + len(failed) <= 4
    assert len(running) == 4 or failed or getattr(outcome, "error_class", "") == "OutOfStock"
