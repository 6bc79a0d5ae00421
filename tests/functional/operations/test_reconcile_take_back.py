"""A cluster that is switched to a mode which does not act takes back the soft taints that
its passes have written.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from chalicelib.model.node import DELETION_CANDIDATE
from chalicelib.model.pause import Pause
from chalicelib.passes import scan_scheduler
from chalicelib.passes.reconciler import handle
from chalicelib.runtime.messages import ReconcileMessage, encode
from tests.functional.operations.harness import OperationHarness

ROOM = {"cpu": "4", "memory": "8Gi", "pods": "110"}
FOREIGN = {"key": DELETION_CANDIDATE, "value": "1795245000", "effect": "PreferNoSchedule"}
OTHER = {"key": "kept", "value": "x", "effect": "NoSchedule"}


def run_pass(stage: OperationHarness, reason: str = "person") -> None:
    """A pass ten seconds later."""
    stage.clock.advance(10)
    handle(encode(ReconcileMessage(stage.name, reason, stage.clock())).decode(), stage.runtime)


def add_taints(stage: OperationHarness, name: str, *taints: dict[str, str]) -> None:
    """Adds taints to a node, as another program does."""
    node = stage.kube.get("nodes", name)
    assert node is not None
    node["spec"]["taints"] = [*node["spec"].get("taints", []), *taints]
    stage.kube.update("nodes", node)


def soft(stage: OperationHarness) -> set[str]:
    """The nodes with a soft taint."""
    return {
        node["metadata"]["name"]
        for node in stage.kube.list("nodes")
        if any(taint["key"] == DELETION_CANDIDATE for taint in node["spec"].get("taints", []))
    }


@pytest.fixture
def marked(stage: OperationHarness) -> OperationHarness:
    """A cluster whose passes have acted: g-2, g-3 and g-4 are unneeded and marked,
    g-1 by another autoscaler."""
    stage.group(4)
    for number in range(1, 5):
        node = stage.kube.get("nodes", f"g-{number}")
        assert node is not None
        ready = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": ROOM,
            "capacity": ROOM,
        }
        stage.kube.update("nodes", {**node, "status": ready})
    add_taints(stage, "g-1", FOREIGN)
    add_taints(stage, "g-2", OTHER)
    for _ in range(3):
        run_pass(stage)
    assert soft(stage) == {"g-1", "g-2", "g-3", "g-4"}
    return stage


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_soft_taints_are_taken_back_in_one_pass_after_the_switch(
    marked: OperationHarness, mode: str
) -> None:
    marked.policy(mode)
    run_pass(marked)
    assert soft(marked) == {"g-1"}, "another autoscaler's stays"
    node = marked.kube.get("nodes", "g-2")
    assert node is not None
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["kept"]


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_soft_taints_are_taken_back_once(marked: OperationHarness, mode: str) -> None:
    marked.policy(mode)
    run_pass(marked)
    add_taints(marked, "g-3", FOREIGN)  # now by the autoscaler that has taken over
    for _ in range(3):
        run_pass(marked)
    assert soft(marked) == {"g-1", "g-3"}
    assert not any(node.soft_tainted for node in marked.memory().nodes.values())


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_soft_taints_of_a_cluster_that_is_active_again_are_taken_back_again(
    marked: OperationHarness, mode: str
) -> None:
    marked.policy(mode)
    run_pass(marked)
    marked.policy("active")
    for _ in range(2):
        run_pass(marked)
    assert soft(marked) == {"g-1", "g-2", "g-3", "g-4"}
    marked.policy(mode)
    run_pass(marked)
    assert soft(marked) == {"g-1"}


def test_soft_taint_of_a_node_with_a_removal_taint_is_taken_back_too(
    marked: OperationHarness,
) -> None:
    add_taints(
        marked,
        "g-3",
        {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"},
    )
    marked.policy("off")
    run_pass(marked)
    assert soft(marked) == {"g-1"}


def test_node_that_is_gone_does_not_keep_the_others_from_being_taken_back(
    marked: OperationHarness,
) -> None:
    marked.kube.remove("nodes", "g-2")
    marked.policy("off")
    run_pass(marked)
    assert soft(marked) == {"g-1"}


def test_paused_cluster_keeps_its_soft_taints(marked: OperationHarness) -> None:
    marked.store.pauses.change(
        marked.name, lambda _: (Pause(marked.clock() + 3600.0, reason="a test"),)
    )
    run_pass(marked)
    assert soft(marked) == {"g-1", "g-2", "g-3", "g-4"}


def test_passes_in_shadow_that_never_acted_change_no_node(stage: OperationHarness) -> None:
    stage.policy("shadow")
    stage.group(2)
    add_taints(stage, "g-1", FOREIGN)
    for _ in range(3):
        run_pass(stage)
    assert soft(stage) == {"g-1"}


def test_schedule_that_switches_a_cluster_off_takes_its_soft_taints_back(
    marked: OperationHarness,
) -> None:
    current = marked.store.policies.current(marked.name)
    assert current is not None
    opens = datetime.fromtimestamp(marked.clock() + 120.0, UTC)
    schedule = (
        f"{{name: night, cron: '{opens.minute} {opens.hour} * * *', duration: 1h, mode: 'off'}}"
    )
    text = current.text + f"  schedules: [{schedule}]\n"
    marked.store.policies.put(marked.name, text, "with a schedule", current.version)
    marked.clock.advance(120.0 - marked.clock() % 60.0)
    marked.wakes.clear()
    for _ in range(5):
        scan_scheduler.run(marked.runtime)
        for message in [message for message in marked.wakes if message["reason"] == "operation"]:
            handle(
                encode(ReconcileMessage(marked.name, "operation", message["at"])).decode(),
                marked.runtime,
            )
        marked.wakes.clear()
        marked.clock.advance(60.0)
    assert soft(marked) == {"g-1"}
