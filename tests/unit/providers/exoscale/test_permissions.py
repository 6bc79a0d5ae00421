"""Keys with upstream's operations: complete lists are forbidden with 403, and everything still works."""

from __future__ import annotations

import pytest

from chalicelib.model.group import InstanceState
from chalicelib.model.outcome import Succeeded
from chalicelib.providers.errors import Transient, Unauthorized
from tests.cases import each_row
from tests.unit.providers.exoscale.fake_api import (
    NP_A,
    NP_B,
    THEIRS,
    A,
    B,
    FakeApiPool,
    FakeExoscaleApi,
    forbidden,
    grow,
    node,
    provider,
    remove,
    seen,
    to_the_end,
    uuid,
    warnings,
)


def key(*pools: FakeApiPool, sks: bool = True) -> FakeExoscaleApi:
    """A zone, and a key with the operations that upstream documents."""
    api = FakeExoscaleApi(*pools)
    api.denied = {"pools", "instances"} | (set() if sks else {"clusters", "scale_nodepool", "evict_nodepool"})
    return api


@each_row("size", [3, 80])
def test_exoscale_sks_key_reads_its_groups_pool_by_pool(size: int) -> None:
    api = key(FakeApiPool(size=size), FakeApiPool(B, "gpu", owner=NP_B, size=0))
    groups = seen(api)
    assert {name: (each.target, len(each.instances)) for name, each in groups.items()} == {A: (size, size), B: (0, 0)}
    assert not [group.error for group in groups.values() if group.error]
    assert sorted(api.calls) == sorted(["pools", "instances", "clusters", f"pool {A}", f"pool {B}", "quota"])
    assert "may not list-instance-pools" in warnings(api)


@each_row("size", [3, 80])
def test_exoscale_instance_pool_key_reads_its_groups_pool_by_pool(size: int) -> None:
    api = key(FakeApiPool(A, "db", "", size=size), FakeApiPool(B, "web", THEIRS, NP_B, size=9), sks=False)
    groups = seen(api, nodes=api.nodes(A))
    assert {name: (group.target, group.error) for name, group in groups.items()} == {A: (size, "")}
    assert len(api.calls) <= 6
    assert seen(api, "1:7:db", nodes=api.nodes(A))[A].max == 7


def test_exoscale_restricted_key_finds_nodepools_of_nodes_without_labels() -> None:
    api = key(FakeApiPool(size=3))
    nodes = [node(each.name, each.provider_id) for each in api.nodes()]
    group = seen(api, nodes=nodes)[A]
    assert (group.target, group.error) == (3, "")
    assert sum(call.startswith("instance ") for call in api.calls) == 1


def test_exoscale_restricted_key_reads_a_machine_without_a_node_separately() -> None:
    api = key(FakeApiPool(size=3))
    name = api.all[A].members[2]
    api.set_state(name, "error")
    (reported,) = [each for each in seen(api, nodes=api.nodes()[:2])[A].instances if each.error]
    assert (reported.handle, reported.state) == (name, InstanceState.CREATING)
    assert sum(call.startswith("instance ") for call in api.calls) == 1


def test_exoscale_restricted_key_vanished_machine_blocks_no_other() -> None:
    api = key(FakeApiPool(A, "db", "", size=2), sks=False)
    gone = node("left over", f"exoscale://{uuid(700, 'i')}")
    assert seen(api, nodes=[gone, *api.nodes()])[A].target == 2


def test_exoscale_restricted_key_may_lack_only_one_of_the_lists() -> None:
    api = key(FakeApiPool(size=3), FakeApiPool(B, "db", "", NP_B, size=2))
    api.denied = {"instances"}
    assert {name: len(group.instances) for name, group in seen(api).items()} == {A: 3, B: 2}
    api.denied = {"pools"}
    assert {name: len(group.instances) for name, group in seen(api).items()} == {A: 3, B: 2}


def test_exoscale_both_restricted_keys_can_scale() -> None:
    for api in (key(FakeApiPool(size=3)), key(FakeApiPool(A, "db", "", size=3), sks=False)):
        assert isinstance(to_the_end(api, grow(3, 5)), Succeeded)
        assert isinstance(to_the_end(api, remove(5, *api.all[A].members[:4])), Succeeded)
        assert (api.all[A].size, len(api.evicted), api.chosen) == (1, 4, [])


def test_exoscale_restricted_key_accepts_groups_by_name() -> None:
    api = key(FakeApiPool(size=0), FakeApiPool(B, "db", "", NP_B, size=2))
    for name in ("web", "prod/web", NP_A, A):
        assert seen(api, f"0:7:{name}", nodes=[])[A].max == 7
    assert seen(api, f"1:7:{B}", nodes=[])[B].max == 7
    assert seen(api, f"1:7:{uuid(9, 'p')}", nodes=[]) == {}


def test_exoscale_key_without_permissions_is_refused_in_few_calls() -> None:
    api = key(FakeApiPool(size=50))
    api.denied |= {"clusters", "pool", "instance"}
    with pytest.raises(Unauthorized):
        seen(api)
    assert len(api.calls) <= 6


def test_exoscale_invalid_key_is_refused_at_once() -> None:
    api = FakeExoscaleApi(FakeApiPool(size=5))
    api.trouble["pools"] = [Unauthorized("HTTP 401", code="401")]
    with pytest.raises(Unauthorized):
        seen(api)
    assert api.calls == ["pools"]


def test_exoscale_restricted_key_unreadable_pool_has_its_error() -> None:
    api = key(FakeApiPool(size=3), FakeApiPool(B, "gpu", owner=NP_B, size=1))
    api.trouble["pool"] = [Transient("HTTP 500")]
    groups = seen(api)
    assert sorted(bool(group.error) for group in groups.values()) == [False, True]


def test_exoscale_restricted_key_unreadable_named_pool_keeps_its_bounds() -> None:
    api = key(FakeApiPool(A, "db", "", size=3), FakeApiPool(B, "api", "", NP_B, size=1), sks=False)
    api.trouble["pool"] = [Transient("HTTP 500")]
    groups = seen(api, f"2:7:{A}", f"0:3:{B}", nodes=api.nodes(B))
    group = groups[A]
    assert not groups[B].error
    assert (group.min, group.max, "HTTP 500" in group.error) == (2, 7, True)


def test_exoscale_restricted_key_refused_at_a_machine_stops_further_reads() -> None:
    api = key(FakeApiPool(size=60))
    api.denied.add("instance")
    group = seen(api, nodes=api.nodes()[:1])[A]
    assert len(group.instances) == 60
    assert sum(call.startswith("instance ") for call in api.calls) <= 2


def test_exoscale_restricted_key_looks_up_vanished_targets_one_by_one() -> None:
    api = key(FakeApiPool(A, "db", "", size=6), sks=False)
    names = list(api.all[A].members)
    for name in names[:4]:
        api.all[A].members.remove(name)
        del api.machines[name]
    api.all[A].size = 2
    assert isinstance(provider(api).delete_nodes(remove(6, *names[:4])), Succeeded)
    assert not api.writes()
    assert forbidden().code == "403"
