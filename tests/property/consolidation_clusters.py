"""Small random clusters for consolidation: prices, sizes, rules between pods,
budgets, taints, and a policy.

Pods are bound by the referee's scheduler, so that no cluster breaks its own rules.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import msgspec
import numpy as np

from chalicelib.model.group import Pool
from chalicelib.model.memory import Memory
from chalicelib.model.node import HOSTNAME_LABEL, Node, Taint
from chalicelib.model.pod import Pod, Toleration
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.removal.candidates import find_candidates
from chalicelib.plan.removal.consolidation.costs import Costs
from chalicelib.plan.removal.consolidation.eligibility import Eligibility, QuietTimes
from chalicelib.plan.removal.consolidation.move_limits import OwnerMoves, limits_of
from chalicelib.plan.removal.consolidation.move_search import ConsolidationSearch, Solution
from chalicelib.plan.removal.consolidation.purchases import Market
from chalicelib.plan.removal.consolidation.splitting import moves_of
from chalicelib.plan.removal.consolidation.trial import Places
from chalicelib.plan.removal.removal_limits import RemovalLimits
from chalicelib.plan.simulation.cluster_builder import build
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.plan.tables import Ints, ResourceColumns
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_limit import NodeLimit
from chalicelib.policy.settings.node_prices import NodePrices
from tests.builders import NOW, ZONE, ClusterBuilder, cluster, even, having, near, node
from tests.property.consolidation_referee import RefereeCluster

TYPE = "node.kubernetes.io/instance-type"
SIZES = ((2, 4), (2, 8), (4, 8), (4, 16), (8, 16), (8, 32))
ZONES = ("z1", "z2")
APPS = ("web", "db", "batch", "api")
DEDICATED = Taint("dedicated", "NoSchedule", "db")


class Case(msgspec.Struct, frozen=True):
    """A cluster, the policy for it, and an empty memory."""

    seed: int
    snapshot: Snapshot
    policy: Policy
    memory: Memory = Memory()


def random_case(seed: int, *, nodes: int = 8, plain: bool = False) -> Case:
    """The cluster of a seed. nodes: at most so many. plain: no rules between pods,
    budgets, taints, or zones."""
    return _Maker(random.Random(seed), nodes, plain=plain).case(seed)


class _Maker:
    def __init__(self, chance: random.Random, nodes: int, *, plain: bool) -> None:
        self.chance, self.plain = chance, plain
        self.zoned = not plain and chance.random() < 0.5
        self.sizes = chance.sample(SIZES, chance.randint(2, 4))
        self.prices = [round(0.05 * cpu * chance.uniform(0.6, 1.4), 4) for cpu, _ in self.sizes]
        self.count = chance.randint(1, nodes)
        self.build: ClusterBuilder = cluster()
        self.tainted = (
            chance.randrange(len(self.sizes)) if not plain and chance.random() < 0.2 else -1
        )
        self.groups = [
            (at, zone) for at in range(len(self.sizes)) for zone in (ZONES if self.zoned else ("",))
        ]

    def case(self, seed: int) -> Case:
        """The cluster and its policy."""
        chance, build = self.chance, self.build
        for at in range(self.count):
            kind, zone = chance.choice(self.groups)
            build.nodes.append(self._node(f"n{at}", kind, zone))
        if chance.random() < 0.3:
            build.daemonset("agent", "100m", "64Mi")
            for member in build.nodes:
                everywhere = (Toleration(operator="Exists"),)
                owner = {"owner": "agent", "kind": "DaemonSet", "namespace": "kube-system"}
                build.running(member.name, 1, "100m", "64Mi", tolerations=everywhere, **owner)  # type: ignore[arg-type]
        self._pods()
        if not self.plain and chance.random() < 0.3:
            app = chance.choice(APPS)
            build.budget(app, chance.randint(0, 3), having(app=app))
        for kind, zone in self.groups:
            self._group(kind, zone)
        return Case(seed, build.snapshot(), self._policy())

    def _node(self, name: str, kind: int, zone: str) -> Node:
        cpu, memory = self.sizes[kind]
        taints = (DEDICATED,) if kind == self.tainted else ()
        labels, group = {TYPE: f"t{kind}"}, f"g{kind}{zone}"
        return node(
            name, str(cpu), f"{memory}Gi", group=group, labels=labels, zone=zone, taints=taints
        )

    def _group(self, kind: int, zone: str) -> None:
        name = f"g{kind}{zone}"
        present = sum(
            member.provider_id.startswith(f"test://{name}/") for member in self.build.nodes
        )
        least = self.chance.choice((0, 0, 0, min(1, present)))
        most = present + self.chance.choice((0, 1, 3, 10))
        pool = Pool("pool") if self.chance.random() < 0.8 else None
        self.build.group(
            name, min=least, max=most, template=self._node(f"new-{name}", kind, zone), pool=pool
        )

    def _pods(self) -> None:
        """Pods of up to four applications, until the nodes are as full as drawn."""
        chance, build = self.chance, self.build
        referee = RefereeCluster(build.snapshot())
        fill = chance.uniform(0.1, 0.8)
        classes = [self._class(app) for app in APPS[: chance.randint(1, len(APPS))]]
        total = sum(member.allocatable["cpu"] for member in build.nodes)
        used = 0
        for number in range(60):
            cpu, memory, more = chance.choice(classes)
            if used + cpu > fill * total:
                break
            pod = Pod(
                "default",
                f"p-{number:03d}",
                f"uid-p-{number}",
                build.cls(f"{cpu}m", f"{memory}Mi", **more),
                created=NOW - 7200.0,
                phase="Running",
                scheduled="True",
            )
            place = referee.bind(pod, build.classes[pod.cls], lambda nodes, _: chance.choice(nodes))
            if place is None:
                continue
            build.pods.append(msgspec.structs.replace(pod, node=place))
            used += cpu

    def _class(self, app: str) -> tuple[int, int, dict[str, Any]]:
        chance = self.chance
        more: dict[str, Any] = {"owner": app}
        if not self.plain:
            rule = chance.random()
            if rule < 0.15:
                more["pod_anti_affinity"] = (near(HOSTNAME_LABEL, having(app=app)),)
            elif rule < 0.3:
                key = ZONE if self.zoned else HOSTNAME_LABEL
                more["spread"] = (even(key, having(app=app), chance.randint(1, 2)),)
            if self.zoned and chance.random() < 0.2:
                more["node_selector"] = {ZONE: chance.choice(ZONES)}
            if self.tainted >= 0 and chance.random() < 0.5:
                more["tolerations"] = (Toleration("dedicated", "Exists"),)
            if chance.random() < 0.2:
                more["priority"] = chance.choice((-5, 10_000_000, 100_000_000))
        return (
            chance.choice((100, 250, 500, 1000, 1500)),
            chance.choice((128, 512, 1024, 2048, 4096)),
            more,
        )

    def _policy(self) -> Policy:
        chance = self.chance
        settings = Consolidation(
            mode=ConsolidationMode.FULL,
            aggressiveness=chance.choice((1, 2, 2, 3, 5)),
            min_savings=chance.choice((0.0, 0.1, 0.1, 0.3)),
            confirm_after=0.0,
            replace_timeout=chance.choice((0.0, 0.0, 900.0)),
            max_surge=NodeLimit(nodes=chance.choice((1, 2, 100))),
            max_replacements=100,
            moves_per_pod_per_day=0,
            split_nodes=chance.random() < 0.8,
        )
        return Policy(
            "test",
            mode=Mode.ACTIVE,
            consolidation=settings,
            prices=NodePrices(
                instance_types={f"t{at}": price for at, price in enumerate(self.prices)}
            ),
            disruption_budgets=(
                DisruptionBudget("all", NodeLimit(share=chance.choice((0.3, 1.0, 1.0)))),
            ),
            options=Options(
                max_drain_parallelism=100,
                max_scale_down_parallelism=100,
                scale_down_unneeded_time=1e6,
            ),
        )


def search_of(case: Case) -> ConsolidationSearch:
    """The search of the first pass over a cluster."""
    state = build_cluster_state(case.snapshot, case.policy, case.memory, NOW)
    simulated = build(state, (), ResourceColumns(state.snapshot.classes))
    budgets, costs = RemovalLimits(state), Costs(state)
    eligibility, moves = Eligibility(state, costs, QuietTimes(state), {}), OwnerMoves(state)
    eligible, _ = find_candidates(
        state, simulated, budgets.pdbs, eligibility.ineligible, may_buy=True
    )
    candidates = [
        candidate
        for candidate in sorted(eligible, key=lambda candidate: candidate.node.name)
        if eligibility.blocked_candidate(candidate, moves) is None
    ]
    market = Market(state, simulated, costs, eligibility.named, None)
    rows = limits_of(state, budgets, candidates, market.offers)
    return ConsolidationSearch(
        state, simulated, budgets, costs, candidates, market, rows, frozenset(), lambda: False
    )


def enumerated(search: ConsolidationSearch) -> int:
    """The greatest gain of all sets of nodes and purchases that pass the
    search's own verification."""
    options: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
    for count in range(1, len(search.candidates) + 1):
        for gone in combinations(range(len(search.candidates)), count):
            options.extend(
                (-search.gain(gone, bought), gone, tuple(bought.tolist()))
                for bought in _purchases(search, int(search.saves[list(gone)].sum()))
                if search.is_permitted(gone, bought) and search.limits.allow(gone, bought)
            )
    for loss, gone, bought in sorted(options):
        places = search.trial.run(gone, np.array(bought, dtype=np.int64))
        if isinstance(places, Places):
            solution = Solution(
                gone, bought, -loss, int(search.disruption[list(gone)].sum()), places
            )
            settled = moves_of(search, solution)[1]
            if settled is not None and settled.gain == -loss:
                return -loss
    return 0


def _purchases(search: ConsolidationSearch, saves: int) -> Iterator[Ints]:
    """All purchases that cost less than this."""
    if saves <= 0:
        return
    most = [min(offer.most, (saves - 1) // max(1, offer.price)) for offer in search.offers]
    for counts in product(*(range(number + 1) for number in most)):
        bought = np.array(counts, dtype=np.int64)
        if int(bought @ search.cost) < saves:
            yield bought
