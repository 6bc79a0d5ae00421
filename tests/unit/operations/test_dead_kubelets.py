"""Repairs of nodes whose kubelet does not answer
(docs/reference/node-lifecycle.md "Dead kubelets").
"""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.group import Instance
from chalicelib.model.memory import GroupMemory
from chalicelib.model.node import TO_BE_DELETED
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import NODE_RECOVERED, Failed, InProgress, Outcome, Succeeded
from chalicelib.operations.memory_updates import memory_updates
from chalicelib.policy.settings.cluster_options import Options
from tests.cases import each_row
from tests.unit.operations.harness import START, OperationFixture, remove, restart

PODS = ("default/a", "default/b")
GRACE = 45.0


def dead(*pods: str, kill_at: int | None = None, polls: int = 2) -> OperationFixture:
    """Node g-1 whose kubelet ends no pod any more."""
    fixture = OperationFixture(polls=polls, kill_at=kill_at)
    fixture.group(2)
    for key in pods or PODS:
        fixture.cluster.add_pod(key, "g-1", grace=GRACE)
    fixture.cluster.stuck |= {*(pods or PODS)}
    change(fixture, ready=False)
    return fixture


def change(fixture: OperationFixture, **fields: Any) -> None:
    fixture.cluster.nodes["g-1"] = msgspec.structs.replace(fixture.cluster.nodes["g-1"], **fields)


def answer(fixture: OperationFixture) -> None:
    change(fixture, ready=True)
    fixture.cluster.stuck.clear()


def repair(*evict: str, **fields: Any) -> Operation:
    return remove("g-1", evict={"g-1": evict or PODS}, reason="repair", **fields)


def evicted(fixture: OperationFixture) -> list[str]:
    return [name for verb, name in fixture.cluster.calls if verb == "evict"]


def given_back(fixture: OperationFixture) -> bool:
    node = fixture.cluster.nodes["g-1"]
    return node.taint(TO_BE_DELETED) is None and not node.unschedulable and not node.operation


def test_a_pod_that_a_dead_kubelet_does_not_end_is_left_after_its_own_time() -> None:
    fixture = dead()
    outcome = fixture.play(repair())
    assert isinstance(outcome, Succeeded)
    assert evicted(fixture) == [*PODS]
    asked = next(at for step, at in fixture.steps if step == "delay")
    assert START + GRACE + 30.0 <= asked <= START + 5.0 + GRACE + 32.0


def test_a_sound_node_keeps_a_pod_that_does_not_end() -> None:
    fixture = dead()
    change(fixture, ready=True)
    outcome = fixture.play(repair())
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "PodNotGone"
    fixture = dead()
    outcome = fixture.play(remove("g-1", evict={"g-1": PODS}))  # an unready node that nobody needs
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "PodNotGone"


def test_pods_that_the_taint_manager_has_deleted_long_ago_hold_nothing() -> None:
    fixture = dead()
    for key in (*PODS, "default/unplanned"):
        fixture.cluster.add_pod(key, "g-1", grace=600.0, deleted=START - 40.0, deletion_grace=600.0)
    fixture.cluster.stuck.add("default/unplanned")
    assert isinstance(fixture.play(repair()), Succeeded)
    assert evicted(fixture) == []
    assert fixture.steps[-1][1] <= START + 60.0


def test_a_pod_that_is_being_deleted_gets_its_own_time_and_no_more() -> None:
    fixture = dead()
    fixture.cluster.add_pod(
        "default/a", "g-1", grace=100.0, deleted=START + 100.0, deletion_grace=100.0
    )
    assert isinstance(fixture.play(repair()), Succeeded)
    asked = next(at for step, at in fixture.steps if step == "delay")
    assert START + 130.0 <= asked <= START + 135.0


def test_a_pod_that_was_granted_and_is_not_deleted_keeps_its_dead_node() -> None:
    fixture = dead()
    operation = fixture.play_until(repair(), "gone")
    assert evicted(fixture) == [*PODS]
    fixture.cluster.add_pod("default/b", "g-1", grace=GRACE)
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, "default/b" in outcome.message) == ("PodNotGone", True)
    assert fixture.provider.deleted == []
    assert given_back(fixture)
    looks = [at for step, at in fixture.steps if step == "gone"]
    assert 2 <= len(looks) <= 20


def test_an_eviction_that_a_budget_refuses_holds_a_dead_node_and_names_both() -> None:
    fixture = dead()
    fixture.cluster.add_budget("web", ["default/b"], room=0)
    outcome = fixture.play(repair())
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "EvictionBlocked"
    assert "default/b" in outcome.message
    assert "web" in outcome.message
    assert fixture.provider.deleted == []
    assert given_back(fixture)


@each_row("step", ["taint", "recheck", "evict", "gone", "delay", "delete"])
def test_a_kubelet_that_answers_before_the_vendor_was_asked_keeps_its_node(step: str) -> None:
    fixture = dead()
    operation = fixture.play_until(repair(), step)
    answer(fixture)
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == NODE_RECOVERED
    assert outcome.message == "node g-1: its kubelet answers again"
    assert fixture.provider.calls.count("delete_nodes") == 0
    assert given_back(fixture)


def test_a_kubelet_that_answers_after_the_vendor_was_asked_changes_nothing() -> None:
    fixture = dead()
    fixture.provider.on_delete = None
    operation = fixture.play_until(repair(), "poll")
    answer(fixture)
    assert isinstance(fixture.play(operation), Succeeded)


@each_row(
    ("step", "given"),
    [("evict", True), ("gone", True), ("restart", True), ("poll", False), ("ready", False)],
)
def test_a_kubelet_that_answers_before_a_restart_is_asked_for_ends_it(
    step: str, given: bool
) -> None:
    fixture = dead(polls=3)
    operation = fixture.play_until(restart("g-1", *PODS), step)
    answer(fixture)
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed) is given
    assert fixture.provider.calls.count("restart") == (0 if given else 4)


def test_a_node_that_was_sound_when_its_repair_began_is_repaired() -> None:
    fixture = OperationFixture()
    fixture.group(2)
    fixture.cluster.add_pod("default/a", "g-1")
    assert isinstance(fixture.play(repair("default/a")), Succeeded)


def test_a_repair_whose_node_recovers_delays_this_node_only() -> None:
    outcome = Failed(NODE_RECOVERED, "node g-1: its kubelet answers again")
    group, cluster = memory_updates(repair(), outcome, Options(), START)
    assert cluster is None
    assert group is not None
    after = group(group(GroupMemory()))
    assert after.last_failure == 0.0
    assert after.failed_removals["g-1"].until > START


class DeletionOrder:
    """What was there when the vendor let the machine go."""

    def __init__(self, fixture: OperationFixture) -> None:
        self.fixture, self.seen = fixture, list[tuple[bool, int]]()
        fixture.provider.on_delete = self._machine_gone

    def _machine_gone(self, machine: Instance) -> None:
        cluster = self.fixture.cluster
        self.seen.append((machine.node in cluster.nodes, len(cluster.pods())))
        cluster.remove_node(machine.node)


def test_a_dead_node_killed_anywhere_goes_at_the_vendor_first_and_once() -> None:
    def run(kill_at: int | None) -> tuple[OperationFixture, DeletionOrder, Outcome]:
        fixture = dead(kill_at=kill_at)
        order = DeletionOrder(fixture)
        return fixture, order, fixture.play(repair())

    whole, order, outcome = run(None)
    assert (order.seen, type(outcome)) == ([(True, 2)], Succeeded)
    assert len(whole.checkpoints) >= 5
    for kill_at in range(len(whole.checkpoints)):
        fixture, order, outcome = run(kill_at)
        place = whole.checkpoints[kill_at]
        assert (order.seen, type(outcome)) == ([(True, 2)], Succeeded), place
        assert (evicted(fixture), fixture.provider.deleted) == ([*PODS], ["g-1"]), place


def test_dead_node_whose_kubelet_answers_is_given_back_after_any_kill() -> None:
    def run(kill_at: int | None) -> tuple[OperationFixture, Outcome]:
        fixture = dead(kill_at=kill_at)
        operation = fixture.play_until(repair(), "gone")
        answer(fixture)
        return fixture, fixture.play(operation)

    whole, _ = run(None)
    assert len(whole.checkpoints) >= 3
    for kill_at in range(len(whole.checkpoints)):
        fixture, outcome = run(kill_at)
        assert isinstance(outcome, Failed)
        assert given_back(fixture)
        assert fixture.provider.deleted == []


def test_a_step_run_twice_asks_a_dead_nodes_vendor_once() -> None:
    fixture = dead()
    operation = repair()
    outcome: Outcome = InProgress(0.0, "")
    while isinstance(outcome, InProgress):
        fixture.step(operation)  # a first executor, overtaken before it could record
        operation, outcome = fixture.step(operation)
    assert isinstance(outcome, Succeeded)
    assert evicted(fixture) == [*PODS]
