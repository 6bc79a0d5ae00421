"""One scheduling round: every waiting pod, highest priority first, is placed on a node or rejected with a message.

It is simple on purpose: pod by pod and node by node. It checks the planner's results independently, so it shares no
code with the planner, and a reader can compare it with the Kubernetes rules.
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
    """The result for a pod: its node, or None and the message that the real scheduler would write. volumes: its claims
    that got a free volume in this decision, each with the volume's name."""

    pod: PodView
    node: str | None
    message: str = ""
    volumes: tuple[tuple[str, str], ...] = ()


def first(nodes: Sequence[NodeView], _world: ClusterView) -> NodeView:
    """Select the first node in the given order, which fills nodes in turn."""
    return nodes[0]


def least_used(nodes: Sequence[NodeView], world: ClusterView) -> NodeView:
    """Select the node with the least used share of cpu and memory, as the scheduler's default score prefers; the first
    of equals."""

    def share(node: NodeView) -> float:
        used = world.used(node.name)
        return sum(used[name] / max(1, node.allocatable.get(name, 0)) for name in ("cpu", "memory"))

    return min(nodes, key=share)


def refusal(reasons: Iterable[Sequence[str]]) -> str:
    """Format `0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu.` from each node's reasons.

    The parts are sorted as text, as in the real scheduler: `11 …` comes before `2 …`.
    """
    per_node = list(reasons)
    if not per_node:
        return NO_NODES
    counted = Counter(reason for each in per_node for reason in set(each))
    parts = sorted(f"{count} {reason}" for reason, count in counted.items())
    return f"0/{len(per_node)} nodes are available: {', '.join(parts)}."


def place(pod: PodView, world: ClusterView, pick: Pick = least_used) -> Decision:
    """Place one pod in the current cluster view. A decision with a node has already taken its resources there."""
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
    """Return everything about a pod that a predicate reads."""
    return msgspec.json.encode((pod.namespace, pod.labels, pod.claims, pod.raw["spec"]), order="sorted")


def place_all(pods: Iterable[PodView], world: ClusterView, pick: Pick = least_used) -> list[Decision]:
    """Schedule every pod in queue order: higher priority first, then older, then as given.

    A pod that is equal to a rejected one is rejected with the same message, unless something was placed since.
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
    """Return whether this scheduler would try to place the pod."""
    return not (pod.node or pod.terminating or pod.finished or pod.gated) and pod.scheduler == scheduler


def schedule_once(
    nodes: Iterable[Json], pods: Iterable[Json], around: Surroundings | None = None, *, pick: Pick = least_used
) -> list[Decision]:
    """Run one round over plain API objects. Returns a decision for every waiting pod, in the order of attempts."""
    views = [read_pod(pod) for pod in pods]
    world = ClusterView((read_node(node) for node in nodes), views, around)
    return place_all((pod for pod in views if waits(pod)), world, pick)
