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
    """There, untainted, uncordoned, and its machine runs: as if nothing had been tried."""
    node = story.cluster.nodes[name]
    return node.taint(HARD) is None and not node.unschedulable and name in story.provider.pools["g"].machines


def test_an_empty_node_goes_by_its_instance_after_the_delay() -> None:
    story = Story()
    story.group(3)
    assert story.play(remove("g-2")) == Succeeded({"removed": 1, "nodes": "g-2"})
    assert story.provider.deleted == ["g-2"]
    assert story.provider.pools["g"].target == 2
    assert story.now == START + 5.0


def test_the_taint_carries_the_second_and_the_node_is_cordoned() -> None:
    story = Story()
    story.group(1)
    story.play_until(remove("g-1"), "recheck")
    node = story.cluster.nodes["g-1"]
    assert node.taint(HARD) == Taint(HARD, "NoSchedule", str(int(START)))
    assert node.unschedulable


def test_several_nodes_go_in_one_call() -> None:
    story = Story()
    story.group(4)
    assert story.play(remove("g-1", "g-2", "g-4")) == Succeeded({"removed": 3, "nodes": "g-1,g-2,g-4"})
    assert story.provider.calls == ["remove"]


def test_one_node_that_cannot_go_does_not_hold_the_others() -> None:
    story = Story()
    story.group(3)
    story.cluster.add_pod("default/late", "g-2")
    outcome = story.play(remove("g-1", "g-2", "g-3"))
    assert outcome == Succeeded(
        {"removed": 2, "nodes": "g-1,g-3", "kept g-2": "pod default/late was bound to it after it was planned"}
    )
    assert kept(story, "g-2")
    assert sorted(story.provider.deleted) == ["g-1", "g-3"]


# demands.md 7: the 371 ms between taint and deletion.
def test_ca_5790_a_pod_bound_between_taint_and_recheck_saves_the_node() -> None:
    story = Story()
    story.group(1)
    operation = story.play_until(remove("g-1"), "recheck")
    story.cluster.add_pod("default/fast", "g-1")
    outcome = story.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "NodeNotEmpty"
    assert outcome.message == "node g-1: pod default/fast was bound to it after it was planned"
    assert kept(story, "g-1")


def test_a_pod_nominated_to_the_node_saves_it() -> None:
    story = Story()
    story.group(1)
    operation = story.play_until(remove("g-1"), "recheck")
    story.cluster.nominate("default/soon", "g-1")
    outcome = story.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.message == "node g-1: pod default/soon is nominated to run on it"
    assert kept(story, "g-1")


@each_row("fields", [{"priority": -11}, {"daemonset": True}, {"gated": True}, {"deleted": START}])
def test_nominated_pods_that_wait_for_no_node_save_none(fields: dict[str, object]) -> None:
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
        {"priority": -11},  # expendable: dies with its node
        {"deleted": START - 100.0, "deletion_grace": 30.0},  # terminating for too long
    ],
)
def test_pods_that_hold_no_node(fields: dict[str, object]) -> None:
    story = Story()
    story.group(1)
    story.cluster.stuck.add("default/p")
    story.cluster.add_pod("default/p", "g-1", **fields)
    assert isinstance(story.play(remove("g-1")), Succeeded)


def test_the_drain_rules_are_asked_again() -> None:
    story = Story()
    story.group(1)
    operation = story.play_until(remove("g-1"), "recheck")
    story.holds["g-1"] = Recheck("default/db-0", "LocalStorageRequested")
    outcome = story.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.message == "node g-1: pod default/db-0 holds it: LocalStorageRequested"
    assert kept(story, "g-1")


def test_a_node_that_was_cordoned_before_stays_cordoned() -> None:
    story = Story()
    story.group(1)
    story.cluster.add_node("g-1", cordoned=True)
    story.cluster.add_pod("default/late", "g-1")
    story.play(remove("g-1"))
    assert story.cluster.nodes["g-1"].unschedulable
    assert story.cluster.nodes["g-1"].taint(HARD) is None


def test_without_the_option_nothing_is_cordoned() -> None:
    story = Story(options=Options(cordon_node_before_terminating=False))
    story.group(1)
    story.play_until(remove("g-1"), "recheck")
    assert not story.cluster.nodes["g-1"].unschedulable


def test_another_machine_under_the_same_name_is_not_touched() -> None:
    story = Story()
    story.group(1)
    story.cluster.add_node("g-1", "memory://another")
    outcome = story.play(remove("g-1"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert ("taint", "g-1") not in story.cluster.calls


@each_row(("age", "goes"), [(299.0, False), (301.0, True)])
def test_a_fresh_taint_of_somebody_else_is_respected_an_old_one_is_a_leftover(age: float, goes: bool) -> None:
    story = Story()
    story.group(1)
    foreign = Taint(HARD, "NoSchedule", str(int(START - age)))
    story.cluster.nodes["g-1"] = msgspec.structs.replace(story.cluster.nodes["g-1"], taints=(foreign,))
    assert isinstance(story.play(remove("g-1")), Succeeded if goes else Failed)


def test_a_taint_taken_off_by_a_person_is_obeyed() -> None:
    story = Story()
    story.group(1)
    operation = story.play_until(remove("g-1"), "recheck")
    story.cluster.untaint("g-1", HARD, operation=operation.spec.id, uncordon=True)
    assert isinstance(story.play(operation), Failed)
    assert story.provider.deleted == []


def test_a_delay_annotation_is_waited_for_but_not_for_ever() -> None:
    story = Story()
    story.group(1)
    story.cluster.add_node("g-1", delays=["delay-deletion.cluster-autoscaler.kubernetes.io/csi"])
    assert isinstance(story.play(remove("g-1")), Succeeded)
    assert story.now == START + 5.0 + 120.0


def test_a_provider_that_refuses_leaves_no_trace_on_the_nodes() -> None:
    story = Story()
    story.group(2, least=1)
    outcome = story.play(remove("g-1", "g-2"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert kept(story, "g-1")
    assert kept(story, "g-2")


def test_a_refused_credential_of_the_provider_rolls_back_and_keeps_its_class() -> None:
    story = Story()
    story.group(1)
    story.provider.fail_next("remove", errors.Unauthorized("credentials refused", code="401"))
    outcome = story.play(remove("g-1"))
    assert outcome == Failed("Unauthorized", "node g-1: credentials refused", code="401", facts={"kept": 1})
    assert kept(story, "g-1")


def test_a_lost_answer_of_the_deletion_deletes_nothing_else() -> None:
    story = Story()
    story.group(3)
    story.provider.fail_next("remove", errors.Transient("reset"), late=True)
    assert isinstance(story.play(remove("g-2")), Succeeded)
    assert story.provider.deleted == ["g-2"]
    assert story.provider.pools["g"].target == 2


def test_a_taint_that_cannot_be_put_on_rolls_the_whole_batch_back() -> None:
    story = Story()
    story.group(2)
    operation = story.play_until(remove("g-1", "g-2"), "taint")
    story.cluster.fail_next("taint", kube.Forbidden("nodes is forbidden", status=403))
    outcome = story.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "ClusterForbidden"
    assert kept(story, "g-1")
    assert kept(story, "g-2")


def test_a_roll_back_is_tried_until_the_cluster_answers() -> None:
    story = Story()
    story.group(1)
    story.cluster.add_pod("default/late", "g-1")
    story.cluster.fail_next("untaint", kube.Unavailable("no answer"), times=5)
    assert isinstance(story.play(remove("g-1")), Failed)
    assert kept(story, "g-1")


def test_a_roll_back_that_never_works_ends_and_says_so() -> None:
    story = Story()
    story.group(1)
    story.cluster.add_pod("default/late", "g-1")
    story.cluster.fail_next("untaint", kube.Unavailable("no answer"), times=1000)
    outcome = story.play(remove("g-1"))
    assert isinstance(outcome, Failed)
    assert "it could not be given back" in outcome.message


def test_a_node_object_that_outlives_its_machine_ends_the_wait_after_five_minutes() -> None:
    story = Story()
    story.group(1)
    story.provider.on_delete = None
    outcome = story.play(remove("g-1"))
    assert outcome == Succeeded({"removed": 1, "nodes": "g-1", "unconfirmed": "g-1"})
    assert story.now == START + 5.0 + 300.0


def test_a_step_that_no_longer_exists_starts_over_and_ends_well() -> None:
    story = Story()
    story.group(1)
    operation = story.play_until(remove("g-1"), "recheck")
    assert isinstance(story.play(operation.with_status(step="renamed")), Succeeded)
    assert story.provider.deleted == ["g-1"]


def test_every_step_says_when_and_none_waits() -> None:
    story = Story()
    story.group(1)
    operation = remove("g-1")
    while True:
        before = story.now
        operation, outcome = story.step(operation)
        if not isinstance(outcome, InProgress):
            break
        assert story.now - before == outcome.after


def test_a_vendor_that_has_taken_the_removal_up_and_is_slow_is_seen_through_past_the_deadline() -> None:
    """Untainted, the node would get pods that die with its machine."""
    story = Story(polls=10_000)
    story.group(2)
    story.provider.on_delete = None
    outcome = story.play(remove("g-1"))
    assert outcome == Succeeded({"removed": 1, "nodes": "g-1", "unconfirmed": "g-1"})
    assert not kept(story, "g-1"), "its mark stays, and the next pass looks whether the vendor still removes it"
    assert kept(story, "g-2")


def test_a_vendor_that_refused_gives_the_node_back() -> None:
    story = Story()
    story.group(1)
    operation = story.play_until(remove("g-1"), "delete")
    story.provider.fail_next("remove", errors.Unauthorized("no"))
    outcome = story.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Unauthorized"
    assert kept(story, "g-1")


def test_a_drained_node_waits_for_its_turn_at_the_vendor_as_long_as_it_takes() -> None:
    story = Story()
    story.group(2)
    operation = story.play_until(remove("g-1"), "delete")
    story.provider.fail_next(
        "remove", errors.Conflict("another change of the pool is under way", code="busy"), times=MAX_TRIES + 5
    )
    assert isinstance(story.play(operation), Succeeded)
    assert story.provider.deleted == ["g-1"]


def test_any_other_conflict_ends_a_removal_after_some_tries() -> None:
    story = Story()
    story.group(2)
    operation = story.play_until(remove("g-1"), "delete")
    story.provider.fail_next("remove", errors.Conflict("no"), times=MAX_TRIES + 5)
    outcome = story.play(operation)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, story.provider.deleted) == ("Conflict", [])
    assert kept(story, "g-1")
