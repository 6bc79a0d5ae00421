"""Evacuations whose notice is taken back before the node was to leave (docs/reference/spot.md
"Removal of such a node")."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from chalicelib.cluster import errors as kube
from chalicelib.model.memory import GroupMemory, InterruptionNotice, InterruptionRisk
from chalicelib.model.node import TO_BE_DELETED, Condition, Taint
from chalicelib.model.operation import SIGNAL, Operation
from chalicelib.model.outcome import (
    NOTICE_TAKEN_BACK,
    SIGNAL_GONE,
    Failed,
    InProgress,
    Outcome,
    Succeeded,
)
from chalicelib.operations.memory_updates import memory_updates
from chalicelib.operations.step_context import StepContext
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.providers.kit import errors
from tests.cases import each_row
from tests.unit.operations.harness import START, OperationFixture, interrupted

SPOT = Taint("aws-node-termination-handler/spot-itn", "NoSchedule")
EXPIRES = Condition("InstanceExpired", "True", "InstanceToBeTerminated", START)
LEAVES_AT = START + 120.0


class NoticeFixture(OperationFixture):
    """by_vendor: nodes that the last pass had from the vendor's API."""

    by_vendor: frozenset[str] = frozenset()

    def world(self) -> StepContext:
        return replace(super().world(), announced_by_vendor=lambda name: name in self.by_vendor)


def announced(
    *pods: str, room: int = 0, size: int = 2, least: int = 0, kill_at: int | None = None
) -> NoticeFixture:
    """A node with a notice, whose pods a budget protects."""
    fixture = NoticeFixture(kill_at=kill_at)
    fixture.group(size, least=least)
    for key in pods or ("default/a", "default/b"):
        fixture.cluster.add_pod(key, "g-1")
    fixture.cluster.add_budget("web", pods or ("default/a", "default/b"), room=room)
    change(fixture, taints=(SPOT,))
    return fixture


def change(fixture: OperationFixture, **fields: Any) -> None:
    fixture.cluster.nodes["g-1"] = msgspec.structs.replace(fixture.cluster.nodes["g-1"], **fields)


def take_back(fixture: OperationFixture) -> None:
    node = fixture.cluster.nodes["g-1"]
    change(fixture, taints=tuple(taint for taint in node.taints if taint.key != SPOT.key))


def evacuation(**fields: Any) -> Operation:
    data = {"data": {SIGNAL: f"taint {SPOT.key}"}}
    return interrupted(
        "g-1", "default/a", "default/b", **{"leaves_at": LEAVES_AT, **data, **fields}
    )


def given_back(fixture: OperationFixture, outcome: Outcome) -> bool:
    node = fixture.cluster.nodes["g-1"]
    ended = isinstance(outcome, Failed) and (outcome.error_class, outcome.code) == (
        NOTICE_TAKEN_BACK,
        SIGNAL_GONE,
    )
    untouched = node.taint(TO_BE_DELETED) is None and not node.unschedulable and not node.operation
    return ended and untouched and fixture.provider.deleted == []


def test_a_notice_that_is_taken_back_ends_the_evacuation_before_its_deadline() -> None:
    fixture = announced()
    operation = fixture.play_until(evacuation(), "evict")
    while fixture.now < START + 40.0:
        operation, _ = fixture.step(operation)
    take_back(fixture)
    gone_at = fixture.now
    assert given_back(fixture, fixture.play(operation))
    assert fixture.now <= gone_at + 30.0
    assert [pod.deleted for pod in fixture.cluster.pods()] == [0.0, 0.0]


def test_a_single_read_without_a_signal_gives_nothing_back() -> None:
    fixture = announced()
    operation = fixture.play_until(evacuation(), "evict")
    take_back(fixture)
    operation, outcome = fixture.step(operation)
    assert isinstance(outcome, InProgress)
    assert (outcome.step, outcome.after) == ("evict", 10.0)
    change(fixture, taints=(*fixture.cluster.nodes["g-1"].taints, SPOT))
    operation, outcome = fixture.step(operation)
    assert isinstance(outcome, InProgress)
    take_back(fixture)
    operation, outcome = fixture.step(operation)  # the first read of two again
    assert isinstance(outcome, InProgress)
    assert given_back(fixture, fixture.step(operation)[1]) is False
    assert given_back(fixture, fixture.play(operation))


@each_row("step", ["evict", "delete", "leave"])
def test_every_step_before_the_vendors_answer_reads_the_node_again(step: str) -> None:
    fixture = announced(room=9, least=2)
    operation = fixture.play_until(evacuation(), step)
    take_back(fixture)
    assert given_back(fixture, fixture.play(operation))
    assert fixture.provider.calls.count("delete_nodes") == (1 if step == "leave" else 0)


def test_the_deadline_deletes_no_node_whose_notice_was_taken_back() -> None:
    fixture = announced()
    operation = fixture.play_until(evacuation(), "evict")
    while fixture.now < LEAVES_AT:
        operation, _ = fixture.step(operation)
    take_back(fixture)
    assert given_back(fixture, fixture.play(operation))


@each_row(
    "still",
    [
        {"taints": (SPOT,)},
        {"taints": (), "conditions": (EXPIRES,)},
        {"taints": (), "ready": False},
        {"taints": (Taint("remediator.kubernetes.azure.com/unschedulable", "NoSchedule"),)},
    ],
    ids=["its taint", "another signal", "not Ready", "another taint"],
)
def test_a_node_that_is_not_sound_is_evacuated_to_the_end(still: dict[str, Any]) -> None:
    fixture = announced()
    operation = fixture.play_until(evacuation(), "evict")
    ours = tuple(taint for taint in fixture.cluster.nodes["g-1"].taints if taint.key != SPOT.key)
    change(fixture, **{**still, "taints": (*ours, *still["taints"])})
    assert isinstance(fixture.play(operation), Succeeded)
    assert fixture.provider.deleted == ["g-1"]


def test_a_notice_of_the_vendors_api_holds_until_a_pass_forgets_it() -> None:
    fixture = announced()
    take_back(fixture)
    fixture.by_vendor = frozenset({"g-1"})
    assert isinstance(fixture.play(evacuation()), Succeeded)
    fixture = announced()
    take_back(fixture)
    fixture.by_vendor = frozenset({"g-1"})
    operation = fixture.play_until(evacuation(data={SIGNAL: "its provider says so"}), "evict")
    operation, _ = fixture.step(operation)
    fixture.by_vendor = frozenset()
    assert given_back(fixture, fixture.play(operation))


def test_an_evacuation_of_an_earlier_release_goes_on_to_its_deadline() -> None:
    fixture = announced()
    take_back(fixture)
    assert isinstance(fixture.play(evacuation(data={})), Succeeded)
    assert fixture.now >= LEAVES_AT


def test_an_api_that_does_not_answer_takes_no_notice_back() -> None:
    fixture = announced()
    operation = fixture.play_until(evacuation(), "evict")
    take_back(fixture)
    fixture.cluster.fail_next("node", kube.Unavailable("down"), times=1000)
    assert isinstance(fixture.play(operation), Succeeded)
    assert fixture.provider.deleted == ["g-1"]


def test_a_deletion_that_the_vendor_has_begun_is_completed() -> None:
    fixture = announced(room=9)
    fixture.provider.on_delete = None
    operation = fixture.play_until(evacuation(), "delete")
    fixture.step(operation)  # this executor dies before it has recorded the vendor's answer
    take_back(fixture)
    assert isinstance(fixture.play(operation), Succeeded)
    assert fixture.cluster.nodes["g-1"].taint(TO_BE_DELETED) is not None


def test_a_vendor_that_cannot_delete_now_is_not_asked_again() -> None:
    fixture = announced(room=9)
    operation = fixture.play_until(evacuation(), "delete")
    fixture.provider.fail_next("delete_nodes", errors.Transient("later"))
    operation, _ = fixture.step(operation)
    take_back(fixture)
    assert given_back(fixture, fixture.play(operation))
    assert fixture.provider.calls == ["delete_nodes"]


def test_an_evacuation_killed_anywhere_gives_the_node_back_once() -> None:
    def run(kill_at: int | None) -> tuple[NoticeFixture, Outcome]:
        fixture = announced(kill_at=kill_at)
        operation = fixture.play_until(evacuation(leaves_at=START + 900.0), "evict")
        operation, _ = fixture.step(operation)
        take_back(fixture)
        return fixture, fixture.play(operation)

    whole, outcome = run(None)
    assert given_back(whole, outcome)
    assert whole.checkpoints
    for kill_at in range(len(whole.checkpoints)):
        assert given_back(*run(kill_at)), whole.checkpoints[kill_at]


def test_a_notice_that_was_taken_back_is_forgotten_and_delays_nothing() -> None:
    notices = {
        "g-1": InterruptionNotice(START, LEAVES_AT),
        "g-2": InterruptionNotice(START, LEAVES_AT),
    }
    before = GroupMemory(risk=InterruptionRisk(notices=notices))
    ended = Failed(NOTICE_TAKEN_BACK, "it shows no signal any more", SIGNAL_GONE)
    group, cluster = memory_updates(evacuation(), ended, Options(), START + 30.0)
    assert group is not None
    assert cluster is None
    after = group(before)
    assert after.risk is not None
    assert (set(after.risk.notices), after.failed_removals) == ({"g-2"}, {})
    assert group(GroupMemory()) == GroupMemory()
