"""Cases L: limits of groups and of the cluster, and what is said when they bite."""

from __future__ import annotations

from chalicelib.model.reason import Code
from chalicelib.plan.explain import text
from tests.builders import cluster, growth, node


def test_L1_cores_of_all_nodes_count_in_groups_or_not() -> None:
    for group in ("g", ""):
        build = cluster().node("a", "2", group="g").node("b", "4", group=group).group("g", max=10)
        build.running("a", 1, "2").running("b", 1, "4").pending(2, "2")
        assert growth(build.plan(cores_total=(0, 9)))["g"][0] == 1


def test_L2_memory_total() -> None:
    build = cluster().node("a", "1", "1100Mi", group="g").running("a", 1, "1", "1100Mi")
    build.group("g", template=node("t", "1", "100Mi")).group("h", template=node("t", "1", "100Mi"))
    build.groups = build.groups[1:]
    assert growth(build.pending(3, "1", "100Mi").plan(memory_total=(0, 1300 * 2**20))) == {"h": (2, 2)}


def test_L3_no_room_for_one_node_names_the_resource() -> None:
    build = cluster().node("a", "6").running("a", 1, "6").group("g", template=node("t", "2")).pending(1, "2")
    plan = build.plan(cores_total=(0, 7))
    assert growth(plan) == {}
    assert [text(r) for r in plan.unschedulable[0].reasons["g"]] == ['exceeded quota: "cluster-wide", resources: cpu']


def test_L4_max_nodes_total_counts_every_node() -> None:
    build = cluster().node("a", "1", group="g").node("b", "1").running("a", 1, "1").running("b", 1, "1")
    assert growth(build.group("g").pending(3, "1").plan(max_nodes_total=3)) == {"g": (1, 1)}


def test_L11_the_message_has_the_groups_words() -> None:
    build = cluster().group("small-1", template=node("t", "1")).group("small-2", template=node("t", "1"))
    build.group("full", max=0, template=node("t", "8")).pending(1, "4")
    verdict = build.plan().unschedulable[0]
    assert {g: [text(r) for r in rs] for g, rs in verdict.reasons.items()} == {
        "small-1": ["Insufficient cpu"], "small-2": ["Insufficient cpu"], "full": ["max node group size reached"]}


def test_one_pass_uses_several_groups_when_the_first_is_full() -> None:
    build = cluster().group("best", max=2, template=node("t", "2")).group("other", template=node("t", "4", "64Gi"))
    assert growth(build.pending(6, "2").plan()) == {"best": (2, 2), "other": (2, 4)}


def test_a_group_that_cannot_be_read_or_has_no_template_stops_nothing() -> None:
    build = cluster().group("broken", error="403 Forbidden").group("unknown", template_error="no capacity annotations")
    build.group("good", template=node("t", "2")).pending(2, "1")
    plan = build.plan()
    assert growth(plan) == {"good": (1, 2)}
    skipped = {g.group: g.skipped.code for g in plan.groups if g.skipped}
    assert skipped == {"broken": Code.GROUP_UNREADABLE, "unknown": Code.NO_TEMPLATE}
