"""Groups that Outscaler makes itself at Cherry Servers: servers with a name and a mark, ordered
once whatever is lost, and nothing ordered that the policy does not allow.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from chalicelib.model.group import NodeGroup
from chalicelib.model.managed_group import MachineChoice, ManagedGroup
from chalicelib.model.operation import OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.policy.settings.managed_pools import (
    ManagedPool,
    Market,
    PoolLimits,
    PoolMode,
    Requirements,
)
from chalicelib.providers.cherryservers.provider import CherryServers
from chalicelib.providers.kit.catalogue_shelf import MOST_ENTRIES
from infra.emulators.cherryservers.models import CherryServer
from infra.emulators.vendor_common.fault_injection import VendorFault
from infra.emulators.vendor_common.http_messages import scripted
from tests.providers.cherryservers.emulated import PLAN, EmulatedCloud
from tests.providers.cherryservers.fixture import MemoryCache, order
from tests.providers.managed import (
    DAY,
    OTHER_UID,
    carried_out,
    failed,
    growth,
    observed,
    offered,
    own_group,
    refreshed,
)

GENERAL = ManagedPool("general", "cherryservers")
SPOT = msgspec.structs.replace(
    GENERAL, requirements=Requirements(markets=(Market.ON_DEMAND, Market.SPOT))
)
BIG, SMALL, REGION = "e5_1620v4", "e3_1240v3", "eu_nord_1"


def ready(*pools: ManagedPool, lag: float = 0.0) -> EmulatedCloud:
    """A project without servers, and the catalogue read."""
    cloud = EmulatedCloud(pools=pools or (GENERAL,), lag=lag)
    refreshed(cloud)
    return cloud


def servers(cloud: EmulatedCloud, group: str) -> list[CherryServer]:
    """The servers of a group that stay."""
    return [cloud.all[number] for number in cloud.alive(group)]


def created(cloud: EmulatedCloud, to_size: int = 2, plan: str = BIG, **choice: str) -> NodeGroup:
    """Opens a group and lets its servers join."""
    group = offered(cloud, plan, **choice)
    assert isinstance(carried_out(cloud, growth(cloud, group, to_size)), Succeeded)
    cloud.settle()
    return group


def changes_of(cloud: EmulatedCloud, run: Callable[[], object]) -> list[str]:
    """The changes that were asked for while something ran."""
    before = len(cloud.changes())
    run()
    return cloud.changes()[before:]


def declared(cloud: EmulatedCloud, **changes: Any) -> None:
    """Changes the first declaration."""
    first, *others = cloud.managed_pools
    cloud.managed_pools = (msgspec.structs.replace(first, **changes), *others)


def choice_of(group: NodeGroup) -> MachineChoice:
    assert group.managed is not None
    return group.managed.choice


# -- opening


def test_servers_of_a_declaration_that_is_off_stay_and_none_is_ordered() -> None:
    cloud = ready()
    group = created(cloud)
    declared(cloud, mode=PoolMode.OFF)
    own = own_group(cloud, group.id)
    assert own.managed is not None
    assert (own.managed.retiring, own.max, own.target) == ("", 2, 2)
    assert observed(cloud).candidates == ()
    forged = growth(cloud, group, 3, 2)
    assert failed(carried_out(cloud, forged)) == ("InvalidRequest", "NotInPolicy")
    assert len(cloud.posts()) == 2


def test_ordered_servers_are_as_the_definition_says_but_for_plan_region_and_marks() -> None:
    cloud = ready(SPOT)
    group = offered(cloud, SMALL, market="spot")
    outcome = carried_out(cloud, growth(cloud, group, 2))
    assert isinstance(outcome, Succeeded)
    made = servers(cloud, group.id)
    assert len(made) == 2
    mark = ManagedGroup(cloud.uid, choice_of(group)).mark
    for server in made:
        assert server.tags["outscaler-managed"] == mark
        assert (server.tags["k8s-cluster"], server.tags["k8s-nodepool"]) == ("ours", group.id)
        assert (server.order.plan, server.order.region, server.order.spot) == (SMALL, REGION, True)
        assert server.order.image == cloud.default["os"]
        script = base64.b64decode(server.order.user_data).decode()
        assert f"pool={group.id}" in script
        assert group.id in server.hostname
    assert len({server.hostname for server in made}) == 2
    seen = own_group(cloud, group.id)
    assert seen.managed is not None
    assert (seen.managed.exists, seen.managed.retiring) == (True, "")
    assert (seen.target, seen.min, seen.max, seen.spot) == (2, 0, 100, True)
    assert seen.price == group.price == 0.0812


def test_group_copies_the_definition_that_its_declaration_names() -> None:
    cloud = EmulatedCloud(pools=(msgspec.structs.replace(GENERAL, copy_from="workers"),))
    cloud.pools["workers"] = {"os": "debian_12_64bit", "region": "eu_west_1"}
    refreshed(cloud)
    group = created(cloud, 1)
    assert choice_of(group).zone == "eu_west_1"
    assert [server.order.image for server in servers(cloud, group.id)] == ["debian_12_64bit"]


def test_servers_are_found_although_the_copied_definition_names_another_cluster() -> None:
    cloud = EmulatedCloud(pools=(msgspec.structs.replace(GENERAL, copy_from="workers"),))
    cloud.pools["workers"] = {"cluster-name": "elsewhere"}
    refreshed(cloud)
    group = created(cloud, 2)
    assert own_group(cloud, group.id).target == 2


@pytest.mark.parametrize("copy_from", ["nothing", "broken", "long"])
def test_definition_that_cannot_be_copied_is_a_problem_of_its_declaration(copy_from: str) -> None:
    broken = msgspec.structs.replace(GENERAL, copy_from=copy_from)
    cloud = EmulatedCloud(pools=(broken, ManagedPool("other", "cherryservers")))
    cloud.pools["broken"] = {"cloudinit": "%"}
    cloud.pools["long"] = {
        "hostname-pattern": "k8s-{{.NodeGroup}}-of-a-pattern-too-long-{{.RandString8}}"
    }
    refreshed(cloud)
    seen = observed(cloud)
    problems = {selection.declaration: selection.problem for selection in seen.selections}
    assert problems["general"]
    assert problems["other"] == ""
    assert {choice_of(group).declaration for group in seen.candidates} == {"other"}


def test_nodes_of_an_opened_group_are_as_its_candidate_promised() -> None:
    cloud = ready()
    candidate = created(cloud, 1)
    seen = own_group(cloud, candidate.id)
    assert candidate.template is not None
    assert seen.template is not None
    assert seen.template.allocatable == candidate.template.allocatable
    assert seen.template.labels == candidate.template.labels


@pytest.mark.parametrize("lost", [1, 2])
def test_pool_32_lost_answers_of_orders_make_as_many_servers_as_planned(lost: int) -> None:
    cloud = ready()
    group = offered(cloud, BIG)
    cloud.server.faults.next(VendorFault.LOST_ANSWER, on="create_server", times=lost)
    assert isinstance(carried_out(cloud, growth(cloud, group, 3)), Succeeded)
    assert len(servers(cloud, group.id)) == 3
    assert len(cloud.posts()) == 3


def test_pool_33_servers_that_are_listed_after_30_seconds_are_not_ordered_again() -> None:
    cloud = ready(lag=30.0)
    group = offered(cloud, BIG)
    cloud.server.faults.next(VendorFault.LOST_ANSWER, on="create_server")
    assert isinstance(carried_out(cloud, growth(cloud, group, 2)), Succeeded)
    assert len(servers(cloud, group.id)) == 2
    assert len(cloud.posts()) == 2


def test_pool_33_server_that_is_listed_after_90_seconds_is_one_too_many_for_a_while() -> None:
    cloud = ready(lag=90.0)
    group = offered(cloud, BIG)
    cloud.server.faults.next(VendorFault.LOST_ANSWER, on="create_server")
    assert isinstance(carried_out(cloud, growth(cloud, group, 2)), Succeeded)
    assert len(cloud.posts()) <= 3
    assert 2 <= len(servers(cloud, group.id)) <= 3


# -- interruptions


def _orders_once(seed: int) -> None:
    """Opens a group while answers and steps are lost, and the vendor is late or sold out."""
    draw = random.Random(seed)
    lag = draw.choice((0.0, 0.0, 30.0, 90.0))
    cloud = ready(SPOT, lag=lag)
    market = draw.choice(("on-demand", "spot"))
    group = offered(cloud, draw.choice((SMALL, BIG)), market=market)
    choice, to_size, lost = choice_of(group), draw.randint(1, 6), 0
    for _ in range(draw.randint(0, 2)):
        fault = draw.choice(
            (VendorFault.LOST_ANSWER, VendorFault.SERVER_ERROR, VendorFault.THROTTLED)
        )
        target = draw.choice(("create_server", "create_server", "read"))
        lost += fault is VendorFault.LOST_ANSWER
        cloud.server.faults.next(fault, on=target)
    stock = draw.choice((500, 500, 500, 2, 0))
    for offers in (cloud.cloud.stock, cloud.cloud.spot_stock):
        offers[choice.instance_type, choice.zone] = stock
    odds, killed_at = draw.choice((0.0, 0.2, 0.5)), draw.randint(0, 12)
    outcome = carried_out(
        cloud,
        growth(cloud, group, to_size),
        forgets=lambda number: number == killed_at or draw.random() < odds,
    )
    made = len(servers(cloud, group.id))
    cloud.settle()
    may_double = lag > 60.0 and bool(lost or odds or killed_at < 12)
    assert made <= to_size + (to_size if may_double else 0), (outcome, made)
    assert made <= stock
    if stock < to_size or (may_double and stock == made and isinstance(outcome, Failed)):
        assert isinstance(outcome, Failed), outcome
        assert outcome.error_class == "OutOfStock"
        return
    assert isinstance(outcome, Succeeded), outcome
    assert made >= to_size, outcome
    seen = own_group(cloud, group.id)
    assert seen.managed is not None
    assert (seen.managed.retiring, seen.managed.choice) == ("", choice)
    assert seen.target == made
    assert group.id not in {other.id for other in observed(cloud).candidates}


@pytest.mark.parametrize("moment", range(3))
def test_pool_40_second_order_is_refused_by_the_look_before_it(moment: int) -> None:
    cloud = ready()
    group = offered(cloud, BIG)
    second = growth(cloud, group, 2, id="grow-of-another-pass", plan="another")
    outcomes = []

    def meanwhile(number: int) -> None:
        if number == moment:
            outcomes.append(carried_out(cloud, second))

    outcomes.append(carried_out(cloud, growth(cloud, group, 2), before=meanwhile))
    assert len(outcomes) == 2
    assert any(isinstance(outcome, Succeeded) for outcome in outcomes)
    assert len(cloud.posts()) == len(servers(cloud, group.id)) == 2


@pytest.mark.parametrize("seed", range(10))
def test_pool_34_killed_after_any_step_the_group_has_the_planned_servers(seed: int) -> None:
    _orders_once(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 210))
def test_pool_34_killed_after_any_step_the_group_has_the_planned_servers_often(seed: int) -> None:
    _orders_once(seed)


@pytest.mark.parametrize("killed", range(6))
def test_pool_34_each_step_that_is_repeated_three_times_orders_nothing_more(killed: int) -> None:
    cloud = ready()
    group = offered(cloud, BIG)
    outcome = carried_out(
        cloud,
        growth(cloud, group, 3),
        forgets=lambda number: killed <= number < killed + 2,
    )
    assert isinstance(outcome, Succeeded)
    assert len(servers(cloud, group.id)) == 3
    assert len(cloud.posts()) == 3


@pytest.mark.parametrize("moment", range(1, 5))
def test_pool_42_servers_that_a_person_deletes_end_the_growth(moment: int) -> None:
    cloud = ready()
    group = offered(cloud, BIG)

    def delete(number: int) -> None:
        for server in servers(cloud, group.id) if number == moment else ():
            cloud.cloud.terminate(server)

    outcome = carried_out(cloud, growth(cloud, group, 3), before=delete)
    assert isinstance(outcome, Succeeded | Failed)
    cloud.settle()
    assert len(servers(cloud, group.id)) <= 3
    assert len(cloud.posts()) <= 3


# -- names and marks


def _foreign(cloud: EmulatedCloud, group: NodeGroup, mark: str) -> CherryServer:
    tags = {"k8s-cluster": "ours", "k8s-nodepool": group.id}
    if mark:
        tags["outscaler-managed"] = mark
    return cloud.cloud.add_server(plan=BIG, tags=tags)


@pytest.mark.parametrize("mark", ["", "c5f524e3e9.general.0000000000", "none"])
def test_pool_37_name_without_our_mark_is_left_alone(mark: str) -> None:
    cloud = ready()
    group = offered(cloud, BIG)
    server = _foreign(cloud, group, mark)
    seen = observed(cloud)
    assert [choice_of(other).instance_type for other in seen.candidates] == [SMALL]
    assert seen.groups == ()
    assert any("left alone" in gap.detail and group.id in gap.name for gap in seen.gaps)
    forged = growth(cloud, group, 2)
    again = growth(cloud, group, 2, 1)
    for operation in (forged, again):
        assert failed(carried_out(cloud, operation)) == ("InvalidRequest", "NameTaken")
    assert cloud.changes() == []
    assert not server.leaving


def test_pool_38_mark_of_another_cluster_is_never_ours() -> None:
    cloud = ready()
    group = created(cloud, 2)
    cloud.uid = OTHER_UID
    seen = observed(cloud)
    assert seen.groups == ()
    assert group.id not in {candidate.id for candidate in seen.candidates}
    forged = growth(cloud, group, 3, 2)
    asked = changes_of(cloud, lambda: failed(carried_out(cloud, forged)))
    assert asked == []


@pytest.mark.parametrize(
    "kind",
    [OperationKind.DELETE_NODES, OperationKind.DELETE_INSTANCES, OperationKind.RESTART_NODE],
)
def test_pool_38_servers_of_another_cluster_are_not_touched(kind: OperationKind) -> None:
    cloud = ready()
    group = created(cloud, 2)
    target = own_group(cloud, group.id).instances[0]
    cloud.uid = OTHER_UID
    removal = order(
        cloud,
        kind,
        group.id,
        2,
        1,
        RemovalTarget(target.node, target.id, target.handle),
    )
    asked = changes_of(cloud, lambda: _is_refused(failed(carried_out(cloud, removal)), "NameTaken"))
    assert asked == []


def test_pool_39_groups_are_recognised_without_tables() -> None:
    cloud = ready(SPOT)
    groups = [
        created(cloud, 1, BIG, market="on-demand"),
        created(cloud, 2, SMALL, market="spot"),
        created(cloud, 3, SMALL, market="on-demand"),
    ]
    cloud.shared_cache = MemoryCache(cloud.clock)
    empty = observed(cloud)
    assert empty.candidates == ()
    refreshed(cloud)
    full = observed(cloud)
    assert len(groups) == 3
    for seen in (empty, full):
        own = {group.id: group for group in seen.groups}
        for size, group in enumerate(groups, start=1):
            managed = own[group.id].managed
            assert managed is not None
            assert (managed.exists, managed.retiring) == (True, "")
            assert managed.choice == choice_of(group)
            assert (own[group.id].target, own[group.id].spot) == (size, group.spot)
            assert own[group.id].price == group.price
    assert [choice_of(group) for group in full.candidates] == [
        MachineChoice("general", BIG, REGION, "spot")
    ]


def test_server_that_lost_its_mark_does_not_hide_the_others_of_its_group() -> None:
    cloud = ready()
    group = created(cloud, 3)
    first = servers(cloud, group.id)[0]
    first.tags = {key: text for key, text in first.tags.items() if key != "outscaler-managed"}
    seen = own_group(cloud, group.id)
    assert seen.managed is not None
    assert seen.managed.choice == choice_of(group)
    assert seen.target == 3


# -- refusals


def test_pool_48_quota_of_servers_fails_the_growth() -> None:
    cloud = ready()
    group = offered(cloud, BIG)
    cloud.cloud.credit = 1
    outcome = carried_out(cloud, growth(cloud, group, 3))
    assert isinstance(outcome, Failed)
    assert outcome.facts["created"] == 1
    assert own_group(cloud, group.id).target == 1


def test_pool_49_stock_that_is_gone_since_the_catalogue_fails_the_growth() -> None:
    cloud = ready()
    group = offered(cloud, BIG)
    cloud.cloud.sell_out(BIG)
    assert failed(carried_out(cloud, growth(cloud, group, 2)))[0] == "OutOfStock"
    assert servers(cloud, group.id) == []
    assert cloud.posts() == []


def test_group_that_is_sold_out_stays_and_does_not_grow() -> None:
    cloud = ready()
    group = created(cloud, 2)
    cloud.cloud.sell_out(BIG)
    cloud.settle(2 * 3600.0)
    refreshed(cloud)
    seen = own_group(cloud, group.id)
    assert seen.managed is not None
    assert (seen.managed.retiring, seen.max) == ("", 2)
    assert {instance.outdated for instance in seen.instances} == {""}
    outcome = carried_out(cloud, growth(cloud, group, 3, 2))
    assert failed(outcome) == ("OutOfStock", "Catalogue")


def test_stock_that_ends_during_a_growth_keeps_what_was_bought() -> None:
    cloud = ready()
    group = offered(cloud, BIG)

    def sold_out(number: int) -> None:
        if number == 2:
            cloud.cloud.sell_out(BIG)
            cloud.settle(2 * 3600.0)
            refreshed(cloud)

    outcome = carried_out(cloud, growth(cloud, group, 30), before=sold_out)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "OutOfStock"
    assert outcome.facts["created"] == len(servers(cloud, group.id)) == 20
    assert own_group(cloud, group.id).target == 20


def test_maximum_is_what_stock_and_limit_leave() -> None:
    limited = msgspec.structs.replace(GENERAL, limits=PoolLimits(nodes=5))
    cloud = ready(limited)
    group = created(cloud, 2)
    assert own_group(cloud, group.id).max == 5
    cloud.cloud.stock[BIG, REGION] = 1
    cloud.settle(2 * 3600.0)
    refreshed(cloud)
    assert own_group(cloud, group.id).max == 3


def test_pool_51_token_without_the_right_to_order_changes_nothing_else() -> None:
    cloud = ready()
    cloud.bind("pool3", 0, 5)
    cloud.add(1)
    group = offered(cloud, BIG)
    before = observed(cloud)
    cloud.server.add_token(cloud.token, writes=False)
    assert failed(carried_out(cloud, growth(cloud, group, 2)))[0] == "Unauthorized"
    after = observed(cloud)
    assert (after.candidates, after.selections) == (before.candidates, before.selections)
    assert [group.id for group in after.groups] == ["pool3"]
    assert after.groups[0].instances == before.groups[0].instances
    assert after.groups[0].error == ""


# -- the declaration and the catalogue change


def test_pool_53_family_that_is_no_longer_allowed_retires_its_groups() -> None:
    cloud = ready()
    group = created(cloud, 2)
    declared(cloud, requirements=Requirements(families=("vps",)))
    seen = own_group(cloud, group.id)
    assert seen.managed is not None
    assert seen.managed.retiring == "its declaration no longer allows its machines: families"
    assert (seen.target, seen.max) == (2, 2)
    assert [instance.outdated for instance in seen.instances] == [seen.managed.retiring] * 2
    assert seen.template is not None
    forged = growth(cloud, group, 3, 2)
    asked = changes_of(cloud, lambda: _is_refused(failed(carried_out(cloud, forged))))
    assert asked == []


def _is_refused(failure: tuple[str, str], code: str = "NotInPolicy") -> None:
    assert failure == ("InvalidRequest", code)


def test_pool_53_market_that_is_no_longer_allowed_retires_its_groups() -> None:
    cloud = ready(SPOT)
    group = created(cloud, 1, SMALL, market="spot")
    declared(cloud, requirements=Requirements())
    seen = own_group(cloud, group.id)
    assert seen.managed is not None
    assert seen.managed.retiring.endswith("markets")


def test_pool_53_price_that_changes_retires_nothing() -> None:
    cloud = ready()
    group = created(cloud, 2)
    plans = cloud.cloud.plans
    plans |= {slug: msgspec.structs.replace(plan, hourly=9.0) for slug, plan in plans.items()}
    cloud.settle(2 * 3600.0)
    refreshed(cloud)
    seen = own_group(cloud, group.id)
    assert seen.managed is not None
    assert (seen.managed.retiring, seen.price, seen.max) == ("", 9.0, 100)
    assert {instance.outdated for instance in seen.instances} == {""}


@pytest.mark.parametrize("days", [8, 70])
def test_pool_57_old_catalogue_opens_nothing_and_groups_grow(days: int) -> None:
    cloud = ready()
    group, never_opened = created(cloud, 2), offered(cloud, SMALL)
    cloud.settle(days * DAY)
    seen = observed(cloud)
    assert seen.candidates == ()
    problem = "the catalogue is 8 days old" if days == 8 else "no catalogue has been read yet"
    assert [selection.problem for selection in seen.selections] == [problem]
    own = own_group(cloud, group.id)
    assert own.managed is not None
    assert (own.managed.retiring, own.target, own.max) == ("", 2, 100)
    asked = changes_of(
        cloud, lambda: _is_refused(failed(carried_out(cloud, growth(cloud, never_opened, 1))))
    )
    assert asked == []
    assert isinstance(carried_out(cloud, growth(cloud, group, 4, 2)), Succeeded)
    made = servers(cloud, group.id)
    assert len(made) == 4
    assert len({server.tags["outscaler-managed"] for server in made}) == 1
    _is_refused(failed(carried_out(cloud, growth(cloud, group, 101, 4))))


def test_pool_57_list_of_plans_that_fails_leaves_what_was_read() -> None:
    cloud = ready()
    group = created(cloud, 1)
    cloud.server.faults.next(VendorFault.SERVER_ERROR, on="list_plans", times=-1)
    cloud.settle(2 * 3600.0)
    with pytest.raises(Exception, match="500"):
        refreshed(cloud)
    assert len(observed(cloud).candidates) == 1
    assert own_group(cloud, group.id).max == 100


def test_pool_62_user_data_and_image_change_no_name_and_no_node() -> None:
    cloud = ready()
    group = created(cloud, 2)
    names = {candidate.id for candidate in observed(cloud).candidates}
    for hour in range(7 * 24):
        cloud.settle(3600.0)
        script = f"#!/bin/sh\necho {hour} --node-labels=pool={{{{.NodeGroup}}}}"
        cloud.default["cloudinit"] = base64.b64encode(script.encode()).decode()
        cloud.default["os"] = ("debian_12_64bit", "ubuntu_22_04_64bit")[hour % 2]
        if hour % 24:
            continue
        refreshed(cloud)
        seen = own_group(cloud, group.id)
        assert seen.managed is not None
        assert seen.managed.retiring == ""
        assert [instance.outdated for instance in seen.instances] == ["", ""]
        assert {candidate.id for candidate in observed(cloud).candidates} == names
    assert isinstance(carried_out(cloud, growth(cloud, group, 3, 2)), Succeeded)
    newest = servers(cloud, group.id)[2]
    assert newest.order.image == cloud.default["os"]
    assert newest.tags["outscaler-managed"] == ManagedGroup(cloud.uid, choice_of(group)).mark


def test_declaration_that_is_gone_retires_its_groups() -> None:
    cloud = ready(GENERAL, ManagedPool("other", "cherryservers"))
    group = created(cloud, 2, declaration="general")
    cloud.managed_pools = cloud.managed_pools[1:]
    seen = own_group(cloud, group.id)
    assert seen.managed is not None
    assert seen.managed.retiring == "its declaration is gone"
    assert (seen.target, seen.max) == (2, 2)


def test_other_disk_in_the_definition_is_another_group() -> None:
    cloud = ready()
    group = created(cloud, 2)
    cloud.default["os-partition-size"] = "60"
    seen = own_group(cloud, group.id)
    assert seen.managed is not None
    assert "says something else" in seen.managed.retiring
    assert offered(cloud, BIG).id != group.id


# -- forged operations


FORGED: dict[str, dict[str, Any]] = {
    "name": {"group": "osc-c5f524-general-0123456789"},
    "type": {"instance_type": "2x_gold_6230r"},
    "zone": {"zone": "eu_west_1"},
    "market": {"market": "spot"},
    "declaration": {"declaration": "other"},
}


@pytest.mark.parametrize("changes", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("announced", [False, True])
def test_pool_63_forged_choice_orders_nothing(changes: dict[str, Any], announced: bool) -> None:
    cloud = ready(GENERAL, ManagedPool("other", "cherryservers"))
    group = offered(cloud, BIG, declaration="general")
    changes = dict(changes)
    name = changes.pop("group", group.id)
    choice = msgspec.structs.replace(choice_of(group), **changes)
    forged = growth(cloud, group, 1, group=name, choice=choice)
    if announced:
        forged = _announced(forged, 1)
    _is_refused(failed(carried_out(cloud, forged)))
    assert cloud.changes() == []


def _announced(operation: Any, count: int) -> Any:
    """The operation as if its first step had been carried out and recorded."""
    progress = msgspec.json.encode({"lot": list(range(count)), "attempt": 0}).decode()
    return operation.with_status(step="create", data={"growth": progress})


@pytest.mark.parametrize("announced", [False, True])
def test_pool_63_choice_that_is_missing_orders_nothing(announced: bool) -> None:
    cloud = ready()
    forged = growth(cloud, offered(cloud, BIG), 1, choice=None)
    if announced:
        forged = _announced(forged, 1)
    assert failed(carried_out(cloud, forged))[0] in ("InvalidRequest", "Conflict")
    assert cloud.changes() == []


@pytest.mark.parametrize("announced", [False, True])
def test_pool_63_limits_count_all_groups_of_the_declaration(announced: bool) -> None:
    cloud = ready(msgspec.structs.replace(GENERAL, limits=PoolLimits(nodes=5)))
    created(cloud, 3)
    group = offered(cloud, SMALL)
    forged = growth(cloud, group, 3)
    if announced:
        forged = _announced(forged, 3)
    asked = changes_of(cloud, lambda: _is_refused(failed(carried_out(cloud, forged))))
    assert asked == []
    assert isinstance(carried_out(cloud, growth(cloud, group, 2)), Succeeded)


@pytest.mark.parametrize("announced", [False, True])
def test_pool_63_costs_count_all_groups_of_the_declaration(announced: bool) -> None:
    # 0.1726 and 0.1016
    cloud = ready(msgspec.structs.replace(GENERAL, limits=PoolLimits(cost_per_hour=0.5)))
    created(cloud, 2)
    group = offered(cloud, SMALL)
    forged = growth(cloud, group, 2)
    if announced:
        forged = _announced(forged, 2)
    asked = changes_of(cloud, lambda: _is_refused(failed(carried_out(cloud, forged))))
    assert asked == []
    assert isinstance(carried_out(cloud, growth(cloud, group, 1)), Succeeded)


def test_pool_63_names_that_policy_and_vendor_do_not_have_order_nothing() -> None:
    cloud = ready()
    group = offered(cloud, BIG)
    names = ("osc-", "osc-../../x", "osc-" + "x" * 5000, "default", "pool3", "")
    outcomes = [carried_out(cloud, growth(cloud, group, 1, group=name)) for name in names]
    assert len(outcomes) == 6
    assert all(isinstance(outcome, Failed) for outcome in outcomes)
    assert cloud.changes() == []


# -- hostile input


def _plan(slug: object, **fields: Any) -> dict[str, Any]:
    regions = [{"id": 2, "slug": REGION, "name": "EU", "stock_qty": 4, "spot_qty": 1}]
    return {**PLAN, "slug": slug, "available_regions": regions} | fields


def sell(cloud: EmulatedCloud, *rows: dict[str, Any]) -> None:
    """Reads a catalogue of these plans."""
    total = {"X-Total-Count": str(len(rows))}
    cloud.server.reply("GET /v1/plans", scripted(200, list(rows), total))
    refreshed(cloud)


def _specs(cores: object = 4, memory: object = 16) -> dict[str, Any]:
    specs = cast(dict[str, Any], PLAN["specs"])
    return {
        **specs,
        "cpus": {**specs["cpus"], "cores": cores},
        "memory": {**specs["memory"], "total": memory},
    }


def _priced(price: object) -> dict[str, Any]:
    rows = [{"id": 1, "unit": "Hourly", "price": price, "currency": "EUR", "taxed": False}]
    return {"pricing": rows}


ABSURD: dict[str, dict[str, Any]] = {
    "no cores": {"specs": _specs(cores=0)},
    "negative cores": {"specs": _specs(cores=-4)},
    "very many cores": {"specs": _specs(cores=10**9)},
    "negative memory": {"specs": _specs(memory=-16)},
    "very much memory": {"specs": _specs(memory=1e15)},
    "negative price": _priced(-1.0),
    "absurd price": _priced(1e300),
    "line break": {"slug": "a\nb"},
    "not ASCII": {"slug": "größe"},
    "blank": {"slug": "a b"},
    "path": {"slug": "../../servers"},
    "template": {"slug": "{{.Secret}}"},
    "long": {"slug": "x" * 500},
}


@pytest.mark.parametrize("fields", ABSURD.values(), ids=ABSURD)
def test_absurd_plan_is_left_out_and_hides_no_other(fields: dict[str, Any]) -> None:
    cloud = EmulatedCloud(pools=(GENERAL,))
    rows = [_plan("good"), _plan("bad", id=7) | fields]
    sell(cloud, *rows)
    assert [choice_of(group).instance_type for group in observed(cloud).candidates] == ["good"]


def test_region_of_a_strange_name_is_left_out() -> None:
    cloud = EmulatedCloud(pools=(GENERAL,))
    strange = [{"id": 2, "slug": "eu\nnord", "name": "EU", "stock_qty": 4, "spot_qty": 1}]
    rows = [_plan("good"), _plan("bad", id=7, available_regions=strange)]
    sell(cloud, *rows)
    assert [choice_of(group).instance_type for group in observed(cloud).candidates] == ["good"]


def test_ten_thousand_plans_are_bounded() -> None:
    cloud = EmulatedCloud(pools=(GENERAL,))
    rows = [_plan(f"plan{number}", id=number) for number in range(MOST_ENTRIES + 500)]
    sell(cloud, *rows)
    seen = observed(cloud)
    assert seen.selections[0].offered == MOST_ENTRIES
    assert len(seen.candidates) == MOST_ENTRIES


def test_stock_beyond_all_measure_is_bounded_by_the_limit() -> None:
    cloud = EmulatedCloud(pools=(GENERAL,))
    regions = [{"id": 2, "slug": REGION, "name": "EU", "stock_qty": 2**31 - 1, "spot_qty": 0}]
    sell(cloud, _plan("good", available_regions=regions))
    assert [group.max for group in observed(cloud).candidates] == [100]


HOSTILE_TAGS = ("osc-", "osc-x", "osc-" + "x" * 5000, "osc-c5f524-general-0123456789", "osc-\n")


@pytest.mark.parametrize("name", HOSTILE_TAGS)
def test_strange_servers_beside_ours_change_nothing_of_them(name: str) -> None:
    cloud = ready()
    group = created(cloud, 2)
    before = own_group(cloud, group.id)
    for mark in ("", "x" * 5000, "c5f524e3e9.general.0123456789\n"):
        cloud.cloud.add_server(
            tags={"k8s-cluster": "ours", "k8s-nodepool": name, "outscaler-managed": mark}
        )
    assert own_group(cloud, group.id) == before
    provider = cast(CherryServers, cloud.provider())
    assert provider.context.managed.cluster == cloud.uid
