"""Prints the results of rules, from the verdicts in the journal's plans, with the arithmetic that a person can check.

The journal contains a plan if something in it is new. Each reason why a rule does nothing is printed once, because most
reasons recur in every pass.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from chalicelib.model.plan import Plan, RuleVerdict
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.reasons import text
from infra.demo.console import Say, count, names
from infra.demo.counters import Acted, Ledger
from infra.demo.fixture import BUSY_RULE, THRESHOLDS

_WRONG = frozenset({ReasonCode.RULE_INVALID, ReasonCode.RULE_NO_GROUP, ReasonCode.RULE_EXPIRED})


def clock_time(at: float) -> str:
    """Return a time in UTC as `20:47`."""
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%H:%M")


class Rulings:
    """tell() reports those of a plan. short: the name of a group or pool by its id. named: replaces ids in a text by
    names."""

    def __init__(self, ledger: Ledger, say: Say, short: Callable[[str], str], named: Callable[[str], str]) -> None:
        self._ledger, self._say, self._short, self._named = ledger, say, short, named
        self._told: set[tuple[str, str]] = set()

    def tell(self, plan: Plan) -> None:
        """Record and print what rules did."""
        for note in plan.notes:
            if note.code is ReasonCode.RULE_OBJECT_INVALID:
                self._ledger.rules_wrong.append(text.sentence(note))
        for verdict in plan.rules:
            self._ledger.rules_seen.add(key_of(verdict))
            if verdict.reason is not None and verdict.reason.code in _WRONG:
                self._ledger.rules_wrong.append(text.sentence(verdict.reason))
            if verdict.nodes:
                self._tell_action(plan, verdict)
            elif verdict.reason is not None:
                self._tell_silence(verdict, verdict.reason)

    def _tell_action(self, plan: Plan, verdict: RuleVerdict) -> None:
        key = key_of(verdict)
        groups = tuple(self._short(up.group) for up in plan.scale_ups if key in up.rules)
        ready = sum(group.ready for group in plan.groups if group.group.startswith(f"{verdict.pool}/"))
        made = Acted(verdict.rule, plan.at, groups, verdict.nodes, verdict.due, verdict.rate, ready)
        again = any(each.due == made.due > 0 and each.rule == made.rule for each in self._ledger.acted)
        self._ledger.acted.append(made)
        if verdict.due:
            self._ledger.beside.update(
                {
                    each.rule: each.rate
                    for each in plan.rules
                    if not again and each.pool == verdict.pool and each.rate is not None
                }
            )
        words = _of_cron(made, again=again) if verdict.due else _of_metric(made, self._short(verdict.pool))
        self._say("outscaler", f"rule {verdict.rule}: {words}")

    def _tell_silence(self, verdict: RuleVerdict, reason: Reason) -> None:
        if (said := (key_of(verdict), reason.code.value)) in self._told:
            return
        self._told.add(said)
        waits = f"due at {clock_time(verdict.due)}, " if verdict.due else ""
        rate = f"; cpu of {self._short(verdict.pool)} is at {verdict.rate:.1f} %" if verdict.rate is not None else ""
        at = reason.params.get("until") if reason.code is ReasonCode.RULE_NOT_DUE else None
        told = f"due at {clock_time(float(at))}" if at else text.sentence(reason)
        source = f" of {verdict.source}" if verdict.source else ""
        self._say("outscaler", f"rule {verdict.rule}{source}: {waits}{self._named(told)}{rate}")


def key_of(verdict: RuleVerdict) -> str:
    """Return Rule.key of model/scaling_rules."""
    return f"{verdict.source}/{verdict.rule}" if verdict.source else verdict.rule


def _of_cron(made: Acted, *, again: bool) -> str:
    if again:
        return (
            f"of what was due at {clock_time(made.due)}, {count(made.nodes, 'node')} did not come: asks "
            f"{names(made.groups)} for it"
        )
    return f"due at {clock_time(made.due)}, adds {count(made.nodes, 'node')}, of {names(made.groups)}"


def _of_metric(made: Acted, pool: str) -> str:
    rates = [made.rate_with(more) for more in (0, made.nodes, made.nodes - 1)]
    now, after, less = (f"{rate:.1f} %" for rate in rates)
    return (
        f"pods ask for {now} of the cpu of {count(made.ready, 'node')} of {pool}, more than "
        f"{THRESHOLDS.get(made.rule, 0)} %: adds {count(made.nodes, 'node')}, which makes it {after}"
        + (f"; one less would leave {less}" if made.rule == BUSY_RULE else "")
    )
