from __future__ import annotations

import msgspec

from chalicelib.cluster import errors as kube
from chalicelib.model.node import TO_BE_DELETED, Taint
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.operations.step_context import Recheck
from chalicelib.operations.waiting import MAX_TRIES
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.providers.kit import errors
from tests.cases import each_row
from tests.unit.operations.harness import START, OperationFixture, remove

HARD = TO_BE_DELETED


def kept(fixture: OperationFixture, name: str) -> bool:
    """Asserts that the node exists, untainted and uncordoned, and its machine runs, as
    if nothing had been tried."""
    node = fixture.cluster.nodes[name]
    return (
        node.taint(HARD) is None
        and not node.unschedulable
        and name in fixture.provider.pools["g"].machines
    )


def test_removal_deletes_an_empty_node_by_its_instance_after_the_delay() -> None:
    fixture = OperationFixture()
    fixture.group(3)
    assert fixture.play(remove("g-2")) == Succeeded({"removed": 1, "nodes": "g-2"})
    assert fixture.provider.deleted == ["g-2"]
    assert fixture.provider.pools["g"].target == 2
    assert fixture.now == START + 5.0


def test_removal_taint_has_a_timestamp_and_the_node_is_cordoned() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    fixture.play_until(remove("g-1"), "recheck")
    node = fixture.cluster.nodes["g-1"]
    assert node.taint(HARD) == Taint(HARD, "NoSchedule", str(int(START)))
    assert node.unschedulable


def test_removal_of_several_nodes_is_one_provider_call() -> None:
    fixture = OperationFixture()
    fixture.group(4)
    assert fixture.play(remove("g-1", "g-2", "g-4")) == Succeeded(
        {"removed": 3, "nodes": "g-1,g-2,g-4"}
    )
    assert fixture.provider.calls == ["delete_nodes"]


def test_removal_of_one_blocked_node_does_not_block_the_others() -> None:
    fixture = OperationFixture()
    fixture.group(3)
    fixture.cluster.add_pod("default/late", "g-2")
    outcome = fixture.play(remove("g-1", "g-2", "g-3"))
    assert outcome == Succeeded(
        {
            "removed": 2,
            "nodes": "g-1,g-3",
            "kept g-2": "pod default/late was bound to it after it was planned",
        }
    )
    assert kept(fixture, "g-2")
    assert sorted(fixture.provider.deleted) == ["g-1", "g-3"]


# Covers the time between taint and deletion (371 ms in cluster-autoscaler issue 5790).
def test_removal_keeps_a_node_if_a_pod_is_bound_before_the_recheck() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    operation = fixture.play_until(remove("g-1"), "recheck")
    fixture.cluster.add_pod("default/fast", "g-1")
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "NodeNotEmpty"
    assert outcome.message == "node g-1: pod default/fast was bound to it after it was planned"
    assert kept(fixture, "g-1")


def test_removal_keeps_a_node_with_a_nominated_pod() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    operation = fixture.play_until(remove("g-1"), "recheck")
    fixture.cluster.nominate("default/soon", "g-1")
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.message == "node g-1: pod default/soon is nominated to run on it"
    assert kept(fixture, "g-1")


@each_row("fields", [{"priority": -11}, {"daemonset": True}, {"gated": True}, {"deleted": START}])
def test_removal_ignores_nominated_pods_that_need_no_node(fields: dict[str, object]) -> None:
    fixture = OperationFixture()
    fixture.group(1)
    operation = fixture.play_until(remove("g-1"), "recheck")
    fixture.cluster.nominate("default/soon", "g-1", **fields)
    assert fixture.play(operation) == Succeeded({"removed": 1, "nodes": "g-1"})


@each_row(
    "fields",
    [
        {"daemonset": True},
        {"mirror": True},
        {"phase": "Succeeded"},
        {"phase": "Failed"},
        {"priority": -11},  # expendable: deleted with its node
        {"deleted": START - 100.0, "deletion_grace": 30.0},  # terminating for too long
    ],
)
def test_removal_ignores_pods_that_block_no_node(fields: dict[str, object]) -> None:
    fixture = OperationFixture()
    fixture.group(1)
    fixture.cluster.stuck.add("default/p")
    fixture.cluster.add_pod("default/p", "g-1", **fields)
    assert isinstance(fixture.play(remove("g-1")), Succeeded)


def test_removal_evaluates_the_drain_rules_again() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    operation = fixture.play_until(remove("g-1"), "recheck")
    fixture.holds["g-1"] = Recheck("default/db-0", "LocalStorageRequested")
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.message == "node g-1: pod default/db-0 holds it: LocalStorageRequested"
    assert kept(fixture, "g-1")


def test_rollback_keeps_a_node_cordoned_that_was_cordoned_before() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    fixture.cluster.add_node("g-1", cordoned=True)
    fixture.cluster.add_pod("default/late", "g-1")
    fixture.play(remove("g-1"))
    assert fixture.cluster.nodes["g-1"].unschedulable
    assert fixture.cluster.nodes["g-1"].taint(HARD) is None


def test_removal_cordons_nothing_without_the_option() -> None:
    fixture = OperationFixture(options=Options(cordon_node_before_terminating=False))
    fixture.group(1)
    fixture.play_until(remove("g-1"), "recheck")
    assert not fixture.cluster.nodes["g-1"].unschedulable


def test_removal_spares_another_machine_with_the_same_node_name() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    fixture.cluster.add_node("g-1", "memory://another")
    outcome = fixture.play(remove("g-1"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert ("taint", "g-1") not in fixture.cluster.calls


@each_row(("age", "goes"), [(299.0, False), (301.0, True)])
def test_removal_respects_a_recent_foreign_taint_and_takes_over_an_old_one(
    age: float, goes: bool
) -> None:
    fixture = OperationFixture()
    fixture.group(1)
    foreign = Taint(HARD, "NoSchedule", str(int(START - age)))
    fixture.cluster.nodes["g-1"] = msgspec.structs.replace(
        fixture.cluster.nodes["g-1"], taints=(foreign,)
    )
    assert isinstance(fixture.play(remove("g-1")), Succeeded if goes else Failed)


def test_removal_stops_when_a_user_removes_the_taint() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    operation = fixture.play_until(remove("g-1"), "recheck")
    fixture.cluster.untaint("g-1", HARD, operation=operation.spec.id, uncordon=True)
    assert isinstance(fixture.play(operation), Failed)
    assert fixture.provider.deleted == []


def test_removal_waits_for_a_delay_annotation_but_not_forever() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    fixture.cluster.add_node("g-1", delays=["delay-deletion.cluster-autoscaler.kubernetes.io/csi"])
    assert isinstance(fixture.play(remove("g-1")), Succeeded)
    assert fixture.now == START + 5.0 + 120.0


def test_removal_refused_by_the_provider_leaves_no_trace_on_nodes() -> None:
    fixture = OperationFixture()
    fixture.group(2, least=1)
    outcome = fixture.play(remove("g-1", "g-2"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert kept(fixture, "g-1")
    assert kept(fixture, "g-2")


def test_removal_refused_credential_rolls_back_and_keeps_its_class() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    fixture.provider.fail_next(
        "delete_nodes", errors.Unauthorized("credentials refused", code="401")
    )
    outcome = fixture.play(remove("g-1"))
    assert outcome == Failed(
        "Unauthorized", "node g-1: credentials refused", code="401", facts={"kept": 1}
    )
    assert kept(fixture, "g-1")


def test_removal_with_a_lost_answer_deletes_no_other_machine() -> None:
    fixture = OperationFixture()
    fixture.group(3)
    fixture.provider.fail_next("delete_nodes", errors.Transient("reset"), late=True)
    assert isinstance(fixture.play(remove("g-2")), Succeeded)
    assert fixture.provider.deleted == ["g-2"]
    assert fixture.provider.pools["g"].target == 2


def test_removal_batch_is_rolled_back_when_a_taint_cannot_be_added() -> None:
    fixture = OperationFixture()
    fixture.group(2)
    operation = fixture.play_until(remove("g-1", "g-2"), "taint")
    fixture.cluster.fail_next("taint", kube.Forbidden("nodes is forbidden", status=403))
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "ClusterForbidden"
    assert kept(fixture, "g-1")
    assert kept(fixture, "g-2")


def test_rollback_is_retried_until_the_cluster_answers() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    fixture.cluster.add_pod("default/late", "g-1")
    fixture.cluster.fail_next("untaint", kube.Unavailable("no answer"), times=5)
    assert isinstance(fixture.play(remove("g-1")), Failed)
    assert kept(fixture, "g-1")


def test_rollback_that_never_succeeds_ends_and_is_reported() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    fixture.cluster.add_pod("default/late", "g-1")
    fixture.cluster.fail_next("untaint", kube.Unavailable("no answer"), times=1000)
    outcome = fixture.play(remove("g-1"))
    assert isinstance(outcome, Failed)
    assert "it could not be given back" in outcome.message


def test_removal_stops_waiting_for_a_lingering_node_object_after_five_minutes() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    fixture.provider.on_delete = None
    outcome = fixture.play(remove("g-1"))
    assert outcome == Succeeded({"removed": 1, "nodes": "g-1", "unconfirmed": "g-1"})
    assert fixture.now == START + 5.0 + 300.0


def test_removal_with_an_unknown_step_restarts_and_succeeds() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    operation = fixture.play_until(remove("g-1"), "recheck")
    assert isinstance(fixture.play(operation.with_status(step="renamed")), Succeeded)
    assert fixture.provider.deleted == ["g-1"]


def test_removal_steps_return_their_next_time_and_never_sleep() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    operation, steps = remove("g-1"), 0
    while True:
        before = fixture.now
        operation, outcome = fixture.step(operation)
        if not isinstance(outcome, InProgress):
            break
        assert fixture.now - before == outcome.after
        steps += 1
    assert isinstance(outcome, Succeeded)
    assert steps >= 3


def test_removal_accepted_by_a_slow_vendor_is_completed_past_the_deadline() -> None:
    """An untainted node would get pods that die with its machine."""
    fixture = OperationFixture(polls=10_000)
    fixture.group(2)
    fixture.provider.on_delete = None
    outcome = fixture.play(remove("g-1"))
    assert outcome == Succeeded({"removed": 1, "nodes": "g-1", "unconfirmed": "g-1"})
    assert not kept(fixture, "g-1"), (
        "its mark stays, and the next pass looks whether the vendor still removes it"
    )
    assert kept(fixture, "g-2")


def test_removal_refused_by_the_vendor_returns_the_node() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    operation = fixture.play_until(remove("g-1"), "delete")
    fixture.provider.fail_next("delete_nodes", errors.Unauthorized("no"))
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Unauthorized"
    assert kept(fixture, "g-1")


def test_drained_node_waits_for_the_vendor_as_long_as_needed() -> None:
    fixture = OperationFixture()
    fixture.group(2)
    operation = fixture.play_until(remove("g-1"), "delete")
    fixture.provider.fail_next(
        "delete_nodes",
        errors.Conflict("another change of the pool is under way", code="busy"),
        times=MAX_TRIES + 5,
    )
    assert isinstance(fixture.play(operation), Succeeded)
    assert fixture.provider.deleted == ["g-1"]


def test_removal_ends_after_some_attempts_for_any_other_conflict() -> None:
    fixture = OperationFixture()
    fixture.group(2)
    operation = fixture.play_until(remove("g-1"), "delete")
    fixture.provider.fail_next("delete_nodes", errors.Conflict("no"), times=MAX_TRIES + 5)
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, fixture.provider.deleted) == ("Conflict", [])
    assert kept(fixture, "g-1")
