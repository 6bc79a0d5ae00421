"""Adds results to the sums of their day, and drops what is too old or too much."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from chalicelib.shadow.records import (
    AGREEING,
    BUCKETS,
    GROWTH,
    KEPT,
    MOST_AGREEMENTS,
    MOST_DISAGREEMENTS,
    Day,
    Ledger,
    Match,
    ShadowVerdict,
)

SAMPLED = 600.0
"""Seconds between two samples of the overlap. They do not coincide with changes, which would distort the median."""


def day_of(at: float) -> str:
    """Return the day of an instant, UTC: `2026-11-23`."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def add(ledger: Ledger, *matches: Match) -> Ledger:
    """Return the ledger with these results, each in the sums of its day and in the list."""
    days = dict(ledger.days)
    for match in matches:
        day = day_of(match.at)
        days[day] = _with_match(days.get(day, Day()), match)
    return msgspec.structs.replace(ledger, days=days, matches=(*ledger.matches, *matches))


def _with_match(day: Day, match: Match) -> Day:
    key = f"{match.kind} {match.verdict}"
    day = msgspec.structs.replace(day, verdicts={**day.verdicts, key: day.verdicts.get(key, 0) + 1})
    if match.kind != GROWTH or match.verdict is ShadowVerdict.SOMEBODY:
        return day
    # Another group of the same size is no difference where the expander draws at random.
    same = match.verdict in (ShadowVerdict.SAME, ShadowVerdict.SAME_SIZE)
    pairs = [(match.ours.get(name, 0), match.theirs.get(name, 0)) for name in match.ours.keys() | match.theirs.keys()]
    ours, theirs = sum(match.ours.values()), sum(match.theirs.values())
    cost_ours, cost_theirs = match.costs or (0.0, 0.0)
    return msgspec.structs.replace(
        day,
        apart_groups=day.apart_groups + (0 if same else sum(abs(one - other) for one, other in pairs)),
        most_groups=day.most_groups + (max(ours, theirs) if same else sum(max(pair) for pair in pairs)),
        apart_total=day.apart_total + abs(ours - theirs),
        most_total=day.most_total + max(ours, theirs),
        exact=day.exact + (not match.approximate and match.verdict is not ShadowVerdict.EXTRA),
        cost_ours=day.cost_ours + cost_ours,
        cost_theirs=day.cost_theirs + cost_theirs,
    )


def sample(ledger: Ledger, unneeded: set[str], soft: set[str], now: float) -> Ledger:
    """Return the ledger with one more sample of the overlap, unless the last one is recent or neither autoscaler has
    an unneeded node."""
    if now - ledger.sampled < SAMPLED or not unneeded | soft:
        return ledger
    share = len(unneeded & soft) / len(unneeded | soft)
    day = ledger.days.get(day_of(now), Day())
    counts = list(day.overlap or (0,) * (BUCKETS + 1))
    counts[int(share * BUCKETS)] += 1
    changed = msgspec.structs.replace(day, overlap=tuple(counts))
    return msgspec.structs.replace(ledger, days={**ledger.days, day_of(now): changed}, sampled=now)


def on_day(ledger: Ledger, now: float, *, dead: float = 0.0, passes: int = 0) -> Ledger:
    """Return the ledger with more seconds without the other autoscaler, and more passes."""
    day = ledger.days.get(day_of(now), Day())
    changed = msgspec.structs.replace(day, dead=day.dead + dead, passes=day.passes + passes)
    return msgspec.structs.replace(ledger, days={**ledger.days, day_of(now): changed})


def trimmed(ledger: Ledger, now: float) -> Ledger:
    """Return the ledger without results that are too old, and without the oldest ones of too many."""
    oldest = now - KEPT
    days = {day: sums for day, sums in sorted(ledger.days.items()) if day >= day_of(oldest)}
    fresh = [match for match in ledger.matches if match.at >= oldest]
    agreed = {match.id for match in [each for each in fresh if each.verdict in AGREEING][-MOST_AGREEMENTS:]}
    others = {match.id for match in [each for each in fresh if each.verdict not in AGREEING][-MOST_DISAGREEMENTS:]}
    kept = tuple(match for match in fresh if match.id in agreed | others)
    return msgspec.structs.replace(ledger, days=days, matches=kept)
