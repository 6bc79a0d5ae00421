"""Headroom: spare capacity that is available before pods request it, and that removals preserve."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.group import Pool
from chalicelib.model.memory import Backoff, GroupMemory, Memory
from chalicelib.model.node import HOSTNAME_LABEL, Taint
from chalicelib.model.pod import Toleration
from chalicelib.model.reason import ReasonCode
from chalicelib.model.selector import Selector
from chalicelib.model.snapshot import MissingData
from chalicelib.policy.settings.headroom import Headroom
from tests.builders import (
    NOW,
    ZONE,
    ClusterBuilder,
    cluster,
    expected,
    growth,
    having,
    near,
    node,
    stays,
)
from tests.unit.plan.headroom_builder import SPARE, busy, decided, gone, plan, said, why

# -- amount


def test_pods_that_fit_spare_room_buy_nothing_and_headroom_buys_the_shortfall() -> None:
    enough, short = plan(busy(3, 2), SPARE), plan(busy(4, 3), SPARE)
    assert (growth(enough), said(enough)) == ({}, (3, 3, 0))
    assert (growth(short), said(short)) == ({"g": (1, 0)}, (3, 1, 2))
    assert [each.headroom for each in short.scale_ups] == [("spare",)]
    assert [operation.spec.to_size for operation in short.operations] == [3]


@pytest.mark.parametrize(
    ("percent", "used", "wanted", "nodes"),
    [
        pytest.param(10, (4, 4, 2), 1, 0, id="a-tenth-of-ten-cores"),
        pytest.param(25, (4, 4, 2), 3, 1, id="rounded-up"),
        pytest.param(100, (4, 4), 8, 2, id="as-much-again"),
        pytest.param(1000, (1,), 10, 2, id="ten-times"),
        pytest.param(10, (0, 0), 0, 0, id="nothing-is-asked-for"),
    ],
)
def test_ten_percent_headroom_without_pending_pods_buys_exactly_the_shortfall(
    percent: int, used: tuple[int, ...], wanted: int, nodes: int
) -> None:
    found = plan(busy(*used), Headroom("tenth", percent=percent), unneeded=0.0)
    assert said(found, "tenth")[0] == wanted
    assert growth(found) == ({"g": (nodes, 0)} if nodes else {})


def test_percentage_headroom_excludes_daemonset_requests() -> None:
    build = cluster().node("g-0", "8", "32Gi", group="g").node("other", "8").group("g")
    build.running("g-0", 2, "1", "1Gi").running("other", 50, "1", "1Gi")
    build.running("g-0", 1, "1", owner="logs", kind="DaemonSet").running("g-0", 1, "1", mirror=True)
    build.running("g-0", 1, "1", priority=-100).pending(1, "100")
    assert said(plan(build, Headroom("h", percent=100)), "h") == (2, 2, 0)


def test_virtual_pods_are_capped_at_the_free_room_of_an_empty_node() -> None:
    build = (
        cluster().daemonset("logs", "1500m", "1Gi").node("g-0", "2", "8Gi", group="g").group("g")
    )
    build.running(
        "g-0",
        1,
        "1500m",
        "1Gi",
        owner="logs",
        kind="DaemonSet",
        namespace="kube-system",
        tolerations=(Toleration(operator="Exists"),),
    )
    found = plan(build.running("g-0", 1, "500m"), Headroom("h", percent=400))
    assert (said(found, "h"), growth(found)) == ((4, 0, 4), {"g": (4, 0)}), (
        "four of half a core, and not two of one"
    )


def test_memory_of_virtual_pods_is_capped_separately() -> None:
    build = cluster().node("g-0", "8", "64Gi", group="g").group("g").running("g-0", 1, 0, "20Gi")
    assert said(plan(build, Headroom("h", percent=50)), "h") == (3, 3, 0)


# -- location


def two_groups() -> ClusterBuilder:
    """`a` has room, `b` is full."""
    build = (
        cluster().node("a-0", "4", "16Gi", group="a").node("b-0", "4", "16Gi", group="b", zone="z")
    )
    return build.group("a").group("b").running("b-0", 4, "1", "1Gi")


@pytest.mark.parametrize(
    ("groups", "expected_growth"),
    [
        pytest.param((), {}, id="anywhere"),
        pytest.param(("a",), {}, id="in-the-group-that-has-room"),
        pytest.param(("b",), {"b": (1, 0)}, id="in-the-group-that-has-none"),
        pytest.param(("a", "b"), {}, id="in-both-together"),
    ],
)
def test_headroom_is_kept_in_its_named_groups(
    groups: tuple[str, ...], expected_growth: dict[str, tuple[int, int]]
) -> None:
    found = plan(two_groups(), msgspec.structs.replace(SPARE, groups=groups))
    assert growth(found) == expected_growth
    assert sum(said(found)[1:]) == 3


def test_headroom_limited_to_few_groups_is_placed_before_unlimited_headroom() -> None:
    """Otherwise the unlimited headroom would use the room in `a`, and a node would be bought
    there while `c` is empty."""
    build = two_groups().node("c-0", "4", "16Gi", group="c").group("c")
    found = plan(
        build, Headroom("any", pods=4, cpu=1000), Headroom("in-a", groups=("a",), pods=4, cpu=1000)
    )
    assert (growth(found), said(found, "any"), said(found, "in-a")) == ({}, (4, 4, 0), (4, 4, 0))


def test_headroom_of_a_pool_covers_all_its_groups() -> None:
    build = two_groups()
    build.groups = [
        msgspec.structs.replace(each, pool=Pool("uid", "pool")) for each in build.groups
    ]
    for name in ("uid", "pool"):
        assert said(plan(build, msgspec.structs.replace(SPARE, groups=(name,)))) == (3, 3, 0)


def test_only_headroom_of_a_group_tolerates_the_groups_taints() -> None:
    build = (
        cluster()
        .node("g-0", "8", "32Gi", group="g", taints=[Taint("team", "NoSchedule", "a")])
        .group("g")
    )
    named, anywhere = plan(build, msgspec.structs.replace(SPARE, groups=("g",))), plan(build, SPARE)
    assert said(named) == (3, 3, 0)
    assert (said(anywhere), why(anywhere), growth(anywhere)) == (
        (3, 0, 0),
        {"g": ReasonCode.UNTOLERATED_TAINT},
        {},
    )


def test_headroom_excludes_nodes_without_a_group_and_cordoned_nodes() -> None:
    build = (
        cluster().node("nobodys", "64").node("g-0", "4", group="g", unschedulable=True).group("g")
    )
    assert said(plan(build, SPARE))[1] == 0


def test_node_whose_pod_has_anti_affinity_to_all_pods_has_no_headroom() -> None:
    everybody = near(HOSTNAME_LABEL, Selector(()), namespace_selector=Selector(()))
    build = busy(0, 0)
    build.running("g-0", 1, "1", owner="alone", pod_anti_affinity=(everybody,))
    found = plan(build, Headroom("spare", pods=4, cpu=1000))
    assert (said(found), gone(found)) == ((4, 4, 0), []), "all of it is on the other one"
    build = busy(0, 0)
    build.running(
        "g-0", 1, "1", owner="alone", pod_anti_affinity=(near(HOSTNAME_LABEL, having(app="alone")),)
    )
    assert said(plan(build, Headroom("spare", pods=7, cpu=1000))) == (7, 7, 0), (
        "one that wants no other of its kind"
    )


# -- precedence


def test_pods_use_headroom_at_once_and_it_is_refilled() -> None:
    build = busy(3, 2).pending(3, "1", "1Gi")
    found = plan(build, SPARE)
    assert set(expected(found).values()) == {"g-0", "g-1"}, "they start now"
    assert (growth(found), said(found)) == ({"g": (1, 0)}, (3, 0, 3))


def test_headroom_uses_free_room_on_nodes_bought_for_pods() -> None:
    found = plan(busy(4).pending(1, "1", "1Gi"), SPARE)
    assert (growth(found), said(found)) == ({"g": (1, 1)}, (3, 0, 3))
    assert [each.headroom for each in found.scale_ups] == [()], "the node is not its doing"


def test_room_of_a_placed_pod_is_not_headroom() -> None:
    found = plan(busy(4, 2).pending(2, "1", "1Gi"), SPARE)
    assert (set(expected(found).values()), said(found)) == ({"g-1"}, (3, 0, 3))


# -- limits


@pytest.mark.parametrize(
    ("fields", "options", "reason"),
    [
        pytest.param({"max": 1}, {}, ReasonCode.GROUP_MAX_SIZE, id="the-groups-maximum"),
        pytest.param({}, {"max_nodes_total": 1}, ReasonCode.MAX_NODES_TOTAL, id="nodes-in-all"),
        pytest.param({}, {"cores_total": (0, 7)}, ReasonCode.RESOURCE_LIMIT, id="cores-in-all"),
        pytest.param({"error": "403"}, {}, ReasonCode.GROUP_UNREADABLE, id="not-readable"),
    ],
)
def test_headroom_respects_all_limits_and_reports_the_reason_for_a_shortfall(
    fields: dict[str, Any], options: Any, reason: ReasonCode
) -> None:
    found = plan(busy(4, **fields), SPARE, **options)
    assert (growth(found), said(found), why(found)) == ({}, (3, 0, 0), {"g": reason})


def test_headroom_skips_a_backed_off_group() -> None:
    build = busy(4).group("h", template=node("t", "4", "16Gi"))
    memory = Memory(groups={"g": GroupMemory(backoff=Backoff(300.0, NOW + 300, NOW, "OutOfStock"))})
    assert growth(plan(build, SPARE, memory=memory)) == {"h": (1, 0)}


def test_headroom_is_filled_partly_if_not_all_fits() -> None:
    found = plan(busy(4, max=2), Headroom("spare", pods=9, cpu=1000))
    assert (growth(found), said(found), why(found)) == (
        {"g": (1, 0)},
        (9, 0, 4),
        {"g": ReasonCode.GROUP_MAX_SIZE},
    )


def test_unhealthy_cluster_is_not_scaled_up_for_headroom() -> None:
    build = busy(4)
    for at in range(5):
        build.node(f"sick-{at}", group="s", ready=False)
    found = plan(build.group("s"), SPARE)
    assert (growth(found), set(why(found).values())) == ({}, {ReasonCode.CLUSTER_UNHEALTHY})


def test_headroom_without_a_ready_node_waits_if_scale_up_from_zero_is_off() -> None:
    build = cluster().group("g", template=node("t", "4", "16Gi"))
    assert growth(plan(build, SPARE)) == {"g": (1, 0)}
    found = plan(build, SPARE, scale_up_from_zero=False)
    assert (growth(found), why(found)) == ({}, {"g": ReasonCode.CLUSTER_UNHEALTHY})


def test_headroom_buys_nothing_while_an_unreadable_group_may_have_free_room() -> None:
    build = busy(4).group("h", error="no answer")
    anywhere, named = plan(build, SPARE), plan(build, msgspec.structs.replace(SPARE, groups=("g",)))
    assert (growth(anywhere), why(anywhere)) == (
        {},
        {"g": ReasonCode.GROUP_UNREADABLE, "h": ReasonCode.GROUP_UNREADABLE},
    )
    assert growth(named) == {"g": (1, 0)}, "which is of g alone"
    build = busy(4)
    build.more["gaps"] = (MissingData("provider/other", "no answer"),)
    assert growth(plan(build, SPARE)) == {}


def test_headroom_of_a_missing_group_is_empty_and_reported() -> None:
    found = plan(busy(4), msgspec.structs.replace(SPARE, groups=("nobody",)))
    assert (growth(found), said(found), set(why(found).values())) == (
        {},
        (3, 0, 0),
        {ReasonCode.GROUP_UNREADABLE},
    )


# -- removals


@pytest.mark.parametrize(
    ("pods", "leave"), [(0, 3), (1, 3), (2, 2), (5, 2), (6, 1), (9, 1), (10, 0), (99, 0)]
)
def test_removals_preserve_headroom(pods: int, leave: int) -> None:
    """Four nodes of four cores, three cores in use; every node not needed for pods and
    headroom together is removed."""
    build = busy(2, 1, 0, 0, max=4)
    found = plan(build, Headroom("spare", pods=pods, cpu=1000))
    assert len(gone(found)) == leave
    assert ("HeadroomNeedsNode" in stays(found).values()) == (pods > 0 and leave < 3)


def test_node_needed_for_headroom_has_no_unneeded_timer() -> None:
    found, after = decided(busy(0), Headroom("spare", pods=1, cpu=1000), unneeded=None)
    (verdict,) = found.unremovable
    assert (verdict.reason.code, verdict.reason.params) == (
        ReasonCode.HEADROOM,
        {"headroom": "spare"},
    )
    assert (found.unneeded, after.nodes) == ((), {})


def test_headroom_does_not_depend_on_which_node_has_the_room() -> None:
    """The first node by name, where first fit would place the headroom, is the
    one that may be removed."""
    build = busy(0, 2)
    found = plan(build, Headroom("spare", pods=2, cpu=1000))
    assert gone(found) == ["g-0"]


KEPT = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}


def test_headroom_yields_to_a_pod_that_fits_only_one_node() -> None:
    build = cluster().node("a", "4", group="g", zone="z1", annotations=KEPT)
    build.node("b", "4", group="g", zone="z2", annotations=KEPT).node(
        "c", "4", group="g", zone="z1"
    ).group("g")
    build.running("a", 3, "1").running("c", 1, "1", node_selector={ZONE: "z1"})
    assert gone(plan(build, Headroom("spare", pods=4, cpu=1000))) == ["c"], (
        "there is room for it in the other zone"
    )
    assert gone(plan(build, Headroom("spare", pods=5, cpu=1000))) == []


def test_drain_waits_if_its_pod_could_take_the_only_room_for_a_virtual_pod() -> None:
    """The pod would fit on `b`, but the scheduler is not obliged to place it there."""
    build = cluster().node("a", "8", group="g", annotations=KEPT)
    build.node("b", "2", group="g", annotations=KEPT, zone="z").node(
        "c", "4", group="g", zone="z"
    ).group("g")
    build.running("c", 1, "1")
    assert gone(plan(build, Headroom("spare", pods=1, cpu=7900))) == []
    assert gone(plan(build)) == ["c"]


def test_drain_proceeds_if_its_pod_only_fits_where_no_virtual_pod_fits() -> None:
    build = cluster().node("a", "8", group="g", annotations=KEPT)
    build.node("b", "2", group="g", annotations=KEPT, zone="z").node(
        "c", "4", group="g", zone="z"
    ).group("g")
    build.running("c", 1, "1", node_selector={ZONE: "z"})
    (removal,) = plan(build, Headroom("spare", pods=1, cpu=7900)).removals
    assert (removal.node, list(removal.destinations.values())) == ("c", ["b"])


def test_two_headrooms_never_count_the_same_room_during_removals() -> None:
    build = two_groups().node("a-1", "4", "16Gi", group="a")
    build.groups = []
    build.group("a").group("b")
    both = Headroom("any", pods=4, cpu=1000), Headroom("in-a", groups=("a",), pods=4, cpu=1000)
    assert gone(plan(build, *both)) == []
    assert len(gone(plan(build, both[0]))) == len(gone(plan(build, both[1]))) == 1


def test_virtual_pods_do_not_appear_in_evictions_or_destinations() -> None:
    (removal,) = plan(busy(0, 0), Headroom("spare", pods=4, cpu=1000)).removals
    assert (removal.kind, removal.evict, removal.destinations) == ("empty", (), {})


def test_headroom_excludes_nodes_being_removed() -> None:
    build = busy(4)
    build.node(
        "g-9", "4", group="g", taints=[Taint("ToBeDeletedByClusterAutoscaler", "NoSchedule")]
    )
    assert said(plan(build, SPARE))[1] == 0
