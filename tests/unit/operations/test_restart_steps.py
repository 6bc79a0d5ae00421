"""Restarts of sick nodes (docs/reference/node-lifecycle.md "Restart")."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec

from chalicelib.model.node import TO_BE_DELETED
from chalicelib.model.outcome import ABANDONED, Failed, InProgress, Succeeded
from chalicelib.operations.runner import give_up, run_step
from chalicelib.operations.step_context import Recheck
from chalicelib.operations.steps.restart_node import NOT_READY
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.timeouts import STARTUP
from chalicelib.providers.kit import errors
from tests.cases import each_row
from tests.unit.operations.harness import OperationFixture, restart

DONE = Succeeded({"restarted": 1, "nodes": "g-1"})


def scene(*pods: str, polls: int = 0, **fields: object) -> OperationFixture:
    fixture = OperationFixture(polls=polls)
    fixture.group(2)
    for key in pods:
        fixture.cluster.add_pod(key, "g-1", **fields)
    return fixture


def given_back(fixture: OperationFixture) -> bool:
    node = fixture.cluster.nodes["g-1"]
    return node.taint(TO_BE_DELETED) is None and not node.unschedulable and not node.operation


def change_node(fixture: OperationFixture, **fields: Any) -> None:
    fixture.cluster.nodes["g-1"] = msgspec.structs.replace(fixture.cluster.nodes["g-1"], **fields)


def test_restart_drains_the_node_and_gives_it_back() -> None:
    fixture = scene("default/a", polls=2)
    operation = fixture.play_until(restart("g-1", "default/a"), "restart")
    assert fixture.cluster.pods() == ()
    assert fixture.cluster.nodes["g-1"].taint(TO_BE_DELETED) is not None
    assert fixture.play(operation) == DONE
    assert fixture.provider.restarted == ["g-1"]
    assert fixture.provider.deleted == []
    assert fixture.provider.pools["g"].target == 2
    assert given_back(fixture)


def test_restart_of_a_provider_that_restarts_nothing_changes_nothing() -> None:
    fixture = scene("default/a")
    context = replace(fixture.world(), provider=lambda: SimpleNamespace(name="clusterapi"))
    outcome = run_step(restart("g-1", "default/a"), context, fixture.now)
    assert outcome == Failed("InvalidRequest", "provider clusterapi cannot restart a node")
    assert fixture.cluster.calls == []


def test_restart_obeys_budgets() -> None:
    fixture = scene("default/web")
    fixture.cluster.add_budget("web", ["default/web"], room=0)
    outcome = fixture.play(restart("g-1", "default/web"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "EvictionBlocked"
    assert fixture.provider.restarted == []
    assert given_back(fixture)


def test_restart_obeys_drain_rules() -> None:
    fixture = scene("default/db-0")
    fixture.holds["g-1"] = Recheck("default/db-0", "LocalStorageRequested")
    outcome = fixture.play(restart("g-1", "default/db-0"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "NodeNotEmpty"
    assert given_back(fixture)


# A dead kubelet ends no pod, and only the restart helps.
def test_pod_that_never_ends_does_not_hold_the_restart() -> None:
    fixture = scene("default/a", "default/b")
    fixture.options = Options(drain_priority_config=((0, 60), (1000, 60)))
    fixture.cluster.add_pod("default/important", "g-1", priority=2000)
    fixture.cluster.stuck |= {"default/b", "default/important"}
    change_node(fixture, ready=False)
    assert fixture.play(restart("g-1", "default/a", "default/b", "default/important")) == DONE
    evicted = [name for verb, name in fixture.cluster.calls if verb == "evict"]
    assert evicted == ["default/a", "default/b", "default/important"]
    assert given_back(fixture)


def test_pod_bound_just_before_the_restart_keeps_the_node_running() -> None:
    fixture = scene("default/a")
    operation = fixture.play_until(restart("g-1", "default/a"), "restart")
    fixture.cluster.add_pod("default/late", "g-1")
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.message == "node g-1: pod default/late was bound to it during the drain"
    assert fixture.provider.restarted == []
    assert given_back(fixture)


def test_restart_that_happened_is_not_asked_for_again() -> None:
    fixture = scene()
    operation = fixture.play_until(restart("g-1"), "restart")
    recorded, _ = fixture.step(operation)  # what the node says of its boot
    fixture.step(recorded)  # the executor dies before it has recorded this
    assert fixture.provider.restarted == ["g-1"]
    assert fixture.play(recorded) == DONE
    assert fixture.provider.restarted == ["g-1"]


@each_row(
    ("boot", "after", "since", "ready"),
    [
        ("one", "one", 5.0, False),  # the kubelet alone has started again
        ("one", "two", 0.0, True),
        ("", "", 0.0, False),
        ("", "", 5.0, True),
        ("one", "", 5.0, True),
    ],
)
def test_node_is_back_when_it_has_booted_again(
    boot: str, after: str, since: float, ready: bool
) -> None:
    fixture = scene()
    fixture.provider.on_restart = None
    change_node(fixture, boot=boot)
    operation = fixture.play_until(restart("g-1"), "ready")
    change_node(fixture, boot=after, ready_since=since)
    _, outcome = fixture.step(operation)
    assert isinstance(outcome, InProgress)
    assert outcome.step == ("return" if ready else "ready")


def test_node_that_has_booted_and_is_not_ready_is_waited_for() -> None:
    fixture = scene()
    fixture.provider.on_restart = None
    operation = fixture.play_until(restart("g-1"), "ready")
    change_node(fixture, boot="two", ready=False)
    operation, outcome = fixture.step(operation)
    assert isinstance(outcome, InProgress)
    assert outcome.step == "ready"
    change_node(fixture, ready=True)
    assert fixture.play(operation) == DONE


@each_row(("data", "seconds"), [({}, 900.0), ({STARTUP: "60.0"}, 60.0), ({STARTUP: "nan"}, 900.0)])
def test_node_that_does_not_come_back_is_given_back(data: dict[str, str], seconds: float) -> None:
    fixture = scene()
    fixture.provider.on_restart = None
    operation = fixture.play_until(restart("g-1", data=data), "ready")
    began = fixture.now
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == NOT_READY
    assert seconds <= fixture.now - began <= seconds + 30.0
    assert given_back(fixture)


def test_node_object_that_is_missing_for_a_while_is_waited_for() -> None:
    fixture = scene()
    fixture.provider.on_restart = None
    operation = fixture.play_until(restart("g-1"), "ready")
    fixture.cluster.remove_node("g-1")
    for _ in range(3):
        operation, outcome = fixture.step(operation)
        assert isinstance(outcome, InProgress)
    fixture.cluster.add_node("g-1")
    fixture.cluster.reboot_node("g-1")
    assert fixture.play(operation) == DONE


def test_node_of_another_machine_is_not_touched() -> None:
    fixture = scene()
    fixture.provider.on_restart = None
    operation = fixture.play_until(restart("g-1"), "ready")
    fixture.cluster.add_node("g-1", "memory://another")
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert ("untaint", "g-1") not in fixture.cluster.calls


@each_row(
    "error",
    [errors.InvalidRequest("no"), errors.Transient("later")],
    ids=lambda error: type(error).__name__,
)
def test_restart_that_the_vendor_refuses_gives_the_node_back(error: errors.ProviderError) -> None:
    fixture = scene("default/a")
    fixture.provider.fail_next("restart", error, times=50)
    outcome = fixture.play(restart("g-1", "default/a"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == type(error).__name__
    assert fixture.provider.calls.count("cancel_delete") == 0
    assert given_back(fixture)


def test_cancelled_restart_is_completed_once_the_vendor_was_asked() -> None:
    fixture = scene(polls=3)
    operation = fixture.play_until(restart("g-1"), "poll")
    outcome = give_up(operation, fixture.world(), fixture.now, ABANDONED, "paused")
    assert isinstance(outcome, InProgress)
    assert outcome.step == "poll"
    early = fixture.play_until(restart("g-1"), "gone")
    outcome = give_up(early, fixture.world(), fixture.now, ABANDONED, "paused")
    assert isinstance(outcome, InProgress)
    assert outcome.step == "undo"
