"""One round of scheduling: every waiting pod, most important first, each onto a node or refused with the message.

Plain on purpose: pod by pod and node by node. It is the independent check of what the planner promises, so it shares
nothing with it and is written to be compared with the Kubernetes rules by eye.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from infra.emulators.controllers.scheduler.cluster_view import ClusterView, Surroundings
from infra.emulators.controllers.scheduler.node_local import Nowhere
from infra.emulators.controllers.scheduler.pod_and_node_info import NodeView, PodView, read_node, read_pod
from infra.emulators.controllers.scheduler.predicates import judge

Json = Mapping[str, Any]
Pick = Callable[[Sequence[NodeView], ClusterView], NodeView]

NO_NODES = "no nodes available to schedule pods"


class Decision(msgspec.Struct, frozen=True):
    """What became of a pod: the node it goes to, or None and the message that the real scheduler would write.
    volumes: its claims that got a free volume by it, each with the volume's name."""

    pod: PodView
    node: str | None
    message: str = ""
    volumes: tuple[tuple[str, str], ...] = ()


def first(nodes: Sequence[NodeView], _world: ClusterView) -> NodeView:
    """The first in the order given: packs nodes in turn."""
    return nodes[0]


def least_used(nodes: Sequence[NodeView], world: ClusterView) -> NodeView:
    """The emptiest by share of cpu and memory, as the scheduler's default score prefers; the first of equals."""

    def share(node: NodeView) -> float:
        used = world.used(node.name)
        return sum(used[name] / max(1, node.allocatable.get(name, 0)) for name in ("cpu", "memory"))

    return min(nodes, key=share)


def refusal(reasons: Iterable[Sequence[str]]) -> str:
    """`0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu.` from each node's reasons.

    The parts are sorted as text, as the real one sorts them: `11 …` comes before `2 …`.
    """
    per_node = list(reasons)
    if not per_node:
        return NO_NODES
    counted = Counter(reason for each in per_node for reason in set(each))
    parts = sorted(f"{count} {reason}" for reason, count in counted.items())
    return f"0/{len(per_node)} nodes are available: {', '.join(parts)}."


def place(pod: PodView, world: ClusterView, pick: Pick = least_used) -> Decision:
    """One pod onto the world as it is; a decision with a node has taken its room there."""
    verdict = judge(pod, world)
    if isinstance(verdict, Nowhere):
        return Decision(pod, None, f"0/{len(world.nodes)} nodes are available: {verdict.reason}.")
    against = [(node, verdict(node)) for node in world.nodes.values()]
    possible = [node for node, reasons in against if not reasons]
    if not possible:
        return Decision(pod, None, refusal(reasons for _, reasons in against))
    chosen = pick(possible, world)
    return Decision(pod, chosen.name, volumes=tuple(world.place(pod, chosen.name)))


def _look(pod: PodView) -> bytes:
    """All of a pod that any predicate reads."""
    return msgspec.json.encode((pod.namespace, pod.labels, pod.claims, pod.raw["spec"]), order="sorted")


def place_all(pods: Iterable[PodView], world: ClusterView, pick: Pick = least_used) -> list[Decision]:
    """Every pod in the order of the queue: higher priority first, then older, then as given.

    A pod that looks like one that was refused is refused with the same words, unless something was placed since.
    """
    decisions = []
    refused: dict[bytes, tuple[int, str]] = {}
    for pod in sorted(pods, key=lambda p: (-p.priority, p.created)):
        look = _look(pod)
        generation, message = refused.get(look, (-1, ""))
        if generation == world.generation:
            decisions.append(Decision(pod, None, message))
            continue
        decision = place(pod, world, pick)
        if decision.node is None:
            refused[look] = (world.generation, decision.message)
        decisions.append(decision)
    return decisions


def waits(pod: PodView, scheduler: str = "default-scheduler") -> bool:
    """Whether this scheduler would try to place the pod."""
    return not (pod.node or pod.terminating or pod.finished or pod.gated) and pod.scheduler == scheduler


def schedule_once(
    nodes: Iterable[Json], pods: Iterable[Json], around: Surroundings | None = None, *, pick: Pick = least_used
) -> list[Decision]:
    """One round over plain API objects: a decision for every waiting pod, in the order they were tried."""
    views = [read_pod(pod) for pod in pods]
    world = ClusterView((read_node(node) for node in nodes), views, around)
    return place_all((pod for pod in views if waits(pod)), world, pick)
