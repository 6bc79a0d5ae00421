"""Replays hours of the openb trace on a spot market, on virtual time, under different rules.

    python -m tests.benchmarks.spot_trace --hours 72 --seeds 1

Tasks, machines, prices, passes and start-up times are those of consolidation_trace. Each kind of
machine can be bought on demand or as spot, at 35 % of the price. The market is drawn from a seed:
kinds are calm, middling or hot, and are sold out for some hours, in which more machines are taken
back. A machine is announced 120 s before it goes, by the taint of AWS Node Termination Handler. The
n-th machine of a kind lives as long under all rules that buy it at the same time. Pods of a node
that goes are pending until the scheduler binds them; a purchase of a kind that is sold out fails.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import NodeGroup, Pool
from chalicelib.model.memory import GroupMemory, InterruptionRisk, Memory
from chalicelib.model.node import Taint
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.prices import instance_type
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.spot import Spot
from tests.benchmarks.consolidation_trace import (
    BUSIEST,
    CONSOLIDATION,
    DAY,
    HOUR,
    POLICY,
    START_UP,
    Trace,
    TraceOutcome,
    replay,
    trace,
)
from tests.benchmarks.consolidation_world import MINUTE, Karpenter, Outscaler, Strategy, World
from tests.benchmarks.openb import PRICES, price_of
from tests.differential.karpenter import KarpenterRules

OF_ON_DEMAND = 0.35
"""Price of a spot machine as a share of its price on demand."""
NOTICE = Taint("aws-node-termination-handler/spot-itn", "NoSchedule")
NOTICE_TIME = 120.0
INTERRUPTED = DisruptionReason.INTERRUPTED.value
UNAVAILABLE = 180.0
"""Seconds for which Karpenter does not ask for an offering that was interrupted or sold out."""
TEMPERS = ((1 / 720, 1 / 96), (1 / 72, 1 / 48), (1 / 12, 1 / 12))
"""Calm, middling and hot kinds: interruptions per node hour while machines are in
stock, and sell-outs per hour."""
COMPOSITION = (0, 0, 1, 2)
"""Of four kinds two are calm."""
SOLD_OUT_HOURS = 2.0
"""Of a sell-out, mean."""
SHORTAGE = 4.0
"""How many times more often machines are taken back while their kind is sold out."""


class KindMarket(msgspec.Struct, frozen=True):
    """The market of one kind. hazards: interruptions per node hour, for each hour from the
    beginning, the last one for ever; sold_out: the hours in which no machine is sold.
    temper: index in TEMPERS."""

    hazards: tuple[float, ...]
    sold_out: frozenset[int] = frozenset()
    temper: int = 0


class SpotMarket(msgspec.Struct, frozen=True):
    """The markets of all kinds. seed: of the lives of machines."""

    kinds: Mapping[str, KindMarket]
    seed: int = 0

    def is_sold_out(self, kind: str, at: float) -> bool:
        """Whether no machine of a kind is sold. at: seconds from the beginning."""
        return int(at // HOUR) in self.kinds[kind].sold_out

    def notice_at(self, kind: str, number: int, since: float) -> float:
        """When the number-th machine of a kind is announced to go that runs since an instant;
        seconds from the beginning."""
        left = random.Random(f"{self.seed}/{kind}/{number}").expovariate(1.0)
        hazards = self.kinds[kind].hazards
        for hour in count(int(since // HOUR)):
            hazard = hazards[min(hour, len(hazards) - 1)]
            begins, ends = max(since, hour * HOUR), (hour + 1) * HOUR
            if hour >= len(hazards):
                return begins + left / hazard * HOUR if hazard else float("inf")
            if hazard * (ends - begins) / HOUR >= left:
                return begins + left / hazard * HOUR
            left -= hazard * (ends - begins) / HOUR
        raise AssertionError


def drawn_market(kinds: Iterable[str], hours: int, seed: int) -> SpotMarket:
    """A market of so many hours."""
    draw = random.Random(seed)
    names = sorted(kinds)
    draw.shuffle(names)
    return SpotMarket(
        {
            name: _drawn_kind(COMPOSITION[at % len(COMPOSITION)], hours, draw)
            for at, name in enumerate(names)
        },
        seed,
    )


def _drawn_kind(temper: int, hours: int, draw: random.Random) -> KindMarket:
    hazard, sell_outs = TEMPERS[temper]
    hazards, sold_out, short = [], set(), False
    for hour in range(hours):
        short = draw.random() >= 1 / SOLD_OUT_HOURS if short else draw.random() < sell_outs
        hazards.append(hazard * (SHORTAGE if short else 1.0))
        if short:
            sold_out.add(hour)
    return KindMarket(tuple(hazards), frozenset(sold_out), temper)


class Interruption(msgspec.Struct, frozen=True):
    """A machine that was announced to go. pods: that it had then, without those of DaemonSets."""

    at: float
    node: str
    group: str
    pods: int


class InterruptionWait(msgspec.Struct, frozen=True):
    """A pod that an interruption left without a node. until: bound, or ended, or not known yet."""

    pod: str
    since: float
    until: float

    @property
    def seconds(self) -> float:
        return self.until - self.since


class SpotWorld(World):
    """A cluster whose spot nodes may be taken back. interruptions, waits, refusals: what happened;
    notices: node -> when it goes; unavailable: group -> until when planners do not see that it may
    grow. node_hours: of ready nodes, since `counts_from`; spot_hours: of those that are spot."""

    def __init__(
        self,
        snapshot: Snapshot,
        market: SpotMarket,
        *,
        prices: NodePrices,
        counts_from: float = 0.0,
    ) -> None:
        super().__init__(snapshot, prices=prices, start_up=START_UP, live=True)
        self.interruptions: list[Interruption] = []
        self.notices: dict[str, float] = {}
        self.unavailable: dict[str, float] = {}
        self.node_hours = self.spot_hours = 0.0
        self._market, self._began = market, snapshot.taken_at
        self._counts_from = snapshot.taken_at + counts_from
        self._spot = {group.id for group in snapshot.groups if group.spot}
        self._kind_of = {group.id: _kind(group) for group in snapshot.groups}
        self._numbers: Counter[str] = Counter()
        self._notice_at: dict[str, float] = {}  # spot node -> when it is announced to go
        self._ended: list[InterruptionWait] = []
        self._waiting: dict[str, float] = {}  # pod -> since when

    # -- what planners see

    def snapshot(self) -> Snapshot:
        """The cluster now; a group that is unavailable to the planner has no room."""
        snapshot = super().snapshot()
        closed = {group for group, until in self.unavailable.items() if until > self.now}
        if not closed:
            return snapshot
        groups = [
            msgspec.structs.replace(group, max=group.target) if group.id in closed else group
            for group in snapshot.groups
        ]
        return msgspec.structs.replace(snapshot, groups=tuple(groups))

    def is_sold_out(self, group: str) -> bool:
        """Whether a spot group's kind is sold out now."""
        return group in self._spot and self._market.is_sold_out(
            self._kind_of[group], self.now - self._began
        )

    @property
    def waits(self) -> list[InterruptionWait]:
        """Of all pods that interruptions left without a node."""
        return [
            *self._ended,
            *(InterruptionWait(pod, since, self.now) for pod, since in self._waiting.items()),
        ]

    # -- what happens

    def grow(self, group: str, count: int) -> list[str]:
        """Buys nodes; none of a kind that is sold out."""
        return [] if self.is_sold_out(group) else super().grow(group, count)

    def join_started(self) -> list[str]:
        """Nodes join; the lives of spot nodes begin."""
        ready = super().join_started()
        for name in ready:
            group = self.group_of(name)
            if group in self._spot:
                kind = self._kind_of[group]
                self._numbers[kind] += 1
                at = self._market.notice_at(kind, self._numbers[kind], self.now - self._began)
                self._notice_at[name] = self._began + at
        return ready

    def remove(self, names: Sequence[str], reason: str = "") -> None:
        """Nodes go; the pods of those with a notice wait because of it."""
        before = len(self.moves)
        super().remove(names, reason)
        for move in self.moves[before:]:
            if move.node in self.notices:
                self._waiting[move.pod] = self.now
        for name in names:
            self.notices.pop(name, None)
            self._notice_at.pop(name, None)

    def bind(self) -> None:
        """The referee binds what fits."""
        super().bind()
        for key in [key for key in self._waiting if self._pods[key].node]:
            self._end_wait(key)

    def end_pod(self, key: str) -> None:
        """A pod ends, and its wait too."""
        super().end_pod(key)
        if key in self._waiting:
            self._end_wait(key)

    def _end_wait(self, key: str) -> None:
        self._ended.append(InterruptionWait(key, self._waiting.pop(key), self.now))

    def advance(self, seconds: float) -> None:
        """Time passes; machines are announced to go, and go."""
        end = self.now + seconds
        while True:
            due = [
                (at, name)
                for changes in (self.notices, self._notice_at)
                for name, at in changes.items()
            ]
            at, name = min(due, default=(end + 1, ""))
            if at > end:
                break
            self._pass_time(max(0.0, at - self.now))
            if name in self.notices:
                self.remove([name], INTERRUPTED)
            else:
                self._announce(name)
        self._pass_time(end - self.now)

    def _announce(self, name: str) -> None:
        self.notices[name] = self._notice_at.pop(name) + NOTICE_TIME
        self.taint([name], NOTICE)
        classes = self._start.classes
        pods = sum(
            pod.node == name and not classes[pod.cls].is_daemonset for pod in self._pods.values()
        )
        self.interruptions.append(Interruption(self.now, name, self.group_of(name), pods))

    def _pass_time(self, seconds: float) -> None:
        if self.now >= self._counts_from:
            self.node_hours += len(self._nodes) * seconds / HOUR
            self.spot_hours += (
                sum(self._group_of[name] in self._spot for name in self._nodes) * seconds / HOUR
            )
        super().advance(seconds)


# -- the cluster


def _kind(group: NodeGroup) -> str:
    assert group.template is not None
    return instance_type(group.template)


def with_spot_groups(snapshot: Snapshot) -> Snapshot:
    """The cluster with a spot group beside every group, in the same pool."""
    groups = []
    for group in snapshot.groups:
        assert group.template is not None
        pool = Pool(f"pool-of-{group.id}")
        labels = {**group.template.labels, "karpenter.sh/capacity-type": "spot"}
        groups += [
            msgspec.structs.replace(group, pool=pool),
            msgspec.structs.replace(
                group,
                id=f"{group.id}-spot",
                spot=True,
                pool=pool,
                template=msgspec.structs.replace(group.template, labels=labels),
            ),
        ]
    return msgspec.structs.replace(snapshot, groups=tuple(groups))


def spot_prices(snapshot: Snapshot, share: float = OF_ON_DEMAND) -> NodePrices:
    """The prices of openb with spot prices of all kinds."""
    spot = {
        _kind(group): share * price_of(group.template)
        for group in snapshot.groups
        if group.template is not None
    }
    return msgspec.structs.replace(PRICES, spot=spot)


# -- strategies


def plan_without_learning(
    snapshot: Snapshot, policy: Policy, memory: Memory, now: float, seed: int
) -> tuple[Plan, Memory]:
    """A plan by a planner that remembers the notices that hold, and no interruption."""
    groups = {name: _forgetful(group) for name, group in memory.groups.items()}
    return plan_cluster(snapshot, policy, msgspec.structs.replace(memory, groups=groups), now, seed)


def _forgetful(group: GroupMemory) -> GroupMemory:
    if group.risk is None:
        return group
    risk = InterruptionRisk(
        counted_at=group.risk.counted_at, nodes=group.risk.nodes, notices=group.risk.notices
    )
    return msgspec.structs.replace(group, risk=risk)


class SpotKarpenter(Karpenter):
    """Karpenter's rules with its controller of interruptions: a node with a notice is deleted at
    once, and its offering is not asked for in the next three minutes; nor is one that was sold out.
    What is refused is replaced by the next cheapest offering within the same pass. Nothing is
    learnt.

    Left out: the choice of EC2 Fleet among the offerings by its own knowledge of what is scarce,
    which needs a vendor that has it."""

    def __init__(self, policy: Policy, rules: KarpenterRules) -> None:
        # The memory's backoff ends with `unavailable`, which alone decides.
        backoff = {
            "initial_node_group_backoff_duration": 1.0,
            "max_node_group_backoff_duration": 1.0,
        }
        super().__init__(
            msgspec.structs.replace(
                policy, options=msgspec.structs.replace(policy.options, **backoff)
            ),
            rules,
        )

    def act(self, world: World) -> float:
        """Interruptions first; then purchases until none is refused; then the
        rules for nodes that go."""
        assert isinstance(world, SpotWorld)
        noticed = sorted(world.notices)
        world.unavailable.update(
            {world.group_of(node): world.now + UNAVAILABLE for node in noticed}
        )
        world.remove(noticed, INTERRUPTED)
        world.bind()
        seconds = 0.0
        while world.pending:
            seconds += self._provisioner.act(world)
            world.bind()
            if not self._provisioner.refused:
                break
            world.unavailable.update(
                dict.fromkeys(self._provisioner.refused, world.now + UNAVAILABLE)
            )
        return seconds + super().act(world)

    def refused(self, world: World, group: str) -> None:
        """A replacement was sold out."""
        assert isinstance(world, SpotWorld)
        world.unavailable[group] = world.now + UNAVAILABLE


SPOT = Spot()
CONSOLIDATING = msgspec.structs.replace(POLICY, consolidation=CONSOLIDATION)
WITHOUT_AVOIDING = msgspec.structs.replace(SPOT, avoid_after_interruption=0.0)
Strategies = Mapping[str, Callable[[NodePrices], Strategy]]


def _ours(spot: Spot | None, prices: NodePrices) -> Policy:
    return msgspec.structs.replace(CONSOLIDATING, spot=spot, prices=prices)


ON_DEMAND = "on demand only"
STRATEGIES: Strategies = {
    ON_DEMAND: lambda prices: Outscaler(_ours(None, prices)),
    "spot": lambda prices: Outscaler(_ours(SPOT, prices)),
    "spot without learning": lambda prices: Outscaler(
        _ours(WITHOUT_AVOIDING, prices), plan_without_learning
    ),
    "karpenter": lambda prices: SpotKarpenter(_ours(None, prices), KarpenterRules()),
    "karpenter-balanced": lambda prices: SpotKarpenter(
        _ours(None, prices), KarpenterRules(balanced=2.0)
    ),
}


class SpotOutcome(msgspec.Struct, frozen=True):
    """Figures of the measured time. spot: share of the hours of nodes; interruptions, and those by
    temper of the kind; spot_days: of spot nodes; waited: pod-minutes without a node because of
    interruptions; longest: seconds of one such wait; struck: pods that waited; bought: spot nodes
    by temper."""

    of_trace: TraceOutcome
    spot: float
    spot_days: float
    interruptions: int
    by_temper: tuple[int, ...]
    struck: int
    waited: float
    longest: float
    bought: tuple[int, ...]


def spot_replay(
    task_trace: Trace,
    market: SpotMarket,
    strategy: Callable[[NodePrices], Strategy],
    *,
    spot: bool = True,
) -> tuple[SpotOutcome, SpotWorld]:
    """The replay of a trace on a market. spot: whether there are spot groups."""
    prices = spot_prices(task_trace.cluster)
    cluster = with_spot_groups(task_trace.cluster) if spot else task_trace.cluster
    task_trace = msgspec.structs.replace(task_trace, cluster=cluster)
    world = SpotWorld(cluster, market, prices=prices, counts_from=task_trace.unmeasured)
    of_trace = replay(task_trace, strategy(prices), world)
    began = cluster.taken_at + task_trace.unmeasured
    tempers = {
        group.id: market.kinds[_kind(group)].temper for group in cluster.groups if group.spot
    }
    interruptions = [
        interruption for interruption in world.interruptions if interruption.at >= began
    ]
    waits = [wait for wait in world.waits if wait.since >= began]
    taken = Counter(tempers[interruption.group] for interruption in interruptions)
    bought = Counter(
        tempers[node.group] for node in world.bought if node.at >= began and node.group in tempers
    )
    return SpotOutcome(
        of_trace,
        spot=world.spot_hours / world.node_hours,
        spot_days=world.spot_hours * HOUR / DAY,
        interruptions=len(interruptions),
        by_temper=tuple(taken[temper] for temper in range(len(TEMPERS))),
        struck=len(waits),
        waited=sum(wait.seconds for wait in waits) / MINUTE,
        longest=max((wait.seconds for wait in waits), default=0.0),
        bought=tuple(bought[temper] for temper in range(len(TEMPERS))),
    ), world


def spot_table(outcomes: Mapping[str, SpotOutcome]) -> str:
    """A table of the outcomes of one seed."""
    columns = ("Rules", "Price an hour", "Of on demand only", "Spot nodes", "Interruptions",
               "Per spot node day",
               "Of calm, middling, hot kinds", "Pods struck", "Pod-minutes pending",
               "By interruptions",
               "Longest wait, s", "Bought an hour", "Spot nodes bought: calm, middling, hot",
               "Disrupted per pod-day",
               "CPU s")  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    on_demand = outcomes[ON_DEMAND].of_trace.price if ON_DEMAND in outcomes else float("nan")
    for name, outcome in outcomes.items():
        of_trace = outcome.of_trace
        figures = (
            f"{of_trace.price:,.1f}",
            f"{of_trace.price / on_demand:.3f}",
            f"{outcome.spot:.1%}",
            outcome.interruptions,
            f"{outcome.interruptions / outcome.spot_days:.2f}" if outcome.spot_days else "",
            ", ".join(map(str, outcome.by_temper)),
            f"{outcome.struck:,}",
            f"{of_trace.pending:,.0f}",
            f"{outcome.waited:,.0f}",
            f"{outcome.longest:.0f}",
            f"{of_trace.bought:.2f}",
            ", ".join(map(str, outcome.bought)),
            f"{of_trace.disrupted:.2f}",
            f"{of_trace.seconds:.0f}",
        )
        lines.append(f"| {name} | {' | '.join(map(str, figures))} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each seed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.spot_trace",
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
    parser.add_argument("--seeds", default="1", help="of markets, with commas")
    parser.add_argument("--rules", default=",".join(STRATEGIES), help=f"of {', '.join(STRATEGIES)}")
    args = parser.parse_args(arguments)
    task_trace = trace(args.hours, start=args.start, overlay=args.overlay)
    kinds = [_kind(group) for group in task_trace.cluster.groups]
    known: dict[str, SpotOutcome] = {}  # without spot groups the market does not matter
    for seed in map(int, args.seeds.split(",")):
        market = drawn_market(kinds, int(task_trace.seconds / HOUR) + 1, seed)
        outcomes: dict[str, SpotOutcome] = {}
        for name in args.rules.split(","):
            started = time.time()
            if name not in known:
                outcomes[name], _ = spot_replay(
                    task_trace, market, STRATEGIES[name], spot=name != ON_DEMAND
                )
            else:
                outcomes[name] = known[name]
            known |= {name: outcomes[name]} if name == ON_DEMAND else {}
            print(f"{seed}, {name}: {time.time() - started:.0f} s, {outcomes[name]}", flush=True)
        print(
            (
                f"seed {seed}, {len(task_trace.pods)} tasks in {args.hours:g} hours\n"
                f"{spot_table(outcomes)}"
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
