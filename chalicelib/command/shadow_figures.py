"""Computes the figures of the comparison from the sums of its days."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

import msgspec

from chalicelib.shadow.causes import UNKNOWN
from chalicelib.shadow.records import BUCKETS, GROWTH, REMOVAL, Day, Ledger, Match, ShadowVerdict
from chalicelib.shadow.tally import day_of

_DAY = 86400.0


class Figures(msgspec.Struct, frozen=True):
    """The figures. None: nothing to compute it from. growths, removals: verdict -> count. growth_agreement: over
    totals; growth_agreement_groups: per group; both and unneeded_overlap from 0 to 1. only_ours_open: those that no
    operator has accepted. missed_unknown: missed growths without a known cause. lead: median in seconds, positive
    where our plan came first. exact: growths matched without approximation. days: length of the comparison without
    the time in which the other autoscaler was not running (dead_seconds)."""

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

    @property
    def compared_growths(self) -> int:
        """Return the number of the other autoscaler's growths."""
        return (
            sum(self.growths.values())
            - self.growths.get(ShadowVerdict.SOMEBODY, 0)
            - self.growths.get(ShadowVerdict.EXTRA, 0)
        )

    @property
    def compared_removals(self) -> int:
        """Return the number of the other autoscaler's removals."""
        return sum(self.removals.values()) - sum(
            self.removals.get(verdict, 0) for verdict in (ShadowVerdict.SOMEBODY, ShadowVerdict.ONLY_OURS)
        )


def figures(ledger: Ledger, accepted: Mapping[str, float], since: float, now: float) -> Figures:
    """Return the figures from the day of `since` (epoch seconds) on. accepted: node or match id -> when an operator
    accepted it."""
    days = [sums for day, sums in ledger.days.items() if day >= day_of(max(since, 0.0))]
    matches = recent(ledger, since)
    growths, removals = _counts(days, GROWTH), _counts(days, REMOVAL)
    only_ours = [match for match in matches if match.verdict is ShadowVerdict.ONLY_OURS]
    missed = [match for match in matches if match.verdict is ShadowVerdict.MISSED]
    leads = [match.lead for match in matches if match.lead is not None]
    theirs = sum(day.cost_theirs for day in days)
    dead = sum(day.dead for day in days)
    return Figures(
        growths=growths,
        removals=removals,
        growth_agreement=_agreement(sum(d.apart_total for d in days), sum(d.most_total for d in days)),
        growth_agreement_groups=_agreement(sum(d.apart_groups for d in days), sum(d.most_groups for d in days)),
        unneeded_overlap=_median(day.overlap for day in days),
        only_ours=removals.get(ShadowVerdict.ONLY_OURS, 0),
        only_ours_open=sum(not is_accepted(match, accepted) for match in only_ours),
        missed=growths.get(ShadowVerdict.MISSED, 0),
        missed_unknown=sum(match.cause == UNKNOWN for match in missed),
        lead=median(leads) if leads else None,
        cost_ratio=sum(day.cost_ours for day in days) / theirs if theirs > 0 else None,
        exact=sum(day.exact for day in days),
        days=max(0.0, now - max(ledger.first, since) - dead) / _DAY,
        dead_seconds=dead,
        passes=sum(day.passes for day in days),
    )


def recent(ledger: Ledger, since: float) -> tuple[Match, ...]:
    """Return the kept results from the day of `since` on, oldest first, as the sums count them."""
    first = day_of(max(since, 0.0))
    return tuple(sorted((each for each in ledger.matches if day_of(each.at) >= first), key=lambda each: each.at))


def is_accepted(match: Match, accepted: Mapping[str, float]) -> bool:
    """Return whether an operator accepted the result, or its node later than it happened."""
    return match.id in accepted or accepted.get(match.node, 0.0) >= match.at


def _counts(days: Iterable[Day], kind: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for day in days:
        for key, count in day.verdicts.items():
            name, _, verdict = key.partition(" ")
            if name == kind:
                total[verdict] = total.get(verdict, 0) + count
    return dict(sorted(total.items()))


def _agreement(apart: int, most: int) -> float | None:
    return 1.0 - apart / most if most else None


def _median(samples: Iterable[tuple[int, ...]]) -> float | None:
    """Return the lower bound of the bucket that holds the median."""
    counts = [sum(row) for row in zip(*(each for each in samples if each), strict=True)]
    total, passed = sum(counts), 0
    for bucket, count in enumerate(counts):
        passed += count
        if count and 2 * passed >= total:
            return bucket / BUCKETS
    return None
