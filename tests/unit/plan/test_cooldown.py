"""Cooldowns of the cluster, of groups and of nodes (docs/reference/scale-down.md "Cooldowns")."""

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
def test_cooldown_that_ends_last_is_reported(memory: Memory, which: str, left: float) -> None:
    reason = Reason.of(ReasonCode.IN_COOLDOWN, which=which, until=NOW + left)
    picked = SelectionBuilderPool().group("g", 1).pick(memory, **OPTIONS)
    assert (picked.refused, picked.paused) == ({"g-e00": reason}, reason)


def test_event_that_never_happened_starts_no_cooldown() -> None:
    """0.0 means never, also where a delay is longer than the time since the epoch."""
    assert goes(
        SelectionBuilderPool().group("g", 1).pick(Memory(), scale_down_delay_after_add=NOW + 10)
    ) == ["g-e00"]


@pytest.mark.parametrize(
    "known",
    [
        GroupMemory(last_add=NOW - 599),
        GroupMemory(last_delete=NOW - 299),
        GroupMemory(last_failure=NOW - 179),
    ],
)
def test_local_cooldown_blocks_only_its_own_group(known: GroupMemory) -> None:
    picked = (
        SelectionBuilderPool()
        .group("a", 1)
        .group("b", 1)
        .pick(Memory(groups={"a": known}), **LOCAL)
    )
    assert goes(picked) == ["b-e00"]
    assert picked.refused["a-e00"].params["until"] == NOW + 1
    assert picked.paused is None, "it is not the cluster that is paused"


def test_cluster_has_no_cooldown_while_cooldowns_are_local() -> None:
    known = Memory(last_scale_up=NOW, last_scale_down=NOW, last_scale_down_failure=NOW)
    assert goes(SelectionBuilderPool().group("g", 1).pick(known, **LOCAL)) == ["g-e00"]


def test_group_has_no_cooldown_while_cooldowns_are_not_local() -> None:
    known = Memory(groups={"g": GroupMemory(last_add=NOW, last_delete=NOW, last_failure=NOW)})
    assert goes(SelectionBuilderPool().group("g", 1).pick(known, **OPTIONS)) == ["g-e00"]


def test_node_stays_until_its_own_and_the_clusters_cooldowns_end() -> None:
    options = GroupOptions(scale_down_cooldown=900.0)
    pool = SelectionBuilderPool().group("young", 1, node={"created": NOW - 899}, options=options)
    pool.group("old", 1, node={"created": NOW - 900}, options=options).group(
        "other", 1, node={"created": NOW - 10}
    )
    picked = pool.pick()
    assert goes(picked) == ["old-e00", "other-e00"]
    assert picked.refused == {"young-e00": Reason.of(ReasonCode.NODE_COOLDOWN, until=NOW + 1)}
    assert why(pool.pick(Memory(last_scale_up=NOW - 1))) == {
        ReasonCode.NODE_COOLDOWN,
        ReasonCode.IN_COOLDOWN,
    }


def test_node_created_in_the_future_by_clock_skew_is_protected_only_by_a_cooldown() -> None:
    pool = SelectionBuilderPool().group("g", 1, node={"created": NOW + 60})
    assert goes(pool.pick()) == ["g-e00"]


def test_group_in_cooldown_uses_no_room_above_a_minimum() -> None:
    pool = SelectionBuilderPool().group("a", 1).group("b", 1).group("c", others=1)
    picked = pool.pick(Memory(groups={"a": GroupMemory(last_add=NOW)}), cores_total=(2, 9), **LOCAL)
    assert goes(picked) == ["b-e00"]
