"""One node group belongs to one cluster."""

from __future__ import annotations

from functools import partial

import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.operation import OperationKind
from chalicelib.store.errors import LeaseLost
from chalicelib.store.tables import CLAIMS, ClaimRow
from tests.operations import new_operation
from tests.unit.store.support import RequestCounter, StoreFixture, all_at_once


def test_group_ownership_each_of_two_clusters_learns_the_owners(bench: StoreFixture) -> None:
    claims, geneva, zurich = (
        bench.store.group_ownership,
        f"{bench.cluster}-geneva",
        f"{bench.cluster}-zurich",
    )
    shared, mine, theirs = (
        ("exoscale", f"{geneva}/1"),
        ("exoscale", f"{geneva}/2"),
        ("exoscale", f"{zurich}/1"),
    )
    assert claims.claim_groups(geneva, [shared, mine]) == {}
    assert claims.claim_groups(zurich, [shared, theirs]) == {shared: geneva}
    assert claims.claim_groups(geneva, [shared, mine, theirs]) == {theirs: zurich}
    owners = claims.owners()
    assert (owners[shared], owners[mine], owners[theirs]) == (geneva, geneva, zurich)


def test_group_ownership_concurrent_claims_have_one_winner_known_to_both(
    bench: StoreFixture,
) -> None:
    group, clusters = (
        ("clusterapi", f"{bench.cluster}/g"),
        [f"{bench.cluster}-{n}" for n in range(6)],
    )
    results = all_at_once(
        [partial(bench.store.group_ownership.claim_groups, name, [group]) for name in clusters]
    )
    assert results.count({}) == 1
    owner = clusters[results.index({})]
    assert results.count({group: owner}) == 5


def test_group_ownership_same_key_at_two_providers_is_two_groups(bench: StoreFixture) -> None:
    key = f"{bench.cluster}/pool"
    assert bench.store.group_ownership.claim_groups("a", [("exoscale", key)]) == {}
    assert bench.store.group_ownership.claim_groups("b", [("alicloud", key)]) == {}


def test_group_ownership_is_released_only_by_the_owner(bench: StoreFixture) -> None:
    claims, group = bench.store.group_ownership, ("clusterapi", f"{bench.cluster}/g")
    claims.claim_groups("a", [group])
    claims.release("b", [group])
    assert claims.claim_groups("b", [group]) == {group: "a"}
    claims.release("a", [group])
    assert claims.claim_groups("b", [group]) == {}


def test_group_ownership_existing_claim_costs_no_write(bench: StoreFixture) -> None:
    groups = [("clusterapi", f"{bench.cluster}/{n}") for n in range(3)]
    bench.store.group_ownership.claim_groups(bench.cluster, groups)
    with RequestCounter(bench) as counter:
        bench.store.group_ownership.claim_groups(bench.cluster, groups)
    assert (counter.items_written, len(counter.requests)) == (0, 1)


# -- end of a claim

DAY = 86400.0
GROUP = ("exoscale", "ch-gva-2#pool")


def _passed(bench: StoreFixture, cluster: str) -> None:
    """Records a pass of a cluster, now."""
    lease = bench.store.leases.acquire(cluster, f"pass-{bench.clock()}", 150.0)
    bench.store.leases.release(lease, passed_at=bench.clock())


def _pair(bench: StoreFixture, *, policy: bool = True) -> tuple[str, str, tuple[str, str]]:
    """Two active clusters, and a group used only by this test."""
    old, new = f"{bench.cluster}-old", f"{bench.cluster}-new"
    for name in (old, new):
        _passed(bench, name)
        if policy:
            bench.store.policies.put(name, "text", "d", None)
    return old, new, (GROUP[0], f"{bench.cluster}#pool")


@pytest.mark.parametrize(
    ("policy", "silent", "taken"),
    [
        (True, 0.0, False),
        (True, 6.9 * DAY, False),
        (True, 7.1 * DAY, True),
        (False, 1800.0, False),
        (False, 3700.0, True),
    ],
)
def test_group_ownership_ends_when_its_cluster_is_gone(
    bench: StoreFixture, policy: bool, silent: float, taken: bool
) -> None:
    claims, (old, new, group) = bench.store.group_ownership, _pair(bench, policy=policy)
    claims.claim_groups(old, [group])
    bench.clock.advance(silent)
    seen: list[tuple[tuple[str, str], str]] = []
    answer = claims.claim_groups(
        new, [group], taken=lambda which, owner: seen.append((which, owner))
    )
    assert (answer, seen) == (({}, [(group, old)]) if taken else ({group: old}, []))
    assert claims.owners()[group] == (new if taken else old)


def test_group_ownership_lasts_as_long_as_its_cluster_makes_passes(bench: StoreFixture) -> None:
    claims, (old, new, group) = bench.store.group_ownership, _pair(bench)
    claims.claim_groups(old, [group])
    for _ in range(4):
        bench.clock.advance(6 * DAY)
        _passed(bench, old)
        assert claims.claim_groups(new, [group]) == {group: old}


def test_group_ownership_lost_during_a_stalled_pass_makes_its_save_fail(
    bench: StoreFixture,
) -> None:
    claims, (old, new, group) = bench.store.group_ownership, _pair(bench)
    claims.claim_groups(old, [group])
    lease = bench.store.leases.acquire(old, "sleeper", 150.0)
    assert claims.claim_groups(old, [group]) == {}
    bench.clock.advance(8 * DAY)
    assert claims.claim_groups(new, [group]) == {}
    with pytest.raises(LeaseLost):
        bench.store.memory.save(old, Memory(), Memory(last_scale_up=1.0), (), lease)
    assert claims.claim_groups(old, [group]) == {group: new}


def test_group_ownership_by_name_overrides_ownership_by_discovery(bench: StoreFixture) -> None:
    claims, (thief, owner, group) = bench.store.group_ownership, _pair(bench)
    claims.claim_groups(thief, [group], discovered=[group])
    assert claims.claim_groups(owner, [group], discovered=[group]) == {group: thief}
    assert claims.claim_groups(owner, [group]) == {}
    assert claims.claim_groups(thief, [group]) == {group: owner}, (
        "of two that name it the first one keeps it"
    )


def test_group_ownership_by_discovery_becomes_strong_once_named(bench: StoreFixture) -> None:
    claims, (first, second, group) = bench.store.group_ownership, _pair(bench)
    claims.claim_groups(first, [group], discovered=[group])
    claims.claim_groups(first, [group])
    assert claims.claim_groups(second, [group]) == {group: first}


def test_group_ownership_of_an_earlier_release_counts_as_named(bench: StoreFixture) -> None:
    claims, (old, new, group) = bench.store.group_ownership, _pair(bench)
    bench.store.table.write(
        bench.store.table.put(ClaimRow(CLAIMS, "#".join(group), owner=old, since=bench.clock()))
    )
    assert claims.claim_groups(new, [group]) == {group: old}
    assert [each.named for each in claims.all() if each.owner == old] == [True]


@pytest.mark.parametrize("busy", ["a pass", "an operation", "an operation of another group"])
def test_group_ownership_does_not_change_while_its_cluster_works_on_it(
    bench: StoreFixture, busy: str
) -> None:
    claims, (thief, owner, group) = bench.store.group_ownership, _pair(bench)
    claims.claim_groups(thief, [group], discovered=[group])
    lease = bench.store.leases.acquire(thief, "pass", 150.0)
    if busy != "a pass":
        name = "pool" if busy == "an operation" else "pool-2"
        operation = new_operation(
            "grow-1",
            thief,
            "exoscale",
            name,
            OperationKind.SCALE_UP,
            "plan",
            bench.clock(),
            deadline=bench.clock() + 900.0,
        )
        bench.store.memory.save(thief, Memory(), Memory(), (operation,), lease)
        bench.store.leases.release(lease)
    free = busy == "an operation of another group"
    assert claims.claim_groups(owner, [group]) == ({} if free else {group: thief})
    assert (claims.give_back(thief, group) == "") is False
    bench.clock.advance(2 * DAY)
    assert claims.claim_groups(owner, [group]) == {}


def test_group_ownership_concurrent_takeovers_have_one_winner(bench: StoreFixture) -> None:
    thief, _, group = _pair(bench)
    bench.store.group_ownership.claim_groups(thief, [group], discovered=[group])
    clusters = [f"{bench.cluster}-{n}" for n in range(6)]
    results = all_at_once(
        [partial(bench.store.group_ownership.claim_groups, name, [group]) for name in clusters]
    )
    assert results.count({}) == 1
    assert bench.store.group_ownership.owners()[group] == clusters[results.index({})]


def test_group_ownership_can_be_released_by_an_operator(bench: StoreFixture) -> None:
    claims, (old, new, group) = bench.store.group_ownership, _pair(bench)
    claims.claim_groups(old, [group])
    assert "no claim" in claims.give_back(new, group)
    assert claims.give_back(old, group) == ""
    assert claims.claim_groups(new, [group]) == {}
