"""Shows where the pods of a plan would run: its promises as data, and in a few rows regardless of their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from chalicelib.model.plan import Contest, Plan, PodPlacement, UnschedulablePods

_NAMED, _ROWS, _NODES = 3, 4, 10


def as_data(placement: PodPlacement) -> dict[str, Any]:
    """Return {"pods": […], "node": …} for an existing or upcoming node, otherwise {"pods": […], "group": …, "number":
    …}; each with its certainty."""
    place = {"node": placement.node} if placement.node else {"group": placement.group, "number": placement.number}
    return {"pods": list(placement.pods), **place, **sureness(placement)}


def sureness(placement: PodPlacement | UnschedulablePods) -> dict[str, Any]:
    """Return {"promised": …}, and {"onePlaceAmong": {"places": …, "among": […]}} for pods that compete for places."""
    contest = placement.one_place_among
    answer: dict[str, Any] = {"promised": isinstance(placement, PodPlacement) and placement.promised}
    if contest is not None and contest.places:
        answer["onePlaceAmong"] = {"places": contest.places, "among": list(contest.among)}
    return answer


def contests(plan: Plan) -> list[Contest]:
    """Return the places that are promised to several pods together, sorted by the first of these pods."""
    entries: list[PodPlacement | UnschedulablePods] = [*plan.promises, *plan.unschedulable]
    by_pods = {entry.one_place_among.among: entry.one_place_among for entry in entries if entry.one_place_among}
    return [by_pods[pods] for pods in sorted(by_pods)]


def rows_of_contests(plan: Plan) -> list[tuple[str, ...]]:
    """Return rows of (guaranteed places, number of pods, pod names)."""
    return [(str(contest.places), str(len(contest.among)), some(contest.among)) for contest in contests(plan)]


def competing(contest: Contest | None) -> str:
    """Return a sentence to append for a pod that competes for a place; empty if it does not."""
    if contest is None:
        return ""
    if not contest.places:
        return " It may get no place: the scheduler may take other pods first."
    return (
        f" It competes for this: {contest.places} of {len(contest.among)} pods ({some(contest.among)}) "
        "will get a place, and the scheduler chooses which."
    )


def by_pod(plan: Plan) -> Mapping[str, PodPlacement]:
    """Map each pod with a promise to that promise."""
    return {pod: promise for promise in plan.promises for pod in promise.pods}


def on_node(plan: Plan, node: str) -> list[str]:
    """Return the pods expected on a node, by name."""
    return sorted(pod for promise in plan.promises if promise.node == node for pod in promise.pods)


def on_new(plan: Plan, group: str) -> dict[int, list[str]]:
    """Return the pods expected on each new node of a group: number -> pods, by name."""
    nodes: dict[int, list[str]] = {}
    for promise in plan.promises:
        if promise.group == group and not promise.node:
            nodes.setdefault(promise.number, []).extend(promise.pods)
    return {number: sorted(nodes[number]) for number in sorted(nodes)}


def rows_of_new(plan: Plan) -> list[tuple[str, ...]]:
    """Return rows_of_group for all groups with new nodes."""
    groups = sorted({promise.group for promise in plan.promises if promise.group})
    return [row for group in groups for row in rows_of_group(group, on_new(plan, group))]


def rows_of_group(group: str, nodes: Mapping[int, Sequence[str]]) -> list[tuple[str, ...]]:
    """Return rows of (group, numbers of its new nodes, pods per node, pod names); runs of equally full nodes share a
    row."""
    runs = [[number for number, _ in run] for _, run in groupby(nodes.items(), key=lambda node: len(node[1]))]
    rest = [number for run in runs[_ROWS:] for number in run]
    rows: list[tuple[str, ...]] = []
    for run in [*runs[:_ROWS], *([rest] if rest else [])]:
        counts = [len(nodes[number]) for number in run]
        pods = some([pod for number in run for pod in nodes[number]])
        rows.append((group, _span(run[0], run[-1]), _span(min(counts), max(counts)), pods))
    return rows


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def rows_of_existing(plan: Plan) -> list[tuple[str, ...]]:
    """Return rows of (node, number of pods, pod names), the fullest first, and the number of omitted nodes; pods
    without a known place form the last row."""
    pods_of: dict[str, list[str]] = {}
    for promise in plan.promises:
        if promise.node:
            pods_of.setdefault(promise.node, []).extend(promise.pods)
    order = sorted(pods_of, key=lambda node: (-len(pods_of[node]), node))
    rows = [(node, str(len(pods_of[node])), some(sorted(pods_of[node]))) for node in order[:_NODES]]
    more = sorted(pod for node in order[_NODES:] for pod in pods_of[node])
    if more:
        rows.append((f"{len(order) - _NODES} more", str(len(more)), some(more)))
    known = {pod for pods in pods_of.values() for pod in pods}
    unplaced = [pod for pod in plan.fits_existing if pod not in known]
    return [*rows, *([("-", str(len(unplaced)), some(unplaced))] if unplaced else [])]


def some(pods: Sequence[str]) -> str:
    """Return up to three names and the number of the remaining ones."""
    shown = ", ".join(pods[:_NAMED])
    return f"{shown} and {len(pods) - _NAMED} more" if len(pods) > _NAMED else shown
