from __future__ import annotations

import msgspec

from chalicelib.kube import errors as kube
from chalicelib.model.node import TO_BE_DELETED, Taint
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.model.policy import Options
from chalicelib.operations.error_policy import MAX_TRIES
from chalicelib.operations.step_context import Recheck
from chalicelib.providers import errors
from tests.cases import each_row
from tests.unit.operations.harness import START, Story, remove

HARD = TO_BE_DELETED


def kept(story: Story, name: str) -> bool:
    """Asserts that the node exists, untainted and uncordoned, and its machine runs, as if nothing had been tried."""
    node = story.cluster.nodes[name]
    return node.taint(HARD) is None and not node.unschedulable and name in story.provider.pools["g"].machines


def test_removal_deletes_an_empty_node_by_its_instance_after_the_delay() -> None:
    story = Story()
    story.group(3)
    assert story.play(remove("g-2")) == Succeeded({"removed": 1, "nodes": "g-2"})
    assert story.provider.deleted == ["g-2"]
    assert story.provider.pools["g"].target == 2
    assert story.now == START + 5.0


def test_removal_taint_has_a_timestamp_and_the_node_is_cordoned() -> None:
    story = Story()
    story.group(1)
    story.play_until(remove("g-1"), "recheck")
    node = story.cluster.nodes["g-1"]
    assert node.taint(HARD) == Taint(HARD, "NoSchedule", str(int(START)))
    assert node.unschedulable


def test_removal_of_several_nodes_is_one_provider_call() -> None:
    story = Story()
    story.group(4)
    assert story.play(remove("g-1", "g-2", "g-4")) == Succeeded({"removed": 3, "nodes": "g-1,g-2,g-4"})
    assert story.provider.calls == ["remove"]


def test_removal_of_one_blocked_node_does_not_block_the_others() -> None:
    story = Story()
    story.group(3)
    story.cluster.add_pod("default/late", "g-2")
    outcome = story.play(remove("g-1", "g-2", "g-3"))
    assert outcome == Succeeded(
        {"removed": 2, "nodes": "g-1,g-3", "kept g-2": "pod default/late was bound to it after it was planned"}
    )
    assert kept(story, "g-2")
    assert sorted(story.provider.deleted) == ["g-1", "g-3"]


# Covers the time between taint and deletion (371 ms in cluster-autoscaler issue 5790).
def test_removal_keeps_a_node_if_a_pod_is_bound_before_the_recheck() -> None:
    story = Story()
    story.group(1)
    operation = story.play_until(remove("g-1"), "recheck")
    story.cluster.add_pod("default/fast", "g-1")
    outcome = story.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "NodeNotEmpty"
    assert outcome.message == "node g-1: pod default/fast was bound to it after it was planned"
    assert kept(story, "g-1")


def test_removal_keeps_a_node_with_a_nominated_pod() -> None:
    story = Story()
    story.group(1)
    operation = story.play_until(remove("g-1"), "recheck")
    story.cluster.nominate("default/soon", "g-1")
    outcome = story.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.message == "node g-1: pod default/soon is nominated to run on it"
    assert kept(story, "g-1")


@each_row("fields", [{"priority": -11}, {"daemonset": True}, {"gated": True}, {"deleted": START}])
def test_removal_ignores_nominated_pods_that_need_no_node(fields: dict[str, object]) -> None:
    story = Story()
    story.group(1)
    operation = story.play_until(remove("g-1"), "recheck")
    story.cluster.nominate("default/soon", "g-1", **fields)
    assert story.play(operation) == Succeeded({"removed": 1, "nodes": "g-1"})


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
    story = Story()
    story.group(1)
    story.cluster.stuck.add("default/p")
    story.cluster.add_pod("default/p", "g-1", **fields)
    assert isinstance(story.play(remove("g-1")), Succeeded)


def test_removal_evaluates_the_drain_rules_again() -> None:
    story = Story()
    story.group(1)
    operation = story.play_until(remove("g-1"), "recheck")
    story.holds["g-1"] = Recheck("default/db-0", "LocalStorageRequested")
    outcome = story.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.message == "node g-1: pod default/db-0 holds it: LocalStorageRequested"
    assert kept(story, "g-1")


def test_rollback_keeps_a_node_cordoned_that_was_cordoned_before() -> None:
    story = Story()
    story.group(1)
    story.cluster.add_node("g-1", cordoned=True)
    story.cluster.add_pod("default/late", "g-1")
    story.play(remove("g-1"))
    assert story.cluster.nodes["g-1"].unschedulable
    assert story.cluster.nodes["g-1"].taint(HARD) is None


def test_removal_cordons_nothing_without_the_option() -> None:
    story = Story(options=Options(cordon_node_before_terminating=False))
    story.group(1)
    story.play_until(remove("g-1"), "recheck")
    assert not story.cluster.nodes["g-1"].unschedulable


def test_removal_spares_another_machine_with_the_same_node_name() -> None:
    story = Story()
    story.group(1)
    story.cluster.add_node("g-1", "memory://another")
    outcome = story.play(remove("g-1"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert ("taint", "g-1") not in story.cluster.calls


@each_row(("age", "goes"), [(299.0, False), (301.0, True)])
def test_removal_respects_a_recent_foreign_taint_and_takes_over_an_old_one(age: float, goes: bool) -> None:
    story = Story()
    story.group(1)
    foreign = Taint(HARD, "NoSchedule", str(int(START - age)))
    story.cluster.nodes["g-1"] = msgspec.structs.replace(story.cluster.nodes["g-1"], taints=(foreign,))
    assert isinstance(story.play(remove("g-1")), Succeeded if goes else Failed)


def test_removal_stops_when_a_user_removes_the_taint() -> None:
    story = Story()
    story.group(1)
    operation = story.play_until(remove("g-1"), "recheck")
    story.cluster.untaint("g-1", HARD, operation=operation.spec.id, uncordon=True)
    assert isinstance(story.play(operation), Failed)
    assert story.provider.deleted == []


def test_removal_waits_for_a_delay_annotation_but_not_forever() -> None:
    story = Story()
    story.group(1)
    story.cluster.add_node("g-1", delays=["delay-deletion.cluster-autoscaler.kubernetes.io/csi"])
    assert isinstance(story.play(remove("g-1")), Succeeded)
    assert story.now == START + 5.0 + 120.0


def test_removal_refused_by_the_provider_leaves_no_trace_on_nodes() -> None:
    story = Story()
    story.group(2, least=1)
    outcome = story.play(remove("g-1", "g-2"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert kept(story, "g-1")
    assert kept(story, "g-2")


def test_removal_refused_credential_rolls_back_and_keeps_its_class() -> None:
    story = Story()
    story.group(1)
    story.provider.fail_next("remove", errors.Unauthorized("credentials refused", code="401"))
    outcome = story.play(remove("g-1"))
    assert outcome == Failed("Unauthorized", "node g-1: credentials refused", code="401", facts={"kept": 1})
    assert kept(story, "g-1")


def test_removal_with_a_lost_answer_deletes_no_other_machine() -> None:
    story = Story()
    story.group(3)
    story.provider.fail_next("remove", errors.Transient("reset"), late=True)
    assert isinstance(story.play(remove("g-2")), Succeeded)
    assert story.provider.deleted == ["g-2"]
    assert story.provider.pools["g"].target == 2


def test_removal_batch_is_rolled_back_when_a_taint_cannot_be_added() -> None:
    story = Story()
    story.group(2)
    operation = story.play_until(remove("g-1", "g-2"), "taint")
    story.cluster.fail_next("taint", kube.Forbidden("nodes is forbidden", status=403))
    outcome = story.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "ClusterForbidden"
    assert kept(story, "g-1")
    assert kept(story, "g-2")


def test_rollback_is_retried_until_the_cluster_answers() -> None:
    story = Story()
    story.group(1)
    story.cluster.add_pod("default/late", "g-1")
    story.cluster.fail_next("untaint", kube.Unavailable("no answer"), times=5)
    assert isinstance(story.play(remove("g-1")), Failed)
    assert kept(story, "g-1")


def test_rollback_that_never_succeeds_ends_and_is_reported() -> None:
    story = Story()
    story.group(1)
    story.cluster.add_pod("default/late", "g-1")
    story.cluster.fail_next("untaint", kube.Unavailable("no answer"), times=1000)
    outcome = story.play(remove("g-1"))
    assert isinstance(outcome, Failed)
    assert "it could not be given back" in outcome.message


def test_removal_stops_waiting_for_a_lingering_node_object_after_five_minutes() -> None:
    story = Story()
    story.group(1)
    story.provider.on_delete = None
    outcome = story.play(remove("g-1"))
    assert outcome == Succeeded({"removed": 1, "nodes": "g-1", "unconfirmed": "g-1"})
    assert story.now == START + 5.0 + 300.0


def test_removal_with_an_unknown_step_restarts_and_succeeds() -> None:
    story = Story()
    story.group(1)
    operation = story.play_until(remove("g-1"), "recheck")
    assert isinstance(story.play(operation.with_status(step="renamed")), Succeeded)
    assert story.provider.deleted == ["g-1"]


def test_removal_steps_return_their_next_time_and_never_sleep() -> None:
    story = Story()
    story.group(1)
    operation = remove("g-1")
    while True:
        before = story.now
        operation, outcome = story.step(operation)
        if not isinstance(outcome, InProgress):
            break
        assert story.now - before == outcome.after


def test_removal_accepted_by_a_slow_vendor_is_completed_past_the_deadline() -> None:
    """An untainted node would get pods that die with its machine."""
    story = Story(polls=10_000)
    story.group(2)
    story.provider.on_delete = None
    outcome = story.play(remove("g-1"))
    assert outcome == Succeeded({"removed": 1, "nodes": "g-1", "unconfirmed": "g-1"})
    assert not kept(story, "g-1"), "its mark stays, and the next pass looks whether the vendor still removes it"
    assert kept(story, "g-2")


def test_removal_refused_by_the_vendor_returns_the_node() -> None:
    story = Story()
    story.group(1)
    operation = story.play_until(remove("g-1"), "delete")
    story.provider.fail_next("remove", errors.Unauthorized("no"))
    outcome = story.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Unauthorized"
    assert kept(story, "g-1")


def test_drained_node_waits_for_the_vendor_as_long_as_needed() -> None:
    story = Story()
    story.group(2)
    operation = story.play_until(remove("g-1"), "delete")
    story.provider.fail_next(
        "remove", errors.Conflict("another change of the pool is under way", code="busy"), times=MAX_TRIES + 5
    )
    assert isinstance(story.play(operation), Succeeded)
    assert story.provider.deleted == ["g-1"]


def test_removal_ends_after_some_attempts_for_any_other_conflict() -> None:
    story = Story()
    story.group(2)
    operation = story.play_until(remove("g-1"), "delete")
    story.provider.fail_next("remove", errors.Conflict("no"), times=MAX_TRIES + 5)
    outcome = story.play(operation)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, story.provider.deleted) == ("Conflict", [])
    assert kept(story, "g-1")
