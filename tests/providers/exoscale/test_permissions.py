"""Keys with upstream's operations: complete lists are forbidden with 403,
and everything still works.
"""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.group import InstanceState
from chalicelib.model.outcome import Succeeded
from chalicelib.providers.kit.errors import Unauthorized
from infra.emulators.exoscale.account import example_id
from tests.cases import each_row
from tests.providers.exoscale.fixture import (
    NP_A,
    A,
    B,
    ExoscaleFixture,
    drive,
    grow,
    opened,
    remove,
)


def key(*pools: tuple[str, str, int], sks: bool = True) -> ExoscaleFixture:
    """A zone, and a key with the operations that upstream documents."""
    zone = opened(*pools)
    zone.deny("list-instance-pools", "list-instances")
    if not sks:
        zone.deny("list-sks-clusters", "scale-sks-nodepool", "evict-sks-nodepool-members")
    return zone


@each_row("size", [3, 80])
def test_exoscale_sks_key_reads_its_groups_pool_by_pool(size: int) -> None:
    zone = key(("web", "prod", size), ("gpu", "prod", 0))
    groups = zone.groups()
    assert {name: (each.target, len(each.instances)) for name, each in groups.items()} == {
        A: (size, size),
        B: (0, 0),
    }
    assert not [group.error for group in groups.values() if group.error]
    assert sorted(zone.operations()) == [
        "get-instance-pool",
        "get-instance-pool",
        "get-instance-type",
        "get-quota",
        "list-instance-pools",
        "list-instances",
        "list-sks-clusters",
    ]
    assert "may not list-instance-pools" in zone.warnings()


@each_row("size", [3, 80])
def test_exoscale_instance_pool_key_reads_its_groups_pool_by_pool(size: int) -> None:
    zone = key(("db", "", size), ("web", "stage", 9), sks=False)
    groups = zone.groups(nodes=zone.nodes(A))
    assert {name: (group.target, group.error) for name, group in groups.items()} == {A: (size, "")}
    assert len(zone.calls()) <= 7  # one of them for the instance type
    assert zone.groups("1:7:db", nodes=zone.nodes(A))[A].max == 7


def test_exoscale_restricted_key_finds_nodepools_of_nodes_without_labels() -> None:
    zone = key(("web", "prod", 3))
    nodes = [msgspec.structs.replace(each, labels={}) for each in zone.nodes()]
    group = zone.groups(nodes=nodes)[A]
    assert (group.target, group.error) == (3, "")
    assert zone.operations().count("get-instance") == 1


def test_exoscale_restricted_key_reads_a_machine_without_a_node_separately() -> None:
    zone = key(("web", "prod", 3))
    name = zone.machines(A)[2]
    zone.answers[name] = {"state": "error"}
    (reported,) = [each for each in zone.groups(nodes=zone.nodes()[:2])[A].instances if each.error]
    assert (reported.handle, reported.state) == (name, InstanceState.CREATING)
    assert zone.operations().count("get-instance") == 1


def test_exoscale_restricted_key_vanished_machine_blocks_no_other() -> None:
    zone = key(("db", "", 2), sks=False)
    first, *others = zone.nodes()
    gone = msgspec.structs.replace(
        first, name="left over", provider_id=f"exoscale://{example_id('vm', 700)}"
    )
    assert zone.groups(nodes=[gone, first, *others])[A].target == 2


def test_exoscale_restricted_key_may_lack_only_one_of_the_lists() -> None:
    for operation in ("list-instances", "list-instance-pools"):
        zone = opened(("web", "prod", 3), ("db", "", 2))
        zone.deny(operation)
        assert {name: len(group.instances) for name, group in zone.groups().items()} == {A: 3, B: 2}


def test_exoscale_both_restricted_keys_can_scale() -> None:
    for zone in (key(("web", "prod", 3)), key(("db", "", 3), sks=False)):
        assert isinstance(drive(zone, grow(zone, 3, 5)), Succeeded)
        zone.settle()
        *victims, stays = zone.machines(A)
        assert isinstance(drive(zone, remove(zone, 5, *victims)), Succeeded)
        assert zone.state() == (1, [stays])


def test_exoscale_restricted_key_accepts_groups_by_name() -> None:
    zone = key(("web", "prod", 0), ("db", "", 2))
    for name in ("web", "prod/web", NP_A, A):
        assert zone.groups(f"0:7:{name}", nodes=[])[A].max == 7
    assert zone.groups(f"1:7:{B}", nodes=[])[B].max == 7
    assert zone.groups(f"1:7:{example_id('pool', 9)}", nodes=[]) == {}


def test_exoscale_key_without_permissions_is_refused_in_few_calls() -> None:
    zone = key(("web", "prod", 50))
    zone.deny("list-sks-clusters", "get-instance-pool", "get-instance")
    with pytest.raises(Unauthorized):
        zone.groups()
    assert len(zone.calls()) <= 6


def test_exoscale_invalid_key_is_refused_at_once() -> None:
    zone = opened(("web", "prod", 5))
    zone.fail("GET /v2/instance-pool$", 401, 1)
    with pytest.raises(Unauthorized):
        zone.groups()
    assert len(zone.server.requests) == 1


def test_exoscale_restricted_key_unreadable_pool_has_its_error() -> None:
    zone = key(("web", "prod", 3), ("gpu", "prod", 1))
    zone.fail("GET /v2/instance-pool/")
    groups = zone.groups()
    assert sorted(bool(group.error) for group in groups.values()) == [False, True]


def test_exoscale_restricted_key_unreadable_named_pool_keeps_its_bounds() -> None:
    zone = key(("db", "", 3), ("api", "", 1), sks=False)
    zone.fail("GET /v2/instance-pool/")
    groups = zone.groups(f"2:7:{A}", f"0:3:{B}", nodes=zone.nodes(B))
    group = groups[A]
    assert not groups[B].error
    assert (group.min, group.max, "HTTP 500" in group.error) == (2, 7, True)


def test_exoscale_restricted_key_refused_at_a_machine_stops_further_reads() -> None:
    zone = key(("web", "prod", 60))
    zone.deny("get-instance")
    group = zone.groups(nodes=zone.nodes()[:1])[A]
    assert len(group.instances) == 60
    assert zone.operations().count("get-instance") <= 2


def test_exoscale_restricted_key_looks_up_vanished_targets_one_by_one() -> None:
    zone = key(("db", "", 6), sks=False)
    names = zone.machines(A)[:4]
    operation = remove(zone, 6, *names)
    for name in names:
        zone.zone.vanish(name)
    zone.pool(A).size = 2
    assert isinstance(zone.build().delete_nodes(operation), Succeeded)
    assert not zone.changes()
