"""The checker detects each kind of error, introduced deliberately into a correct plan."""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.plan import Plan, PodPlacement, ScaleUp, UnschedulablePods
from chalicelib.model.reason import Reason, ReasonCode
from tests.property import objects
from tests.property.clusters import RandomCluster
from tests.property.objects import HOST, ZONE
from tests.property.plan_check import (
    BARE,
    BOOKS,
    EMPTY,
    LEFT,
    LIMIT,
    NO,
    PLACE,
    QUEUE,
    SPARE,
    UNSURE,
    WORDS,
    Trial,
)

OFFER = {"cpu": "2", "memory": "8Gi", "pods": "110"}
LABELS = {ZONE: "z-a"}


def cluster(*settings: str, cpu: int = 900) -> RandomCluster:
    """One node with room for one of three pods; the group may have three nodes; the last pod
    is too big for any node."""
    spec: dict[str, Any] = {"containers": [objects.container(cpu)]}
    owner = ("ReplicaSet", "web")
    full = objects.pod(
        "old", "ns0", {"containers": [objects.container(1000)]}, {"app": "old"}, owner, "g0-n0"
    )
    pods = [objects.pod(f"web-{at}", "ns0", spec, {"app": "web"}, owner) for at in range(3)]
    big = objects.pod("big", "ns0", {"containers": [objects.container(5000)]}, {"app": "big"}, None)
    lists = {
        "nodes": [objects.node("g0-n0", "g0", OFFER, LABELS, ())],
        "pods": [full, *pods, big],
        "workloads": [],
        "namespaces": [objects.namespace("ns0", {})],
    }
    template = objects.node("t", "g0", OFFER, {**LABELS, HOST: "t"}, ())
    group = {"id": "g0", "min": 0, "max": 3, "size": 1, "template": template}
    return RandomCluster(0, lists, {"nodeGroups": [group]}, settings, {})


def plan(**changes: Any) -> Plan:
    """One pod on the existing node, two on a new node."""
    right = Plan(
        id="p",
        cluster="c",
        at=objects.NOW,
        fits_existing=("ns0/web-0",),
        scale_ups=(ScaleUp("g0", "file", 1, 2, 3, ("ns0/web-1", "ns0/web-2")),),
        unschedulable=(
            UnschedulablePods(
                ("ns0/big",), {"g0": (Reason.of(ReasonCode.INSUFFICIENT, resource="cpu"),)}
            ),
        ),
        promises=(
            PodPlacement(("ns0/web-0",), node="g0-n0"),
            PodPlacement(("ns0/web-1", "ns0/web-2"), group="g0", number=1),
        ),
    )
    return msgspec.structs.replace(right, **changes)


def kinds(changed: Plan, where: RandomCluster | None = None) -> set[str]:
    return {kind for kind, _ in Trial(where or cluster(), changed).found()}


def grown(to: int, *pods: str) -> tuple[ScaleUp, ...]:
    return (ScaleUp("g0", "file", 1, to, 3, pods or ("ns0/web-1", "ns0/web-2")),)


def refused(*pods: str, code: ReasonCode = ReasonCode.INSUFFICIENT) -> UnschedulablePods:
    return UnschedulablePods(pods, {"g0": (Reason.of(code, resource="cpu", what="all"),)})


def test_checker_accepts_a_correct_plan() -> None:
    assert kinds(plan()) == set()


def test_checker_detects_a_pod_without_a_verdict() -> None:
    assert kinds(plan(unschedulable=())) == {BOOKS}


def test_checker_detects_a_pod_with_two_verdicts() -> None:
    assert kinds(plan(fits_existing=("ns0/web-0", "ns0/web-1"))) == {BOOKS}


def test_checker_detects_a_place_that_does_not_exist() -> None:
    assert kinds(
        plan(promises=(PodPlacement(("ns0/web-0",), node="g0-n1"), plan().promises[1]))
    ) == {BOOKS}


def test_checker_detects_a_plan_without_places() -> None:
    assert kinds(plan(promises=())) == {BARE}


def test_checker_detects_an_overfilled_place() -> None:
    places = (
        PodPlacement(("ns0/web-0", "ns0/web-1"), node="g0-n0"),
        PodPlacement(("ns0/web-2",), group="g0", number=1),
    )
    assert kinds(plan(promises=places)) == {PLACE}


def test_checker_detects_a_superfluous_node() -> None:
    assert kinds(plan(scale_ups=grown(3))) == {EMPTY, SPARE}


def test_checker_detects_a_missing_node() -> None:
    assert kinds(plan(), cluster(cpu=1000)) == {QUEUE, PLACE}


def test_checker_detects_a_group_above_its_maximum() -> None:
    assert LIMIT in kinds(plan(scale_ups=grown(4)))


def test_checker_detects_a_cluster_above_its_limits() -> None:
    assert kinds(plan(), cluster("maxNodesTotal=1")) == {LIMIT}
    assert kinds(plan(), cluster("coresTotal=0:3")) == {LIMIT}
    assert kinds(plan(), cluster("memoryTotal=0:15")) == {LIMIT}
    assert kinds(plan(), cluster("maxNodesTotal=2", "coresTotal=0:4", "memoryTotal=0:16")) == set()


def test_checker_detects_rejected_pods_that_have_room() -> None:
    less = {
        "scale_ups": (),
        "promises": plan().promises[:1],
        "unschedulable": (*plan().unschedulable, refused("ns0/web-1", "ns0/web-2")),
    }
    assert kinds(plan(**less)) == {NO}
    assert kinds(plan(**less), cluster("maxNodesTotal=1")) == set()
    nothing = {
        **less,
        "promises": (),
        "fits_existing": (),
        "unschedulable": (*less["unschedulable"], refused("ns0/web-0")),
    }
    assert kinds(plan(**nothing)) == {NO, LEFT}


def test_checker_detects_a_wrong_reason() -> None:
    assert kinds(plan(unschedulable=(refused("ns0/big", code=ReasonCode.NODE_AFFINITY),))) == {
        WORDS
    }


def test_checker_skips_pods_that_are_not_simulated() -> None:
    assert kinds(plan(unschedulable=(refused("ns0/big", code=ReasonCode.NOT_SIMULATED),))) == {
        UNSURE
    }
