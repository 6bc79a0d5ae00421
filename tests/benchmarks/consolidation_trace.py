"""Replays hours of the openb trace by arrival and end of its tasks, on virtual
time, under different rules.

    python -m tests.benchmarks.consolidation_trace --hours 72 --rules removals,consolidation

Tasks of one shape are the replicas of one ReplicaSet; machines are the 27 kinds of the trace, at
the prices of the packing benchmark (1 a core, 0.125 a GiB, 10 a GPU). A pass is made every minute,
a new node is ready after two. The first hours are not measured, as the tasks that run at the
beginning arrive all at once. Every planner buys for pending pods in the same way (least-cost).
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from chalicelib.model.pod import Pod
from chalicelib.model.snapshot import Snapshot
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode, Steering
from tests.benchmarks.consolidation_world import (
    CONSOLIDATED,
    MINUTE,
    Karpenter,
    Outscaler,
    Strategy,
    World,
    pending_pod,
)
from tests.benchmarks.openb import INPUTS, NOW, PRICES, convert, load
from tests.benchmarks.scheduler_referee import CHOICES, SchedulerScores
from tests.differential.karpenter import MICRO, KarpenterRules
from tests.reference_data import SHARED

HOUR, DAY = 3600.0, 86_400.0
BUSIEST = 3504.0
"""Hours from the beginning of the trace after which the most tasks arrive within 72."""
INPUT = "default-whole-open"
START_UP = 120.0
SHORT_LIFE = 1800.0
"""Seconds; a bought node that is gone before is counted as short-lived (the default of
minNodeAge)."""


class TracedPod(msgspec.Struct, frozen=True):
    """A task with its instants, seconds from the beginning of the replay."""

    pod: Pod
    arrives: float
    ends: float


class Trace(msgspec.Struct, frozen=True):
    """The tasks in the order of their arrival, and the empty cluster."""

    cluster: Snapshot
    pods: tuple[TracedPod, ...]
    seconds: float
    unmeasured: float


class TraceOutcome(msgspec.Struct, frozen=True):
    """Figures of the measured time. price: mean, an hour; disrupted: pods evicted per pod and day;
    bought: nodes per hour; short: bought nodes that were removed within SHORT_LIFE;
    consolidated_young: those of them with pods that moved, in the unmeasured hours too. pending:
    minutes of pending pods; pods, nodes: means. moved: the most moves that consolidation made of
    one owner within a day, for each of its replicas. seconds: CPU."""

    price: float
    disrupted: float
    bought: float
    short: int
    consolidated_young: int
    moved: float
    pending: float
    pods: float
    nodes: float
    seconds: float


def trace(
    hours: float, *, start: float = BUSIEST, overlay: int = 1, unmeasured: float = 2.0
) -> Trace:
    """Hours of the trace from `start` hours on. overlay: as many spans of this length, one
    after the other before `start`, are laid over each other, for a larger cluster.
    unmeasured: hours before them."""
    with TemporaryDirectory() as folder:
        snapshot = load(convert(INPUT, Path(folder)))
    by_name = {pod.name: pod for pod in snapshot.pods}
    length = (hours + unmeasured) * HOUR
    pods = []
    with (SHARED / "data" / "openb" / INPUTS[INPUT][0]).open(newline="") as file:
        for row in csv.DictReader(file):
            begins, ends = float(row["creation_time"]), float(row["deletion_time"] or "inf")
            for layer in range(overlay):
                origin = (start - unmeasured) * HOUR - layer * hours * HOUR
                if begins < origin + length and ends > max(origin, begins):
                    pod = by_name[row["name"]]
                    pod = msgspec.structs.replace(
                        pod, name=f"{pod.name}-{layer}", uid=f"{pod.uid}-{layer}"
                    )
                    pods.append(TracedPod(pod, max(0.0, begins - origin), ends - origin))
    pods.sort(key=lambda traced: (traced.arrives, traced.pod.key))
    empty = msgspec.structs.replace(snapshot, pods=(), nodes=())
    return Trace(empty, tuple(pods), length, unmeasured * HOUR)


def quiet_world(
    task_trace: Trace, scores: SchedulerScores = SchedulerScores.LEAST_ALLOCATED
) -> World:
    """The world at the beginning of a trace, in which nothing happens by itself."""
    cluster = task_trace.cluster
    return World(cluster, prices=PRICES, start_up=START_UP, scores=scores, live=True)


def replay(task_trace: Trace, strategy: Strategy, world: World | None = None) -> TraceOutcome:
    """The replay of a trace. world: at its beginning, one in which nothing happens
    by itself if it is None."""
    world = world or quiet_world(task_trace)
    arrivals = iter([*task_trace.pods, None])
    ends: list[tuple[float, str]] = []
    upcoming = next(arrivals)
    pod_seconds = node_seconds = money = seconds = waited = 0.0
    moves = bought = 0
    for minute in range(int(task_trace.seconds / MINUTE) + 1):
        at = minute * MINUTE
        measured = at >= task_trace.unmeasured
        if at == task_trace.unmeasured:
            moves, bought, waited = len(world.moves), len(world.bought), world.pending_minutes
        while upcoming is not None and upcoming.arrives <= at:
            if upcoming.ends > at:
                pod = pending_pod(upcoming.pod, upcoming.pod.uid, NOW + upcoming.arrives)
                world.add_pod(pod)
                ends.append((upcoming.ends, pod.key))
            upcoming = next(arrivals)
        for _, key in (entry for entry in ends if entry[0] <= at):
            world.end_pod(key)
        ends = [entry for entry in ends if entry[0] > at]
        world.join_started()
        world.bind()
        seconds += strategy.act(world)
        world.bind()
        if measured:
            pod_seconds += MINUTE * len(ends)
            node_seconds += MINUTE * world.nodes
            money += world.price / MICRO * MINUTE
        world.advance(MINUTE)
    span = task_trace.seconds - task_trace.unmeasured + MINUTE
    began = NOW + task_trace.unmeasured
    lives = [
        (node, world.removed[node.name] - node.at)
        for node in world.bought
        if node.name in world.removed
    ]
    return TraceOutcome(
        price=money / span,
        disrupted=(len(world.moves) - moves) / (pod_seconds / DAY),
        bought=(len(world.bought) - bought) / (span / HOUR),
        short=sum(node.at >= began and life < SHORT_LIFE for node, life in lives),
        consolidated_young=sum(
            node.name in world.consolidated and life < SHORT_LIFE for node, life in lives
        ),
        moved=most_moved(world),
        pending=world.pending_minutes - waited,
        pods=pod_seconds / span,
        nodes=node_seconds / span,
        seconds=seconds,
    )


def most_moved(world: World) -> float:
    """The most moves of one owner by consolidation within a day, for each of
    its replicas at that time."""
    by_owner: dict[str, list[float]] = {}
    most = 0.0
    for move in world.moves:
        if move.reason == CONSOLIDATED:
            own = by_owner.setdefault(move.owner, [])
            own.append(move.at)
            recent = sum(at > move.at - DAY for at in own)
            most = max(most, recent / move.replicas)
    return most


OPTIONS = Options(expander=("least-cost", "price"))
POLICY = Policy("openb", options=OPTIONS, prices=PRICES)
CONSOLIDATION = Consolidation(ConsolidationMode.FULL)
UNSTEERED = Consolidation(ConsolidationMode.FULL, steering=Steering.OFF, patience=False)
STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "removals": lambda: Outscaler(POLICY),
    "consolidation": lambda: Outscaler(
        msgspec.structs.replace(POLICY, consolidation=CONSOLIDATION)
    ),
    "unsteered": lambda: Outscaler(msgspec.structs.replace(POLICY, consolidation=UNSTEERED)),
    "karpenter": lambda: Karpenter(POLICY, KarpenterRules()),
    "karpenter-5m": lambda: Karpenter(POLICY, KarpenterRules(consolidate_after=300.0)),
    "karpenter-balanced": lambda: Karpenter(POLICY, KarpenterRules(balanced=2.0)),
}


def trace_table(outcomes: dict[str, TraceOutcome]) -> str:
    """A table of the outcomes."""
    columns = ("Rules", "Price an hour", "Disrupted per pod-day", "Bought an hour", "Gone early",
               "Needed ones",
               "Moves per replica and day, most", "Pending pod-minutes", "Pods", "Nodes",
               "CPU s")  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for name, outcome in outcomes.items():
        figures = (
            f"{outcome.price:,.1f}",
            f"{outcome.disrupted:.2f}",
            f"{outcome.bought:.2f}",
            outcome.short,
            outcome.consolidated_young,
            f"{outcome.moved:.1f}",
            f"{outcome.pending:,.0f}",
            f"{outcome.pods:.1f}",
            f"{outcome.nodes:.1f}",
            f"{outcome.seconds:.0f}",
        )
        lines.append(f"| {name} | {' | '.join(map(str, figures))} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.consolidation_trace",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--hours", type=float, default=72.0)
    parser.add_argument(
        "--start", type=float, default=BUSIEST, help="hours from the beginning of the trace"
    )
    parser.add_argument(
        "--overlay", type=int, default=1, help="spans that are laid over each other (1)"
    )
    parser.add_argument(
        "--rules",
        default="removals,karpenter,karpenter-5m,karpenter-balanced",
        help=f"of {', '.join(STRATEGIES)}",
    )
    least = SchedulerScores.LEAST_ALLOCATED
    parser.add_argument(
        "--scores", default=least.value, choices=CHOICES, help="how pods get their nodes"
    )
    args = parser.parse_args(arguments)
    task_trace = trace(args.hours, start=args.start, overlay=args.overlay)
    outcomes: dict[str, TraceOutcome] = {}
    for name in args.rules.split(","):
        started = time.time()
        world = quiet_world(task_trace, SchedulerScores(args.scores))
        outcomes[name] = replay(task_trace, STRATEGIES[name](), world)
        print(f"{name}: {time.time() - started:.0f} s, {outcomes[name]}", flush=True)
    print(f"{len(task_trace.pods)} tasks in {args.hours:g} hours\n{trace_table(outcomes)}")


if __name__ == "__main__":
    main()
