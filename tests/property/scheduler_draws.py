"""Simulates what the scheduler may do with a plan: its queue, its scores and
its ties, drawn by seed.

Placements describe the cluster once the new nodes are there. The scheduler takes pods by priority
and then by queue time, which for previously rejected pods is a separate order; the order in which
it scores nodes decides among equal ones; and new nodes become ready together or one after another.
Each draw is one such history, until no pod moves any more.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.plan import Plan
from infra.emulators.controllers.scheduler.cluster_view import ClusterView
from infra.emulators.controllers.scheduler.pod_and_node_info import PodView
from infra.emulators.controllers.scheduler.predicates import Nowhere, judge
from infra.emulators.controllers.scheduler.scoring import best
from tests.property.replay import look, pod_key
from tests.property.scheduler_view import Newcomer, SchedulerView


class History(msgspec.Struct, frozen=True):
    """One draw. places: pod -> node; empty: new nodes without pods."""

    places: dict[str, str]
    empty: tuple[str, ...]


class Tally(msgspec.Struct):
    """Results of several draws. unkept: pods with a definite placement that got neither their place
    nor that of an equal pod; among: places of competing pods that none of them got; sure: definite
    places, of one pod or of several competing ones; bound: pods that got a place, with or without a
    placement in the plan."""

    draws: int = 0
    bound: int = 0
    sure: int = 0
    promised: int = 0
    unkept: int = 0
    among: int = 0
    nodes: int = 0
    empty: int = 0

    def add(self, other: Tally) -> None:
        """Adds another tally."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        return (
            f"{self.draws} draws: {self.bound} pods bound, {self.sure} places promised; "
            f"{self.unkept} of {self.promised} promised pods without a place, "
            f"{self.among} places short among pods that compete, {self.empty} of {self.nodes} new "
            "nodes empty"
        )


class Drawing:
    """The scheduler with one cluster and some new nodes for it. pods: the pending
    pods, by namespace/name."""

    def __init__(self, stage: SchedulerView, new: Sequence[Newcomer], pods: Iterable[str]) -> None:
        self._stage, self._new = stage, new
        self._pods = stage.queue(pods)
        self._looks = {pod_key(pod): look(pod) for pod in self._pods}

    def history(self, seed: int) -> History:
        """One draw. In every second one the new nodes become ready one after another."""
        draw = random.Random(seed)
        world, places = self._stage.world(), dict[str, str]()
        able = set(self._stage.order())
        waiting = self._run(self._queue(self._pods, draw), world, able, draw, places)
        new = draw.sample(self._new, len(self._new))
        for batch in [new] if seed % 2 else [[each] for each in new]:
            self._stage.join(world, batch)
            able.update(each.node.name for each in batch if not each.node.unschedulable)
            waiting = self._run(self._queue(waiting, draw), world, able, draw, places)
        used = set(places.values())
        return History(
            places, tuple(each.node.name for each in self._new if each.node.name not in used)
        )

    def at_rest(self, seed: int) -> dict[str, str]:
        """Pod -> node in one draw without new and upcoming nodes."""
        draw, places = random.Random(seed), dict[str, str]()
        self._run(
            self._queue(self._pods, draw), self._stage.world(), set(self._stage.open), draw, places
        )
        return places

    def _queue(self, pods: Sequence[PodView], draw: random.Random) -> list[PodView]:
        """Order by priority, then by queue time: by age, or in a separate order, since rejected
        pods are queued again at other times than their creation."""
        lots = {id(pod): draw.random() for pod in pods}
        by_age = draw.random() < 0.5
        return sorted(
            pods, key=lambda pod: (-pod.priority, pod.created if by_age else "", lots[id(pod)])
        )

    def _run(
        self,
        pods: Sequence[PodView],
        world: ClusterView,
        able: set[str],
        draw: random.Random,
        places: dict[str, str],
    ) -> list[PodView]:
        """Schedules until a whole round places no pod. Rejected pods are retried, as
        cluster events would cause."""
        waiting, refused = list(pods), dict[bytes, int]()
        moved = True
        while moved and waiting:
            moved = False
            for pod in list(waiting):
                kind = self._looks[pod_key(pod)]
                if refused.get(kind) == world.generation:
                    continue
                verdict = judge(pod, world)
                possible = (
                    []
                    if isinstance(verdict, Nowhere)
                    else [
                        node
                        for name, node in world.nodes.items()
                        if name in able and not verdict(node)
                    ]
                )
                if not possible:
                    refused[kind] = world.generation
                    continue
                in_order = draw.sample(possible, len(possible))  # the scheduler's workers race
                places[pod_key(pod)] = best(pod, in_order, world).name
                world.place(pod, places[pod_key(pod)])
                waiting.remove(pod)
                moved = True
        return waiting


def drawn(
    stage: SchedulerView, plan: Plan, new: Mapping[str, Newcomer], seeds: Iterable[int]
) -> Tally:
    """Checks a plan's placements in the draws of these seeds."""
    refused = [pod for verdict in plan.unschedulable for pod in verdict.pods]
    sure, among = promises(plan)
    everybody = [*refused, *(pod for promise in plan.promises for pod in promise.pods)]
    drawing, tally = Drawing(stage, [*new.values()], everybody), Tally()
    kinds = {pod: look(stage.wanted[pod]) for pod in everybody}
    promised = Counter(kinds[pod] for pod in sure)
    for seed in seeds:
        history = drawing.history(seed)
        placed = Counter(kinds[pod] for pod in history.places)
        tally.add(
            Tally(
                draws=1,
                bound=len(history.places),
                promised=len(sure),
                sure=len(sure) + sum(each for each, _ in among),
                unkept=sum((promised - placed).values()),
                among=sum(
                    max(0, places - sum(pod in history.places for pod in pods))
                    for places, pods in among
                ),
                nodes=len(new),
                empty=len(history.empty),
            )
        )
    return tally


def promises(plan: Plan) -> tuple[list[str], list[tuple[int, tuple[str, ...]]]]:
    """Pods with a definite placement, and the places of competing pods: that many
    places among these pods."""
    sure = [
        pod
        for promise in plan.promises
        if getattr(promise, "promised", True)
        for pod in promise.pods
    ]
    sets = {
        found.among: found.places
        for each in (*plan.promises, *plan.unschedulable)
        if (found := getattr(each, "one_place_among", None)) is not None
    }
    return sure, [(places, among) for among, places in sorted(sets.items())]
