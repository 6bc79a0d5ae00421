"""Shows the comparison of a cluster in mode shadow with the autoscaler that acts in it, as text and as data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from chalicelib.command.output import Block, Table
from chalicelib.command.shadow_figures import Figures, figures, is_accepted, recent
from chalicelib.command.shadow_gate import Condition, gate, is_open
from chalicelib.model.timestamps import format_time
from chalicelib.shadow.records import AGREEING, GROWTH, Ledger, Match, ShadowVerdict

MOST_SHOWN = 20

HAND_OVER = (
    "1. kubectl -n kube-system scale deployment cluster-autoscaler --replicas=0",
    "2. wait until its lease is over: kubectl -n kube-system get lease cluster-autoscaler (15s after its last renewal)",
    "3. set mode: active in the policy (and nodeDeletionCandidateTtl: 30m for this day), then run outscaler apply FILE",
    "Way back: set mode: shadow and run outscaler apply FILE, then scale cluster-autoscaler to 1 replica.",
)


class Report(msgspec.Struct, frozen=True):
    """Everything that is shown. ledger None: no pass has compared anything yet."""

    name: str
    ledger: Ledger | None
    accepted: Mapping[str, float]
    since: float
    now: float

    @property
    def figures(self) -> Figures:
        """Return the figures; of an empty comparison where there is none."""
        assert self.ledger is not None
        return figures(self.ledger, self.accepted, self.since, self.now)


def data(report: Report) -> dict[str, Any]:
    """Return all figures, conditions and kept results."""
    if report.ledger is None:
        return {"name": report.name, "figures": None, "gate": [], "open": False, "matches": [], "next": None}
    found = report.figures
    conditions = gate(found)
    matches = recent(report.ledger, report.since)
    return {
        "name": report.name,
        "since": format_time(max(report.ledger.first, report.since)),
        "lastPass": format_time(report.ledger.seen.at),
        "figures": {
            "shadow_growth_agreement": _rounded(found.growth_agreement),
            "shadow_growth_agreement_per_group": _rounded(found.growth_agreement_groups),
            "shadow_unneeded_overlap": found.unneeded_overlap,
            "shadow_only_ours_total": found.only_ours,
            "shadow_missed_total": found.missed,
            "shadow_lead_seconds": found.lead,
            "shadow_cost_ratio": _rounded(found.cost_ratio),
            "growths": found.growths,
            "removals": found.removals,
            "comparedGrowths": found.compared_growths,
            "comparedRemovals": found.compared_removals,
            "exactGrowths": found.exact,
            "onlyOursOpen": found.only_ours_open,
            "missedWithoutCause": found.missed_unknown,
            "days": round(found.days, 2),
            "passes": found.passes,
            "secondsWithoutTheOther": round(found.dead_seconds),
        },
        "gate": [
            {"name": each.name, "wanted": each.wanted, "value": _rounded(each.value), "met": each.met}
            for each in conditions
        ],
        "open": is_open(conditions),
        "matches": [_match_data(match, report.accepted) for match in matches],
        "next": next_step(report, conditions, matches),
    }


def blocks(report: Report) -> list[Block]:
    """Return the headline, the disagreements, the conditions and the next command."""
    if report.ledger is None:
        return [f"{report.name}: no pass has compared anything yet; the cluster must be in mode shadow"]
    found = report.figures
    conditions = gate(found)
    matches = recent(report.ledger, report.since)
    shown: list[Block] = [_headline(report.name, found)]
    if found.dead_seconds:
        shown.append(f"Left out: {_days(found.dead_seconds / 86400)} without a running Cluster Autoscaler.\n")
    apart = [match for match in matches if match.verdict not in AGREEING]
    apart.sort(key=lambda match: (match.verdict is not ShadowVerdict.ONLY_OURS or is_accepted(match, report.accepted),
                                  match.verdict is not ShadowVerdict.MISSED, -match.at))  # fmt: skip
    shown.append(
        Table(
            ("verdict", "when", "what", "cause", "detail", "id"),
            tuple(_row(match, report.accepted) for match in apart[:MOST_SHOWN]),
            title="Disagreements"
            + (f" ({MOST_SHOWN} of {len(apart)}; -o json has all)" if len(apart) > MOST_SHOWN else ""),
            empty="none",
        )
    )
    shown.append(
        Table(
            ("condition for mode active", "wanted", "is", "met"),
            tuple((each.name, each.wanted, _number(each.value), "yes" if each.met else "no") for each in conditions),
            title="Gate",
        )
    )
    shown.append(f"Next: {next_step(report, conditions, matches)}")
    if is_open(conditions):
        shown.append("\n".join(("Hand-over:", *HAND_OVER)))
    return shown


def next_step(report: Report, conditions: tuple[Condition, ...], matches: tuple[Match, ...]) -> str:
    """Return the next command, or what to wait for."""
    waiting = [
        match
        for match in matches
        if match.verdict is ShadowVerdict.ONLY_OURS and not is_accepted(match, report.accepted)
    ]
    if waiting:
        node, cluster = waiting[0].node, report.name
        return f"outscaler explain node {node} --cluster {cluster}, then outscaler shadow accept {cluster}/{node}"
    missing = [f"{each.name} {_number(each.value)}, wanted {each.wanted}" for each in conditions if not each.met]
    if missing:
        return f"wait or find the cause: {'; '.join(missing)}"
    return HAND_OVER[0].removeprefix("1. ")


def _headline(name: str, figures: Figures) -> str:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in figures.growths.items())
    only = f"only ours {figures.only_ours}" + (
        f" -> look at {figures.only_ours_open}" if figures.only_ours_open else ""
    )
    parts = (
        f"growth {_number(figures.growth_agreement)}{f' ({counts})' if counts else ''}",
        f"unneeded overlap {_number(figures.unneeded_overlap)}",
        f"missed {figures.missed}",
        only,
        *((f"lead {figures.lead:g}s",) if figures.lead is not None else ()),
        *((f"cost {figures.cost_ratio:.2f}",) if figures.cost_ratio is not None else ()),
    )
    acts = f"{figures.compared_growths} growths, {figures.compared_removals} removals by Cluster Autoscaler"
    return f"{name}, {_days(figures.days)}: {acts}.   {'   '.join(parts)}\n"


def _row(match: Match, accepted: Mapping[str, float]) -> tuple[str, ...]:
    looked = " (accepted)" if match.verdict is ShadowVerdict.ONLY_OURS and is_accepted(match, accepted) else ""
    detail = match.detail + (" (approximate)" if match.approximate else "")
    return f"{match.verdict.upper()}{looked}", _when(match.at), _what(match), match.cause, detail, match.id


def _what(match: Match) -> str:
    if match.kind != GROWTH:
        return match.node
    return f"Cluster Autoscaler {_sizes(match.theirs)}, Outscaler {_sizes(match.ours)}"


def _sizes(groups: Mapping[str, int]) -> str:
    return ", ".join(f"{group} +{count}" for group, count in sorted(groups.items())) or "nothing"


def _match_data(match: Match, accepted: Mapping[str, float]) -> dict[str, Any]:
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
        "costs": None if match.costs is None else {"ours": match.costs[0], "theirs": match.costs[1]},
        "accepted": match.verdict is ShadowVerdict.ONLY_OURS and is_accepted(match, accepted),
    }


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%d %b %H:%M")


def _days(days: float) -> str:
    return f"{days:.0f} days" if days >= 2 else f"{days * 24:.0f} hours"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}".removesuffix(".00")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
