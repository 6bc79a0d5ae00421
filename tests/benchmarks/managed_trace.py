"""Replays hours of the openb trace over a large list of machine types, of which managed pools,
a person and Karpenter's rules buy in different ways.

    python -m tests.benchmarks.managed_trace --hours 72 --rules managed,by-hand,karpenter

The list is made up: the 600 types of machine_types.py in one zone, on demand. Its prices are
scaled so that a core costs 1 and a GiB 0.133 before the family's own factor, as in the other
replays of openb. Six kinds of the trace with GPUs come on top, at 1 a core, 0.125 a GiB and 10 a
GPU; every task has a place. With --without-gpus tasks ask for no GPU and there are no such kinds:
most tasks of the trace ask for one, and hardly any of the 600 types matters to them.

managed            one declaration with all types, and its usual settings
by-hand            one family of middling price in three sizes, and the kinds with GPUs
by-hand-cheapest   the same of the cheapest family with 4 GiB a core
karpenter          pods by cores and memory into nodes and claims, each of the cheapest type

A pass is made every minute, a new node is ready after two. Nobody consolidates: a node goes when it
has been empty for ten minutes. The first two hours are not measured.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from statistics import median_low

import msgspec
import numpy as np

from chalicelib.model.catalogue import Catalogue, CatalogueEntry
from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.operation import OperationKind
from chalicelib.model.pod import Pod
from chalicelib.model.resources import CPU, MEMORY, PODS, Amounts
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.tables import Bools, Floats, Ints
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.managed_pools import (
    ManagedPool,
    PoolLimits,
    Range,
    Requirements,
)
from chalicelib.providers.kit.catalogue_shelf import CatalogueShelf
from chalicelib.providers.kit.managed_pools import CopySource, ManagedPools, candidate_group
from chalicelib.providers.kit.node_template import INSTANCE_TYPE, GroupTemplate, template_node
from tests.benchmarks.consolidation_trace import (
    BUSIEST,
    START_UP,
    Trace,
    TraceOutcome,
    replay,
    trace,
)
from tests.benchmarks.consolidation_world import Outscaler, Strategy, World
from tests.benchmarks.machine_types import PODS_PER_NODE, machine_offers
from tests.benchmarks.openb import NOW, price_of
from tests.providers.emulated import KeptCache

GIB = 2**30
GPU = "nvidia.com/gpu"
SEED = 1
"""Of the list of machine types."""
SCALE = 1 / 0.03
"""Makes the price of a core 1."""
GPU_KINDS = (
    "v100m16-1g-8c-32gi",
    "p100-2g-64c-256gi",
    "v100m32-4g-48c-368gi",
    "t4-4g-96c-384gi",
    "g2-8g-96c-384gi",
    "g3-8g-128c-768gi",
)
"""Kinds of the trace that have room for all its tasks with GPUs."""
HAND_SIZES = (16, 32, 96)
"""Cores of the groups that a person has made; the largest has room for every task."""
HAND_RATIO = 4
"""GiB a core of these groups."""
MOST_NODES = 5000
EMPTY_FOR = 600.0
"""Seconds after which an empty node goes."""
CURRENCY = "EUR"
POOL = ManagedPool(
    "general",
    "bench",
    requirements=Requirements(gpus=Range(0)),
    limits=PoolLimits(nodes=MOST_NODES),
)
BY_HAND = "by-hand"
OPTIONS = Options(expander=("least-cost", "price"), scale_down_enabled=False)
POLICY = Policy("openb", options=OPTIONS)


class ManagedOutcome(msgspec.Struct, frozen=True):
    """Figures of the measured time. bought: nodes. most_kinds, kinds: machine types that have
    nodes, at most at once and on average. most_open: groups that exist at once. left: pods
    without a node at the end. slowest: CPU seconds of the slowest pass."""

    of_trace: TraceOutcome
    bought: int
    most_kinds: int
    kinds: float
    most_open: int
    left: int
    slowest: float


Offered = Callable[[Sequence[CatalogueEntry]], tuple[NodeGroup, ...]]


# -- the machines


def catalogue_entries(cluster: Snapshot, *, has_gpus: bool) -> tuple[CatalogueEntry, ...]:
    """All machine types. cluster: of the trace, with its own kinds. has_gpus: with GPU_KINDS."""
    offers = machine_offers(SEED)
    zone = offers[0].zone
    entries = [
        CatalogueEntry(
            name=offer.name.split("-")[0],
            family=offer.name.split(".")[0],
            zone=zone,
            cores=offer.cores,
            memory=offer.gib * GIB,
            price=offer.price * SCALE,
        )
        for offer in offers
        if offer.zone == zone and not offer.is_spot
    ]
    templates = {group.id: group.template for group in cluster.groups}
    for name in GPU_KINDS if has_gpus else ():
        template = templates[name]
        assert template is not None
        capacity = template.capacity
        entries.append(
            CatalogueEntry(
                name=name,
                family=name.split("-")[0],
                zone=zone,
                cores=capacity[CPU] // 1000,
                memory=capacity[MEMORY],
                gpus=capacity[GPU],
                price=price_of(template),
            )
        )
    return tuple(entries)


def hand_picked(
    entries: Sequence[CatalogueEntry], chosen_price: Callable[[Iterable[float]], float]
) -> tuple[CatalogueEntry, ...]:
    """The types for which a person has made groups: HAND_SIZES of one family of HAND_RATIO, and all
    with GPUs. chosen_price: chooses the family's price among those of all."""
    smallest = {
        entry.price or 0.0: entry.family
        for entry in entries
        if entry.memory == entry.cores * HAND_RATIO * GIB
        and entry.cores == min(HAND_SIZES)
        and not entry.gpus
    }
    family = smallest[chosen_price(smallest)]
    return tuple(
        entry
        for entry in entries
        if entry.gpus or (entry.family == family and entry.cores in HAND_SIZES)
    )


def node_of(entry: CatalogueEntry) -> Node:
    """The node of a type; all of its capacity is for pods."""
    labels = {INSTANCE_TYPE: entry.name, "topology.kubernetes.io/zone": entry.zone}
    capacity = {CPU: 1000 * entry.cores, MEMORY: entry.memory, PODS: PODS_PER_NODE}
    gpus = {GPU: entry.gpus} if entry.gpus else {}
    return template_node(f"template-{entry.name}", labels, capacity | gpus, {})


def by_hand(chosen_price: Callable[[Iterable[float]], float]) -> Offered:
    """A world's groups if a person has made them, see hand_picked."""
    return lambda entries: tuple(map(hand_group, hand_picked(entries, chosen_price)))


def hand_group(entry: CatalogueEntry) -> NodeGroup:
    """A group that a person has made."""
    return NodeGroup(
        id=entry.name,
        provider=POOL.provider,
        max=MOST_NODES,
        template=node_of(entry),
        price=entry.price or 0.0,
        currency=CURRENCY,
    )


def candidates(entries: Sequence[CatalogueEntry]) -> tuple[NodeGroup, ...]:
    """The groups that Outscaler could open for POOL."""
    shelf = CatalogueShelf(KeptCache(), lambda: "catalogue", lambda: NOW)
    shelf.refresh(lambda: Catalogue(CURRENCY, tuple(entries)), buying=False)
    zones = (entries[0].zone,)
    pools = ManagedPools([POOL], shelf, lambda: "openb", lambda _: CopySource(zones=zones))
    return tuple(
        candidate_group(candidate, GroupTemplate(node_of(candidate.machine.entry)), CURRENCY, NOW)
        for candidate in pools.candidates.values()
    )


def without_gpus(task_trace: Trace) -> Trace:
    """The trace with tasks that ask for no GPU."""
    classes = tuple(
        msgspec.structs.replace(
            pod_class,
            requests={name: need for name, need in pod_class.requests.items() if name != GPU},
        )
        for pod_class in task_trace.cluster.classes
    )
    cluster = msgspec.structs.replace(task_trace.cluster, classes=classes)
    return msgspec.structs.replace(task_trace, cluster=cluster)


# -- the world


class MachineWorld(World):
    """A world with groups that a strategy opens and closes, and in which an empty node goes by
    itself. Counts machine types with nodes, and groups, from an instant on: kind_minutes is the
    sum over all minutes. counts_from: seconds after the beginning."""

    def __init__(self, cluster: Snapshot, counts_from: float) -> None:
        super().__init__(cluster, start_up=START_UP, live=True)
        self._candidates = {
            group.id: group
            for group in cluster.groups
            if group.managed is not None and not group.managed.exists
        }
        self._counts_from = self.now + counts_from
        self._opened: dict[str, NodeGroup] = {}
        self._minutes = 0
        self.kind_minutes = self.most_kinds = self.most_open = 0

    def snapshot(self) -> Snapshot:
        """The cluster now; groups that are not open are candidates."""
        snapshot = super().snapshot()
        closed = self._candidates.keys() - self._opened.keys()
        groups = [
            msgspec.structs.replace(group, managed=self._opened[group.id].managed)
            if group.id in self._opened
            else group
            for group in snapshot.groups
            if group.id not in closed
        ]
        openable = [self._candidates[name] for name in sorted(closed)]
        return msgspec.structs.replace(snapshot, groups=tuple(groups), candidates=tuple(openable))

    @property
    def kinds(self) -> float:
        """Machine types that have nodes, the mean of the counted minutes."""
        return self.kind_minutes / max(1, self._minutes)

    def grow(self, group: str, count: int) -> list[str]:
        """Buys nodes; opens the group if it is not open."""
        candidate = self._candidates.get(group)
        if candidate is not None and candidate.managed is not None:
            managed = msgspec.structs.replace(candidate.managed, exists=True)
            self._opened[group] = msgspec.structs.replace(candidate, managed=managed)
        return super().grow(group, count)

    def close(self, group: str) -> None:
        """Deletes an empty group that was opened."""
        assert not self._instances[group]
        del self._opened[group]

    def advance(self, seconds: float) -> None:
        """Time passes; then nodes that have been empty for EMPTY_FOR go."""
        if self.now >= self._counts_from:
            kinds = sum(map(bool, self._instances.values()))
            opened = len(self._opened) if self._candidates else len(self._groups)
            self._minutes += 1
            self.kind_minutes += kinds
            self.most_kinds = max(self.most_kinds, kinds)
            self.most_open = max(self.most_open, opened)
        super().advance(seconds)
        used = {pod.node for pod in self._pods.values()}
        empty = [
            name
            for name, node in self._nodes.items()
            if name not in used
            and self.now - max(node.created, self.pod_events.get(name, 0.0)) >= EMPTY_FOR
        ]
        if empty:
            self.remove(empty)


# -- strategies


class GroupBuyer(Outscaler):
    """Our planner, whose empty groups are closed where it says so. slowest: CPU seconds of
    a pass."""

    slowest = 0.0

    def act(self, world: World) -> float:
        """One pass; groups are closed after the purchases, which do not wait for that."""
        assert isinstance(world, MachineWorld)
        seconds = super().act(world)
        assert self.plan is not None
        for operation in self.plan.operations:
            if operation.spec.kind is OperationKind.REMOVE_GROUP:
                world.close(operation.spec.group)
                self._finish(operation, world.now)
        self.slowest = max(self.slowest, seconds)
        return seconds


class Claim(msgspec.Struct):
    """A node that Karpenter would launch. need: of its pods, in units of a row of types."""

    need: Ints
    pods: int = 1


class KarpenterProvisioner:
    """Karpenter's provisioning (pkg/controllers/provisioning/scheduling) for pods without rules:
    the pod with the most cores first, then memory, goes to the first node with room, those that are
    starting after the others; then to the claim with the fewest pods that some type still fits;
    otherwise it begins a claim. A claim is launched as the cheapest type that fits. slowest: CPU
    seconds of a pass."""

    def __init__(self, cluster: Snapshot) -> None:
        groups = [group for group in cluster.groups if group.template is not None]
        templates = [group.template for group in groups if group.template is not None]
        self._resources = sorted({name for node in templates for name in node.allocatable})
        self._names = [group.id for group in groups]
        self._row = {group.id: row for row, group in enumerate(groups)}
        self._prices: Floats = np.array([group.price for group in groups])
        self._room: Ints = np.array([self._vector(node.allocatable) for node in templates])
        self._requests = [
            self._vector({**pod_class.requests, PODS: 1}) for pod_class in cluster.classes
        ]
        self.slowest = 0.0

    def act(self, world: World) -> float:
        """One batch of pods."""
        if not world.pending:
            return 0.0
        snapshot = world.snapshot()
        started = time.process_time()
        launched = [self._cheapest(claim) for claim in self._claims(snapshot)]
        seconds = time.process_time() - started
        for group in launched:
            world.grow(group, 1)
        self.slowest = max(self.slowest, seconds)
        return seconds

    def _vector(self, amounts: Amounts) -> Ints:
        return np.array([amounts.get(name, 0) for name in self._resources], dtype=np.int64)

    def _claims(self, snapshot: Snapshot) -> list[Claim]:
        """The claims for pods that no node has room for."""
        free = self._free(snapshot)
        claims: list[Claim] = []
        cpu, memory = self._resources.index(CPU), self._resources.index(MEMORY)

        def largest_first(pod: Pod) -> tuple[int, int, float, str]:
            need = self._requests[pod.cls]
            return -int(need[cpu]), -int(need[memory]), pod.created, pod.uid

        pending = [pod for pod in snapshot.pods if not pod.node]
        for pod in sorted(pending, key=largest_first):
            need = self._requests[pod.cls]
            places = np.flatnonzero((free >= need).all(axis=1))
            if len(places):
                free[places[0]] -= need
                continue
            claims.sort(key=lambda claim: claim.pods)
            claim = next((claim for claim in claims if self._fits(claim.need + need).any()), None)
            if claim is not None:
                claim.need = claim.need + need
                claim.pods += 1
            elif self._fits(need).any():
                claims.append(Claim(need))
        return claims

    def _free(self, snapshot: Snapshot) -> Ints:
        """What is free on each node, those that are starting after the others."""
        rows = {
            node.name: self._vector(node.allocatable)
            for node in sorted(snapshot.nodes, key=lambda node: node.name)
        }
        for pod in snapshot.pods:
            if pod.node:
                rows[pod.node] -= self._requests[pod.cls]
        starting = [
            self._room[self._row[group.id]]
            for group in snapshot.groups
            for instance in group.instances
            if not instance.node
        ]
        return np.array([*rows.values(), *starting]).reshape(-1, len(self._resources))

    def _fits(self, need: Ints) -> Bools:
        """Which types have room for this."""
        return np.asarray((self._room >= need).all(axis=1), dtype=np.bool_)

    def _cheapest(self, claim: Claim) -> str:
        prices = np.where(self._fits(claim.need), self._prices, np.inf)
        return self._names[int(prices.argmin())]


MANAGED_POLICY = msgspec.structs.replace(POLICY, managed_pools=(POOL,))
STRATEGIES: dict[str, tuple[Offered, Callable[[Snapshot], GroupBuyer | KarpenterProvisioner]]] = {
    "managed": (candidates, lambda _: GroupBuyer(MANAGED_POLICY)),
    BY_HAND: (by_hand(median_low), lambda _: GroupBuyer(POLICY)),
    "by-hand-cheapest": (by_hand(min), lambda _: GroupBuyer(POLICY)),
    "karpenter": (lambda entries: tuple(map(hand_group, entries)), KarpenterProvisioner),
}
"""By name: the groups of its world, and the strategy."""


# -- runs


def managed_replay(task_trace: Trace, rules: str, *, has_gpus: bool = True) -> ManagedOutcome:
    """The replay of a trace under some of STRATEGIES. has_gpus: whether tasks ask for GPUs."""
    entries = catalogue_entries(task_trace.cluster, has_gpus=has_gpus)
    task_trace = task_trace if has_gpus else without_gpus(task_trace)
    groups_of, strategy_of = STRATEGIES[rules]
    groups = tuple(sorted(groups_of(entries), key=lambda group: group.id))
    cluster = msgspec.structs.replace(task_trace.cluster, groups=groups)
    task_trace = msgspec.structs.replace(task_trace, cluster=cluster)
    world = MachineWorld(cluster, task_trace.unmeasured)
    strategy = strategy_of(cluster)
    judged: Strategy = strategy
    of_trace = replay(task_trace, judged, world)
    began = NOW + task_trace.unmeasured
    return ManagedOutcome(
        of_trace,
        bought=sum(node.at >= began for node in world.bought),
        most_kinds=world.most_kinds,
        kinds=world.kinds,
        most_open=world.most_open,
        left=world.pending,
        slowest=strategy.slowest,
    )


def managed_table(outcomes: dict[str, ManagedOutcome]) -> str:
    """A table of the outcomes."""
    columns = ("Rules", "Price an hour", "Of by hand", "Nodes bought", "Nodes",
               "Kinds with nodes: most", "Mean", "Groups open, most", "Pending pod-minutes",
               "Of by hand", "Pods left", "CPU s", "Slowest pass s")  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    by_hand = outcomes.get(BY_HAND)
    for name, outcome in outcomes.items():
        of_trace = outcome.of_trace
        price, pending = float("nan"), float("nan")
        if by_hand is not None:
            price = of_trace.price / by_hand.of_trace.price
            pending = of_trace.pending / max(1.0, by_hand.of_trace.pending)
        figures = (
            f"{of_trace.price:,.1f}",
            f"{price:.3f}",
            f"{outcome.bought:,}",
            f"{of_trace.nodes:.1f}",
            outcome.most_kinds,
            f"{outcome.kinds:.1f}",
            outcome.most_open,
            f"{of_trace.pending:,.0f}",
            f"{pending:.2f}",
            outcome.left,
            f"{of_trace.seconds:.1f}",
            f"{outcome.slowest:.2f}",
        )
        lines.append(f"| {name} | {' | '.join(map(str, figures))} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.managed_trace",
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
    parser.add_argument("--without-gpus", action="store_true", help="tasks ask for no GPU")
    parser.add_argument("--rules", default=",".join(STRATEGIES), help=f"of {', '.join(STRATEGIES)}")
    args = parser.parse_args(arguments)
    task_trace = trace(args.hours, start=args.start, overlay=args.overlay)
    outcomes: dict[str, ManagedOutcome] = {}
    for name in args.rules.split(","):
        started = time.time()
        outcomes[name] = managed_replay(task_trace, name, has_gpus=not args.without_gpus)
        print(f"{name}: {time.time() - started:.0f} s, {outcomes[name]}", flush=True)
    print(f"{len(task_trace.pods)} tasks in {args.hours:g} hours\n{managed_table(outcomes)}")


if __name__ == "__main__":
    main()
