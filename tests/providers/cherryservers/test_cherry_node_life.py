"""A replaced definition and a spot notice, with machines that take as long as real ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Succeeded
from infra.emulators.cherryservers.models import CherryDurations
from tests.providers.cherryservers.fixture import CherryBench, drive, order, seen, target

INSTALLATION = 45 * 60.0


@pytest.fixture
def bench() -> Iterator[CherryBench]:
    with CherryBench(times=CherryDurations(deploy=INSTALLATION)) as made:
        yield made


def nodes(bench: CherryBench) -> set[str]:
    return {node.name for node in bench.nodes()}


def test_cherry_outdated_server_stays_until_its_replacement_has_joined(bench: CherryBench) -> None:
    group = bench.add_group("metal", size=1)
    bench.redefine(group)
    (old,) = seen(bench, group).instances
    assert old.outdated == "plan e5_1620v4, the group's is e3_1240v3"
    scale_up = order(bench, OperationKind.SCALE_UP, group, 1, 2, op="a-0123456789abcdef")
    assert isinstance(drive(bench, scale_up), Succeeded)
    bench.settle(INSTALLATION - 60.0)
    assert nodes(bench) == {old.node}
    bench.settle(120.0)
    first, second = seen(bench, group).instances
    assert nodes(bench) == {first.node, second.node}
    assert (first.outdated, second.outdated) == (old.outdated, "")
    removal = order(
        bench, OperationKind.DELETE_NODES, group, 2, 1, target(first), op="b-0123456789abcdef"
    )
    assert isinstance(drive(bench, removal), Succeeded)
    assert [
        each.outdated for each in seen(bench, group).instances if each.handle == second.handle
    ] == [""]
    assert bench.machines(group) == [second.handle]


def test_cherry_replacement_of_a_spot_server_comes_long_after_its_notice(
    bench: CherryBench,
) -> None:
    group = bench.add_spot_group("spot", size=1)
    now = bench.now()
    assert bench.interrupt(bench.machines(group)[0]) == now + 120.0
    (leaving,) = seen(bench, group).instances
    assert leaving.leaves_at == now + 120.0
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 2)), Succeeded)
    bench.settle(200.0)
    assert nodes(bench) == set()
    (replacement,) = seen(bench, group).instances[-1:]
    assert (replacement.leaves_at, replacement.handle == leaving.handle) == (0.0, False)
    bench.settle(INSTALLATION)
    assert nodes(bench) == {replacement.node}
