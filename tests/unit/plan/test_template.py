"""Cases T: what a node that does not exist yet is taken to be like."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.memory import GroupMemory, LearntTemplate, Memory, ScaleUpRequest
from chalicelib.model.node import TO_BE_DELETED, Taint
from tests.builders import NOW, cluster, growth, node


@pytest.mark.parametrize(("fields", "wins"), [
    pytest.param({"ready_since": NOW - 120}, "real", id="T1-ready-for-two-minutes"),
    pytest.param({"ready_since": NOW - 30}, "provider", id="T1-ready-for-half-a-minute"),
    pytest.param({"ready": False}, "provider", id="T1-unready"),
    pytest.param({"taints": [Taint(TO_BE_DELETED, "NoSchedule", "1")]}, "provider", id="T2-leaving"),
    pytest.param({"unschedulable": True}, "provider", id="T2-cordoned"),
])
def test_where_a_template_comes_from(fields: dict[str, Any], wins: str) -> None:
    build = cluster().node("n", "2", group="g", **fields).running("n", 1, "2", owner=None)
    build.group("g", template=node("t", "4")).pending(2, "2")
    assert growth(build.plan()) == {"g": ((2 if wins == "real" else 1), 2)}


def test_a_learnt_template_comes_before_the_providers_guess_and_survives_the_last_node() -> None:
    full = cluster().node("n", "2", group="g").running("n", 1, "2").group("g", template=node("t", "4"))
    _, after = full.decide()
    gone = cluster().group("g", template=node("t", "4")).pending(2, "2")
    assert growth(gone.plan()) == {"g": (1, 2)}
    assert growth(gone.plan(Memory(templates=after.templates))) == {"g": (2, 2)}
    assert isinstance(after.templates["g"], LearntTemplate)


def test_T1_a_bad_node_is_better_than_nothing() -> None:
    build = cluster().node("n", "2", group="g", ready=False).group("g").pending(1, "1")
    assert growth(build.plan()) == {"g": (1, 1)}


def test_T3_only_daemonsets_that_run_there_take_room() -> None:
    build = cluster().daemonset("everywhere", "500m").daemonset("gpu-only", "500m", node_selector={"gpu": "yes"})
    assert growth(build.group("g", template=node("t", "1")).pending(2, "500m").plan()) == {"g": (2, 2)}


def test_T4_a_daemonset_too_big_for_the_node_leaves_nothing() -> None:
    build = cluster().daemonset("huge", "4").group("g", template=node("t", "2")).pending(1, "100m")
    assert growth(build.plan()) == {}


@pytest.mark.parametrize(("taint", "options", "blocks"), [
    pytest.param("node.kubernetes.io/not-ready", {}, False, id="condition"),
    pytest.param("startup-taint.cluster-autoscaler.kubernetes.io/x", {}, False, id="T5-startup-prefix"),
    pytest.param("cni", {"startup_taint": ("cni",)}, False, id="T5-startup-flag"),
    pytest.param("status-taint.cluster-autoscaler.kubernetes.io/x", {}, False, id="T5-status"),
    pytest.param("dedicated", {}, True, id="T5-any-other"),
])
def test_taints_that_go_away_by_themselves_are_not_the_templates(
        taint: str, options: dict[str, Any], blocks: bool) -> None:
    build = cluster().group("g", template=node("t", "2", taints=[Taint(taint, "NoSchedule")])).pending(1, "1")
    assert growth(build.plan(**options)) == ({} if blocks else {"g": (1, 1)})


def test_upcoming_nodes_hold_pods_so_nothing_is_bought_twice() -> None:
    build = cluster().group("g", target=2, template=node("t", "2")).pending(4, "1")
    known = Memory(groups={"g": GroupMemory(target=2, request=ScaleUpRequest(2, NOW - 60, NOW + 840))})
    plan = build.plan(known)
    assert (growth(plan), len(plan.fits_existing), plan.health.upcoming) == ({}, 4, 2)


def test_C7_a_request_that_runs_out_is_a_failure_and_the_group_is_backed_off() -> None:
    build = cluster().group("g", target=2, template=node("t", "2")).pending(4, "1")
    known = Memory(groups={"g": GroupMemory(target=2, request=ScaleUpRequest(2, NOW - 1000, NOW - 100))})
    _, after = build.decide(known)
    kept = after.groups["g"]
    assert kept.request is None
    assert kept.backoff is not None
    assert (kept.backoff.code, kept.backoff.until) == ("timeout", NOW + 300)


def test_a_request_is_over_when_its_nodes_are_here() -> None:
    build = cluster().node("a", group="g").node("b", group="g").group("g")
    known = Memory(groups={"g": GroupMemory(target=2, request=ScaleUpRequest(2, NOW - 60, NOW + 840))})
    assert build.decide(known)[1].groups["g"].request is None


@pytest.mark.parametrize(("unready", "healthy"), [
    pytest.param((3, 3), True, id="C8-three-are-always-tolerated"),
    pytest.param((4, 10), True, id="C8-four-of-ten"),
    pytest.param((5, 10), False, id="C8-five-of-ten"),
])
def test_the_clusters_health(unready: tuple[int, int], healthy: bool) -> None:
    build = cluster()
    for at in range(unready[1]):
        build.node(f"n{at}", ready=at >= unready[0])
    build.group("g", template=node("t", "2")).pending(1, "2")
    plan = build.plan()
    assert plan.health.healthy is healthy
    assert growth(plan) == ({"g": (1, 1)} if healthy else {})


def test_C9_a_group_that_misses_most_of_its_nodes_is_not_grown() -> None:
    build = cluster().node("n", "2", group="g").running("n", 1, "2").group("g", target=5, template=node("t", "2"))
    build.pending(1, "1")
    assert growth(build.plan()) == {}
    asked = Memory(groups={"g": GroupMemory(target=5, request=ScaleUpRequest(4, NOW - 60, NOW + 840))})
    assert len(build.plan(asked).fits_existing) == 1, "four are upcoming"


@pytest.mark.parametrize(("age", "bucket"), [(600, "not_started"), (1200, "unready")])
def test_C10_a_young_node_has_not_started_yet(age: float, bucket: str) -> None:
    plan = cluster().node("n", ready=False, created=NOW - age).plan()
    assert getattr(plan.health, bucket) == 1


