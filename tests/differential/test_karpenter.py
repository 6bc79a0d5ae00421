"""The emulation of Karpenter's rules on their own worked examples."""

from __future__ import annotations

import pytest

from chalicelib.model.snapshot import Snapshot
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.node_prices import NodePrices
from tests.builders import NOW, ClusterBuilder, having, near, node
from tests.differential.karpenter import (
    KarpenterCommand,
    KarpenterMemory,
    KarpenterRules,
    Offering,
    allowed_disruptions,
    balanced_score,
    cheaper,
    disruption_cost,
    eviction_cost,
    must_not_be_disrupted,
    next_command,
    without_same_type,
)

TYPE = "node.kubernetes.io/instance-type"
SIZES = {"s": ("2", "8Gi", 0.1), "m": ("4", "16Gi", 0.2), "l": ("8", "32Gi", 0.4)}
PRICES = {name: price for name, (_, _, price) in SIZES.items()}


def cluster(*nodes: tuple[str, str], grow: str = "sml") -> ClusterBuilder:
    """Nodes of these (name, type). grow: types that may be launched."""
    builder = ClusterBuilder()
    for name, kind in nodes:
        cpu, memory, _ = SIZES[kind]
        builder.node(name, cpu, memory, group=kind, labels={TYPE: kind})
    for kind, (cpu, memory, _) in SIZES.items():
        template = node(f"template-{kind}", cpu, memory, labels={TYPE: kind})
        size = sum(other == kind for _, other in nodes)
        builder.group(kind, template=template, max=size + (10 if kind in grow else 0))
    return builder


def pods(builder: ClusterBuilder, on: str, count: int, **more: object) -> ClusterBuilder:
    """Pods of half a core and 2 GiB."""
    return builder.running(on, count, "500m", "2Gi", **more)  # type: ignore[arg-type]


def beside_full(count: int, grow: str = "sml", **more: object) -> ClusterBuilder:
    """Node a with some pods beside a full one that must stay."""
    builder = pods(cluster(("a", "m"), ("full", "m"), grow=grow), "a", count, **more)
    return pods(builder, "full", 8, owner="other", safe_to_evict="false")


def command(
    snapshot: Snapshot,
    memory: KarpenterMemory = KarpenterMemory(),  # noqa: B008
    now: float = NOW,
    prices: dict[str, float] = PRICES,
    **rules: object,
) -> KarpenterCommand | None:
    policy = Policy("test", prices=NodePrices(instance_types=prices))
    settings = KarpenterRules(**{"budget": "100%", **rules})  # type: ignore[arg-type]
    return next_command(snapshot, policy, now, settings, memory)


@pytest.mark.parametrize(
    ("budget", "nodes", "unavailable", "allowed"),
    [
        ("20%", 19, 0, 4),
        ("10%", 3, 0, 1),
        ("10%", 20, 0, 2),
        ("0%", 20, 0, 0),
        ("20%", 20, 3, 1),
        ("5", 20, 0, 5),
        ("5", 20, 7, 0),
    ],
)
def test_budgets_are_rounded_up_and_reduced_by_unavailable_nodes(
    budget: str, nodes: int, unavailable: int, allowed: int
) -> None:
    assert allowed_disruptions(budget, nodes, unavailable) == allowed


def test_eviction_costs_are_clamped_and_never_reduce_a_node() -> None:
    costs = [
        eviction_cost(priority=-33_554_432),
        eviction_cost(deletion_cost=134_217_728),
        eviction_cost(priority=10**9),
        eviction_cost(deletion_cost=-2_147_483_648),
    ]
    assert costs == [0, 2, 10, -10]
    assert disruption_cost(costs) == 13


@pytest.mark.parametrize(
    ("annotation", "started", "protected"),
    [
        ("", 0.0, False),
        ("true", NOW, True),
        ("2h", NOW - 7199, True),
        ("2h", NOW - 7200, False),
        ("2h", 0.0, True),
        ("abc", NOW, False),
    ],
)
def test_pod_forbids_disruption_for_ever_or_since_its_start(
    annotation: str, started: float, protected: bool
) -> None:
    assert must_not_be_disrupted(annotation, started, NOW) is protected


def test_only_strictly_cheaper_types_remain_by_their_dearest_offering() -> None:
    options = [
        Offering("a", "s", 100),
        Offering("b", "s", 120),
        Offering("c", "m", 110),
        Offering("d", "l", 120),
    ]
    assert [offering.group for offering in cheaper(options, 120)] == ["c"]
    assert [offering.group for offering in cheaper(options, 121)] == ["a", "b", "c", "d"]


def test_merge_never_buys_a_type_that_it_removes() -> None:
    small, tiny = Offering("s", "s", 100), Offering("t", "t", 50)
    assert without_same_type([small, tiny], [("s", 100), ("s", 100), ("l", 400)]) == [tiny]
    assert without_same_type([small], [("m", 200), ("l", 400)]) == [small]


@pytest.mark.parametrize(
    ("savings", "disruption", "score"),
    [(20, 5, 4.0), (10, 10, 1.0), (5, 50, 0.1), (0, 10, 0.0), (-5, 10, 0.0)],
)
def test_balanced_scores_of_the_design(savings: float, disruption: float, score: float) -> None:
    assert balanced_score(savings, 100, disruption, 100) == pytest.approx(score)


def test_empty_nodes_go_first_and_together() -> None:
    builder = pods(cluster(("a", "m"), ("b", "m"), ("c", "l")), "c", 1)
    made = command(builder.snapshot())
    assert made is not None
    assert (made.method, made.nodes, made.pods) == ("Emptiness", ("a", "b"), 0)
    limited = command(builder.snapshot(), budget="1")
    assert limited is not None
    assert limited.nodes == ("a",)


def test_longest_prefix_that_fits_is_deleted() -> None:
    """Any two of three would go; the binary search tries all three of which none
    stays, so it needs a purchase."""
    builder = cluster(("a", "m"), ("b", "m"), ("c", "m"), grow="")
    for name in "abc":
        pods(builder, name, 2)
    made = command(builder.snapshot())
    assert made is not None
    assert (made.method, made.nodes, made.group, made.pods) == ("MultiNode", ("a", "b"), "", 4)


def test_merge_into_one_cheaper_node_is_launched_first() -> None:
    builder = cluster(("a", "m"), ("b", "m"), ("c", "m"))
    for name in "abc":
        pods(builder, name, 1)
    made = command(builder.snapshot())
    assert made is not None
    assert (made.nodes, made.group, made.price, made.cost) == (
        ("a", "b", "c"),
        "s",
        600_000,
        100_000,
    )


def test_node_is_replaced_by_a_cheaper_one_but_not_by_an_equal_one() -> None:
    builder = beside_full(2)
    made = command(builder.snapshot())
    assert made is not None
    assert (made.method, made.nodes, made.group) == ("SingleNode", ("a",), "s")
    assert command(builder.snapshot(), prices={**PRICES, "s": 0.2}) is None


def test_two_new_nodes_for_one_are_never_tried() -> None:
    """The pods would fit on a core-heavy and a memory-heavy node for less together."""
    builder = ClusterBuilder().node("a", "4", "16Gi", group="x", labels={TYPE: "x"})
    builder.running("a", 1, "3500m", "2Gi").running("a", 1, "500m", "14Gi")
    builder.group("x", max=1)
    builder.group("c", max=9, template=node("c", "4", "4Gi", labels={TYPE: "c"}))
    builder.group("r", max=9, template=node("r", "1", "16Gi", labels={TYPE: "r"}))
    assert command(builder.snapshot(), prices={"x": 0.8, "c": 0.15, "r": 0.15}) is None


def test_deletion_cost_of_pods_makes_their_node_go_later() -> None:
    builder = cluster(("a", "m"), ("b", "m"), ("c", "m"), grow="")
    pods(builder, "a", 2, deletion_cost="134217728")
    pods(builder, "b", 3)
    pods(builder, "c", 7, safe_to_evict="false")
    made = command(builder.snapshot(), budget="1")
    assert made is not None
    assert made.nodes == ("b",), "0.2 / 4 before 0.2 / 5"


def test_dearest_node_per_disruption_goes_first() -> None:
    builder = cluster(("a", "m"), ("b", "l"), ("c", "m"), grow="")
    pods(builder, "a", 3)
    pods(builder, "b", 3)
    pods(builder, "c", 7)
    made = command(builder.snapshot(), budget="1")
    assert made is not None
    assert made.nodes == ("b",), "0.4 / 4 before 0.2 / 4"


@pytest.mark.parametrize("left", [0, 1])
def test_budget_of_pods_blocks_a_node_only_when_used_up(left: int) -> None:
    builder = beside_full(2)
    builder.budget("pdb", left, having(app="rs"))
    assert (command(builder.snapshot()) is not None) is bool(left)


def test_pod_under_two_budgets_blocks_its_node() -> None:
    builder = beside_full(2)
    builder.budget("one", 5, having(app="rs")).budget("two", 5, having(app="rs"))
    assert command(builder.snapshot()) is None


def test_protected_queued_and_nominated_nodes_are_no_candidates() -> None:
    builder = beside_full(2)
    snapshot = builder.snapshot()
    assert command(snapshot) is not None
    assert command(snapshot, KarpenterMemory(queue=frozenset({"a"}))) is None
    assert command(snapshot, KarpenterMemory(nominated=frozenset({"a"}))) is None
    for protected in (beside_full(2, safe_to_evict="false"), beside_full(2, do_not_disrupt="true")):
        assert command(protected.snapshot()) is None


def test_any_pod_event_restarts_the_time_of_consolidate_after() -> None:
    snapshot = beside_full(2).snapshot()
    events = KarpenterMemory(pod_events={"a": NOW - 299, "full": 0.0})
    assert command(snapshot, events, consolidate_after=300.0) is None
    assert command(snapshot, events, now=NOW + 1, consolidate_after=300.0) is not None
    assert command(snapshot, consolidate_after=None) is None


def test_policy_when_empty_leaves_needed_nodes_alone() -> None:
    snapshot = beside_full(2).snapshot()
    assert command(snapshot, when_empty=True) is None


def test_balanced_refuses_savings_below_half_of_the_disruption() -> None:
    """0.10 of 0.40 for 3 of 12 is score 1; for 7 of 16 it is 0.57; with k =
    1 the second is refused."""
    few = beside_full(2)
    assert command(few.snapshot(), balanced=1.0) is not None
    many = pods(cluster(("a", "m"), ("full", "m")), "full", 8).running("a", 6, "250m", "1Gi")
    assert command(many.snapshot(), balanced=2.0) is not None
    assert command(many.snapshot(), balanced=1.0) is None


def test_rules_between_pods_hold_in_the_simulation() -> None:
    """Three pods that repel each other need three nodes; without the rule one
    new node takes them all."""
    apart = near("kubernetes.io/hostname", having(app="rs"))
    builder = cluster(("a", "m"), ("b", "m"), ("c", "m"))
    for name in "abc":
        pods(builder, name, 1, pod_anti_affinity=(apart,))
    made = command(builder.snapshot())
    assert made is not None
    assert (made.method, made.nodes, made.group) == ("SingleNode", ("a",), "s")


def test_group_at_its_maximum_launches_nothing() -> None:
    builder = beside_full(2, grow="l")
    assert command(builder.snapshot()) is None


def test_node_pools_take_turns() -> None:
    builder = cluster(("a", "m"), ("b", "l"))
    pods(builder, "a", 2)
    pods(builder, "b", 12)
    made = command(builder.snapshot(), pool_of={"m": "one", "l": "two", "s": "one"})
    assert made is not None
    assert made.nodes == ("a",)
