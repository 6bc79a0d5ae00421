"""Managed pools whose vendor refuses machines, or has no room for them; nodes that do not join."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from chalicelib.model.memory import Backoff, GroupMemory, Memory, PurchaseRow
from chalicelib.model.purchases import with_purchase
from chalicelib.plan.state.scale_up_requests import NOT_JOINED
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.managed_pools import Market, Requirements
from chalicelib.providers.kit.managed_pools import CopySource
from tests.builders import NOW
from tests.unit.plan.managed_offers import GENERAL, OfferedCluster, entries, entry, title

BOTH_MARKETS = Requirements(markets=(Market.ON_DEMAND, Market.SPOT))
BOTH_ARCHITECTURES = ("amd64", "arm64")


@pytest.mark.parametrize(
    ("architectures", "image", "bought", "failed"),
    [
        (BOTH_ARCHITECTURES, "", "a4", {}),
        (BOTH_ARCHITECTURES, "amd64", "s4", {"architecture of the image": 1}),
        (("amd64",), "", "s4", {"architectures": 1}),
    ],
)
def test_pool_16_types_that_the_copied_image_does_not_run_on_are_left_out(
    architectures: tuple[str, ...], image: str, bought: str, failed: dict[str, int]
) -> None:
    types = (entry("s4"), entry("a4", price=0.15, architecture="arm64"))
    requirements = Requirements(architectures=architectures)
    case = OfferedCluster(
        msgspec.structs.replace(GENERAL, requirements=requirements), catalogue=types
    ).waiting(4, 1, 4)
    case.source = CopySource(architecture=image)

    assert case.bought(case.decided()[0]) == {bought: 1}
    (selection,) = case.managed().selections()
    assert selection.failed == failed


@pytest.mark.parametrize(("groups", "is_opened"), [(2, True), (3, False)])
def test_pool_opens_nothing_after_three_groups_whose_nodes_did_not_join(
    groups: int, is_opened: bool
) -> None:
    case = OfferedCluster(catalogue=entries("z1")).waiting(4, 1, 4)
    dearest = sorted(case.groups_of_pools()[1], key=lambda group: -group.price)
    names = [group.id for group in dearest[:groups]]
    failed = Backoff(300.0, NOW + 300, NOW - 1, cls="Unknown", code=NOT_JOINED)
    memory = Memory(groups={name: GroupMemory(backoff=failed) for name in names})
    plan, after = case.decided(memory)
    assert bool(plan.scale_ups) is is_opened
    if not is_opened:
        (unplaced,) = plan.unschedulable
        assert "nodes of 3 groups of general did not join in time" in str(unplaced.reasons)
        later = NOW + Options().node_group_backoff_reset_timeout + 1
        assert case.decided(after, now=later)[0].scale_ups


def refused(case: OfferedCluster, *names: str, code: str = "400", ago: float = 60.0) -> Memory:
    """The vendor has refused these types as invalid, with one code or with one code each."""
    titles = {title(group): group.id for group in case.groups_of_pools()[1]}
    groups = {}
    for number, name in enumerate(names):
        failed = Backoff(
            *(300.0, NOW - ago + 86400.0, NOW - ago),
            cls="InvalidRequest",
            code=code.format(number),
        )
        groups[titles[name]] = GroupMemory(backoff=failed)
    return Memory(groups=groups)


REFUSED = {
    "two types": (("s2", "s4"), "400", 60.0, True),
    "three types": (("s2", "s4", "c4"), "400", 60.0, False),
    "one type in three zones": (("s4", "s4/z2", "s4/z3"), "400", 60.0, True),
    "three codes": (("s2", "s4", "c4"), "40{}", 60.0, True),
    "own code": (("s2", "s4", "c4"), "NameTaken", 60.0, True),
    "long ago": (("s2", "s4", "c4"), "400", 10_900.0, True),
}


@pytest.mark.parametrize(("names", "code", "ago", "is_opened"), REFUSED.values(), ids=REFUSED)
def test_pool_opens_nothing_after_three_types_that_the_vendor_refuses_alike(
    names: tuple[str, ...], code: str, ago: float, is_opened: bool
) -> None:
    case = OfferedCluster(catalogue=entries("z1", "z2", "z3")).waiting(4, 1, 4)
    memory = refused(case, *names, code=code, ago=ago)
    plan, after = case.decided(memory)
    assert bool(plan.scale_ups) is is_opened
    assert not {growth.group for growth in plan.scale_ups} & memory.groups.keys()
    kept = {name: after.groups[name].backoff for name in memory.groups}
    assert kept == {name: known.backoff for name, known in memory.groups.items()}
    if not is_opened:
        (unplaced,) = plan.unschedulable
        assert "the vendor refuses 3 machine types of general: 400" in str(unplaced.reasons)
        later = NOW + Options().node_group_backoff_reset_timeout
        (growth,) = case.decided(after, now=later)[0].scale_ups
        assert growth.group not in memory.groups


def test_open_groups_of_a_pool_whose_new_types_are_refused_grow_on() -> None:
    case = OfferedCluster().waiting(4, 1, 8).opened("s8")
    plan, _ = case.decided(refused(case, "s2", "s4", "c4"))
    assert case.bought(plan) == {"s8": 1}


def test_machines_that_never_join_are_bought_of_three_types_in_six_hours() -> None:
    case, memory = OfferedCluster(catalogue=entries("z1")).waiting(4, 1, 4), Memory()
    choices = {name: offer.group.choice for name, offer in case.managed().candidates.items()}
    purchases = 0
    for now in np.arange(NOW, NOW + 6 * 3600, 60).tolist():
        plan, memory = case.decided(memory, now=now)
        for growth in plan.scale_ups:
            nodes = growth.to_size - growth.from_size
            purchases += nodes
            known = memory.groups.get(growth.group, GroupMemory())
            request = with_purchase(known.request, PurchaseRow(nodes, now, now + 900, now))
            known = msgspec.structs.replace(known, request=request)
            memory = msgspec.structs.replace(memory, groups={**memory.groups, growth.group: known})
            case.existing[choices[growth.group]] = 0
        case.missing = {
            choices[name]: known.request.increase
            for name, known in memory.groups.items()
            if known.request is not None
        }
    assert len(case.existing) == 3
    assert 3 <= purchases <= 36


def test_pool_50_candidates_that_the_quota_has_no_room_for_are_not_planned() -> None:
    case = OfferedCluster(catalogue=(entry("s8"), entry("s4", price=0.30)))
    case.quota = {"cpu": 8}
    plan, _ = case.waiting(16, 1, 4).decided()
    assert case.bought(plan) == {"s8": 1}
    (unplaced,) = plan.unschedulable
    assert len(unplaced.pods) == 8
    assert {reason.code.value for (reason,) in unplaced.reasons.values()} == {"CandidateQuota"}
    assert {reason.params["limit"] for (reason,) in unplaced.reasons.values()} == {8}


def test_pool_50_smaller_machines_that_fit_the_quota_stay() -> None:
    case = OfferedCluster(catalogue=(entry("s8", price=0.10), entry("s4")))
    case.quota = {"cpu": 7}
    plan, _ = case.waiting(4, 1, 4).decided()
    assert case.bought(plan) == {"s4": 1}


def test_pool_50_hand_made_groups_share_the_quota_of_their_vendor() -> None:
    case = OfferedCluster(catalogue=(entry("s4"),)).waiting(8, 1, 4)
    template = case.groups_of_pools()[1][0].template
    case.group("h", max=1, template=template, price=0.18, currency="EUR")
    case.quota = {"nodes": 1}
    plan, _ = case.decided()
    assert case.bought(plan) == {"h": 1}


def test_pool_50_machines_that_the_vendor_has_not_made_yet_use_the_quota() -> None:
    case = OfferedCluster(catalogue=(entry("s4"), entry("s2"))).opened("s2").waiting(4, 1, 4)
    (choice,) = case.existing
    case.quota, case.missing = {"nodes": 1}, {choice: 1}
    assert case.bought(case.decided()[0]) == {}
    case.quota = {"nodes": 2}
    assert case.bought(case.decided()[0]) == {"s2": 1}


@pytest.mark.parametrize(("name", "expected"), [("s4", {"s2": 4}), ("s8", {"s4": 2})])
def test_pool_50_refusal_for_a_quota_holds_machines_of_that_size_and_larger(
    name: str, expected: dict[str, int]
) -> None:
    case = OfferedCluster(catalogue=(entry("s2"), entry("s4"), entry("s8", price=0.2)))
    names = {title(group): group.id for group in case.waiting(8, 1, 4).groups_of_pools()[1]}
    failed = Backoff(300.0, NOW + 300, NOW - 1, cls="QuotaExceeded", code="412")
    memory = Memory(groups={names[name]: GroupMemory(backoff=failed)})
    plan, _ = case.decided(memory)
    assert case.bought(plan) == expected
    later = NOW + Options().node_group_backoff_reset_timeout + 1
    assert case.bought(case.decided(memory, now=later)[0]) == {"s8": 1}


def test_pool_50_refusal_for_a_quota_concerns_its_market_only() -> None:
    case = OfferedCluster(
        msgspec.structs.replace(GENERAL, requirements=BOTH_MARKETS),
        catalogue=(entry("s4", spot_price=0.1),),
    )
    names = {title(group): group.id for group in case.waiting(4, 1, 4).groups_of_pools()[1]}
    failed = Backoff(300.0, NOW + 300, NOW - 1, cls="QuotaExceeded")
    memory = Memory(groups={names["s4/z1/spot"]: GroupMemory(backoff=failed)})
    assert case.bought(case.decided(memory)[0]) == {"s4": 1}
