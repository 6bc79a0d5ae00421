"""Every pod onto exactly its promised place: is there an order in which the scheduler could do it?

Whoever is promised a node that exists goes there before any new node joins, as he would: a new node takes minutes.
Almost always the queue's order will do, in rounds. Where pods count others that are not bound by the same rule, the
order matters, and it is looked for: pods with rules first, and of the others the one that frees most of those.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from infra.emulators.controllers.scheduler.cluster_view import ClusterView
from infra.emulators.controllers.scheduler.node_local import Nowhere
from infra.emulators.controllers.scheduler.pod_and_node_info import PodView
from infra.emulators.controllers.scheduler.predicates import judge
from tests.property.scheduler_view import Newcomer, SchedulerView

_ORDERS = 20


def pod_key(pod: PodView) -> str:
    """namespace/name."""
    return f"{pod.namespace}/{pod.name}"


def look(pod: PodView) -> bytes:
    """All of a pod that any predicate reads."""
    return msgspec.json.encode((pod.namespace, pod.labels, pod.claims, pod.raw["spec"]), order="sorted")


def first_of(pod: PodView, world: ClusterView, order: Iterable[str]) -> str | None:
    """The first of these nodes that takes the pod now."""
    verdict = judge(pod, world)
    if isinstance(verdict, Nowhere):
        return None
    return next((name for name in order if not verdict(world.nodes[name])), None)


def why_not(pod: PodView, world: ClusterView, on: str) -> list[str]:
    """The scheduler's words; none if the node takes the pod."""
    verdict = judge(pod, world)
    return [verdict.reason] if isinstance(verdict, Nowhere) else verdict(world.nodes[on])


def first_fit(
    stage: SchedulerView, new: Sequence[Newcomer], pods: Iterable[str], *, at_once: bool = False
) -> tuple[dict[str, str], list[str]]:
    """Pods in the queue's order, each onto the first node that takes it, in rounds until nothing changes; then new
    nodes join, and the rest goes on. Returns places, and the pods without one. at_once: all nodes are there before."""
    world, order = stage.world(new if at_once else ()), stage.order(new if at_once else ())
    places: dict[str, str] = {}
    waiting = _rounds(stage.queue(pods), world, lambda pod: first_of(pod, world, order), places)
    if not at_once:
        stage.join(world, new)
        longer = stage.order(new)
        waiting = _rounds(waiting, world, lambda pod: first_of(pod, world, longer), places)
    return places, [pod_key(pod) for pod in waiting]


def _rounds(
    pods: Sequence[PodView], world: ClusterView, choose: Callable[[PodView], str | None], places: dict[str, str]
) -> list[PodView]:
    """Place whom there is a choice for, in this order, until a whole round places nobody; returns the others."""
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
    """places: pod -> node, by name; new: nodes that are not there yet; at_once: as if they were."""

    def __init__(
        self, stage: SchedulerView, new: Sequence[Newcomer], places: Mapping[str, str], *, at_once: bool = False
    ) -> None:
        self._stage, self._new, self._places = stage, new, places
        names = set() if at_once else {each.node.name for each in new}
        self._early = {pod for pod, on in places.items() if on not in names} if names else set[str]()

    def run(self) -> tuple[ClusterView, list[PodView]]:
        """The world when no more pod can go to its place, and the pods that still wait, of the best order found."""
        queue = self._stage.queue(self._places)
        best = self._in_rounds(queue)
        if best[1] and self._early:
            best = min(best, Replay(self._stage, self._new, self._places, at_once=True).run(), key=_waiting)
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
        """The world with its new nodes and those who went before they came; and the others."""
        world = self._stage.world()
        placed: dict[str, str] = {}
        early = [pod for pod in pods if pod_key(pod) in self._early]
        _rounds(early, world, lambda pod: first_of(pod, world, [self._places[pod_key(pod)]]), placed)
        self._stage.join(world, self._new)
        return world, placed, [pod for pod in pods if pod_key(pod) not in placed]

    def _in_rounds(self, pods: Sequence[PodView]) -> tuple[ClusterView, list[PodView]]:
        """In this order, until a whole round places nobody."""
        world, placed, waiting = self._start(pods)
        return world, _rounds(waiting, world, lambda pod: first_of(pod, world, [self._places[pod_key(pod)]]), placed)

    def _with_care(self, queue: Sequence[PodView]) -> tuple[ClusterView, list[PodView]]:
        """One at a time: whoever has rules about others goes as soon as he can."""
        world, placed, waiting = self._start(queue)
        bound = [pod for pod in waiting if pod.spread or pod.affinity]
        free = [pod for pod in waiting if not (pod.spread or pod.affinity)]
        while True:
            chosen = next((pod for pod in bound if self._takes(pod, world)), None)
            if chosen is None:
                ready = [pod for pod in reversed(free) if self._takes(pod, world)]
                able = {(look(pod), self._places[pod_key(pod)]): pod for pod in ready}
                chosen = max(able.values(), key=lambda pod: self._frees(pod, placed, bound), default=None)
            if chosen is None:
                return world, bound + free
            (bound if chosen in bound else free).remove(chosen)
            placed[pod_key(chosen)] = self._places[pod_key(chosen)]
            world.place(chosen, placed[pod_key(chosen)])

    def _frees(self, pod: PodView, placed: Mapping[str, str], bound: Sequence[PodView]) -> int:
        """How many of those that are bound could go to their places once this pod is on its own."""
        world = self._stage.world(self._new, {**placed, pod_key(pod): self._places[pod_key(pod)]})
        return sum(self._takes(each, world) for each in bound)


def _waiting(outcome: tuple[ClusterView, list[PodView]]) -> int:
    return len(outcome[1])
