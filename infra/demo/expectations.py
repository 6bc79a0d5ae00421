"""The expectations of the demonstration, as a table that is checked at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from rich.table import Table

from chalicelib.reasons.words import counted
from infra.demo.console import AT_ONCE, CALLED_OFF, QUIET_WRITES, Acted, Ledger, span
from infra.demo.consolidation import consolidation_expectations
from infra.demo.departures import departure_expectations
from infra.demo.fixture import (
    ABOVE,
    BUSY_RULE,
    CRON_RULE,
    DEAR,
    METRIC_ABOVE,
    METRIC_RULE,
    RULE_OBJECT,
    SOLD_OUT,
    STREAM,
    STREAM_SPOT,
)
from infra.demo.managed_pools import managed_pool_expectations


@dataclass(frozen=True)
class Expectation:
    """words: the expectation. met: whether it is met. seen: the observation."""

    words: str
    met: bool
    seen: str


def _grown_once(ledger: Ledger) -> tuple[bool, str]:
    """Check that purchases equal what plans wanted minus what vendors lacked. Each group was
    requested once, plus once for each machine of it that never joined, and once for each
    successor of a sick or old node."""
    calls = Counter(group for group, before, after in ledger.asked if after > before)
    bought = {group: number for group, number in ledger.bought.items() if number}
    often = all(
        number - ledger.lost[group] in _requests(ledger.renewed[group])
        for group, number in calls.items()
    )
    right = bool(bought) and bought == +(ledger.planned - ledger.refused) and often
    missing = f"; not to be had {_amounts(ledger.refused)}" if ledger.refused else ""
    return right, f"planned {_amounts(ledger.planned)}{missing}; bought {_amounts(ledger.bought)}"


def _requests(renewed: int) -> tuple[int, ...]:
    """Return how often a group may be asked: once, or for its successors,
    and perhaps once before."""
    return (renewed, renewed + 1) if renewed else (1,)


def _ended_well(ledger: Ledger) -> tuple[bool, str]:
    """Check that exactly the operations for unavailable machines fail: each such group's at least
    once, since a long story outlasts its back-off. A removal may find its node in use again."""
    wanted = {"succeeded", "failed"} if ledger.refused else {"succeeded"}
    states = set(ledger.ended) - {CALLED_OFF}
    right = not ledger.open_operations and states == wanted and ledger.failed == set(ledger.refused)
    return right, ", ".join(f"{number} {state}" for state, number in ledger.ended.items())


def _notified(ledger: Ledger, least: int) -> tuple[bool, str]:
    """Check that each failed group has one opening. least: groups whose
    first choice cannot be had."""
    failed = [notice for notice in ledger.notices if notice.startswith("group.failed open")]
    others = len(ledger.notices) - len(failed)
    right = len(failed) >= least and len(failed) == len(set(failed))
    return right, f"{len(failed)} of failed groups, {counted(others, 'other message')}"


def _outside(nodes: Counter[str]) -> Counter[str]:
    """Return the nodes of all groups but those of the last chapters, which stay."""
    later = {*DEAR, STREAM, STREAM_SPOT}
    return Counter({group: number for group, number in nodes.items() if group not in later})


def _amounts(counts: Counter[str]) -> str:
    return ", ".join(f"{group} +{number}" for group, number in sorted(counts.items())) or "nothing"


def expectations(
    kills: int,
    smallest: Mapping[str, int],
    second: Mapping[str, str],
    later: Mapping[str, str] = MappingProxyType({}),
) -> tuple[tuple[str, Check], ...]:
    """Return the expectations of the demonstration. kills: how often the act function should have
    crashed. smallest: sizes at the end. second: group -> its substitute. later: the same for rules,
    whose substitutes are bought in a later pass."""
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
            lambda led: (bool(led.why_not), led.why_not[0] if led.why_not else "none"),
        ),
        (
            "what was bought was given back",
            lambda led: (
                _outside(led.gone) == _outside(led.joined) and led.sizes == smallest,
                ", ".join(f"{g} {n}" for g, n in led.sizes.items()),
            ),
        ),
        (
            "pods were moved, and their disruption budget was kept",
            lambda led: (
                led.evicted > 0 and led.least_room >= 0,
                (
                    f"{counted(led.evicted, 'eviction')}, "
                    f"{led.refused_evictions} refused for the moment"
                ),
            ),
        ),
        (
            (
                "a first choice cannot be had (no stock, no quota), and the pass that learns it "
                "buys the second"
            ),
            lambda led: (
                set(led.refused) - set(later) - set(SOLD_OUT) == set(second)
                and all(led.second_choice.get(group) == AT_ONCE for group in second),
                "; ".join(
                    f"{group}: {led.why.get(group, '')}, {how}"
                    for group, how in led.second_choice.items()
                    if group in second
                ),
            ),
        ),
        *rule_expectations(later),
        *consolidation_expectations(),
        *departure_expectations(),
        *managed_pool_expectations(),
        ("every other operation ended well", _ended_well),
        (
            "a subscriber was notified once of each group that could not grow",
            lambda led: _notified(led, len(second)),
        ),
        (
            "no dead letters, no function failed",
            lambda led: (
                not (led.dead_letters or led.errors),
                led.errors[0] if led.errors else "none",
            ),
        ),
        (
            f"a quiet pass writes at most {QUIET_WRITES} items",
            lambda led: (
                bool(led.quiet_writes) and led.writes_per_quiet_pass <= QUIET_WRITES,
                str(led.writes_per_quiet_pass),
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
    return tuple(
        Expectation(words, *check(ledger))
        for words, check in expectations(kills, smallest, second, later)
    )


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
    seen = (
        ", ".join(sorted(key.rpartition("/")[2] for key in keys & ledger.rules_seen)) or "nothing"
    )
    return keys <= ledger.rules_seen and not ledger.rules_wrong, ledger.rules_wrong[
        0
    ] if ledger.rules_wrong else seen


def _once(ledger: Ledger) -> tuple[bool, str]:
    """Check that the cron rule acted for one occurrence and added its number of nodes, and that the
    cpu rule added none, although its rate was above the threshold when the cron rule acted."""
    cron, rate = _of(ledger, CRON_RULE), ledger.beside.get(METRIC_RULE, 0.0)
    came = sum(each.nodes for each in cron) - sum(
        ledger.refused[group] for each in cron for group in each.groups
    )
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
        ledger.refused[first] > 0 == ledger.bought[first]
        and ledger.bought[second] == ledger.refused[first]
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
    return (
        after < ABOVE <= less,
        f"{acted.rate or 0.0:.1f} %, +{acted.nodes}: {after:.1f} %; one less: {less:.1f} %",
    )


def _of(ledger: Ledger, rule: str) -> list[Acted]:
    return [each for each in ledger.acted if each.rule == rule]


def verdicts(found: Sequence[Expectation]) -> Table:
    table = Table(
        title="Expected", title_justify="left", show_header=False, box=None, padding=(0, 2)
    )
    for each in found:
        table.add_row(
            "[green]yes[/]" if each.met else "[bold red]NO[/]", each.words, f"[dim]{each.seen}[/]"
        )
    return table


def figures(ledger: Ledger, virtual: float, wall: float) -> Table:
    table = Table(
        title="Figures", title_justify="left", show_header=False, box=None, padding=(0, 2)
    )
    for what, how in _figures(ledger, virtual, wall):
        table.add_row(what, how)
    return table


def _figures(ledger: Ledger, virtual: float, wall: float) -> list[tuple[str, str]]:
    reaction = ledger.reaction
    reacted = f"{reaction[0]:.0f} s, {reaction[1]:.2f} s on the wall" if reaction else "never"
    calls = ", ".join(f"{name} {number}" for name, number in sorted(ledger.invocations.items()))
    requests = ledger.kube_requests
    return [
        ("time", f"{span(virtual)} virtual, {wall:.1f} s on the wall"),
        ("first pod refused ► call at the provider", reacted),
        ("nodes bought / removed", f"{sum(ledger.bought.values())} / {sum(ledger.gone.values())}"),
        (
            "operations",
            ", ".join(f"{number} {state}" for state, number in ledger.ended.items()) or "none",
        ),
        ("functions killed / messages sent again", f"{len(ledger.killed)} / {ledger.swept}"),
        ("invocations", f"{calls}; {ledger.cold_starts} cold starts"),
        (
            "requests to the cluster's API",
            f"{requests['reads']} reads, {requests['writes']} writes",
        ),
        ("requests to AWS", str(ledger.aws_requests)),
        (
            "items written by a quiet pass",
            f"{ledger.writes_per_quiet_pass} (lower quartile of {len(ledger.quiet_writes)})",
        ),
    ]
