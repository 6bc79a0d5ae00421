"""Prints what consolidation would do and does, and the bill before and after,
as the command has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from chalicelib.journal.savings import SavingsEntry
from chalicelib.model.cluster_bill import MILLION, ClusterBill
from chalicelib.model.plan import Move, Plan
from chalicelib.policy.settings.consolidation import Consolidation
from chalicelib.reasons import text
from chalicelib.reasons.words import counted
from chalicelib.views.cost_view import PARTS, BillView, cost_view
from infra.demo.console import Consolidated, Ledger, Say, names
from infra.demo.fixture import DEAR, LEAN, LEGACY, SEARCH

SHADOW = "shadow"


class MoveNarrator:
    """tell() reports the moves of a plan, each once per state. short: the
    name of a group by its id."""

    def __init__(self, consolidated: Consolidated, say: Say, short: Callable[[str], str]) -> None:
        self._consolidated, self._say, self._short = consolidated, say, short
        self._told: dict[tuple[str, ...], set[str]] = {}

    def tell(self, plan: Plan) -> None:
        if plan.consolidation is None:
            return
        for move in plan.consolidation.moves:
            told = self._told.setdefault(move.nodes, set())
            if move.state in told:
                continue
            if move.state == SHADOW:
                groups = tuple(self._short(purchase.group) for purchase in move.purchases)
                self._consolidated.shadowed.append((len(move.nodes), groups))
            worth = "" if told else self._worth(move)
            told.add(move.state)
            self._say("outscaler", f"consolidation, {move.state}: {self._words(move)}{worth}")
        self._consolidated.stays = {
            verdict.node: text.sentence(verdict.reason) for verdict in plan.consolidation.verdicts
        }

    def _words(self, move: Move) -> str:
        nodes = names(move.nodes)
        bought = names(
            f"{purchase.nodes} of {self._short(purchase.group)}" for purchase in move.purchases
        )
        return (
            f"replace {nodes} by {bought}"
            if move.purchases
            else f"drain {nodes} into room that exists"
        )

    @staticmethod
    def _worth(move: Move) -> str:
        score = f"score {move.score:.2f}, needs more than {1 / Consolidation().aggressiveness:g}"
        return (
            f"; saves {move.saves:.2f} {move.currency} an hour for a disruption of "
            f"{move.disruption:g}, {score}"
        )


def is_of(bill: ClusterBill, sizes: Mapping[str, int], short: Callable[[str], str]) -> bool:
    """Return whether the bill was made when the groups had these sizes."""
    machines = Counter({short(row.name): row.machines for own in bill.bills for row in own.groups})
    return all(machines[name] == size for name, size in sizes.items())


def bill_lines(bill: ClusterBill, short: Callable[[str], str]) -> Iterator[str]:
    """Yield what a cluster costs: in total, for what, by group, and at least. short: the
    name of a group by its id."""
    for own in cost_view(bill, None).bills:
        machines = counted(sum(row.machines for row in own.groups), "machine")
        yield (
            f"outscaler cost: {own.parts.paid:.2f} {own.currency} per hour for {machines}: "
            f"{_parts(own)}"
        )
        groups = (f"{short(row.name)} {row.parts.paid:.2f}" for row in own.groups)
        yield f"outscaler cost: by group {', '.join(groups)}"
        if own.bound is not None and own.efficiency is not None:
            yield (
                f"outscaler cost: these pods need at least {own.bound:.2f}, "
                f"{own.efficiency:.0%} of the price"
            )


def _parts(bill: BillView) -> str:
    amounts = ((words, getattr(bill.parts, name)) for name, words in PARTS.items())
    return "; ".join(f"{words} {amount:.2f}" for words, amount in amounts if amount >= 0.005)


def savings_now(
    entries: Iterable[SavingsEntry], now: float, short: Callable[[str], str]
) -> Counter[str]:
    """Return what ended operations on the groups of these chapters save per hour
    now, in millionths, by kind."""
    rates = Counter[str]()
    for entry in entries:
        if short(entry.pool) in DEAR and entry.begin <= now < entry.end:
            rates[entry.kind] += entry.rate
    return rates


def savings_line(rates: Counter[str]) -> str:
    """Return them as one line."""
    kinds = ", ".join(f"by {kind} {rate / MILLION:.2f}" for kind, rate in sorted(rates.items()))
    return f"outscaler cost: saved per hour now {sum(rates.values()) / MILLION:.2f} ({kinds})"


Check = Callable[[Ledger], tuple[bool, str]]


def consolidation_expectations() -> tuple[tuple[str, Check], ...]:
    """Return what the chapters must have shown."""
    return (
        ("in shadow mode, consolidation showed both moves and did nothing", _shadowed),
        (
            "a cheaper node was bought and ready before the dear one was drained, and once",
            _replaced,
        ),
        ("a node was drained into room that existed", _drained),
        ("the bill fell by what the moves were to save, and the ledger says so", _paid_less),
        ("each node that stays has a reason", _explained),
    )


def _shadowed(ledger: Ledger) -> tuple[bool, str]:
    own = ledger.consolidated
    right = sorted(own.shadowed) == [(1, ()), (1, (LEAN,))] and own.changes_in_shadow == 0
    return (
        right,
        f"{counted(len(own.shadowed), 'move')}, {counted(own.changes_in_shadow, 'change')}",
    )


def _replaced(ledger: Ledger) -> tuple[bool, str]:
    steps = [
        change for change in ledger.consolidated.changes if change.split()[1] in (LEAN, LEGACY)
    ]
    return steps == [f"asked {LEAN}", f"ready {LEAN}", f"drained {LEGACY}"], ", ".join(
        steps
    ) or "nothing"


def _drained(ledger: Ledger) -> tuple[bool, str]:
    steps = [change for change in ledger.consolidated.changes if change.split()[1] == SEARCH]
    return steps == [f"drained {SEARCH}"], ", ".join(steps) or "nothing"


def _paid_less(ledger: Ledger) -> tuple[bool, str]:
    own = ledger.consolidated
    less = own.before - own.after
    right = less > 0 and abs(less - own.saves) < 1e-6 and own.after >= own.bound - 1e-6
    return (
        right,
        (
            f"{own.before:.2f} ► {own.after:.2f} an hour, at least {own.bound:.2f}; the ledger "
            f"says {own.saves:.2f}"
        ),
    )


def _explained(ledger: Ledger) -> tuple[bool, str]:
    stays = ledger.consolidated.stays
    return bool(stays) and all(
        stays.values()
    ), f"{counted(len(stays), 'node')}; {next(iter(stays.values()), 'none')}"
