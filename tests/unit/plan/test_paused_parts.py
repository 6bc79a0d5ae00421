"""Pauses of growth, removals and single groups in a plan (docs/runbook.md "Pauses")."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import Memory, NodeMemory
from chalicelib.model.pause import Pause, PausedPart
from chalicelib.model.plan import Plan
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from tests.builders import NOW, OLD, ClusterBuilder, cluster, growth, node
from tests.unit.plan.instances_builder import anchored, seen, with_machines

END = NOW + 3600
ALL, GROWTH, REMOVALS = PausedPart.ALL, PausedPart.GROWTH, PausedPart.REMOVALS


def crowded() -> ClusterBuilder:
    """Groups a and b have an idle node each, which has been unneeded for long. A pod
    fits only on new nodes of c."""
    build = cluster()
    for group in ("a", "b"):
        build.node(f"{group}-busy", "4", group=group).node(f"{group}-idle", "1", group=group)
        build.running(f"{group}-busy", 1, "3500m", owner=f"work-{group}")
        build.group(group, max=2)
    return build.pending(1, "6").group("c", max=5, template=node("c-new", "8"))


def planned(*pauses: Pause, **options: Any) -> tuple[Plan, Memory]:
    policy = Policy(
        name="test",
        mode=Mode.ACTIVE,
        options=msgspec.structs.replace(Options(scale_down_delay_after_add=0.0), **options),
        pauses=pauses,
    )
    known = {
        f"{group}-idle": NodeMemory(unneeded_since=OLD, confirmed_at=NOW - 60)
        for group in ("a", "b")
    }
    return plan_cluster(crowded().snapshot(), policy, Memory(nodes=known), NOW, 0)


@pytest.mark.parametrize(
    ("pause", "grows", "removed"),
    [
        pytest.param(None, True, {"a-idle", "b-idle"}, id="none"),
        pytest.param((GROWTH, ""), False, {"a-idle", "b-idle"}, id="growth"),
        pytest.param((REMOVALS, ""), True, set(), id="removals"),
        pytest.param((ALL, "a"), True, {"b-idle"}, id="group"),
        pytest.param((ALL, "c"), False, {"a-idle", "b-idle"}, id="group-that-would-grow"),
        pytest.param((REMOVALS, "b"), True, {"a-idle"}, id="removals-of-a-group"),
        pytest.param(
            (ALL, ""), True, {"a-idle", "b-idle"}, id="whole-cluster-is-planned-as-before"
        ),
    ],
)
def test_pause_keeps_its_part_of_the_cluster_unchanged(
    pause: tuple[PausedPart, str] | None, grows: bool, removed: set[str]
) -> None:
    pauses = (Pause(END, NOW, *pause, "release"),) if pause else ()
    plan, after = planned(*pauses)
    assert bool(growth(plan)) is grows
    assert {each.node for each in plan.removals} == removed
    assert {"a-idle", "b-idle"} <= set(plan.unneeded) | removed  # timers go on
    assert removed or after.nodes["a-idle"].unneeded_since == OLD


def test_paused_objects_name_the_pause_its_end_and_its_reason() -> None:
    plan, _ = planned(
        Pause(END, NOW, ALL, "a", "disk swap"), Pause(END, NOW, REMOVALS, "", "release")
    )
    verdict = next(each for each in plan.groups if each.group == "a")
    assert verdict.skipped is not None
    assert (verdict.skipped.code, verdict.skipped.params["detail"]) == (
        ReasonCode.PAUSED,
        "disk swap",
    )
    stays = next(each for each in plan.unremovable if each.node == "b-idle")
    assert stays.reason.params == {"what": "removals", "until": END, "detail": "release"}
    assert plan.paused is not None
    assert plan.paused.code is ReasonCode.PAUSED


def test_paused_growth_stops_minimums_and_paused_removals_stop_repairs() -> None:
    build = with_machines(anchored().node("n", "4", group="g"), "g", 1, target=4)
    build.node("m", "4", group="h").group("h", min=3)
    late, options = seen(build, 7200.0), Options(enforce_node_group_min_size=True)
    free, _ = plan_cluster(build.snapshot(), Policy(name="test", options=options), late, NOW, 0)
    assert (growth(free), [each.group for each in free.repairs]) == ({"h": (2, 0)}, ["g"])
    pauses = (Pause(END, NOW, GROWTH), Pause(END, NOW, REMOVALS))
    held, _ = plan_cluster(
        build.snapshot(), Policy(name="test", options=options, pauses=pauses), late, NOW, 0
    )
    assert (held.scale_ups, held.repairs, held.removals, held.operations) == ((), (), (), ())
