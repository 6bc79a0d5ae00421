"""Replacements in the whole planner: what other removals may still do, operations,
taints, the next memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import (
    ConsolidationMemory,
    Memory,
    NodeMemory,
    PurchasedNodes,
    Replacement,
    ReplacementState,
)
from chalicelib.model.node import DELETION_CANDIDATE, Taint
from chalicelib.model.operation import OperationKind
from chalicelib.model.plan import ConsolidationReport, Plan
from chalicelib.plan.next_memory import MOST_OWNERS
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.removal import removal_planner as planner
from chalicelib.plan.removal.consolidation.moves import JudgedMove
from chalicelib.plan.removal.disruption_command import DisruptionCommand
from chalicelib.plan.removal.methods import DisruptionContext
from chalicelib.plan.removal.methods.consolidation import ConsolidationResult
from chalicelib.plan.removal.replacement_rows import failed, softly_tainted
from chalicelib.plan.removal.replacements import advance
from chalicelib.plan.removal.simulate import SimulatedRemoval, TrialResult
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_prices import NodePrices
from tests.builders import NOW, ClusterBuilder, stays
from tests.unit.plan.replacement_story import (
    COST,
    FULL,
    GROW,
    NO_PLACE,
    PRICE,
    machines,
    purchase_operation,
    removal_operation,
    replacement,
)

OFF = Consolidation()
EMPTY: dict[str, Any] = {"unneeded": 7200.0}


class Consolidates:
    """Stands in for the search: it wants to replace the named nodes by one node of group s, and
    notes what it was given."""

    def __init__(self, *wanted: str) -> None:
        self.wanted, self.taken, self.open = wanted, frozenset[str](), set[str]()

    def __call__(
        self,
        context: DisruptionContext,
        commands: Sequence[DisruptionCommand],
        nodes: Mapping[str, NodeMemory],
    ) -> ConsolidationResult:
        """See consolidate."""
        state, simulated = context.state, context.simulated
        self.taken = context.removal_limits.taken
        self.open = {name for name, row in simulated.table.index.items() if simulated.open[row]}
        by_name = {node.name: node for node in state.snapshot.nodes}

        def move(names: Sequence[str], cost: int, **purchases: int) -> JudgedMove:
            evict = {name: tuple(pod.key for pod in state.occupancy.on(name)) for name in names}
            removals = tuple(
                SimulatedRemoval(by_name[name], state.group_of[name], evict[name], {})
                for name in names
            )
            return JudgedMove(removals, purchases, PRICE * len(names), cost, 3.0, 1, 1.0, "m")

        advanced = advance(
            state,
            simulated,
            context.removal_limits,
            move,
            lambda row: move(row.nodes, row.cost, s=1),
            reservation=context.reservation,
            proposals=[move(self.wanted, COST, s=1)] if self.wanted else [],
        )
        return ConsolidationResult(
            advanced.commands,
            ConsolidationReport("full"),
            advanced.rows,
            state.memory.consolidation,
            dict(nodes),
            softly_tainted(advanced.rows.values()),
        )


def decided(
    build: ClusterBuilder,
    *rows: Replacement,
    consolidation: Consolidation = FULL,
    memory: Memory | None = None,
    unneeded: float | None = None,
    prices: NodePrices | None = None,
    now: float = NOW,
    **options: Any,
) -> tuple[Plan, Memory]:
    """The plan and the next memory."""
    policy = Policy(
        name="test",
        mode=Mode.ACTIVE,
        options=msgspec.structs.replace(Options(), **options),
        consolidation=consolidation,
        prices=prices,
    )
    known = msgspec.structs.replace(memory or Memory(), replacements={row.id: row for row in rows})
    return plan_cluster(build.snapshot(), policy, known, now, 0, assume_unneeded_for=unneeded)


def search(monkeypatch: pytest.MonkeyPatch, *wanted: str) -> Consolidates:
    """Put a stand-in in the place of the search."""
    added = Consolidates(*wanted)
    monkeypatch.setattr(planner, "consolidate", added)
    return added


def test_cons_57_node_of_a_replacement_is_not_removed_for_another_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search(monkeypatch)
    build = machines("a", "b", new=1)
    free, _ = decided(build, **EMPTY, max_drain_parallelism=5)
    assert {removal.node for removal in free.removals} >= {"s-0"}
    row = replacement("a", state=ReplacementState.BUYING)
    memory = Memory(
        operations=(purchase_operation(),),
        nodes={"a": NodeMemory(unneeded_since=NOW - 300.0, confirmed_at=NOW - 20.0)},
    )
    plan, after = decided(build, row, memory=memory, **EMPTY)
    assert plan.removals == ()
    assert stays(plan)["a"] == stays(plan)["s-0"] == "InReplacement"
    assert after.nodes["a"] == NodeMemory(unneeded_since=NOW - 280.0, confirmed_at=NOW), (
        "its timer stands still"
    )


def test_node_in_removal_says_so_although_a_replacement_has_it() -> None:
    row = replacement("a", state=ReplacementState.DRAINING, removals={"a": "remove-a"})
    memory = Memory(operations=(removal_operation("a"),))
    plan, _ = decided(machines("a", new=1), row, memory=memory)
    assert stays(plan)["a"] == "CurrentlyBeingDeleted"


def test_pods_of_unneeded_nodes_are_not_moved_to_nodes_of_a_replacement() -> None:
    build = machines("a", "b", new=1)
    row = replacement(
        "a",
        state=ReplacementState.WAITING,
        purchases=(PurchasedNodes("s", 1, COST, GROW, ("s-0",)),),
    )
    plan, _ = decided(build, row, **EMPTY)
    assert plan.removals == ()
    assert stays(plan)["b"] == "NoPlaceToMovePods"


def test_rows_advance_without_a_method_that_judges_them() -> None:
    plan, after = decided(
        machines("a"), replacement(state=ReplacementState.BUYING, ends={GROW: "no stock"})
    )
    assert after.replacements["r1"].state is ReplacementState.FAILED
    _, after = decided(
        machines("a"), replacement(state=ReplacementState.WAITING), consolidation=OFF
    )
    assert after.replacements["r1"].state is ReplacementState.FAILED
    assert plan.operations == ()


def test_plan_buys_for_a_replacement_and_its_row_knows_the_operation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search(monkeypatch, "a")
    consolidation = msgspec.structs.replace(FULL, confirm_after=0.0)
    plan, after = decided(
        machines("a"), consolidation=consolidation, prices=NodePrices(cpu=0.05, currency="EUR")
    )
    (row,) = after.replacements.values()
    (up,) = plan.scale_ups
    assert (up.group, up.from_size, up.to_size, up.pods, up.replacement) == ("s", 0, 1, (), row.id)
    (operation,) = plan.operations
    spec = operation.spec
    assert (spec.kind, spec.group, spec.from_size, spec.to_size) == (
        OperationKind.SCALE_UP,
        "s",
        0,
        1,
    )
    assert (spec.replacement, spec.price, spec.currency, spec.reason) == (
        row.id,
        100_000,
        "EUR",
        "",
    )
    assert row.purchases == (PurchasedNodes("s", 1, COST, spec.id),)
    assert row.state is ReplacementState.BUYING
    assert plan.id != decided(machines("a"))[0].id


def test_removals_of_a_replacement_start_after_its_purchases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search(monkeypatch)
    plan, after = decided(machines("a", new=1), replacement(), prices=NodePrices(cpu=0.05))
    (operation,) = plan.operations
    spec = operation.spec
    assert (spec.kind, [target.node for target in spec.targets]) == (
        OperationKind.DELETE_NODES,
        ["a"],
    )
    assert (spec.after, spec.replacement, spec.reason, spec.price) == (
        (GROW,),
        "r1",
        "consolidation",
        200_000,
    )
    assert after.replacements["r1"].removals == {"a": spec.id}
    assert after.replacements["r1"].state is ReplacementState.DRAINING
    assert [(removal.reason, removal.replacement) for removal in plan.removals] == [
        ("consolidation", "r1")
    ]


def test_removal_of_an_unneeded_node_has_a_price_and_no_reason() -> None:
    build = machines("b", new=1)
    build.groups[1] = msgspec.structs.replace(build.groups[1], price=0.03, currency="CHF")
    plan, _ = decided(build, **EMPTY)
    (spec,) = (operation.spec for operation in plan.operations)
    assert (spec.group, spec.price, spec.currency) == ("s", 30_000, "CHF")
    assert (spec.reason, spec.replacement, spec.after) == ("", "", ())


def test_purchase_waits_if_its_group_grows_for_pods_in_the_same_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search(monkeypatch, "a")
    build = machines("a")
    build.groups[0] = msgspec.structs.replace(build.groups[0], max=1)
    build.pending(3, "1500m")
    plan, after = decided(build, consolidation=msgspec.structs.replace(FULL, confirm_after=0.0))
    assert [(up.group, up.replacement) for up in plan.scale_ups] == [("s", "")]
    assert [row.state for row in after.replacements.values()] == [ReplacementState.PROPOSED]


@pytest.mark.parametrize(
    ("state", "softens"),
    [
        (ReplacementState.PROPOSED, True),
        (ReplacementState.BUYING, True),
        (ReplacementState.WAITING, True),
        (ReplacementState.FAILED, False),
    ],
)
def test_old_nodes_have_the_soft_taint_until_they_are_removed(
    monkeypatch: pytest.MonkeyPatch, state: ReplacementState, softens: bool
) -> None:
    search(monkeypatch)
    row = replacement(state=state)
    if state is ReplacementState.FAILED:
        row = failed(row, NO_PLACE, NOW - 60.0)
    memory = Memory(operations=(purchase_operation(),) if state is ReplacementState.BUYING else ())
    consolidation = msgspec.structs.replace(FULL, confirm_after=1e6)
    soft = Taint(DELETION_CANDIDATE, "PreferNoSchedule", str(int(NOW) - 60))
    plain, tainted = machines("a"), machines("a")
    tainted.nodes[0] = msgspec.structs.replace(tainted.nodes[0], taints=(soft,))
    marks = [
        [
            (mark.node, mark.action)
            for mark in decided(build, row, memory=memory, consolidation=consolidation)[0].marks
        ]
        for build in (plain, tainted)
    ]
    assert marks == ([[("a", "soften")], []] if softens else [[], [("a", "unsoften")]])


def waiting_for_their_timer() -> tuple[ClusterBuilder, Memory]:
    """Two nodes whose pods have room on a third one; only `b` has been unneeded for long enough."""
    nodes = {
        "a": NodeMemory(unneeded_since=NOW - 60.0, confirmed_at=NOW - 20.0),
        "b": NodeMemory(unneeded_since=NOW - 700.0, confirmed_at=NOW - 20.0),
    }
    return machines("a", "b").node("home", "16", "64Gi"), Memory(nodes=nodes)


def test_node_that_only_waits_for_its_timer_is_a_destination_of_consolidation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build, memory = waiting_for_their_timer()
    added = search(monkeypatch)
    plan, _ = decided(build, memory=memory)
    assert [removal.node for removal in plan.removals] == ["b"]
    assert plan.unneeded == ("a", "b")
    assert added.open == {"a", "home"}
    assert added.taken == {"b"}


def test_consolidation_that_is_off_repeats_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    build, memory = waiting_for_their_timer()
    expected, _ = decided(build, memory=memory)
    monkeypatch.setattr(TrialResult, "keep", None)
    plan, _ = decided(build, memory=memory, consolidation=OFF)
    assert plan.removals == expected.removals
    with pytest.raises(TypeError):
        decided(build, memory=memory)


def test_memory_of_consolidation_is_bounded_and_gone_when_it_is_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search(monkeypatch)
    moves: dict[str, tuple[tuple[float, int], ...]] = {
        f"default/ReplicaSet/{at:05d}": ((NOW - at, 1),) for at in range(MOST_OWNERS + 10)
    }
    moves["default/ReplicaSet/old"] = ((NOW - 86_400.0, 3), (NOW - 86_399.0, 2))
    moves["default/ReplicaSet/older"] = ((NOW - 90_000.0, 3),)
    memory = Memory(
        consolidation=ConsolidationMemory(digest="d", searched_at=NOW - 5.0, moves=moves)
    )
    _, after = decided(machines("a"), memory=memory)
    assert len(after.consolidation.moves) == MOST_OWNERS
    assert after.consolidation.digest == "d"
    few = Memory(
        consolidation=ConsolidationMemory(moves={name: moves[name] for name in list(moves)[-3:]})
    )
    _, after = decided(machines("a"), memory=few)
    assert after.consolidation.moves["default/ReplicaSet/old"] == ((NOW - 86_399.0, 2),)
    assert "default/ReplicaSet/older" not in after.consolidation.moves
    _, after = decided(machines("a"), memory=memory, consolidation=OFF)
    assert msgspec.json.encode(after.consolidation) == b"{}"
    assert b"consolidation" not in msgspec.json.encode(after)


def test_mode_shadow_saves_no_row_and_no_taint(monkeypatch: pytest.MonkeyPatch) -> None:
    search(monkeypatch, "a")
    shadow = msgspec.structs.replace(FULL, mode=ConsolidationMode.SHADOW, confirm_after=0.0)
    plan, after = decided(machines("a"), consolidation=shadow)
    assert (plan.operations, plan.marks, after.replacements) == ((), (), {})
