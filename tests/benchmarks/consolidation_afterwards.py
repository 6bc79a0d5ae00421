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
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from chalicelib.model.node import HOSTNAME_LABEL
from chalicelib.model.snapshot import Snapshot
from tests.benchmarks.consolidation_changes import churn, owners_of, restart_all
from tests.benchmarks.consolidation_clusters import ZONE_LABEL, ClusterShape, generate
from tests.benchmarks.consolidation_ends import STRATEGIES, cluster_shapes, run
from tests.benchmarks.consolidation_trace import START_UP
from tests.benchmarks.consolidation_world import World
from tests.benchmarks.scheduler_referee import SchedulerScores
from tests.differential.karpenter import MICRO

SCORES = SchedulerScores.DEFAULT
FEWEST = 3
"""Replicas of an owner that counts as crowded or not."""
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
    replicas = Counter(owners_of(before))
    owners = [owner for owner, count in replicas.items() if count >= FEWEST]
    hosts, zones = (
        sum(later[owner] > earlier[owner] for owner in owners)
        for label in (HOSTNAME_LABEL, ZONE_LABEL)
        for earlier, later in [(_most_crowded(before, label), _most_crowded(after, label))]
    )
    return Crowding(len(owners), hosts, zones)


def _most_crowded(snapshot: Snapshot, label: str) -> Counter[str]:
    """Owner -> the most of its pods on nodes with the same value of a label."""
    domains = {node.name: node.labels[label] for node in snapshot.nodes}
    places = Counter(
        (owner, domains[pod.node])
        for pod, owner in zip(snapshot.pods, owners_of(snapshot), strict=True)
        if owner and pod.node
    )
    most: Counter[str] = Counter()
    for (owner, _), count in places.items():
        most[owner] = max(most[owner], count)
    return most


# -- the tables


def row(shape: ClusterShape, rules: str, explained: bool = False) -> str:
    """A line of the table of restarts."""
    beginning = generate(shape)
    end = run(shape, rules, SCORES)
    world, price = end.world, end.world.price
    crowded = crowding(beginning, world.snapshot())
    world.start_up = START_UP
    restarted = sum(bool(owner) for owner in owners_of(world.snapshot()))
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
