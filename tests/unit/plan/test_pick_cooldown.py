"""Cooldowns of the cluster, of groups, and of nodes (scale-down.md §1, state.md §8, huaweicloud-cce.md A8.6, A8.8)."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.group import GroupOptions
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.reason import Reason, ReasonCode
from tests.builders import NOW
from tests.unit.plan.selection_builder import SelectionBuilderPool, goes, why

OPTIONS: dict[str, Any] = {
    "scale_down_delay_after_add": 600.0,
    "scale_down_delay_after_delete": 300.0,
    "scale_down_delay_after_failure": 180.0,
}
LOCAL: dict[str, Any] = {**OPTIONS, "scale_down_delay_type_local": True}


@pytest.mark.parametrize(
    ("memory", "which", "left"),
    [
        (Memory(last_scale_up=NOW - 500), "scaleDownDelayAfterAdd", 100),
        (Memory(last_scale_down=NOW - 200), "scaleDownDelayAfterDelete", 100),
        (Memory(last_scale_down_failure=NOW - 80), "scaleDownDelayAfterFailure", 100),
        (
            Memory(last_scale_up=NOW - 500, last_scale_down=NOW - 1, last_scale_down_failure=NOW),
            "scaleDownDelayAfterDelete",
            299,
        ),
    ],
)
def test_the_one_that_ends_last_is_told(memory: Memory, which: str, left: float) -> None:
    reason = Reason.of(ReasonCode.IN_COOLDOWN, which=which, until=NOW + left)
    picked = SelectionBuilderPool().group("g", 1).pick(memory, **OPTIONS)
    assert (picked.held, picked.paused) == ({"g-e00": reason}, reason)


def test_what_never_happened_is_no_cooldown() -> None:
    """0.0 is never, also where a delay is longer than the age of the epoch."""
    assert goes(SelectionBuilderPool().group("g", 1).pick(Memory(), scale_down_delay_after_add=NOW + 10)) == ["g-e00"]


@pytest.mark.parametrize(
    "known",
    [
        GroupMemory(last_add=NOW - 599),
        GroupMemory(last_delete=NOW - 299),
        GroupMemory(last_failure=NOW - 179),
    ],
)
def test_local_cooldowns_hold_their_own_group_only(known: GroupMemory) -> None:
    picked = SelectionBuilderPool().group("a", 1).group("b", 1).pick(Memory(groups={"a": known}), **LOCAL)
    assert goes(picked) == ["b-e00"]
    assert picked.held["a-e00"].params["until"] == NOW + 1
    assert picked.paused is None, "it is not the cluster that is paused"


def test_with_local_cooldowns_none_is_the_clusters() -> None:
    known = Memory(last_scale_up=NOW, last_scale_down=NOW, last_scale_down_failure=NOW)
    assert goes(SelectionBuilderPool().group("g", 1).pick(known, **LOCAL)) == ["g-e00"]


def test_without_local_cooldowns_a_group_has_none() -> None:
    known = Memory(groups={"g": GroupMemory(last_add=NOW, last_delete=NOW, last_failure=NOW)})
    assert goes(SelectionBuilderPool().group("g", 1).pick(known, **OPTIONS)) == ["g-e00"]


def test_a_node_is_protected_until_it_is_old_enough_and_the_clusters_cooldowns_are_over() -> None:
    options = GroupOptions(scale_down_cooldown=900.0)
    pool = SelectionBuilderPool().group("young", 1, node={"created": NOW - 899}, options=options)
    pool.group("old", 1, node={"created": NOW - 900}, options=options).group("other", 1, node={"created": NOW - 10})
    picked = pool.pick()
    assert goes(picked) == ["old-e00", "other-e00"]
    assert picked.held == {"young-e00": Reason.of(ReasonCode.NODE_COOLDOWN, until=NOW + 1)}
    assert why(pool.pick(Memory(last_scale_up=NOW - 1))) == {ReasonCode.NODE_COOLDOWN, ReasonCode.IN_COOLDOWN}


def test_a_node_that_a_skewed_clock_made_tomorrow_is_protected_by_a_cooldown_only() -> None:
    pool = SelectionBuilderPool().group("g", 1, node={"created": NOW + 60})
    assert goes(pool.pick()) == ["g-e00"]


def test_a_group_in_its_cooldown_leaves_the_room_above_a_minimum_to_others() -> None:
    pool = SelectionBuilderPool().group("a", 1).group("b", 1).group("c", others=1)
    picked = pool.pick(Memory(groups={"a": GroupMemory(last_add=NOW)}), cores_total=(2, 9), **LOCAL)
    assert goes(picked) == ["b-e00"]
