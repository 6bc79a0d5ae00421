"""What is kept between passes: the last observation, what is still open,
the results and their sums.

All of it is one row of the state table, so every collection here has a limit. Results are summed
per day, and only the newest ones are kept one by one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

KEPT = 30 * 86400.0
"""Seconds for which results are kept."""
MOST_AGREEMENTS, MOST_DISAGREEMENTS = 200, 500
MOST_TRACKED = 500  # nodes that are watched one by one
BUCKETS = 20  # of the overlap, from 0 to 1
TEXT = 200  # characters of a detail
CHAIN = 120.0
"""Maximum seconds between two growths of one episode: an autoscaler that grows one group per loop
answers one need in several acts."""
MOST_GROWTHS, MOST_PODS = 200, 200
SAMPLED = 600.0
"""Seconds between two samples of the overlap. They do not coincide with changes, which
would distort the median."""


class ShadowVerdict(StrEnum):
    """Results of one comparison; growths first, then removals."""

    SAME = "same"
    SAME_SIZE = "same size"
    CHOICE = "choice"
    MORE = "more"
    FEWER = "fewer"
    MISSED = "missed"
    EXTRA = "extra"
    EARLIER = "earlier"
    LATER = "later"
    REFUSED = "refused"
    ONLY_OURS = "only ours"
    SOMEBODY = "by somebody else"


AGREEING = frozenset({ShadowVerdict.SAME, ShadowVerdict.SAME_SIZE, ShadowVerdict.SOMEBODY})
GROWTH, REMOVAL = "growth", "removal"


class Match(msgspec.Struct, frozen=True, array_like=True):
    """One comparison. at: when the other autoscaler acted, for `extra` and `only ours` when we
    would have. theirs, ours: nodes per group, of growths. lead: seconds by which our plan came
    before the other's act. instead: the node of the same group that our plan removes in the place
    of a removed one."""

    id: str
    kind: str
    at: float
    verdict: ShadowVerdict
    node: str = ""
    theirs: dict[str, int] = {}
    ours: dict[str, int] = {}
    detail: str = ""
    cause: str = ""
    approximate: bool = False
    lead: float | None = None
    costs: tuple[float, float] | None = None  # ours, theirs; per hour
    instead: str = ""


class Day(msgspec.Struct, frozen=True, array_like=True):
    """Sums of one day (UTC). verdicts: `growth same` -> count. apart_*: sum of |ours -
    theirs|, most_*: sum of the larger one, over groups and over totals. exact: growths that
    were matched without approximation."""

    verdicts: dict[str, int] = {}
    apart_groups: int = 0
    most_groups: int = 0
    apart_total: int = 0
    most_total: int = 0
    exact: int = 0
    cost_ours: float = 0.0
    cost_theirs: float = 0.0
    dead: float = 0.0
    overlap: tuple[int, ...] = ()
    passes: int = 0


class Observation(msgspec.Struct, frozen=True, array_like=True):
    """The part of a pass that the next one is compared with. nodes: names by group. soft: node ->
    value of the other autoscaler's soft taint (epoch seconds). alive: the time of its last status,
    0.0: none was ever read. late: that status is older than those of a running autoscaler, dead: so
    old that it is not running. uid: of its ConfigMap. scale_ups: group -> status of its scale-up,
    without those that do nothing."""

    at: float
    targets: dict[str, int] = {}
    nodes: dict[str, tuple[str, ...]] = {}
    soft: dict[str, int] = {}
    candidates: bool = False
    refusals: dict[str, str] = {}  # soft-tainted node -> why our plan keeps it
    dead: bool = False
    token: int = 0
    alive: float = 0.0
    late: bool = False
    uid: str = ""
    scale_ups: dict[str, str] = {}


class Growth(msgspec.Struct, frozen=True, array_like=True):
    """A group that grew. confirmed: the other autoscaler's status says so. alone: that status could
    not be read. since, seen: the passes before and after it. earlier: the group's scale-up status
    at the first of them. unsettled: no status written after the growth was read so far, so a later
    one may say who made it."""

    group: str
    before: int
    count: int
    at: float
    confirmed: bool = False
    alone: bool = False
    since: float = 0.0
    seen: float = 0.0
    earlier: str = ""
    unsettled: bool = False

    @property
    def is_others(self) -> bool:
        """Return whether the growth counts as the other autoscaler's."""
        return self.confirmed or self.alone


class Episode(msgspec.Struct, frozen=True, array_like=True):
    """A chain of growths. since: the last pass before it. noticed: the pass that saw the first
    growth. wanted_at: of rows without `starts`. besides: later growths by somebody else, which
    the decision did not know.

    What its passes see. pods: uids that waited before or during it. wanted: nodes that our plans
    wanted, by group; wanted_pods: for which uids; starts: since which pass. answers: our plan for
    the state before it, as asked while it was open; asked: with how many growths; drawn: the other
    autoscaler drew among exactly equal groups. held: groups that it did not grow for now -> its
    word. taints: startup taints of its new nodes. used: its new nodes on which a pod was seen."""

    since: float
    growths: tuple[Growth, ...]
    wanted_at: float = 0.0
    pods: tuple[str, ...] = ()
    noticed: float = 0.0
    besides: tuple[Growth, ...] = ()
    wanted: dict[str, int] = {}
    answers: dict[str, int] = {}
    asked: int = 0
    held: dict[str, str] = {}
    taints: tuple[str, ...] = ()
    used: tuple[str, ...] = ()
    wanted_pods: dict[str, tuple[str, ...]] = {}
    starts: dict[str, float] = {}
    drawn: bool = False

    @property
    def began(self) -> float:
        """Return the instant of the first growth."""
        return min(growth.at for growth in self.growths)

    @property
    def ended(self) -> float:
        """Return the instant of the last growth."""
        return max(growth.at for growth in self.growths)

    @property
    def sizes(self) -> dict[str, int]:
        """Return how many nodes each group got."""
        counts: Counter[str] = Counter()
        for growth in self.growths:
            counts[growth.group] += growth.count
        return dict(sorted(counts.items()))

    @property
    def is_settled(self) -> bool:
        """Return whether it is known of each growth who made it."""
        return not any(growth.unsettled for growth in self.growths)

    def is_continued_by(self, growths: tuple[Growth, ...], now: float) -> bool:
        """Return whether the episode is still open: these growths belong to
        it, or further ones may."""
        next_growth = min((growth.at for growth in growths), default=now)
        return next_growth - self.ended <= CHAIN


class WantedNodes(msgspec.Struct, frozen=True, array_like=True):
    """Nodes that our plans want. since: the first of these passes. pods: uids for which the first
    one wanted them. starts: group -> the first of these passes that wanted it. pods_of: group ->
    uids for which the last pass wanted it."""

    since: float
    groups: dict[str, int]
    passes: int = 1
    told: bool = False
    pods: tuple[str, ...] = ()
    starts: dict[str, float] = {}
    pods_of: dict[str, tuple[str, ...]] = {}


class Ledger(msgspec.Struct, frozen=True, omit_defaults=True):
    """The row. planned: node -> when our plan removed it first. reported: nodes of the class `only
    ours`. deleting: nodes with the other's hard taint. removing: the results of their removals,
    which count when the node is gone. acted: the other's last growth. restarted: when the other
    autoscaler started again, 0.0: not seen. first: the first pass; resumed: the first one after a
    time in another mode, 0.0 without one. held: removals later than the other's last status.
    rechecks: node -> until when our plan did not look at it again, because its pods had no
    place."""

    first: float
    seen: Observation
    episode: Episode | None = None
    wanted: WantedNodes | None = None
    planned: dict[str, float] = {}
    reported: dict[str, float] = {}
    deleting: dict[str, float] = {}
    acted: float = 0.0
    restarted: float = 0.0
    sampled: float = 0.0
    resumed: float = 0.0
    days: dict[str, Day] = {}
    matches: tuple[Match, ...] = ()
    held: tuple[Match, ...] = ()
    removing: dict[str, Match] = {}
    rechecks: dict[str, float] = {}


def match_id(kind: str, at: float, name: str) -> str:
    """Return eight hexadecimal digits that name a match for an operator."""
    return hashlib.sha256(f"{kind} {round(at)} {name}".encode()).hexdigest()[:8]


# -- changes ---------------------------------------------------------------------------------------


def joined(
    episode: Episode | None, growths: tuple[Growth, ...], since: float, now: float
) -> Episode | None:
    """Return the open episode with these growths, or a new one. since: the last pass
    before them; now: this pass."""
    if not growths:
        return episode
    if episode is None:
        return Episode(since, growths[:MOST_GROWTHS], noticed=now)
    return msgspec.structs.replace(episode, growths=(*episode.growths, *growths)[:MOST_GROWTHS])


def latest(times: dict[str, float]) -> dict[str, float]:
    """Return the newest entries of node -> instant."""
    return dict(sorted(times.items(), key=lambda item: item[1])[-MOST_TRACKED:])


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
    single = sums_of(match)
    counts = Counter(day.verdicts) + Counter(single.verdicts)
    return msgspec.structs.replace(
        day,
        verdicts=dict(sorted(counts.items())),
        apart_groups=day.apart_groups + single.apart_groups,
        most_groups=day.most_groups + single.most_groups,
        apart_total=day.apart_total + single.apart_total,
        most_total=day.most_total + single.most_total,
        exact=day.exact + single.exact,
        cost_ours=day.cost_ours + single.cost_ours,
        cost_theirs=day.cost_theirs + single.cost_theirs,
    )


def sums_of(match: Match) -> Day:
    """Return the sums of one result alone."""
    verdicts = {f"{match.kind} {match.verdict}": 1}
    if match.kind != GROWTH or match.verdict is ShadowVerdict.SOMEBODY:
        return Day(verdicts)
    # Another group of the same size is no difference where a draw decides.
    same = match.verdict in (ShadowVerdict.SAME, ShadowVerdict.SAME_SIZE)
    pairs = [
        (match.ours.get(name, 0), match.theirs.get(name, 0))
        for name in match.ours.keys() | match.theirs.keys()
    ]
    own_size, their_size = sum(match.ours.values()), sum(match.theirs.values())
    cost_ours, cost_theirs = match.costs or (0.0, 0.0)
    return Day(
        verdicts,
        apart_groups=0 if same else sum(abs(ours - theirs) for ours, theirs in pairs),
        most_groups=max(own_size, their_size) if same else sum(map(max, pairs)),
        apart_total=abs(own_size - their_size),
        most_total=max(own_size, their_size),
        exact=int(not match.approximate and match.verdict is not ShadowVerdict.EXTRA),
        cost_ours=cost_ours,
        cost_theirs=cost_theirs,
    )


def sample(ledger: Ledger, unneeded: set[str], soft: set[str], now: float) -> Ledger:
    """Return the ledger with one more sample of the overlap, unless the last one is recent or
    neither autoscaler has an unneeded node."""
    if now - ledger.sampled < SAMPLED or not unneeded | soft:
        return ledger
    share = len(unneeded & soft) / len(unneeded | soft)
    day = ledger.days.get(day_of(now), Day())
    counts = list(day.overlap or (0,) * (BUCKETS + 1))
    counts[int(share * BUCKETS)] += 1
    day = msgspec.structs.replace(day, overlap=tuple(counts))
    return msgspec.structs.replace(ledger, days={**ledger.days, day_of(now): day}, sampled=now)


def on_day(ledger: Ledger, now: float, *, dead: float = 0.0, passes: int = 0) -> Ledger:
    """Return the ledger with more seconds without the other autoscaler, and more passes."""
    day = ledger.days.get(day_of(now), Day())
    day = msgspec.structs.replace(day, dead=day.dead + dead, passes=day.passes + passes)
    return msgspec.structs.replace(ledger, days={**ledger.days, day_of(now): day})


def trimmed(ledger: Ledger, now: float) -> Ledger:
    """Return the ledger without results that are too old, and without the
    oldest ones of too many."""
    oldest = now - KEPT
    days = {day: sums for day, sums in sorted(ledger.days.items()) if day >= day_of(oldest)}
    recent = [match for match in ledger.matches if match.at >= oldest]
    agreements = [match.id for match in recent if match.verdict in AGREEING][-MOST_AGREEMENTS:]
    disagreements = [match.id for match in recent if match.verdict not in AGREEING][
        -MOST_DISAGREEMENTS:
    ]
    ids = {*agreements, *disagreements}
    return msgspec.structs.replace(
        ledger, days=days, matches=tuple(match for match in recent if match.id in ids)
    )
