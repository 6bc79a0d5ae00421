"""One node group belongs to one cluster."""

from __future__ import annotations

from functools import partial

from tests.unit.store.support import Bench, Counter, all_at_once


def test_each_of_two_clusters_is_told_who_has_what_it_wanted(bench: Bench) -> None:
    claims, geneva, zurich = bench.store.claims, f"{bench.cluster}-geneva", f"{bench.cluster}-zurich"
    shared, mine, theirs = ("exoscale", f"{geneva}/1"), ("exoscale", f"{geneva}/2"), ("exoscale", f"{zurich}/1")
    assert claims.claim_groups(geneva, [shared, mine]) == {}
    assert claims.claim_groups(zurich, [shared, theirs]) == {shared: geneva}
    assert claims.claim_groups(geneva, [shared, mine, theirs]) == {theirs: zurich}
    owners = claims.owners()
    assert (owners[shared], owners[mine], owners[theirs]) == (geneva, geneva, zurich)


def test_of_two_clusters_that_claim_at_once_one_gets_it_and_the_other_learns_whose_it_is(bench: Bench) -> None:
    group, clusters = ("clusterapi", f"{bench.cluster}/g"), [f"{bench.cluster}-{n}" for n in range(6)]
    results = all_at_once([partial(bench.store.claims.claim_groups, name, [group]) for name in clusters])
    assert results.count({}) == 1
    owner = clusters[results.index({})]
    assert results.count({group: owner}) == 5


def test_the_same_key_at_two_providers_is_two_groups(bench: Bench) -> None:
    key = f"{bench.cluster}/pool"
    assert bench.store.claims.claim_groups("a", [("exoscale", key)]) == {}
    assert bench.store.claims.claim_groups("b", [("alicloud", key)]) == {}


def test_only_the_owner_gives_a_group_back(bench: Bench) -> None:
    claims, group = bench.store.claims, ("clusterapi", f"{bench.cluster}/g")
    claims.claim_groups("a", [group])
    claims.release("b", [group])
    assert claims.claim_groups("b", [group]) == {group: "a"}
    claims.release("a", [group])
    assert claims.claim_groups("b", [group]) == {}


def test_what_is_claimed_already_costs_no_write(bench: Bench) -> None:
    groups = [("clusterapi", f"{bench.cluster}/{n}") for n in range(3)]
    bench.store.claims.claim_groups(bench.cluster, groups)
    with Counter(bench) as counter:
        bench.store.claims.claim_groups(bench.cluster, groups)
    assert (counter.items_written, len(counter.requests)) == (0, 1)
