"""Settings of a pass that come from its policy and its function: the planning time, the recording
of decisions, and the namespace of the priority ConfigMap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chalicelib.model.node import Node
from chalicelib.model.operation import OperationKind
from chalicelib.passes.reconciler import DECIDED_WITHIN, RECORDED_WITHIN, handle
from chalicelib.runtime.messages import ReconcileMessage, encode
from tests.functional.operations.harness import POLICY, OperationHarness

OBSERVED, SAVED = "reconcile:observed", "reconcile:saved"


def _group(stage: OperationHarness, name: str) -> None:
    """An empty group whose nodes have its name as a label. Its name is unique, because groups
    belong to one cluster and all tests share a table."""
    room = {"cpu": 4000, "memory": 8 * 2**30, "pods": 110}
    stage.provider.add_pool(
        f"{name}-{stage.name}", template_node=Node(name, {"of": name}, room, room)
    )


def _pending(stage: OperationHarness, name: str, **spec: Any) -> None:
    stage.pod(name, **spec)
    pod = stage.kube.get("pods", name, "default")
    assert pod is not None
    pod["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    }
    stage.kube.update("pods", pod)


def _options(stage: OperationHarness, options: str) -> None:
    """Sets the policy's options."""
    _spec(stage, f"options: {{{options}}}")


def _spec(stage: OperationHarness, line: str) -> None:
    """Adds a line to the policy's spec."""
    text = POLICY.format(name=stage.name, mode="active") + f"  {line}\n"
    current = stage.store.policies.current(stage.name)
    assert current is not None
    stage.store.policies.put(stage.name, text, line, current.version)


def _grown(stage: OperationHarness) -> list[str]:
    """The groups that a pass in ten seconds scales up."""
    stage.clock.advance(10)
    handle(encode(ReconcileMessage(stage.name, "webhook", stage.clock())).decode(), stage.runtime)
    operations = stage.store.operations.list_open(stage.name)
    return sorted(
        o.spec.group.removesuffix(f"-{stage.name}")
        for o in operations
        if o.spec.kind == OperationKind.SCALE_UP
    )


def _reading_takes(seconds: float) -> Callable[[OperationHarness], None]:
    return lambda stage: stage.at_checkpoint.update(
        {OBSERVED: lambda: stage.clock.advance(seconds)}
    )


def _every_look_at_the_clock_takes(seconds: float) -> Callable[[OperationHarness], None]:
    def slow(stage: OperationHarness) -> None:
        def clock() -> float:
            if OBSERVED in stage.checkpoints:
                stage.clock.advance(seconds)
            return stage.clock()

        stage.replace(clock=clock)

    return slow


@pytest.mark.parametrize(
    ("slow", "grown"),
    [
        pytest.param(_reading_takes(0.0), ["g", "h"], id="in-no-time"),
        pytest.param(_reading_takes(60.0), ["g", "h"], id="read-slowly"),
        pytest.param(_reading_takes(100.0), ["g"], id="read-until-no-time-is-left"),
        pytest.param(_every_look_at_the_clock_takes(30.0), [], id="thought-about-too-long"),
    ],
)
def test_pass_stops_planning_while_its_function_has_time_to_save(
    stage: OperationHarness, slow: Callable[[OperationHarness], None], grown: list[str]
) -> None:
    for name in ("g", "h"):
        _group(stage, name)
        _pending(stage, f"wants-{name}", nodeSelector={"of": name})
    # no other time limit applies
    _options(stage, "maxNodegroupBinpackingDuration: 0s, pendingPodsBatchingTimeout: 10h")
    slow(stage)
    assert _grown(stage) == grown


@pytest.mark.parametrize(("late", "records"), [(0.0, 1), (1.0, 0)])
def test_decision_is_recorded_until_the_last_second_of_its_time(
    stage: OperationHarness, tmp_path: Path, late: float, records: int
) -> None:
    _spec(stage, "recordDecisions: true")
    _group(stage, "g")
    _pending(stage, "wants-g", nodeSelector={"of": "g"})
    stage.replace(decisions=str(tmp_path))
    stage.at_checkpoint[SAVED] = lambda: stage.clock.advance(
        DECIDED_WITHIN + RECORDED_WITHIN + late
    )
    assert _grown(stage) == ["g"]
    assert len(list(tmp_path.rglob("*.decision"))) == records


@pytest.mark.parametrize(("namespace", "chosen"), [("scaling", "h"), ("kube-system", "g")])
def test_priority_configmap_is_read_from_the_options_namespace(
    stage: OperationHarness, namespace: str, chosen: str
) -> None:
    _options(stage, f"expander: [priority], namespace: {namespace}")
    stage.kube.create("namespaces", {"metadata": {"name": "scaling"}})
    for place, reported in (("scaling", "h"), ("kube-system", "g")):
        stage.kube.create(
            "configmaps",
            {
                "metadata": {"name": "cluster-autoscaler-priority-expander", "namespace": place},
                "data": {"priorities": f'10: [".*"]\n20: ["^{reported}-"]\n'},
            },
        )
    for name in ("g", "h"):
        _group(stage, name)
    _pending(stage, "wants")
    assert _grown(stage) == [chosen]
