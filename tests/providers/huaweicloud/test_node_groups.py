"""Observation: one node group per scale group, with the bounds of its pool."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.group import Pool
from chalicelib.policy.vendors.huaweicloud import read_settings
from chalicelib.providers.huaweicloud.node_groups import observe
from chalicelib.providers.kit.errors import ProviderError, Throttled, Transient, Unauthorized
from tests.cases import each_row
from tests.providers.huaweicloud.emulated import (
    AZ1,
    CLUSTER,
    OTHER,
    POOL,
    A,
    B,
    EmulatedCce,
    entry,
)

REFUSALS = [
    (502, "", Transient),
    (429, "CCE.02429001", Throttled),
    (403, "CCE.01403001", Unauthorized),
]


def beside(*sizes: int, name: str = "pool-b", **more: Any) -> EmulatedCce:
    """`pool-a` and another pool of one node."""
    cce = EmulatedCce(*sizes, **more)
    cce.add_group(name, size=1)
    return cce


def test_CCE_A6_3_each_flavour_of_a_pool_is_a_group_with_its_bounds_and_priority() -> None:
    groups = EmulatedCce(3, 2).groups()
    assert sorted(groups) == sorted([A, B])
    assert (groups[A].min, groups[A].max, groups[A].target, groups[A].rank) == (0, 10, 3, 0)
    assert (groups[B].min, groups[B].max, groups[B].target, groups[B].rank) == (0, 6, 2, 5)
    assert groups[A].pool == groups[B].pool == Pool(POOL, "pool-a", 0, 10)
    assert groups[B].aliases == (POOL, "pool-a", "pool-a/c7-az2")
    assert not groups[A].error


def test_CCE_A6_3_disabled_flavour_counts_for_the_pool_and_its_nodes_have_no_group() -> None:
    cce = EmulatedCce(3, 2)
    cce.group(B).enabled = False
    groups = cce.groups()
    assert list(groups) == [A]
    assert groups[A].pool == Pool(POOL, "pool-a", 0, 10, 2)
    assert {each.handle for each in groups[A].instances} == set(cce.machines(A))


def test_CCE_A6_1_pool_bounds_are_shared_and_belong_to_a_sole_group() -> None:
    groups = EmulatedCce(3, least=2, most=8).groups()
    assert (groups[A].min, groups[A].max) == (2, 8)
    groups = EmulatedCce(3, 2, least=2, most=4).groups()
    assert (groups[A].min, groups[B].max) == (0, 4)
    assert groups[A].pool == Pool(POOL, "pool-a", 2, 4)


@each_row("name", [POOL, "pool-a"])
def test_CCE_A6_1_bounds_of_the_policy_replace_those_of_the_pool(name: str) -> None:
    group = EmulatedCce(3, 2).groups(entry(name, 1, 7, 3))[A]
    assert group.pool == Pool(POOL, "pool-a", 1, 7)
    assert (group.max, group.priority) == (7, 3)
    assert EmulatedCce(3, 2).groups(entry(name, 1))[A].pool == Pool(POOL, "pool-a", 1, 10)


@each_row("name", [B, "pool-a/c7-az2"])
def test_huawei_policy_bounds_of_one_group(name: str) -> None:
    groups = EmulatedCce(3, 2).groups(entry(name, 1, 4, 9))
    assert (groups[B].min, groups[B].max, groups[B].priority, groups[A].max) == (1, 4, 9, 10)


def test_CCE_A6_4_pool_priority_is_the_groups_priority() -> None:
    assert EmulatedCce(3, 2, priority=7).groups()[A].priority == 7


def test_CCE_A6_2_cooldown_is_a_time_that_new_nodes_stay() -> None:
    groups = EmulatedCce(3, 2, cooldown=15).groups()
    assert groups[A].options.scale_down_cooldown == groups[B].options.scale_down_cooldown == 900.0
    assert EmulatedCce(3, 2).groups()[A].options.scale_down_cooldown is None


def test_minimum_of_every_group_is_enforced() -> None:
    """A pool that is scaled is always within its range."""
    groups = EmulatedCce(3, 2).groups()
    assert len(groups) == 2
    assert all(group.options.enforce_min for group in groups.values())


def test_CCE_A6_8_pool_conditions_apply_only_where_every_flavour_is_enabled() -> None:
    cce = EmulatedCce(3, 2, unneeded=5, utilization=0.6)
    options = cce.groups()[A].options
    assert (options.scale_down_unneeded_time, options.scale_down_utilization_threshold) == (
        300.0,
        0.6,
    )
    cce.group(B).enabled = False
    options = cce.groups()[A].options
    assert (options.scale_down_unneeded_time, options.scale_down_utilization_threshold) == (
        None,
        None,
    )


def test_CCE_A1_2_labels_that_no_pool_selects_are_not_in_the_template() -> None:
    assert set(EmulatedCce(3, 2).groups()[A].options.unpromised_labels) == {
        "node.kubernetes.io/subnetid",
        "os.architecture",
        "os.name",
        "os.version",
    }


@each_row("change", [{"phase": "Deleting"}, {"billing": 1}])
def test_CCE_A1_5_prepaid_and_vanishing_pools_are_excluded(change: dict[str, Any]) -> None:
    cce = beside(3, 2, **change)
    assert list(cce.groups()) == [f"{OTHER}/default"]
    assert cce.warnings() == ""
    assert "take it out of the policy" in cce.warnings(entry(POOL, 1, 3))


def test_CCE_A1_5_default_pool_is_excluded() -> None:
    cce = beside(3, 2)
    cce.answers[POOL] = {"metadata.name": "DefaultPool"}
    assert list(cce.groups()) == [f"{OTHER}/default"]
    assert cce.warnings() == ""
    assert f"there is no node pool {POOL}" in cce.warnings(entry(POOL, 1, 3))


def test_huawei_pools_without_autoscaling_are_shown_only_if_the_policy_names_them() -> None:
    cce = EmulatedCce(3, 2, enabled=False)
    assert not cce.groups()
    groups = cce.groups(entry("pool-a", 1, 7))
    assert sorted(groups) == sorted([A, B])
    assert groups[A].pool == Pool(POOL, "pool-a", 1, 7)
    one = cce.groups(entry(B, 1, 4))
    assert list(one) == [B]
    assert (one[B].max, one[B].pool, one[B].error) == (4, Pool(POOL, "pool-a", 0, -1, 3), "")
    assert "write max" in cce.groups(entry("pool-a", 1))[A].error


def test_huawei_without_discovery_only_named_pools_are_groups() -> None:
    cce = beside(3, 2)
    assert list(cce.groups(entry("pool-b"), autodiscovery="false")) == [f"{OTHER}/default"]
    assert len(cce.groups(entry("pool-b"))) == 3


def test_huawei_contradictory_bounds_are_an_error_of_the_group() -> None:
    assert "above its maximum" in EmulatedCce(3, 2, least=5, most=3).groups()[A].error
    assert "above its maximum" in EmulatedCce(3, 2).groups(entry("pool-a/c7-az2", 12))[B].error


def test_huawei_entries_that_match_no_pool_or_two_are_reported() -> None:
    cce = beside(3, 2, name="pool-a")
    reported = cce.warnings(entry("pool-x", 1, 3), entry("pool-a/c9", 0, 2))
    assert "no node pool pool-x" in reported
    assert "no scale group c9; it has default, c7-az2" in reported
    groups = cce.groups(entry("pool-a", 1, 3))
    assert all("write the uid" in each.error for each in groups.values())
    assert not any(each.error for each in cce.groups(entry(POOL, 1, 3)).values())


def test_huawei_undecodable_pool_blocks_no_other() -> None:
    cce = beside(3, 2)
    cce.answers[POOL] = {"spec": "none"}
    groups = cce.groups()
    assert "spec is not an object" in groups[A].error
    assert not groups[f"{OTHER}/default"].error
    assert list(cce.groups(entry("pool-b"), autodiscovery="false")) == [f"{OTHER}/default"]
    assert A in cce.groups(entry(B), autodiscovery="false")


def test_huawei_pool_without_a_uid_blocks_no_other() -> None:
    cce = beside(3, 2)
    cce.answers[OTHER] = {"metadata.uid": ...}
    assert list(cce.groups()) == [A, B]
    assert "it has no uid" in cce.warnings()


def test_huawei_group_with_missing_numbers_and_malformed_pool_have_an_error() -> None:
    cce = EmulatedCce(3, 2)
    cce.answers[POOL] = {"status.scaleGroupStatuses": None}
    assert all("size is not said" in group.error for group in cce.groups().values())
    assert "phase Error" in EmulatedCce(3, 2, phase="Error").groups()[A].error


@each_row("requests", ["GET .*/nodepools", "GET .*/nodes"])
@each_row(("status", "code", "expected"), REFUSALS)
def test_huawei_failed_list_ends_the_pass(
    requests: str, status: int, code: str, expected: type[ProviderError]
) -> None:
    cce = EmulatedCce(3, 2)
    cce.fail(requests, status, code)
    with pytest.raises(expected):
        cce.build().observe(())


def test_huawei_quiet_pass_costs_two_lists_and_uncached_reads() -> None:
    cce = beside(3, 2)
    cce.groups()
    operations = [call.operation for call in cce.server.log]
    assert [each for each in operations if each != "list-flavors"] == [
        "list-pools",
        "list-nodes",
        "list-addons",
    ]


def test_huawei_unreadable_flavours_cost_only_the_template() -> None:
    cce = EmulatedCce(3, 2)
    cce.fail("flavors", 502)
    groups = cce.groups()
    assert "could not be read" in groups[A].template_error
    assert (groups[A].template, groups[A].error) == (None, "")
    assert groups[B].template is not None


@each_row(("status", "code", "expected"), REFUSALS[1:])
def test_huawei_refused_flavour_read_stops_further_reads(
    status: int, code: str, expected: type[ProviderError]
) -> None:
    cce = EmulatedCce(3, 2)
    cce.fail("flavors", status, code)
    groups = cce.groups()
    assert groups[A].template_error == groups[B].template_error
    assert expected.__name__ in groups[A].template_error
    zones = {
        dict(each.query())["availability_zone"]
        for each in cce.server.requests
        if "flavors" in each.path
    }
    assert zones == {AZ1}


def test_huawei_lagging_sizes_are_shown_unchanged() -> None:
    cce = EmulatedCce(3, 2)
    cce.cloud.lag = 60.0
    cce.resize(A, 5)
    assert cce.groups()[A].target == 3
    assert msgspec.json.encode(cce.groups()[A])


@each_row(("endpoint", "count"), [({}, 1), ({"cceEndpoint": "https://cce.example.com"}, 0)])
def test_huawei_unknown_region_is_reported_and_tried(endpoint: dict[str, str], count: int) -> None:
    small = {"region": "cn-north-99", "clusterId": CLUSTER, "credentialsSecret": "key", **endpoint}
    found = observe(EmulatedCce(3, 2).api(), read_settings(small), ())
    assert ["cn-north-99" in gap.detail for gap in found.gaps] == [True] * count
    assert len(found.groups) == 2


def test_huawei_group_of_any_zone_is_in_several_zones() -> None:
    assert EmulatedCce(1, az="random").groups()[A].zones == ("",)
    assert EmulatedCce(1).groups()[A].zones == ()


def test_huawei_template_of_a_pool_names_all_taints() -> None:
    assert EmulatedCce(1).groups()[A].states_taints
