"""What is kept between passes: the last observation, what is still open, and the results.

All of it is one row of the state table, so every collection here has a limit. Results are summed per day, and only
the newest ones are kept one by one.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

import msgspec

KEPT = 30 * 86400.0
"""Seconds for which results are kept."""
MOST_AGREEMENTS, MOST_DISAGREEMENTS = 200, 500
MOST_TRACKED = 500  # nodes that are watched one by one
BUCKETS = 20  # of the overlap, from 0 to 1
TEXT = 200  # characters of a detail


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
    """One comparison. at: when the other autoscaler acted, for `extra` and `only ours` when we would have. theirs,
    ours: nodes per group, of growths. lead: seconds by which our plan came before the other's act."""

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


class Day(msgspec.Struct, frozen=True, array_like=True):
    """Sums of one day (UTC). verdicts: `growth same` -> count. apart_*: sum of |ours - theirs|, most_*: sum of the
    larger one, over groups and over totals. exact: growths that were matched without approximation."""

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
    """The part of a pass that the next one is compared with. nodes: names by group. soft: node -> value of the other
    autoscaler's soft taint (epoch seconds)."""

    at: float
    targets: dict[str, int] = {}
    nodes: dict[str, tuple[str, ...]] = {}
    soft: dict[str, int] = {}
    candidates: bool = False
    refusals: dict[str, str] = {}  # soft-tainted node -> why our plan keeps it
    dead: bool = False
    token: int = 0


class Growth(msgspec.Struct, frozen=True, array_like=True):
    """A group that grew. confirmed: the other autoscaler's status says so. alone: that status could not be read."""

    group: str
    before: int
    count: int
    at: float
    confirmed: bool = False
    alone: bool = False


class Episode(msgspec.Struct, frozen=True, array_like=True):
    """A chain of growths. since: the last pass before it. wanted_at: when our plan wanted nodes first, 0.0: never.
    pods: uids that waited at that pass. noticed: the pass that saw the first growth."""

    since: float
    growths: tuple[Growth, ...]
    wanted_at: float = 0.0
    pods: tuple[str, ...] = ()
    noticed: float = 0.0

    @property
    def began(self) -> float:
        """Return the instant of the first growth."""
        return min(growth.at for growth in self.growths)

    @property
    def ended(self) -> float:
        """Return the instant of the last growth."""
        return max(growth.at for growth in self.growths)


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """Nodes that our plans want. since: the first of these passes."""

    since: float
    groups: dict[str, int]
    passes: int = 1
    told: bool = False
    pods: tuple[str, ...] = ()


class Ledger(msgspec.Struct, frozen=True, omit_defaults=True):
    """The row. planned: node -> when our plan removed it first. reported: nodes of the class `only ours`. deleting:
    nodes with the other's hard taint that were counted. acted: the other's last growth. restarted: when the other
    autoscaler started again, 0.0: not seen. first: the first pass."""

    first: float
    seen: Observation
    episode: Episode | None = None
    wanted: Wanted | None = None
    planned: dict[str, float] = {}
    reported: dict[str, float] = {}
    deleting: dict[str, float] = {}
    acted: float = 0.0
    restarted: float = 0.0
    sampled: float = 0.0
    days: dict[str, Day] = {}
    matches: tuple[Match, ...] = ()


def match_id(kind: str, at: float, name: str) -> str:
    """Return eight hexadecimal digits that name a match for an operator."""
    return hashlib.sha256(f"{kind} {round(at)} {name}".encode()).hexdigest()[:8]
