"""What a plan promises: every pod a place, every new node a pod, none too many, and the same in whatever order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec
import pytest

from chalicelib.model.group import GroupOptions
from chalicelib.model.node import HOSTNAME_LABEL, Taint
from chalicelib.model.plan import Plan
from chalicelib.model.pod import HostPort, Toleration
from tests.builders import (
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
    """So many nodes that take nobody; with many of them a plan is settled as a large one."""
    build = cluster()
    for at in range(count):
        build.node(f"full-{at:03d}", "0")
    return build


def _busy(others: int = 0) -> ClusterBuilder:
    """Three zones and a bit of everything: rules between pods, ports, priorities, limits, DaemonSets."""
    build = _full(others).daemonset("agent", "100m")
    build.node("a1", "4", zone="a").node("b1", "4", zone="b")
    build.node("c1", "2", zone="c", taints=[Taint("k", "NoSchedule")])
    build.running("a1", 2, "1", owner="x").running("b1", 1, "1", owner="db")
    for zone in "abc":
        build.group(f"small-{zone}", max=6, template=node("t", "4", "16Gi", zone=zone))
    build.group("big", max=3, template=node("t", "16", "64Gi", zone="a"))
    build.group("tainted", max=3, template=node("t", "16", "32Gi", zone="b", taints=[Taint("k", "NoSchedule")]))
    build.pending(7, "1", "1Gi", name="x", owner="x", spread=(even(ZONE, X),))
    build.pending(4, "500m", "2Gi", name="web", owner="web", pod_affinity=(near(ZONE, having(app="db")),))
    build.pending(5, "2", "1Gi", name="one", owner="one", pod_anti_affinity=(near(HOSTNAME_LABEL, having(app="one")),))
    build.pending(3, "300m", name="port", owner="port", ports=(HostPort(80),), priority=7)
    build.pending(2, "6", "8Gi", name="large", owner="large", tolerations=(Toleration("k", "Exists"),))
    return build.pending(9, "700m", "700Mi", name="plain", owner="plain")


def _kept(others: int = 0) -> ClusterBuilder:
    build = _full(others).group("low", min=3, max=9, template=node("t", "2"))
    return build.pending(2, "1")


def _whole(others: int = 0) -> ClusterBuilder:
    build = _full(others).group("all", max=4, template=node("t", "2"), options=ATOMIC)
    return build.pending(3, "1")


SIZES = pytest.mark.parametrize("others", [0, 700], ids=["small", "large"])


@SIZES
def test_promises_are_for_exactly_the_pods_that_get_something(others: int) -> None:
    build = _busy(others)
    plan = build.plan()
    got = [pod for up in plan.scale_ups for pod in up.pods] + list(plan.fits_existing)
    nothing = [pod for each in plan.unschedulable for pod in each.pods]
    assert sorted(pod for promise in plan.promises for pod in promise.pods) == sorted(got)
    assert sorted(got + nothing) == sorted(pod.key for pod in build.pods if not pod.node), "each pod once"


@SIZES
def test_new_nodes_are_numbered_and_none_is_empty(others: int) -> None:
    plan = _busy(others).plan()
    numbers: dict[str, set[int]] = {}
    for promise in plan.promises:
        if promise.group:
            numbers.setdefault(promise.group, set()).add(promise.number)
    assert {group: max(found) for group, found in numbers.items()} == {
        up.group: up.to_size - up.from_size for up in plan.scale_ups
    }
    assert all(found == set(range(1, max(found) + 1)) for found in numbers.values())


@SIZES
def test_nobody_is_promised_more_than_a_node_has(others: int) -> None:
    build = _busy(others)
    plan = build.plan()
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
            offered["cpu"] -= 100  # the agent
            has.setdefault(f"{promise.group}/{promise.number}", offered)
    for pod_key, place in expected(plan).items():
        for name, amount in {**asks[pod_key], "pods": 1}.items():
            has[place][name] -= amount
    assert not [(place, left) for place, left in has.items() if min(left.values()) < 0]


@SIZES
def test_rules_between_pods_hold_where_they_are_promised(others: int) -> None:
    plan = _busy(others).plan()
    places = expected(plan)
    zone_of = {"a1": "a", "b1": "b", "big": "a", "small-a": "a", "small-b": "b", "small-c": "c", "tainted": "b"}
    zone = {pod: zone_of[place.split("/")[0]] for pod, place in places.items()}
    count = Counter(found for pod, found in zone.items() if "/x-" in pod) + Counter({"a": 2})
    assert max(count.values()) - min(count[each] for each in "abc") <= 1
    assert {found for pod, found in zone.items() if "/web-" in pod} == {"b"}
    for name in ("/one-", "/port-"):
        mine = [place for pod, place in places.items() if name in pod]
        assert len(mine) == len(set(mine))


def test_a_minimum_and_an_atomic_group_may_have_empty_nodes_and_no_other() -> None:
    for others in (0, 700):
        assert growth(_kept(others).plan(enforce_node_group_min_size=True)) == {"low": (3, 2)}
        assert growth(_kept(others).plan()) == {"low": (1, 2)}
        assert growth(_whole(others).plan()) == {"all": (4, 3)}


@SIZES
def test_a_node_that_a_later_choice_makes_needless_is_not_bought(others: int) -> None:
    """a is the tighter fit for the small pod; then the large one brings a node of b, and there is room for both."""
    build = _full(others).group("a", template=node("t", "1", "1Gi")).group("b", template=node("t", "8", "64Gi"))
    build.pending(1, "6", "1Gi", name="big", owner="big").pending(1, "1", "1Gi", name="small", owner="small")
    assert growth(build.plan()) == {"b": (1, 2)}


@SIZES
def test_room_on_nodes_that_exist_or_are_on_their_way_is_used_first(others: int) -> None:
    build = _full(others).node("n", "2").group("g", target=1, template=node("t", "2")).pending(5, "1")
    plan = build.plan(coming({"g": 1}))
    assert growth(plan) == {"g": (1, 1)}
    assert Counter(expected(plan).values()) == {"n": 2, "upcoming-0-for-g": 2, "g/1": 1}
    assert len(plan.fits_existing) == 4


@SIZES
def test_nodes_that_exist_go_to_those_whom_the_scheduler_takes_first(others: int) -> None:
    build = _full(others).node("n", "2").group("g", template=node("t", "2"))
    build.pending(2, "1", name="late", owner="late").pending(1, "1", name="top", owner="top", priority=5)
    places = expected(build.plan())
    assert places == {"default/top-00002": "n", "default/late-00000": "n", "default/late-00001": "g/1"}


@SIZES
def test_a_large_pod_of_low_priority_does_not_push_out_small_ones_of_a_high_one(others: int) -> None:
    build = _full(others).group("g", max=1, template=node("t", "10"))
    build.pending(1, "10", name="low", owner="low", priority=0).pending(3, "2", name="top", owner="top", priority=9)
    assert {pod[8:11] for pod in expected(build.plan())} == {"top"}


@SIZES
def test_nobody_is_promised_a_place_that_a_pod_of_higher_priority_will_take(others: int) -> None:
    """On the one new node the scheduler puts `top` first, which forbids the two others that host."""
    build = _full(others).group("g", max=1, template=node("t", "10")).pending(2, "5", name="low", owner="x")
    build.pending(
        1, "1", name="top", owner="top", priority=9, pod_anti_affinity=(near(HOSTNAME_LABEL, having(app="x")),)
    )
    assert set(expected(build.plan())) == {"default/top-00002"}


# -- the same in whatever order


def _shuffled(build: ClusterBuilder, seed: int) -> ClusterBuilder:
    """The same cluster in another order, numbers of classes included."""
    draw, other = Random(seed), cluster()
    order = list(range(len(build.classes)))
    draw.shuffle(order)
    at = {old: new for new, old in enumerate(order)}
    other.classes = [build.classes[old] for old in order]
    other.nodes, other.groups = list(build.nodes), list(build.groups)
    other.pods = [msgspec.structs.replace(pod, cls=at[pod.cls]) for pod in build.pods]
    other.daemonsets = [msgspec.structs.replace(each, cls=at[each.cls]) for each in build.daemonsets]
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
@pytest.mark.parametrize("expander", ["least-waste", "most-pods", "least-nodes", "random"])
def test_the_order_of_the_input_changes_not_a_byte(make: Callable[[], ClusterBuilder], expander: str) -> None:
    first = _bytes(make().plan(expander=(expander,), seed=5))
    for seed in range(4):
        assert _bytes(_shuffled(make(), seed).plan(expander=(expander,), seed=5)) == first


def test_the_order_of_the_input_changes_nothing_when_balancing() -> None:
    first = _bytes(_busy().plan(balance_similar_node_groups=True))
    assert all(_bytes(_shuffled(_busy(), seed).plan(balance_similar_node_groups=True)) == first for seed in range(4))


def test_the_order_of_groups_that_are_on_their_way_changes_nothing() -> None:
    def build(*names: str) -> ClusterBuilder:
        made = cluster()
        for name in names:
            made.group(name, target=1, template=node("t"))
        return made.pending(1, "1", name="a", owner="a").pending(1, "1", name="b")

    memory = coming({"g": 1, "h": 1})
    assert build("h", "g").plan(memory).promises == build("g", "h").plan(memory).promises


def test_planning_twice_is_planning_once() -> None:
    assert _bytes(_busy().plan()) == _bytes(_busy().plan())


def test_only_random_hears_the_seed() -> None:
    def made(seed: int, expander: str) -> bytes:
        plan = _busy().plan(seed=seed, expander=(expander,))
        return msgspec.json.encode((plan.scale_ups, plan.promises))

    assert len({made(seed, "least-waste") for seed in range(5)}) == 1
    assert len({made(seed, "random") for seed in range(9)}) > 1
