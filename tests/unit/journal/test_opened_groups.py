"""A pass that opens a group of a managed pool is recorded and shown, although no snapshot has the
group yet."""

from __future__ import annotations

import msgspec

from chalicelib.journal.journal import outcome_entry
from chalicelib.journal.metric_values import wanted_nodes
from chalicelib.journal.pass_overview import pass_overview
from chalicelib.model.operation import OPENS, OperationState
from chalicelib.model.outcome import Succeeded
from chalicelib.plan.cost_breakdown import cluster_bill
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.views.cluster_view import pod_views
from chalicelib.views.journal_lines import sentence
from chalicelib.views.rows import group_rows
from tests.builders import NOW
from tests.unit.journal.support import RecordFixture
from tests.unit.plan.managed_offers import OfferedCluster


def test_pass_that_opens_a_group_is_recorded_with_the_machine_that_was_chosen() -> None:
    case = OfferedCluster().waiting(8, 1, 4)
    plan, memory = case.decided()
    scene = RecordFixture()
    scene.passes(plan, snapshot=case.offered_snapshot())
    (growth,) = plan.scale_ups
    said = [message for *_, message in scene.reported()]
    size = "2 instead of 0 (max: 100)"
    assert f"Scale-up: opening group {growth.group} (s4 z1 on-demand), size {size}" in said
    assert scene.trouble == ""
    (operation,) = plan.operations
    assert operation.status.data[OPENS] == "s4 z1 on-demand"
    status = msgspec.structs.replace(operation.status, state=OperationState.SUCCEEDED)
    operation = msgspec.structs.replace(operation, status=status)
    entry = outcome_entry(operation, Succeeded({"from": 0, "to": 2}), NOW + 60)
    words = "was opened with s4 z1 on-demand and grew from 0 to 2 for 8 pods"
    assert words in sentence(entry)
    assert memory.groups.keys() == {growth.group}


def test_rows_and_sums_of_a_pass_count_nodes_of_a_group_that_is_opened() -> None:
    case = OfferedCluster().opened("s8", 1).waiting(30, 1, 4)
    plan, memory = case.decided()
    state = build_cluster_state(case.offered_snapshot(), case.offered_policy(), memory, NOW)
    overview, _ = pass_overview(plan, state, cluster_bill(state))
    opened = [growth for growth in plan.scale_ups if growth.opens]
    assert opened
    assert wanted_nodes(plan, state) == 1 + sum(growth.nodes for growth in plan.scale_ups)
    with_operations = msgspec.structs.replace(memory, operations=plan.operations)
    rows = group_rows(plan, with_operations, overview, NOW)
    assert [row.machine for row in rows] == ["s8"]
    assert {view.decision for view in pod_views(plan)} == {"newNode", "fitsExisting"}
