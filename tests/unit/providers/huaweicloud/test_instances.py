"""Nodes, their states, and placeholders for missing nodes."""

from __future__ import annotations

from chalicelib.model.group import Instance, InstanceState
from chalicelib.model.node import Node
from chalicelib.providers.huaweicloud.models import CceCondition, NodeTemplate
from chalicelib.providers.huaweicloud.node_groups import MOST_PLACEHOLDERS
from tests.cases import each_row
from tests.unit.providers.huaweicloud.fake_api import (
    AZ2,
    FLAVOR,
    NO_QUOTA,
    POOL,
    SOLD_OUT,
    A,
    B,
    Cce,
    FakeApiGroup,
    FakeCceApi,
    node,
    seen,
    true,
    two,
    uid,
    warnings,
)

CREATING, RUNNING, DELETING = InstanceState.CREATING, InstanceState.RUNNING, InstanceState.DELETING


def machine(api: FakeCceApi, name: str, *nodes: Node) -> Instance:
    """Returns one machine as the core sees it."""
    return {each.handle: each for each in seen(api, nodes=nodes)[A].instances}[name]


def one() -> tuple[FakeCceApi, str]:
    api = FakeCceApi(Cce([FakeApiGroup(desired=1)]))
    return api, uid(1)


@each_row("how", ["uid", "scheme", "path", "server", "address", "hostname", "name"])
def test_CCE_20_node_is_matched_by_uid_server_address_or_name(how: str) -> None:
    api, name = one()
    known = api.machines[name]
    joined = {
        "uid": node(known),
        "scheme": node(known, f"huaweicloud://{name}"),
        "path": node(known, f"huaweicloud:///cn-north-4/{name.upper()}"),
        "server": node(known, known.server),
        "address": node(known, ""),
        "hostname": Node("n", {"kubernetes.io/hostname": known.private_ip}, {}),
        "name": node(known, "", known.name),
    }[how]
    found = machine(api, name, joined)
    assert (found.node, found.handle, found.state) == (joined.name, name, RUNNING)
    assert found.id == (joined.provider_id or name)


def test_CCE_20_most_reliable_match_takes_precedence() -> None:
    api = FakeCceApi(two(2, 0))
    first, second = (api.machines[name] for name in api.of(POOL))
    swapped = [node(first, first.id, second.private_ip), node(second, second.id, first.private_ip)]
    assert machine(api, first.id, *swapped).node == second.private_ip
    assert machine(api, second.id, *swapped).node == first.private_ip


def test_huawei_two_nodes_never_match_one_machine() -> None:
    api, name = one()
    known = api.machines[name]
    assert machine(api, name, node(known, "", known.name), node(known)).node == known.private_ip


def test_CCE_20_label_of_a_pool_that_a_node_has_left_is_ignored() -> None:
    api, name = one()
    api.change(name, pool="", annotations={"kubernetes.io/node-pool.id": f"cn-north-4a#{FLAVOR}#EulerOS"})
    stale = node(api.machines[name], **{"cce.cloud.com/cce-nodepool": "pool-a"})
    assert seen(api, nodes=[stale])[A].instances == ()


def test_huawei_machine_belongs_to_the_group_of_its_flavour_and_zone_or_default() -> None:
    api = FakeCceApi(two(1, 1))
    odd = api.add(POOL, flavor="s6.large.2")
    groups = seen(api)
    assert {each.handle for each in groups[A].instances} == {uid(1), odd}
    assert {each.handle for each in groups[B].instances} == {uid(2)}


def test_huawei_zone_chosen_by_the_vendor_matches_any_zone() -> None:
    pool = Cce(
        [FakeApiGroup(desired=0, flavor="s6.large.2"), FakeApiGroup("any", "random", 1)],
        template=NodeTemplate("s6.large.2", "random"),
    )
    api = FakeCceApi(pool)
    api.change(uid(1), az=AZ2)
    assert [each.handle for each in seen(api)[f"{POOL}/any"].instances] == [uid(1)]


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
    api, name = one()
    api.change(name, phase=phase)
    assert machine(api, name).state is alone
    assert machine(api, name, node(api.machines[name])).state is joined


def test_CCE_A9_2_failed_installation_counts_only_while_there_is_no_node() -> None:
    api, name = one()
    api.change(name, phase="Error")
    error = machine(api, name).error
    assert error is not None
    assert error.cls == "InstallFailed"
    assert machine(api, name, node(api.machines[name])).error is None


def short(why: CceCondition, missing: int = 2) -> FakeCceApi:
    api = FakeCceApi(two(3, 2))
    api.all[POOL].groups[0].conditions = (why,)
    api.all[POOL].groups[0].desired += missing
    api.all[POOL].desired += missing
    return api


@each_row(
    ("why", "cls"),
    [
        (SOLD_OUT, "OutOfStock"),
        (NO_QUOTA, "QuotaExceeded"),
        (true("UnexpectedError"), "InstallFailed"),
        (true("LockedByOrder", "order-1"), "Unknown"),
    ],
)
def test_CCE_20_missing_nodes_are_placeholders_with_their_error_class(why: CceCondition, cls: str) -> None:
    instances = seen(short(why))[A].instances
    missing = [each for each in instances if each.error is not None]
    assert [each.id for each in missing] == [f"{A}/placeholder-0", f"{A}/placeholder-1"]
    assert all(each.handle == each.id and each.state is CREATING for each in missing)
    assert {each.error.cls for each in missing if each.error} == {cls}
    assert len(instances) == 5


def test_huawei_nodes_that_may_still_come_have_no_placeholders() -> None:
    for why in (
        true("TaintSynchronizing"),
        CceCondition("ResourceInsufficient", "False"),
        CceCondition("Scalable", "True"),
    ):
        assert len(seen(short(why))[A].instances) == 3


def test_huawei_nodes_in_creation_are_not_missing() -> None:
    api = short(SOLD_OUT)
    api.add(POOL, phase="Installing")
    assert [each.id for each in seen(api)[A].instances if each.error] == [f"{A}/placeholder-0"]
    api.add(POOL, phase="Build")
    assert not [each for each in seen(api)[A].instances if each.error]


def test_huawei_implausible_size_creates_a_bounded_number_of_placeholders() -> None:
    assert len(seen(short(SOLD_OUT, 10**6))[A].instances) == 3 + MOST_PLACEHOLDERS


def test_huawei_pool_conditions_apply_to_its_only_group() -> None:
    pool = Cce([FakeApiGroup(desired=2)], conditions=(NO_QUOTA,))
    api = FakeCceApi(pool)
    pool.desired = pool.groups[0].desired = 3
    assert [each.error.cls for each in seen(api)[A].instances if each.error] == ["QuotaExceeded"]
    pool.conditions, pool.phase = (), "SoldOut"
    assert [each.error.cls for each in seen(api)[A].instances if each.error] == ["OutOfStock"]


def test_CCE_A8_3_only_the_known_protected_node_is_blocked() -> None:
    api = FakeCceApi(two(3, 0))
    api.all[POOL].groups[0].held = 1
    api.change(uid(1), annotations={"node.cce.io/scale-down-disabled": "true"})
    held = {each.handle: bool(each.held) for each in seen(api)[A].instances}
    assert held == {uid(1): True, uid(2): False, uid(3): False}
    assert "protected" not in warnings(api)


def test_CCE_A8_3_unknown_protected_nodes_block_every_removal() -> None:
    api = FakeCceApi(two(3, 0))
    api.all[POOL].groups[0].held = 1
    assert all("annotate" in each.held for each in seen(api)[A].instances)
    assert "does not say which" in warnings(api)
    marked = [
        Node(
            each.name,
            each.labels,
            {},
            provider_id=each.provider_id,
            annotations=(
                {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"} if each.provider_id == uid(2) else {}
            ),
        )
        for each in api.nodes_now()
    ]
    assert not any(each.held for each in seen(api, nodes=marked)[A].instances)


def test_huawei_unjoined_machines_are_not_blocked_and_prepaid_ones_always_are() -> None:
    api = FakeCceApi(two(2, 0))
    api.all[POOL].groups[0].held = 1
    assert not any(each.held for each in seen(api, nodes=[])[A].instances)
    api.change(uid(1), billing=1)
    assert "prepaid" in machine(api, uid(1)).held
