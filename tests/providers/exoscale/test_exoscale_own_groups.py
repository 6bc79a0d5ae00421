"""Own groups at Exoscale that exist: names and marks, what people change of them, and what the
declaration and the catalogue say of them later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chalicelib.model.group import InstanceState
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.policy.settings.managed_pools import (
    ManagedPool,
    Market,
    PoolLimits,
    PoolMode,
    Requirements,
)
from chalicelib.providers.kit.catalogue_shelf import MOST_ENTRIES
from infra.emulators.exoscale.account import KINDS, ZONE, example_id
from infra.emulators.exoscale.models import Nodepool
from infra.emulators.exoscale.server import PRICE_LIST
from infra.emulators.vendor_common.fault_injection import VendorFault
from infra.emulators.vendor_common.http_messages import scripted
from tests.operations import ask
from tests.providers.exoscale.fixture import ExoscaleFixture, opened, order
from tests.providers.exoscale.own_nodepools import (
    CREATE,
    GENERAL,
    LARGE,
    choice_of,
    created,
    declared,
    named,
    ready,
    sizes,
    web,
    writes,
)
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

# -- names and marks


def test_pool_36_second_group_of_one_name_retires() -> None:
    bench = ready()
    group = created(bench, 3)
    made = named(bench, group.id)[0]
    twin = bench.add_nodepool(group.id, size=0, type=LARGE, cluster="prod")
    twin.labels = dict(made.labels)
    groups = {seen.id: seen for seen in observed(bench).groups}
    used, second = groups[group.id], groups[twin.pool.id]
    assert used.managed is not None
    assert second.managed is not None
    assert (used.target, used.managed.retiring) == (3, "")
    assert "second group" in second.managed.retiring
    assert (second.target, second.max) == (0, 0)
    # it does not grow by its own id either
    forged = growth(bench, second, 2)
    assert failed(carried_out(bench, forged))[0] == "InvalidRequest"
    assert writes(bench) == []


def test_group_that_is_being_deleted_does_not_make_its_successor_the_second() -> None:
    bench = ready()
    group = created(bench, 3)
    old = named(bench, group.id)[0]
    bench.zone.delete_pool(old.pool.id)
    twin = bench.add_nodepool(group.id, size=1, type=LARGE, cluster="prod")
    twin.labels = dict(old.labels)
    seen = own_group(bench, group.id)
    assert seen.managed is not None
    assert (seen.target, seen.managed.retiring) == (1, "")


@pytest.mark.parametrize("mark", ["", "c5f524e3e9.general.0000000000", "none"])
def test_pool_37_name_without_our_mark_is_left_alone(mark: str) -> None:
    bench = ready()
    group = offered(bench, LARGE)
    others = {other.id for other in observed(bench).candidates} - {group.id}
    foreign = bench.add_nodepool(group.id, size=1, cluster="prod")
    foreign.labels = {"outscaler.dev/managed": mark} if mark else {}
    seen = observed(bench)
    assert {other.id for other in seen.candidates} == others
    assert len(others) > 3
    assert {other.id for other in seen.groups} == {web(bench).pool.id}
    assert any(gap.name.endswith(group.id) for gap in seen.gaps), seen.gaps
    bench.look()
    assert failed(carried_out(bench, growth(bench, group, 2))) == ("InvalidRequest", "NameTaken")
    by_id = msgspec.structs.replace(group, id=foreign.pool.id)
    assert failed(carried_out(bench, growth(bench, by_id, 2, 1)))[0] == "InvalidRequest"
    assert writes(bench) == []


def test_pool_38_mark_of_another_cluster_is_never_ours() -> None:
    bench = ready()
    group = created(bench, 2)
    made = named(bench, group.id)[0]
    bench.uid = OTHER_UID
    seen = observed(bench)
    assert {other.id for other in seen.groups} == {web(bench).pool.id}
    assert group.id not in {candidate.id for candidate in seen.candidates}
    vm = next(iter(made.pool.members))
    by_id = msgspec.structs.replace(group, id=made.pool.id)
    bench.look()
    forged = [
        growth(bench, group, 4, 2),
        growth(bench, by_id, 4, 2),
        order(bench, OperationKind.DELETE_NODES, made.pool.id, 2, 1, vm),
        order(bench, OperationKind.DELETE_NODES, group.id, 2, 1, vm),
        order(bench, OperationKind.DECREASE_TARGET, made.pool.id, 2, 1),
        order(bench, OperationKind.RESTART_NODE, made.pool.id, 2, 2, vm),
    ]
    outcomes = [carried_out(bench, operation) for operation in forged]
    assert len(outcomes) == 6
    assert all(isinstance(outcome, Failed) for outcome in outcomes), outcomes
    assert writes(bench) == []
    assert (made.pool.size, len(made.pool.staying)) == (2, 2)


def test_pool_39_groups_are_recognised_without_tables() -> None:
    bench = ready()
    kinds = (LARGE, "standard.medium", "cpu.extra-large")
    groups = [created(bench, size, kind) for size, kind in enumerate(kinds, start=1)]
    bench.shared_cache = opened(pools=(GENERAL,)).shared_cache
    empty = observed(bench)
    assert empty.candidates == ()
    refreshed(bench)
    for seen in (empty, observed(bench)):
        found = {group.id: group for group in seen.groups}
        assert len(groups) == 3
        for size, group in enumerate(groups, start=1):
            managed = found[group.id].managed
            assert managed is not None
            assert (managed.exists, managed.retiring) == (True, "")
            assert managed.choice == choice_of(group)
            assert len(found[group.id].instances) == size
    candidates = {candidate.id for candidate in observed(bench).candidates}
    assert candidates
    assert not candidates & {group.id for group in groups}


# -- changes by hand


def _edit_labels(made: Nodepool) -> None:
    made.labels = {**made.labels, "team": "a"}


def _drop_pool_label(made: Nodepool) -> None:
    made.labels = {key: text for key, text in made.labels.items() if key != "outscaler.dev/pool"}


def _edit_taints(made: Nodepool) -> None:
    made.taints = {"x": ("y", "NoSchedule")}


def _edit_disk(made: Nodepool) -> None:
    made.pool.disk = 99


def _edit_security_groups(made: Nodepool) -> None:
    made.pool.security_groups = (example_id("kind", 50),)


def _edit_networks(made: Nodepool) -> None:
    made.pool.private_networks = (example_id("kind", 51),)


def _edit_anti_affinity(made: Nodepool) -> None:
    made.pool.anti_affinity_groups = (example_id("kind", 52),)


def _edit_max_pods(made: Nodepool) -> None:
    made.max_pods = 40


def _edit_type(made: Nodepool) -> None:
    made.pool.kind = KINDS[0]


EDITS = {
    "labels": _edit_labels,
    "labels ": _drop_pool_label,
    "taints": _edit_taints,
    "disk": _edit_disk,
    "security groups": _edit_security_groups,
    "private networks": _edit_networks,
    "anti-affinity groups": _edit_anti_affinity,
    "max pods": _edit_max_pods,
    "instance type": _edit_type,
}


@pytest.mark.parametrize(("field", "edit"), EDITS.items(), ids=EDITS)
def test_pool_41_group_that_was_changed_by_hand_retires(
    field: str, edit: Callable[[Nodepool], None]
) -> None:
    bench = ready()
    group = created(bench, 2)
    edit(named(bench, group.id)[0])
    bench.look()
    seen = own_group(bench, group.id)
    assert seen.managed is not None
    assert seen.managed.retiring == f"changed by hand: {field.strip()}"
    assert seen.max == seen.target == 2
    assert [instance.outdated for instance in seen.instances] == [seen.managed.retiring] * 2
    assert group.id not in {candidate.id for candidate in observed(bench).candidates}
    outcome = carried_out(bench, growth(bench, group, 4, 2))
    assert failed(outcome) == ("InvalidRequest", "ManagedChanged")
    assert writes(bench) == []


def test_pool_41_order_of_security_groups_is_no_change() -> None:
    bench = ready()
    web(bench).pool.security_groups = (example_id("kind", 50), example_id("kind", 51))
    group = created(bench, 2)
    pool = named(bench, group.id)[0].pool
    pool.security_groups = pool.security_groups[::-1]
    seen = own_group(bench, group.id)
    assert seen.managed is not None
    assert seen.managed.retiring == ""


def test_changed_declaration_is_another_group_and_no_change_by_hand() -> None:
    bench = ready()
    group = created(bench, 2)
    declared(bench, labels={"tier": "new"})
    seen = own_group(bench, group.id)
    assert seen.managed is not None
    assert "says something else" in seen.managed.retiring
    assert seen.max == 2
    assert offered(bench, LARGE).id != group.id


# -- the declaration and the catalogue change


def test_pool_53_type_that_is_no_longer_allowed_retires_its_groups() -> None:
    bench = ready()
    group = created(bench, 2)
    declared(bench, requirements=Requirements(families=("cpu",)))
    seen = own_group(bench, group.id)
    assert seen.managed is not None
    assert seen.managed.retiring == "its declaration no longer allows its machines: families"
    assert seen.max == seen.target == 2
    assert {instance.outdated for instance in seen.instances} == {seen.managed.retiring}
    outcome = carried_out(bench, growth(bench, group, 3, 2))
    assert failed(outcome) == ("InvalidRequest", "NotInPolicy")
    assert writes(bench) == []


@pytest.mark.parametrize("known", [True, False])
def test_pool_53_type_is_known_to_be_forbidden_by_its_name_alone(known: bool) -> None:
    bench = ready()
    group = created(bench, 2)
    if not known:
        bench.shared_cache = opened(pools=(GENERAL,)).shared_cache
    declared(bench, requirements=Requirements(types=("standard.m*",)))
    seen = own_group(bench, group.id)
    assert seen.managed is not None
    assert seen.managed.retiring.endswith("types")


def test_pool_53_price_that_changes_retires_nothing() -> None:
    bench = ready()
    group = created(bench, 2)
    kinds = bench.zone.kinds
    kinds |= {key: msgspec.structs.replace(kind, price=9.0) for key, kind in kinds.items()}
    bench.settle(2 * 3600.0)
    refreshed(bench)
    seen = own_group(bench, group.id)
    assert seen.managed is not None
    assert seen.managed.retiring == ""
    assert seen.price > 9.0
    assert {instance.outdated for instance in seen.instances} == {""}
    assert (seen.id, seen.max) == (group.id, 100)


@pytest.mark.parametrize("has_catalogue", [True, False])
def test_groups_of_a_declaration_that_is_off_neither_grow_nor_retire(has_catalogue: bool) -> None:
    bench = ready()
    group, other = created(bench, 2), offered(bench, "standard.medium")
    if not has_catalogue:
        bench.shared_cache = opened(pools=(GENERAL,)).shared_cache
    declared(bench, mode=PoolMode.OFF)
    seen = observed(bench)
    own = own_group(bench, group.id)
    assert own.managed is not None
    assert (own.managed.retiring, own.max, own.target) == ("", 2, 2)
    assert seen.candidates == ()
    assert [selection.problem for selection in seen.selections] == ["its mode is off"]
    for forged in (growth(bench, group, 3, 2), growth(bench, other, 1)):
        assert failed(carried_out(bench, forged)) == ("InvalidRequest", "NotInPolicy")
    assert writes(bench) == []
    declared(bench, mode=PoolMode.ACTIVE)
    assert own_group(bench, group.id).max == 100


def test_price_above_max_price_stops_growth_and_retires_nothing() -> None:
    bench = ready()
    group = created(bench, 2)
    declared(bench, requirements=Requirements(max_price=0.05))
    seen = own_group(bench, group.id)
    assert seen.managed is not None
    assert seen.managed.retiring == ""
    assert seen.max == seen.target == 2
    outcome = carried_out(bench, growth(bench, group, 3, 2))
    assert failed(outcome) == ("InvalidRequest", "NotInPolicy")


def down(bench: ExoscaleFixture) -> None:
    """The vendor's list of types and its prices fail from now on."""
    bench.server.faults.next(VendorFault.SERVER_ERROR, on="list-instance-types", times=-1)
    bench.server.faults.next(VendorFault.SERVER_ERROR, on="get-instance-type", times=-1)


@pytest.mark.parametrize("days", [8, 70])
def test_pool_57_old_catalogue_opens_nothing_and_groups_grow(days: int) -> None:
    bench = ready()
    group, never_opened = created(bench, 2), offered(bench, "standard.medium")
    down(bench)
    bench.settle(days * DAY)
    seen = observed(bench)
    assert seen.candidates == ()
    problem = "the catalogue is 8 days old" if days == 8 else "no catalogue has been read yet"
    assert [selection.problem for selection in seen.selections] == [problem]
    own = own_group(bench, group.id)
    assert own.managed is not None
    assert own.managed.retiring == ""
    assert own.managed.choice == (choice_of(group) if days == 8 else own.managed.choice)
    bench.look()
    outcome = carried_out(bench, growth(bench, never_opened, 1))
    assert failed(outcome) == ("InvalidRequest", "NotInPolicy")
    assert writes(bench) == []
    assert isinstance(carried_out(bench, growth(bench, group, 4, 2)), Succeeded)
    assert sizes(bench, group.id) == [4]
    forged = growth(bench, group, 101, 4)
    assert failed(carried_out(bench, forged)) == ("InvalidRequest", "NotInPolicy")


def test_pool_57_group_has_its_maximum_while_the_catalogue_is_old() -> None:
    bench = ready()
    group = created(bench, 2)
    bench.settle(8 * DAY)
    assert own_group(bench, group.id).max == 100


def test_group_whose_price_is_unknown_does_not_grow_under_a_limit_of_costs() -> None:
    bench = ready(msgspec.structs.replace(GENERAL, limits=PoolLimits(cost_per_hour=100.0)))
    group = created(bench, 2)
    bench.shared_cache = opened(pools=(GENERAL,)).shared_cache
    assert own_group(bench, group.id).max == 2
    outcome = carried_out(bench, growth(bench, group, 3, 2))
    assert failed(outcome) == ("InvalidRequest", "NotInPolicy")


def test_type_whose_name_cannot_be_read_retires_nothing() -> None:
    bench = ready()
    group = created(bench, 2)
    bench.shared_cache = opened(pools=(GENERAL,)).shared_cache
    down(bench)
    own = own_group(bench, group.id)
    assert own.managed is not None
    assert (own.managed.retiring, own.managed.choice.instance_type) == ("", "")
    assert own.max == own.target == 2


def test_price_list_that_fails_leaves_the_last_prices() -> None:
    bench = ready()
    names = {candidate.id for candidate in observed(bench).candidates}
    bench.server.reply(f"GET {PRICE_LIST}", *[scripted(500, {})] * 20)
    bench.settle(2 * 3600.0)
    refreshed(bench)
    assert {candidate.id for candidate in observed(bench).candidates} == names
    assert len(names) == 7


def test_pool_62_copied_image_changes_no_name_and_no_node() -> None:
    bench = ready()
    group = created(bench, 2)
    names = {candidate.id for candidate in observed(bench).candidates}
    for day in range(1, 8):
        bench.settle(DAY)
        bench.zone.update_pool(web(bench).pool.id, template=example_id("template", day + 1))
        bench.zone.update_pool(
            named(bench, group.id)[0].pool.id, template=example_id("template", day + 1)
        )
        refreshed(bench)
        seen = own_group(bench, group.id)
        assert seen.managed is not None
        assert seen.managed.retiring == ""
        assert [instance.outdated for instance in seen.instances] == ["", ""]
    assert {candidate.id for candidate in observed(bench).candidates} == names
    # of a group that people have made the same change counts
    hand_made = {other.id: other for other in observed(bench).groups}[web(bench).pool.id]
    assert all("template" in instance.outdated for instance in hand_made.instances)


def test_leaving_instances_of_a_retiring_group_are_not_outdated() -> None:
    bench = ready()
    group = created(bench, 2)
    declared(bench, requirements=Requirements(families=("cpu",)))
    leaving = next(iter(named(bench, group.id)[0].pool.members))
    bench.zone.set_state(leaving, "destroying")
    outdated = {
        instance.state: bool(instance.outdated) for instance in own_group(bench, group.id).instances
    }
    assert outdated == {InstanceState.DELETING: False, InstanceState.RUNNING: True}


def test_declaration_that_is_gone_retires_its_groups() -> None:
    bench = ready(GENERAL, ManagedPool("other", "exoscale", "web"))
    group = offered(bench, LARGE, declaration="general")
    assert isinstance(carried_out(bench, growth(bench, group, 2)), Succeeded)
    bench.pools = bench.pools[1:]
    seen = own_group(bench, group.id)
    assert seen.managed is not None
    assert seen.managed.retiring == "its declaration is gone"
    assert seen.managed.choice.declaration == "general"
    assert seen.max == 2


def test_declarations_whose_names_begin_alike_keep_their_groups_apart() -> None:
    names = ("batch-workers-of-team-one", "batch-workers-of-team-two")
    bench = ready(*(ManagedPool(name, "exoscale", "web") for name in names))
    groups = [offered(bench, LARGE, declaration=name) for name in names]
    for group in groups:
        assert isinstance(carried_out(bench, growth(bench, group, 1)), Succeeded)
    bench.settle(8 * DAY)  # without candidates, by which the names are known
    for name, group in zip(names, groups, strict=True):
        seen = own_group(bench, group.id)
        assert seen.managed is not None
        assert (seen.managed.retiring, seen.managed.choice.declaration) == ("", name)


# -- the SKS clusters cannot be read


def test_instance_pools_are_scaled_while_sks_clusters_cannot_be_read() -> None:
    bench = ready()
    group, hand_made = created(bench, 2), bench.zone.add_pool("db", size=1)
    before = {seen.id: seen for seen in observed(bench).groups}
    assert before.keys() == {group.id, web(bench).pool.id, hand_made.id}
    bench.deny("list-sks-clusters")
    seen = observed(bench)
    groups = {other.id: other for other in seen.groups}
    assert groups.keys() == before.keys(), "none looks deleted or is a new one"
    assert groups[hand_made.id] == before[hand_made.id]
    for name in (group.id, web(bench).pool.id):
        assert "list-sks-clusters" in groups[name].error
        assert groups[name].target == before[name].target
        assert {instance.id for instance in groups[name].instances} == {
            instance.id for instance in before[name].instances
        }
    assert (seen.candidates, seen.selections) == ((), ())
    (gap,) = [gap for gap in seen.gaps if gap.kind == "provider/exoscale"]
    assert "SKS clusters could not be read" in gap.detail
    assert not gap.unread_provider, "some of its groups could be read"
    growing = order(bench, OperationKind.SCALE_UP, hand_made.id, 1, 2)
    assert isinstance(carried_out(bench, growing), Succeeded)
    assert hand_made.size == 2


@pytest.mark.parametrize("mark", ["0000000000.general.0123456789", "x", ""])
def test_unread_group_without_our_mark_on_its_nodes_has_no_own_name(mark: str) -> None:
    bench = ready()
    group = created(bench, 1)
    made = named(bench, group.id)[0]
    made.labels = {**made.labels, "outscaler.dev/managed": mark}
    bench.deny("list-sks-clusters")
    groups = {other.id: other for other in observed(bench).groups}
    assert groups.keys() == {made.pool.id, web(bench).pool.id}
    assert all(other.error for other in groups.values())


def test_two_unread_groups_with_one_mark_are_two_groups() -> None:
    bench = ready()
    group = created(bench, 1)
    twin = bench.add_nodepool(group.id, size=1, type=LARGE, cluster="prod")
    twin.labels = dict(named(bench, group.id)[0].labels)
    bench.deny("list-sks-clusters")
    names = [other.id for other in observed(bench).groups]
    assert len(names) == len(set(names)) == 3
    assert group.id in names


# -- the copied group is gone


def web_gone(bench: ExoscaleFixture) -> None:
    bench.zone.delete_pool(web(bench).pool.id)
    bench.settle()
    bench.look()


def test_open_groups_grow_on_and_others_open_once_the_copied_group_is_gone() -> None:
    bench = ready(msgspec.structs.replace(GENERAL, labels={"tier": "x"}))
    source = web(bench)
    source.labels, source.taints = {"team": "a"}, {"dedicated": ("web", "NoSchedule")}
    source.pool.security_groups = (example_id("kind", 50),)
    group = created(bench, 2)
    before = {candidate.id for candidate in observed(bench).candidates}
    web_gone(bench)
    seen = observed(bench)
    own = own_group(bench, group.id)
    assert own.managed is not None
    assert (own.managed.retiring, own.max) == ("", 100)
    assert {candidate.id for candidate in seen.candidates} == before
    (selection,) = seen.selections
    warning = f"CopySourceGone: there is no Nodepool web; groups are made as {group.id} is"
    assert (selection.problem, selection.warning) == ("", warning)
    assert warning in {gap.detail for gap in seen.gaps}
    assert isinstance(carried_out(bench, growth(bench, group, 4, 2)), Succeeded)
    assert sizes(bench, group.id) == [4]
    new = offered(bench, "standard.medium")
    assert isinstance(carried_out(bench, growth(bench, new, 1)), Succeeded)
    made, copy = named(bench, group.id)[0], named(bench, new.id)[0]
    mark = "outscaler.dev/managed"
    assert {**copy.labels, mark: ""} == {**made.labels, mark: ""}
    assert (copy.taints, copy.pool.security_groups) == (made.taints, made.pool.security_groups)


def test_nothing_is_opened_once_the_copied_group_is_gone_without_an_own_one() -> None:
    bench = ready()
    group = offered(bench, LARGE)
    web_gone(bench)
    seen = observed(bench)
    assert seen.candidates == ()
    assert [selection.problem for selection in seen.selections] == [
        "CopySourceGone: there is no Nodepool web"
    ]
    outcome = carried_out(bench, growth(bench, group, 1))
    assert failed(outcome) == ("InvalidRequest", "NotInPolicy")
    assert writes(bench) == []


@pytest.mark.parametrize("field", ["disk", "labels"])
def test_own_group_that_is_not_as_its_name_says_stands_for_no_other(field: str) -> None:
    bench = ready()
    group = created(bench, 2)
    EDITS[field](named(bench, group.id)[0])
    web_gone(bench)
    assert observed(bench).candidates == ()
    outcome = carried_out(bench, growth(bench, group, 3, 2))
    assert failed(outcome) == ("InvalidRequest", "NotInPolicy")
    assert writes(bench) == []


def test_youngest_own_group_stands_for_the_copied_group_that_is_gone() -> None:
    bench = ready()
    old = created(bench, 2)
    web(bench).labels = {"team": "b"}
    new = created(bench, 1)
    assert old.id != new.id
    web_gone(bench)
    groups = {seen.id: seen.managed for seen in observed(bench).groups}
    old_state, new_state = groups[old.id], groups[new.id]
    assert old_state is not None
    assert new_state is not None
    assert "says something else" in old_state.retiring
    assert new_state.retiring == ""


# -- hostile input


def _type(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": example_id("kind", number),
        "family": "standard",
        "size": "large",
        "cpus": 4,
        "memory": 8 * 2**30,
        "authorized": True,
        "zones": [ZONE],
    } | fields


ABSURD = {
    "cores": {"cpus": 10**9},
    "memory": {"memory": 2**53},
    "gpus": {"gpus": 10**9},
    "line break": {"size": "large\nx"},
    "blank": {"size": "large x"},
    "markup": {"size": "<script>"},
    "path": {"size": "../../x"},
    "not ASCII": {"size": "größe"},
    "long": {"size": "x" * 200},
}


@pytest.mark.parametrize("fields", ABSURD.values(), ids=ABSURD)
def test_absurd_type_is_left_out_and_hides_no_other(fields: dict[str, Any]) -> None:
    bench = opened(("web", "prod", 1), pools=(GENERAL,))
    body = {"instance-types": [_type(3), _type(4, **{"size": "medium"} | fields)]}
    bench.server.reply("GET /v2/instance-type$", scripted(200, body))
    body_of_prices = {"eur": {"running_large": "0.1", f"running_{fields.get('size')}": "0.1"}}
    bench.server.reply(f"GET {PRICE_LIST}", scripted(200, body_of_prices))
    refreshed(bench)
    seen = observed(bench)
    assert [choice_of(group).instance_type for group in seen.candidates] == [LARGE]
    assert seen.selections[0].offered == 1


@pytest.mark.parametrize("price", ["-1", "1e300", "nan", "0", "free", 10**400, None, [1]])
def test_absurd_price_is_none(price: object) -> None:
    bench = opened(("web", "prod", 1), pools=(GENERAL,))
    prices = {"running_large": price, "running_medium": "0.04", "volume": price}
    bench.server.reply(f"GET {PRICE_LIST}", scripted(200, {"eur": prices}))
    refreshed(bench)
    seen = observed(bench)
    assert [choice_of(group).instance_type for group in seen.candidates] == ["standard.medium"]
    assert seen.candidates[0].price == 0.04
    assert seen.selections[0].failed["price"] == 6


def test_ten_thousand_types_are_bounded() -> None:
    bench = opened(("web", "prod", 1), pools=(GENERAL,))
    rows = [_type(number, size=f"large{number}") for number in range(1, MOST_ENTRIES + 500)]
    prices = {f"running_large{number}": "0.1" for number in range(1, MOST_ENTRIES + 500)}
    bench.server.reply("GET /v2/instance-type$", scripted(200, {"instance-types": rows}))
    bench.server.reply(f"GET {PRICE_LIST}", scripted(200, {"eur": prices}))
    refreshed(bench)
    seen = observed(bench)
    assert seen.selections[0].offered == MOST_ENTRIES
    assert len(seen.candidates) == MOST_ENTRIES


HOSTILE_LABELS: tuple[dict[str, str], ...] = (
    {"outscaler.dev/managed": "c5f524e3e9." + "x" * 5000},
    {"a": "\x00\u202e"},
    {},
)


@pytest.mark.parametrize("labels", HOSTILE_LABELS)
def test_strange_nodepools_beside_ours_change_nothing_of_it(labels: dict[str, str]) -> None:
    bench = ready()
    group = created(bench, 2)
    before = own_group(bench, group.id)
    for name in ("osc-", "osc-c5f524-general-x", f"{group.id}x", "osc-ffffff-a-0123456789"):
        bench.add_nodepool(name, size=1, cluster="prod").labels = dict(labels)
    assert own_group(bench, group.id) == before


def test_own_group_whose_size_cannot_be_read_stays_a_group_with_an_error() -> None:
    bench = ready()
    group = created(bench, 2)
    bench.answers[named(bench, group.id)[0].id] = {"size": "two"}
    bench.checker.problems = []
    seen = own_group(bench, group.id)
    assert "cannot be understood" in seen.error
    assert seen.managed is not None
    assert seen.managed.exists


def test_operation_in_progress_is_followed_and_not_sent_again() -> None:
    bench = ready()
    operation = growth(bench, offered(bench, LARGE), 2)
    bench.look()
    outcomes = [ask(bench.provider(), operation) for _ in range(3)]
    assert all(isinstance(outcome, InProgress) for outcome in outcomes)
    assert writes(bench) == [CREATE]


def test_market_of_every_group_is_on_demand() -> None:
    bench = ready(
        ManagedPool("general", "exoscale", "web", requirements=Requirements(markets=(Market.SPOT,)))
    )
    seen = observed(bench)
    assert seen.candidates == ()
    assert seen.selections[0].failed["price"] == 7
