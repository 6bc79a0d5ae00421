"""Ownership of taints, volumes that are being bound to a node, and waits that end early."""

from __future__ import annotations

import msgspec

from chalicelib.cluster import errors as kube
from chalicelib.model.node import SCALE_DOWN_DISABLED, TO_BE_DELETED, Taint
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.operations.waiting import PollBackoff
from chalicelib.policy.settings.cluster_options import Options
from tests.cases import each_row
from tests.unit.operations.harness import START, OperationFixture, remove
from tests.unit.operations.test_removal_steps import kept

HARD = TO_BE_DELETED


def test_taint_names_its_operation() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    fixture.play_until(remove("g-1", id="remove-7"), "recheck")
    assert fixture.cluster.nodes["g-1"].operation == "remove-7"


def test_one_failed_taint_rolls_back_the_whole_removal_batch() -> None:
    fixture = OperationFixture()
    fixture.group(3)
    operation = fixture.play_until(remove("g-1", "g-2", "g-3"), "taint")
    calls = iter([None, kube.Invalid("admission webhook denied the request", status=400)])
    put = fixture.cluster.taint

    def fail_second(name: str, taint: Taint, *, operation: str, cordon: bool) -> None:
        if error := next(calls, None):
            raise error
        put(name, taint, operation=operation, cordon=cordon)

    fixture.cluster.taint = fail_second  # type: ignore[method-assign]
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "ClusterInvalid"
    assert all(kept(fixture, name) for name in ("g-1", "g-2", "g-3"))
    assert all(not node.operation for node in fixture.cluster.nodes.values())


def test_removal_skips_a_node_tainted_by_another_operation_meanwhile() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    operation = fixture.play_until(remove("g-1"), "recheck")
    theirs = msgspec.structs.replace(fixture.cluster.nodes["g-1"], operation="remove-2")
    fixture.cluster.nodes["g-1"] = theirs
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.message == "node g-1: operation remove-2 has marked it meanwhile"
    assert fixture.cluster.nodes["g-1"] == theirs
    assert fixture.provider.deleted == []


def test_removal_takes_over_leftover_taint_and_cordon_of_another_operation() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    fixture.cluster.taint(
        "g-1", Taint(HARD, "NoSchedule", str(int(START - 400.0))), operation="remove-0", cordon=True
    )
    operation = fixture.play_until(remove("g-1"), "recheck")
    node = fixture.cluster.nodes["g-1"]
    assert (node.operation, node.taint(HARD)) == (
        "remove-1",
        Taint(HARD, "NoSchedule", str(int(START - 400.0))),
    )
    fixture.cluster.add_pod("default/late", "g-1")
    assert isinstance(fixture.play(operation), Failed)
    assert kept(fixture, "g-1")


# This also holds after minutes of draining: a user may remove the taint at any
# time, and that is obeyed.
@each_row("change", ["untainted", "disabled", "other machine", "new pod"])
def test_removal_rechecks_the_node_right_before_the_deletion(change: str) -> None:
    fixture = OperationFixture()
    fixture.group(1)
    fixture.cluster.add_pod("default/p", "g-1")
    operation = fixture.play_until(remove("g-1", evict={"g-1": ("default/p",)}), "delay")
    node = fixture.cluster.nodes["g-1"]
    if change == "untainted":
        fixture.cluster.untaint("g-1", HARD, operation=operation.spec.id, uncordon=True)
    elif change == "disabled":
        fixture.cluster.nodes["g-1"] = msgspec.structs.replace(node, scale_down_disabled=True)
        assert SCALE_DOWN_DISABLED.endswith("scale-down-disabled")
    elif change == "other machine":
        fixture.cluster.nodes["g-1"] = msgspec.structs.replace(node, provider_id="memory://another")
    else:
        fixture.cluster.add_pod("default/fast", "g-1")
    assert isinstance(fixture.play(operation), Failed)
    assert fixture.provider.deleted == []


def test_removal_repeats_an_outdated_recheck_before_the_deletion() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    operation = fixture.play_until(remove("g-1"), "delete")
    fixture.now += 180.0  # the message was lost, and the sweeper sent another
    fixture.cluster.add_pod("default/fast", "g-1")
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.message == "node g-1: pod default/fast was bound to it during the drain"
    assert kept(fixture, "g-1")


def test_removal_deletes_the_machine_of_a_node_that_vanished_by_itself() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    operation = fixture.play_until(remove("g-1"), "delay")
    fixture.cluster.remove_node("g-1")
    assert isinstance(fixture.play(operation), Succeeded)
    assert fixture.provider.deleted == ["g-1"]


# kubernetes#125491: provisioning a volume takes minutes while the pod has no node yet.
def test_removal_keeps_a_node_on_which_a_volume_is_being_provisioned() -> None:
    fixture = OperationFixture()
    fixture.group(2)
    fixture.cluster.claims = {"default/data-db-0": "g-1", "default/other": "g-2"}
    outcome = fixture.play(remove("g-1"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "NodeNotEmpty"
    assert outcome.message == (
        "node g-1: claim default/data-db-0 is being given a volume on it, for a pod that is about "
        "to be bound"
    )
    assert kept(fixture, "g-1")


@each_row(("cleared", "least"), [(40.0, 40.0), (None, 120.0)])
def test_delay_annotation_postpones_the_deletion_up_to_two_minutes(
    cleared: float | None, least: float
) -> None:
    fixture = OperationFixture()
    fixture.group(1)
    fixture.cluster.add_node("g-1", delays=["delay-deletion.cluster-autoscaler.kubernetes.io/x"])
    operation = fixture.play_until(remove("g-1"), "delay")
    began = fixture.now
    outcome: object = None
    while not isinstance(outcome, Succeeded | Failed):
        if cleared is not None and fixture.now >= began + cleared:
            node = fixture.cluster.nodes.get("g-1")
            if node is not None:
                fixture.cluster.nodes["g-1"] = msgspec.structs.replace(node, delays=())
        operation, outcome = fixture.step(operation)
    assert isinstance(outcome, Succeeded)
    assert least <= fixture.now - began <= least + 15.0


def test_removal_detects_a_vendor_that_reports_deletion_without_deleting() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    fixture.provider.on_delete = None
    outcome = fixture.play(remove("g-1"))
    assert isinstance(outcome, Succeeded)
    assert outcome.facts["unconfirmed"] == "g-1"
    assert [step for step, _ in fixture.steps].count("confirm") <= 10


def test_removal_polls_a_slow_deletion_at_growing_intervals() -> None:
    fixture = OperationFixture(polls=1000)
    fixture.group(1)
    operation = fixture.play_until(remove("g-1"), "poll")
    began = fixture.now
    while fixture.now < began + 600.0:
        operation, outcome = fixture.step(operation)
        assert isinstance(outcome, InProgress)
    assert [step for step, _ in fixture.steps].count("poll") <= 25


# -- waiting across functions


@each_row("skew", [-30.0, 0.0, 30.0])
def test_wait_lasts_at_least_as_long_as_requested_whatever_the_clocks(skew: float) -> None:
    wait = PollBackoff()
    for turn in range(10):
        wait = wait.next(START + turn * 60.0 + (skew if turn % 2 else -skew), 60.0)
    assert wait.elapsed(START + 600.0 + skew) == 600.0


def test_wait_counts_messages_that_arrived_very_late() -> None:
    wait = PollBackoff().next(START, 10.0)
    assert wait.elapsed(START + 3600.0) == 3540.0


def test_wait_is_not_undone_by_a_clock_that_goes_back() -> None:
    wait = PollBackoff().next(START, 10.0)
    assert wait.elapsed(START - 3600.0) == 10.0
    assert PollBackoff().elapsed(START) == 0.0


def test_wait_delays_grow_up_to_the_limit() -> None:
    wait, pauses = PollBackoff(), []
    while wait.elapsed(START) < 100.0:
        pauses.append(wait.delay(START, first=5.0, most=30.0, limit=100.0))
        wait = wait.next(START, pauses[-1])
    assert pauses == [5.0, 5.0, 10.0, 20.0, 30.0, 30.0]


def test_removal_without_cordon_records_no_cordon() -> None:
    fixture = OperationFixture(options=Options(cordon_node_before_terminating=False))
    fixture.group(1)
    fixture.cluster.add_pod("default/late", "g-1")
    fixture.cluster.add_node("g-1", cordoned=True)
    assert isinstance(fixture.play(remove("g-1")), Failed)
    assert fixture.cluster.nodes["g-1"].unschedulable
