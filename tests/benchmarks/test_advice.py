"""Advice from generated weeks, on the days that it has not seen."""

from __future__ import annotations

import pytest

from tests.benchmarks.advice_trace import bursts, compared, office_weeks, openb, report
from tests.reference_data import SHARED


@pytest.mark.parametrize("holiday", [9, 16])
def test_advice_saves_nearly_all_waiting_for_few_more_node_hours(holiday: int) -> None:
    """The holiday is a Wednesday among the days of the fit, or among the unseen ones."""
    result = compared(office_weeks(holidays=(holiday,)), 21, 7)
    assert [item.schedule.cron for item in result.advice.proposals] == ["55 7 * * 1-5"]
    assert result.before.waited > 400
    assert result.after.waited < 0.1 * result.before.waited
    assert result.after.hours < 1.05 * result.before.hours
    assert "| 55 7 * * 1-5: min 12 | 0 of 2 |" in report({"weeks": result})


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_advice_proposes_nothing_for_bursts_at_any_time(seed: int) -> None:
    result = compared(bursts(seed=seed), 21, 7)
    assert result.advice.proposals == ()
    assert result.before.waited > 300


@pytest.mark.skipif(
    not (SHARED / "data" / "openb").is_dir(), reason="the reference data are not here"
)
def test_advice_proposes_nothing_for_tasks_without_hours() -> None:
    short, long = compared(openb(3), 3, 1), compared(openb(21), 21, 7)
    assert [refusal.problem for refusal in short.advice.refusals] == [
        "too little history: 2 of 14 days"
    ]
    assert long.advice.proposals == ()
