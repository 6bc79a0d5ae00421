"""A failure in reporting does not fail the pass, and a failed pass is reported."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.dispatch.messages import ReconcileMessage, encode
from chalicelib.kube.errors import Unavailable
from chalicelib.operations import recording
from chalicelib.reconciler import taint_writer
from chalicelib.reconciler.reconciler import handle
from chalicelib.record import carry_over
from chalicelib.record.carry_over import CarryOver
from infra.emulators.kube.faults import KubeFault
from tests.functional.operations.harness import OperationHarness


def a_pass(stage: OperationHarness) -> None:
    stage.clock.advance(60)
    handle(encode(ReconcileMessage(stage.name, "webhook", stage.clock())).decode(), stage.runtime)


def remains(stage: OperationHarness) -> CarryOver:
    """The reporting state that the last pass stored."""
    passed = stage.store.scan_states.last(stage.name)
    assert passed is not None
    return carry_over.read(passed.carry_over)


def test_pass_that_cannot_read_the_cluster_is_counted_and_keeps_the_last_gauges(
    stage: OperationHarness,
) -> None:
    stage.group(2)
    a_pass(stage)
    stage.server.faults.add(KubeFault(path="/api/v1/nodes[?]*", times=-1, status=403, body=b"{}"))
    a_pass(stage)
    seen = remains(stage)
    assert seen.counts["errors_total;type=apiCallError"] == 1
    assert seen.counts["function_duration_seconds_count;function=main"] == 2
    assert seen.gauges["last_activity;activity=main"] == stage.clock() - 60
    assert stage.lines[-1]["error"] == "Forbidden"


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), Unavailable("no answer")])
def test_failed_reporting_does_not_fail_the_pass(
    stage: OperationHarness, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def breaks(*_: Any, **__: Any) -> None:
        raise error

    stage.group(2)
    a_pass(stage)
    before = remains(stage)
    monkeypatch.setattr(recording, "record_plan", breaks)
    a_pass(stage)
    assert stage.store.scan_states.due(stage.name).last_pass == stage.clock()
    assert remains(stage) == before
    assert stage.store.leases.acquire(stage.name, "next", 60.0).decision


def test_failed_taint_updates_do_not_repeat_the_pass(stage: OperationHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any) -> None:
        raise Unavailable("no answer")

    stage.group(2)
    monkeypatch.setattr(taint_writer, "apply", breaks)
    a_pass(stage)
    assert remains(stage).gauges["last_activity;activity=main"] == stage.clock()


def test_second_process_repeats_neither_journal_entry_nor_event(stage: OperationHarness) -> None:
    stage.group(1)
    stage.pod("waits", containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "99"}}}])
    pod = stage.kube.get("pods", "waits", "default")
    assert pod is not None
    pod["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    }
    stage.kube.update("pods", pod)
    for _ in range(4):
        a_pass(stage)
    reported = [event["count"] for event in stage.kube.list("events") if event["reason"] == "NotTriggerScaleUp"]
    assert reported == [1]
    stage.clock.advance(120)
    a_pass(stage)
    assert len(stage.events("NotTriggerScaleUp")) == 2
    entries = [entry for entry in stage.store.journal.recent(stage.name) if entry.kind == "plan"]
    assert len({entry.facts["decision"] for entry in entries}) == len(entries)
