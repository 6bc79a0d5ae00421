"""How long a saving has stood, and what a move must bring after that time.

A saving is earned every hour, a disruption is paid once. The longer a pool's best waiting move has
stood, the lower is the score that a move there needs: half of it after every HALVING, a quarter at
least. A score that falls counts as the lower one for all the time before. See
docs/reference/consolidation.md "Patience".
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from chalicelib.model.memory import ConsolidationMemory
from chalicelib.policy.settings.consolidation import Consolidation

HALVING = 21_600.0
"""Seconds a saving must stand for half of the score to be enough."""
LEAST = 0.25
"""Part of the score that is needed after any time."""
SPACING, MOST_SPANS = 3_600.0, 24
"""Least seconds between the starts of two spans, and most spans of a pool."""
UNSEEN = 3_600.0
"""Seconds without a look after which nothing is known of how a score has stood."""
Spans = tuple[tuple[float, float], ...]
"""(instant, lowest score since then), oldest and lowest first."""


class Patience:
    """What the scores of moves must exceed in one pass. now: epoch seconds. strict: what a saving
    that has just appeared needs; least: what is needed after any time, `strict` without
    patience."""

    def __init__(
        self, memory: ConsolidationMemory, now: float, consolidation: Consolidation
    ) -> None:
        self.strict = 1 / consolidation.aggressiveness
        self.least = self.strict * LEAST if consolidation.patience else self.strict
        is_known = consolidation.patience and 0 <= now - memory.scored_at <= UNSEEN
        self._spans: Mapping[str, Spans] = memory.scores if is_known else {}
        self._now = now

    def needed(self, pool: str) -> float:
        """Return what the score of a new move in a pool must exceed now."""
        needed = self.strict
        for since, lowest in self._spans.get(pool, ()):
            threshold = self.strict * 2 ** (min(0.0, since - self._now) / HALVING)
            if lowest > threshold:
                needed = min(needed, threshold)
        return max(needed, self.least)

    def enough_at(self, pool: str, score: float) -> float | None:
        """Return from when on a move with this score is worth it if it stands; None: never."""
        if score <= self.least:
            return None
        spans = (*self._spans.get(pool, ()), (self._now, score))
        instants = [
            since + HALVING * math.log2(self.strict / min(lowest, score))
            for since, lowest in spans
            if lowest > self.least
        ]
        return max(self._now, min(instants))

    def next_scores(self, best: Mapping[str, float]) -> tuple[dict[str, Spans], float]:
        """Return the next scores and scored_at of ConsolidationMemory. best: pool -> score of its
        best move that waits, 0.0 without any; a pool that is missing was not looked at, its spans
        stay."""
        scores = dict(self._spans)
        for pool, score in best.items():
            first: dict[float, float] = {}  # lowest score -> since when
            for since, lowest in scores.pop(pool, ()):
                first.setdefault(min(lowest, score), since)
            latest = max(first.values(), default=-math.inf)
            if self._now - latest >= SPACING:
                first.setdefault(score, self._now)
            if score > self.least:
                spans = [(since, lowest) for lowest, since in first.items()]
                scores[pool] = tuple(spans[-MOST_SPANS:])
        return scores, self._now
