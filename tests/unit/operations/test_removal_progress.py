"""Tests for audit findings in removals: unreadable progress, and a machine
replaced before the taint.
"""

from __future__ import annotations

from chalicelib.cluster.errors import Unavailable
from chalicelib.model.node import TO_BE_DELETED
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.operations.removal_progress import KEY
from chalicelib.operations.waiting import TRIES
from tests.cases import each_row
from tests.unit.operations.harness import OperationFixture, remove

RUBBISH = (
    "",
    "{",
    "[]",
    "null",
    '{"nodes":{}}',
    '{"nodes":{"other":{}}}',
    '{"nodes":{"g-2":{"cordoned":"x"}}}',
)


def _begun(fixture: OperationFixture, step: str) -> Operation:
    fixture.group(3)
    fixture.cluster.add_pod("default/a", "g-2")
    return fixture.play_until(remove("g-2", evict={"g-2": ("default/a",)}), step)


@each_row("rubbish", RUBBISH)
@each_row("step", ["taint", "recheck", "evict", "gone", "delay"])
def test_removal_with_unreadable_progress_is_rolled_back(step: str, rubbish: str) -> None:
    fixture = OperationFixture()
    operation = _begun(fixture, step)
    outcome = fixture.play(operation.with_status(data={**operation.status.data, KEY: rubbish}))
    assert isinstance(outcome, Failed)
    node = fixture.cluster.nodes["g-2"]
    assert (node.taint(TO_BE_DELETED), node.unschedulable, node.operation) == (None, False, "")
    assert fixture.provider.deleted == []


@each_row("rubbish", RUBBISH)
@each_row("step", ["poll", "confirm"])
def test_removal_with_progress_lost_after_the_vendor_call_is_completed(
    step: str, rubbish: str
) -> None:
    fixture = OperationFixture(polls=3)
    operation = _begun(fixture, step)
    outcome = fixture.play(operation.with_status(data={**operation.status.data, KEY: rubbish}))
    assert outcome == Succeeded({"removed": 1, "nodes": "g-2"})


def test_removal_unreadable_attempt_count_is_treated_as_zero() -> None:
    fixture = OperationFixture()
    operation = _begun(fixture, "evict")
    fixture.cluster.fail_next("pods_on", Unavailable("out of order"))
    outcome = fixture.play(operation.with_status(data={**operation.status.data, TRIES: "x"}))
    assert outcome == Succeeded({"removed": 1, "nodes": "g-2"})


def test_removal_taint_is_removed_from_a_machine_replaced_before_it() -> None:
    fixture = OperationFixture()
    operation = _begun(fixture, "taint")
    fixture.cluster.remove_node("g-2")
    fixture.cluster.add_node("g-2", "memory://another")
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert "another machine has taken its name" in outcome.message
    node = fixture.cluster.nodes["g-2"]
    assert (node.taint(TO_BE_DELETED), node.unschedulable, node.operation) == (None, False, "")
