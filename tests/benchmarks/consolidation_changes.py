"""What happens to a cluster beside consolidation: rollouts, and pods that come and go."""

from __future__ import annotations

import random
from collections import Counter
from math import ceil

import msgspec

from chalicelib.model.pod import Pod
from chalicelib.model.snapshot import Snapshot
from tests.benchmarks.consolidation_purchases import explain
from tests.benchmarks.consolidation_world import MINUTE, Outscaler, Strategy, World, pending_pod
from tests.differential.karpenter import MICRO

REPLICATED = ("ReplicaSet", "StatefulSet")
SURGE = 0.25
NOTICED = 10.0
"""Seconds from the beginning of a minute, when pods come and go, to its pass."""
LONG_WAIT = 30.0
LONGEST = 30
"""Passes after which a rollout that has not ended is left as it is."""
CHURN_PASSES, CHURN = 40, 0.01


def owners_of(snapshot: Snapshot) -> list[str]:
    """The owner's uid of each pod, "" if it is no ReplicaSet or StatefulSet."""
    of_class = [cls.owner for cls in snapshot.classes]
    uids = [owner.uid if owner and owner.kind in REPLICATED else "" for owner in of_class]
    return [uids[pod.cls] for pod in snapshot.pods]


class Rollout:
    """A rolling update with a maxSurge of 25 % and maxUnavailable 0. uid: of the owner. A pod
    counts as available when it has a node."""

    def __init__(self, world: World, uid: str) -> None:
        snapshot = world.snapshot()
        pods = [
            pod
            for pod, owner in zip(snapshot.pods, owners_of(snapshot), strict=True)
            if owner == uid
        ]
        self._world, self._size, self._surge = world, len(pods), ceil(len(pods) * SURGE)
        self._unreplaced = pods
        self._old = {pod.key for pod in pods}
        self._new: set[str] = set()

    def advance(self) -> bool:
        """Goes on until it has to wait. Returns whether it is over."""
        while self._start() | self._replace():
            pass
        return not self._old

    def _start(self) -> bool:
        """Starts as many new pods as maxSurge allows."""
        room = self._surge + self._size - len(self._old) - len(self._new)
        started, self._unreplaced = self._unreplaced[:room], self._unreplaced[room:]
        for pod in started:
            new = pending_pod(pod, f"{pod.uid}-new", self._world.now)
            new = msgspec.structs.replace(new, name=f"{pod.name}-new")
            self._world.add_pod(new)
            self._new.add(new.key)
        return bool(started)

    def _replace(self) -> bool:
        """Binds pods and ends as many old ones: first those without a node, then, as a ReplicaSet
        does, those that share a node with most others."""
        self._world.bind()
        pods = self._world.pods
        available = sum(bool(pods[key].node) for key in self._new)
        spare = max(0, len(self._old) + available - self._size)
        crowds = Counter(pods[key].node for key in self._old | self._new)
        ended = sorted(self._old, key=lambda key: _end_order(pods[key], crowds))[:spare]
        for key in ended:
            self._world.end_pod(key)
        self._old.difference_update(ended)
        return bool(ended)


def _end_order(pod: Pod, crowds: Counter[str]) -> tuple[bool, int, str]:
    return bool(pod.node), -crowds[pod.node], pod.key


class Aftermath(msgspec.Struct, frozen=True):
    """What happened within some passes. price: the mean, an hour; pending: pod-seconds; unfinished:
    rollouts that did not end."""

    price: float
    bought: int
    waited: int
    pending: float
    disrupted: int
    unfinished: int = 0


class _Watch:
    """Makes passes and counts what happens in them. explained: print the purchases."""

    def __init__(self, world: World, strategy: Strategy, explained: bool = False) -> None:
        self._world, self._strategy, self._explained = world, strategy, explained
        self._bought, self._moves = len(world.bought), len(world.moves)
        self._waited, self._minutes = _waited(world), world.pending_minutes
        self._prices: list[float] = []

    def make_pass(self) -> None:
        """One, and the minute around it."""
        world, strategy = self._world, self._strategy
        world.advance(NOTICED)
        before = world.snapshot() if self._explained else None
        strategy.act(world)
        if before and isinstance(strategy, Outscaler) and strategy.plan:
            for line in explain(before, strategy.plan):
                print(line, flush=True)
        world.bind()
        self._prices.append(world.price / MICRO)
        world.advance(MINUTE - NOTICED)
        world.join_started()

    def outcome(self, unfinished: int = 0) -> Aftermath:
        """What has happened so far."""
        world = self._world
        return Aftermath(
            sum(self._prices) / max(1, len(self._prices)),
            len(world.bought) - self._bought,
            _waited(world) - self._waited,
            (world.pending_minutes - self._minutes) * MINUTE,
            len(world.moves) - self._moves,
            unfinished,
        )


def _waited(world: World) -> int:
    return sum(seconds > LONG_WAIT for seconds in world.waited.values())


def restart_all(world: World, strategy: Strategy, explained: bool = False) -> Aftermath:
    """Restarts every ReplicaSet, one after the other; a rollout that finds room takes a minute."""
    watch, unfinished = _Watch(world, strategy, explained), 0
    for controller in world.snapshot().controllers:
        if controller.kind not in REPLICATED:
            continue
        rollout, passes, over = Rollout(world, controller.uid), 0, False
        while not over and passes < LONGEST:
            over, passes = rollout.advance(), passes + 1
            watch.make_pass()
        unfinished += not over
    return watch.outcome(unfinished)


def churn(world: World, strategy: Strategy, seed: int, passes: int = CHURN_PASSES) -> Aftermath:
    """Passes before each of which 1 % of the pods leave, and copies of as many come. The same pods
    for all strategies."""
    draw, watch = random.Random(f"churn {seed}"), _Watch(world, strategy)
    classes = world.snapshot().classes
    for at in range(passes):
        pods = [pod for pod in world.pods.values() if not classes[pod.cls].is_daemonset]
        pods.sort(key=lambda pod: pod.key)
        count = ceil(len(pods) * CHURN)
        for pod in draw.sample(pods, count):
            world.end_pod(pod.key)
        for number, pod in enumerate(draw.choices(pods, k=count)):
            name = f"new-{at:02d}-{number:04d}"
            new = pending_pod(pod, f"uid-{name}", world.now)
            world.add_pod(msgspec.structs.replace(new, name=name))
        world.bind()
        watch.make_pass()
    return watch.outcome()
