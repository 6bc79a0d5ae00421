"""Placements of a plan: every counted pod has a place, every new node has a pod, no node is
overfilled, and the input order does not matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from random import Random

import msgspec
import pytest

from chalicelib.model.group import GroupOptions
from chalicelib.model.node import HOSTNAME_LABEL, Taint
from chalicelib.model.plan import Plan
from chalicelib.model.pod import HostPort, Toleration
from tests.amounts import examples
from tests.builders import (
    OLD,
    ZONE,
    ClusterBuilder,
    cluster,
    coming,
    even,
    expected,
    growth,
    having,
    near,
    node,
)

X = having(app="x")
ATOMIC = GroupOptions(zero_or_max=True)


def _full(count: int) -> ClusterBuilder:
    """That many full nodes; with many of them the planner uses its algorithm for large clusters."""
    build = cluster()
    for at in range(count):
        build.node(f"full-{at:03d}", "0")
    return build


def _busy(others: int = 0) -> ClusterBuilder:
    """Three zones with a mix of rules between pods, ports, priorities, limits and DaemonSets."""
    build = _full(others).daemonset("agent", "100m")
    build.node("a1", "4", zone="a").node("b1", "4", zone="b")
    build.node("c1", "2", zone="c", taints=[Taint("k", "NoSchedule")])
    build.running("a1", 2, "1", owner="x").running("b1", 1, "1", owner="db")
    for zone in "abc":
        build.group(f"small-{zone}", max=6, template=node("t", "4", "16Gi", zone=zone))
    build.group("big", max=3, template=node("t", "16", "64Gi", zone="a"))
    build.group(
        "tainted",
        max=3,
        template=node("t", "16", "32Gi", zone="b", taints=[Taint("k", "NoSchedule")]),
    )
    build.pending(7, "1", "1Gi", name="x", owner="x", spread=(even(ZONE, X),))
    build.pending(
        4, "500m", "2Gi", name="web", owner="web", pod_affinity=(near(ZONE, having(app="db")),)
    )
    build.pending(
        5,
        "2",
        "1Gi",
        name="one",
        owner="one",
        pod_anti_affinity=(near(HOSTNAME_LABEL, having(app="one")),),
    )
    build.pending(3, "300m", name="port", owner="port", ports=(HostPort(80),), priority=7)
    build.pending(
        2, "6", "8Gi", name="large", owner="large", tolerations=(Toleration("k", "Exists"),)
    )
    return build.pending(9, "700m", "700Mi", name="plain", owner="plain")


def _kept(others: int = 0) -> ClusterBuilder:
    build = _full(others).group("low", min=3, max=9, template=node("t", "2"))
    return build.pending(2, "1")


def _whole(others: int = 0) -> ClusterBuilder:
    build = _full(others).group("all", max=4, template=node("t", "2"), options=ATOMIC)
    return build.pending(3, "1")


@cache
def _busy_plan(others: int = 0) -> Plan:
    return _busy(others).plan()


SIZES = pytest.mark.parametrize("others", [0, 700], ids=["small", "large"])


@SIZES
def test_placements_cover_exactly_the_pods_that_get_a_node(others: int) -> None:
    build, plan = _busy(others), _busy_plan(others)
    got = [pod for up in plan.scale_ups for pod in up.pods] + list(plan.fits_existing)
    nothing = [pod for each in plan.unschedulable for pod in each.pods]
    assert sorted(pod for promise in plan.promises for pod in promise.pods) == sorted(got)
    assert sorted(got + nothing) == sorted(pod.key for pod in build.pods if not pod.node), (
        "each pod once"
    )


@SIZES
def test_new_nodes_are_numbered_and_none_is_empty(others: int) -> None:
    plan = _busy_plan(others)
    numbers: dict[str, set[int]] = {}
    for promise in plan.promises:
        if promise.group:
            numbers.setdefault(promise.group, set()).add(promise.number)
    assert {group: max(found) for group, found in numbers.items()} == {
        up.group: up.to_size - up.from_size for up in plan.scale_ups
    }
    assert all(found == set(range(1, max(found) + 1)) for found in numbers.values())


@SIZES
def test_placements_never_exceed_the_resources_of_a_node(others: int) -> None:
    build, plan = _busy(others), _busy_plan(others)
    asks = {pod.key: build.classes[pod.cls].requests for pod in build.pods}
    has = {each.name: dict(each.allocatable) for each in build.nodes}
    for pod in build.pods:
        if pod.node:
            for name, amount in asks[pod.key].items():
                has[pod.node][name] -= amount
    for promise in plan.promises:
        if promise.group:
            template = next(group.template for group in build.groups if group.id == promise.group)
            assert template is not None
            offered = dict(template.allocatable)
            offered["cpu"] -= 100  # the agent DaemonSet
            has.setdefault(f"{promise.group}/{promise.number}", offered)
    for pod_key, place in expected(plan).items():
        for name, amount in {**asks[pod_key], "pods": 1}.items():
            has[place][name] -= amount
    assert not [(place, left) for place, left in has.items() if min(left.values()) < 0]


@SIZES
def test_rules_between_pods_hold_for_all_placements(others: int) -> None:
    plan = _busy_plan(others)
    places = expected(plan)
    zone_of = {
        "a1": "a",
        "b1": "b",
        "big": "a",
        "small-a": "a",
        "small-b": "b",
        "small-c": "c",
        "tainted": "b",
    }
    zone = {pod: zone_of[place.split("/")[0]] for pod, place in places.items()}
    count = Counter(found for pod, found in zone.items() if "/x-" in pod) + Counter({"a": 2})
    assert max(count.values()) - min(count[each] for each in "abc") <= 1
    assert {found for pod, found in zone.items() if "/web-" in pod} == {"b"}
    for name in ("/one-", "/port-"):
        mine = [place for pod, place in places.items() if name in pod]
        assert len(mine) == len(set(mine))


def test_only_min_size_and_zero_or_max_groups_may_have_empty_new_nodes() -> None:
    for others in (0, 700):
        assert growth(_kept(others).plan(enforce_node_group_min_size=True)) == {"low": (3, 2)}
        assert growth(_kept(others).plan()) == {"low": (1, 2)}
        assert growth(_whole(others).plan()) == {"all": (4, 3)}


@SIZES
def test_node_made_superfluous_by_a_later_choice_is_not_bought(others: int) -> None:
    """a is the tighter fit for the small pod; then the large pod adds a node of b,
    which has room for both."""
    build = (
        _full(others)
        .group("a", template=node("t", "1", "1Gi"))
        .group("b", template=node("t", "8", "64Gi"))
    )
    build.pending(1, "6", "1Gi", name="big", owner="big").pending(
        1, "1", "1Gi", name="small", owner="small"
    )
    assert growth(build.plan()) == {"b": (1, 2)}


@SIZES
def test_existing_and_upcoming_room_is_used_before_new_nodes(others: int) -> None:
    build = (
        _full(others).node("n", "2").group("g", target=1, template=node("t", "2")).pending(5, "1")
    )
    plan = build.plan(coming({"g": 1}))
    assert growth(plan) == {"g": (1, 1)}
    assert Counter(expected(plan).values()) == {"n": 2, "upcoming-0-for-g": 2, "g/1": 1}
    assert len(plan.fits_existing) == 4


@SIZES
def test_existing_nodes_go_to_the_pods_first_in_the_scheduling_queue(others: int) -> None:
    build = _full(others).node("n", "2").group("g", template=node("t", "2"))
    build.pending(2, "1", name="late", owner="late").pending(
        1, "1", name="top", owner="top", priority=5
    )
    places = expected(build.plan())
    assert places == {
        "default/top-00002": "n",
        "default/late-00000": "n",
        "default/late-00001": "g/1",
    }


@SIZES
def test_large_low_priority_pod_does_not_displace_small_high_priority_pods(others: int) -> None:
    build = _full(others).group("g", max=1, template=node("t", "10"))
    build.pending(1, "10", name="low", owner="low", priority=0).pending(
        3, "2", name="top", owner="top", priority=9
    )
    assert {pod[8:11] for pod in expected(build.plan())} == {"top"}


def test_large_plan_keeps_the_places_of_the_estimator_among_equal_priorities() -> None:
    """Of pods with or without a priority of 0, the larger ones come first."""
    build = _full(700).group("g", max=1, template=node("t", "10"))
    build.pending(2, "4", name="small", owner="small", created=OLD - 60.0)
    build.pending(2, "5", name="large", owner="large", priority=0)
    assert expected(build.plan()) == {"default/large-00002": "g/1", "default/large-00003": "g/1"}


def test_nodes_that_likely_orders_leave_empty_are_not_bought() -> None:
    """Two more nodes would take two pods in the best order. In others the pods without an
    anti-affinity fill the nodes differently, and the nodes stay empty."""
    build = cluster()
    build.group("g0", max=8, template=node("t", "3", "64Gi", zone="b"))
    build.group("g1", max=8, template=node("t", "8", "64Gi", zone="b"))
    build.group("g2", max=5, template=node("t", "8", "64Gi", zone="a"))
    build.pending(
        4,
        "300m",
        owner="o0",
        priority=5,
        pod_anti_affinity=(near(HOSTNAME_LABEL, having(app="o0")),),
    )
    build.pending(
        6, "300m", owner="o1", priority=5, pod_anti_affinity=(near(ZONE, having(app="o0")),)
    )
    build.pending(3, "1500m", owner="o2", priority=0)
    build.pending(
        5, "2500m", owner="o3", priority=0, pod_anti_affinity=(near(ZONE, having(app="o1")),)
    )
    assert growth(build.plan()) == {"g0": (4, 8), "g2": (1, 6)}  # nodes and pods


def test_pods_on_existing_nodes_keep_their_places_when_a_node_proves_necessary() -> None:
    """All pods have a place, ten of ten; a node less was tried before, with other
    places on `n0` and `n1`."""
    build = cluster().node("n0", "1", "64Gi", zone="b").node("n1", "2", "64Gi", zone="a")
    build.group("g0", max=3, template=node("t", "3", "64Gi", zone="a"))
    build.group("g2", max=1, template=node("t", "8", "64Gi", zone="a"))
    build.pending(1, "500m", owner="o0", pod_anti_affinity=(near(ZONE, having(app="o1")),))
    build.pending(1, "1", owner="o1", pod_affinity=(near(ZONE, having(app="o2")),))
    build.pending(3, "900m", owner="o2", spread=(even(HOSTNAME_LABEL, having(app="o2")),))
    build.pending(2, "900m", owner="o3")
    build.pending(3, "3", owner="o4", pod_affinity=(near(ZONE, having(app="o1")),))
    plan = build.plan()
    assert growth(plan) == {"g0": (3, 5), "g2": (1, 2)}  # nodes and pods
    assert len(expected(plan)) == 10


@SIZES
def test_placement_is_not_given_where_a_higher_priority_pod_will_go(others: int) -> None:
    """On the one new node the scheduler places `top` first, which excludes the
    two others from that host."""
    build = (
        _full(others)
        .group("g", max=1, template=node("t", "10"))
        .pending(2, "5", name="low", owner="x")
    )
    build.pending(
        1,
        "1",
        name="top",
        owner="top",
        priority=9,
        pod_anti_affinity=(near(HOSTNAME_LABEL, having(app="x")),),
    )
    assert set(expected(build.plan())) == {"default/top-00002"}


# -- independence of the input order


def _shuffled(build: ClusterBuilder, seed: int) -> ClusterBuilder:
    """The same cluster in another order, including the numbers of pod classes."""
    draw, other = Random(seed), cluster()
    order = list(range(len(build.classes)))
    draw.shuffle(order)
    at = {old: new for new, old in enumerate(order)}
    other.classes = [build.classes[old] for old in order]
    other.nodes, other.groups = list(build.nodes), list(build.groups)
    other.pods = [msgspec.structs.replace(pod, cls=at[pod.cls]) for pod in build.pods]
    other.daemonsets = [
        msgspec.structs.replace(each, cls=at[each.cls]) for each in build.daemonsets
    ]
    for things in (other.nodes, other.groups, other.pods, other.daemonsets):
        draw.shuffle(things)
    return other


def _bytes(plan: Plan) -> bytes:
    return msgspec.json.encode(plan)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(_busy, id="busy"),
        pytest.param(lambda: _busy(120), id="busy-large"),
        pytest.param(_whole, id="atomic"),
    ],
)
@pytest.mark.more
@pytest.mark.parametrize("expander", ["least-waste", "most-pods", "least-nodes", "random"])
def test_plan_is_byte_identical_for_any_input_order(
    make: Callable[[], ClusterBuilder], expander: str
) -> None:
    first = _bytes(make().plan(expander=(expander,), seed=5))
    orders = {
        _bytes(_shuffled(make(), seed).plan(expander=(expander,), seed=5))
        for seed in range(examples(1, 4))
    }
    assert orders == {first}


def test_balancing_does_not_depend_on_input_order() -> None:
    first = _bytes(_busy().plan(balance_similar_node_groups=True))
    assert {
        _bytes(_shuffled(_busy(), seed).plan(balance_similar_node_groups=True)) for seed in range(2)
    } == {first}


def test_order_of_groups_with_upcoming_nodes_does_not_change_the_plan() -> None:
    def build(*names: str) -> ClusterBuilder:
        made = cluster()
        for name in names:
            made.group(name, target=1, template=node("t"))
        return made.pending(1, "1", name="a", owner="a").pending(1, "1", name="b")

    memory = coming({"g": 1, "h": 1})
    assert build("h", "g").plan(memory).promises == build("g", "h").plan(memory).promises


def test_planning_twice_gives_the_same_plan() -> None:
    assert _bytes(_busy_plan()) == _bytes(_busy().plan())


def test_seed_affects_only_the_random_expander() -> None:
    def made(seed: int, expander: str) -> bytes:
        plan = _busy().plan(seed=seed, expander=(expander,))
        return msgspec.json.encode((plan.scale_ups, plan.promises))

    assert len({made(seed, "least-waste") for seed in range(2)}) == 1
    first = made(0, "random")
    assert any(made(seed, "random") != first for seed in range(1, 9))


def test_pod_that_the_schedulers_order_refuses_has_a_place_in_another() -> None:
    """Every search buys a node in zone a for the second `p3`. The spread of `p2` then counts no pod
    o1 there, so this node is removed again, unless the pods of o1 come first."""
    build = cluster()
    build.group("g0", max=8, template=node("t", "8", "64Gi", 3, zone="b"))
    build.group("g1", max=3, template=node("t", "2", "64Gi", 2, zone="a"))
    build.pending(4, "100m", name="p1", owner="o1")
    build.pending(2, "1500m", name="p2", owner="o2", spread=(even(ZONE, having(app="o1")),))
    build.pending(
        2, "300m", name="p3", owner="o3", pod_anti_affinity=(near(ZONE, having(app="o3")),)
    )
    plan = build.plan(expander=("most-pods",))
    assert growth(plan) == {"g0": (2, 6), "g1": (1, 2)}
    assert plan.unschedulable == ()


def test_pods_are_tried_again_after_a_node_proved_superfluous() -> None:
    """The spread puts `p2` in zone b. Once the node there is removed, `p2` has room in zone a, and
    `p0`, which must be near it, has a place there too."""
    build = cluster().group("g0", max=5, template=node("t", "4", "64Gi", zone="a"))
    build.group("g1", max=1, template=node("t", "1", "64Gi", 2, zone="b"))
    build.pending(1, "700m", name="p0", owner="o0", pod_affinity=(near(ZONE, having(app="o2")),))
    build.pending(4, "300m", name="p1", owner="o1", ports=(HostPort(80),))
    build.pending(
        2, "100m", name="p2", owner="o2", priority=5, spread=(even(ZONE, having(app="o1")),)
    )
    build.pending(1, "1", name="p3", owner="o3")
    build.pending(
        6, "2", name="p4", owner="o4", pod_anti_affinity=(near(HOSTNAME_LABEL, having(app="o1")),)
    )
    plan = build.plan(expander=("least-nodes",))
    assert growth(plan) == {"g0": (5, 12)}
    assert [each.pods for each in plan.unschedulable] == [("default/p1-00003", "default/p1-00004")]
    assert expected(plan)["default/p0-00000"] == expected(plan)["default/p2-00005"] == "g0/1"


def test_no_node_is_bought_for_pods_that_fit_without_it_in_some_order() -> None:
    """In the scheduler's order `small` takes the room of `large`. Its own place is
    sure, that of `large` is not."""
    build = cluster().node("a", "3").node("b", "1").group("g", template=node("t", "4"))
    build.pending(1, "1", name="small", owner="small", created=OLD - 60.0).pending(
        1, "3", name="large", owner="large"
    )
    plan = build.plan()
    assert growth(plan) == {}
    assert expected(plan) == {"default/large-00001": "a", "default/small-00000": "b"}
    assert [promise.promised for promise in plan.promises] == [False, True]
    left_over = (
        cluster()
        .node("a", "3")
        .running("a", 1, "1")
        .node("b", "1")
        .group("g", template=node("t", "4"))
    )
    assert growth(left_over.pending(1, "3", name="large", owner="large").plan()) == {"g": (1, 1)}


def test_order_with_fewest_new_nodes_is_used_although_another_is_the_schedulers() -> None:
    build = cluster().node("a", "3").node("b", "2").group("g", template=node("t", "3"))
    build.pending(2, "1", name="small", owner="small", created=OLD - 60.0)
    build.pending(2, "3", name="large", owner="large")
    plan = build.plan()
    assert growth(plan) == {"g": (1, 1)}
    assert plan.unschedulable == ()


def test_pods_dealt_in_turn_to_nodes_get_one_place_each() -> None:
    build = cluster().node("a", "4").node("b", "4")
    build.pending(3, "1", name="small", owner="small", created=OLD - 60.0)
    build.pending(3, "3", name="large", owner="large")
    places = expected(build.plan())
    assert (
        sorted(pod.partition("-")[0] for pod in places) == ["default/large"] + ["default/small"] * 3
    )


def test_pods_that_leave_most_room_come_first_on_limited_new_nodes() -> None:
    build = cluster().group("g", max=1, template=node("t", "4"))
    build.pending(1, "3", name="large", owner="large", created=OLD - 60.0).pending(
        4, "1", name="small", owner="small"
    )
    assert growth(build.plan()) == {"g": (1, 4)}


def test_pod_of_higher_priority_keeps_its_place_on_limited_new_nodes() -> None:
    build = cluster().group("g", max=1, template=node("t", "4"))
    build.pending(1, "3", name="large", owner="large", priority=1).pending(
        4, "1", name="small", owner="small"
    )
    plan = build.plan()
    assert growth(plan) == {"g": (1, 2)}
    assert "default/large-00000" in expected(plan)
