"""The ends of consolidation under different rules and schedulers, as a table.

    python -m tests.benchmarks.consolidation_ends --nodes 1000 --seeds 1-5 --scores default \\
        --rules consolidation-10,karpenter

scores: how the referee chooses nodes: `default` (kube-scheduler's default profile with its sample
of nodes; ties by an order that is drawn by the seed), `least-allocated` or `first`. Every row is
one run until nothing more happens. "Twice" and "more" count the pods that were moved so often.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Steering
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.node_limit import NodeLimit
from tests.benchmarks.consolidation_bound import lower_bound
from tests.benchmarks.consolidation_clusters import ClusterShape, generate
from tests.benchmarks.consolidation_world import (
    WITHOUT_TIMERS,
    History,
    Karpenter,
    Outscaler,
    Strategy,
    World,
    consolidating,
    run_to_the_end,
)
from tests.benchmarks.scheduler_referee import CHOICES, SchedulerScores
from tests.differential.karpenter import MICRO, KarpenterRules

POLICY = Policy("bench", options=WITHOUT_TIMERS)
ONLY_OURS = msgspec.structs.replace(
    POLICY,
    options=msgspec.structs.replace(WITHOUT_TIMERS, scale_down_unneeded_time=1e9),
    consolidation=consolidating(),
    disruption_budgets=(DisruptionBudget("all", NodeLimit(share=1.0)),),
)
"""Consolidation alone: no node is removed for being unneeded."""
SPARING = msgspec.structs.replace(ONLY_OURS, disruption_budgets=())
"""The same with the default budget of 10 %."""
UNSTEERED = msgspec.structs.replace(
    SPARING,
    consolidation=msgspec.structs.replace(consolidating(), steering=Steering.OFF, patience=False),
)
STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "consolidation-10": lambda: Outscaler(SPARING),
    "consolidation-100": lambda: Outscaler(ONLY_OURS),
    "unsteered-10": lambda: Outscaler(UNSTEERED),
    "karpenter": lambda: Karpenter(POLICY, KarpenterRules(), commands=1),
    "karpenter-balanced": lambda: Karpenter(POLICY, KarpenterRules(balanced=2.0), commands=1),
    "removals": lambda: Outscaler(POLICY),
}
"""The number is the budget of disruptions, per cent."""
QUIET_PASSES = 12
"""Passes without a change after which a run of consolidation has ended, more than lie between two
searches for a horizon; one for the others."""
COLUMNS = (
    "Seed",
    "Rules",
    "Price an hour",
    "x bound",
    "Disrupted",
    "Twice",
    "More",
    "Pending pod-s",
    "Bought",
    "Passes",
    "CPU s",
    "Slowest",
    "Run s",
)


class End(msgspec.Struct, frozen=True):
    """A run, the world after it and the strategy with what it remembers. seconds: CPU of
    everything, the referee's too."""

    history: History
    world: World
    strategy: Strategy
    seconds: float

    def moved(self) -> Counter[int]:
        """How many pods were moved once, twice and more often."""
        return Counter(Counter(move.pod for move in self.world.moves).values())


def run(shape: ClusterShape, rules: str, scores: SchedulerScores) -> End:
    """Run one strategy on one cluster."""
    started = time.process_time()
    world = World(generate(shape), scores=scores, seed=shape.seed)
    quiet = QUIET_PASSES if not rules.startswith("karpenter") else 1
    strategy = STRATEGIES[rules]()
    history = run_to_the_end(world, strategy, quiet=quiet)
    return End(history, world, strategy, time.process_time() - started)


def row(seed: int, rules: str, end: End, bound: float) -> str:
    """A line of the table. bound: the lowest price."""
    history, last, moved = end.history, end.history.last, end.moved()
    more = sum(pods for times, pods in moved.items() if times > 2)
    passes = f"{len(history.passes) - 1}{'' if history.ended else ', no end'}"
    price = last.price / MICRO
    cells = (
        seed,
        rules,
        f"{price:,.2f}",
        f"{price / bound:.3f}",
        f"{last.disrupted:,}",
        f"{moved[2]:,}",
        f"{more:,}",
        f"{end.world.pending_minutes * 60:,.0f}",
        f"{last.bought:,}",
        passes,
        f"{history.seconds:.1f}",
        f"{history.slowest:.2f}",
        f"{end.seconds:.1f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def table(shapes: Iterable[ClusterShape], rules: Sequence[str], scores: SchedulerScores) -> None:
    """Print the table, line by line as the runs end."""
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    for shape in shapes:
        bound = lower_bound(generate(shape), POLICY).price
        for name in rules:
            print(row(shape.seed, name, run(shape, name, scores), bound), flush=True)


def cluster_shapes(nodes: int, seeds: str) -> list[ClusterShape]:
    """The clusters of a command. seeds: a number, or first-last."""
    first, _, last = seeds.partition("-")
    return [
        ClusterShape(nodes, pools=max(1, nodes // 1000), seed=seed)
        for seed in range(int(first), int(last or first) + 1)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.consolidation_ends",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seeds", default="1", help="a number, or first-last")
    parser.add_argument("--rules", default="consolidation-10,karpenter", help=",".join(STRATEGIES))
    parser.add_argument("--scores", default=SchedulerScores.DEFAULT.value, choices=CHOICES)
    given = parser.parse_args(arguments)
    shapes = cluster_shapes(given.nodes, given.seeds)
    table(shapes, given.rules.split(","), SchedulerScores(given.scores))


if __name__ == "__main__":
    main()
