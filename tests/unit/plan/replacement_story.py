"""A cluster with an old node `a` of group m and a group s of which nodes are
bought; rows and judges for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chalicelib.model.memory import (
    GroupMemory,
    Memory,
    PurchasedNodes,
    Replacement,
    ReplacementState,
)
from chalicelib.model.operation import Operation, OperationKind, OperationState, RemovalTarget
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.removal.consolidation.moves import JudgedMove
from chalicelib.plan.removal.removal_limits import RemovalLimits
from chalicelib.plan.removal.replacements import Advance, advance
from chalicelib.plan.removal.simulate import SimulatedRemoval
from chalicelib.plan.simulation.cluster_builder import build as build_simulated
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState, build_cluster_state
from chalicelib.plan.tables import ResourceColumns
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_limit import NodeLimit
from tests.builders import NOW, ClusterBuilder, cluster, node
from tests.operations import new_operation

BOUGHT = NOW - 300.0
GROW, PRICE, COST = "grow-1", 200_000, 100_000
NO_PLACE = Reason.of(ReasonCode.NO_PLACE_TO_MOVE_PODS, pod="default/p", what="no node takes it")
ALL = DisruptionBudget("all", NodeLimit(share=1.0))
FULL = Consolidation(mode=ConsolidationMode.FULL, max_surge=NodeLimit(share=1.0))


def machines(*old: str, new: int = 0, ready: bool = True, **fields: Any) -> ClusterBuilder:
    """Nodes of group m with two pods each, and new ones s-0, s-1 … of group s, created since the
    purchase. fields: of the new nodes."""
    build = cluster()
    for name in old:
        build.node(name, "4", "16Gi", group="m").running(name, 2, "500m", "2Gi")
    for at in range(new):
        build.node(
            f"s-{at}",
            "2",
            "8Gi",
            group="s",
            **{"created": BOUGHT + 60.0 + at, "ready": ready, **fields},
        )
    build.group("m", min=0, max=10)
    return build.group("s", min=0, max=10, template=node("s", "2", "8Gi", group="s"))


def replacement(
    *nodes: str, state: ReplacementState = ReplacementState.WAITING, buys: int = 1, **fields: Any
) -> Replacement:
    """A row; its purchase has ended well unless it is proposed or still buys."""
    waits = state in {ReplacementState.PROPOSED, ReplacementState.BUYING}
    operation = "" if state is ReplacementState.PROPOSED else GROW
    row = Replacement(
        id="r1",
        state=state,
        nodes=nodes or ("a",),
        purchases=(PurchasedNodes("s", buys, COST, operation),),
        price=PRICE * len(nodes or ("a",)),
        disruption=3.0,
        score=1.0,
        proposed_at=BOUGHT - 60.0,
        since=BOUGHT,
        bought_at=0.0 if state is ReplacementState.PROPOSED else BOUGHT,
        ends={} if waits else {GROW: ""},
    )
    return msgspec.structs.replace(row, **fields)


def draining(*nodes: str, **fields: Any) -> Replacement:
    """A row of which the first node is being removed."""
    bought = (PurchasedNodes("s", 1, COST, GROW, ("s-0",)),)
    removals = {name: f"remove-{name}" for name in nodes[:1]}
    return replacement(
        *nodes,
        state=ReplacementState.DRAINING,
        **{"purchases": bought, "removals": removals, **fields},
    )


def purchase_operation(**fields: Any) -> Operation:
    """The open scale-up of row r1."""
    values: dict[str, Any] = {
        "id": GROW,
        "cluster": "test",
        "provider": "test",
        "group": "s",
        "kind": OperationKind.SCALE_UP,
    }
    values |= {"plan": "p", "created_at": BOUGHT, "from_size": 0, "to_size": 1, "replacement": "r1"}
    return new_operation(**values | fields)


def removal_operation(name: str, operation: str = "") -> Operation:
    """The open removal of a node by row r1."""
    return new_operation(
        id=operation or f"remove-{name}",
        cluster="test",
        provider="test",
        group="m",
        kind=OperationKind.DELETE_NODES,
        plan="p",
        created_at=NOW - 60.0,
        targets=(RemovalTarget(name, f"test://m/{name}", evict=("default/x",)),),
        state=OperationState.WAITING,
        replacement="r1",
    )


Verdict = Callable[[Sequence[str]], Reason | None]


class FakeJudge:
    """Says yes to every move, unless `refuses` has a reason. It notes what it was asked, and the
    nodes that were open in the simulated cluster."""

    def __init__(self, refuses: Verdict | None = None) -> None:
        self._refuses = refuses or (lambda _: None)
        self.asked: list[tuple[tuple[str, ...], int]] = []
        self.open: list[set[str]] = []
        self.state: ClusterState | None = None
        self.simulated: SimulatedCluster | None = None

    def __call__(self, nodes: Sequence[str], cost: int) -> JudgedMove | Reason:
        """Judge a move whose purchases exist."""
        assert self.simulated is not None
        self.asked.append((tuple(nodes), cost))
        index = self.simulated.table.index
        self.open.append({name for name, row in index.items() if self.simulated.open[row]})
        return self._refuses(nodes) or self.move(nodes, cost)

    def confirm(self, row: Replacement) -> JudgedMove | Reason:
        """Judge a proposed row."""
        self.asked.append((row.nodes, row.cost))
        purchases = {purchase.group: purchase.nodes for purchase in row.purchases}
        return self._refuses(row.nodes) or self.move(row.nodes, row.cost, purchases)

    def move(
        self, nodes: Sequence[str], cost: int, purchases: dict[str, int] | None = None
    ) -> JudgedMove:
        """A move of these nodes, whose pods go to the newest node."""
        state = self.state
        assert state is not None
        by_name = {n.name: n for n in state.snapshot.nodes}
        target = max(
            (n for n in state.snapshot.nodes if n.name not in nodes),
            key=lambda n: n.created,
            default=None,
        )
        removals = []
        for name in nodes:
            keys = tuple(pod.key for pod in state.occupancy.on(name))
            places = dict.fromkeys(keys, target.name if target is not None else "")
            removals.append(SimulatedRemoval(by_name[name], state.group_of[name], keys, places))
        return JudgedMove(
            tuple(removals), purchases or {}, PRICE * len(nodes), cost, 3.0, 50_000, 1.0, "m"
        )


class Turn(msgspec.Struct):
    """One pass over the replacements: what it did, and what it was made with."""

    result: Advance
    state: ClusterState
    judge: FakeJudge
    simulated: SimulatedCluster
    budgets: RemovalLimits

    @property
    def row(self) -> Replacement | None:
        """The row r1, if there is one."""
        return self.result.rows.get("r1")

    @property
    def removed(self) -> list[str]:
        """Nodes that are removed now."""
        return [removal.node for command in self.result.commands for removal in command.candidates]

    @property
    def bought(self) -> list[tuple[str, int, int, str]]:
        """Groups that grow now: group, from, to, id of the replacement."""
        return [
            (up.group, up.from_size, up.to_size, up.replacement)
            for command in self.result.commands
            for up in command.replacements
        ]


def turn(
    build: ClusterBuilder,
    *rows: Replacement,
    consolidation: Consolidation = FULL,
    judge: FakeJudge | None = None,
    judged: bool = True,
    operations: Sequence[Operation] = (),
    groups: dict[str, GroupMemory] | None = None,
    grown: Sequence[str] = (),
    now: float = NOW,
    policy: dict[str, Any] | None = None,
    propose: Sequence[str] = (),
    **options: Any,
) -> Turn:
    """Advance these rows by one pass. judged: False: there is no judge. propose: nodes of a
    move that is wanted now."""
    chosen = judge or FakeJudge()
    options = {"scale_down_delay_after_add": 0.0, "max_drain_parallelism": 5, **options}
    document = Policy(
        name="test",
        mode=Mode.ACTIVE,
        options=msgspec.structs.replace(Options(), **options),
        consolidation=consolidation,
        **{"disruption_budgets": (ALL,), **(policy or {})},
    )
    memory = Memory(
        replacements={row.id: row for row in rows},
        operations=tuple(operations),
        groups=groups or {},
    )
    state = build_cluster_state(build.snapshot(), document, memory, now)
    simulated = build_simulated(state, (), ResourceColumns(state.snapshot.classes))
    chosen.state, chosen.simulated = state, simulated
    budgets = RemovalLimits(state, None, dict.fromkeys(grown, 1))
    proposals = [chosen.move(propose, COST, {"s": 1})] if propose else []
    result = advance(
        state,
        simulated,
        budgets,
        chosen if judged else None,
        chosen.confirm if judged else None,
        proposals=proposals,
    )
    return Turn(result, state, chosen, simulated, budgets)
