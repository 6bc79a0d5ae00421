"""docs/metrics.md and the second half of docs/events.md equal the tables of the code."""

from __future__ import annotations

import re
from pathlib import Path

from chalicelib.journal.events import APART, PODS_TOLD
from chalicelib.journal.metric_values import ERRORS
from chalicelib.journal.metrics import BUCKETS, PREFIX
from tests.unit.test_docs import EVENTS, rows

METRICS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def test_docs_metrics_list_all_error_types() -> None:
    [values] = [
        row[1] for row in rows(METRICS_PAGE, "Label values") if row[0] == "`type` of `errors_total`"
    ]
    assert sorted(re.findall(r"`(\w+)`", values)) == sorted(name for _, name in ERRORS)


def test_docs_metrics_and_events_numbers_equal_the_code() -> None:
    text = METRICS_PAGE.read_text("utf-8")
    assert f"begins with `{PREFIX}`" in text
    assert f"has {len(BUCKETS) + 1} buckets up to {BUCKETS[-1]:g} s" in text
    assert f"once in {APART / 60:g} minutes" in EVENTS.read_text("utf-8")
    assert f"at most {PODS_TOLD} objects" in EVENTS.read_text("utf-8")
