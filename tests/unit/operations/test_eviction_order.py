"""Order and grace periods of pod evictions (docs/reference/drain.md "Priority groups")."""

from __future__ import annotations

from chalicelib.cluster import errors as kube
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.operations.ordering import deadline_of
from chalicelib.operations.step_context import PodState, Recheck
from chalicelib.operations.steps.drain import eviction_groups, grace_of, group_of
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.timeouts import operation_timeout
from tests.cases import each_row
from tests.unit.operations.harness import START, OperationFixture, remove
from tests.unit.operations.test_drain_steps import drained, evicted
from tests.unit.operations.test_removal_steps import kept

GROUPS = Options(drain_priority_config=((10, 60), (1000, 30), (2000, 20), (2_000_000_000, 10)))


@each_row(
    ("priority", "group"),
    [
        (500, 10),
        (100, 10),
        (0, 10),
        (-5, 10),
        (1000, 1000),
        (1999, 1000),
        (2000, 2000),
        (2_000_000_005, 2_000_000_000),
    ],
)
def test_eviction_pod_joins_the_highest_priority_group_not_above_it(
    priority: int, group: int
) -> None:
    assert group_of(PodState("default", "p", priority=priority), GROUPS).priority == group


def test_eviction_groups_run_in_ascending_order_however_configured() -> None:
    shuffled = Options(drain_priority_config=((1000, 30), (10, 60)))
    assert [phase.priority for phase in eviction_groups(shuffled)] == [10, 1000]


@each_row(("own", "given"), [(1200.0, 600.0), (30.0, 30.0), (0.0, 0.0)])
def test_eviction_grace_is_the_pods_own_up_to_the_groups_limit(own: float, given: float) -> None:
    assert grace_of(PodState("default", "p", grace=own), Options()) == given
    assert PodState("default", "p").grace == 30.0  # where the pod names none


def test_eviction_group_begins_when_the_previous_group_is_gone() -> None:
    fixture = OperationFixture(options=GROUPS)
    operation = drained(fixture, 2)
    fixture.cluster.add_pod("default/p-00", "g-1", priority=2500, grace=300.0)
    fixture.cluster.add_pod("default/p-01", "g-1", priority=7, grace=300.0)
    operation = fixture.play_until(operation, "gone")
    assert evicted(fixture) == ["default/p-01"]
    (low,) = [pod for pod in fixture.cluster.pods() if pod.deleted]
    assert low.deleted == fixture.now + 60.0
    assert isinstance(fixture.play(operation), Succeeded)
    assert evicted(fixture) == ["default/p-01", "default/p-00"]
    assert START + 5.0 + 60.0 + 20.0 <= fixture.now <= START + 5.0 + 60.0 + 20.0 + 10.0


def test_eviction_groups_each_have_their_own_time_limit() -> None:
    fixture = OperationFixture(options=GROUPS)
    operation = drained(fixture, 2)
    fixture.cluster.add_pod("default/p-01", "g-1", priority=3000)
    fixture.cluster.add_budget("web", ["default/p-01"], room=0)
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert "tried for 120 s" in outcome.message
    assert kept(fixture, "g-1")


def test_eviction_groups_wait_for_daemonset_pods_except_recreated_ones() -> None:
    fixture = OperationFixture(options=GROUPS)
    operation = drained(fixture, 1)
    fixture.cluster.add_pod("kube-system/ds-a", "g-1", daemonset=True, priority=2_000_001_000)
    operation = fixture.play_until(operation, "gone")
    fixture.now += 65.0
    operation, _ = fixture.step(operation)
    operation, _ = fixture.step(operation)
    assert evicted(fixture) == ["default/p-00", "kube-system/ds-a"]
    fixture.cluster.add_pod("kube-system/ds-b", "g-1", daemonset=True, priority=2_000_001_000)
    assert isinstance(fixture.play(operation), Succeeded)
    assert "kube-system/ds-b" not in evicted(fixture)


def test_eviction_groups_do_not_evict_daemonset_pods_of_an_empty_node() -> None:
    fixture = OperationFixture(options=GROUPS)
    operation = drained(fixture, 0)
    fixture.cluster.add_pod("kube-system/ds", "g-1", daemonset=True)
    assert isinstance(fixture.play(operation), Succeeded)
    assert evicted(fixture) == []


def test_eviction_deadline_covers_every_group() -> None:
    operation = remove("g-1")
    plain = START + operation_timeout(OperationKind.DELETE_NODES, Options())
    assert deadline_of(operation, Options()) == plain
    # four short ones take no longer than one long one
    assert deadline_of(operation, GROUPS) == plain
    long = Options(drain_priority_config=((0, 600), (1000, 300)))
    assert deadline_of(operation, long) == plain + 120.0 + 300.0 + 30.0
    planned = operation.with_spec(deadline=START + 100.0)
    assert deadline_of(planned, long) == START + 100.0 + 450.0


def test_eviction_options_changed_midway_lose_no_pod() -> None:
    fixture = OperationFixture(options=GROUPS)
    operation = fixture.play_until(drained(fixture, 3), "gone")
    fixture.options = Options()
    assert isinstance(fixture.play(operation), Succeeded)
    assert sorted(evicted(fixture)) == ["default/p-00", "default/p-01", "default/p-02"]


# -- reporting


def pendings(fixture: OperationFixture, operation: Operation) -> list[InProgress]:
    """Returns every step's outcome up to the end."""
    found: list[InProgress] = []
    while True:
        operation, outcome = fixture.step(operation)
        if not isinstance(outcome, InProgress):
            return found
        found.append(outcome)


def test_eviction_is_reported_once_per_pod_and_each_refusal_every_time() -> None:
    fixture = OperationFixture()
    operation = drained(fixture, 25)
    fixture.cluster.add_budget("web", ["default/p-03", "default/p-04"], room=1)
    reported = pendings(fixture, operation)
    granted = [pod for outcome in reported for pod in outcome.evicted]
    assert sorted(granted) == [f"default/p-{n:02}" for n in range(25) if n != 4]
    assert [pod for outcome in reported for pod in outcome.refused] == ["default/p-04"] * 13


def test_eviction_is_not_reported_for_a_pod_that_ended_by_itself() -> None:
    fixture = OperationFixture()
    operation = drained(fixture, 2)
    operation = fixture.play_until(operation, "evict")
    stale = fixture.cluster.pods_on("g-1")
    fixture.cluster.pods_on = lambda node: stale if node == "g-1" else ()  # type: ignore[method-assign]
    fixture.cluster.add_pod("default/p-01", "g-1", uid="another")
    _, outcome = fixture.step(operation)
    assert isinstance(outcome, InProgress)
    assert outcome.evicted == ("default/p-00",)


# -- answers of the API


def test_eviction_obeys_a_longer_retry_after() -> None:
    fixture = OperationFixture()
    operation = fixture.play_until(drained(fixture, 1), "evict")
    fixture.cluster.fail_next(
        "evict", kube.TooManyRequests("slow down", status=429, retry_after=45.0)
    )
    _, outcome = fixture.step(operation)
    assert isinstance(outcome, InProgress)
    assert (outcome.step, outcome.after) == ("evict", 45.0)


def test_eviction_ignores_a_shorter_retry_after() -> None:
    fixture = OperationFixture()
    operation = fixture.play_until(drained(fixture, 1), "evict")
    fixture.cluster.fail_next(
        "evict", kube.TooManyRequests("slow down", status=429, retry_after=1.0)
    )
    _, outcome = fixture.step(operation)
    assert isinstance(outcome, InProgress)
    assert outcome.after == 10.0


def test_eviction_pod_ignoring_termination_keeps_the_node_after_its_group() -> None:
    fixture = OperationFixture()
    operation = drained(fixture, 2, grace=600.0)
    fixture.cluster.stuck.add("default/p-01")
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "PodNotGone"
    assert fixture.now == START + 5.0 + 600.0 + 30.0
    assert kept(fixture, "g-1")


def test_eviction_recreated_pod_of_the_same_name_is_another_pod() -> None:
    fixture = OperationFixture()
    operation = fixture.play_until(drained(fixture, 2), "gone")
    fixture.cluster.add_pod("default/p-01", "g-1", uid="its-successor")
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.message == "node g-1: pod default/p-01 was bound to it during the drain"
    assert evicted(fixture).count("default/p-01") == 1


def test_eviction_spares_a_new_pod_that_arrives_between_rounds() -> None:
    fixture = OperationFixture()
    operation = drained(fixture, 1)
    fixture.cluster.add_budget("web", ["default/p-00"], room=0)
    operation = fixture.play_until(operation, "evict")
    operation, _ = fixture.step(operation)
    fixture.cluster.add_pod("default/stranger", "g-1")
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "NodeNotEmpty"
    assert "default/stranger" not in evicted(fixture)
    assert kept(fixture, "g-1")


def test_eviction_shortens_the_grace_of_a_terminating_pod_once() -> None:
    fixture = OperationFixture()
    operation = drained(fixture, 1, grace=3600.0, deleted=START + 3500.0, deletion_grace=3600.0)
    assert isinstance(fixture.play(operation), Succeeded)
    assert evicted(fixture) == ["default/p-00"]
    assert fixture.now <= START + 5.0 + 600.0 + 5.0


def test_eviction_uses_drain_rules_where_the_api_names_no_budget() -> None:
    fixture = OperationFixture()
    operation = fixture.play_until(drained(fixture, 1), "evict")
    fixture.cluster.fail_next(
        "evict",
        kube.Unavailable("This pod has more than one PodDisruptionBudget", status=500),
        times=50,
    )
    fixture.holds["g-1"] = Recheck("default/p-00", "budgets default/a, default/b all select it")
    outcome = fixture.play(operation)
    assert isinstance(outcome, Failed)
    assert outcome.message.endswith(
        "pod default/p-00 holds it: budgets default/a, default/b all select it"
    )


# -- cost of waiting


def looks(fixture: OperationFixture) -> int:
    """Counts how often the pods were polled: each poll is an invocation."""
    return [step for step, _ in fixture.steps].count("gone")


def test_eviction_wait_of_ten_minutes_needs_few_polls() -> None:
    fixture = OperationFixture()
    assert isinstance(fixture.play(drained(fixture, 50, grace=600.0)), Succeeded)
    assert looks(fixture) <= 16
    assert fixture.now == START + 5.0 + 600.0 + 2.0


@each_row("after", [3.0, 12.0, 45.0, 100.0, 290.0])
def test_eviction_notices_pods_that_end_early(after: float) -> None:
    fixture = OperationFixture()
    operation = fixture.play_until(drained(fixture, 3, grace=600.0), "gone")
    began = fixture.now
    while operation.status.step == "gone":
        if fixture.now >= began + after:
            for pod in fixture.cluster.pods():
                fixture.cluster.add_pod(pod.key, "elsewhere")
        operation, _ = fixture.step(operation)
    assert fixture.now - began <= after + max(5.0, min(after, 60.0))


def test_eviction_polls_overdue_pods_less_often() -> None:
    fixture = OperationFixture()
    operation = drained(fixture, 2)
    fixture.cluster.stuck.add("default/p-00")
    assert isinstance(fixture.play(operation), Failed)
    assert looks(fixture) <= 22


def test_drain_of_nodes_with_a_common_name_prefix_drains_all() -> None:
    fixture = OperationFixture()
    fixture.group(0)
    fixture.provider.add_pool("g", size=0)
    for name in ("a", "a-b"):
        fixture.cluster.add_node(name)
    keys = {name: tuple(f"default/{name}-{n:02}" for n in range(15)) for name in ("a", "a-b")}
    for name, pods in keys.items():
        for key in pods:
            fixture.cluster.add_pod(key, name)
    fixture.play_until(remove("a", "a-b", evict=keys), "gone")
    assert sorted(evicted(fixture)) == sorted([*keys["a"], *keys["a-b"]])
