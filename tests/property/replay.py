"""Checks whether an order exists in which the scheduler can put every pod on
exactly its planned place.

Pods placed on existing nodes go first, before any new node joins, because a new node takes minutes.
The queue's order in rounds is nearly always sufficient. Where pods count others that are not bound
by the same rule, the order matters and is searched for: pods with rules first, and among the others
the one that enables most of those.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from infra.emulators.controllers.scheduler.cluster_view import ClusterView
from infra.emulators.controllers.scheduler.pod_and_node_info import PodView
from infra.emulators.controllers.scheduler.predicates import Nowhere, judge
from tests.property.scheduler_view import Newcomer, SchedulerView

_ORDERS = 20


def pod_key(pod: PodView) -> str:
    """Returns namespace/name."""
    return f"{pod.namespace}/{pod.name}"


def look(pod: PodView) -> bytes:
    """All fields of a pod that any predicate reads."""
    return msgspec.json.encode(
        (pod.namespace, pod.labels, pod.claims, pod.raw["spec"]), order="sorted"
    )


def first_of(pod: PodView, world: ClusterView, order: Iterable[str]) -> str | None:
    """The first of these nodes that accepts the pod now."""
    verdict = judge(pod, world)
    if isinstance(verdict, Nowhere):
        return None
    return next((name for name in order if not verdict(world.nodes[name])), None)


def why_not(pod: PodView, world: ClusterView, on: str) -> list[str]:
    """The scheduler's reason; empty if the node accepts the pod."""
    verdict = judge(pod, world)
    return [verdict.reason] if isinstance(verdict, Nowhere) else verdict(world.nodes[on])


def first_fit(
    stage: SchedulerView, new: Sequence[Newcomer], pods: Iterable[str], *, at_once: bool = False
) -> tuple[dict[str, str], list[str]]:
    """Schedules pods in queue order, each to the first node that accepts it, in rounds until
    nothing changes; then new nodes join, and the rest is scheduled. Returns places, and the pods
    without one. at_once: all nodes are there from the start."""
    world, order = stage.world(new if at_once else ()), stage.order(new if at_once else ())
    places: dict[str, str] = {}
    waiting = _rounds(stage.queue(pods), world, lambda pod: first_of(pod, world, order), places)
    if not at_once:
        stage.join(world, new)
        longer = stage.order(new)
        waiting = _rounds(waiting, world, lambda pod: first_of(pod, world, longer), places)
    return places, [pod_key(pod) for pod in waiting]


def _rounds(
    pods: Sequence[PodView],
    world: ClusterView,
    choose: Callable[[PodView], str | None],
    places: dict[str, str],
) -> list[PodView]:
    """Places pods for which a node is offered, in this order, until a whole round places
    none; returns the others."""
    waiting, before = list(pods), -1
    while waiting and len(waiting) != before:
        before = len(waiting)
        for pod in list(waiting):
            on = choose(pod)
            if on is not None:
                world.place(pod, on)
                places[pod_key(pod)] = on
                waiting.remove(pod)
    return waiting


class Replay:
    """places: pod -> node, by name; new: nodes that do not exist yet;
    at_once: treat them as existing."""

    def __init__(
        self,
        stage: SchedulerView,
        new: Sequence[Newcomer],
        places: Mapping[str, str],
        *,
        at_once: bool = False,
    ) -> None:
        self._stage, self._new, self._places = stage, new, places
        names = set() if at_once else {each.node.name for each in new}
        self._early = (
            {pod for pod, on in places.items() if on not in names} if names else set[str]()
        )

    def run(self) -> tuple[ClusterView, list[PodView]]:
        """The world when no further pod can go to its place, and the pods still pending,
        for the best order found."""
        queue = self._stage.queue(self._places)
        best = self._in_rounds(queue)
        if best[1] and self._early:
            best = min(
                best, Replay(self._stage, self._new, self._places, at_once=True).run(), key=_waiting
            )
        if best[1]:
            best = min(best, self._with_care(queue), key=_waiting)
        draw = random.Random(len(queue))
        for _ in range(_ORDERS):
            if best[1]:
                best = min(best, self._in_rounds(draw.sample(queue, len(queue))), key=_waiting)
        return best

    def _takes(self, pod: PodView, world: ClusterView) -> bool:
        return first_of(pod, world, [self._places[pod_key(pod)]]) is not None

    def _start(self, pods: Sequence[PodView]) -> tuple[ClusterView, dict[str, str], list[PodView]]:
        """The world with its new nodes and the pods placed before they
        joined; and the other pods."""
        world = self._stage.world()
        placed: dict[str, str] = {}
        early = [pod for pod in pods if pod_key(pod) in self._early]
        _rounds(
            early, world, lambda pod: first_of(pod, world, [self._places[pod_key(pod)]]), placed
        )
        self._stage.join(world, self._new)
        return world, placed, [pod for pod in pods if pod_key(pod) not in placed]

    def _in_rounds(self, pods: Sequence[PodView]) -> tuple[ClusterView, list[PodView]]:
        """Places pods in this order until a whole round places none."""
        world, placed, waiting = self._start(pods)
        return world, _rounds(
            waiting, world, lambda pod: first_of(pod, world, [self._places[pod_key(pod)]]), placed
        )

    def _with_care(self, queue: Sequence[PodView]) -> tuple[ClusterView, list[PodView]]:
        """Places one pod at a time; pods with rules about others go as soon as possible."""
        world, placed, waiting = self._start(queue)
        bound = [pod for pod in waiting if pod.spread or pod.affinity]
        free = [pod for pod in waiting if not (pod.spread or pod.affinity)]
        while True:
            chosen = next((pod for pod in bound if self._takes(pod, world)), None)
            if chosen is None:
                ready = [pod for pod in reversed(free) if self._takes(pod, world)]
                able = {(look(pod), self._places[pod_key(pod)]): pod for pod in ready}
                chosen = max(
                    able.values(), key=lambda pod: self._frees(pod, placed, bound), default=None
                )
            if chosen is None:
                return world, bound + free
            (bound if chosen in bound else free).remove(chosen)
            placed[pod_key(chosen)] = self._places[pod_key(chosen)]
            world.place(chosen, placed[pod_key(chosen)])

    def _frees(self, pod: PodView, placed: Mapping[str, str], bound: Sequence[PodView]) -> int:
        """How many of the pods with rules could go to their places once this pod is placed."""
        world = self._stage.world(self._new, {**placed, pod_key(pod): self._places[pod_key(pod)]})
        return sum(self._takes(each, world) for each in bound)


def _waiting(outcome: tuple[ClusterView, list[PodView]]) -> int:
    return len(outcome[1])
