from __future__ import annotations

from chalicelib.cluster import errors as kube
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.operations.runner import give_up
from chalicelib.operations.steps.drain import EVICTIONS_PER_STEP
from chalicelib.policy.settings.cluster_options import Options
from tests.cases import each_row
from tests.unit.operations.harness import START, OperationFixture, remove
from tests.unit.operations.test_removal_steps import kept


def drained(fixture: OperationFixture, pods: int, **fields: object) -> Operation:
    """One node with that many pods, planned to be drained."""
    fixture.group(1)
    keys = tuple(f"default/p-{n:02}" for n in range(pods))
    for key in keys:
        fixture.cluster.add_pod(key, "g-1", **fields)
    return remove("g-1", evict={"g-1": keys})


def evicted(fixture: OperationFixture) -> list[str]:
    return [name for verb, name in fixture.cluster.calls if verb == "evict"]


def test_drain_evicts_and_waits_for_pods_before_the_machine_is_deleted() -> None:
    fixture = OperationFixture()
    operation = fixture.play_until(drained(fixture, 3), "gone")
    assert len(evicted(fixture)) == 3
    assert fixture.provider.deleted == []
    assert isinstance(fixture.play(operation), Succeeded)
    assert fixture.provider.deleted == ["g-1"]
    # the poll after the last of them must have ended
    assert fixture.now == START + 5.0 + 30.0 + 2.0


@each_row(("own", "most", "given"), [(30.0, 600, 30.0), (900.0, 600, 600.0), (5.0, 600, 5.0)])
def test_drain_grace_is_the_pods_own_up_to_the_option(own: float, most: int, given: float) -> None:
    fixture = OperationFixture(options=Options(max_graceful_termination_sec=most))
    operation = fixture.play_until(drained(fixture, 1, grace=own), "gone")
    assert fixture.cluster.pods()[0].deleted == fixture.now + given
    assert isinstance(fixture.play(operation), Succeeded)


def test_drain_blocked_by_a_budget_returns_the_node_and_names_the_budget() -> None:
    fixture = OperationFixture()
    operation = drained(fixture, 3)
    fixture.cluster.add_budget("web", ["default/p-01"], room=0)
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "EvictionBlocked"
    assert outcome.message == (
        "node g-1: pod default/p-01 cannot be evicted: The disruption budget web needs all its "
        "pods (tried for 120 s)"
    )
    assert kept(fixture, "g-1")
    assert fixture.provider.deleted == []
    assert evicted(fixture).count("default/p-01") == 13  # at once, then every 10 s for two minutes


def test_drain_deadline_before_the_eviction_limit_names_the_budget() -> None:
    fixture = OperationFixture()
    operation = drained(fixture, 1)
    fixture.cluster.add_budget("web", ["default/p-00"], room=0)
    operation = operation.with_spec(deadline=START + 60.0)
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "DeadlineExceeded"
    assert "disruption budget web" in outcome.message
    assert kept(fixture, "g-1")


def test_drain_succeeds_once_the_budget_has_room() -> None:
    fixture = OperationFixture()
    operation = drained(fixture, 2)
    budget = fixture.cluster.add_budget("web", ["default/p-00", "default/p-01"], room=1)
    operation = fixture.play_until(operation, "evict")
    for _ in range(3):
        operation, _ = fixture.step(operation)
    budget.room = 1
    assert isinstance(fixture.play(operation), Succeeded)


def test_drain_of_fifty_pods_takes_several_short_steps() -> None:
    fixture = OperationFixture()
    operation = drained(fixture, 50)
    before, most = 0, 0
    while not fixture.provider.deleted:
        operation, _ = fixture.step(operation)
        most = max(most, len(evicted(fixture)) - before)
        before = len(evicted(fixture))
    assert most == EVICTIONS_PER_STEP
    assert len(evicted(fixture)) == 50
    assert [step for step, _ in fixture.steps].count("evict") == 3


def test_drain_refused_evictions_do_not_delay_other_pods() -> None:
    fixture = OperationFixture()
    operation = drained(fixture, 30)
    first = [f"default/p-{n:02}" for n in range(EVICTIONS_PER_STEP + 2)]
    fixture.cluster.add_budget("web", first, room=0)
    operation = fixture.play_until(operation, "evict")
    fixture.step(fixture.step(operation)[0])
    assert "default/p-29" in evicted(fixture)


def test_drain_api_error_for_one_pod_counts_as_a_refusal_of_that_pod() -> None:
    fixture = OperationFixture()
    operation = drained(fixture, 2)
    fixture.cluster.fail_next(
        "evict", kube.Unavailable("more than one PodDisruptionBudget", status=500)
    )
    assert isinstance(fixture.play(operation), Succeeded)


def test_drain_pod_that_never_ends_keeps_the_node() -> None:
    fixture = OperationFixture()
    operation = drained(fixture, 2)
    fixture.cluster.stuck.add("default/p-01")
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "PodNotGone"
    assert "default/p-01" in outcome.message
    assert kept(fixture, "g-1")


def test_drain_pod_scheduled_during_the_drain_keeps_the_node() -> None:
    fixture = OperationFixture()
    operation = fixture.play_until(drained(fixture, 2), "gone")
    fixture.cluster.add_pod("default/stranger", "g-1")
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.message == "node g-1: pod default/stranger was bound to it during the drain"
    assert kept(fixture, "g-1")


@each_row(
    ("options", "annotation", "pods", "goes"),
    [
        (Options(), "", 1, True),  # occupied: evicted by default
        (Options(daemonset_eviction_for_occupied_nodes=False), "", 1, False),
        (Options(), "false", 1, False),  # the annotation overrides
        (Options(), "", 0, False),  # empty: not evicted by default
        (Options(daemonset_eviction_for_empty_nodes=True), "", 0, True),
        (Options(), "true", 0, True),
    ],
)
def test_drain_daemonset_pods_follow_the_options(
    options: Options, annotation: str, pods: int, goes: bool
) -> None:
    fixture = OperationFixture(options=options)
    operation = drained(fixture, pods)
    fixture.cluster.add_pod("kube-system/ds", "g-1", daemonset=True, enable_ds_eviction=annotation)
    assert isinstance(fixture.play(operation), Succeeded)
    assert ("kube-system/ds" in evicted(fixture)) == goes


def test_drain_refused_daemonset_eviction_delays_nothing() -> None:
    fixture = OperationFixture()
    operation = drained(fixture, 1)
    fixture.cluster.add_pod("kube-system/ds", "g-1", daemonset=True)
    fixture.cluster.add_budget("ds", ["kube-system/ds"], room=0)
    assert isinstance(fixture.play(operation), Succeeded)
    assert evicted(fixture).count("kube-system/ds") == 1


def test_cancelled_drain_is_rolled_back() -> None:
    fixture = OperationFixture()
    operation = fixture.play_until(drained(fixture, 3), "gone")
    outcome = give_up(operation, fixture.world(), fixture.now, "Abandoned", "the policy is gone")
    assert isinstance(outcome, InProgress)
    operation = operation.with_status(step=outcome.step, data=outcome.data)
    ended = fixture.play(operation)
    assert isinstance(ended, Failed)
    assert ended.error_class == "Abandoned"
    assert kept(fixture, "g-1")


def test_drain_cancelled_before_any_change_just_ends() -> None:
    fixture = OperationFixture()
    operation = drained(fixture, 3)
    assert give_up(operation, fixture.world(), fixture.now, "Abandoned", "off") == Failed(
        "Abandoned", "off"
    )
    assert fixture.cluster.calls == []
