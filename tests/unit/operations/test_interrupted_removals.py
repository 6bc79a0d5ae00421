"""Removals of nodes that their vendor takes back (docs/reference/spot.md "Evacuation")."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.cluster import errors as kube
from chalicelib.model.node import TO_BE_DELETED, Taint
from chalicelib.model.outcome import (
    ABANDONED,
    NOTICE_TAKEN_BACK,
    Failed,
    InProgress,
    Outcome,
    Succeeded,
)
from chalicelib.operations.runner import give_up
from chalicelib.operations.step_context import Recheck
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.timeouts import (
    LONGEST_NOTICE,
    RETURN_TIME,
    SHORTEST_NOTICE,
    interruption_deadline,
    leaving_time,
)
from chalicelib.providers.kit import errors
from tests.cases import each_row
from tests.unit.operations.harness import START, OperationFixture, interrupted, remove

GONE = Succeeded({"removed": 1, "nodes": "g-1", "gone": "g-1"})
DELETED = Succeeded({"removed": 1, "nodes": "g-1"})


def scene(*pods: str, size: int = 2, least: int = 0, **fields: Any) -> OperationFixture:
    fixture = OperationFixture()
    fixture.group(size, least=least)
    for key in pods:
        fixture.cluster.add_pod(key, "g-1", **fields)
    return fixture


def evictions(fixture: OperationFixture) -> list[str]:
    return [name for verb, name in fixture.cluster.calls if verb == "evict"]


def unchanged(fixture: OperationFixture) -> bool:
    node = fixture.cluster.nodes["g-1"]
    return node.taint(TO_BE_DELETED) is None and not node.unschedulable and not node.operation


def test_interrupted_node_is_evacuated_at_once_and_then_deleted() -> None:
    fixture = scene("default/a", "default/b")
    assert fixture.play(interrupted("g-1", "default/a", "default/b")) == DELETED
    assert fixture.provider.deleted == ["g-1"]
    assert fixture.provider.pools["g"].target == 1
    evicted = [at for step, at in fixture.steps if step == "evict"]
    assert evicted[0] == START  # no wait after the taint
    assert START + 30.0 <= fixture.now <= START + 45.0  # the pods' own time


def test_interrupted_node_is_cordoned_whatever_the_option_says() -> None:
    fixture = scene("default/a")
    fixture.options = Options(cordon_node_before_terminating=False)
    fixture.play_until(interrupted("g-1", "default/a"), "evict")
    assert fixture.cluster.nodes["g-1"].unschedulable
    assert fixture.cluster.nodes["g-1"].taint(TO_BE_DELETED) == Taint(
        TO_BE_DELETED, "NoSchedule", str(int(START))
    )


def test_interrupted_removal_asks_no_drain_rule() -> None:
    fixture = scene("default/a")
    fixture.holds["g-1"] = Recheck("default/a", "LocalStorageRequested")
    fixture.cluster.claims["default/data"] = "g-1"
    assert fixture.play(interrupted("g-1", "default/a")) == DELETED


def test_interrupted_removal_evicts_what_was_bound_meanwhile() -> None:
    fixture = scene("default/a", "default/unplanned")
    operation = fixture.play_until(interrupted("g-1", "default/a"), "evict")
    operation, _ = fixture.step(operation)
    fixture.cluster.add_pod("default/late", "g-1")
    assert fixture.play(operation) == DELETED
    assert evictions(fixture) == ["default/a", "default/unplanned", "default/late"]


@each_row(
    "fields",
    [{"daemonset": True}, {"mirror": True}, {"phase": "Succeeded"}, {"priority": -11}],
    ids=str,
)
def test_interrupted_removal_leaves_pods_that_go_with_the_node(fields: dict[str, Any]) -> None:
    fixture = scene("default/a", **fields)
    fixture.options = Options(daemonset_eviction_for_occupied_nodes=True)
    assert fixture.play(interrupted("g-1")) == DELETED
    assert evictions(fixture) == []


def test_interrupted_removal_evicts_many_pods_in_short_steps_all_at_once() -> None:
    keys = [f"default/p-{number:02}" for number in range(50)]
    fixture = scene(*keys, grace=20.0)
    fixture.options = Options(drain_priority_config=((0, 60), (1000, 60)))
    fixture.cluster.add_pod("default/z-important", "g-1", priority=2000, grace=20.0)
    operation = fixture.play_until(interrupted("g-1", *keys), "evict")
    outcome: Outcome = InProgress(0.0, "evict")
    counts = []
    while evictions(fixture).count("default/z-important") == 0:
        before = len(evictions(fixture))
        operation, outcome = fixture.step(operation)
        counts.append(len(evictions(fixture)) - before)
    assert isinstance(outcome, InProgress)
    assert counts == [20, 20, 11]
    assert fixture.play(operation) == DELETED
    assert len(evictions(fixture)) == 51


def test_pod_has_no_more_time_to_end_than_its_machine_has() -> None:
    fixture = scene("default/slow", grace=600.0)
    fixture.play_until(interrupted("g-1", "default/slow", leaves_at=START + 90.0), "evict")
    fixture.cluster.calls.clear()
    operation = fixture.play_until(
        interrupted("g-1", "default/slow", leaves_at=START + 90.0), "evict"
    )
    fixture.step(operation)
    assert fixture.cluster.pods()[0].deletion_grace == 90.0


# SPOT_8
def test_refused_evictions_are_repeated_and_never_forced() -> None:
    fixture = scene("default/web")
    fixture.cluster.add_budget("web", ["default/web"], room=0)
    fixture.provider.fail_next("delete_nodes", errors.Unauthorized("being reclaimed"))
    operation = fixture.play_until(
        interrupted("g-1", "default/web", leaves_at=START + 60.0), "leave"
    )
    assert len(evictions(fixture)) == 12  # every 5 s
    assert [pod.deleted for pod in fixture.cluster.pods()] == [0.0]
    assert fixture.now >= START + 60.0
    fixture.cluster.remove_node("g-1")  # the vendor
    assert fixture.play(operation) == GONE


def test_eviction_time_limit_does_not_apply_to_interruptions() -> None:
    fixture = scene("default/web")
    fixture.options = Options(max_pod_eviction_time=10.0)
    budget = fixture.cluster.add_budget("web", ["default/web"], room=0)
    operation = fixture.play_until(interrupted("g-1", "default/web"), "evict")
    for _ in range(30):
        operation, outcome = fixture.step(operation)
        assert isinstance(outcome, InProgress)
        assert outcome.step == "evict"
    budget.room = 1
    assert fixture.play(operation) == DELETED


def test_provider_is_asked_at_the_deadline_although_pods_remain() -> None:
    fixture = scene("default/stuck")
    fixture.cluster.stuck.add("default/stuck")
    assert fixture.play(interrupted("g-1", "default/stuck", leaves_at=START + 60.0)) == DELETED
    assert fixture.now == START + 60.0


def make_unready(fixture: OperationFixture) -> None:
    node = fixture.cluster.nodes["g-1"]
    fixture.cluster.nodes["g-1"] = type(node)(
        node.name, node.uid, node.provider_id, taints=node.taints, ready=False
    )


def test_node_ready_after_its_deadline_is_evacuated_once_before_deletion() -> None:
    keys = [f"default/p-{number:02}" for number in range(25)]
    fixture = scene(*keys)
    fixture.cluster.add_budget("p", ["default/p-07"], room=0)
    assert fixture.play(interrupted("g-1", *keys, leaves_at=START - 5.0)) == DELETED
    assert evictions(fixture) == keys


def test_node_that_is_off_at_its_deadline_is_deleted_at_once() -> None:
    fixture = scene("default/a")
    make_unready(fixture)
    assert fixture.play(interrupted("g-1", "default/a", leaves_at=START)) == DELETED
    assert evictions(fixture) == []


def test_round_after_the_deadline_waits_for_the_api_for_the_shortest_notice() -> None:
    fixture = scene("default/a")
    fixture.cluster.fail_next("pods_on", kube.Unavailable("down"), times=3)
    assert fixture.play(interrupted("g-1", "default/a", leaves_at=START)) == DELETED
    assert evictions(fixture) == ["default/a"]
    fixture = scene("default/a")
    fixture.cluster.fail_next("pods_on", kube.Unavailable("down"), times=1000)
    assert fixture.play(interrupted("g-1", "default/a", leaves_at=START)) == DELETED
    assert START + SHORTEST_NOTICE <= fixture.now <= START + SHORTEST_NOTICE + 15.0


# SPOT_21
@each_row("step", ["look", "taint", "evict", "delete", "leave"])
def test_machine_that_goes_first_is_a_success(step: str) -> None:
    fixture = scene("default/a", least=2)
    operation = interrupted("g-1", "default/a")
    operation = operation if step == "look" else fixture.play_until(operation, step)
    fixture.provider.pools["g"].machines.pop("g-1")
    fixture.cluster.remove_node("g-1")
    outcome = fixture.play(operation)
    assert isinstance(outcome, Succeeded)
    assert outcome.facts["removed"] == 1
    assert fixture.provider.pools["g"].target == 2  # nothing was lowered


def test_node_of_another_machine_under_the_name_is_not_touched() -> None:
    fixture = scene("default/a")
    fixture.cluster.add_node("g-1", "memory://another")
    assert fixture.play(interrupted("g-1", "default/a")) == GONE
    assert evictions(fixture) == []
    assert unchanged(fixture)


@each_row(
    "error",
    [
        errors.InvalidRequest("minimum reached"),
        errors.Conflict("being reclaimed", code="busy"),
        errors.Unauthorized("not allowed"),
        errors.Throttled("slow down", retry_after=300.0),
        errors.Transient("try later"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_refusal_of_the_provider_undoes_nothing(error: errors.ProviderError) -> None:
    fixture = scene("default/a")
    fixture.provider.fail_next("delete_nodes", error, times=1000)
    operation = fixture.play_until(interrupted("g-1", "default/a"), "delete")
    while fixture.now < START + 300.0 + RETURN_TIME - 60.0:
        operation, outcome = fixture.step(operation)
        assert isinstance(outcome, InProgress)
        assert outcome.step in ("delete", "leave")
        assert fixture.cluster.nodes["g-1"].taint(TO_BE_DELETED) is not None
    fixture.cluster.remove_node("g-1")
    assert fixture.play(operation) == GONE


def test_machine_that_goes_while_the_vendor_is_busy_is_a_success() -> None:
    fixture = scene("default/a")
    fixture.provider.fail_next(
        "delete_nodes", errors.Conflict("another change", code="busy"), times=1000
    )
    operation, _ = fixture.step(fixture.play_until(interrupted("g-1", "default/a"), "delete"))
    fixture.cluster.remove_node("g-1")
    before = fixture.now
    assert fixture.play(operation) == GONE
    assert fixture.now == before


def test_minimum_reached_leaves_the_node_to_its_vendor() -> None:
    fixture = scene("default/a", least=2)
    operation = fixture.play_until(interrupted("g-1", "default/a"), "leave")
    assert fixture.provider.calls == ["delete_nodes"]
    fixture.cluster.remove_node("g-1")
    assert fixture.play(operation) == GONE


# SPOT_23
def test_notice_that_is_taken_back_gives_the_node_back() -> None:
    fixture = scene("default/a", least=2)
    outcome = fixture.play(interrupted("g-1", "default/a"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == NOTICE_TAKEN_BACK
    assert fixture.now == START + 300.0 + RETURN_TIME
    assert unchanged(fixture)
    assert "g-1" in fixture.provider.pools["g"].machines


def test_own_cordon_of_a_user_stays_when_the_notice_is_taken_back() -> None:
    fixture = scene("default/a", least=2)
    fixture.cluster.add_node("g-1", cordoned=True)
    assert isinstance(fixture.play(interrupted("g-1", "default/a")), Failed)
    assert fixture.cluster.nodes["g-1"].unschedulable
    assert fixture.cluster.nodes["g-1"].taint(TO_BE_DELETED) is None


def test_provider_that_waits_for_the_vendor_ends_when_the_notice_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fixture = scene("default/a")
    for method in ("delete_nodes", "poll"):
        monkeypatch.setattr(fixture.provider, method, lambda _: InProgress(30.0, "waiting"))
    outcome = fixture.play(interrupted("g-1", "default/a"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == NOTICE_TAKEN_BACK
    assert unchanged(fixture)


def test_node_that_is_switched_off_after_its_deadline_is_gone() -> None:
    fixture = scene("default/a", least=2)
    operation = fixture.play_until(interrupted("g-1", "default/a"), "leave")
    make_unready(fixture)
    outcome = fixture.play(operation)
    assert outcome == Succeeded({"removed": 1, "nodes": "g-1", "gone": "g-1", "unconfirmed": "g-1"})
    assert fixture.now >= interruption_deadline(operation.spec)


@each_row("verb", ["node", "taint", "pods_on", "evict"])
def test_cluster_that_does_not_answer_only_delays(verb: str) -> None:
    fixture = scene("default/a")
    fixture.cluster.fail_next(verb, kube.Unavailable("down"), times=20)
    assert fixture.play(interrupted("g-1", "default/a")) == DELETED
    assert fixture.now > START + 30.0


def test_cluster_that_never_answers_ends_by_the_machine_alone() -> None:
    fixture = scene("default/a")
    operation = fixture.play_until(interrupted("g-1", "default/a"), "evict")
    fixture.cluster.fail_next("pods_on", kube.Unavailable("down"), times=1000)
    assert fixture.play(operation) == DELETED
    assert fixture.now == START + 300.0


def test_node_that_another_program_deletes_is_left_to_it() -> None:
    fixture = scene("default/a")
    fixture.cluster.taint(
        "g-1", Taint(TO_BE_DELETED, "NoSchedule", str(int(START))), operation="", cordon=False
    )
    outcome = fixture.play(interrupted("g-1", "default/a"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert fixture.cluster.nodes["g-1"].taint(TO_BE_DELETED) is not None


@each_row("step", ["evict", "delete", "leave"])
def test_cancelled_evacuation_gives_the_node_back(step: str) -> None:
    fixture = scene("default/a", least=2)
    operation = fixture.play_until(interrupted("g-1", "default/a"), step)
    outcome = give_up(
        operation, fixture.world(), fixture.now, ABANDONED, "the cluster's mode is shadow"
    )
    assert isinstance(outcome, InProgress)
    ended = fixture.play(operation.with_status(step=outcome.step, data=outcome.data))
    assert isinstance(ended, Failed)
    assert ended.error_class == ABANDONED
    assert unchanged(fixture)


def test_only_removals_can_be_interrupted() -> None:
    assert interrupted("g-1").spec.interrupted
    assert not remove("g-1").spec.interrupted
    assert not remove("g-1", reason="repair").spec.interrupted


@each_row(
    ("leaves_at", "time"),
    [
        (START + 90.0, START + 90.0),
        (0.0, START + SHORTEST_NOTICE),
        (START - 5.0, START),
        (START + 10 * LONGEST_NOTICE, START + LONGEST_NOTICE),
    ],
)
def test_time_until_a_node_leaves_is_bounded(leaves_at: float, time: float) -> None:
    assert leaving_time(interrupted("g-1", leaves_at=leaves_at).spec) == time
