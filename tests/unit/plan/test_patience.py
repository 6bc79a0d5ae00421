"""What a move needs after its pool's saving has stood for a time: the rule by itself, and played
over hours."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from chalicelib.model.memory import ConsolidationMemory
from chalicelib.plan.removal.consolidation.patience import MOST_SPANS, Patience, Spans
from chalicelib.policy.settings.consolidation import Consolidation
from tests.builders import NOW

HOUR = 3600.0
POOL = "pool"


def _after(
    scores: dict[str, Spans],
    *,
    scored: float = NOW,
    now: float = NOW,
    k: float = 2.0,
    on: bool = True,
) -> Patience:
    memory = ConsolidationMemory(scores=scores, scored_at=scored)
    return Patience(memory, now, Consolidation(aggressiveness=k, patience=on))


def _seen(*looks: tuple[float, float], k: float = 2.0) -> Patience:
    """The rule after these looks, at the instant of the last one. looks: (hours, best score)."""
    patience = _after({}, scored=0.0, now=NOW, k=k)
    for hours, score in looks:
        now = NOW + hours * HOUR
        patience = _again(patience, now, {POOL: score}, k)
    return patience


def _again(before: Patience, now: float, best: dict[str, float], k: float = 2.0) -> Patience:
    scores, scored = before.next_scores({})
    current = _after(scores, scored=scored, now=now, k=k)
    scores, scored = current.next_scores(best)
    return _after(scores, scored=scored, now=now, k=k)


def _steady(score: float, hours: int) -> list[tuple[float, float]]:
    return [(hour / 2, score) for hour in range(2 * hours + 1)]


def test_a_saving_that_has_just_appeared_needs_the_whole_score() -> None:
    assert _seen((0.0, 0.4)).needed(POOL) == 0.5
    assert _seen((0.0, 0.4)).needed("other") == 0.5


@pytest.mark.parametrize(("hours", "needed"), [(1, 0.5), (2, 0.5 * 2 ** (-2 / 6)), (6, 0.25)])
def test_what_is_needed_halves_in_six_hours_once_it_is_exceeded(hours: int, needed: float) -> None:
    assert _seen(*_steady(0.4, hours)).needed(POOL) == pytest.approx(needed)


def test_a_quarter_of_the_score_is_needed_after_any_time() -> None:
    assert _seen(*_steady(0.13, 48)).needed(POOL) == 0.125
    assert _seen(*_steady(0.12, 48)).needed(POOL) == 0.5
    assert _seen(*_steady(0.2, 48), k=4.0).needed(POOL) == 0.0625


def test_an_instant_says_when_the_score_is_enough() -> None:
    waits = 6 * HOUR * math.log2(0.5 / 0.4)
    assert round(waits / 60, 1) == 115.9
    assert _seen((0.0, 0.4)).enough_at(POOL, 0.4) == pytest.approx(NOW + waits)
    assert _seen(*_steady(0.4, 1)).enough_at(POOL, 0.4) == pytest.approx(NOW + waits)
    assert _seen(*_steady(0.4, 1)).enough_at("other", 0.4) == pytest.approx(NOW + HOUR + waits)
    assert _seen(*_steady(0.4, 3)).enough_at(POOL, 0.4) == NOW + 3 * HOUR
    assert _seen((0.0, 0.4)).enough_at(POOL, 0.125) is None


def test_steer_14_a_saving_of_two_levels_counts_as_the_lower_one_from_its_begin() -> None:
    swings = [(half / 2, 0.35 if half // 2 % 2 == 0 else 0.45) for half in range(1, 7)]
    assert _seen(*swings).needed(POOL) == 0.5, "0.35 is not enough after 2.5 hours"
    later = _seen(*swings, (3.2, 0.45), (3.7, 0.35))
    assert later.needed(POOL) == pytest.approx(0.5 * 2 ** (-3.2 / 6))
    assert later.enough_at(POOL, 0.2) == pytest.approx(NOW + 0.5 * HOUR + 6 * HOUR * math.log2(2.5))


def test_steer_14_a_saving_that_goes_away_begins_anew() -> None:
    hours = [(half / 2, 0.4 if half // 2 % 2 == 0 else 0.0) for half in range(49)]
    assert {_seen(*hours[:end]).needed(POOL) for end in range(1, 50)} == {0.5}


def test_a_higher_score_counts_by_itself_from_the_hour_in_which_it_began() -> None:
    looks = [*_steady(0.2, 3), *((3.5 + half / 2, 0.45) for half in range(4))]
    assert _seen(*looks).needed(POOL) == pytest.approx(0.5 * 2 ** (-1.5 / 6))


def test_a_pool_that_was_not_looked_at_keeps_what_has_stood() -> None:
    before = _seen(*_steady(0.4, 2))
    assert _again(before, NOW + 2.5 * HOUR, {"other": 0.3}).needed(POOL) == pytest.approx(
        0.5 * 2 ** (-2.5 / 6)
    )


@pytest.mark.parametrize("now", [NOW + 3601.0, NOW - 1.0], ids=["a gap", "clock backwards"])
def test_what_nobody_has_seen_for_an_hour_is_forgotten(now: float) -> None:
    scores: dict[str, Spans] = {POOL: ((NOW - 4 * HOUR, 0.4),)}
    assert _after(scores, now=NOW + 3600.0).needed(POOL) < 0.4
    assert _after(scores, now=now).needed(POOL) == 0.5
    assert _after(scores, now=now).next_scores({POOL: 0.4})[0] == {POOL: ((now, 0.4),)}


def test_without_patience_today_s_score_is_needed_and_nothing_is_remembered() -> None:
    patience = _after({POOL: ((NOW - 9 * HOUR, 0.4),)}, on=False)
    assert (patience.needed(POOL), patience.enough_at(POOL, 0.4)) == (0.5, None)
    assert patience.next_scores({POOL: 0.4})[0] == {}


def test_a_pool_has_one_span_an_hour_and_at_most_those_of_a_day() -> None:
    rising = [(minute / 6, 0.2 + minute / 6000) for minute in range(6 * 30)]
    scores, _ = _seen(*rising).next_scores({})
    starts = [since for since, _ in scores[POOL]]
    assert len(starts) == MOST_SPANS
    assert min(later - since for since, later in pairwise(starts)) >= HOUR
