"""Consolidation as people and programs read it: moves, pools, reasons, and how
far replacements have come.

The sentences are the same in commands, on the page and in notifications. Money is per hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import Memory, Replacement, ReplacementState
from chalicelib.model.plan import (
    ConsolidationReport,
    HorizonReport,
    Move,
    NodeVerdict,
    Plan,
    PoolCost,
)
from chalicelib.model.reason import Reason
from chalicelib.policy.settings.consolidation import ConsolidationMode
from chalicelib.reasons.text import disruption_words, sentence
from chalicelib.reasons.words import counted, money, some
from chalicelib.views.cluster_view import Instant, node_names

_NAMES: Mapping[str, str] = MappingProxyType({})
_MILLION = 1_000_000
STATES: Mapping[str, str] = MappingProxyType(
    {
        "shadow": "shadow: nothing is done",
        "wanted": "waits",
        "begins": "begins now",
        ReplacementState.PROPOSED.value: "proposed: a later pass must want it, too",
        ReplacementState.BUYING.value: "buying new nodes",
        ReplacementState.WAITING.value: "waiting until the new nodes are ready",
        ReplacementState.DRAINING.value: "draining the old nodes",
        ReplacementState.FAILED.value: "failed",
    }
)
"""What the state of a move, or of its replacement, means."""


# -- moves


def action(move: Move, names: Mapping[str, str] = _NAMES) -> str:
    """Return what a move does: `Replace a, b by 1 of s`. names: of groups, by id."""
    if not move.purchases:
        return f"Drain {some(move.nodes)} into room that exists"
    counts = [(purchase.group, purchase.nodes) for purchase in move.purchases]
    return f"Replace {some(move.nodes)} by {_nodes_of(counts, names)}"


def _nodes_of(counts: Iterable[tuple[str, int]], names: Mapping[str, str]) -> str:
    return ", ".join(f"{count} of {names.get(group, group)}" for group, count in counts)


def worth(move: Move) -> str:
    """Return what a move brings: `saves 0.10 EUR an hour (50 %), score 0.55`."""
    share = f" ({move.saves / move.price:.0%})" if move.price > 0 else ""
    verb = "would save" if move.state == "shadow" else "saves"
    return f"{verb} {money(move.saves, move.currency)} an hour{share}, score {move.score:.2f}"


def state_words(state: str) -> str:
    """Return what a state means; the state itself, if this release does not know it."""
    return STATES.get(state, state)


def summary(consolidation: ConsolidationReport) -> str:
    """Return what consolidation does in one sentence."""
    moves = consolidation.moves
    if not moves:
        if consolidation.pools and not any(pool.price > 0 for pool in consolidation.pools):
            return "Consolidation knows no price of a node, so it does nothing (spec.prices)."
        return "Consolidation finds no move that is worth it."
    sums: dict[str, float] = {}
    for move in moves:
        sums[move.currency] = sums.get(move.currency, 0.0) + move.saves
    amounts = " and ".join(money(amount, currency) for currency, amount in sorted(sums.items()))
    saving = f"{amounts} an hour by {counted(len(moves), 'move')}"
    if consolidation.mode == ConsolidationMode.SHADOW.value:
        return f"Consolidation would save {saving} (mode shadow: nothing is done)."
    return f"Consolidation saves {saving}."


def pool_row(pool: PoolCost) -> tuple[str, ...]:
    """Return a pool, its price, its disruption, what one disruption must bring, and its nodes
    without a price. A pool of nodes without a price has none, which is not a price of 0."""
    price = "unknown"
    disruption = "-"
    rate = "-"
    if pool.price > 0:
        price = money(pool.price, pool.currency)
        disruption = f"{pool.disruption:g}"
        rate = money(pool.rate, pool.currency)
    return pool.pool, price, disruption, rate, str(pool.unpriced or "-")


# -- the horizon


class HorizonView(msgspec.Struct, frozen=True):
    """Where consolidation ends. leaving, staying: nodes that are there; gone: those that have left
    since it was decided. would: "would " where nothing is done, else ""."""

    report: HorizonReport
    leaving: int
    staying: int
    gone: int
    would: str

    @property
    def words(self) -> str:
        """Return it as a sentence."""
        of = self.leaving + self.staying
        marked = f", {self.report.marked} marked" if not self.would else ""
        gone = f", {self.gone} gone already" if self.gone else ""
        now = money(self.report.price, self.report.currency)
        return (
            f"Nodes that {self.would}leave: {self.leaving} of {of}{marked}{gone}; the others "
            f"{self.would}stay. Price at the end: {self.end} an hour, now {now}."
        )

    @property
    def end(self) -> str:
        """Return the price at the end, per hour."""
        return money(self.report.end, self.report.currency)


def horizon_view(plan: Plan | None) -> HorizonView | None:
    """Return where consolidation ends, None where that is not decided."""
    if plan is None or plan.consolidation is None or plan.consolidation.horizon is None:
        return None
    horizon = plan.consolidation.horizon
    leaving = len(set(horizon.going).intersection(node_names(plan)))
    staying = plan.health.registered - leaving
    would = "would " if plan.consolidation.mode == ConsolidationMode.SHADOW.value else ""
    gone = horizon.gone + len(horizon.going) - leaving
    return HorizonView(horizon, leaving, staying, gone, would)


# -- nodes


def move_of(plan: Plan, node: str) -> Move | None:
    """Return the move by which a node goes."""
    moves = plan.consolidation.moves if plan.consolidation is not None else ()
    return next((move for move in moves if node in move.nodes), None)


def is_going(plan: Plan, node: str) -> bool:
    """Return whether a node goes by a move that is carried out."""
    move = move_of(plan, node)
    return move is not None and move.state != ConsolidationMode.SHADOW.value


def verdict_of(plan: Plan, node: str) -> NodeVerdict | None:
    """Return why a node is not consolidated."""
    verdicts = plan.consolidation.verdicts if plan.consolidation is not None else ()
    return next((verdict for verdict in verdicts if verdict.node == node), None)


def reasons_by_node(plan: Plan | None) -> dict[str, Reason]:
    """Return why each node is not consolidated."""
    if plan is None or plan.consolidation is None:
        return {}
    return {verdict.node: verdict.reason for verdict in plan.consolidation.verdicts}


# -- replacements


class ReplacementView(msgspec.Struct, frozen=True, rename="camel"):
    """A replacement. nodes: old ones that are left; gone: those that are not. buys: nodes by group;
    new_nodes: those of them that have registered. done: how many of its steps (bought, ready, each
    old node) are over, of how many. why, until, failures: of a failed one, and its earlier
    failures. reason: why its nodes go."""

    id: str
    state: str
    nodes: tuple[str, ...]
    gone: tuple[str, ...]
    buys: dict[str, int]
    new_nodes: tuple[str, ...]
    saves: float
    score: float
    proposed_at: Instant
    bought_at: Instant
    since: Instant
    until: Instant
    failures: int
    why: str
    operations: tuple[str, ...]
    done: int
    of: int
    reason: str

    @property
    def purpose(self) -> str:
        """Return why its nodes go, as the end of a sentence; "" where it is for its saving."""
        if self.reason == DisruptionReason.CONSOLIDATION.value:
            return ""
        return disruption_words(self.reason)

    @property
    def is_over(self) -> bool:
        """Return whether it has been given up."""
        return self.state == ReplacementState.FAILED.value


_BEGUN = {ReplacementState.BUYING: 0, ReplacementState.WAITING: 1, ReplacementState.DRAINING: 2}
"""Steps that are over before the first old node goes: bought, ready."""


def replacement_view(replacement: Replacement) -> ReplacementView:
    """Return a replacement."""
    bought: dict[str, int] = {}
    for purchase in replacement.purchases:
        bought[purchase.group] = bought.get(purchase.group, 0) + purchase.nodes
    purchases = (purchase.operation for purchase in replacement.purchases)
    operations = (*purchases, *replacement.removals.values())
    removed = len(replacement.gone)
    steps = 2 + len(replacement.nodes) + removed
    return ReplacementView(
        replacement.id,
        replacement.state.value,
        replacement.nodes,
        replacement.gone,
        bought,
        replacement.new_nodes,
        (replacement.price - replacement.cost) / _MILLION,
        round(replacement.score, 4),
        Instant(replacement.proposed_at),
        Instant(replacement.bought_at),
        Instant(replacement.since),
        Instant(replacement.until),
        replacement.times,
        sentence(replacement.why) if replacement.why is not None else "",
        tuple(name for name in operations if name),
        _BEGUN.get(replacement.state, 0) + removed,
        steps,
        replacement.reason.value,
    )


def replacement_views(memory: Memory) -> tuple[ReplacementView, ...]:
    """Return all replacements, those under way first, the oldest first."""
    ordered = sorted(memory.replacements.values(), key=_age_order)
    return tuple(map(replacement_view, ordered))


def _age_order(replacement: Replacement) -> tuple[bool, float, str]:
    is_failed = replacement.state is ReplacementState.FAILED
    return is_failed, replacement.proposed_at, replacement.id


def replacements_of(memory: Memory, node: str) -> tuple[ReplacementView, ...]:
    """Return the replacements to which a node belongs, as an old or a new one."""
    return tuple(
        view
        for view in replacement_views(memory)
        if node in (*view.nodes, *view.gone, *view.new_nodes)
    )


def replacement_action(view: ReplacementView, names: Mapping[str, str] = _NAMES) -> str:
    """Return what a replacement does: `a is replaced by 1 of s`."""
    nodes = (*view.nodes, *view.gone)
    verb = "is" if len(nodes) == 1 else "are"
    bought = _nodes_of(sorted(view.buys.items()), names)
    why = f" {view.purpose}" if view.purpose else ""
    return f"{some(nodes)} {verb} replaced by {bought}{why}"
