"""Tests of what a reconcile pass reads from the emulated zone over HTTP: discovery, calls,
templates, states, narrow keys."""

from __future__ import annotations

import pytest

from chalicelib.model.group import InstanceState
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Succeeded
from chalicelib.providers.kit.errors import Unauthorized
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.exoscale.fixtures import drive, order, seen, shared_cache
from tests.providers.provider_fixtures.exoscale import ExoscaleBench

UPSTREAM_SKS = frozenset(
    {
        "get-instance",
        "get-instance-pool",
        "get-operation",
        "get-quota",
        "list-sks-clusters",
        "scale-sks-nodepool",
        "evict-sks-nodepool-members",
    }
)
UPSTREAM_POOLS = frozenset(
    {
        "get-instance",
        "get-instance-pool",
        "get-operation",
        "get-quota",
        "scale-instance-pool",
        "evict-instance-pool-members",
    }
)


def _operations(bench: ExoscaleBench) -> list[str]:
    return [call.operation for call in bench.look()]


def _grown_old(bench: ExoscaleBench, nodes: int) -> None:
    """Half of the nodes are in four Nodepools of a cluster, half in two standalone pools; the
    policy names none of them."""
    for number in range(4):
        bench.add_nodepool(f"sks-{number}", size=nodes // 8)
    for number in range(2):
        bench.zone.add_pool(f"own-{number}", size=nodes // 4)


@pytest.mark.parametrize("nodes", [8, 200])
def test_exoscale_cold_start_reads_everything_in_four_calls(
    bench: ExoscaleBench, nodes: int
) -> None:
    """Discovery finds all groups, none is named; the number of calls does not depend on
    the number of nodes. The single instance type comes from the shared cache after the
    first pass of a deployment."""
    _grown_old(bench, nodes)
    bench.shared_cache = shared_cache(bench)
    first = bench.provider().observe(bench.nodes())
    assert sorted(_operations(bench)) == [
        "get-instance-type",
        "get-quota",
        "list-instance-pools",
        "list-instances",
        "list-sks-clusters",
    ]
    bench.settle(301.0)
    again = bench.provider().observe(bench.nodes())
    assert sorted(_operations(bench)) == [
        "get-quota",
        "list-instance-pools",
        "list-instances",
        "list-sks-clusters",
    ]
    bench.provider().observe(bench.nodes())
    assert len(_operations(bench)) == 3, "the quota is kept for five minutes"
    for observed in (first, again):
        assert len(observed.groups) == 6
        assert sum(len(group.instances) for group in observed.groups) == nodes
        assert not [group.error for group in observed.groups if group.error]


def test_exoscale_groups_named_by_pool_nodepool_or_name_report_ambiguity(
    bench: ExoscaleBench,
) -> None:
    by_id, by_nodepool, by_name = (bench.add_nodepool(name, size=1) for name in ("a", "b", "c"))
    twins = [bench.zone.add_pool("twin", size=1) for _ in range(2)]
    bench.bind(by_id.pool.id, 1, 2)
    bench.bind(by_nodepool.id, 1, 3)
    bench.bind("c", 1, 4)
    bench.bind("twin", 1, 5)
    bench.bind("nobody", 1, 6)
    observed = bench.provider().observe(bench.nodes())
    found = {group.id: group for group in observed.groups}
    assert [found[each.pool.id].max for each in (by_id, by_nodepool, by_name)] == [2, 3, 4]
    reported = " ".join(gap.detail for gap in observed.gaps)
    assert all(twin.id in reported for twin in twins)
    assert "nobody" in reported
    assert all(found[twin.id].error for twin in twins)


def test_exoscale_maximum_is_derived_from_the_remaining_quota(bench: ExoscaleBench) -> None:
    group = bench.add_nodepool("web", size=3).pool.id
    bench.zone.add_lonely()
    bench.zone.other_usage, bench.zone.limit = 6, 20
    bench.shared_cache = shared_cache(bench)
    assert (seen(bench, group).min, seen(bench, group).max) == (1, 13)
    bench.settle(301.0)
    bench.server.faults.next(VendorFault.SERVER_ERROR, on="get-quota", times=-1)
    assert seen(bench, group).max == 13, "the last one known"
    bench.server.faults.clear()
    bench.zone.limit = -1
    assert seen(bench, group).max == 1000
    bench.zone.limit = 5
    bench.settle(301.0)
    assert seen(bench, group).max == 3, "nothing is left, and never less than there is"


def test_exoscale_foreign_nodes_block_nothing(bench: ExoscaleBench) -> None:
    group = bench.add_group("g", size=2)
    nodes = bench.nodes()
    bench.zone.vanish(bench.machines(group)[0])  # its Node still exists
    bench.zone.add_lonely()
    found = bench.provider().observe(nodes)
    assert [each.id for each in found.groups] == [group]
    assert len(seen(bench, group).instances) >= 1


def test_exoscale_resize_by_others_is_seen_by_the_next_pass(bench: ExoscaleBench) -> None:
    group = bench.add_group("g", size=2)
    assert seen(bench, group).target == 2
    bench.pool(group).size = 3
    (new,) = bench.zone.add_members(group, 1)
    found = seen(bench, group)
    assert (found.target, new in {each.handle for each in found.instances}) == (3, True)


@pytest.mark.parametrize(
    "fault", [VendorFault.UNAUTHORIZED, VendorFault.FORBIDDEN], ids=lambda fault: fault.name
)
def test_exoscale_refused_key_ends_the_pass_without_retries(
    bench: ExoscaleBench, fault: VendorFault
) -> None:
    bench.add_group("g", size=30)
    provider, nodes = bench.provider(), bench.nodes()
    bench.server.faults.next(fault, times=-1)
    with pytest.raises(Unauthorized):
        provider.observe(nodes)
    assert len(_operations(bench)) <= 6, (
        "by a few calls that might have been allowed, not one for each node"
    )


@pytest.mark.parametrize(
    ("state", "visible"), [("updating", True), ("suspended", True), ("destroying", False)]
)
def test_exoscale_pool_that_is_not_running_blocks_no_other_pool(
    bench: ExoscaleBench, state: str, visible: bool
) -> None:
    odd, other = bench.add_group("odd", size=1), bench.add_group("other", size=1)
    bench.zone.set_state(odd, state)
    before = bench.slept()
    found = {group.id: group for group in bench.provider().observe(bench.nodes()).groups}
    assert (odd in found) == visible
    assert not visible or found[odd].error
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, other, 1, 2)), Succeeded)
    assert bench.slept() == before, "nobody waits for it"
    bench.zone.set_state(odd, "")
    bench.zone.delete_pool(odd)
    bench.settle()
    assert [group.id for group in bench.provider().observe(bench.nodes()).groups] == [other]


def test_exoscale_empty_nodepool_scales_up_from_its_template(bench: ExoscaleBench) -> None:
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


@pytest.mark.parametrize("sks", [True, False])
def test_exoscale_reads_and_scales_with_upstreams_operation_list(sks: bool) -> None:
    with ExoscaleBench(
        standalone=not sks, operations=UPSTREAM_SKS if sks else UPSTREAM_POOLS
    ) as bench:
        group = bench.add_group("g", size=20, least=1, most=30)
        found = seen(bench, group)
        assert (found.target, len(found.instances), found.error) == (20, 20, "")
        assert all(each.state is InstanceState.RUNNING for each in found.instances)
        assert len(_operations(bench)) <= 8, "by pools, not by nodes"
        assert isinstance(
            drive(bench, order(bench, OperationKind.SCALE_UP, group, 20, 21)), Succeeded
        )
        victim = bench.machines(group)[3]
        assert isinstance(
            drive(bench, order(bench, OperationKind.DELETE_NODES, group, 21, 20, victim)), Succeeded
        )
        assert victim not in bench.machines(group)
        assert len(bench.machines(group)) == 20
        denied = {call.operation for call in bench.server.log if call.status == 403}
        assert denied <= {
            "list-instances",
            "list-instance-pools",
            "get-instance-type",
            "list-sks-clusters",
        }
