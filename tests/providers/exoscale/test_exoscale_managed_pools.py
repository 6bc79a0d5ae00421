"""Groups that Outscaler makes itself at Exoscale: opened once whatever is lost, left alone where
somebody has touched them, and nothing written that the policy does not allow.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from chalicelib.model.managed_group import ManagedGroup
from chalicelib.model.node import Taint
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.policy.settings.managed_pools import ManagedPool, PoolLimits
from infra.emulators.exoscale.account import example_id
from infra.emulators.exoscale.models import UNAVAILABLE, Ending
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.exoscale.fixture import ExoscaleFixture, order
from tests.providers.exoscale.own_nodepools import (
    CREATE,
    GENERAL,
    LARGE,
    choice_of,
    created,
    named,
    ready,
    sizes,
    web,
    writes,
)
from tests.providers.managed import (
    carried_out,
    failed,
    growth,
    observed,
    offered,
    own_group,
)

# -- opening


def test_opened_group_is_a_copy_with_one_machine_that_then_grows() -> None:
    bench = ready()
    source = web(bench)
    source.labels, source.taints = {"tier": "web"}, {"dedicated": ("web", "NoSchedule")}
    source.max_pods, source.pool.disk, source.pool.prefix = 60, 80, "web"
    source.pool.security_groups = (example_id("kind", 50), example_id("kind", 51))
    source.pool.private_networks = (example_id("kind", 52),)
    source.pool.anti_affinity_groups = (example_id("kind", 53),)
    group = offered(bench, LARGE)
    outcome = carried_out(bench, growth(bench, group, 3))
    assert outcome == Succeeded({**outcome.facts, "from": 0, "to": 3, "created": 3})  # type: ignore[union-attr]
    body = msgspec.json.decode(
        next(call.body for call in bench.look() if call.operation == CREATE) or "{}"
    )
    assert body["size"] == 1
    made = named(bench, group.id)
    assert [nodepool.pool.size for nodepool in made] == [3]
    mark = ManagedGroup(bench.uid, choice_of(group), _definition(bench)).mark
    assert made[0].labels == {
        "tier": "web",
        "outscaler.dev/managed": mark,
        "outscaler.dev/pool": "general",
        "outscaler.dev/market": "on-demand",
    }
    assert made[0].taints == source.taints
    assert made[0].max_pods == 60
    assert made[0].pool.kind.name == LARGE
    for field in (
        "disk",
        "prefix",
        "public_ip_assignment",
        "security_groups",
        "private_networks",
        "anti_affinity_groups",
    ):
        assert getattr(made[0].pool, field) == getattr(source.pool, field), field
    seen = own_group(bench, group.id)
    assert seen.managed is not None
    assert (seen.managed.exists, seen.managed.retiring, seen.target) == (True, "", 3)
    assert (seen.min, seen.max) == (0, 100)
    assert seen.price == pytest.approx(group.price)


def _definition(bench: ExoscaleFixture) -> dict[str, Any]:
    provider: Any = bench.provider()
    definition: dict[str, Any] = provider.context.managed.source_of(bench.pools[0]).definition
    return definition


def test_declaration_overrides_labels_taints_and_disk_of_what_it_copies() -> None:
    taint = Taint("gpu", "NoSchedule", "yes")
    bench = ready(
        ManagedPool("general", "exoscale", "web", labels={"tier": "x"}, taints=(taint,), disk=200)
    )
    web(bench).labels, web(bench).taints = {"tier": "web", "a": "b"}, {"d": ("w", "NoSchedule")}
    group = created(bench, 1)
    made = named(bench, group.id)[0]
    assert (made.labels["tier"], made.labels["a"]) == ("x", "b")
    assert made.taints == {"gpu": ("yes", "NoSchedule")}
    assert made.pool.disk == 200


def test_nodes_of_an_opened_group_are_as_its_candidate_promised() -> None:
    bench = ready()
    candidate = offered(bench, LARGE)
    created(bench, 1)
    seen = own_group(bench, candidate.id)
    assert candidate.template is not None
    assert seen.template is not None
    assert seen.template.allocatable == candidate.template.allocatable
    shared = candidate.template.labels.keys() - {"kubernetes.io/hostname"}
    labels = {key: seen.template.labels[key] for key in shared if "nodepool-id" not in key}
    assert labels.items() <= candidate.template.labels.items()
    assert len(labels) > 5


def test_pool_32_lost_answer_of_a_creation_makes_one_group() -> None:
    bench = ready()
    group = offered(bench, LARGE)
    bench.server.faults.next(VendorFault.LOST_ANSWER, on=CREATE)
    assert isinstance(carried_out(bench, growth(bench, group, 3)), Succeeded)
    assert sizes(bench, group.id) == [3]
    assert writes(bench).count(CREATE) == 1


def test_pool_33_group_that_appears_after_30_seconds_is_not_made_again() -> None:
    bench = ready(listing_delay=30.0)
    group = offered(bench, LARGE)
    bench.server.faults.next(VendorFault.LOST_ANSWER, on=CREATE)
    assert isinstance(carried_out(bench, growth(bench, group, 2)), Succeeded)
    assert sizes(bench, group.id) == [2]
    assert writes(bench).count(CREATE) == 1


def test_pool_33_group_that_appears_after_90_seconds_costs_one_node_at_most() -> None:
    bench = ready(listing_delay=90.0)
    group = offered(bench, LARGE)
    bench.server.faults.next(VendorFault.LOST_ANSWER, on=CREATE)
    begun, creations = bench.now(), []
    outcome = carried_out(
        bench,
        growth(bench, group, 3),
        before=lambda _: creations.extend([bench.now() - begun] * writes(bench).count(CREATE)),
    )
    assert isinstance(outcome, Succeeded)
    assert len(creations) == 2
    assert creations[1] >= 60.0
    bench.settle()
    elder, younger = named(bench, group.id)
    assert (elder.pool.size, younger.pool.size) == (3, 1)
    groups = {seen.id: seen for seen in observed(bench).groups}
    used, second = groups[group.id], groups[younger.pool.id]
    assert used.managed is not None
    assert second.managed is not None
    assert (used.managed.retiring, used.target, used.max) == ("", 3, 100)
    assert "second group" in second.managed.retiring
    assert (second.target, second.max, second.min) == (1, 1, 0)


def test_group_that_was_made_and_is_listed_late_is_not_made_again() -> None:
    bench = ready(listing_delay=90.0)
    group = offered(bench, LARGE)
    assert isinstance(carried_out(bench, growth(bench, group, 3)), Succeeded)
    assert sizes(bench, group.id) == [3]
    assert writes(bench).count(CREATE) == 1


# -- interruptions


def _opens_once(seed: int) -> None:
    """Opens or grows a group while answers and steps are lost, and the vendor is late."""
    draw = random.Random(seed)
    delay = draw.choice((0.0, 0.0, 30.0, 90.0))
    bench = ready(
        listing_delay=delay,
        unique_names=draw.random() < 0.3,
        size_at_once=draw.random() < 0.7,
    )
    group = offered(bench, draw.choice((LARGE, "standard.medium", "standard.huge")))
    kind = choice_of(group).instance_type
    to_size, lost = draw.randint(1, 6), 0
    for _ in range(draw.randint(0, 2)):
        fault = draw.choice(
            (VendorFault.LOST_ANSWER, VendorFault.SERVER_ERROR, VendorFault.THROTTLED)
        )
        target = draw.choice((CREATE, CREATE, "scale-sks-nodepool", "read"))
        lost += fault is VendorFault.LOST_ANSWER and target == CREATE
        bench.server.faults.next(fault, on=target)
    has_stock = draw.random() > 0.2
    if not has_stock:
        bench.zone.sold_out.add(kind)
    odds = draw.choice((0.0, 0.2, 0.5))
    killed_at = draw.randint(0, 12)
    outcome = carried_out(
        bench,
        growth(bench, group, to_size),
        forgets=lambda number: number == killed_at or draw.random() < odds,
    )
    made = sizes(bench, group.id)
    bench.settle()
    most = 2 if delay > 60.0 and (lost or odds or killed_at < 12) else 1
    assert len(made) <= most, (outcome, made)
    nodes = sum(len(nodepool.pool.staying) for nodepool in named(bench, group.id))
    assert nodes <= to_size + most - 1, (outcome, made)
    if not has_stock:
        assert nodes == 0
        if isinstance(outcome, Succeeded):  # nothing knows the vendor's operation any more
            missing = own_group(bench, group.id).instances
            assert missing
            assert all(instance.error for instance in missing)
        return
    assert isinstance(outcome, Succeeded), outcome
    assert max(made) == to_size
    seen = own_group(bench, group.id)
    assert seen.managed is not None
    assert not seen.managed.retiring
    assert len(seen.instances) == to_size
    retiring = [
        other for other in observed(bench).groups if other.managed and other.managed.retiring
    ]
    assert len(retiring) == len(made) - 1
    assert not [other for other in observed(bench).candidates if other.id == group.id]


@pytest.mark.parametrize("moment", range(4))
def test_pool_40_second_creation_is_refused_by_the_look_before_it(moment: int) -> None:
    bench = ready()
    group = offered(bench, LARGE)
    second = growth(bench, group, 2, id="grow-of-another-pass", plan="another")
    outcomes = []

    def meanwhile(number: int) -> None:
        if number == moment:
            outcomes.append(carried_out(bench, second))

    outcomes.append(carried_out(bench, growth(bench, group, 2), before=meanwhile))
    assert len(outcomes) == 2
    assert any(isinstance(outcome, Succeeded) for outcome in outcomes)
    assert writes(bench).count(CREATE) == 1
    assert sizes(bench, group.id) == [2]


@pytest.mark.parametrize("seed", range(10))
def test_pool_34_killed_after_any_step_one_group_has_the_planned_nodes(seed: int) -> None:
    _opens_once(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 210))
def test_pool_34_killed_after_any_step_one_group_has_the_planned_nodes_often(seed: int) -> None:
    _opens_once(seed)


@pytest.mark.parametrize("killed", range(8))
def test_pool_34_each_step_that_is_repeated_three_times_changes_nothing_more(killed: int) -> None:
    bench = ready()
    group = offered(bench, LARGE)
    outcome = carried_out(
        bench,
        growth(bench, group, 3),
        forgets=lambda number: killed <= number < killed + 2,
    )
    assert isinstance(outcome, Succeeded)
    assert sizes(bench, group.id) == [3]
    assert writes(bench).count(CREATE) == 1


@pytest.mark.parametrize("moment", range(1, 7))
def test_pool_42_group_that_a_person_deletes_ends_the_growth(moment: int) -> None:
    bench = ready()
    group = offered(bench, LARGE)

    def delete(number: int) -> None:
        for nodepool in named(bench, group.id) if number == moment else ():
            bench.zone.delete_pool(nodepool.pool.id)

    outcome = carried_out(bench, growth(bench, group, 3), before=delete)
    bench.settle()
    assert sum(len(made.pool.staying) for made in named(bench, group.id)) <= 3
    if isinstance(outcome, Failed):
        assert sizes(bench, group.id) == []
        assert offered(bench, LARGE).id == group.id
    else:
        assert isinstance(outcome, Succeeded)


# -- refusals


@pytest.mark.parametrize(("limit", "quota"), [(8, {"nodes": 6}), (1, {"nodes": 0}), (-1, {})])
def test_pool_50_pass_knows_what_the_quota_of_instances_leaves(
    limit: int, quota: dict[str, int]
) -> None:
    bench = ready(limit=limit)
    assert [selection.quota for selection in observed(bench).selections] == [quota]


def test_pool_50_quota_that_cannot_be_read_limits_nothing() -> None:
    bench = ready()
    bench.deny("get-quota")
    seen = observed(bench)
    assert [selection.quota for selection in seen.selections] == [{}]
    assert len(seen.candidates) == 7


def test_pool_48_quota_of_nodepools_fails_the_opening() -> None:
    bench = ready(nodepool_limit=1)
    group = offered(bench, LARGE)
    assert failed(carried_out(bench, growth(bench, group, 2)))[0] == "QuotaExceeded"
    assert sizes(bench, group.id) == []
    assert len(observed(bench).candidates) == 7


@pytest.mark.parametrize("to_size", [1, 3])
def test_pool_49_no_stock_fails_the_opening(to_size: int) -> None:
    bench = ready(creation_fates=[UNAVAILABLE])
    group = offered(bench, LARGE)
    assert failed(carried_out(bench, growth(bench, group, to_size)))[0] == "OutOfStock"
    assert sum(len(made.pool.staying) for made in named(bench, group.id)) == 0


def test_pool_49_creation_that_ends_without_a_group_fails_the_opening() -> None:
    bench = ready(creation_endings=[Ending(reason="unavailable")])
    group = offered(bench, LARGE)
    assert failed(carried_out(bench, growth(bench, group, 2)))[0] == "OutOfStock"
    assert sizes(bench, group.id) == []


def test_pool_51_key_without_the_right_to_create_changes_nothing_else() -> None:
    bench = ready()
    group = offered(bench, LARGE)
    before = observed(bench)
    bench.deny(CREATE)
    assert failed(carried_out(bench, growth(bench, group, 2)))[0] == "Unauthorized"
    assert observed(bench) == before
    hand_made = order(bench, OperationKind.SCALE_UP, web(bench).pool.id, 2, 3)
    assert isinstance(carried_out(bench, hand_made), Succeeded)


# -- forged operations


FORGED: dict[str, dict[str, Any]] = {
    "name": {"group": "osc-c5f524-general-0123456789"},
    "type": {"instance_type": "standard.huge"},
    "zone": {"zone": "de-fra-1"},
    "market": {"market": "spot"},
    "declaration": {"declaration": "other"},
}


@pytest.mark.parametrize("changes", FORGED.values(), ids=FORGED)
def test_pool_63_forged_choice_writes_nothing(changes: dict[str, Any]) -> None:
    bench = ready(GENERAL, ManagedPool("other", "exoscale", "web"))
    group = offered(bench, LARGE, declaration="general")
    changes = dict(changes)
    name = changes.pop("group", group.id)
    choice = msgspec.structs.replace(choice_of(group), **changes)
    forged = growth(bench, group, 1, group=name, choice=choice)
    bench.look()
    assert failed(carried_out(bench, forged)) == ("InvalidRequest", "NotInPolicy")
    assert failed(carried_out(bench, forged.with_status(step="follow"))) == (
        "InvalidRequest",
        "NotInPolicy",
    )
    assert writes(bench) == []


def test_pool_63_choice_that_is_missing_writes_nothing() -> None:
    bench = ready()
    forged = growth(bench, offered(bench, LARGE), 1, choice=None)
    assert failed(carried_out(bench, forged)) == ("InvalidRequest", "NotInPolicy")
    assert writes(bench) == []


def test_pool_63_limits_count_all_groups_of_the_declaration() -> None:
    bench = ready(msgspec.structs.replace(GENERAL, limits=PoolLimits(nodes=5)))
    created(bench, 3)
    group = offered(bench, "standard.medium")
    outcome = carried_out(bench, growth(bench, group, 3))
    assert failed(outcome) == ("InvalidRequest", "NotInPolicy")
    assert writes(bench) == []
    assert isinstance(carried_out(bench, growth(bench, group, 2)), Succeeded)


def test_pool_63_costs_count_all_groups_of_the_declaration() -> None:
    # large 0.09048, medium 0.04888
    bench = ready(msgspec.structs.replace(GENERAL, limits=PoolLimits(cost_per_hour=0.25)))
    alone = carried_out(bench, growth(bench, offered(bench, LARGE), 3))
    assert failed(alone) == ("InvalidRequest", "NotInPolicy")
    created(bench, 2)
    group = offered(bench, "standard.medium")
    outcome = carried_out(bench, growth(bench, group, 2))
    assert failed(outcome) == ("InvalidRequest", "NotInPolicy")
    assert writes(bench) == []
    assert isinstance(carried_out(bench, growth(bench, group, 1)), Succeeded)


@pytest.mark.parametrize("limit", [{"cpu": 10}, {"memory": 20}])
def test_pool_63_cores_and_memory_count_all_groups_of_the_declaration(
    limit: dict[str, int],
) -> None:
    # large 4 cores and 8 GiB, medium 2 and 4
    bench = ready(msgspec.structs.replace(GENERAL, limits=PoolLimits(**limit)))
    created(bench, 2)
    group = offered(bench, "standard.medium")
    outcome = carried_out(bench, growth(bench, group, 2))
    assert failed(outcome) == ("InvalidRequest", "NotInPolicy")
    assert writes(bench) == []
    assert isinstance(carried_out(bench, growth(bench, group, 1)), Succeeded)


def test_pool_63_second_group_of_the_name_counts_too() -> None:
    bench = ready(msgspec.structs.replace(GENERAL, limits=PoolLimits(nodes=5)))
    group = created(bench, 3)
    twin = bench.add_nodepool(group.id, size=2, type=LARGE, cluster="prod")
    twin.labels = dict(named(bench, group.id)[0].labels)
    outcome = carried_out(bench, growth(bench, group, 4, 3))
    assert failed(outcome) == ("InvalidRequest", "NotInPolicy")


def test_groups_of_other_declarations_count_for_no_limit() -> None:
    limits = PoolLimits(nodes=3, cost_per_hour=1.0)
    bench = ready(
        msgspec.structs.replace(GENERAL, limits=limits), ManagedPool("other", "exoscale", "web")
    )
    for declaration in ("general", "other"):
        group = offered(bench, LARGE, declaration=declaration)
        assert isinstance(carried_out(bench, growth(bench, group, 3)), Succeeded)


@pytest.mark.parametrize("sizes", [(0, 0), (3, 2), (0, -1)])
def test_size_that_is_no_growth_writes_nothing(sizes: tuple[int, int]) -> None:
    bench = ready()
    group = offered(bench, LARGE)
    outcome = carried_out(bench, growth(bench, group, sizes[1], sizes[0]))
    assert failed(outcome)[0] == "InvalidRequest"
    assert writes(bench) == []
