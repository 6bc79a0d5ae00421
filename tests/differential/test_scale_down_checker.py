"""The removal referee detects each kind of error, introduced deliberately into a correct plan."""

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
    """Nodes a, b, c of 1920m; a and b have one pod each of 900m, c has one of that many
    millicores. changes: of a's pod."""
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
        pods.append(
            pod(
                "c",
                "ns0",
                {"containers": [container(on_c)]},
                {"app": "c"},
                ("ReplicaSet", "c"),
                "c",
            )
        )
    budget = {
        "metadata": {"namespace": "ns0", "name": "web"},
        "status": {"disruptionsAllowed": 2},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    }
    return {
        "nodes": [node(name, "g", _OFFER, {}, ()) for name in "abc"],
        "pods": pods,
        "pdbs": [budget],
    }


def _gone(to: str = "c", **evict: tuple[str, ...]) -> Plan:
    """Removed nodes with these pods, all to one destination; a and b by default."""
    chosen = evict or {"a": ("ns0/web-a",), "b": ("ns0/web-b",)}
    return Plan(
        id="p",
        cluster="c",
        at=NOW,
        unneeded=tuple(chosen),
        removals=tuple(
            Removal(name, "g", "drain", pods, dict.fromkeys(pods, to))
            for name, pods in chosen.items()
        ),
    )


def _kinds(plan: Plan, lists: dict[str, list[Any]]) -> set[str]:
    return {kind for kind, _ in Referee(lists, plan).found()}


def test_removal_referee_accepts_a_correct_plan() -> None:
    assert _kinds(_gone(), _lists()) == set()


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(_gone(a=()), id="a pod is forgotten"),
        pytest.param(_gone(a=("ns0/web-a", "ns0/web-b")), id="a pod of another node"),
        pytest.param(_gone("b"), id="to a node that goes too"),
        pytest.param(_gone("nowhere"), id="to a node that is not there"),
        pytest.param(
            msgspec.structs.replace(_gone(), unneeded=("a",)), id="a node that was not unneeded"
        ),
    ],
)
def test_removal_referee_detects_inconsistent_bookkeeping(plan: Plan) -> None:
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
def test_removal_referee_detects_a_pod_that_blocks_its_node(changes: dict[str, Any]) -> None:
    assert _kinds(_gone(), _lists(**changes)) == {HOLDS}
    safe = {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}
    assert _kinds(_gone(), _lists(**{**changes, **safe})) == set()


def test_removal_referee_detects_an_overdrawn_pdb() -> None:
    lists = _lists()
    lists["pdbs"][0]["status"]["disruptionsAllowed"] = 1
    assert _kinds(_gone(), lists) == {BUDGET}
    assert _kinds(_gone(a=("ns0/web-a",)), lists) == set()


def test_removal_referee_detects_too_little_room() -> None:
    assert _kinds(_gone(), _lists(on_c=900)) == {SENT, PLACE}


def test_removal_referee_distinguishes_a_wrong_place_from_no_place() -> None:
    lists = _lists(on_c=1100)
    lists["nodes"].append(node("d", "g", _OFFER, {}, ()))
    assert _kinds(_gone("c"), lists) == {SENT}
    assert _kinds(_gone("d"), lists) == set()


@pytest.mark.parametrize(("policy", "kinds"), [("Ignore", {SENT, PLACE}), ("Honor", set())])
def test_removal_referee_counts_the_leaving_node_as_a_domain(policy: str, kinds: set[str]) -> None:
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
