"""Shows the comparison of a cluster in mode shadow with the autoscaler that acts in
it, as text and as data.

The figures are computed from the sums of its days. The gate says which of them a cluster must reach
before its mode becomes active.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from statistics import median
from typing import Any

import msgspec

from chalicelib.cli.migrate.shadow_table import WIDEST, disagreements
from chalicelib.cli.output import Block, Table
from chalicelib.model.timestamps import format_time
from chalicelib.reasons.words import counted
from chalicelib.shadow.records import (
    AGREEING,
    BUCKETS,
    GROWTH,
    REMOVAL,
    Day,
    Ledger,
    Match,
    ShadowVerdict,
    day_of,
    sums_of,
)
from chalicelib.shadow.verdicts import OWN_PLAN, UNKNOWN

HAND_OVER = (
    "1. kubectl -n kube-system scale deployment cluster-autoscaler --replicas=0",
    (
        "2. wait until its lease is over (15 seconds after a renewal): kubectl -n kube-system get "
        "lease cluster-autoscaler"
    ),
    (
        "3. wait until each group has as many nodes as its size: outscaler doctor --policy FILE "
        "--only machines"
    ),
    (
        "4. set mode: active in the policy (and nodeDeletionCandidateTtl: 30m for this day), then "
        "run outscaler apply FILE"
    ),
    (
        "Way back: set mode: shadow, run outscaler apply FILE, wait as in step 3, then scale "
        "cluster-autoscaler to 1."
    ),
)
_DAY = 86400.0
_DAYS = "days"  # the condition whose value is a length of time
_LEAST_COST = 1e-9  # below it, a difference of two sums is nothing


# -- figures ---------------------------------------------------------------------------------------


class Figures(msgspec.Struct, frozen=True):
    """The figures. None: nothing to compute it from. growths, removals: verdict -> count.
    growth_agreement: over totals; growth_agreement_groups: per group; both and unneeded_overlap
    from 0 to 1. *_open: without the results that an operator has accepted. missed_unknown: missed
    growths without a known cause that nobody has accepted. lead: median of the growths in seconds,
    positive where our plan came first. exact: growths matched without approximation. days: length
    of the comparison without the time in which the other autoscaler was not running
    (dead_seconds)."""

    growths: dict[str, int]
    removals: dict[str, int]
    growth_agreement: float | None
    growth_agreement_groups: float | None
    unneeded_overlap: float | None
    only_ours: int
    only_ours_open: int
    missed: int
    missed_unknown: int
    lead: float | None
    cost_ratio: float | None
    exact: int
    days: float
    dead_seconds: float
    passes: int
    growth_agreement_open: float | None = None
    cost_ratio_open: float | None = None

    @property
    def compared_growths(self) -> int:
        """Return the number of the other autoscaler's growths."""
        others = (ShadowVerdict.SOMEBODY, ShadowVerdict.EXTRA)
        return sum(count for verdict, count in self.growths.items() if verdict not in others)

    @property
    def compared_removals(self) -> int:
        """Return the number of the other autoscaler's removals."""
        others = (ShadowVerdict.SOMEBODY, ShadowVerdict.ONLY_OURS)
        return sum(count for verdict, count in self.removals.items() if verdict not in others)


def figures(ledger: Ledger, accepted: Mapping[str, float], since: float, now: float) -> Figures:
    """Return the figures from the day of `since` (epoch seconds) on. accepted: node or match id ->
    when an operator accepted it."""
    first_day = day_of(max(since, 0.0))
    days = [sums for day, sums in ledger.days.items() if day >= first_day]
    matches = recent(ledger, since)
    growths = _counts(days, GROWTH)
    removals = _counts(days, REMOVAL)
    leads = [match.lead for match in matches if match.lead is not None and match.kind == GROWTH]
    apart = [match for match in matches if match.verdict not in AGREEING]
    looked_at = [sums_of(match) for match in apart if is_accepted(match, accepted)]
    dead = sum(day.dead for day in days)
    compared_seconds = now - max(ledger.first, since) - dead
    return Figures(
        growths=growths,
        removals=removals,
        growth_agreement=_agreement(days, ()),
        growth_agreement_groups=_agreement_of_groups(days),
        unneeded_overlap=_median_overlap(days),
        only_ours=removals.get(ShadowVerdict.ONLY_OURS, 0),
        only_ours_open=len(_not_accepted(matches, accepted)),
        missed=growths.get(ShadowVerdict.MISSED, 0),
        missed_unknown=len(_missed_without_cause(matches, accepted)),
        lead=round(median(leads), 1) if leads else None,
        cost_ratio=_cost_ratio(days, ()),
        exact=sum(day.exact for day in days),
        days=max(0.0, compared_seconds) / _DAY,
        dead_seconds=dead,
        passes=sum(day.passes for day in days),
        growth_agreement_open=_agreement(days, looked_at),
        cost_ratio_open=_cost_ratio(days, looked_at),
    )


def recent(ledger: Ledger, since: float) -> tuple[Match, ...]:
    """Return the kept results from the day of `since` on, oldest first, as the sums count them."""
    first_day = day_of(max(since, 0.0))
    matches = (match for match in ledger.matches if day_of(match.at) >= first_day)
    return tuple(sorted(matches, key=lambda match: match.at))


def is_accepted(match: Match, accepted: Mapping[str, float]) -> bool:
    """Return whether an operator accepted the result, or its node later than it happened."""
    return match.id in accepted or accepted.get(match.node, 0.0) >= match.at


def _not_accepted(matches: Iterable[Match], accepted: Mapping[str, float]) -> list[Match]:
    """Return the removals that only our plan wanted and that no operator has accepted."""
    own = (match for match in matches if match.verdict is ShadowVerdict.ONLY_OURS)
    return [match for match in own if not is_accepted(match, accepted)]


def _counts(days: Iterable[Day], kind: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for day in days:
        for key, count in day.verdicts.items():
            name, _, verdict = key.partition(" ")
            if name == kind:
                counts[verdict] += count
    return dict(sorted(counts.items()))


def _missed_without_cause(matches: Iterable[Match], accepted: Mapping[str, float]) -> list[Match]:
    """Return the missed growths of which neither a cause is known nor an operator has accepted the
    result. A reason of our own plan is none: pods would wait after the hand-over."""

    def is_unexplained(match: Match) -> bool:
        return match.cause == UNKNOWN or match.cause.startswith(OWN_PLAN)

    missed = (match for match in matches if match.verdict is ShadowVerdict.MISSED)
    unexplained = (match for match in missed if is_unexplained(match))
    return [match for match in unexplained if not is_accepted(match, accepted)]


def _agreement(days: Iterable[Day], without: Iterable[Day]) -> float | None:
    """Return the agreement over totals. without: sums that do not count. It is 1
    where nothing else is left."""
    all_most = sum(day.most_total for day in days)
    all_apart = sum(day.apart_total for day in days)
    most = all_most - sum(day.most_total for day in without)
    apart = all_apart - sum(day.apart_total for day in without)
    if most <= 0:
        return 1.0 if all_most else None
    return 1.0 - max(0, apart) / most


def _agreement_of_groups(days: Iterable[Day]) -> float | None:
    most = sum(day.most_groups for day in days)
    apart = sum(day.apart_groups for day in days)
    return 1.0 - apart / most if most else None


def _cost_ratio(days: Iterable[Day], without: Iterable[Day]) -> float | None:
    """Return our cost / theirs. without: sums that do not count."""
    all_ours = sum(day.cost_ours for day in days)
    all_theirs = sum(day.cost_theirs for day in days)
    ours = all_ours - sum(day.cost_ours for day in without)
    theirs = all_theirs - sum(day.cost_theirs for day in without)
    return max(0.0, ours) / theirs if theirs > _LEAST_COST else None


def _median_overlap(days: Iterable[Day]) -> float | None:
    """Return the lower bound of the bucket that holds the median."""
    overlaps = [day.overlap for day in days if day.overlap]
    counts = [sum(counts_of_days) for counts_of_days in zip(*overlaps, strict=True)]
    total = sum(counts)
    counted = 0
    for bucket, count in enumerate(counts):
        counted += count
        if count and 2 * counted >= total:
            return bucket / BUCKETS
    return None


# -- gate ------------------------------------------------------------------------------------------


class Condition(msgspec.Struct, frozen=True):
    """One condition. value: the figure, None where it does not apply; then the condition
    is met only if optional."""

    name: str
    wanted: str
    value: float | None
    met: bool


class _Rule(msgspec.Struct, frozen=True):
    name: str
    wanted: str
    value: Callable[[Figures], float | None]
    least: float | None = None
    most: float | None = None
    optional: bool = False


_RULES = (
    _Rule("growth agreement", "at least 0.95", lambda f: f.growth_agreement_open, least=0.95),
    _Rule(
        "unneeded overlap", "at least 0.9", lambda f: f.unneeded_overlap, least=0.9, optional=True
    ),
    _Rule("only ours, not accepted", "0", lambda f: float(f.only_ours_open), most=0.0),
    _Rule("missed without a known cause", "0", lambda f: float(f.missed_unknown), most=0.0),
    _Rule("cost ratio", "at most 1.05", lambda f: f.cost_ratio_open, most=1.05, optional=True),
    _Rule("growths", "at least 20", lambda f: float(f.compared_growths), least=20.0),
    _Rule("removals", "at least 20", lambda f: float(f.compared_removals), least=20.0),
    _Rule(_DAYS, "at least 7", lambda f: f.days, least=7.0),
)


def gate(figures: Figures) -> tuple[Condition, ...]:
    """Return all conditions in the order in which they are shown."""
    return tuple(
        Condition(rule.name, rule.wanted, rule.value(figures), _is_met(rule, figures))
        for rule in _RULES
    )


def is_open(conditions: tuple[Condition, ...]) -> bool:
    """Return whether all conditions are met."""
    return all(condition.met for condition in conditions)


def _is_met(rule: _Rule, figures: Figures) -> bool:
    value = rule.value(figures)
    if value is None:
        return rule.optional
    value = round(value, 9)
    is_enough = rule.least is None or value >= rule.least
    is_little = rule.most is None or value <= rule.most
    return is_enough and is_little


# -- output ----------------------------------------------------------------------------------------

_DANGER = {ShadowVerdict.ONLY_OURS: 0, ShadowVerdict.MISSED: 1}  # the other disagreements follow


class Report(msgspec.Struct, frozen=True):
    """Everything that is shown. ledger None: no pass has compared anything yet."""

    name: str
    ledger: Ledger | None
    accepted: Mapping[str, float]
    since: float
    now: float


def data(report: Report) -> dict[str, Any]:
    """Return all figures, conditions and kept results."""
    if report.ledger is None:
        return {
            "name": report.name,
            "figures": None,
            "gate": [],
            "open": False,
            "matches": [],
            "next": None,
        }
    numbers = figures(report.ledger, report.accepted, report.since, report.now)
    conditions = gate(numbers)
    matches = recent(report.ledger, report.since)
    return {
        "name": report.name,
        "since": format_time(max(report.ledger.first, report.since)),
        "lastPass": format_time(report.ledger.seen.at),
        "figures": {
            "shadow_growth_agreement": _rounded(numbers.growth_agreement),
            "shadow_growth_agreement_per_group": _rounded(numbers.growth_agreement_groups),
            "shadow_unneeded_overlap": numbers.unneeded_overlap,
            "shadow_only_ours_total": numbers.only_ours,
            "shadow_missed_total": numbers.missed,
            "shadow_lead_seconds": numbers.lead,
            "shadow_cost_ratio": _rounded(numbers.cost_ratio),
            "growths": numbers.growths,
            "removals": numbers.removals,
            "comparedGrowths": numbers.compared_growths,
            "comparedRemovals": numbers.compared_removals,
            "exactGrowths": numbers.exact,
            "onlyOursOpen": numbers.only_ours_open,
            "missedWithoutCause": numbers.missed_unknown,
            "days": round(numbers.days, 2),
            "passes": numbers.passes,
            "secondsWithoutTheOther": round(numbers.dead_seconds),
        },
        "gate": [
            {
                "name": condition.name,
                "wanted": condition.wanted,
                "value": _rounded(condition.value),
                "met": condition.met,
            }
            for condition in conditions
        ],
        "open": is_open(conditions),
        "matches": [match_data(match, report.accepted) for match in matches],
        "next": _next_step(report, conditions, matches),
    }


def blocks(report: Report) -> list[Block]:
    """Return the headline, the disagreements, the conditions and the next command."""
    if report.ledger is None:
        return [
            f"{report.name}: no pass has compared anything yet; the cluster must be in mode shadow"
        ]
    numbers = figures(report.ledger, report.accepted, report.since, report.now)
    conditions = gate(numbers)
    matches = recent(report.ledger, report.since)
    shown: list[Block] = [_headline(report.name, numbers)]
    if numbers.dead_seconds:
        shown.append(
            f"Left out: {_days(numbers.dead_seconds / _DAY)} without a running Cluster "
            "Autoscaler.\n"
        )
    apart = [match for match in matches if match.verdict not in AGREEING]
    accepted = {match.id for match in apart if is_accepted(match, report.accepted)}
    apart.sort(
        key=lambda match: (
            is_accepted(match, report.accepted),
            _DANGER.get(match.verdict, 2),
            -match.at,
        )
    )
    shown.extend(disagreements(report.ledger, matches, apart, accepted, report.now))
    rows: list[tuple[str, ...]] = []
    for condition in conditions:
        met = "yes" if condition.met else "no"
        rows.append((condition.name, condition.wanted, _figure(condition), met))
    columns = ("condition for mode active", "wanted", "is", "met")
    shown.append(Table(columns, tuple(rows), title="Gate"))
    shown.append(_next_lines(_next_steps(report, conditions, matches)))
    if is_open(conditions):
        shown.append("\n".join(("Hand-over:", *HAND_OVER)))
    return shown


def _figure(condition: Condition) -> str:
    """Return the value; a part of a day also in hours or minutes."""
    value = condition.value
    figure = _measured(value)
    if condition.name != _DAYS or value is None or value.is_integer():
        return figure
    return f"{figure} ({_days(value)})"


def _next_lines(steps: tuple[str, ...]) -> str:
    """Return the next commands, a line each; words are wrapped, as a command is not."""
    first, *others = steps
    line = f"Next: {first}"
    if others:
        return "\n".join([line, *(f"then: {step}" for step in others)])
    return textwrap.fill(
        line, WIDEST, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _next_step(
    report: Report, conditions: tuple[Condition, ...], matches: tuple[Match, ...]
) -> str:
    """Return the next commands in one sentence, for programs."""
    return ", then ".join(_next_steps(report, conditions, matches))


def _next_steps(
    report: Report, conditions: tuple[Condition, ...], matches: tuple[Match, ...]
) -> tuple[str, ...]:
    """Return the next commands, or what to wait for."""
    if to_accept := _not_accepted(matches, report.accepted):
        node, cluster = to_accept[0].node, report.name
        return (
            f"outscaler explain node {node} --cluster {cluster}",
            f"outscaler shadow accept {cluster}/{node}",
        )
    if missed := _missed_without_cause(matches, report.accepted):
        return (
            f"find why {missed[0].id} was missed",
            f"outscaler shadow accept {report.name} {missed[0].id}",
        )
    unmet = [condition for condition in conditions if not condition.met]
    if not unmet:
        return (HAND_OVER[0].removeprefix("1. "),)
    causes = [
        f"{condition.name} {_number(condition.value)}, wanted {condition.wanted}"
        for condition in unmet
    ]
    return (f"wait or find the cause: {'; '.join(causes)}",)


def _headline(name: str, figures: Figures) -> str:
    """Return the figures in lines: how long, growths and removals by their verdicts, and the
    rest."""
    growths = counted(figures.compared_growths, "growth")
    removals = counted(figures.compared_removals, "removal")
    lines = [f"{name}, {_days(figures.days)}: {growths}, {removals} by Cluster Autoscaler"]
    lines.append(f"growth {_measured(figures.growth_agreement)}{_in_brackets(figures.growths)}")
    if figures.removals:
        lines.append(f"removals{_in_brackets(figures.removals)}")
    open_ = f" -> look at {figures.only_ours_open}" if figures.only_ours_open else ""
    rest = [
        f"unneeded overlap {_measured(figures.unneeded_overlap)}",
        f"missed {figures.missed}",
        f"only ours {figures.only_ours}{open_}",
    ]
    if figures.lead is not None:
        rest.append(f"lead: {_lead(figures.lead)}")
    if figures.cost_ratio is not None:
        rest.append(f"cost {figures.cost_ratio:.2f} of Cluster Autoscaler's")
    lines.append("   ".join(rest))
    return "".join(f"{line}\n" for line in lines)


def _in_brackets(counts: Mapping[str, int]) -> str:
    """Return the counts of a headline: ` (1 fewer, 20 same)`."""
    if not counts:
        return ""
    parts = [f"{count} {verdict}" for verdict, count in counts.items()]
    return f" ({', '.join(parts)})"


def _lead(seconds: float) -> str:
    """Return the lead in words."""
    if not seconds:
        return "none"
    number = abs(seconds)
    unit = "second" if number == 1 else "seconds"
    direction = "earlier" if seconds > 0 else "later"
    return f"Outscaler {number:g} {unit} {direction}"


def match_data(match: Match, accepted: Mapping[str, float]) -> dict[str, Any]:
    """Return one result as data."""
    costs = None
    if match.costs is not None:
        costs = {"ours": match.costs[0], "theirs": match.costs[1]}
    return {
        "id": match.id,
        "kind": match.kind,
        "at": format_time(match.at),
        "verdict": match.verdict.value,
        "node": match.node,
        "theirs": dict(match.theirs),
        "ours": dict(match.ours),
        "cause": match.cause,
        "detail": match.detail,
        "approximate": match.approximate,
        "leadSeconds": match.lead,
        "costs": costs,
        "accepted": match.verdict not in AGREEING and is_accepted(match, accepted),
    }


def _days(days: float) -> str:
    """Return a length in the largest unit of which it has at least one, two of days."""
    units = ((days, "day", 2), (days * 24, "hour", 1), (days * 1440, "minute", 0))
    for count, unit, least in units:
        if count >= least:
            return counted(round(count), unit)
    return "0 minutes"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}".removesuffix(".00")


def _measured(value: float | None) -> str:
    return "not measured" if value is None else _number(value)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
