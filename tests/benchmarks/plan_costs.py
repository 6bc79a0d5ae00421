"""What the plans of all recorded clusters and of 1,000 generated ones cost, and the CPU time of
planning: shows whether a change of the planner makes plans dearer or slower.

    python -m tests.benchmarks.plan_costs --to FILE           plan for every cluster
    python -m tests.benchmarks.plan_costs --compare OLD NEW   what differs between two files

OLD is made with the code of an older commit: `git worktree add DIR COMMIT`, copy this file into it,
and run it there. Times are comparable only between runs on the same quiet machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from chalicelib.cli.saved import saved_cluster
from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.cost_breakdown import cluster_bill
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.prices import Price, PriceBook, price_book
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.node_limit import NodeLimit
from chalicelib.policy.settings.node_prices import NodePrices
from tests.benchmarks.consolidation_clusters import NOW as HALF_EMPTY_NOW
from tests.benchmarks.consolidation_clusters import small_clusters
from tests.benchmarks.consolidation_world import WITHOUT_TIMERS, consolidating
from tests.benchmarks.test_planning import NOW as BACKLOG_NOW
from tests.benchmarks.test_planning import generate
from tests.builders import NOW as BUILDER_NOW
from tests.differential.compare import NOW as DIFFERENTIAL_NOW
from tests.differential.compare import generator
from tests.property import clusters, objects
from tests.property.checker import policy_of
from tests.property.consolidation_clusters import random_case
from tests.property.snapshot_reader import read
from tests.recorded.plans import Case, cases, record

PRICES = NodePrices(cpu=0.03, memory=0.004, gpu=0.9, node=0.01)
CHEAPEST = Policy("costs", options=Options(expander=("least-cost", "price")), prices=PRICES)
CONSOLIDATING = Policy(
    "costs",
    options=msgspec.structs.replace(WITHOUT_TIMERS, scale_down_unneeded_time=1e9),
    consolidation=consolidating(),
    disruption_budgets=(DisruptionBudget("all", NodeLimit(share=1.0)),),
)


class PlanCost(msgspec.Struct, frozen=True):
    """One cluster. cost: of its priced nodes per hour once the plan is carried out; what
    consolidation brings counts with the price of disruption. unplaced: pods without a place; bound:
    what `cost` states as the least price, None without one; seconds: CPU of planning; digest: of
    the whole answer."""

    cost: float
    unplaced: int
    bound: int | None
    seconds: float
    digest: str


class GeneratedCluster(msgspec.Struct, frozen=True):
    """A cluster to plan for."""

    snapshot: Snapshot
    policy: Policy
    memory: Memory
    now: float


Make = Callable[[int], GeneratedCluster]


def of_rules(seed: int) -> GeneratedCluster:
    """A small cluster that mixes every predicate."""
    made = clusters.make(seed)
    policy = policy_of(made)
    options = msgspec.structs.replace(policy.options, expander=("least-cost", "price"))
    policy = msgspec.structs.replace(policy, options=options)
    snapshot = read(made.lists, made.manifest, objects.NOW)
    return GeneratedCluster(snapshot, policy, made.memory(), objects.NOW)


def of_upstream(seed: int) -> GeneratedCluster:
    """A cluster of the reference data, which upstream has planned for, too."""
    lists, manifest = generator().make(seed)
    return GeneratedCluster(
        read(lists, manifest, DIFFERENTIAL_NOW), CHEAPEST, Memory(), DIFFERENTIAL_NOW
    )


def of_backlog(seed: int) -> GeneratedCluster:
    """A cluster of the reference benchmark's generator, with a backlog of pending pods."""
    draw = random.Random(f"backlog {seed}")
    with tempfile.TemporaryDirectory() as made:
        folder = generate(
            Path(made),
            nodes=draw.choice((4, 10, 40)),
            pending=draw.randint(10, 300),
            groups=draw.randint(1, 15),
            node_groups=draw.choice((3, 6, 10, 20)),
            variant=draw.choice(("plain", "plain", "affinity")),
            seed=seed,
        )
        snapshot = saved_cluster.read(
            folder, node_groups=None, cluster="backlog", taken_at=BACKLOG_NOW
        )
    return GeneratedCluster(snapshot, CHEAPEST, Memory(), BACKLOG_NOW)


def of_consolidation(seed: int) -> GeneratedCluster:
    """A cluster of at most eight nodes, with rules and budgets."""
    case = random_case(seed)
    return GeneratedCluster(case.snapshot, case.policy, case.memory, BUILDER_NOW)


def of_half_empty_nodes(seed: int) -> GeneratedCluster:
    """A half-empty cluster of at most thirty nodes."""
    snapshot = small_clusters(1, seed)[0]
    return GeneratedCluster(snapshot, CONSOLIDATING, Memory(), HALF_EMPTY_NOW)


FAMILIES: dict[str, tuple[Make, range]] = {
    "rules": (of_rules, range(1000, 1300)),
    "upstream": (of_upstream, range(200)),
    "backlog": (of_backlog, range(150)),
    "consolidation": (of_consolidation, range(50_000, 50_200)),
    "half-empty": (of_half_empty_nodes, range(9_000, 9_150)),
}


def generated_cost(made: GeneratedCluster) -> PlanCost:
    """Plan for a generated cluster."""
    begin = time.process_time()
    plan, memory = plan_cluster(made.snapshot, made.policy, made.memory, made.now, 0)
    seconds = time.process_time() - begin
    digest = hashlib.sha256(msgspec.json.encode((plan, memory))).hexdigest()
    return PlanCost(
        cost=_cost_after(plan, made),
        unplaced=sum(len(verdict.pods) for verdict in plan.unschedulable),
        bound=_bound(made),
        seconds=seconds,
        digest=digest,
    )


def _cost_after(plan: Plan, made: GeneratedCluster) -> float:
    state = build_cluster_state(made.snapshot, made.policy, made.memory, made.now)
    book = price_book(made.policy.prices, made.snapshot.groups, made.now)
    nodes = {node.name: node for node in made.snapshot.nodes}
    prices = {name: _hourly(book, node, _group_of(state, name)) for name, node in nodes.items()}
    before = sum(prices.values())
    if plan.consolidation is not None and plan.consolidation.moves:
        return before - sum(move.gain for move in plan.consolidation.moves)
    removed = sum(prices[removal.node] for removal in plan.removals)
    bought = 0.0
    for scale_up in plan.scale_ups:
        group = state.groups[scale_up.group]
        assert group.template is not None
        price = _hourly(book, group.template.node, group.group)
        bought += price * (scale_up.to_size - scale_up.from_size)
    return before - removed + bought


def _group_of(state: Any, node: str) -> Any:
    name = state.group_of.get(node)
    return None if name is None else state.groups[name].group


def _hourly(book: PriceBook, node: Any, group: Any) -> float:
    price = book.of_node(node, group)
    return price.hourly if isinstance(price, Price) else 0.0


def _bound(made: GeneratedCluster) -> int | None:
    state = build_cluster_state(made.snapshot, made.policy, made.memory, made.now)
    bill = cluster_bill(state)
    return bill.bills[0].bound if bill is not None and bill.bills else None


def recorded_cost(case: Case) -> PlanCost:
    """Plan for a recorded cluster; all passes count."""
    begin = time.process_time()
    recording = record(case)
    seconds = time.process_time() - begin
    bought = _purchases(recording.documents.decode())
    cost, unplaced = 0.0, 0
    with tempfile.TemporaryDirectory() as made:
        case.fill(Path(made))
        snapshot = saved_cluster.read(
            Path(made), node_groups=None, cluster="generated", taken_at=objects.NOW
        )
    cluster = GeneratedCluster(snapshot, CHEAPEST, Memory(), objects.NOW)
    state = build_cluster_state(snapshot, CHEAPEST, Memory(), objects.NOW)
    book = price_book(PRICES, snapshot.groups, objects.NOW)
    for node in snapshot.nodes:
        cost += _hourly(book, node, _group_of(state, node.name))
    for group, nodes in bought:
        template = state.groups[group].template if group in state.groups else None
        if template is not None:
            cost += nodes * _hourly(book, template.node, state.groups[group].group)
    unplaced = recording.documents.count(b'"unschedulable"')
    return PlanCost(cost, unplaced, _bound(cluster), seconds, recording.answered)


def _purchases(documents: str) -> Iterator[tuple[str, int]]:
    """Yield (group, nodes) of each growth in the printed plans."""
    decoder = json.JSONDecoder()
    at = documents.find("{")
    while at >= 0:
        document, end = decoder.raw_decode(documents, at)
        for scale_up in document.get("scaleUps", ()) if isinstance(document, dict) else ():
            yield scale_up["group"], scale_up["to"] - scale_up["from"]
        at = documents.find("{", end)


def measure(families: Sequence[str]) -> dict[str, PlanCost]:
    """Plan for all clusters of these families, "recorded" among them."""
    costs: dict[str, PlanCost] = {}
    if "recorded" in families:
        for case in cases():
            costs[f"recorded/{case.name}"] = recorded_cost(case)
    for family in families:
        if family in FAMILIES:
            make, seeds = FAMILIES[family]
            for seed in seeds:
                costs[f"{family}/{seed}"] = generated_cost(make(seed))
    return costs


def _rise(before: float, after: float) -> float:
    return after / before - 1 if before else after


def compare(old: dict[str, PlanCost], new: dict[str, PlanCost]) -> list[str]:
    """Return a line per family, and a line per cluster whose plan costs something else."""
    lines = [f"{'family':14} clusters  other  dearest   cost in sum  CPU s before, after, ratio"]
    others: list[str] = []
    names = sorted(old.keys() & new.keys())
    for family in sorted({name.split("/")[0] for name in names}):
        own = [name for name in names if name.split("/")[0] == family]
        before = sum(old[name].cost for name in own)
        after = sum(new[name].cost for name in own)
        seconds = [sum(costs[name].seconds for name in own) for costs in (old, new)]
        rises = {name: _rise(old[name].cost, new[name].cost) for name in own}
        changed = [name for name in own if old[name].digest != new[name].digest]
        lines.append(
            f"{family:14} {len(own):8} {len(changed):6} {max(rises.values()):+8.3%}"
            f" {after / before - 1:+12.4%}"
            f"   {seconds[0]:.2f}, {seconds[1]:.2f}, {seconds[1] / seconds[0]:.3f}"
        )
        for name in own:
            is_same = (
                old[name].unplaced == new[name].unplaced and old[name].bound == new[name].bound
            )
            if abs(rises[name]) > 1e-9 or not is_same:
                others.append(
                    f"{name}: cost {old[name].cost:.4f} -> {new[name].cost:.4f}"
                    f" ({rises[name]:+.3%}), unplaced {old[name].unplaced} -> {new[name].unplaced},"
                    f" bound {old[name].bound} -> {new[name].bound}"
                )
    return lines + others


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or compare two measurements."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.plan_costs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--to", type=Path)
    parser.add_argument("--families", default=",".join(("recorded", *FAMILIES)))
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"))
    args = parser.parse_args(arguments)
    if args.compare is not None:
        files = [
            msgspec.json.decode(file.read_bytes(), type=dict[str, PlanCost])
            for file in args.compare
        ]
        print("\n".join(compare(*files)))
    if args.to is not None:
        args.to.write_bytes(msgspec.json.encode(measure(args.families.split(","))))


if __name__ == "__main__":
    main()
