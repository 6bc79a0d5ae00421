from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chalicelib.journal.events import APART, MOST, digest, filter_new, recent
from tests.unit.journal.support import NOW

A, B = digest("a"), digest("b")


def test_event_dedup_new_event_is_posted_and_then_known_for_five_minutes() -> None:
    new, reported = filter_new(b"", [A], NOW)
    assert new == {A}
    assert filter_new(reported, [A, B], NOW + APART - 1)[0] == {B}
    assert filter_new(reported, [A], NOW + APART)[0] == {A}


def test_event_dedup_without_new_events_returns_identical_bytes() -> None:
    _, reported = filter_new(b"", [A, B], NOW)
    assert filter_new(reported, [A], NOW + 10) == (frozenset(), reported)


def test_event_dedup_drops_expired_events() -> None:
    _, reported = filter_new(b"", [A], NOW)
    assert filter_new(reported, [], NOW + APART) == (frozenset(), b"")


def test_event_dedup_clock_set_back_by_hours_suppresses_nothing() -> None:
    _, reported = filter_new(b"", [A], NOW)
    assert filter_new(reported, [A], NOW - 7200)[0] == {A}


def test_event_dedup_storm_keeps_the_newest_and_the_row_small() -> None:
    _, reported = filter_new(b"", [A], NOW)
    _, reported = filter_new(reported, [digest(str(n)) for n in range(MOST)], NOW + 1)
    assert len(reported) == 10 * MOST
    assert A not in recent(reported, NOW + 1)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # slow on busy machines
@given(
    st.binary(max_size=200),
    st.lists(st.binary(min_size=6, max_size=6), max_size=20),
    st.floats(0, 4e9),
)
def test_event_dedup_unreadable_row_counts_as_empty(
    rubbish: bytes, keys: list[bytes], now: float
) -> None:
    new, reported = filter_new(rubbish, keys, now)
    assert new <= set(keys)
    assert (
        filter_new(reported, keys, now)[0] == set()
        or len(reported) == 10 * MOST
        or int(now) <= now - APART
    )


def test_event_dedup_lasting_fact_is_known_for_a_day_and_hides_no_other() -> None:
    lasting = digest("a", lasting=True)
    _, reported = filter_new(b"", [lasting, A], NOW)
    assert filter_new(reported, [lasting, A], NOW + 301)[0] == {A}
    assert filter_new(reported, [lasting], NOW + 86_399)[0] == frozenset()
    assert filter_new(reported, [lasting], NOW + 86_401)[0] == {lasting}
    assert filter_new(reported, [lasting], NOW - 301)[0] == {lasting}, "the clock went back"
    assert {digest(str(n))[0] for n in range(5000)} == set(range(255))
