"""Spot instances from the notice to the replacement: the emulated account, and the
provider's operations on it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, Succeeded
from infra.emulators.alicloud.models import AlicloudDurations
from tests.providers.alicloud.fixture import AlicloudBench, drive, order, seen


@pytest.fixture
def bench() -> Iterator[AlicloudBench]:
    with AlicloudBench(times=AlicloudDurations()) as made:
        yield made


def spot_group(bench: AlicloudBench, *, size: int = 2, remedy: bool = False) -> str:
    made = bench.cloud.add_group("spot", size=size, spot="SpotAsPriceGo", remedy=remedy)
    bench.bind(made.id, 0, 10)
    return made.id


def counts(bench: AlicloudBench, group: str) -> tuple[int, int]:
    """Returns the desired capacity and the number of machines."""
    return bench.target(group), len(bench.machines(group))


def test_ess_emulator_replaces_a_spot_machine_after_ecs_has_taken_it_back(
    bench: AlicloudBench,
) -> None:
    group = spot_group(bench)
    machine = bench.machines(group)[0]
    assert bench.cloud.interrupt(machine) == bench.now() + 300.0
    bench.settle(299.0)
    assert len(bench.nodes()) == 2
    bench.settle(1.0)
    assert len(bench.nodes()) == 1, "ECS has taken it back, and ESS has not noticed"
    assert machine in bench.machines(group)
    bench.settle(60.0)
    assert machine not in bench.machines(group)
    bench.settle(60.0)
    assert (counts(bench, group), len(bench.nodes())) == ((2, 2), 2)
    activities = bench.cloud.groups[group].activities
    assert [(each.trigger, each.grows) for each in activities] == [("Ess", False), ("Ess", True)]


def test_ess_emulator_with_remedy_makes_another_machine_at_the_notice(bench: AlicloudBench) -> None:
    group = spot_group(bench, remedy=True)
    machine = bench.machines(group)[0]
    bench.cloud.interrupt(machine)
    assert counts(bench, group) == (2, 3)
    bench.settle(250.0)
    assert counts(bench, group) == (2, 3)
    bench.settle(2000.0)
    assert counts(bench, group) == (2, 2)
    assert machine not in bench.machines(group)
    assert [each.grows for each in bench.cloud.groups[group].activities] == [True, False]


def test_ess_emulator_announces_only_for_spot_machines(bench: AlicloudBench) -> None:
    group = bench.add_group("plain", size=1)
    with pytest.raises(ValueError, match="not preemptible"):
        bench.cloud.interrupt(bench.machines(group)[0])


def test_alicloud_removal_after_a_remedy_keeps_the_desired_capacity(bench: AlicloudBench) -> None:
    """ESS has bought the replacement: without it the removal would be of the
    new machine's place, too."""
    group = spot_group(bench, remedy=True)
    machine = bench.machines(group)[0]
    bench.cloud.interrupt(machine)
    bench.settle(60.0)
    operation = order(bench, OperationKind.DELETE_NODES, group, 2, 1, machine)
    assert isinstance(
        drive(bench, operation.with_spec(reason=DisruptionReason.INTERRUPTED)), Succeeded
    )
    bench.settle(2000.0)
    assert counts(bench, group) == (2, 2)
    assert machine not in bench.machines(group)


@pytest.mark.parametrize("waited", [0.0, 310.0, 400.0, 2000.0])
def test_alicloud_removal_of_an_interrupted_machine_ends_whenever_it_begins(
    bench: AlicloudBench, waited: float
) -> None:
    group = spot_group(bench, size=3)
    machine, *others = bench.machines(group)
    operation = order(bench, OperationKind.DELETE_NODES, group, 3, 2, machine)
    bench.cloud.interrupt(machine)
    bench.settle(waited)
    assert isinstance(
        drive(bench, operation.with_spec(reason=DisruptionReason.INTERRUPTED)), Succeeded
    )
    bench.settle(2000.0)
    assert set(others) <= set(bench.machines(group))
    assert counts(bench, group) in {(2, 2), (3, 3)}


def test_alicloud_sold_out_spot_type_fails_as_out_of_stock_until_it_is_restocked(
    bench: AlicloudBench,
) -> None:
    group, other = (
        spot_group(bench),
        bench.add_group("other", size=1, instance_type="ecs.c7.xlarge"),
    )
    bench.cloud.sell_out(group=group)
    outcome = drive(
        bench, order(bench, OperationKind.SCALE_UP, group, 2, 3, op="a-0123456789abcdef")
    )
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == ("OutOfStock", "OperationDenied.NoStock")
    grown = drive(bench, order(bench, OperationKind.SCALE_UP, other, 1, 2, op="b-0123456789abcdef"))
    assert isinstance(grown, Succeeded)
    bench.cloud.restock()
    bench.settle(400.0)
    assert counts(bench, group) == (3, 3)


def test_alicloud_redefined_group_sells_and_prices_its_new_type(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=1)
    bench.cloud.redefine(group, types=("ecs.g7.2xlarge",), spot="SpotAsPriceGo")
    bench.settle(301.0)
    after = seen(bench, group)
    assert after.template is not None
    assert (after.spot, after.template.labels["node.kubernetes.io/instance-type"]) == (
        True,
        "ecs.g7.2xlarge",
    )
    assert [bool(each.outdated) for each in after.instances] == [True]
