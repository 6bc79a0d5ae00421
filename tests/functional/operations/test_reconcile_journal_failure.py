"""A pass that is saved and sent is complete, whether or not the journal entry can be written."""

from __future__ import annotations

import json

from chalicelib.functions.lambda_entry import each_record
from chalicelib.passes.reconciler import handle
from chalicelib.runtime.messages import ReconcileMessage, encode
from chalicelib.runtime.runtime import install
from infra.emulators.aws_faults import AwsFaults, busy, lost_answer
from tests.functional.operations.harness import OperationHarness


def _pending(stage: OperationHarness) -> str:
    """A fixture in which a pass scales up group g; returns the message that requests the pass."""
    stage.provider.add_pool("g", size=1)
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    stage.kube.create(
        "nodes",
        {
            "metadata": {"name": "g-1"},
            "spec": {"providerID": "memory://g-1"},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "allocatable": room,
                "capacity": room,
            },
        },
    )
    large = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]
    stage.pod("runs", "g-1", containers=large)
    stage.pod("waits", containers=large)
    pod = stage.kube.get("pods", "waits", "default")
    assert pod is not None
    pod["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    }
    stage.kube.update("pods", pod)
    stage.clock.advance(10)
    return encode(ReconcileMessage(stage.name, "webhook", stage.clock())).decode()


def _failing(stage: OperationHarness) -> AwsFaults:
    """Starts faults of the table."""
    faults = AwsFaults()
    stage.replace(store=stage.new_store(wrap=faults.wrap))
    return faults


def test_failed_journal_write_does_not_redeliver_the_message(stage: OperationHarness) -> None:
    body = _pending(stage)
    # those of the schema and the group ownership
    _failing(stage).instead("put_item", None, None, *[lost_answer()] * 9)
    install(stage.runtime)
    try:
        failed = each_record({"Records": [{"messageId": "m-1", "body": body}]}, handle)
    finally:
        install(None)
    assert failed == {"batchItemFailures": []}
    [operation] = stage.store.operations.list_open(stage.name)
    [(_, _, queue, sent)] = stage.sent
    assert (queue, json.loads(sent)["operation"]) == ("act_clusterapi", operation.spec.id)
    assert stage.store.journal.recent(stage.name) == ()
    assert stage.store.scan_states.due(stage.name).last_pass > 0


def test_failed_save_redelivers_the_message(stage: OperationHarness) -> None:
    body = _pending(stage)
    _failing(stage).instead("transact_write_items", busy("ValidationException"))
    handle(body, stage.runtime)
    assert stage.sent == []
    [again] = stage.wakes
    assert (again["reason"], again["tries"]) == ("webhook", 1)
