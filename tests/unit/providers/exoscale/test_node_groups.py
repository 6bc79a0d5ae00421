"""Observation of a zone: all groups in four calls, with errors confined to their group."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.group import InstanceState
from chalicelib.providers.errors import ProviderError, Throttled, Transient
from chalicelib.providers.exoscale.decoding import NO_SIZE, Manager, Quota, Ref
from tests.cases import each_row
from tests.unit.providers.exoscale.fake_api import (
    NP_A,
    NP_B,
    NP_C,
    THEIRS,
    A,
    B,
    C,
    FakeApiPool,
    FakeExoscaleApi,
    machine,
    node,
    provider,
    seen,
    uuid,
    warnings,
)

CREATING, RUNNING, DELETING = InstanceState.CREATING, InstanceState.RUNNING, InstanceState.DELETING


def both(**more: object) -> FakeExoscaleApi:
    """A Nodepool of three and a standalone pool of two."""
    return FakeExoscaleApi(FakeApiPool(size=3), FakeApiPool(B, "db", "", NP_B, size=2), **more)  # type: ignore[arg-type]


@each_row("size", [1, 200])
def test_exoscale_cold_start_finds_every_group_in_four_calls(size: int) -> None:
    api = FakeExoscaleApi(FakeApiPool(size=size), FakeApiPool(B, "db", "", NP_B, size=2))
    groups = seen(api)
    assert {name: (each.target, len(each.instances)) for name, each in groups.items()} == {A: (size, size), B: (2, 2)}
    assert api.calls == ["pools", "instances", "clusters", "quota"]


def test_exoscale_call_count_does_not_grow_with_nodes_or_groups() -> None:
    api = FakeExoscaleApi(*(FakeApiPool(uuid(n, "p"), f"g{n}", owner=uuid(n, "n"), size=5) for n in range(1, 60)))
    assert len(seen(api)) == 59
    assert len(api.calls) == 4


def test_exoscale_clusters_and_quota_are_not_read_unless_needed() -> None:
    api = FakeExoscaleApi(FakeApiPool(B, "db", "", NP_B, size=2))
    seen(api, "1:5:db")
    assert api.calls == ["pools", "instances"]


def test_exoscale_zone_without_nodes_and_pools_is_not_an_error() -> None:
    assert provider(FakeExoscaleApi()).observe([]).groups == ()


def test_exoscale_machine_id_is_spelled_like_its_node() -> None:
    api = both()
    group = seen(api)[A]
    assert [(each.id, each.node) for each in group.instances] == [
        (f"exoscale://{each.handle}", f"node-{each.handle[-4:]}") for each in group.instances
    ]
    loud = f"exoscale://{api.all[A].members[0].upper()}"
    assert loud in {each.id for each in seen(api, nodes=[node("n", loud), *api.nodes()[1:]])[A].instances}


@each_row(
    "provider_id",
    [
        "",
        "aws:///eu/i-1",
        "exoscale://",
        "exoscale://not-an-id",
        uuid(1, "i"),
        f"alicloud://{uuid(1, 'i')}",
        f"exoscale://{uuid(999, 'i')}",
    ],
)
@each_row("taint", ["", "node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane"])
def test_exoscale_foreign_node_is_not_an_error(provider_id: str, taint: str) -> None:
    api = both()
    strange = msgspec.structs.replace(node("other", provider_id), labels={taint: ""} if taint else {})
    groups = seen(api, nodes=[strange, *api.nodes()[1:]])
    assert sorted(groups) == [A, B]
    assert not any(group.error for group in groups.values())


def test_exoscale_machine_without_a_manager_is_in_no_group() -> None:
    api = both()
    alone = uuid(77, "i")
    api.machines[alone] = msgspec.structs.replace(next(iter(api.machines.values())), id=alone, manager=None)
    groups = seen(api, nodes=[node("alone", f"exoscale://{alone}"), *api.nodes()])
    assert not any(alone in (each.handle for each in group.instances) for group in groups.values())


# -- states


@each_row(
    ("said", "joined", "alone"),
    [
        ("starting", RUNNING, CREATING),
        ("running", RUNNING, RUNNING),
        ("migrating", RUNNING, RUNNING),
        ("stopped", RUNNING, RUNNING),
        ("stopping", DELETING, DELETING),
        ("destroying", DELETING, DELETING),
        ("destroyed", DELETING, DELETING),
        ("expunging", DELETING, DELETING),
        ("error", RUNNING, CREATING),
        ("a new word", RUNNING, CREATING),
    ],
)
def test_exoscale_every_machine_state_has_a_meaning(said: str, joined: InstanceState, alone: InstanceState) -> None:
    api = both()
    name = api.all[A].members[0]
    api.set_state(name, said)
    assert machine(api, name, nodes=api.nodes()).state is joined
    assert machine(api, name).state is alone


def test_exoscale_machine_in_error_is_reported_unless_it_is_a_node() -> None:
    api = both()
    name = api.all[A].members[0]
    api.set_state(name, "error")
    error = machine(api, name).error
    assert error is not None
    assert (error.cls, error.code) == ("Unknown", "instance-error")
    assert machine(api, name, nodes=api.nodes()).error is None


@each_row("state", ["scaling-up", "scaling-down", "a new word"])
def test_exoscale_pool_being_scaled_is_an_ordinary_group(state: str) -> None:
    api = both()
    api.all[A].state = state
    assert not seen(api)[A].error


@each_row(
    ("field", "state"),
    [
        ("state", "updating"),
        ("state", "creating"),
        ("nodepool_state", "updating"),
        ("nodepool_state", "renewing-token"),
    ],
)
def test_exoscale_pool_changed_by_others_is_observed_but_not_scaled(field: str, state: str) -> None:
    """As an ordinary group it would be chosen in every pass, and pods would wait for it instead of the next group."""
    api = both()
    setattr(api.all[A], field, state)
    groups = seen(api)
    assert "is being changed" in groups[A].error
    assert (groups[A].target, len(groups[A].instances), groups[B].error) == (3, 3, "")


@each_row("place", ["more", "nodepool"])
def test_exoscale_undecodable_pool_has_its_error_and_blocks_no_other(place: str) -> None:
    api = both()
    getattr(api.all[A], place)["size"] = NO_SIZE
    groups = seen(api)
    assert "cannot be understood" in groups[A].error
    assert groups[A].target >= 0
    assert not groups[B].error


def test_exoscale_suspended_pool_is_reported_and_blocks_no_other() -> None:
    api = both()
    api.all[A].state = "suspended"
    groups = seen(api)
    assert "suspended" in groups[A].error
    assert len(groups[A].instances) == 3
    assert not groups[B].error
    assert len(api.calls) == 4


@each_row("field", ["state", "nodepool_state"])
def test_exoscale_pool_in_deletion_is_not_a_group(field: str) -> None:
    api = both()
    setattr(api.all[A], field, "destroying" if field == "state" else "deleting")
    assert list(seen(api)) == [B]
    assert "is being deleted" in warnings(api, "1:4:web")


def test_exoscale_deleted_pool_is_not_a_group() -> None:
    api = both()
    nodes = api.nodes()
    del api.all[A]
    assert list(seen(api, nodes=nodes)) == [B]


# -- members


def test_exoscale_empty_pool_has_no_instances_and_a_template() -> None:
    api = FakeExoscaleApi(FakeApiPool(size=0), FakeApiPool(B, "more", size=1, owner=NP_B))
    group = seen(api)[A]
    assert (group.target, group.instances) == (0, ())
    assert group.template is not None


def test_exoscale_size_changed_by_others_is_seen_in_the_next_pass() -> None:
    api = both()
    assert seen(api)[A].target == 3
    api.all[A].size = 5
    api.fill(A, 2)
    assert (seen(api)[A].target, len(seen(api)[A].instances)) == (5, 5)


def test_exoscale_member_known_only_by_the_pool_is_listed() -> None:
    api = both()
    api.all[A].members.append(uuid(500, "i"))
    assert machine(api, uuid(500, "i")).state is CREATING


def test_exoscale_machine_that_alone_names_its_pool_makes_the_pool_ours() -> None:
    api = both()
    nodes = api.nodes(B)
    api.all[B].more["instances"] = ()
    group = seen(api, nodes=nodes)[B]
    assert len(group.instances) == 2
    assert not [each for each in group.instances if each.error]


def test_exoscale_machine_claimed_by_two_pools_is_listed_once() -> None:
    api = both()
    api.all[B].more["instances"] = tuple(map(Ref, [*api.all[B].members, api.all[A].members[0]]))
    groups = seen(api)
    assert (len(groups[A].instances), len(groups[B].instances)) == (3, 2)


def test_exoscale_pool_listing_another_pools_machine_is_not_ours() -> None:
    api = both()
    api.all[B].more["instances"] = tuple(map(Ref, [*api.all[B].members, api.all[A].members[0]]))
    assert list(seen(api, nodes=api.nodes(A))) == [A]


@each_row("state", ["running", "error"])
def test_exoscale_machine_with_a_node_of_its_name_is_not_unregistered(state: str) -> None:
    """Without the vendor's cloud controller no node has a provider id, and the whole group would be deleted after the
    provision
    time."""
    api = both()
    name, other = api.all[A].members[:2]
    api.set_state(name, state)
    nodes = [node(api.machines[name].name, ""), node(api.machines[other].name, "aws:///i-1")]
    held = {each.handle: each.held for each in seen(api, "0:9:prod/web", nodes=nodes)[A].instances}
    assert "has no providerID" in held.pop(name)
    assert set(held.values()) == {""}
    assert "has no providerID" in warnings(api, "0:9:prod/web", nodes=nodes)


# -- bounds


def test_exoscale_maximum_without_a_spec_is_what_the_quota_leaves() -> None:
    api = both(quota=Quota("instance", 15, 20))
    groups = seen(api)
    assert {name: (group.min, group.max) for name, group in groups.items()} == {A: (1, 8), B: (1, 7)}


@each_row(
    ("quota", "most"),
    [(Quota("instance", 900, -1), 1000), (Quota("instance", 25, 20), 3), (Quota("instance", 0, 0), 3)],
)
def test_exoscale_unlimited_quota_is_not_a_maximum_of_minus_one(quota: Quota, most: int) -> None:
    assert seen(both(quota=quota))[A].max == most


def test_exoscale_maximum_is_never_below_the_minimum() -> None:
    api = FakeExoscaleApi(FakeApiPool(size=0), quota=Quota("instance", 20, 20))
    group = seen(api, sksCluster="prod")[A]
    assert (group.min, group.max) == (1, 1)


def test_exoscale_unreadable_quota_is_not_a_maximum_of_zero() -> None:
    api = both()
    api.trouble["quota"] = [Transient("HTTP 500")]
    assert seen(api)[A].max == 3
    api.trouble["quota"] = [Transient("HTTP 500")]
    assert "quota could not be read" in warnings(api)


def test_exoscale_nodepool_may_be_scaled_to_zero_and_a_pool_keeps_one() -> None:
    api = both()
    groups = seen(api, "0:4:web", "0:4:db")
    assert (groups[A].min, groups[B].min) == (0, 1)
    assert f"{B}: instance pool db" in warnings(api, "0:4:web", "0:4:db")


def test_exoscale_vendors_own_minimum_is_respected() -> None:
    api = both()
    api.all[A].more["min_available"] = 2
    assert seen(api, "0:4:web")[A].min == 2
    assert "maximum is 1" in seen(api, "0:1:web")[A].error


# -- failing calls


@each_row("error", [Transient("500"), Throttled("429"), ProviderError("?")])
def test_exoscale_unreadable_pools_end_the_pass(error: ProviderError) -> None:
    api = both()
    api.trouble["pools"] = [error]
    with pytest.raises(type(error)):
        seen(api)
    assert api.calls == ["pools"]


def test_exoscale_unreadable_machines_are_a_gap() -> None:
    api = both()
    api.trouble["instances"] = [Transient("500")]
    groups = seen(api)
    assert {name: [each.state for each in group.instances] for name, group in groups.items()} == {
        A: [RUNNING] * 3,
        B: [RUNNING] * 2,
    }
    api.trouble["instances"] = [Transient("500")]
    assert "states of machines could not be read" in warnings(api)


def test_exoscale_unreadable_clusters_block_only_their_groups() -> None:
    api = both()
    api.trouble["clusters"] = [Transient("500")]
    groups = seen(api)
    assert "list-sks-clusters" in groups[A].error
    assert groups[A].target == 3
    assert not groups[B].error


def test_exoscale_unreadable_types_cost_only_the_templates() -> None:
    api = both()
    api.trouble["instance_types"] = [Transient("500")]
    group = seen(api)[A]
    assert (group.template, group.error) == (None, "")
    assert "instance types could not be read" in group.template_error


def test_exoscale_pool_of_another_cluster_is_untouched() -> None:
    api = FakeExoscaleApi(
        FakeApiPool(size=2), FakeApiPool(B, "web", THEIRS, NP_B, size=2), FakeApiPool(C, "db", "", NP_C, size=2)
    )
    assert list(seen(api, nodes=api.nodes(A))) == [A]
    assert NP_A in str(seen(api, nodes=api.nodes(A))[A].template)


def test_exoscale_pool_with_a_manager_of_unknown_kind_is_a_standalone_pool() -> None:
    api = both()
    api.all[B].more["manager"] = Manager(uuid(9, "x"), "something-new")
    assert not seen(api)[B].error
