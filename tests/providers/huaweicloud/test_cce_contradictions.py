"""Node counts that lag behind one another over HTTP: a scale-up concurrent with a
removal buys what was planned.
"""

from __future__ import annotations

import pytest

from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, Succeeded
from infra.emulators.huaweicloud.models import DEFAULT
from tests.providers.huaweicloud.fixture import HuaweiBench, carried, drive, order, scalings, tried


@pytest.mark.parametrize("lag", [0.0, 15.0])
def test_CCE_18_scale_up_during_a_removal_buys_what_was_planned(
    bench: HuaweiBench, lag: float
) -> None:
    pool = bench.cloud.add_pool(bench.cluster, "web", size=3, most=40)
    bench.cloud.add_group(pool.uid, "az2", size=3, most=20)
    bench.cloud.lag = lag
    own, beside = f"{pool.uid}/{DEFAULT}", f"{pool.uid}/az2"
    removal = order(
        bench,
        OperationKind.DELETE_NODES,
        beside,
        3,
        1,
        *bench.machines(beside)[:2],
        op="remove-0123456789abcdef",
    )
    carried(removal, tried(bench, removal))
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, own, 3, 4)), Succeeded)
    assert scalings(bench) == [(5, [DEFAULT])], "the pool is at 4 by then, and no longer at 6"
    assert [bench.target(own), bench.target(beside)] == [4, 1]


def test_CCE_A6_3_removal_not_yet_shown_by_the_group_counts_against_its_minimum(
    bench: HuaweiBench,
) -> None:
    pool = bench.cloud.add_pool(bench.cluster, "web", size=3, most=40)
    bench.cloud.add_group(pool.uid, "az2", size=3, least=1, most=20)
    bench.cloud.lag = 15.0
    group = f"{pool.uid}/az2"
    *first, last = bench.machines(group)
    tried(
        bench,
        order(bench, OperationKind.DELETE_NODES, group, 3, 1, *first, op="remove-0123456789abcdef"),
    )
    outcome = tried(
        bench,
        order(bench, OperationKind.DELETE_NODES, group, 3, 2, last, op="remove-fedcba9876543210"),
    )
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, bench.machines(group)) == ("InvalidRequest", [last])
