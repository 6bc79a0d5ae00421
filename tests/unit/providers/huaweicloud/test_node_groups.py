"""Observation: one node group per scale group, with the bounds of its pool."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.group import Pool
from chalicelib.providers.errors import ProviderError, Throttled, Transient, Unauthorized
from chalicelib.providers.huaweicloud.models import Autoscaling, NodePool, NodeTemplate
from tests.cases import each_row
from tests.unit.providers.huaweicloud.fake_api import (
    AZ1,
    FLAVOR,
    OTHER,
    POOL,
    A,
    B,
    Cce,
    FakeApiGroup,
    FakeCceApi,
    entry,
    provider,
    seen,
    two,
    warnings,
)

MANUAL = Autoscaling()


def test_CCE_A6_3_each_flavour_of_a_pool_is_a_group_with_its_bounds_and_priority() -> None:
    groups = seen(FakeCceApi(two(3, 2)))
    assert sorted(groups) == sorted([A, B])
    assert (groups[A].min, groups[A].max, groups[A].target, groups[A].rank) == (0, 10, 3, 0)
    assert (groups[B].min, groups[B].max, groups[B].target, groups[B].rank) == (0, 6, 2, 5)
    assert groups[A].pool == groups[B].pool == Pool(POOL, "pool-a", 0, 10)
    assert groups[B].aliases == (POOL, "pool-a", "pool-a/c7-az2")
    assert not groups[A].error


def test_CCE_A6_3_disabled_flavour_counts_for_the_pool_and_its_nodes_have_no_group() -> None:
    api = FakeCceApi(two(3, 2))
    api.all[POOL].groups[1].enabled = False
    groups = seen(api)
    assert list(groups) == [A]
    assert groups[A].pool == Pool(POOL, "pool-a", 0, 10, 2)
    assert {each.handle for each in groups[A].instances} == set(api.of(POOL))


def test_CCE_A6_1_pool_bounds_are_shared_and_belong_to_a_sole_group() -> None:
    groups = seen(FakeCceApi(Cce([FakeApiGroup(desired=3)], autoscaling=Autoscaling(True, 2, 8))))
    assert (groups[A].min, groups[A].max) == (2, 8)
    groups = seen(FakeCceApi(two(autoscaling=Autoscaling(True, 2, 4))))
    assert (groups[A].min, groups[B].max) == (0, 4)
    assert groups[A].pool == Pool(POOL, "pool-a", 2, 4)


@each_row("name", [POOL, "pool-a"])
def test_CCE_A6_1_bounds_of_the_policy_replace_those_of_the_pool(name: str) -> None:
    group = seen(FakeCceApi(two()), entry(name, 1, 7, 3))[A]
    assert group.pool == Pool(POOL, "pool-a", 1, 7)
    assert (group.max, group.priority) == (7, 3)
    assert seen(FakeCceApi(two()), entry(name, 1))[A].pool == Pool(POOL, "pool-a", 1, 10)


@each_row("name", [B, "pool-a/c7-az2"])
def test_huawei_policy_bounds_of_one_group(name: str) -> None:
    groups = seen(FakeCceApi(two()), entry(name, 1, 4, 9))
    assert (groups[B].min, groups[B].max, groups[B].priority, groups[A].max) == (1, 4, 9, 10)


def test_CCE_A6_4_pool_priority_is_the_groups_priority() -> None:
    assert seen(FakeCceApi(two(autoscaling=Autoscaling(True, 0, 10, priority=7))))[A].priority == 7


def test_CCE_A6_2_cooldown_is_a_time_that_new_nodes_stay() -> None:
    groups = seen(FakeCceApi(two(autoscaling=Autoscaling(True, 0, 10, cooldown_minutes=15))))
    assert groups[A].options.scale_down_cooldown == groups[B].options.scale_down_cooldown == 900.0
    assert seen(FakeCceApi(two()))[A].options.scale_down_cooldown is None


def test_minimum_of_every_group_is_enforced() -> None:
    """A pool that is scaled is always within its range."""
    groups = seen(FakeCceApi(two()))
    assert len(groups) == 2
    assert all(group.options.enforce_min for group in groups.values())


def test_CCE_A6_8_pool_conditions_apply_only_where_every_flavour_is_enabled() -> None:
    own = Autoscaling(True, 0, 10, unneeded_minutes=5, utilization=0.6)
    api = FakeCceApi(two(autoscaling=own))
    options = seen(api)[A].options
    assert (options.scale_down_unneeded_time, options.scale_down_utilization_threshold) == (300.0, 0.6)
    api.all[POOL].groups[1].enabled = False
    options = seen(api)[A].options
    assert (options.scale_down_unneeded_time, options.scale_down_utilization_threshold) == (None, None)


def test_CCE_A1_2_labels_that_no_pool_selects_are_not_in_the_template() -> None:
    assert set(seen(FakeCceApi(two()))[A].options.unpromised_labels) == {
        "node.kubernetes.io/subnetid",
        "os.architecture",
        "os.name",
        "os.version",
    }


@each_row(
    "change", [{"name": "DefaultPool"}, {"phase": "Deleting"}, {"template": NodeTemplate(FLAVOR, AZ1, billing=1)}]
)
def test_CCE_A1_5_default_prepaid_and_vanishing_pools_are_excluded(change: dict[str, Any]) -> None:
    api = FakeCceApi(two(**change), Cce([FakeApiGroup(desired=1)], OTHER, "pool-b"))
    assert list(seen(api)) == [f"{OTHER}/default"]
    assert warnings(api) == ""
    assert "take it out of the policy" in warnings(api, entry(POOL, 1, 3))


def test_huawei_pools_without_autoscaling_are_shown_only_if_the_policy_names_them() -> None:
    api = FakeCceApi(two(autoscaling=MANUAL))
    assert not seen(api)
    groups = seen(api, entry("pool-a", 1, 7))
    assert sorted(groups) == sorted([A, B])
    assert groups[A].pool == Pool(POOL, "pool-a", 1, 7)
    one = seen(api, entry(B, 1, 4))
    assert list(one) == [B]
    assert (one[B].max, one[B].pool, one[B].error) == (4, Pool(POOL, "pool-a", 0, -1, 3), "")
    assert "write max" in seen(api, entry("pool-a", 1))[A].error


def test_huawei_without_discovery_only_named_pools_are_groups() -> None:
    api = FakeCceApi(two(), Cce([FakeApiGroup(desired=1)], OTHER, "pool-b"))
    assert list(seen(api, entry("pool-b"), autodiscovery="false")) == [f"{OTHER}/default"]
    assert len(seen(api, entry("pool-b"))) == 3


def test_huawei_contradictory_bounds_are_an_error_of_the_group() -> None:
    assert "above its maximum" in seen(FakeCceApi(two(autoscaling=Autoscaling(True, 5, 3))))[A].error
    assert "above its maximum" in seen(FakeCceApi(two()), entry("pool-a/c7-az2", 12))[B].error


def test_huawei_entries_that_match_no_pool_or_two_are_reported() -> None:
    api = FakeCceApi(two(), Cce([FakeApiGroup(desired=1)], OTHER))
    reported = warnings(api, entry("pool-x", 1, 3), entry("pool-a/c9", 0, 2))
    assert "no node pool pool-x" in reported
    assert "no scale group c9; it has default, c7-az2" in reported
    groups = seen(api, entry("pool-a", 1, 3))
    assert all("write the uid" in each.error for each in groups.values())
    assert not any(each.error for each in seen(api, entry(POOL, 1, 3)).values())


def test_huawei_undecodable_pool_blocks_no_other() -> None:
    api = FakeCceApi(two(error="spec is missing"), Cce([FakeApiGroup(desired=1)], OTHER, "pool-b"))
    groups = seen(api)
    assert "spec is missing" in groups[A].error
    assert not groups[f"{OTHER}/default"].error
    assert list(seen(api, entry("pool-b"), autodiscovery="false")) == [f"{OTHER}/default"]
    assert A in seen(api, entry(B), autodiscovery="false")


def test_huawei_pool_without_a_uid_blocks_no_other() -> None:
    class Odd(FakeCceApi):
        def pools(self) -> tuple[NodePool, ...]:
            return (*super().pools(), NodePool("", error="it has no uid"))

    api = Odd(two())
    assert len(seen(api)) == 2
    assert "it has no uid" in warnings(api)


def test_huawei_group_with_missing_numbers_and_malformed_pool_have_an_error() -> None:
    api = FakeCceApi(two())
    api.all[POOL].groups[1].error = "it says no size"
    assert (seen(api)[B].error, seen(api)[A].error) == ("it says no size", "")
    assert "phase Error" in seen(FakeCceApi(two(phase="Error")))[A].error


@each_row("method", ["pools", "nodes"])
@each_row("error", [Transient("502"), Throttled("slowly"), Unauthorized("no")])
def test_huawei_failed_list_ends_the_pass(method: str, error: ProviderError) -> None:
    api = FakeCceApi(two())
    api.trouble[method] = [error]
    with pytest.raises(type(error)):
        provider(api).observe(())


def test_huawei_quiet_pass_costs_two_lists_and_uncached_reads() -> None:
    api = FakeCceApi(two(), Cce([FakeApiGroup(desired=1)], OTHER, "pool-b"))
    seen(api)
    assert [each for each in api.calls if not each.startswith("flavors")] == ["pools", "nodes", "addons"]


def test_huawei_unreadable_flavours_cost_only_the_template() -> None:
    api = FakeCceApi(two())
    api.trouble["flavors"] = [Transient("502")]
    groups = seen(api)
    assert "could not be read" in groups[A].template_error
    assert (groups[A].template, groups[A].error) == (None, "")
    assert groups[B].template is not None


@each_row("error", [Throttled("slowly"), Unauthorized("no")])
def test_huawei_refused_flavour_read_stops_further_reads(error: ProviderError) -> None:
    api = FakeCceApi(two())
    api.trouble["flavors"] = [error]
    groups = seen(api)
    assert groups[A].template_error == groups[B].template_error != ""
    assert len([each for each in api.calls if each.startswith("flavors")]) == 1


def test_huawei_lagging_sizes_are_shown_unchanged() -> None:
    api = FakeCceApi(two(3, 2))
    api.lag = True
    api.scale(POOL, 7, "default")
    assert seen(api)[A].target == 3
    assert msgspec.json.encode(seen(api)[A])


def test_huawei_unknown_region_is_reported_and_tried() -> None:
    assert "cn-north-99" in warnings(FakeCceApi(two()), region="cn-north-99")
    assert warnings(FakeCceApi(two()), region="cn-north-99", cceEndpoint="https://cce.example.com") == ""
