"""One scheduling round: order of pods, choice of nodes, and messages of refusals."""

from __future__ import annotations

from typing import Any

from infra.emulators.controllers.scheduler.cluster_view import ClusterView
from infra.emulators.controllers.scheduler.pod_and_node_info import read_node, read_pod
from infra.emulators.controllers.scheduler.predicates import judge
from infra.emulators.controllers.scheduler.scheduler import (
    first,
    least_used,
    refusal,
    schedule_once,
)
from tests.unit.emulators.controllers.objects import affinity, node, pod, term

NODES = [node("n1", cpu="4"), node("n2", cpu="4")]


def test_scheduler_each_pod_sees_the_room_taken_by_the_previous_one() -> None:
    pods = [pod(f"p{i}", cpu="2") for i in range(5)]
    placed = schedule_once(NODES, pods, pick=first)
    assert [d.node for d in placed] == ["n1", "n1", "n2", "n2", None]
    assert placed[-1].message == "0/2 nodes are available: 2 Insufficient cpu."


def test_scheduler_prefers_the_emptier_node_unless_set_to_pack() -> None:
    pods = [pod(f"p{i}", cpu="1") for i in range(2)]
    assert [d.node for d in schedule_once(NODES, pods, pick=least_used)] == ["n1", "n2"]
    assert [d.node for d in schedule_once(NODES, pods, pick=first)] == ["n1", "n1"]


def test_scheduler_orders_by_higher_priority_then_age() -> None:
    pods = [pod("young", cpu="1"), pod("old", cpu="1"), pod("high", cpu="1", priority=5)]
    pods[0]["metadata"]["creationTimestamp"] = "2026-11-21T07:00:02Z"
    pods[1]["metadata"]["creationTimestamp"] = "2026-11-21T07:00:01Z"
    assert [d.pod.name for d in schedule_once(NODES, pods)] == ["high", "old", "young"]


def test_scheduler_retries_identical_pods_once_something_was_placed() -> None:
    near: dict[str, Any] = {
        "labels": {"app": "web"},
        "affinity": affinity("podAffinity", term("db", "kubernetes.io/hostname")),
    }
    pods = [
        pod("a-web", **near),
        pod("b-web", **near),
        pod("db", labels={"app": "db"}),
        pod("c-web", **near),
    ]
    nodes = {d.pod.name: d.node for d in schedule_once(NODES, pods)}
    assert nodes == {"a-web": None, "b-web": None, "db": "n1", "c-web": "n1"}


def test_scheduler_skips_terminating_gated_finished_and_foreign_pods() -> None:
    done = pod("done")
    done["status"] = {"phase": "Failed"}
    others = [
        pod("going", terminating=True),
        pod("gated", schedulingGates=[{"name": "g"}]),
        done,
        pod("foreign", schedulerName="other"),
    ]
    assert schedule_once(NODES, others) == []


def test_scheduler_sorts_the_parts_of_a_refusal_as_text() -> None:
    assert refusal([["a"]] * 11 + [["b", "c"]] * 2) == "0/13 nodes are available: 11 a, 2 b, 2 c."


def test_scheduler_upcoming_node_is_added_empty() -> None:
    world = ClusterView.of(NODES[:1], [pod("old", on="n1", cpu="4")])
    promised, incoming = read_node(node("new", cpu="4")), read_pod(pod(cpu="4"))
    world.join(promised)
    verdict = judge(incoming, world)
    assert callable(verdict)
    assert verdict(promised) == []
    world.place(incoming, "new")
    assert world.used("new")["cpu"] == 4000
