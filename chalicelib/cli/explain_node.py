"""`outscaler explain node NAME`: does a node go or stay, and why; its pods, and those that are expected on it."""

from __future__ import annotations

from typing import Any

from chalicelib.cli.answers import Answer, Scene, amounts, coded, weakening
from chalicelib.cli.find import named
from chalicelib.cli.tables import Table
from chalicelib.cli.where import on_node, some
from chalicelib.model.node import Node
from chalicelib.model.pod import Pod
from chalicelib.model.times import format_time
from chalicelib.plan.explain import sentence


def answer(scene: Scene, name: str) -> Answer:
    """What becomes of a node, one that is on its way included. Raises BadInput for an unknown name."""
    from chalicelib.plan.whatif import owns

    snapshot, plan = scene.case.snapshot, scene.plan
    coming = {promise.node: promise.node for promise in plan.promises if promise.node}
    nodes = {node.name: node for node in snapshot.nodes}
    named(name, {**coming, **{node: node for node in nodes}}, "explain node", "node")
    expected = on_node(plan, name)
    node = nodes.get(name)
    if node is None:
        return Answer("node", name, (f"Node {name} is on its way; {len(expected)} pending pods are expected on it.",),
                      {"verdict": "upcoming", "expected": expected}, tables=(_expected(expected),))
    group = next((each.id for each in snapshot.groups if owns(each, node)), "")
    pods = [pod for pod in snapshot.pods if pod.node == name]
    says, data = _fate(scene, node)
    if expected:
        says = (*says, f"{len(expected)} pending pods are expected on it.")
    to: dict[str, str] = data.get("destinations", {})
    data |= {"group": group, "ready": _is_ready(node), "unschedulable": node.unschedulable,
             "allocatable": dict(sorted(node.allocatable.items())), "taints": [str(taint) for taint in node.taints],
             "pods": [pod.key for pod in pods], "expected": expected}
    return Answer("node", name, says, data, _facts(scene, node, group),
                  (_pods(scene, pods, to), _expected(expected)), weakening(plan, removal=True, node=name))


def _fate(scene: Scene, node: Node) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Whether it goes, could go, or stays."""
    plan, name = scene.plan, node.name
    removal = next((each for each in plan.removals if each.node == name), None)
    if removal is not None:
        evicting = len(removal.evict)
        what = f"evicting {evicting} pod{'' if evicting == 1 else 's'}" if evicting else "empty as it is"
        return (f"Node {name} would be removed now, {what}.",), {
            "verdict": "removed", "how": removal.kind, "evict": list(removal.evict),
            "destinations": dict(sorted(removal.destinations.items()))}
    stays = next((each for each in plan.unremovable if each.node == name), None)
    data: dict[str, Any] = {"verdict": "unneeded" if name in plan.unneeded else "stays"}
    if stays is not None:
        data["reason"] = coded(stays.reason)
        data |= {"holds": stays.pod} if stays.pod else {}
    why = sentence(stays.reason) if stays is not None else "the plan does not mention it"
    if name in plan.unneeded:
        return (f"Node {name} is unneeded, and stays for now: {why}.",), data
    return (f"Node {name} stays: {why}.",), data


def _is_ready(node: Node) -> bool:
    ready = node.condition("Ready")
    return ready is not None and ready.status == "True"


def _facts(scene: Scene, node: Node, group: str) -> tuple[tuple[str, str], ...]:
    since = scene.decided.memory.nodes.get(node.name)
    facts = (
        ("node group", group or "none: it is not autoscaled"),
        ("ready", "yes" if _is_ready(node) else "no"), ("cordoned", "yes" if node.unschedulable else ""),
        ("allocatable", amounts(node.allocatable)), ("taints", ", ".join(str(taint) for taint in node.taints)),
        ("unneeded since", format_time(since.unneeded_since) if since is not None and since.unneeded_since else ""),
    )
    return tuple((name, value) for name, value in facts if value)


def _pods(scene: Scene, pods: list[Pod], to: dict[str, str]) -> Table:
    """Its pods; where they would go, if it is to be removed."""
    snapshot = scene.case.snapshot
    rows = tuple((pod.key, amounts(snapshot.cls(pod).requests), _owner(scene, pod), *([to.get(pod.key, "-")] if to else
                                                                                      [])) for pod in pods)
    return Table(("pod", "requests", "owner", *(["would go to"] if to else [])), rows, title="Pods on it",
                 empty="no pod runs on it")


def _owner(scene: Scene, pod: Pod) -> str:
    owner = scene.case.snapshot.cls(pod).owner
    return f"{owner.kind}/{owner.name}" if owner is not None else "none"


def _expected(pods: list[str]) -> Table:
    return Table(("how many", "which"), ((str(len(pods)), some(pods)),) if pods else (), title="Expected on it")
