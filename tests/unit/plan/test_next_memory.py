"""Memory for the next pass: data that this pass could not read is kept."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import BreakerState, GroupMemory, Memory, NodeMemory
from chalicelib.plan.next_memory import next_memory
from chalicelib.plan.removal.removal_planner import DisruptionPlan
from chalicelib.plan.scale_up.scale_up_planner import ScaleUpPlan
from tests.builders import NOW, OLD, ClusterBuilder, cluster
from tests.unit.plan.instances_builder import HOUR, anchored, filled, seen, with_machines, world_of


def _changed(build: ClusterBuilder, **fields: object) -> ClusterBuilder:
    build.groups[0] = msgspec.structs.replace(build.groups[0], **fields)
    return build


def test_unregistered_instance_keeps_its_first_seen_time() -> None:
    build = with_machines(anchored(), "g", 2)
    known = Memory(unregistered={"test://g/m-0": NOW - 500, "joined": NOW - 500})
    assert build.decide(known)[1].unregistered == {"test://g/m-0": NOW - 500, "test://g/m-1": NOW}


def test_first_seen_time_in_the_future_is_a_clock_error() -> None:
    build = with_machines(anchored(), "g", 1)
    assert build.decide(seen(build, -HOUR))[1].unregistered == {"test://g/m-0": NOW}


@pytest.mark.parametrize("lost", ["error", "group"])
def test_unregistered_instances_of_an_unreadable_group_keep_their_first_seen_time(
    lost: str,
) -> None:
    build = with_machines(anchored(), "g", 1)
    known = msgspec.structs.replace(seen(build, 500), groups={"g": GroupMemory(target=1)})
    known.unregistered["of long ago"] = NOW - 30 * HOUR
    unread = _changed(build, error="403", instances=())
    if lost == "group":
        unread.groups = [NodeGroup("other", "test")]
    after = unread.decide(known)[1]
    assert after.unregistered == {"test://g/m-0": NOW - 500}
    assert after.groups["g"] == known.groups["g"]


def test_nodes_of_an_unreadable_provider_keep_their_timers() -> None:
    build = filled(anchored(), "g", 1)
    known = Memory(
        groups={"g": GroupMemory(target=1)},
        nodes={
            "g-0": NodeMemory(unneeded_since=OLD, confirmed_at=NOW - 60),
            "gone": NodeMemory(OLD, NOW),
        },
    )
    after = build.decide(known)[1]
    assert after.nodes == {"g-0": NodeMemory(unneeded_since=OLD + 60, confirmed_at=NOW)}, (
        "paused, not wiped"
    )
    assert build.group("g").decide(known)[1].nodes["g-0"].unneeded_since == OLD


def test_nodes_without_a_group_have_no_timer_if_everything_was_read() -> None:
    build = filled(anchored(), "g", 1).group("other")
    known = Memory(nodes={"g-0": NodeMemory(unneeded_since=OLD, confirmed_at=NOW - 60)})
    assert build.decide(known)[1].nodes == {}


def test_size_mismatch_is_remembered_while_the_group_is_unreadable() -> None:
    known = Memory(groups={"g": GroupMemory(size_wrong=(1, 3), size_wrong_since=NOW - 500)})
    build = _changed(cluster().group("g", target=9), error="no answer")
    assert build.decide(known)[1].groups["g"] == known.groups["g"]


def test_next_memory_takes_breaker_state_from_scale_down() -> None:
    brake = BreakerState(removals=((NOW - 60, 1, 2),))
    shrinkage = DisruptionPlan((), (), (), {}, breaker=brake)
    assert (
        next_memory(world_of(cluster()), ScaleUpPlan((), (), (), (), (), ()), shrinkage).breaker
        == brake
    )


def test_storing_memory_between_passes_does_not_change_the_plans() -> None:
    build = with_machines(filled(anchored(), "g", 1), "g", 2, target=5).running("g-0", 1, "900m")
    straight = stored = Memory()
    for step in range(40):
        first, straight = build.decide(straight, now=NOW + 60 * step)
        second, stored = build.decide(
            msgspec.json.decode(msgspec.json.encode(stored), type=Memory), now=NOW + 60 * step
        )
        assert first == second
    assert straight == stored
    assert first.repairs, "by then the two machines are late"
