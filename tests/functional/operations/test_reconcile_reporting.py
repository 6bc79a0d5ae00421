"""A failure in reporting does not fail the pass, and a failed pass is reported."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.cluster.errors import Unavailable
from chalicelib.journal import carry_over
from chalicelib.journal.carry_over import CarryOver
from chalicelib.journal.journal import last_decision
from chalicelib.model.overview import ClusterOverview
from chalicelib.passes import pass_report, soft_taints
from chalicelib.passes.reconciler import handle
from chalicelib.providers.kit.errors import Transient
from chalicelib.runtime.messages import ReconcileMessage, encode
from chalicelib.store.errors import StoreUnavailable
from chalicelib.store.journal import GaugeRings
from chalicelib.store.leases import LastPass
from chalicelib.views.rows import group_rows, node_rows
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
    monkeypatch.setattr(pass_report, "record_plan", breaks)
    a_pass(stage)
    assert stage.store.scan_states.due(stage.name).last_pass == stage.clock()
    assert remains(stage) == before
    assert stage.store.leases.acquire(stage.name, "next", 60.0).decision


def test_failed_taint_updates_do_not_repeat_the_pass(
    stage: OperationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any) -> None:
        raise Unavailable("no answer")

    stage.group(2)
    monkeypatch.setattr(soft_taints, "apply", breaks)
    a_pass(stage)
    assert remains(stage).gauges["last_activity;activity=main"] == stage.clock()


def last_pass(stage: OperationHarness) -> LastPass:
    """What a page reads."""
    passed = stage.store.scan_states.last(stage.name, points=True)
    assert passed is not None
    return passed


def test_pass_leaves_an_overview_and_a_point_for_people(stage: OperationHarness) -> None:
    stage.group(2)
    stage.clock.advance(300)
    a_pass(stage)
    passed = last_pass(stage)
    assert [(group.group, group.provider) for group in passed.overview.groups] == [
        ("g", "clusterapi")
    ]
    assert [(node.name, node.group) for node in passed.overview.nodes] == [("g-1", 0), ("g-2", 0)]
    assert (passed.points[-1].nodes, passed.points[-1].wanted) == (0, 2), "none is ready yet"


def test_new_decision_comes_with_the_nodes_that_it_is_about(stage: OperationHarness) -> None:
    stage.group(2)
    stage.clock.advance(300 - stage.clock() % 300)
    a_pass(stage)
    points = last_pass(stage).points
    stage.kube.delete("nodes", "g-2")
    for name, expected in (("g-7", ["g-1", "g-7"]), ("g-8", ["g-1", "g-7", "g-8"])):
        stage.kube.create("nodes", {"metadata": {"name": name}})
        a_pass(stage)
        passed = last_pass(stage)
        assert [node.name for node in passed.overview.nodes] == expected
        assert passed.overview.at == stage.clock()
    assert passed.points == points, "within the same five minutes there is no further point"


def test_group_whose_provider_is_silent_keeps_its_row_and_its_nodes(
    stage: OperationHarness,
) -> None:
    stage.group(2)
    stage.clock.advance(300)
    a_pass(stage)
    stage.clock.advance(300)
    stage.provider.fail_next("observe", Transient("no answer"), times=5)
    a_pass(stage)
    passed = last_pass(stage)
    decision = last_decision(stage.name, passed, stage.store.journal)
    assert decision is not None
    (row,) = group_rows(decision.plan, stage.memory(), passed.overview, stage.clock())
    assert (row.group, row.status.word, row.status.detail) == (
        "g",
        "not read",
        "Transient: no answer",
    )
    assert (row.target, row.max) == (2, 10), "as they were"
    nodes = node_rows(decision.plan, passed.overview, (row,), stage.memory())
    assert [node.group for node in nodes] == ["g", "g"]


def test_charts_that_cannot_be_stored_do_not_fail_the_pass(
    stage: OperationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("busy")

    stage.group(1)
    monkeypatch.setattr(GaugeRings, "add", breaks)
    a_pass(stage)
    assert last_pass(stage).last_pass == last_pass(stage).state.last_success == stage.clock()
    assert last_pass(stage).overview == ClusterOverview()


def test_second_process_repeats_neither_journal_entry_nor_event(stage: OperationHarness) -> None:
    stage.group(1)
    stage.pod(
        "waits", containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "99"}}}]
    )
    pod = stage.kube.get("pods", "waits", "default")
    assert pod is not None
    pod["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    }
    stage.kube.update("pods", pod)
    for _ in range(4):
        a_pass(stage)
    reported = [
        event["count"]
        for event in stage.kube.list("events")
        if event["reason"] == "NotTriggerScaleUp"
    ]
    assert reported == [1]
    stage.clock.advance(120)
    a_pass(stage)
    assert len(stage.events("NotTriggerScaleUp")) == 2
    entries = [entry for entry in stage.store.journal.recent(stage.name) if entry.kind == "plan"]
    assert len({entry.facts["decision"] for entry in entries}) == len(entries)
