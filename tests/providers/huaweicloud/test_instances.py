"""Nodes, their states, and placeholders for missing nodes."""

from __future__ import annotations

import msgspec

from chalicelib.model.group import Instance, InstanceState
from chalicelib.model.node import Node
from chalicelib.providers.kit.group_builder import MOST_PLACEHOLDERS
from tests.cases import each_row
from tests.providers.huaweicloud.emulated import (
    AZ2,
    CLUSTER,
    NO_QUOTA,
    POOL,
    SOLD_OUT,
    A,
    B,
    EmulatedCce,
    node,
    true,
    uid,
)

CREATING, RUNNING, DELETING = InstanceState.CREATING, InstanceState.RUNNING, InstanceState.DELETING


def machine(cce: EmulatedCce, name: str, *nodes: Node) -> Instance:
    """Returns one machine as the core sees it."""
    return {each.handle: each for each in cce.groups(nodes=nodes)[A].instances}[name]


def missing(cce: EmulatedCce) -> list[Instance]:
    """Returns the placeholders of the first group."""
    return [each for each in cce.groups()[A].instances if each.error]


@each_row("how", ["uid", "scheme", "path", "server", "address", "hostname", "name"])
def test_CCE_20_node_is_matched_by_uid_server_address_or_name(how: str) -> None:
    cce, name = EmulatedCce(1), uid(1)
    known = cce.node(name)
    joined = {
        "uid": node(known),
        "scheme": node(known, f"huaweicloud://{name}"),
        "path": node(known, f"huaweicloud:///cn-north-4/{name.upper()}"),
        "server": node(known, known.server),
        "address": node(known, ""),
        "hostname": Node("n", {"kubernetes.io/hostname": known.ip}, {}),
        "name": node(known, "", known.name),
    }[how]
    found = machine(cce, name, joined)
    assert (found.node, found.handle, found.state) == (joined.name, name, RUNNING)
    assert found.id == (joined.provider_id or name)


def test_CCE_20_most_reliable_match_takes_precedence() -> None:
    cce = EmulatedCce(2, 0)
    first, second = cce.node(uid(1)), cce.node(uid(2))
    swapped = [node(first, first.uid, second.ip), node(second, second.uid, first.ip)]
    assert machine(cce, first.uid, *swapped).node == second.ip
    assert machine(cce, second.uid, *swapped).node == first.ip


def test_huawei_two_nodes_never_match_one_machine() -> None:
    cce = EmulatedCce(1)
    known = cce.node(uid(1))
    assert machine(cce, uid(1), node(known, "", known.name), node(known)).node == known.ip


def test_CCE_20_label_of_a_pool_that_a_node_has_left_is_ignored() -> None:
    cce = EmulatedCce(0)
    lonely = cce.cloud.add_lonely(CLUSTER)
    stale = node(lonely, **{"cce.cloud.com/cce-nodepool": "pool-a"})
    assert cce.groups(nodes=[stale])[A].instances == ()


def test_huawei_machine_belongs_to_the_group_of_its_flavour_and_zone_or_default() -> None:
    cce = EmulatedCce(1, 1)
    [odd] = cce.cloud.add_nodes(POOL, 1)
    cce.node(odd).flavor = "s6.large.2"
    groups = cce.groups(nodes=())
    assert {each.handle for each in groups[A].instances} == {uid(1), odd}
    assert {each.handle for each in groups[B].instances} == {uid(2)}


def test_huawei_zone_chosen_by_the_vendor_matches_any_zone() -> None:
    cce = EmulatedCce(0, flavor="m7.xlarge.8", az="random")
    cce.cloud.add_group(POOL, "any", size=1, az="random")
    cce.node(uid(1)).az = AZ2
    assert [each.handle for each in cce.groups()[f"{POOL}/any"].instances] == [uid(1)]


@each_row(
    ("phase", "alone", "joined"),
    [
        ("Build", CREATING, RUNNING),
        ("Installing", CREATING, RUNNING),
        ("Active", RUNNING, RUNNING),
        ("Upgrading", RUNNING, RUNNING),
        ("Abnormal", RUNNING, RUNNING),
        ("Repairing", RUNNING, RUNNING),
        ("RepairFailed", RUNNING, RUNNING),
        ("Deleting", DELETING, DELETING),
        ("Error", CREATING, RUNNING),
        ("", CREATING, RUNNING),
        ("Enchanted", CREATING, RUNNING),
    ],
)
def test_CCE_20_node_states(phase: str, alone: InstanceState, joined: InstanceState) -> None:
    cce = EmulatedCce(1)
    cce.node(uid(1)).phase = phase
    assert machine(cce, uid(1)).state is alone
    assert machine(cce, uid(1), node(cce.node(uid(1)))).state is joined


def test_CCE_A9_2_failed_installation_counts_only_while_there_is_no_node() -> None:
    cce = EmulatedCce(1)
    cce.node(uid(1)).phase = "Error"
    error = machine(cce, uid(1)).error
    assert error is not None
    assert error.cls == "InstallFailed"
    assert machine(cce, uid(1), node(cce.node(uid(1)))).error is None


def short(why: dict[str, str], count: int = 2) -> EmulatedCce:
    """A pool whose first group of three has that condition, and lacks so many nodes."""
    cce = EmulatedCce(3, 2)
    cce.status(A, conditions=[why])
    cce.group(A).desired += count
    return cce


@each_row(
    ("why", "error_class"),
    [
        (SOLD_OUT, "OutOfStock"),
        (NO_QUOTA, "QuotaExceeded"),
        (true("UnexpectedError"), "InstallFailed"),
        (true("LockedByOrder", "order-1"), "Unknown"),
    ],
)
def test_CCE_20_missing_nodes_are_placeholders_with_their_error_class(
    why: dict[str, str], error_class: str
) -> None:
    cce = short(why)
    assert [each.id for each in missing(cce)] == [f"{A}/placeholder-0", f"{A}/placeholder-1"]
    assert all(each.handle == each.id and each.state is CREATING for each in missing(cce))
    assert {each.error.cls for each in missing(cce) if each.error} == {error_class}
    assert len(cce.groups()[A].instances) == 5


@each_row(
    "why",
    [
        true("TaintSynchronizing"),
        {"type": "ResourceInsufficient", "status": "False"},
        true("Scalable"),
    ],
)
def test_huawei_nodes_that_may_still_come_have_no_placeholders(why: dict[str, str]) -> None:
    assert len(short(why).groups()[A].instances) == 3


def test_huawei_nodes_in_creation_are_not_missing() -> None:
    cce = short(SOLD_OUT)
    cce.cloud.add_nodes(POOL, 1, phase="Installing")
    assert [each.id for each in missing(cce)] == [f"{A}/placeholder-0"]
    cce.cloud.add_nodes(POOL, 1, phase="Build")
    assert not missing(cce)


def test_huawei_implausible_size_creates_a_bounded_number_of_placeholders() -> None:
    assert len(short(SOLD_OUT, 10**6).groups()[A].instances) == 3 + MOST_PLACEHOLDERS


@each_row(
    ("said", "error_class"),
    [
        ({"conditions": [NO_QUOTA]}, "QuotaExceeded"),
        ({"conditions": [], "phase": "SoldOut"}, "OutOfStock"),
    ],
)
def test_huawei_pool_conditions_apply_to_its_only_group(
    said: dict[str, object], error_class: str
) -> None:
    cce = EmulatedCce(2)
    cce.group(A).desired = 3
    cce.status(A, conditions=[])
    cce.answers[POOL] |= {f"status.{name}": value for name, value in said.items()}
    assert [each.error.cls for each in missing(cce) if each.error] == [error_class]


def test_CCE_A8_3_only_the_known_protected_node_is_blocked() -> None:
    cce = EmulatedCce(3, 0)
    cce.node(uid(1)).protected = True
    cce.answers[uid(1)] = {"metadata.annotations": {"node.cce.io/scale-down-disabled": "true"}}
    held = {each.handle: bool(each.held) for each in cce.groups()[A].instances}
    assert held == {uid(1): True, uid(2): False, uid(3): False}
    assert "protected" not in cce.warnings()


def test_CCE_A8_3_unknown_protected_nodes_block_every_removal() -> None:
    cce = EmulatedCce(3, 0)
    cce.node(uid(2)).protected = True
    assert all("annotate" in each.held for each in cce.groups()[A].instances)
    assert "does not say which" in cce.warnings()
    first, second, third = cce.nodes()
    mark = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    marked = [first, msgspec.structs.replace(second, annotations=mark), third]
    assert not any(each.held for each in cce.groups(nodes=marked)[A].instances)


def test_huawei_unjoined_machines_are_not_blocked_and_prepaid_ones_always_are() -> None:
    cce = EmulatedCce(2, 0)
    cce.node(uid(1)).protected = True
    assert not any(each.held for each in cce.groups(nodes=())[A].instances)
    cce.node(uid(1)).billing = 1
    assert "prepaid" in machine(cce, uid(1)).held
