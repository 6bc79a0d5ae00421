"""Runs reconcile passes over one bench: the provider's observation, the
planner's plan, and the executor.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from chalicelib.cluster.node_groups import read_node_groups
from chalicelib.model.memory import Memory
from chalicelib.model.outcome import Outcome
from chalicelib.model.plan import Plan
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from tests.builders import cluster
from tests.providers.suite.operations import OperationDriver


@dataclass
class Passes:
    """busy: names of Nodes with a pod that may not be moved. plans, outcomes: of every pass."""

    yard: OperationDriver
    busy: frozenset[str] = frozenset()
    memory: Memory = field(default_factory=Memory)
    plans: list[Plan] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def once(self) -> Plan:
        """Runs one pass now and executes everything that it plans."""
        bench = self.yard.bench
        nodes = bench.nodes()
        observed = read_node_groups([self.yard.provider()], nodes)
        groups, gaps = observed.groups, observed.gaps
        build = cluster()
        build.nodes, build.groups = list(nodes), list(groups)
        for name in sorted(self.busy & {node.name for node in nodes}):
            build.running(name, 1, "100m", safe_to_evict="false")
        now = bench.now()
        snapshot = msgspec.structs.replace(build.snapshot(), taken_at=now, gaps=gaps)
        policy = Policy(name="suite", mode=Mode.ACTIVE, options=Options(expander=("random",)))
        plan, after = plan_cluster(snapshot, policy, self.memory, now, len(self.plans))
        self.plans.append(plan)
        self.outcomes += [self.yard.run(operation) for operation in plan.operations]
        self.memory = msgspec.structs.replace(after, operations=())
        return plan

    def make(self, minutes: int, *, every: int = 4) -> Passes:
        """Runs passes for that many minutes, one every `every`."""
        for _ in range(0, minutes, every):
            self.once()
            self.yard.bench.settle(60.0 * every)
        self.once()
        return self
