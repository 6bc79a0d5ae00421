"""Marks and drains of a horizon, pass by pass (docs/reference/consolidation.md "Horizon")."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.pause import Pause, PausedPart
from chalicelib.model.reason import ReasonCode
from chalicelib.policy.settings.consolidation import ConsolidationMode, Steering
from tests.builders import ZONE, ClusterBuilder, even, having
from tests.unit.plan.consolidation_fixture import TYPE, P, grouped, machines, pods
from tests.unit.plan.steering_stage import ONE_AT_A_TIME, SteeringStage, halves, pool_of, steering

GIB = 2**30
HOUR = 3600.0


def first_removal(stage: SteeringStage) -> int:
    """The number of the pass that begins the first drain."""
    return next(at for at, nodes in enumerate(stage.removals) if nodes)


def test_steer_1_all_nodes_that_go_are_marked_before_the_first_drain() -> None:
    stage = SteeringStage(pool_of(halves()), steering(more=ONE_AT_A_TIME)).play()
    going = stage.going
    assert (len(going), stage.removals) == (19, [[]])
    assert stage.updates == [dict.fromkeys(going, 1)] == [stage.marked]
    stage.play(19)
    assert sorted(name for nodes in stage.removals for name in nodes) == going
    assert [len(update) for update in stage.updates[1:]] == [0] * 19, "each is written once"


def test_steer_1_pods_move_once_and_only_to_nodes_that_stay() -> None:
    stage = SteeringStage(pool_of(halves()), steering(more=ONE_AT_A_TIME)).play()
    going = set(stage.going)
    stage.play(19)
    moved = [move.pod for move in stage.world.moves]
    places = {pod.node for pod in stage.world.snapshot().pods}
    assert (len(moved), len(set(moved)), stage.world.pending_minutes) == (76, 76, 0)
    assert not places & going


def test_steer_2_pass_after_a_killed_one_writes_the_rest_of_the_marks_first() -> None:
    stage = SteeringStage(pool_of(halves()))
    stage.world.most = 9
    stage.play(2)
    assert [len(update) for update in stage.updates] == [19, 10]
    stage.world.most = None
    stage.play(2)
    assert [len(update) for update in stage.updates] == [19, 10, 1, 0]
    assert first_removal(stage) == 3, "the last mark is seen by the pass that drains"


def test_steer_2_nodes_that_refuse_their_marks_stay_and_the_others_go() -> None:
    leaving = SteeringStage(pool_of(halves(86))).play().going
    stage = SteeringStage(pool_of(halves(86)))
    stage.world.refusing = set(leaving[:3])
    stage.play()
    going = set(stage.going)
    assert (len(going), going >= stage.world.refusing) == (40, True)
    stage.play(5)
    assert (first_removal(stage), set(stage.removals[3])) == (3, going - stage.world.refusing)
    assert [len(update) for update in stage.updates[:4]] == [40, 3, 3, 0], "tried three times"
    stage.play(60).play(20, HOUR)
    removed = {name for nodes in stage.removals for name in nodes}
    assert not removed & stage.world.refusing, "their room lets others go"
    assert not {name for update in stage.updates[3:] for name in update} & stage.world.refusing


def scarce_zone() -> ClusterBuilder:
    """Nodes half empty, 30 in zone a and 10 in zone b; ten pods are spread over both."""
    build = machines({})
    for name in halves():
        zone = "b" if name >= "n-30" else "a"
        build.node(name, "4", "16Gi", group="m", labels={TYPE: "m"}, zone=zone)
        build.running(name, 4, *P)
    for at in range(5):
        for name in (f"n-{at:02d}", f"n-{30 + at:02d}"):
            build.running(name, 1, *P, owner="db", spread=(even(ZONE, having(app="db")),))
    return grouped(build, grows=())


def test_steer_4_room_of_a_scarce_zone_is_kept_for_pods_that_may_be_nowhere_else() -> None:
    stage = SteeringStage(scarce_zone(), steering(more=ONE_AT_A_TIME)).play()
    going = set(stage.going)
    levels = stage.marked
    in_b = {f"n-{at:02d}" for at in range(30, 40)}
    assert {name: levels.get(name) for name in in_b - going} == dict.fromkeys(in_b - going, 2)
    assert {name: levels[name] for name in in_b & going} == dict.fromkeys(in_b & going, 3)
    assert {levels[name] for name in going - in_b} == {3}
    assert in_b - going
    stage.play(60)
    assert (stage.world.pending_minutes, len(stage.world.bought)) == (0, 0)
    assert {name for nodes in stage.removals for name in nodes} >= going


def emptier_last() -> ClusterBuilder:
    """Nodes with six pods, and behind them nodes with one, which go."""
    full = {f"a-{at:02d}": ("m", pods(6)) for at in range(30)}
    empty = {f"z-{at:02d}": ("m", pods(1)) for at in range(20)}
    return pool_of(full | empty)


def test_steer_5_new_pod_that_fits_no_node_that_stays_lands_on_a_marked_one() -> None:
    build = emptier_last()
    large = build.cls("3", "12Gi", owner="large")
    stage = SteeringStage(build, steering(mode=ConsolidationMode.FULL, more=ONE_AT_A_TIME)).play(2)
    going = set(stage.going)
    pod = build.pods[0]
    stage.world.add_pod(
        msgspec.structs.replace(
            pod, name="large", uid="large", cls=large, node="", phase="Pending", scheduled="False"
        )
    )
    stage.world.bind()
    [place] = [pod.node for pod in stage.world.snapshot().pods if pod.name == "large"]
    assert place in going
    stage.play(40).play(24, HOUR)
    [place] = [pod.node for pod in stage.world.snapshot().pods if pod.name == "large"]
    assert (stage.world.bought, stage.world.pending_minutes) == ([], 0)
    assert place not in stage.marked


def test_steer_6_marked_node_with_a_pod_that_blocks_for_ever_stays_without_its_mark() -> None:
    build = pool_of(halves())
    blocking = build.cls(*P, owner="rs", safe_to_evict="false")
    stage = SteeringStage(build, steering(more=ONE_AT_A_TIME)).play(2)
    name = stage.going[-1]
    pod = next(pod for pod in stage.world.snapshot().pods if pod.node == name)
    stage.world.add_pod(msgspec.structs.replace(pod, cls=blocking))
    stage.play()
    assert (name in stage.going, stage.updates[-1]) == (False, {name: 0})
    stage.play(40)
    assert name not in stage.marked
    assert name in {node.name for node in stage.world.snapshot().nodes}
    assert len(set(stage.ids[:18])) == 1, "one node more does not make another horizon"


@pytest.mark.parametrize(
    "changes",
    [
        {"steering": Steering.OFF},
        {"mode": ConsolidationMode.OFF},
        {"mode": ConsolidationMode.SHADOW},
        {"options": {"max_bulk_soft_taint_count": 0}},
    ],
    ids=["steering", "mode", "shadow", "no soft taints"],
)
def test_steer_7_marks_go_when_nodes_are_no_longer_steered(changes: dict[str, Any]) -> None:
    stage = SteeringStage(pool_of(halves()), steering(more=ONE_AT_A_TIME)).play(2)
    marked = set(stage.marked)
    stage.obey(steering(**{"mode": ConsolidationMode.REMOVE, **changes}, more=ONE_AT_A_TIME))
    stage.play()
    assert stage.updates[-1] == dict.fromkeys(marked, 0)
    assert (len(marked) >= 18, stage.marked) == (True, {})
    stage.play(20)
    assert stage.marked == {}


def test_steer_7_pause_keeps_the_marks() -> None:
    stage = SteeringStage(pool_of(halves()), steering(more=ONE_AT_A_TIME)).play(2)
    marked = stage.marked
    pauses = (Pause(stage.world.now + 48 * HOUR, part=PausedPart.REMOVALS),)
    stage.obey(steering(more={**ONE_AT_A_TIME, "pauses": pauses}))
    stage.play(20).play(30, HOUR)
    assert (stage.marked, stage.updates[2:]) == (marked, [{}] * 50)
    assert stage.removals[2:] == [[]] * 50
    stage.obey(steering(more=ONE_AT_A_TIME))
    stage.play()
    assert (stage.removals[-1][0] in marked, stage.updates[-1]) == (True, {})


def test_steer_8_stripped_marks_are_noted_and_written_no_more_while_moves_go_on() -> None:
    stage = SteeringStage(pool_of(halves(84)), steering(more=ONE_AT_A_TIME))
    stage.world.most = 0
    stage.play(60)
    written = [at for at, update in enumerate(stage.updates) if update]
    noted = [at for at, notes in enumerate(stage.notes(ReasonCode.MARKS_MISSING)) if notes]
    assert written == [0, 1, 2]
    assert (noted[0], first_removal(stage)) == (3, 3)
    assert sum(map(len, stage.removals)) >= 39
    assert stage.world.pending_minutes == 0
