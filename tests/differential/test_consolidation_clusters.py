"""The inputs and the referee of the consolidation benchmarks: what they
promise, on small clusters.
"""

from __future__ import annotations

from collections import Counter

import pytest

from chalicelib.model.node import LEAVING_MARKS, mark_level
from chalicelib.model.plan import TaintUpdate
from chalicelib.model.snapshot import Snapshot
from chalicelib.policy.settings.cluster_policy import Policy
from tests.benchmarks.consolidation_bound import lower_bound
from tests.benchmarks.consolidation_clusters import (
    DAEMONS,
    LEVELS,
    NOW,
    ClusterShape,
    MachineType,
    compare,
    generate,
    small_clusters,
    small_shape,
)
from tests.benchmarks.consolidation_world import (
    WITHOUT_TIMERS,
    Karpenter,
    Outscaler,
    World,
    run_to_the_end,
)
from tests.benchmarks.scheduler_referee import SchedulerScores, referee
from tests.builders import ClusterBuilder, having, near
from tests.differential.karpenter import MICRO, KarpenterRules

POLICY = Policy("bench", options=WITHOUT_TIMERS)
HOST = "kubernetes.io/hostname"


def requested(snapshot: Snapshot, resource: str = "cpu") -> Counter[str]:
    """Requests by node."""
    sums = Counter[str]()
    for pod in snapshot.pods:
        sums[pod.node] += snapshot.classes[pod.cls].requests.get(resource, 0)
    return sums


def test_same_seed_generates_the_same_cluster() -> None:
    shape = ClusterShape(60, seed=3)
    assert generate(shape) == generate(shape)
    assert generate(shape) != generate(ClusterShape(60, seed=4))
    assert small_shape(7) == small_shape(7)


def test_benchmark_cluster_is_half_empty_with_budgets_and_rules() -> None:
    snapshot = generate(ClusterShape(200, pools=2))
    used, offered = (
        requested(snapshot),
        {node.name: node.allocatable["cpu"] for node in snapshot.nodes},
    )
    shares = [used[name] / offered[name] for name in offered]
    assert len(shares) == 200
    assert max(shares) <= max(LEVELS) + 0.01
    assert 0.35 < sum(used.values()) / sum(offered.values()) < 0.45
    classes = snapshot.classes[len(DAEMONS) :]
    assert 0.1 < sum(bool(cls.pod_anti_affinity) for cls in classes) / len(classes) < 0.25
    assert 0.05 < sum(bool(cls.spread) for cls in classes) / len(classes) < 0.25
    assert 0.2 < len(snapshot.budgets) / len(classes) < 0.4
    assert {group.pool.id for group in snapshot.groups if group.pool is not None} == {
        "pool-0",
        "pool-1",
    }
    assert len({group.price for group in snapshot.groups}) == 4


def test_pods_that_repel_each_other_are_generated_on_different_nodes() -> None:
    snapshot = generate(ClusterShape(100, ruled=0.4))
    places = Counter(
        (pod.cls, pod.node) for pod in snapshot.pods if snapshot.classes[pod.cls].pod_anti_affinity
    )
    assert places
    assert max(places.values()) == 1


def test_referee_spreads_by_free_share_or_fills_the_first() -> None:
    builder = ClusterBuilder().node("a", "8", "8Gi").node("b", "4", "4Gi")
    builder.running("a", 1, "4", "4Gi").pending(4, "1", "1Gi")
    snapshot = builder.snapshot()
    cls = snapshot.pods[-1].cls
    assert referee(snapshot, [cls] * 4) == ["b", "b", "a", "b"]
    assert referee(snapshot, [cls] * 4, SchedulerScores.FIRST) == ["a"] * 4


def test_referee_obeys_rules_between_pods() -> None:
    apart = near(HOST, having(app="rs"))
    builder = ClusterBuilder().node("a", "8", "8Gi").node("b", "8", "8Gi")
    builder.pending(3, "1", "1Gi", pod_anti_affinity=(apart,))
    snapshot = builder.snapshot()
    assert referee(snapshot, [0, 0, 0]) == ["a", "b", ""]


def shown(start_up: float = 0.0) -> World:
    """Twelve nodes of four groups."""
    return World(generate(ClusterShape(12, growth=1)), start_up=start_up)


def test_removed_nodes_leave_pods_pending_and_their_budgets_smaller() -> None:
    cluster = shown()
    before = cluster.snapshot()
    name, price = before.nodes[0].name, cluster.price
    moving = [
        pod for pod in before.pods if pod.node == name and not before.classes[pod.cls].is_daemonset
    ]
    cluster.remove([name])
    after = cluster.snapshot()
    assert cluster.pending == len(moving) == len(cluster.moves) > 0
    assert len(after.pods) == len(before.pods) - len(DAEMONS)
    assert cluster.price < price
    assert sum(budget.allowed for budget in after.budgets) < sum(
        budget.allowed for budget in before.budgets
    )
    cluster.bind()
    assert cluster.pending == 0
    assert cluster.snapshot().budgets == before.budgets


def test_bought_node_is_paid_at_once_and_ready_after_its_start_up_time() -> None:
    cluster = shown(start_up=120.0)
    group, price = cluster.snapshot().groups[0], cluster.price
    names = cluster.grow(group.id, 5)
    assert len(names) == 1, "the group may have one more node"
    assert cluster.price > price
    assert (cluster.exists(names[0]), cluster.is_ready(names[0])) == (True, False)
    cluster.advance(119.0)
    assert cluster.join_started() == []
    cluster.advance(1.0)
    assert cluster.join_started() == names
    pods = [pod for pod in cluster.snapshot().pods if pod.node == names[0]]
    assert len(pods) == len(DAEMONS)


def test_karpenter_waits_for_its_purchase_before_it_drains() -> None:
    types = MachineType("big", 16, 64, 1.0), MachineType("small", 4, 16, 0.1)
    shape = ClusterShape(1, types=types, levels=(0.15,), ruled=0.0, blocked=0.0, budgeted=0.0)
    cluster = World(generate(shape), start_up=120.0)
    strategy = Karpenter(POLICY, KarpenterRules(budget="100%"), commands=1)
    strategy.act(cluster)
    assert (len(cluster.bought), len(cluster.removed), len(cluster.moves)) == (1, 0, 0)
    cluster.advance(120.0)
    cluster.join_started()
    strategy.act(cluster)
    assert len(cluster.removed) == 1
    assert cluster.pending == 0
    assert [pod.node for pod in cluster.snapshot().pods if pod.key == cluster.moves[0].pod] == [
        cluster.bought[0].name
    ]


@pytest.mark.parametrize("seed", range(8))
def test_bound_is_below_what_any_rules_reach(seed: int) -> None:
    snapshot = small_clusters(1, seed)[0]
    lowest = lower_bound(snapshot, POLICY)
    strategies = (Outscaler(POLICY), Karpenter(POLICY, KarpenterRules(budget="100%"), commands=1))
    assert lowest.price <= lowest.start + 1e-9
    for strategy in strategies:
        history = run_to_the_end(World(snapshot), strategy, patience=5)
        assert history.price_within(10**9) / MICRO >= lowest.price - 1e-9
        few = history.last.disrupted // 2
        limited = lower_bound(snapshot, POLICY, disrupted=few).price
        assert lowest.price - 1e-9 <= limited <= history.price_within(few) / MICRO + 1e-9


def test_bound_of_one_pass_counts_the_budgets_of_pods() -> None:
    snapshot = generate(ClusterShape(100))
    free, limited = lower_bound(snapshot, POLICY), lower_bound(snapshot, POLICY, one_pass=True)
    assert free.price < limited.price < limited.start
    priced = lower_bound(snapshot, POLICY, aggressiveness=2.0)
    assert free.price <= priced.price <= priced.value <= priced.start + 1e-9


def test_comparison_counts_clusters_and_margins() -> None:
    clusters = small_clusters(4)
    prices = iter([1.0, 2.0, 3.0, 4.0])
    compared = compare(lambda _: next(prices), lambda _: 2.0, clusters)
    assert (compared.better, compared.equal, compared.worse) == (1, 1, 2)
    assert compared.margins == (-0.5, 0.0, 0.5, 1.0)
    assert str(compared) == (
        "4 clusters: 1 better, 1 equal, 2 worse; 10.00 against 8.00 (+25.00%), from -50.0% to "
        "+100.0%"
    )


def test_small_clusters_are_small_and_different() -> None:
    clusters = small_clusters(40)
    sizes = [len(snapshot.nodes) for snapshot in clusters]
    assert len(sizes) == 40
    assert 2 <= min(sizes) < max(sizes) <= 30
    assert all(snapshot.taken_at == NOW for snapshot in clusters)


def test_nodes_of_the_world_have_exactly_the_marks_of_the_last_plan() -> None:
    build = ClusterBuilder().node("a", group="g").node("b", group="g").group("g")
    world = World(build.snapshot())
    world.taint(["a"])
    world.mark([TaintUpdate("a", "mark", level=2, value="h1"), TaintUpdate("b", "soften")])
    world.mark([TaintUpdate("b", "mark", level=1, value="h1")])
    world.mark([TaintUpdate("a", "mark", level=1, value="h2"), TaintUpdate("gone", "mark")])
    taints = {node.name: node.taints for node in world.snapshot().nodes}
    assert [taint.key for taint in taints["a"]] == ["karpenter.sh/disrupted", LEAVING_MARKS[0]]
    assert taints["a"][1].value == "h2"
    assert {node.name: mark_level(node) for node in world.snapshot().nodes} == {"a": 1, "b": 1}
    world.mark([TaintUpdate("b", "mark")])
    assert {node.name: mark_level(node) for node in world.snapshot().nodes} == {"a": 1, "b": 0}
