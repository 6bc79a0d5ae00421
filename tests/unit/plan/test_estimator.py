"""How many new nodes a set of pods needs, tested through the whole planner."""

from __future__ import annotations

from chalicelib.model.memory import Memory
from chalicelib.model.node import HOSTNAME_LABEL
from chalicelib.model.pod import HostPort
from chalicelib.plan.scale_up.estimator import PodRequest, orders
from chalicelib.plan.simulation.cluster_builder import build as floor
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.plan.tables import ResourceColumns
from chalicelib.policy.settings.cluster_policy import Policy
from tests.builders import NOW, ZONE, ClusterBuilder, cluster, even, expected, growth, having, node


def _mars(cpu: str, memory: str = "4Gi", pods: int = 10) -> ClusterBuilder:
    """A full node in zone jupiter, and an empty group whose nodes would be in zone mars."""
    return (
        cluster()
        .node("jupiter", "100m", "100Mi", zone="jupiter")
        .running("jupiter", 1, "100m", "100Mi")
        .group("mars", template=node("t", cpu, memory, pods, zone="mars"))
    )


def test_estimator_places_two_pods_per_node() -> None:
    assert growth(_mars("1").pending(10, "350m").plan()) == {"mars": (5, 10)}


def test_estimator_respects_the_pod_limit_of_a_node() -> None:
    assert growth(_mars("10").pending(20, "10m").plan()) == {"mars": (2, 20)}


def test_estimator_places_one_pod_per_node_for_a_host_port() -> None:
    assert growth(_mars("1").pending(8, "200m", ports=(HostPort(5555),)).plan()) == {"mars": (8, 8)}


def test_estimator_leaves_pods_beyond_the_nodes_per_scale_up_limit() -> None:
    plan = _mars("1").pending(20, "500m").plan(max_nodes_per_scale_up=5)
    assert growth(plan) == {"mars": (5, 10)}
    assert [len(verdict.pods) for verdict in plan.unschedulable] == [10]


def _small_and_big() -> ClusterBuilder:
    return (
        _mars("1")
        .pending(10, "50m", name="small", owner="small")
        .pending(10, "500m", name="big", owner="big")
    )


def test_estimator_places_bigger_pods_first() -> None:
    plan = _small_and_big().plan()
    assert growth(plan) == {"mars": (6, 20)}
    of_big = {place for pod, place in expected(plan).items() if pod.startswith("default/big")}
    assert of_big == {f"mars/{number}" for number in range(1, 6)}


def test_new_nodes_that_a_limit_keeps_few_serve_most_pods() -> None:
    plan = _small_and_big().plan(max_nodes_per_scale_up=5)
    assert growth(plan) == {"mars": (5, 18)}


X = having(app="x")


def test_estimator_respects_spread_over_host_names() -> None:
    plan = _mars("1").pending(8, "200m", owner="x", spread=(even(HOSTNAME_LABEL, X, 2),)).plan()
    assert growth(plan) == {"mars": (4, 8)}, (
        "jupiter's host has none, so that no other may have three"
    )


def test_estimator_respects_spread_over_zones() -> None:
    plan = _mars("1").pending(8, "20m", owner="x", spread=(even(ZONE, X, 2),)).plan()
    assert growth(plan) == {"mars": (1, 2)}
    assert [len(verdict.pods) for verdict in plan.unschedulable] == [6]


def test_estimator_returns_to_earlier_nodes_for_later_pods() -> None:
    """Upstream returns 3: it counts jupiter, which takes a third of the pods, as if it were new
    (docs/reference/scale-up.md "Estimator")."""
    build = cluster().node("jupiter", "100m", "100Mi", zone="jupiter")
    build.group("mars", template=node("t", "1", "4Gi", 10, zone="mars"))
    plan = build.pending(
        12, "20m", owner="x", spread=(even(HOSTNAME_LABEL, X, min_domains=3),)
    ).plan()
    assert growth(plan) == {"mars": (2, 8)}
    assert len(plan.fits_existing) == 4


def test_estimator_handles_fifty_one_thousand_pods() -> None:
    build = cluster().group("g", max=5000, template=node("t", "1", "5000", 100))
    build.pending(50_000, "50m", 100, name="many", owner="many").pending(
        1000, "95m", 190, name="few", owner="few"
    )
    assert growth(build.plan(max_nodes_per_scale_up=3000)) == {"g": (2595, 51_000)}


def _three_shapes() -> ClusterBuilder:
    build = cluster().group("g", template=node("t", "10m", "100", 10))
    build.pending(1, "1m", 1, name="p1", owner="p1").pending(1, "2m", 1, name="p2", owner="p2")
    return build.pending(1, "2m", 100, name="p3", owner="p3")


def test_estimator_orders_pods_by_their_share_of_the_template() -> None:
    build = _three_shapes()
    world = build_cluster_state(build.snapshot(), Policy(name="test"), Memory(), NOW)
    template = world.groups["g"].template
    assert template is not None
    made = floor(world, (), ResourceColumns(build.classes))
    tried = orders([PodRequest(cls, 1, f"p{cls + 1}") for cls in range(3)], template, made)
    assert [[ask.first for ask in order] for order in tried] == [["p3", "p2", "p1"]]


def test_estimated_placements_match_the_schedulers_order() -> None:
    """Upstream buys the node for p3, and the scheduler then fills it with p1 and p2, which
    come first in its queue."""
    plan = _three_shapes().plan(max_nodes_per_scale_up=1)
    assert plan.scale_ups[0].pods == ("default/p1-00000", "default/p2-00001")


def test_largest_first_order_needs_fewer_nodes() -> None:
    build = cluster().group("g", template=node("t", "10m", "1Gi", 10))
    build.pending(2, "4m", name="a", owner="a").pending(2, "6m", name="b", owner="b")
    assert growth(build.plan(max_nodes_per_scale_up=2)) == {"g": (2, 4)}, (
        "by name, 4 + 4 would waste a node"
    )


def test_estimator_reserves_room_for_daemonset_pods_first() -> None:
    four = (
        cluster().daemonset("agent", "400m").group("g", template=node("t", "1")).pending(4, "300m")
    )
    five = (
        cluster().daemonset("agent", "400m").group("g", template=node("t", "1")).pending(5, "300m")
    )
    assert growth(four.plan()) == {"g": (2, 4)}
    assert growth(five.plan()) == {"g": (3, 5)}


def test_estimator_counts_gpus_per_node() -> None:
    for gpus, nodes in ((1, 3), (2, 2), (4, 1)):
        build = cluster().group(
            "gpu", template=node("t", "16", "64Gi", extra={"nvidia.com/gpu": gpus})
        )
        assert growth(build.pending(3, "1", "1Gi", extra={"nvidia.com/gpu": 1}).plan()) == {
            "gpu": (nodes, 3)
        }


def test_leftover_room_of_a_split_bin_is_used_by_the_next_class() -> None:
    build = cluster().group("g", template=node("t", "1", "10Gi"))
    build.pending(3, "600m", name="a", owner="a").pending(5, "400m", name="b", owner="b")
    assert growth(build.plan()) == {"g": (4, 8)}, (
        "three nodes hold 600m + 400m, the fourth two of 400m"
    )
