"""What consolidation leaves behind, as a table: how crowded hosts and zones are, and how much room
there is for rollouts.

    python -m tests.benchmarks.consolidation_afterwards --nodes 200 --seeds 1-3 \\
        --rules consolidation-10,unsteered-10

Every row is a run until nothing more happens. *Fuller host, fuller zone* are the owners of three
and more replicas whose most crowded host or zone holds more of them than at the beginning. Then
every ReplicaSet is restarted once, one after the other; a pass is made every minute, and a bought
node is ready after two. *Waited* are pods that were pending for more than 30 seconds. With
--purchases every purchase of that time is explained.

With --churn the table is another one: from the beginning, 1 % of the pods leave before each of 40
passes, and as many come.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil

import msgspec

from chalicelib.model.node import HOSTNAME_LABEL
from chalicelib.model.pod import Pod
from chalicelib.model.snapshot import Snapshot
from tests.benchmarks.consolidation_clusters import ZONE_LABEL, ClusterShape, generate
from tests.benchmarks.consolidation_ends import STRATEGIES, cluster_shapes, run
from tests.benchmarks.consolidation_purchases import explain
from tests.benchmarks.consolidation_trace import START_UP
from tests.benchmarks.consolidation_world import MINUTE, Outscaler, Strategy, World, pending_pod
from tests.benchmarks.scheduler_referee import SchedulerScores
from tests.differential.karpenter import MICRO

SCORES = SchedulerScores.DEFAULT
REPLICATED = ("ReplicaSet", "StatefulSet")
FEWEST = 3
"""Replicas of an owner that counts as crowded or not."""
SURGE = 0.25
NOTICED = 10.0
"""Seconds from the beginning of a minute, when pods come and go, to its pass."""
LONG_WAIT = 30.0
LONGEST = 30
"""Passes after which a rollout that has not ended is left as it is."""
CHURN_PASSES, CHURN = 40, 0.01
COLUMNS = (
    "Seed",
    "Rules",
    "Price an hour",
    "Owners",
    "Fuller host",
    "Fuller zone",
    "Restarted",
    "Bought",
    "Waited",
    "Pending pod-s",
    "Disrupted",
    "Unfinished",
    "Price after",
)
CHURN_COLUMNS = ("Seed", "Rules", "Mean price", "Bought", "Waited", "Pending pod-s", "Disrupted")


# -- how crowded hosts and zones are


class Crowding(msgspec.Struct, frozen=True):
    """owners: with enough replicas. hosts, zones: those of them whose most crowded one holds more
    than before."""

    owners: int
    hosts: int
    zones: int


def crowding(before: Snapshot, after: Snapshot) -> Crowding:
    """What has become of the owners of the first snapshot."""
    replicas = Counter(_owners(before))
    owners = [owner for owner, count in replicas.items() if count >= FEWEST]
    hosts, zones = (
        sum(later[owner] > earlier[owner] for owner in owners)
        for label in (HOSTNAME_LABEL, ZONE_LABEL)
        for earlier, later in [(_most_crowded(before, label), _most_crowded(after, label))]
    )
    return Crowding(len(owners), hosts, zones)


def _owners(snapshot: Snapshot) -> list[str]:
    """The owner's uid of each pod, "" if it is no ReplicaSet or StatefulSet."""
    of_class = [cls.owner for cls in snapshot.classes]
    uids = [owner.uid if owner and owner.kind in REPLICATED else "" for owner in of_class]
    return [uids[pod.cls] for pod in snapshot.pods]


def _most_crowded(snapshot: Snapshot, label: str) -> Counter[str]:
    """Owner -> the most of its pods on nodes with the same value of a label."""
    domains = {node.name: node.labels[label] for node in snapshot.nodes}
    places = Counter(
        (owner, domains[pod.node])
        for pod, owner in zip(snapshot.pods, _owners(snapshot), strict=True)
        if owner and pod.node
    )
    most: Counter[str] = Counter()
    for (owner, _), count in places.items():
        most[owner] = max(most[owner], count)
    return most


# -- restarts


class Rollout:
    """A rolling update with a maxSurge of 25 % and maxUnavailable 0. uid: of the owner. A pod
    counts as available when it has a node."""

    def __init__(self, world: World, uid: str) -> None:
        snapshot = world.snapshot()
        pods = [
            pod for pod, owner in zip(snapshot.pods, _owners(snapshot), strict=True) if owner == uid
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
    return sum(seconds > LONG_WAIT for seconds in world.waits.values())


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


# -- the tables


def row(shape: ClusterShape, rules: str, explained: bool = False) -> str:
    """A line of the table of restarts."""
    beginning = generate(shape)
    end = run(shape, rules, SCORES)
    world, price = end.world, end.world.price
    crowded = crowding(beginning, world.snapshot())
    world.start_up = START_UP
    restarted = sum(bool(owner) for owner in _owners(world.snapshot()))
    after = restart_all(world, end.strategy, explained)
    return _line(
        shape.seed,
        rules,
        f"{price / MICRO:,.2f}",
        crowded.owners,
        _share(crowded.hosts, crowded.owners),
        _share(crowded.zones, crowded.owners),
        f"{restarted:,}",
        after.bought,
        after.waited,
        f"{after.pending:,.0f}",
        f"{after.disrupted:,}",
        after.unfinished,
        f"{world.price / MICRO:,.2f}",
    )


def churn_row(shape: ClusterShape, rules: str) -> str:
    """A line of the table of churn."""
    world = World(generate(shape), start_up=START_UP, scores=SCORES, seed=shape.seed, live=True)
    after = churn(world, STRATEGIES[rules](), shape.seed)
    return _line(
        shape.seed,
        rules,
        f"{after.price:,.2f}",
        after.bought,
        after.waited,
        f"{after.pending:,.0f}",
        f"{after.disrupted:,}",
    )


def _share(count: int, of: int) -> str:
    return f"{count} ({count / max(1, of):.1%})"


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _head(columns: Iterable[str]) -> str:
    return f"{_line(*columns)}\n|{'---|' * len(tuple(columns))}"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.consolidation_afterwards",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--seeds", default="1", help="a number, or first-last")
    rules = "consolidation-10,unsteered-10"
    parser.add_argument("--rules", default=rules, help=",".join(STRATEGIES))
    parser.add_argument("--churn", action="store_true", help="the table of churn")
    parser.add_argument("--purchases", action="store_true", help="explain those of the restarts")
    given = parser.parse_args(arguments)
    print(_head(CHURN_COLUMNS if given.churn else COLUMNS), flush=True)
    for shape in cluster_shapes(given.nodes, given.seeds):
        for name in given.rules.split(","):
            line = churn_row(shape, name) if given.churn else row(shape, name, given.purchases)
            print(line, flush=True)


if __name__ == "__main__":
    main()
