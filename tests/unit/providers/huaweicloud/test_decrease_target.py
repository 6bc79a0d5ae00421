"""Target decrease: never below the existing nodes of the group or of the pool."""

from __future__ import annotations

import pytest

from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.errors import Conflict, Transient
from tests.cases import each_row
from tests.unit.providers.huaweicloud.fake_api import (
    POOL,
    A,
    B,
    Cce,
    FakeApiGroup,
    FakeCceApi,
    continued,
    operation,
    provider,
    shrinkage,
    to_the_end,
    two,
)


def short(desired: int = 5, existing: int = 3, second: int = 2) -> FakeCceApi:
    """A pool whose first group has a larger desired size than nodes."""
    api = FakeCceApi(two(existing, second))
    api.all[POOL].groups[0].desired, api.all[POOL].groups[0].stock = desired, 0
    api.all[POOL].desired = desired + second
    return api


def refused(api: FakeCceApi, from_size: int, to_size: int, group: str = A) -> Failed:
    outcome = provider(api).decrease_target(shrinkage(from_size, to_size, group))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, api.writes()) == ("InvalidRequest", [])
    return outcome


def test_CCE_19_missing_nodes_are_removed_from_the_target_through_their_group() -> None:
    api = short()
    assert isinstance(to_the_end(api, shrinkage(5, 3)), Succeeded)
    assert (api.writes(), api.chosen) == (["scale 5 default"], [])


@each_row("size", [2, 0, -1])
def test_CCE_19_size_below_the_existing_nodes_is_an_error(size: int) -> None:
    refused(short(), 5, size)


def test_CCE_19_nodes_shown_only_by_the_list_count_as_existing() -> None:
    api = short()
    api.add(POOL, phase="Installing")
    refused(api, 5, 3)
    assert isinstance(to_the_end(api, shrinkage(5, 4)), Succeeded)


def test_CCE_19_pool_total_is_never_below_its_nodes() -> None:
    api = short()
    for _ in range(3):
        # more than the desired size of that group: with this total, CCE would choose the nodes to delete
        api.add(POOL, "c7-az2")
    assert "of its pool" in refused(api, 5, 3).message


def test_huawei_decrease_target_does_not_count_leaving_nodes() -> None:
    api = short()
    api.change(api.of(POOL)[0], phase="Deleting")
    assert isinstance(to_the_end(api, shrinkage(5, 2)), Succeeded)
    assert api.writes() == ["scale 4 default"]


def test_huawei_decrease_target_waits_while_groups_and_pool_disagree() -> None:
    api = short()
    api.all[POOL].desired += 1
    with pytest.raises(Conflict):
        provider(api).decrease_target(shrinkage(5, 3))
    assert not api.writes()


def test_huawei_decrease_target_with_a_lost_answer_is_not_repeated() -> None:
    api = short()
    api.lag = True
    api.lost.add("scale")
    with pytest.raises(Transient):
        provider(api).decrease_target(shrinkage(5, 4))
    with pytest.raises(Conflict):  # the group still reports five, and the pool six
        provider(api).decrease_target(shrinkage(5, 4))
    assert isinstance(to_the_end(api, shrinkage(5, 4)), Succeeded)
    assert api.writes() == ["scale 6 default"]


def test_huawei_decrease_target_already_reached_or_changed_by_others() -> None:
    api = short()
    assert isinstance(provider(api).decrease_target(shrinkage(6, 5)), Succeeded)
    outcome = provider(api).decrease_target(shrinkage(7, 4))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, api.writes()) == ("Conflict", [])


def test_huawei_decrease_target_accepted_without_effect_fails_after_some_polls() -> None:
    api = short()
    api.lag = True
    asked = shrinkage(5, 3)
    outcome = provider(api).decrease_target(asked)
    for _ in range(5):
        assert isinstance(outcome, InProgress)
        asked = continued(asked, outcome)
        outcome = provider(api).poll(asked)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, api.writes()) == ("Unknown", ["scale 5 default"])


def test_CCE_DANGER_1_total_of_zero_is_sent_only_for_a_pool_without_nodes() -> None:
    api = FakeCceApi(Cce([FakeApiGroup(desired=0)], desired=2))
    api.all[POOL].groups[0].desired = 2
    assert isinstance(to_the_end(api, shrinkage(2, 0)), Succeeded)
    assert (api.writes(), api.chosen) == (["scale 0 default"], [])
    api = FakeCceApi(Cce([FakeApiGroup(desired=1)]))
    refused(api, 1, 0)


def test_CCE_DANGER_1_no_change_ever_lets_the_vendor_choose_a_node() -> None:
    for first in range(4):
        for second in range(3):
            for missing in range(3):
                for goal in range(first + missing):
                    api = short(first + missing, first, second)
                    to_the_end(api, shrinkage(first + missing, goal))
                    to_the_end(api, shrinkage(second, 0, B))
                    assert not api.chosen


def test_huawei_decrease_target_waits_for_a_busy_cluster() -> None:
    api = short()
    api.cluster = "Upgrading"
    with pytest.raises(Conflict):
        provider(api).decrease_target(shrinkage(5, 3))
    assert not api.writes()
    assert operation(shrinkage(5, 3).spec.kind, A, 5, 3).spec.pool == POOL
