"""Tests of what a reconcile pass reads from CCE over HTTP: node mapping, number of
calls, forms of answers.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from chalicelib.model.group import InstanceState
from chalicelib.model.node import Node
from chalicelib.providers.kit.errors import ProviderError
from infra.emulators.huaweicloud import simulation
from infra.emulators.huaweicloud.models import DEFAULT, NO_QUOTA, SOLD_OUT, CceProvisioningFate
from infra.emulators.huaweicloud.node_registration import CceRegistrationOptions
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.huaweicloud.fixture import HuaweiBench, seen, shared_cache

Renamed = Callable[[Node], Node]


def _no_id(node: Node) -> Node:
    return msgspec.structs.replace(node, provider_id="")


@pytest.mark.parametrize(
    ("ways", "changed"),
    [
        (CceRegistrationOptions(boot=0.0, taint=0.0), None),
        (CceRegistrationOptions(boot=0.0, taint=0.0, scheme="huaweicloud://"), None),
        (CceRegistrationOptions(boot=0.0, taint=0.0, by_server=True), None),
        (
            CceRegistrationOptions(boot=0.0, taint=0.0, scheme="cce://cn-north-4/", by_server=True),
            None,
        ),
        (CceRegistrationOptions(boot=0.0, taint=0.0), _no_id),
    ],
    ids=["uid", "uid with scheme", "server", "server with path", "address"],
)
def test_CCE_20_node_is_matched_by_uid_server_id_or_address(
    ways: CceRegistrationOptions, changed: Renamed | None
) -> None:
    with HuaweiBench(ways=ways) as bench:
        group = bench.add_group("a", size=2)
        bench.add_group("b", size=1)
        nodes = tuple(changed(node) if changed else node for node in bench.nodes())
        found = {each.id: each for each in bench.provider().observe(nodes).groups}[group]
        assert [(each.state, each.handle) for each in found.instances] == [
            (InstanceState.RUNNING, handle) for handle in bench.machines(group)
        ]
        assert [each.node for each in found.instances] == [node.name for node in nodes[:2]]


def test_CCE_20_leftover_pool_label_makes_no_node_ours(bench: HuaweiBench) -> None:
    """A node that was moved to the default pool keeps the label of its old pool; CCE
    reports its zone and flavour."""
    group = bench.add_group("a", size=1)
    bench.cloud.add_lonely(bench.cluster)
    nodes = bench.nodes()
    label = {"cce.cloud.com/cce-nodepool": "a"}
    nodes = tuple(msgspec.structs.replace(node, labels={**node.labels, **label}) for node in nodes)
    assert len(nodes) == 2
    groups = bench.provider().observe(nodes).groups
    assert [(each.id, [one.handle for one in each.instances]) for each in groups] == [
        (group, bench.machines(group))
    ]


def test_CCE_20_two_groups_of_a_pool_each_read_their_own_nodes(bench: HuaweiBench) -> None:
    pool = bench.cloud.add_pool(bench.cluster, "web", size=2, most=9, priority=7)
    bench.cloud.add_group(
        pool.uid,
        "big",
        size=1,
        flavor="c7.2xlarge.2",
        az="cn-north-4a",
        priority=5,
        most=4,
        least=1,
    )
    bench.cloud.add_group(pool.uid, "az3", size=3, az="cn-north-4c", enabled=False)
    groups = {
        each.id.partition("/")[2]: each for each in bench.provider().observe(bench.nodes()).groups
    }
    assert sorted(groups) == ["big", DEFAULT]
    assert [
        (each.target, len(each.instances), each.rank, each.priority)
        for each in (groups[DEFAULT], groups["big"])
    ] == [(2, 2, 0, 7), (1, 1, 5, 7)]
    assert (groups["big"].min, groups["big"].max) == (1, 4)
    shared = groups["big"].pool
    assert shared is not None
    assert shared == groups[DEFAULT].pool
    assert (shared.id, shared.max, shared.elsewhere) == (pool.uid, 9, 3)
    templates = [groups[name].template for name in (DEFAULT, "big")]
    assert [each.allocatable["cpu"] for each in templates if each is not None] == [3920, 7910]


@pytest.mark.parametrize("paged", [True, False])
def test_CCE_20_nodes_beyond_one_page_are_all_read(bench: HuaweiBench, paged: bool) -> None:
    bench.cloud.paged = paged
    group = bench.add_group("a", size=1100, most=3000)
    bench.look()
    found = seen(bench, group)
    assert len(found.instances) == 1100
    asked = [call.path for call in bench.look() if call.operation == "list-nodes"]
    assert len(asked) == (2 if paged else 1)


def test_CCE_20_two_hundred_nodes_take_four_calls_and_fewer_with_a_cache(
    bench: HuaweiBench,
) -> None:
    bench.shared_cache = shared_cache(bench)
    for number in range(5):
        bench.add_group(f"g{number}", size=40, most=50)
    nodes = bench.nodes()
    assert len(nodes) == 200
    provider = bench.provider()
    bench.look()
    assert sum(len(each.instances) for each in provider.observe(nodes).groups) == 200
    assert sorted(call.operation for call in bench.look()) == [
        "list-addons",
        "list-flavors",
        "list-nodes",
        "list-pools",
    ]
    bench.clock.advance(60.0)
    bench.provider().observe(nodes)
    assert sorted(call.operation for call in bench.look()) == ["list-nodes", "list-pools"]


@pytest.mark.parametrize("form", ["cce", "gateway", "plain", "page"])
@pytest.mark.parametrize(
    ("fault", "cls"),
    [
        (VendorFault.UNAUTHORIZED, "Unauthorized"),
        (VendorFault.THROTTLED, "Throttled"),
        (VendorFault.SERVER_ERROR, "Transient"),
        (VendorFault.OLD_TIME, "Unauthorized"),
    ],
)
def test_CCE_20_errors_are_decoded_in_each_form(
    bench: HuaweiBench, form: str, fault: VendorFault, cls: str
) -> None:
    bench.add_group("a", size=1)
    bench.server.front.form = form
    provider, nodes = bench.provider(), bench.nodes()
    bench.server.faults.next(fault, times=-1)
    with pytest.raises(ProviderError) as raised:
        provider.observe(nodes)
    assert raised.value.error_class == cls
    assert "<h1>" not in str(raised.value)


@pytest.mark.parametrize(("fate", "cls"), [(NO_QUOTA, "QuotaExceeded"), (SOLD_OUT, "OutOfStock")])
def test_CCE_20_condition_makes_missing_nodes_placeholders(
    bench: HuaweiBench, fate: CceProvisioningFate, cls: str
) -> None:
    group = bench.add_group("a", size=1)
    held = bench.group(group)
    held.fates += [fate] * 3
    held.desired = 4
    simulation.settle(bench.cloud, bench.pool(group), held, bench.now())
    assert [each.error for each in seen(bench, group).instances] == [None], "nobody knows yet"
    bench.settle(20.0)
    found = seen(bench, group)
    lost = [each for each in found.instances if each.error]
    assert (found.target, len(found.instances)) == (4, 4)
    assert [(each.id, each.state, each.error.cls if each.error else "") for each in lost] == [
        (f"{group}/placeholder-{number}", InstanceState.CREATING, cls) for number in range(3)
    ]


def test_CCE_A1_5_default_pool_and_prepaid_pools_are_excluded(bench: HuaweiBench) -> None:
    bench.cloud.add_lonely(bench.cluster)
    bench.cloud.add_pool(bench.cluster, "prepaid", size=2, billing=1)
    bench.cloud.add_pool(bench.cluster, "going", size=1, phase="Deleting")
    bench.cloud.add_pool(bench.cluster, "by-hand", size=1, enabled=False)
    group = bench.add_group("a", size=1)
    assert [each.id for each in bench.provider().observe(bench.nodes()).groups] == [group]


def test_huawei_old_region_pool_without_a_group_list_is_read_by_its_size(
    bench: HuaweiBench,
) -> None:
    bench.cloud.tells_groups = False
    group = bench.add_group("a", size=2)
    found = seen(bench, group)
    assert (found.target, len(found.instances), found.error) == (2, 2, "")


@pytest.mark.parametrize("active", [True, False])
def test_CCE_A7_active_vendor_autoscaler_is_reported(bench: HuaweiBench, active: bool) -> None:
    bench.add_group("a", size=1)
    bench.cloud.add_addon(
        bench.cluster,
        scaleUpUnscheduledPodEnabled=active,
        scaleUpUtilizationEnabled=False,
        scaleDownEnabled=False,
    )
    gaps = [gap for gap in bench.provider().observe(bench.nodes()).gaps if "add-on" in gap.name]
    assert len(gaps) == active


def test_huawei_missing_optional_permissions_stop_no_read() -> None:
    rights = frozenset({"cce:nodepool:*", "cce:node:list"})
    with HuaweiBench(actions=rights) as bench:
        group = bench.add_group("a", size=2)
        found = seen(bench, group)
        assert (found.target, len(found.instances), found.error) == (2, 2, "")
        assert {call.operation for call in bench.server.log if call.status == 403} == {
            "list-flavors",
            "list-addons",
        }
