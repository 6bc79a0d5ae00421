"""The expectations for rules in the demonstration; expectations.py has the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from infra.demo.counters import Acted, Ledger
from infra.demo.fixture import ABOVE, BUSY_RULE, CRON_RULE, METRIC_ABOVE, METRIC_RULE, RULE_OBJECT

Check = Callable[[Ledger], tuple[bool, str]]


def rule_expectations(later: Mapping[str, str]) -> tuple[tuple[str, Check], ...]:
    """Return them. later: the sold-out flavour -> its substitute."""
    return (
        ("the vendor's own example of a HorizontalNodeAutoscaler is in force", _in_force),
        ("the cron rule ran once, at its minute, and the cpu rule, also true, did not run", _once),
        ("a sold-out flavour's nodes came from the next", lambda led: _from_the_next(led, later)),
        ("the cpu rule added what brings the rate below its threshold, and no more", _just_enough),
    )


def _in_force(ledger: Ledger) -> tuple[bool, str]:
    keys = {f"{RULE_OBJECT}/{CRON_RULE}", f"{RULE_OBJECT}/{METRIC_RULE}"}
    seen = ", ".join(sorted(key.rpartition("/")[2] for key in keys & ledger.rules_seen)) or "nothing"
    return keys <= ledger.rules_seen and not ledger.rules_wrong, ledger.rules_wrong[0] if ledger.rules_wrong else seen


def _once(ledger: Ledger) -> tuple[bool, str]:
    """Check that the cron rule acted for one occurrence and added its number of nodes, and that the cpu rule added
    none, although its rate was above the threshold when the cron rule acted."""
    cron, rate = _of(ledger, CRON_RULE), ledger.beside.get(METRIC_RULE, 0.0)
    came = sum(each.nodes for each in cron) - sum(ledger.refused[group] for each in cron for group in each.groups)
    right = (
        bool(cron)
        and {each.due for each in cron} == {ledger.strike}
        and came == 1
        and not _of(ledger, METRIC_RULE)
        and rate > METRIC_ABOVE
    )
    late = cron[0].at - ledger.strike if cron else 0.0
    return right, (
        f"{CRON_RULE} {late:.0f} s after it was due, +{came}; {METRIC_RULE} +"
        f"{sum(each.nodes for each in _of(ledger, METRIC_RULE))} at {rate:.1f} %"
    )


def _from_the_next(ledger: Ledger, later: Mapping[str, str]) -> tuple[bool, str]:
    right = all(
        ledger.refused[first] > 0 == ledger.bought[first] and ledger.bought[second] == ledger.refused[first]
        for first, second in later.items()
    )
    seen = "; ".join(
        f"{first}: {ledger.why.get(first, 'not refused')}, {second} +{ledger.bought[second]}"
        for first, second in later.items()
    )
    return right, seen or "nothing"


def _just_enough(ledger: Ledger) -> tuple[bool, str]:
    made = _of(ledger, BUSY_RULE)
    if len(made) != 1:
        return False, f"{BUSY_RULE} acted {len(made)} times"
    (acted,) = made
    after, less = acted.rate_with(acted.nodes), acted.rate_with(acted.nodes - 1)
    return after < ABOVE <= less, f"{acted.rate or 0.0:.1f} %, +{acted.nodes}: {after:.1f} %; one less: {less:.1f} %"


def _of(ledger: Ledger, rule: str) -> list[Acted]:
    return [each for each in ledger.acted if each.rule == rule]
