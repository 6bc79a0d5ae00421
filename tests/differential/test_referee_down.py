"""The referee of removals sees what is wrong with a plan: each kind of fault, made by hand in a plan that is right."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.plan import Plan, Removal
from tests.differential.compare import NOW
from tests.differential.scale_down_checker import BOOKS, BUDGET, HOLDS, PLACE, SENT, Referee
from tests.property.objects import HOST, container, node, pod

_OFFER = {"cpu": "2", "memory": "8Gi", "pods": "110"}


def _lists(*, on_c: int = 0, **changes: Any) -> dict[str, list[Any]]:
    """Nodes a, b, c of 1920m; a and b have a pod each of 900m, c one of so many millicores. changes: of a's pod."""
    spec: dict[str, Any] = {"containers": [container(900)], **changes.pop("spec", {})}
    pods = [
        pod(
            f"web-{name}",
            "ns0",
            spec if name == "a" else {"containers": [container(900)]},
            {"app": "web"},
            ("ReplicaSet", "web"),
            name,
        )
        for name in ("a", "b")
    ]
    pods[0]["metadata"].update(changes)
    if on_c:
        pods.append(pod("c", "ns0", {"containers": [container(on_c)]}, {"app": "c"}, ("ReplicaSet", "c"), "c"))
    budget = {
        "metadata": {"namespace": "ns0", "name": "web"},
        "status": {"disruptionsAllowed": 2},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    }
    return {"nodes": [node(name, "g", _OFFER, {}, ()) for name in "abc"], "pods": pods, "pdbs": [budget]}


def _gone(to: str = "c", **evict: tuple[str, ...]) -> Plan:
    """Nodes that go with these pods, all to one place; a and b unless said otherwise."""
    chosen = evict or {"a": ("ns0/web-a",), "b": ("ns0/web-b",)}
    return Plan(
        id="p",
        cluster="c",
        at=NOW,
        unneeded=tuple(chosen),
        removals=tuple(Removal(name, "g", "drain", pods, dict.fromkeys(pods, to)) for name, pods in chosen.items()),
    )


def _kinds(plan: Plan, lists: dict[str, list[Any]]) -> set[str]:
    return {kind for kind, _ in Referee(lists, plan).found()}


def test_a_plan_that_keeps_its_word() -> None:
    assert _kinds(_gone(), _lists()) == set()


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(_gone(a=()), id="a pod is forgotten"),
        pytest.param(_gone(a=("ns0/web-a", "ns0/web-b")), id="a pod of another node"),
        pytest.param(_gone("b"), id="to a node that goes too"),
        pytest.param(_gone("nowhere"), id="to a node that is not there"),
        pytest.param(msgspec.structs.replace(_gone(), unneeded=("a",)), id="a node that was not unneeded"),
    ],
)
def test_the_referee_sees_books_that_do_not_add_up(plan: Plan) -> None:
    assert _kinds(plan, _lists()) == {BOOKS}


@pytest.mark.parametrize(
    "changes",
    [
        {"ownerReferences": []},
        {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
        {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
    ],
    ids=["bare", "not safe", "local"],
)
def test_the_referee_sees_a_pod_that_holds_its_node(changes: dict[str, Any]) -> None:
    assert _kinds(_gone(), _lists(**changes)) == {HOLDS}
    safe = {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}
    assert _kinds(_gone(), _lists(**{**changes, **safe})) == set()


def test_the_referee_sees_a_budget_that_is_overdrawn() -> None:
    lists = _lists()
    lists["pdbs"][0]["status"]["disruptionsAllowed"] = 1
    assert _kinds(_gone(), lists) == {BUDGET}
    assert _kinds(_gone(a=("ns0/web-a",)), lists) == set()


def test_the_referee_sees_too_little_room() -> None:
    assert _kinds(_gone(), _lists(on_c=900)) == {SENT, PLACE}


def test_the_referee_tells_a_wrong_place_from_none() -> None:
    lists = _lists(on_c=1100)
    lists["nodes"].append(node("d", "g", _OFFER, {}, ()))
    assert _kinds(_gone("c"), lists) == {SENT}
    assert _kinds(_gone("d"), lists) == set()


@pytest.mark.parametrize(("policy", "kinds"), [("Ignore", {SENT, PLACE}), ("Honor", set())])
def test_S7_the_referee_counts_the_node_that_goes_as_a_domain(policy: str, kinds: set[str]) -> None:
    spread = {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": HOST,
                "whenUnsatisfiable": "DoNotSchedule",
                "nodeTaintsPolicy": policy,
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ]
    }
    lists = _lists(spec=spread)
    small = {"containers": [container(100)]}
    lists["pods"].append(pod("web-c", "ns0", small, {"app": "web"}, ("ReplicaSet", "web"), "c"))
    assert _kinds(_gone(a=("ns0/web-a",)), lists) == kinds
