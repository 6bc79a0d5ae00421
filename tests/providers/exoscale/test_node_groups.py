"""Observation of a zone: states, bounds, missing machines, and failing calls whose
errors stay in their group.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.group import InstanceState
from chalicelib.providers.exoscale.decoding import InstancePool
from chalicelib.providers.exoscale.zone import ExoscalePool
from chalicelib.providers.kit.errors import ProviderError
from infra.emulators.exoscale.account import example_id
from infra.emulators.exoscale.serializers import listed
from infra.emulators.vendor_common.http_messages import scripted
from tests.cases import each_row
from tests.providers.exoscale.fixture import A, B, ExoscaleFixture, both, opened, sks, standalone

CREATING, RUNNING, DELETING = InstanceState.CREATING, InstanceState.RUNNING, InstanceState.DELETING


def _nodepool(zone: ExoscaleFixture) -> str:
    return zone.pool(A).nodepool


def _lost(zone: ExoscaleFixture, group: str = A) -> list[tuple[str, str]]:
    return [
        (each.handle, each.error.cls)
        for each in zone.groups()[group].instances
        if each.error is not None
    ]


def test_exoscale_clusters_and_quota_are_not_read_unless_needed() -> None:
    zone = standalone()
    zone.groups("1:5:db")
    assert zone.operations() == ["list-instance-pools", "list-instances", "get-instance-type"]


def test_exoscale_machine_id_is_spelled_like_its_node() -> None:
    zone = both()
    first, *rest = zone.nodes()
    assert {each.id: each.node for each in zone.groups()[A].instances} == {
        node.provider_id: node.name for node in zone.nodes(A)
    }
    loud = "exoscale://" + first.provider_id.removeprefix("exoscale://").upper()
    odd = msgspec.structs.replace(first, provider_id=loud)
    assert loud in {each.id for each in zone.groups(nodes=[odd, *rest])[A].instances}


@each_row(
    "provider_id",
    [
        "",
        "aws:///eu/i-1",
        "exoscale://",
        "exoscale://not-an-id",
        example_id("vm", 1),
        f"alicloud://{example_id('vm', 1)}",
        f"exoscale://{example_id('vm', 999)}",
        f"exoscale://{example_id('vm', 6)}",  # a machine of no pool
    ],
)
@each_row("taint", ["", "node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane"])
def test_exoscale_foreign_node_is_not_an_error(provider_id: str, taint: str) -> None:
    zone = both()
    alone = zone.zone.add_lonely()
    nodes = list(zone.nodes())
    strange = msgspec.structs.replace(
        nodes[0], name="other", provider_id=provider_id, labels={taint: ""} if taint else {}
    )
    groups = zone.groups(nodes=[strange, *nodes[1:]])
    assert sorted(groups) == [A, B]
    assert not any(group.error for group in groups.values())
    assert not any(alone in (each.handle for each in group.instances) for group in groups.values())


# -- states


@each_row(
    ("word", "joined", "alone"),
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
def test_exoscale_every_machine_state_has_a_meaning(
    word: str, joined: InstanceState, alone: InstanceState
) -> None:
    zone = both()
    name, nodes = zone.machines(A)[0], zone.nodes()
    zone.answers[name] = {"state": word}
    joined_one, alone_one = zone.instance(name, nodes), zone.instance(name)
    assert (joined_one.state, alone_one.state) == (joined, alone)
    assert joined_one.error is None
    error = alone_one.error
    assert (error is not None and (error.cls, error.code)) == (
        word == "error" and ("Unknown", "instance-error")
    )


@each_row(
    ("pool", "nodepool", "words"),
    [
        ({"state": "scaling-up"}, {}, ""),
        ({"state": "scaling-down"}, {}, ""),
        ({"state": "a new word"}, {}, ""),
        # As an ordinary group it would be chosen in every pass, and pods would wait for it
        # instead of the next group.
        ({"state": "updating"}, {}, "is being changed"),
        ({"state": "creating"}, {}, "is being changed"),
        ({}, {"state": "updating"}, "is being changed"),
        ({}, {"state": "renewing-token"}, "is being changed"),
        ({"state": "suspended"}, {}, "suspended"),
        ({"size": 2**40}, {}, "cannot be understood"),
        ({}, {"size": 2**40}, "cannot be understood"),
    ],
)
def test_exoscale_pool_that_cannot_be_scaled_has_its_error_and_blocks_no_other(
    pool: dict[str, Any], nodepool: dict[str, Any], words: str
) -> None:
    zone = both()
    zone.answers = {A: pool, _nodepool(zone): nodepool}
    groups = zone.groups()
    assert words in groups[A].error
    assert bool(groups[A].error) == bool(words)
    assert (len(groups[A].instances), groups[B].error) == (3, "")
    assert groups[A].target == 3 or "cannot be understood" in words
    assert groups[A].target >= 0


@each_row(
    ("state", "own", "others"),
    [
        ("creating", "", "is being changed"),
        ("updating", "is being changed", "is being changed"),
        ("running", "", ""),
    ],
)
def test_exoscale_creation_of_a_group_that_outscaler_makes_is_no_foreign_change(
    state: str, own: str, others: str
) -> None:
    pool = ExoscalePool(InstancePool(A, "nodepool-1", state=state))
    made = msgspec.structs.replace(pool, own_name="osc-bd8e3a-general-715080e32b")
    assert (own in made.skipped, bool(made.skipped)) == (True, bool(own))
    assert (others in pool.skipped, bool(pool.skipped)) == (True, bool(others))


@each_row("nodepool", [False, True])
def test_exoscale_pool_in_deletion_is_not_a_group(nodepool: bool) -> None:
    zone = both()
    zone.answers = (
        {_nodepool(zone): {"state": "deleting"}} if nodepool else {A: {"state": "destroying"}}
    )
    assert list(zone.groups()) == [B]
    assert "is being deleted" in zone.warnings("1:4:web")


# -- members


def test_exoscale_empty_pool_has_no_instances_and_a_template() -> None:
    zone = opened(("web", "prod", 0), ("more", "prod", 1))
    group = zone.groups()[A]
    assert (group.target, group.instances) == (0, ())
    assert group.template is not None


def test_exoscale_member_known_only_by_the_pool_is_listed() -> None:
    zone = both()
    late = example_id("vm", 500)
    zone.answers[A] = {"instances": [{"id": name} for name in [*zone.machines(A), late]]}
    assert zone.instance(late).state is CREATING


def test_exoscale_machine_that_alone_names_its_pool_makes_the_pool_ours() -> None:
    zone = both()
    zone.answers[B] = {"instances": []}
    group = zone.groups(nodes=zone.nodes(B))[B]
    assert len(group.instances) == 2
    assert not [each for each in group.instances if each.error]


def test_exoscale_machine_listed_by_another_pool_is_listed_once_and_makes_no_group() -> None:
    zone = both()
    zone.answers[B] = {
        "instances": [{"id": name} for name in [*zone.machines(B), zone.machines(A)[0]]]
    }
    assert {name: len(group.instances) for name, group in zone.groups().items()} == {A: 3, B: 2}
    assert list(zone.groups(nodes=zone.nodes(A))) == [A]


@each_row("state", ["running", "error"])
def test_exoscale_machine_with_a_node_of_its_name_is_not_unregistered(state: str) -> None:
    """Without the vendor's cloud controller no node has a provider id, and the whole group would be
    deleted after the provision time."""
    zone = both()
    first, second, _ = zone.nodes(A)
    zone.answers[zone.machines(A)[0]] = {"state": state}
    nodes = [
        msgspec.structs.replace(first, provider_id=""),
        msgspec.structs.replace(second, provider_id="aws:///i-1"),
    ]
    held = {
        each.handle: each.held for each in zone.groups("0:9:prod/web", nodes=nodes)[A].instances
    }
    assert "has no providerID" in held.pop(zone.machines(A)[0])
    assert set(held.values()) == {""}
    assert "has no providerID" in zone.warnings("0:9:prod/web", nodes=nodes)


# -- missing machines


@each_row(("limit", "cls"), [(20, "OutOfStock"), (5, "QuotaExceeded")])
def test_exoscale_machines_missing_in_an_idle_pool_are_reported_in_the_same_pass(
    limit: int, cls: str
) -> None:
    zone = both()
    zone.zone.limit, zone.pool(A).size = limit, 5
    assert _lost(zone) == [(f"placeholder-{A}-0", cls), (f"placeholder-{A}-1", cls)]
    assert not _lost(zone, B)
    assert {each.id for each in zone.groups()[A].instances if each.error} == {
        f"exoscale://placeholder-{A}-0",
        f"exoscale://placeholder-{A}-1",
    }


@each_row(
    ("pool", "nodepool", "size"),
    [
        ("scaling-up", None, 5),
        ("creating", None, 5),
        ("updating", None, 5),
        ("scaling-down", None, 5),
        ("a new word", None, 5),
        (None, "scaling", 5),
        (None, "updating", 5),
        (None, None, 3),
    ],
)
def test_exoscale_no_machine_is_missing_while_the_vendor_works(
    pool: str | None, nodepool: str | None, size: int
) -> None:
    zone = both()
    zone.pool(A).size = size
    if pool is not None:
        zone.answers[A] = {"state": pool}
    if nodepool is not None:
        zone.answers[_nodepool(zone)] = {"state": nodepool}
    assert not _lost(zone)
    assert zone.groups()[A].target == size


def test_exoscale_nodepool_ahead_of_its_pool_misses_no_machine() -> None:
    zone = both()
    zone.answers[_nodepool(zone)] = {"size": 9, "state": "running"}
    assert not _lost(zone)
    assert zone.groups()[A].target == 9


def test_exoscale_machine_leaving_between_two_answers_is_not_missing() -> None:
    zone = both()
    name = zone.machines(A)[0]
    zone.answers[name] = {"state": "destroying"}
    assert not _lost(zone)
    zone.answers = {A: {"instances": [{"id": each} for each in zone.machines(A)]}}
    zone.zone.vanish(name)
    assert not _lost(zone)


def test_exoscale_last_machine_of_a_standalone_pool_is_never_reported_missing() -> None:
    zone = standalone(1)
    zone.zone.vanish(zone.machines(A)[0])
    assert not [each for each in zone.groups("1:4:db")[A].instances if each.error]


# -- bounds


@each_row(
    ("limit", "usage", "most"),
    [
        (20, 15, {A: 8, B: 7}),
        (-1, 900, {A: 1000, B: 1000}),
        (20, 25, {A: 3, B: 2}),
        (0, 5, {A: 3, B: 2}),
    ],
)
def test_exoscale_maximum_without_a_spec_is_what_the_quota_leaves(
    limit: int, usage: int, most: dict[str, int]
) -> None:
    zone = both()
    zone.zone.limit, zone.zone.other_usage = limit, usage - 5
    assert {name: (group.min, group.max) for name, group in zone.groups().items()} == {
        name: (1, size) for name, size in most.items()
    }
    assert zone.build().remaining() == (None if limit < 0 else max(0, limit - usage))


def test_exoscale_add_ons_are_those_of_the_cluster_of_the_groups() -> None:
    zone = opened(("web", "prod", 2), ("batch", "other", 1), ("bare", "", 1))
    prod, other = zone.zone.clusters.values()
    prod.addons, other.addons = (
        {"karpenter", "metrics-server"},
        {"exoscale-container-storage-interface"},
    )
    groups = tuple(zone.groups().values())
    [web] = (group for group in groups if group.name == "web")
    assert zone.build().addons((web,)) == {"karpenter", "metrics-server"}
    assert zone.build(sksCluster="prod").addons(()) == {"karpenter", "metrics-server"}
    assert zone.build().addons(()) == frozenset()
    zone.answers[prod.id] = {"addons": [{"name": "karpenter"}, 7]}
    assert zone.build().addons((web,)) == frozenset()
    assert web.id in zone.groups()


def test_exoscale_maximum_is_never_below_the_minimum() -> None:
    zone = sks(0)
    zone.zone.limit = zone.zone.other_usage = 20
    group = zone.groups(sksCluster="prod")[A]
    assert (group.min, group.max) == (1, 1)


def test_exoscale_nodepool_may_be_scaled_to_zero_and_a_pool_keeps_one() -> None:
    zone = both()
    groups = zone.groups("0:4:web", "0:4:db")
    assert (groups[A].min, groups[B].min) == (0, 1)
    assert f"{B}: instance pool db" in zone.warnings("0:4:web", "0:4:db")


def test_exoscale_vendors_own_minimum_is_respected() -> None:
    zone = both()
    zone.answers[A] = {"min-available": 2}
    assert zone.groups("0:4:web")[A].min == 2
    assert "maximum is 1" in zone.groups("0:1:web")[A].error


# -- failing calls


@each_row("status", [500, 429, 418])
def test_exoscale_unreadable_pools_end_the_pass(status: int) -> None:
    zone = both()
    zone.fail("GET /v2/instance-pool$", status)
    with pytest.raises(ProviderError):
        zone.groups()
    assert {request.path for request in zone.server.requests} == {"/v2/instance-pool"}


def test_exoscale_failing_read_costs_only_what_needs_it() -> None:
    zone = both()
    zone.fail(r"GET /v2/instance\?", times=6)
    assert {
        name: [each.state for each in group.instances] for name, group in zone.groups().items()
    } == {
        A: [RUNNING] * 3,
        B: [RUNNING] * 2,
    }
    assert "states of machines could not be read" in zone.warnings()
    zone.fail("GET /v2/sks-cluster")
    groups = zone.groups()
    assert "list-sks-clusters" in groups[A].error
    assert (groups[A].target, groups[B].error) == (3, "")
    zone.fail("GET /v2/quota", times=6)
    assert zone.groups()[A].max == 3, "an unreadable quota is not a maximum of zero"
    assert f"{A}: its maximum is its size, for the quota could not be read: " in zone.warnings()
    zone.fail("GET /v2/instance-type")
    group = zone.groups()[A]
    assert (group.template, group.error) == (None, "")
    assert "instance types could not be read" in group.template_error


def test_exoscale_pool_with_a_manager_of_unknown_kind_is_a_standalone_pool() -> None:
    zone = both()
    zone.answers[B] = {"manager": {"id": example_id("pool", 9), "type": "something-new"}}
    assert not zone.groups()[B].error


@each_row(("unlisted", "uncertain"), [(False, {B}), (True, {A, B})])
def test_exoscale_machine_without_an_id_makes_only_its_possible_pools_uncertain(
    unlisted: bool, uncertain: set[str]
) -> None:
    zone = both()
    machines = [
        listed(vm)
        for vm in zone.zone.vms.values()
        if not (unlisted and vm.id == zone.machines(A)[0])
    ]
    odd = {"id": "../x", "manager": {"id": B, "type": "instance-pool"}}
    zone.server.reply(r"GET /v2/instance\?", scripted(200, {"instances": [*machines, odd]}))
    errors = {name: group.error for name, group in zone.groups().items()}
    assert {name for name, error in errors.items() if "cannot be understood" in error} == uncertain


NEW = example_id("template", 2)


@each_row(
    "pool, nodepool, machine, outdated",
    [
        # the change has not reached the pool: new members would be equal
        ({}, {"template": {"id": NEW}}, {}, False),
        ({"template": {"id": NEW}}, {}, {}, False),
        ({"template": {"id": NEW}}, {"template": {"id": NEW}}, {}, True),
        ({"template": None}, {"template": {"id": NEW}}, {}, True),
        ({"template": None}, {"template": None}, {}, False),
        ({"template": {"id": NEW}}, {"template": {"id": NEW}}, {"template": None}, False),
        (
            {"template": {"id": NEW}},
            {"template": {"id": NEW}},
            {"template": {"id": NEW.upper()}},
            False,
        ),
        ({"template": {"id": NEW}}, {"template": {"id": NEW}}, {"template": "odd"}, False),
    ],
)
def test_exoscale_member_is_outdated_only_if_it_differs_from_pool_and_nodepool(
    pool: dict[str, Any], nodepool: dict[str, Any], machine: dict[str, Any], outdated: bool
) -> None:
    zone = sks(1)
    zone.answers = {A: pool, _nodepool(zone): nodepool, zone.machines(A)[0]: machine}
    (instance,) = zone.groups()[A].instances
    assert bool(instance.outdated) is outdated


def test_exoscale_former_type_that_cannot_be_read_is_named_by_its_id() -> None:
    zone = sks(2)
    zone.zone.update_pool(A, type="standard.large")
    zone.fail(f"GET /v2/instance-type/{example_id('kind', 2)}")
    group = zone.groups()[A]
    assert group.template is not None
    assert {each.outdated for each in group.instances} == {
        f"instance type {example_id('kind', 2)}, the group's is standard.large"
    }


def test_exoscale_template_of_a_nodepool_names_all_taints() -> None:
    assert both().groups()[A].states_taints
    [standalone_pool] = standalone().groups("1:5:db").values()
    assert not standalone_pool.states_taints
