"""The deletion of an instance that could not be installed requests a pass,
whatever the scan interval is.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.group import InstanceError
from chalicelib.model.node import Node
from chalicelib.model.operation import OperationKind, OperationState
from chalicelib.passes.reconciler import handle
from chalicelib.runtime.messages import ReconcileMessage, encode
from tests.functional.operations.harness import POLICY, OperationHarness

ROOM = {"cpu": 2000, "memory": 8 * 2**30, "pods": 110}
BROKEN = InstanceError("InstallFailed", "Error", "the node could not be installed")


def _waits(stage: OperationHarness) -> None:
    """A pod that needs a whole node."""
    stage.pod(
        "waits", containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]
    )
    pod = stage.kube.get("pods", "waits", "default")
    assert pod is not None
    pod["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    }
    stage.kube.update("pods", pod)


def _open(stage: OperationHarness) -> list[tuple[OperationKind, str]]:
    return [
        (each.spec.kind, each.spec.group) for each in stage.store.operations.list_open(stage.name)
    ]


def _pass(stage: OperationHarness, reason: str = "webhook") -> None:
    stage.clock.advance(10)
    handle(encode(ReconcileMessage(stage.name, reason, stage.clock())).decode(), stage.runtime)


def test_CCE_A9_2_deletion_of_a_broken_instance_triggers_a_pass_within_a_minute(
    stage: OperationHarness,
) -> None:
    text = POLICY.format(name=stage.name, mode="active") + "  scanInterval: 1h\n"
    stage.store.policies.put(stage.name, text, "hourly", 1)
    group = f"g-{stage.name}"
    stage.provider.add_pool(group, template_node=Node("t", {}, ROOM, ROOM))
    stage.provider.spoil(group, BROKEN)
    _waits(stage)
    _pass(stage)
    assert _open(stage) == [(OperationKind.SCALE_UP, group)]
    stage.play()
    stage.wakes.clear()

    _pass(stage)
    backoff = stage.memory().groups[group].backoff
    assert backoff is not None
    assert (backoff.cls, backoff.duration) == ("InstallFailed", 300.0)
    assert _open(stage) == [(OperationKind.DELETE_INSTANCES, group)]
    stage.play()
    ended = stage.clock()
    assert stage.provider.pools[group].target == 0
    (again,) = stage.wakes
    assert again["reason"] == "operation"
    assert ended <= again["at"] <= ended + 60.0

    stage.clock.advance(301.0)
    handle(msgspec.json.encode(again).decode(), stage.runtime)
    assert _open(stage) == [(OperationKind.SCALE_UP, group)], (
        "still needed, and its five minutes are over"
    )
    stage.play()
    assert all(each.status.state is not OperationState.FAILED for each in stage.memory().operations)
