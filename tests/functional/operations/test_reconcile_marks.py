"""Marks of nodes that leave, over whole passes: operations do not wait for them, a pause keeps
them, and a mode that does not act takes them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from chalicelib.cluster.client import KubeClient
from chalicelib.model.memory import Horizon, Memory, NodeMemory
from chalicelib.model.node import DELETION_CANDIDATE, LEAVING_MARKS, SCALE_DOWN_DISABLED
from chalicelib.model.pause import Pause
from chalicelib.model.plan import TaintUpdate
from chalicelib.passes import soft_taints
from chalicelib.passes.reconciler import handle
from chalicelib.plan.removal import removal_planner
from chalicelib.runtime.messages import ReconcileMessage, encode
from tests.functional.operations.harness import OperationHarness

ROOM = {"cpu": "4", "memory": "8Gi", "pods": "110"}
LEVELS = {"g-1": 1, "g-2": 2, "g-4": 1}
FOREIGN = {"key": DELETION_CANDIDATE, "value": "1795245000", "effect": "PreferNoSchedule"}


class Steering:
    """levels: of the horizon that stands."""

    def __init__(self) -> None:
        self.levels = dict(LEVELS)

    def horizon(self, *_: object) -> Horizon:
        return Horizon("h1", 1.0, self.levels, tuple(self.levels), 1)


@pytest.fixture
def steering(monkeypatch: pytest.MonkeyPatch) -> Steering:
    made = Steering()
    monkeypatch.setattr(removal_planner, "_horizon", made.horizon)
    return made


def run_pass(stage: OperationHarness, reason: str = "person") -> None:
    """A pass ten seconds later."""
    stage.clock.advance(10)
    handle(encode(ReconcileMessage(stage.name, reason, stage.clock())).decode(), stage.runtime)


def levels(stage: OperationHarness) -> dict[str, int]:
    """Node -> number of its marks, where it has any."""
    counts = {
        node["metadata"]["name"]: sum(
            taint["key"] in LEAVING_MARKS for taint in node["spec"].get("taints", [])
        )
        for node in stage.kube.list("nodes")
    }
    return {name: count for name, count in sorted(counts.items()) if count}


def noted(stage: OperationHarness) -> list[str]:
    return sorted(name for name, node in stage.memory().nodes.items() if node.marked)


def taint_keys(stage: OperationHarness, name: str) -> list[str]:
    node = stage.kube.get("nodes", name)
    assert node is not None
    return [taint["key"] for taint in node["spec"].get("taints", [])]


def with_taints(stage: OperationHarness, name: str, *taints: dict[str, str]) -> None:
    node = stage.kube.get("nodes", name)
    assert node is not None
    node["spec"]["taints"] = [*node["spec"].get("taints", []), *taints]
    stage.kube.update("nodes", node)


@pytest.fixture
def marked(stage: OperationHarness, steering: Steering) -> OperationHarness:
    """A cluster whose passes have marked g-1, g-2 and g-4; g-1 has the soft taint of
    another autoscaler, too."""
    stage.group(4)
    for number in range(1, 5):
        node = stage.kube.get("nodes", f"g-{number}")
        assert node is not None
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        status = {**ready, "allocatable": ROOM, "capacity": ROOM}
        stage.kube.update("nodes", {**node, "status": status})
    with_taints(stage, "g-1", FOREIGN)
    run_pass(stage)
    run_pass(stage)
    assert levels(stage) == LEVELS
    assert noted(stage) == list(LEVELS)
    return stage


def test_a_pass_marks_nodes_and_takes_off_what_the_horizon_does_not_want(
    marked: OperationHarness, steering: Steering
) -> None:
    steering.levels = {"g-2": 1}
    run_pass(marked)
    assert levels(marked) == {"g-2": 1}
    run_pass(marked)
    assert noted(marked) == ["g-2"]


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_steer_7_marks_are_taken_back_after_the_switch_and_nothing_else(
    marked: OperationHarness, mode: str
) -> None:
    marked.policy(mode)
    run_pass(marked)
    assert levels(marked) == {}
    assert taint_keys(marked, "g-1") == [DELETION_CANDIDATE], "another autoscaler's stays"
    assert noted(marked) == []
    with_taints(marked, "g-3", {"key": LEAVING_MARKS[0], "effect": "PreferNoSchedule"})
    run_pass(marked)
    assert levels(marked) == {"g-3": 1}, "nothing is written that no pass has noted"


def test_steer_16_passes_in_shadow_write_no_mark(
    stage: OperationHarness, steering: Steering
) -> None:
    stage.policy("shadow")
    stage.group(4)
    for _ in range(3):
        run_pass(stage)
    assert levels(stage) == {}
    assert noted(stage) == []


def test_steer_7_a_pause_keeps_marks(marked: OperationHarness, steering: Steering) -> None:
    until = marked.clock() + 3600.0
    marked.store.pauses.change(marked.name, lambda _: (Pause(until, reason="a test"),))
    steering.levels = {}
    for _ in range(3):
        run_pass(marked)
    assert levels(marked) == LEVELS
    assert noted(marked) == list(LEVELS)


def test_steer_7_the_switch_to_off_goes_on_until_all_marks_are_gone(
    stage: OperationHarness,
) -> None:
    names = [f"n-{number:03d}" for number in range(400)]
    for name in names:
        stage.kube.create("nodes", {"metadata": {"name": name}})
        with_taints(stage, name, {"key": LEAVING_MARKS[0], "effect": "PreferNoSchedule"})
    stage.group(1)
    run_pass(stage)
    memory = stage.memory()
    notes = dict.fromkeys(names, NodeMemory(marked=True))
    lease = stage.store.leases.acquire(stage.name, "a test", 30.0)
    stage.store.memory.save(
        stage.name, memory, msgspec.structs.replace(memory, nodes=notes), (), lease
    )
    stage.store.leases.release(lease)
    stage.policy("off")
    stage.wakes.clear()
    run_pass(stage)
    assert 50 <= len(levels(stage)) < 200
    assert [wake["reason"] for wake in stage.wakes] == ["operation"]
    stage.wakes.clear()
    run_pass(stage, "operation")
    assert (levels(stage), stage.wakes) == ({}, [])


def test_steer_23_operations_are_sent_before_marks_are_written(
    marked: OperationHarness, steering: Steering, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent_before: list[int] = []
    apply = soft_taints.apply

    def noting(marks: Sequence[TaintUpdate], kube: KubeClient, *rest: Any) -> Any:
        sent_before.append(len(marked.sent))
        return apply(marks, kube, *rest)

    monkeypatch.setattr(soft_taints, "apply", noting)
    node = marked.kube.get("nodes", "g-3")
    assert node is not None
    node["metadata"]["annotations"] = {SCALE_DOWN_DISABLED: "true"}
    marked.kube.update("nodes", node)
    marked.clock.advance(600)
    steering.levels = {"g-3": 1}
    run_pass(marked)
    targets = [
        target.node
        for operation in marked.store.operations.list_open(marked.name)
        for target in operation.spec.targets
    ]
    assert sorted(targets) == ["g-1", "g-2", "g-4"]
    assert sent_before == [len(targets)]
    assert levels(marked) == {**LEVELS, "g-3": 1}, "nodes that go keep their marks"


def test_steer_2_a_pass_killed_before_it_marks_notes_all_it_was_about_to_write(
    marked: OperationHarness, steering: Steering
) -> None:
    steering.levels = {"g-1": 1, "g-3": 3}
    marked.die_at("reconcile:saved")
    with pytest.raises(BaseException, match="reconcile:saved"):
        run_pass(marked)
    assert levels(marked) == LEVELS
    assert noted(marked) == ["g-1", "g-2", "g-3", "g-4"]
    marked.clock.advance(60)
    run_pass(marked)
    assert levels(marked) == {"g-1": 1, "g-3": 3}


def test_marks_survive_a_reload_of_memory(marked: OperationHarness) -> None:
    loaded: Memory = marked.memory()
    assert {name for name, node in loaded.nodes.items() if node.marked} == set(LEVELS)
