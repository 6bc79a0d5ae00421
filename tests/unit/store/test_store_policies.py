"""Every policy version is kept, and no writer overwrites a version that it has not read."""

from __future__ import annotations

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.store import StoredPolicy
from chalicelib.store.errors import PolicyChanged
from tests.unit.store.support import START, StoreFixture, all_at_once


def test_policy_versions_are_consecutive_and_all_kept(bench: StoreFixture) -> None:
    policies, name = bench.store.policies, bench.cluster
    assert policies.current(name) is None
    assert policies.put(name, "mode: off", "d1", None) == 1
    bench.clock.advance(10)
    assert policies.put(name, "mode: active", "d2", 1) == 2
    first = StoredPolicy(name, 1, "mode: off", "d1", START)
    second = StoredPolicy(name, 2, "mode: active", "d2", START + 10)
    assert policies.current(name) == second
    assert policies.version(name, 1) == first
    assert policies.version(name, 3) is None
    assert policies.history(name) == (second, first)
    assert policies.history(name, limit=1) == (second,)


@pytest.mark.parametrize("expected", [None, 1, 3])
def test_policy_unexpected_version_is_refused_and_nothing_is_stored(
    bench: StoreFixture, expected: int | None
) -> None:
    policies, name = bench.store.policies, bench.cluster
    policies.put(name, "a", "d1", None)
    policies.put(name, "b", "d2", 1)
    with pytest.raises(PolicyChanged) as changed:
        policies.put(name, "c", "d3", expected)
    assert (changed.value.expected, changed.value.actual) == (expected, 2)
    assert [policy.text for policy in policies.history(name)] == ["b", "a"]


def test_policy_that_does_not_exist_cannot_be_replaced(bench: StoreFixture) -> None:
    with pytest.raises(PolicyChanged) as changed:
        bench.store.policies.put(bench.cluster, "a", "d", 4)
    assert (changed.value.expected, changed.value.actual) == (4, None)
    assert bench.store.policies.current(bench.cluster) is None


def test_policy_replaced_meanwhile_is_not_archived(bench: StoreFixture) -> None:
    policies, name = bench.store.policies, bench.cluster
    policies.put(name, "a", "d1", None)
    before = policies.current(name)
    assert before is not None
    policies.put(name, "b", "d2", 1)
    with pytest.raises(PolicyChanged) as changed:
        policies.archive(before)
    assert (changed.value.expected, changed.value.actual) == (1, 2)
    after = policies.current(name)
    assert after is not None
    assert after.text == "b"


def test_policy_concurrent_apply_succeeds_for_exactly_one_of_four(bench: StoreFixture) -> None:
    calls = [
        lambda n=n: bench.store.policies.put(bench.cluster, f"text-{n}", "d", None)
        for n in range(4)
    ]
    results = all_at_once(calls)
    assert results.count(1) == 1
    assert sum(isinstance(result, PolicyChanged) for result in results) == 3


def test_policy_list_finds_all_clusters(bench: StoreFixture) -> None:
    names = [f"{bench.cluster}-{letter}" for letter in "ab"]
    for name in names:
        bench.store.policies.put(name, "a", "d", None)
    assert set(names) <= set(bench.store.policies.names())
    assert [
        policy.text for policy in bench.store.policies.all_current() if policy.name in names
    ] == ["a", "a"]


@pytest.mark.parametrize("name", ["", "!claims"])
def test_policy_cluster_name_equal_to_a_shared_partition_is_refused(
    bench: StoreFixture, name: str
) -> None:
    with pytest.raises(BadInput):
        bench.store.policies.put(name, "a", "d", None)
