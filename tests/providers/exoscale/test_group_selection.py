"""Selection of pools as groups, and resolution of names in the policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from chalicelib.model.node import Node
from chalicelib.policy.settings.group_policy import GroupPolicy
from infra.emulators.exoscale.account import example_id
from tests.cases import each_row
from tests.providers.exoscale.fixture import NP_A, OURS, THEIRS, A, B, C, ExoscaleFixture, opened


def zone() -> ExoscaleFixture:
    """`web` in our cluster and in another one, and a standalone pool `db`."""
    return opened(("web", "prod", 2), ("web", "stage", 2), ("db", "", 2))


@each_row("name", [A, NP_A, A.upper(), "web", "prod/web", f"{OURS}/web"])
def test_exoscale_selection_group_is_named_by_ids_and_names(name: str) -> None:
    api = zone()
    group = api.groups(f"2:7:{name}", nodes=api.nodes(A))[A]
    assert (group.min, group.max) == (2, 7)
    assert not api.warnings(f"2:7:{name}", nodes=api.nodes(A))


@each_row("name", [C, "db"])
def test_exoscale_selection_standalone_pool_is_named_by_id_or_name(name: str) -> None:
    assert zone().groups(f"2:7:{name}", nodes=[])[C].max == 7


@each_row("name", [C, NP_A, "web", "prod/web"])
def test_exoscale_selection_priority_of_an_entry_reaches_the_group(name: str) -> None:
    api = zone()
    api._bounds[name] = GroupPolicy("exoscale", name, 1, 9, priority=40)
    groups = api.groups(nodes=api.nodes(A)).values()
    assert [group.priority for group in groups if group.max == 9] == [40]


def test_exoscale_selection_group_has_its_known_names_as_aliases() -> None:
    api = zone()
    assert {NP_A, "web", "prod/web"} <= set(api.groups("1:2:web", nodes=api.nodes(A))[A].aliases)


def test_exoscale_selection_name_in_two_clusters_means_our_own() -> None:
    api = zone()
    groups = api.groups("2:7:web", nodes=api.nodes(A))
    assert {name: group.max for name, group in groups.items()} == {A: 7}


def test_exoscale_selection_ambiguous_name_is_reported_and_selects_none() -> None:
    api = zone()
    assert not api.groups("2:7:web", nodes=[])
    reported = api.warnings("2:7:web", nodes=[])
    assert A in reported
    assert B in reported


def test_exoscale_selection_name_of_both_kinds_blocks_only_its_candidates() -> None:
    api = opened(("web", "prod", 2), ("web", "", 2), ("db", "", 2))
    groups = api.groups("2:7:web", "1:4:db")
    assert "means 2 groups" in groups[A].error
    assert "means 2 groups" in groups[B].error
    assert not groups[C].error


def test_exoscale_selection_name_of_both_kinds_means_the_one_with_our_nodes() -> None:
    api = opened(("web", "prod", 2), ("web", "", 2))
    assert {
        name: group.max for name, group in api.groups("2:7:web", nodes=api.nodes(A)).items()
    } == {A: 7}


def test_exoscale_selection_name_only_in_another_cluster_selects_none() -> None:
    api = opened(("web", "prod", 2), ("api", "stage", 2))
    assert not api.groups("2:7:api", nodes=api.nodes(A))
    assert "write stage/api" in api.warnings("2:7:api", nodes=api.nodes(A))
    assert set(api.groups("2:7:stage/api", nodes=api.nodes(A))) == {B}


def test_exoscale_selection_unknown_name_is_a_warning() -> None:
    api = zone()
    assert "no Nodepool and no instance pool of ch-gva-2 is called wep" in api.warnings(
        "2:7:wep", nodes=api.nodes(A)
    )
    reported = api.warnings("2:7:wep", nodes=api.nodes(A))
    assert "2 of the machines of Nodepool web of prod" in reported
    assert "name it, or set sksCluster" in reported


def test_exoscale_selection_one_of_two_entries_for_a_group_decides() -> None:
    api = zone()
    specs = ("1:5:web", f"1:9:{A}")
    assert api.groups(*specs, nodes=api.nodes(A))[A].max == 9
    assert "the same group" in api.warnings(*specs, nodes=api.nodes(A))


def test_exoscale_selection_named_groups_come_first_and_need_no_node() -> None:
    api = zone()
    assert list(api.groups("0:7:stage/web", nodes=api.nodes(A), sksCluster="prod")) == [B, A]


def test_exoscale_selection_empty_nodepool_is_a_group_with_scale_from_zero() -> None:
    api = opened(("web", "prod", 2), ("gpu", "prod", 0), ("theirs", "stage", 0))
    assert set(api.groups()) == {A, B}
    assert set(api.groups(scaleFromZero="false")) == {A}
    assert set(api.groups("0:3:gpu", scaleFromZero="false")) == {B}
    assert set(api.groups("0:3:gpu", scaleFromZero="false", sksCluster="prod")) == {A, B}


def test_exoscale_selection_with_discovery_an_entry_only_bounds_its_pool() -> None:
    api = opened(
        ("web", "prod", 2),
        ("gpu", "prod", 1),
        ("db", "", 2),
        ("theirs", "stage", 2),
    )
    nodes = [*api.nodes(A), *api.nodes(B), *api.nodes(C)]
    assert set(api.groups("1:3:web", nodes=nodes)) == {A}
    groups = api.groups("1:3:web", nodes=nodes, autoDiscovery="true", scaleFromZero="false")
    assert set(groups) == {A, B, C}
    assert (groups[A].min, groups[A].max) == (1, 3)
    assert groups[B].min == groups[C].min == 1
    assert groups[B].max > 3
    assert not groups[B].discovered  # most machines of the SKS cluster are nodes
    assert groups[C].discovered
    assert "left alone" not in api.warnings(
        "1:3:web", nodes=nodes, autoDiscovery="true", scaleFromZero="false"
    )


def test_exoscale_selection_with_discovery_pools_of_another_cluster_stay_alone() -> None:
    api = zone()
    nodes = [*api.nodes(A), *api.nodes(B)[:1]]
    groups = api.groups("1:3:web", nodes=nodes, autoDiscovery="true")
    assert set(groups) == {A}
    assert "left alone" in api.warnings("1:3:web", nodes=nodes, autoDiscovery="true")


@each_row("name", ["prod", OURS])
def test_exoscale_selection_our_cluster_may_be_named_before_it_has_a_node(name: str) -> None:
    assert set(zone().groups(sksCluster=name, nodes=[])) == {A}


def test_exoscale_selection_missing_or_ambiguous_cluster_is_a_warning() -> None:
    api = zone()
    assert "there is no SKS cluster none" in api.warnings(sksCluster="none", nodes=[])
    api.zone.clusters[THEIRS].name = "prod"
    reported = api.warnings(sksCluster="prod", nodes=[])
    assert OURS in reported
    assert THEIRS in reported
    assert not api.groups(sksCluster="prod", nodes=[])


def test_exoscale_selection_cluster_contradicted_by_the_nodes_is_not_ours() -> None:
    """All of its machines would be deleted, because none of them is one of our nodes."""
    api = zone()
    assert set(api.groups(sksCluster="stage", nodes=api.nodes(A))) == {A}
    assert f"are of {OURS} and not of stage" in api.warnings(sksCluster="stage", nodes=api.nodes(A))


def test_exoscale_selection_clusters_are_read_only_for_sks() -> None:
    api = zone()
    api.groups("1:4:db", nodes=api.nodes(C))
    assert "list-sks-clusters" not in api.operations()
    api.groups("1:4:other", nodes=api.nodes(C))
    assert "list-sks-clusters" in api.operations()


def test_exoscale_selection_unknown_name_mentions_unreadable_clusters() -> None:
    api = zone()
    api.fail("GET /v2/sks-cluster")
    assert "SKS clusters could not be read" in api.warnings("2:7:web", nodes=[])


def _held(
    api: ExoscaleFixture, *specs: str, nodes: Sequence[str] = (), **settings: Any
) -> set[bool]:
    """Tells whether the machines of A are blocked from deletion. nodes: the pools whose machines
    are nodes of this cluster."""
    known = api.nodes(*nodes) if nodes else []
    return {bool(each.held) for each in api.groups(*specs, nodes=known, **settings)[A].instances}


def test_exoscale_selection_bare_name_never_deletes_running_foreign_machines() -> None:
    """If a Nodepool of another cluster happens to have the name, its machines look as if they had
    never joined, and would all be deleted after the provision time."""
    api = opened(("web", "prod", 3), ("db", "", 2))
    assert _held(api, "0:7:web") == {True}
    assert _held(api, "0:7:web", nodes=(C,)) == {True}, (
        "a node of a standalone pool says nothing of SKS"
    )
    assert "write prod/web" in api.warnings("0:7:web", nodes=[])


@each_row(
    ("spec", "settings"),
    [
        ("0:7:prod/web", {}),
        (f"0:7:{A}", {}),
        (f"0:7:{NP_A}", {}),
        ("0:7:web", {"sksCluster": "prod"}),
    ],
)
def test_exoscale_selection_explicitly_named_cluster_is_trusted(
    spec: str, settings: dict[str, Any]
) -> None:
    api = opened(("web", "prod", 3))
    assert _held(api, spec, **settings) == {False}
    assert not api.warnings(spec, nodes=[], **settings)


def test_exoscale_selection_node_or_another_entry_identifies_our_cluster() -> None:
    api = opened(("web", "prod", 3), ("api", "prod", 1))
    assert _held(api, "0:7:web", nodes=(B,)) == {False}
    assert _held(api, "0:7:web", "0:2:prod/api") == {False}


def test_exoscale_selection_empty_nodepool_by_bare_name_deletes_only_failed_ones() -> None:
    api = opened(("web", "prod", 0))
    assert not api.groups("0:7:web", nodes=[])[A].error
    assert not api.warnings("0:7:web", nodes=[])
    api.pool(A).size = 1
    api.zone.add_members(A, 1, state="error")
    assert _held(api, "0:7:web") == {False}


# -- groups inferred from a node's own claims


def _thief(api: ExoscaleFixture, victim: str, at: int = 0) -> list[Node]:
    """The nodes of A, the first of which claims to be a machine of another pool."""
    first, *rest = api.nodes(A)
    return [
        msgspec.structs.replace(
            first, name="thief", provider_id=f"exoscale://{api.machines(victim)[at]}"
        ),
        *rest,
    ]


def _foreign(victim_cluster: str = "stage") -> ExoscaleFixture:
    """`web` of our cluster with three machines; the pool B of four belongs to another
    cluster, or is standalone."""
    return opened(
        ("web", "prod", 3),
        ("web", victim_cluster, 4),
        ("gpu", victim_cluster, 0),
    )


@each_row(
    ("specs", "settings", "groups"),
    [
        ((), {}, {A}),
        ((), {"sksCluster": "prod"}, {A}),
        (("0:9:prod/web",), {}, {A}),
        (("0:9:web",), {}, {A}),
        (("0:9:web",), {"sksCluster": "prod"}, {A}),
        ((), {"scaleFromZero": "false"}, {A}),
    ],
)
def test_exoscale_selection_foreign_machine_id_adopts_no_foreign_nodepool(
    specs: tuple[str, ...], settings: dict[str, Any], groups: set[str]
) -> None:
    api = _foreign()
    thief = _thief(api, B)
    assert set(api.groups(*specs, nodes=thief, **settings)) == groups
    assert "Nodepool web of stage" in api.warnings(*specs, nodes=thief, **settings)


@each_row(("specs", "settings"), [((), {"sksCluster": "prod"}), (("0:9:prod/web",), {})])
def test_exoscale_selection_named_cluster_or_group_excludes_standalone_pools(
    specs: tuple[str, ...], settings: dict[str, Any]
) -> None:
    api = _foreign("")
    assert set(api.groups(*specs, nodes=_thief(api, B), **settings)) == {A}


def test_exoscale_selection_standalone_pool_known_by_a_node_counts_as_discovered() -> None:
    api = _foreign("")
    groups = api.groups(nodes=_thief(api, B))
    assert {name: group.discovered for name, group in groups.items()} == {A: False, B: True}


def test_exoscale_selection_sks_groups_are_discovered_until_most_machines_joined() -> None:
    api = opened(("web", "prod", 3), ("gpu", "prod", 0))
    found = [
        {name: group.discovered for name, group in api.groups(nodes=api.nodes(A)[:count]).items()}
        for count in (0, 1, 2, 3)
    ]
    assert found == [{}, {A: True, B: True}, {A: False, B: False}, {A: False, B: False}]
    assert not any(group.discovered for group in api.groups(nodes=[], sksCluster="prod").values())


def test_exoscale_selection_members_known_only_by_their_pool_count_as_machines() -> None:
    api = opened(("web", "prod", 3))
    assert [group.discovered for group in api.groups(nodes=api.nodes(A)[:2]).values()] == [False]
    late = [example_id("vm", number) for number in (500, 501)]
    api.answers[A] = {"instances": [{"id": name} for name in [*api.machines(A), *late]]}
    assert [group.discovered for group in api.groups(nodes=api.nodes(A)[:2]).values()] == [True]


def test_exoscale_selection_equal_votes_for_two_clusters_select_neither() -> None:
    api = zone()
    assert not {A, B} & set(api.groups(nodes=[*api.nodes(A), *api.nodes(B)]))


def test_exoscale_selection_one_foreign_id_does_not_override_the_named_cluster() -> None:
    api = _foreign()
    assert set(api.groups(nodes=_thief(api, B)[:2], sksCluster="prod")) == {A}


def test_exoscale_selection_node_with_another_machines_name_is_not_trusted() -> None:
    """A kubelet can write any providerID but cannot choose its node's name."""
    api = _foreign("")
    stolen, own = api.machines(B)[0], api.machines(A)[0]
    thief = _thief(api, B)
    api.answers[own] = {"name": thief[0].name}
    groups = api.groups(nodes=thief)
    assert set(groups) == {A}
    claimed = {each.handle: each.claimants for each in groups[A].instances}
    assert claimed[own] == (thief[0].name,)
    assert sum(bool(names) for names in claimed.values()) == 1
    assert stolen not in claimed


def test_exoscale_selection_discovered_pools_of_one_name_are_ordered_by_id() -> None:
    api = opened(("web", "", 1), ("web", "", 1), ("db", "", 1))
    api.zone.pools = dict(reversed(api.zone.pools.items()))
    assert [(group.id, group.discovered) for group in api.groups().values()] == [
        (C, True),
        (A, True),
        (B, True),
    ]
