"""A node is unneeded if all its pods fit elsewhere in the cluster that earlier removals left
(docs/reference/scale-down.md "Simulated removal")."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.memory import Memory, NodeMemory
from chalicelib.model.node import HOSTNAME_LABEL, Taint
from chalicelib.model.plan import Plan
from chalicelib.model.pod import Toleration, Volume
from chalicelib.reasons.text import sentence
from tests.builders import NOW, ZONE, ClusterBuilder, cluster, even, having, near, stays

_ALL: dict[str, Any] = {
    "unneeded": 7200.0,
    "max_scale_down_parallelism": 99,
    "max_drain_parallelism": 99,
}


def _plan(build: ClusterBuilder, **options: Any) -> Plan:
    """Plans a pass that removes every removable node at once."""
    return build.plan(**{**_ALL, **options})


def _sent(plan: Plan) -> dict[str, str]:
    """pod -> destination node."""
    return {pod: on for removal in plan.removals for pod, on in removal.destinations.items()}


def _spread(policy: str) -> ClusterBuilder:
    build = cluster()
    for name in ("n1", "n2", "n3"):
        build.node(name, "4", "16Gi", group="g").running(
            name,
            1,
            "100m",
            owner="a",
            spread=(even(HOSTNAME_LABEL, having(app="a"), node_taints_policy=policy),),
        )
    return build.group("g")


def test_node_being_simulated_counts_as_a_spread_domain_until_it_is_gone() -> None:
    plan = _plan(_spread("Ignore"))
    assert stays(plan) == dict.fromkeys(("n1", "n2", "n3"), "NoPlaceToMovePods")
    assert "topology spread" in sentence(plan.unremovable[0].reason)


def test_simulated_node_is_not_a_spread_domain_for_pods_that_honor_taints() -> None:
    plan = _plan(_spread("Honor"))
    assert plan.unneeded
    assert set(_sent(plan).values()).isdisjoint(plan.unneeded)


def test_removed_node_is_not_a_spread_domain_in_later_simulations() -> None:
    """Later simulations run without the removed node; a zone with only that node no longer
    counts."""
    build = cluster().node("b1", "4", "16Gi", group="g", zone="b")
    for name in ("n2", "n3"):
        build.node(name, "4", "16Gi", group="g", zone="a").running(
            name, 1, "100m", owner="a", spread=(even(ZONE, having(app="a")),)
        )
    plan = _plan(build.group("g"))
    assert "b1" in plan.unneeded
    assert len(plan.unneeded) == 2, stays(plan)


def test_moved_pods_are_kept_so_that_room_is_used_once() -> None:
    build = cluster().node("n1", group="g").node("n2", group="g").node("n3", group="g").group("g")
    build.running("n1", 1, "500m", owner="a").running("n2", 1, "500m", owner="b").running(
        "n3", 1, "500m", owner="c"
    )
    plan = _plan(build)
    assert len(plan.unneeded) == 1, "three halves need two nodes"
    assert sorted(stays(plan).values()) == ["NoPlaceToMovePods", "NoPlaceToMovePods"]


def test_pod_moved_to_a_later_removed_node_ends_on_a_third_node() -> None:
    build = (
        cluster().node("n1", group="g").node("n2", group="g").node("n3", "4", group="g").group("g")
    )
    build.running("n1", 1, "400m", owner="a").running("n2", 1, "400m", owner="b").running(
        "n3", 1, "3", owner="c"
    )
    assert set(_sent(_plan(build)).values()) == {"n3"}


def test_pdb_allowance_is_used_up_during_removal_simulation() -> None:
    build = (
        cluster().node("n1", group="g").node("n2", group="g").node("n3", "4", group="g").group("g")
    )
    build.running("n1", 1, "100m").running("n2", 1, "100m").running("n3", 1, "3", owner="c")
    plan = _plan(build.budget("b", 1, having(app="rs")))
    held = next(verdict for verdict in plan.unremovable if verdict.node in {"n1", "n2"})
    assert len(plan.unneeded) == 1
    assert held.reason.params["rule"] == "NotEnoughPdb"


def test_failed_simulation_waits_for_the_recheck_timeout() -> None:
    build = cluster().node("n", group="g").node("full", group="g").group("g")
    build.running("n", 1, "500m", owner="a").running("full", 1, "1", owner="b")
    plan, after = build.decide(**_ALL)
    assert stays(plan)["n"] == "NoPlaceToMovePods"
    assert stays(build.plan(after, now=NOW + 299))["n"] == "RecentlyUnremovable"
    assert stays(build.plan(after, now=NOW + 300))["n"] == "NoPlaceToMovePods"
    assert "full" not in after.nodes, "a node that is no candidate is looked at every time"


def test_clock_set_back_does_not_block_a_failed_node_forever() -> None:
    """Memory from the future: a node unremovable for days exceeds any recheck timeout."""
    build = cluster().node("n", group="g").node("home", "8", "64Gi").group("g")
    later = Memory(nodes={"n": NodeMemory(unremovable_until=NOW + 30 * 86_400.0)})
    plan, after = build.decide(later, **_ALL)
    assert plan.unneeded == ("n",) or after.nodes["n"].unremovable_until <= NOW + 300


def test_node_is_removed_in_the_pass_after_its_annotation_is_deleted() -> None:
    def build(annotation: str) -> ClusterBuilder:
        made = cluster().node("n", group="g").node("home", "8", "64Gi").group("g")
        return made.running("n", 1, "100m", owner="a", safe_to_evict=annotation)

    plan, after = build("false").decide(**_ALL)
    assert stays(plan)["n"] == "BlockedByPod"
    assert build("").plan(after, now=NOW + 301).unneeded == ("n",)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"pod_affinity": (near(ZONE, having(app="db")),)}, id="affinity"),
        pytest.param(
            {"pod_anti_affinity": (near(HOSTNAME_LABEL, having(app="db")),)}, id="anti-affinity"
        ),
    ],
)
def test_rules_between_pods_hold_at_the_destinations_of_evicted_pods(more: dict[str, Any]) -> None:
    build = (
        cluster()
        .node("n", group="g", zone="a")
        .node("a", "4", zone="a")
        .node("b", "4", zone="b")
        .group("g")
    )
    build.running("a", 1, "100m", owner="db").running("n", 1, "100m", owner="w", **more)
    assert list(_sent(_plan(build)).values()) == (["a"] if "pod_affinity" in more else ["b"])


@pytest.mark.parametrize("owners", [("w", "db"), ("db", "w")], ids=" before ".join)
def test_pod_with_affinity_to_another_evicted_pod_moves_with_it(owners: tuple[str, str]) -> None:
    """Both are on the node, and one requires the other in its domain. The scheduler places the
    waiting pod once the other has a place, so their order in the list does not matter."""
    build = (
        cluster()
        .node("n", group="g", zone="z")
        .node("m", "4", zone="y")
        .node("k", "4", zone="x")
        .group("g")
    )
    for owner in owners:
        rules: dict[str, Any] = (
            {"pod_affinity": (near(ZONE, having(app="db")),)} if owner == "w" else {}
        )
        build.running("n", 1, "100m", owner=owner, **rules)
    plan = _plan(build)
    assert plan.unneeded == ("n",)
    assert len(set(_sent(plan).values())) == 1


def test_evicted_pods_are_not_moved_to_unusable_nodes() -> None:
    build = cluster().node("n", group="g").group("g").running("n", 1, "100m", owner="a")
    build.node("cordoned", "8", "64Gi", unschedulable=True).node("sick", "8", "64Gi", ready=False)
    build.node("tainted", "8", "64Gi", taints=[Taint("only", "NoSchedule", "gpu")])
    assert stays(_plan(build))["n"] == "NoPlaceToMovePods"
    build.node("open", "8", "64Gi")
    assert set(_sent(_plan(build)).values()) == {"open"}


def test_taints_and_host_ports_limit_the_destinations_of_evicted_pods() -> None:
    build = (
        cluster()
        .node("n", group="g")
        .group("g")
        .node("tainted", "8", "64Gi", taints=[Taint("only", "NoSchedule")])
    )
    build.running("n", 1, "100m", owner="a", tolerations=(Toleration(operator="Exists"),))
    assert set(_sent(_plan(build)).values()) == {"tainted"}


def test_daemonset_pod_of_a_removed_node_needs_no_destination() -> None:
    build = (
        cluster()
        .node("n", group="g")
        .group("g")
        .running("n", 1, "100m", owner="ds", kind="DaemonSet")
    )
    plan = _plan(build)
    assert [(removal.node, removal.kind, removal.evict) for removal in plan.removals] == [
        ("n", "empty", ())
    ]


def test_safe_to_evict_pod_needs_a_destination() -> None:
    build = (
        cluster()
        .node("n", group="g")
        .group("g")
        .running(
            "n", 1, "100m", owner=None, safe_to_evict="true", volumes=(Volume("v", "emptyDir"),)
        )
    )
    assert stays(_plan(build))["n"] == "NoPlaceToMovePods"


@pytest.mark.parametrize(
    "odd", [{}, {"owner": None}, {"safe_to_evict": "false"}], ids=["plain", "bare", "not safe"]
)
def test_expendable_pod_neither_blocks_its_node_nor_needs_a_destination(
    odd: dict[str, Any],
) -> None:
    """Upstream's snapshot omits expendable pods; they are not evicted and end with the node."""
    build = (
        cluster()
        .node("n", group="g")
        .group("g")
        .running("n", 1, "900m", **{"owner": "a", **odd}, priority=-11)
    )
    plan = _plan(build)
    assert [(removal.node, removal.evict) for removal in plan.removals] == [("n", ())]


def test_expendable_pod_takes_no_room_from_evicted_pods() -> None:
    build = cluster().node("n", group="g").node("home", "1").group("g")
    build.running("n", 1, "400m", owner="a").running("home", 1, "900m", owner="cheap", priority=-11)
    assert set(_sent(_plan(build)).values()) == {"home"}


def test_removal_simulation_of_a_node_is_undone_completely_when_it_fails() -> None:
    """Two pods, room for one: nothing of the failed simulation remains, and the next
    node still finds the room."""
    build = (
        cluster().node("n1", "2", group="g").node("n2", "2", group="g").node("home", "1").group("g")
    )
    build.running("n1", 2, "500m", owner="a", node_selector={HOSTNAME_LABEL: "nowhere"})
    build.running("n2", 1, "1", owner="b")
    plan = _plan(build)
    assert plan.unneeded == ("n2",)
    assert stays(plan)["n1"] == "NoPlaceToMovePods"


def test_removal_simulation_does_not_depend_on_input_order() -> None:
    build = cluster()
    for name in (f"n{at}" for at in range(6)):
        build.node(name, "2", group="g").running(name, 1, "400m", owner="b").running(
            name, 1, "300m", owner="a", pod_anti_affinity=(near(HOSTNAME_LABEL, having(app="a")),)
        )
    build.node("home", "2").group("g").budget("b", 3, having(app="b"))
    plans = [_plan(build)]
    for turn in (1, 5, 8):
        build.nodes = build.nodes[turn:] + build.nodes[:turn]
        build.pods = build.pods[turn:] + build.pods[:turn]
        plans.append(_plan(build))
    assert plans[0].unneeded
    assert len({plan.unneeded for plan in plans}) == 1
    assert all(_sent(plan) == _sent(plans[0]) for plan in plans)


def test_node_without_any_destination_for_its_pods_reports_it() -> None:
    build = cluster().node("n", "4", group="g").running("n", 1, "1").group("g", target=1)
    [stay] = _plan(build).unremovable
    assert sentence(stay.reason).endswith("no other node that stays is ready and schedulable)")


def test_evicted_pod_may_fill_a_node_exactly() -> None:
    """Only if the large pod takes all of `home-a` do the three small ones find room on `home-b`."""
    build = (
        cluster().node("home-a", "1").node("home-b", "1200m").node("n", "8", group="g").group("g")
    )
    build.running("n", 1, "1", owner="large", name="large").running(
        "n", 3, "400m", owner="small", name="small"
    )
    sent = _sent(_plan(build))
    assert [sent[pod] for pod in sorted(sent)] == ["home-a", "home-b", "home-b", "home-b"]


def test_evicted_pod_with_rules_may_fill_exactly_the_one_of_many_nodes_with_room() -> None:
    build = cluster()
    for at in range(17):
        build.node(f"home-{at:02d}", "1" if at == 8 else "500m")
    apart = (near(HOSTNAME_LABEL, having(app="large")),)
    build.node("n", "8", group="g").running("n", 1, "1", owner="large", pod_anti_affinity=apart)
    assert list(_sent(_plan(build.group("g"))).values()) == ["home-08"]
