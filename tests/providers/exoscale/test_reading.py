"""The calls of a cold start, and the node that a template promises."""

from __future__ import annotations

from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Succeeded
from tests.providers.exoscale.fixture import ExoscaleFixture, drive, order, seen, shared_cache


def _grown_old(bench: ExoscaleFixture, nodes: int) -> None:
    """Half of the nodes are in four Nodepools of a cluster, half in two standalone pools; the
    policy names none of them."""
    for number in range(4):
        bench.add_nodepool(f"sks-{number}", size=nodes // 8)
    for number in range(2):
        bench.zone.add_pool(f"own-{number}", size=nodes // 4)


def test_exoscale_cold_start_reads_everything_in_four_calls(
    bench: ExoscaleFixture,
) -> None:
    """Discovery finds all groups, none is named; the number of calls does not depend on
    the number of nodes. The single instance type comes from the shared cache after the
    first pass of a deployment."""
    nodes = 8
    _grown_old(bench, nodes)
    bench.shared_cache = shared_cache(bench)
    first = bench.provider().observe(bench.nodes())
    assert sorted(bench.operations()) == [
        "get-instance-type",
        "get-quota",
        "list-instance-pools",
        "list-instances",
        "list-sks-clusters",
    ]
    bench.settle(301.0)
    again = bench.provider().observe(bench.nodes())
    assert sorted(bench.operations()) == [
        "get-quota",
        "list-instance-pools",
        "list-instances",
        "list-sks-clusters",
    ]
    bench.provider().observe(bench.nodes())
    assert len(bench.operations()) == 3, "the quota is kept for five minutes"
    for observed in (first, again):
        assert len(observed.groups) == 6
        assert sum(len(group.instances) for group in observed.groups) == nodes
        assert not [group.error for group in observed.groups if group.error]


def test_exoscale_empty_nodepool_scales_up_from_its_template(bench: ExoscaleFixture) -> None:
    cluster = bench.zone.add_cluster("prod")
    web = bench.zone.add_nodepool(
        cluster.id,
        "gpu",
        type="gpu3.small",
        disk=200,
        labels={"team": "ml"},
        taints={"dedicated": ("ml", "NoSchedule")},
        max_pods=40,
    )
    bench.bind(web.id, 0, 3)
    empty = seen(bench, web.pool.id)
    assert (empty.min, empty.target, empty.instances) == (0, 0, ())
    template = empty.template
    assert template is not None
    assert isinstance(
        drive(bench, order(bench, OperationKind.SCALE_UP, web.pool.id, 0, 1)), Succeeded
    )
    bench.settle()
    (node,) = bench.nodes()
    assert template.capacity == node.capacity, "as the node that came of it"
    own = {"kubernetes.io/hostname"}
    assert {key: value for key, value in template.labels.items() if key not in own} == {
        key: value for key, value in node.labels.items() if key not in own
    }
    assert [str(taint) for taint in template.taints] == [
        str(taint) for taint in node.taints if taint.key == "dedicated"
    ]
