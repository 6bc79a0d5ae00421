"""Fixture F of the consolidation cases: one pool with groups s, m and l, which cost
0.10, 0.20 and 0.40 an hour.

Nothing but prices and room decides: budgets, surge and parallelism are wide, moves begin at
once, new nodes are ready at once, all nodes are old and quiet, and unneeded nodes are never
removed for being unneeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import Pool
from chalicelib.model.memory import Memory
from chalicelib.model.operation import OperationKind
from chalicelib.model.plan import ConsolidationReport, Plan
from chalicelib.model.reason import Reason
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_limit import NodeLimit
from chalicelib.policy.settings.node_prices import NodePrices
from tests.builders import NOW, ClusterBuilder, cluster, node

TYPE = "node.kubernetes.io/instance-type"
Machine = tuple[str, str, float]
"""Cpu, memory and price of an instance type."""
TYPES: dict[str, Machine] = {
    "s": ("2", "8Gi", 0.10),
    "m": ("4", "16Gi", 0.20),
    "l": ("8", "32Gi", 0.40),
}
PodCounts = Sequence[tuple[int, str, str]]
"""Number, cpu and memory of equal pods."""
P = ("500m", "2Gi")


def pods(number: int) -> PodCounts:
    """So many pods P."""
    return ((number, *P),)


def machines(
    nodes: Mapping[str, tuple[str, PodCounts]],
    types: Mapping[str, Machine] = TYPES,
    *,
    created: float | None = None,
    build: ClusterBuilder | None = None,
) -> ClusterBuilder:
    """Nodes of these types with their pods; without groups, which `grouped` adds."""
    build = build or cluster()
    more = {} if created is None else {"created": created}
    for name, (kind, running) in nodes.items():
        cpu, memory, _ = types[kind]
        build.node(name, cpu, memory, group=kind, labels={TYPE: kind}, **more)
        for count, cores, amount in running:
            build.running(name, count, cores, amount)
    return build


def grouped(
    build: ClusterBuilder,
    types: Mapping[str, Machine] = TYPES,
    *,
    pool: Pool | None = Pool("pool"),  # noqa: B008 - frozen
    grows: Iterable[str] | None = None,
    groups: Mapping[str, Mapping[str, Any]] | None = None,
) -> ClusterBuilder:
    """The nodes with a group of each type. grows: types of which nodes may be bought, all if not
    given. groups: further fields of the group of a type."""
    for kind, (cpu, memory, _) in types.items():
        fields: dict[str, Any] = {
            "max": 10,
            "pool": pool,
            "template": node(f"new-{kind}", cpu, memory, labels={TYPE: kind}),
        }
        if grows is not None and kind not in grows:
            fields["max"] = sum(member.labels.get(TYPE) == kind for member in build.nodes)
        build.group(kind, **fields | dict((groups or {}).get(kind, {})))
    return build


def fixture(
    nodes: Mapping[str, tuple[str, PodCounts]], types: Mapping[str, Machine] = TYPES, **more: Any
) -> ClusterBuilder:
    """Nodes of these types with their pods, in their groups."""
    return grouped(machines(nodes, types), types, **more)


def three_halves() -> dict[str, tuple[str, PodCounts]]:
    """CONS_1: nodes a, b and c of type m with two pods P each."""
    return {name: ("m", pods(2)) for name in "abc"}


def one_beside_a_full_one() -> dict[str, tuple[str, PodCounts]]:
    """CONS_3: node a of type m with two pods P, beside the full node b."""
    return {"a": ("m", pods(2)), "b": ("m", pods(8))}


def settled(memory: Memory | None) -> Memory | None:
    """The memory as if no price had changed lately."""
    if memory is None:
        return None
    consolidation = msgspec.structs.replace(memory.consolidation, prices={})
    return msgspec.structs.replace(memory, consolidation=consolidation)


def policy(
    types: Mapping[str, Machine] = TYPES,
    *,
    options: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
    **consolidation: Any,
) -> Policy:
    """The policy of fixture F. more: fields of the policy; consolidation:
    keys of spec.consolidation."""
    settings: dict[str, Any] = {
        "mode": ConsolidationMode.FULL,
        "confirm_after": 0.0,
        "replace_timeout": 0.0,
        "max_surge": NodeLimit(share=1.0),
        "max_replacements": 100,
        **consolidation,
    }
    fields: dict[str, Any] = {
        "consolidation": Consolidation(**settings),
        "prices": NodePrices(instance_types={kind: price for kind, (_, _, price) in types.items()}),
        "disruption_budgets": (DisruptionBudget("all", NodeLimit(share=1.0)),),
        "options": Options(
            **{
                "max_drain_parallelism": 100,
                "max_scale_down_parallelism": 100,
                "scale_down_unneeded_time": 1e6,
                **(options or {}),
            }
        ),
        **(more or {}),
    }
    return Policy("test", mode=Mode.ACTIVE, **fields)


class Result(msgspec.Struct, frozen=True):
    """A pass: its plan and the next memory."""

    plan: Plan
    memory: Memory

    @property
    def report(self) -> ConsolidationReport:
        """The plan's report on consolidation."""
        assert self.plan.consolidation is not None
        return self.plan.consolidation

    @property
    def reasons(self) -> dict[str, Reason]:
        """node -> why it is not consolidated."""
        return {verdict.node: verdict.reason for verdict in self.report.verdicts}

    @property
    def codes(self) -> dict[str, str]:
        """node -> the code why it is not consolidated; nodes that go in this pass have none."""
        return {name: reason.code.value for name, reason in self.reasons.items()}

    @property
    def goes(self) -> list[str]:
        """Names of the nodes of all moves, sorted."""
        return sorted(name for move in self.report.moves for name in move.nodes)

    @property
    def removed(self) -> list[str]:
        """Nodes that consolidation removes now."""
        return sorted(
            removal.node
            for removal in self.plan.removals
            if removal.reason is DisruptionReason.CONSOLIDATION
        )

    @property
    def bought(self) -> dict[str, int]:
        """group -> nodes that the moves buy."""
        counts: dict[str, int] = {}
        for move in self.report.moves:
            for purchase in move.purchases:
                counts[purchase.group] = counts.get(purchase.group, 0) + purchase.nodes
        return counts

    @property
    def grown(self) -> dict[str, int]:
        """group -> nodes that operations of this plan buy."""
        return {
            operation.spec.group: operation.spec.to_size - operation.spec.from_size
            for operation in self.plan.operations
            if operation.spec.kind is OperationKind.SCALE_UP
        }

    @property
    def sums(self) -> tuple[float, float, float, float]:
        """What the moves save, their disruption, their gain and their common score, rounded. All
        nodes that go are of one pool."""
        moves = self.report.moves
        [pool] = [pool for pool in self.report.pools if pool.pool in {move.pool for move in moves}]
        saves, disruption = (
            sum(move.saves for move in moves),
            sum(move.disruption for move in moves),
        )
        score = saves / (pool.price * disruption / pool.disruption)
        gain = sum(move.gain for move in moves)
        return round(saves, 6), round(disruption, 6), round(gain, 6), round(score, 4)

    @property
    def rate(self) -> float:
        """What one unit of disruption must bring in the only pool."""
        [pool] = self.report.pools
        return round(pool.rate, 6)


def decide(
    build: ClusterBuilder | Snapshot,
    document: Policy | None = None,
    memory: Memory | None = None,
    *,
    now: float = NOW,
    **consolidation: Any,
) -> Result:
    """A pass over the cluster. consolidation: keys of spec.consolidation, unless
    there is a whole policy."""
    snapshot = build.snapshot() if isinstance(build, ClusterBuilder) else build
    return Result(
        *plan_cluster(snapshot, document or policy(**consolidation), memory or Memory(), now, 0)
    )
