"""The expectations of the demonstration, as a table that is checked at its end (rules: rule_expectations.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from infra.demo.console import count
from infra.demo.counters import AT_ONCE, CALLED_OFF, QUIET_WRITES, Ledger
from infra.demo.rule_expectations import Check, rule_expectations


@dataclass(frozen=True)
class Expectation:
    """words: the expectation. met: whether it is met. seen: the observation."""

    words: str
    met: bool
    seen: str


def _grown_once(ledger: Ledger) -> tuple[bool, str]:
    """Check that purchases equal what plans wanted minus what vendors lacked. Each group was requested once, plus once
    for each machine of it that never joined."""
    calls = Counter(group for group, before, after in ledger.asked if after > before)
    bought = {group: number for group, number in ledger.bought.items() if number}
    often = all(number == 1 + ledger.lost[group] for group, number in calls.items())
    right = bool(bought) and bought == +(ledger.planned - ledger.refused) and often
    missing = f"; not to be had {_amounts(ledger.refused)}" if ledger.refused else ""
    return right, f"planned {_amounts(ledger.planned)}{missing}; bought {_amounts(ledger.bought)}"


def _of_workers(reasons: str) -> str:
    """Return the most informative of the reasons per group."""
    return next((each for each in reasons.split("; ") if each.startswith("workers")), reasons)


def _ended_well(ledger: Ledger) -> tuple[bool, str]:
    """Check that exactly the operations for unavailable machines fail: each such group's at least once, since a long
    story outlasts its back-off. A removal may find its node in use again."""
    wanted = {"succeeded", "failed"} if ledger.refused else {"succeeded"}
    states = set(ledger.ended) - {CALLED_OFF}
    right = not ledger.open_operations and states == wanted and ledger.failed == set(ledger.refused)
    return right, ", ".join(f"{number} {state}" for state, number in ledger.ended.items())


def _notified(ledger: Ledger, least: int) -> tuple[bool, str]:
    """Check that each failed group has one opening. least: groups whose first choice cannot be had."""
    failed = [notice for notice in ledger.notices if notice.startswith("group.failed open")]
    others = len(ledger.notices) - len(failed)
    right = len(failed) >= least and len(failed) == len(set(failed))
    return right, f"{len(failed)} of failed groups, {count(others, 'other message')}"


def _amounts(counts: Counter[str]) -> str:
    return ", ".join(f"{group} +{number}" for group, number in sorted(counts.items())) or "nothing"


def expectations(
    kills: int, smallest: Mapping[str, int], second: Mapping[str, str], later: Mapping[str, str] = MappingProxyType({})
) -> tuple[tuple[str, Check], ...]:
    """Return the expectations of the demonstration. kills: how often the act function should have crashed. smallest:
    sizes at the end. second: group -> its substitute. later: the same for rules, whose substitutes are bought in a
    later pass."""
    return (
        ("the story came to its end", lambda led: (not led.unfinished, led.unfinished or "it did")),
        ("the webhook asked for a pass", lambda led: (led.woken > 0, f"{led.woken} times")),
        (
            f"act functions were killed between provider call and record, {kills} times",
            lambda led: (len(led.killed) == kills, f"{len(led.killed)} times"),
        ),
        ("nothing was bought twice", _grown_once),
        (
            "every machine became a node, but for the server that never joins and is given back",
            lambda led: (
                sum(led.lost.values()) == led.broken and led.joined + led.lost == led.bought,
                f"{_amounts(led.joined)}; never joined {_amounts(led.lost)}",
            ),
        ),
        (
            "the pod that fits nowhere got a reason",
            lambda led: (bool(led.why_not), _of_workers(led.why_not[0]) if led.why_not else "none"),
        ),
        (
            "what was bought was given back",
            lambda led: (
                led.gone == led.joined and led.sizes == smallest,
                ", ".join(f"{g} {n}" for g, n in led.sizes.items()),
            ),
        ),
        (
            "pods were moved, and their disruption budget was kept",
            lambda led: (
                led.evicted > 0 and led.least_room >= 0,
                f"{count(led.evicted, 'eviction')}, {led.refused_evictions} refused for the moment",
            ),
        ),
        (
            "a first choice cannot be had (no stock, no quota), and the pass that learns it buys the second",
            lambda led: (
                set(led.refused) - set(later) == set(second)
                and list(led.second_choice.values()) == [AT_ONCE] * len(second),
                "; ".join(f"{group}: {led.why.get(group, '')}, {how}" for group, how in led.second_choice.items()),
            ),
        ),
        *rule_expectations(later),
        ("every other operation ended well", _ended_well),
        ("a subscriber was notified once of each group that could not grow", lambda led: _notified(led, len(second))),
        (
            "no dead letters, no function failed",
            lambda led: (not (led.dead_letters or led.errors), led.errors[0] if led.errors else "none"),
        ),
        (
            f"a quiet pass writes at most {QUIET_WRITES} items",
            lambda led: (
                bool(led.quiet_writes) and led.writes_per_quiet_pass <= QUIET_WRITES,
                f"{led.writes_per_quiet_pass:g}",
            ),
        ),
    )


def checked(
    ledger: Ledger,
    kills: int,
    smallest: Mapping[str, int],
    second: Mapping[str, str],
    later: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Expectation, ...]:
    """Return every expectation with its observation."""
    return tuple(Expectation(words, *check(ledger)) for words, check in expectations(kills, smallest, second, later))
