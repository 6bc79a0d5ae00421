"""The groups that Outscaler makes itself: their names in the demonstration, and what the chapters
about them must have shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from chalicelib.reasons.words import counted
from infra.demo.console import Ledger, names
from infra.demo.fixture import CELLAR, SOLD_OUT, STUDIO

Check = Callable[[Ledger], tuple[bool, str]]


def of_pool(groups: Iterable[str], pool: str) -> list[str]:
    """Return the groups of a managed pool, by their names in the demonstration."""
    return sorted(group for group in groups if group.partition(" ")[0] == pool)


def managed_pool_expectations() -> tuple[tuple[str, Check], ...]:
    """Return what the chapters must have shown."""
    return (
        ("pods of odd shapes ran on groups of two managed pools, one at each vendor", _ran),
        (
            "a sold-out machine type was replaced by the next one, in the same pass or the next",
            _next,
        ),
        (
            "a function was killed between a Nodepool's creation and its answer, and one exists",
            _made_once,
        ),
        ("empty Nodepools stayed until a person pruned them, and no server stayed", _pruned),
    )


def _ran(ledger: Ledger) -> tuple[bool, str]:
    ran = ledger.opened.ran
    right = bool(of_pool(ran, STUDIO) and of_pool(ran, CELLAR))
    return right, _amounts(ran)


def _next(ledger: Ledger) -> tuple[bool, str]:
    right = all(
        ledger.refused[first] > 0 == ledger.bought[first]
        and ledger.bought[second] == ledger.refused[first]
        and first in ledger.second_choice
        for first, second in SOLD_OUT.items()
    )
    seen = "; ".join(
        f"{first}: {ledger.why.get(first, 'not refused')}, {second} +{ledger.bought[second]}, "
        f"{ledger.second_choice.get(first, 'not known to a pass')}"
        for first, second in SOLD_OUT.items()
    )
    return right, seen


def _made_once(ledger: Ledger) -> tuple[bool, str]:
    own = ledger.opened
    right = set(own.made.values()) == {1} and own.existing == own.made
    killed = f"killed for {names(own.interrupted)}" if own.interrupted else "nothing killed"
    made = ", ".join(f"{group} {number}" for group, number in sorted(own.existing.items()))
    return right and len(own.interrupted) == own.kills, f"{killed}; Nodepools: {made or 'none'}"


def _pruned(ledger: Ledger) -> tuple[bool, str]:
    own = ledger.opened
    right = bool(own.kept) and not any(own.kept.values()) and own.is_pruned
    stayed = counted(len(own.kept), "empty Nodepool")
    rest = f"{counted(own.servers, 'server')} then, {counted(own.left, 'Nodepool')} at the end"
    return right and not (own.servers or own.left), f"{stayed}, {rest}"


def _amounts(counts: Counter[str]) -> str:
    return ", ".join(f"{group} {number}" for group, number in sorted(counts.items())) or "nothing"
