"""docs/cost.md equals the ledger's output for the counted calls, and the cost limits are met."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.aws.cost import (
    LIMIT_DEPLOYMENT,
    LIMIT_PARAMETER,
    LIMIT_SECRET,
    page,
    per_cluster,
    per_deployment,
    ways,
)
from infra.aws.cost_count import Counts, count

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cost.md"


@pytest.fixture(scope="module")
def counts() -> Counts:
    return count()


def test_docs_cost_page_equals_the_ledgers_output(counts: Counts) -> None:
    notified = count(notified=True)
    assert notified.writes == counts.writes, "a quiet tick writes no notices"
    assert page(counts, notified) == PAGE.read_text("utf-8"), "python -m infra.aws.cost > docs/cost.md"


def test_docs_cost_of_a_month_is_within_the_promise(counts: Counts) -> None:
    *_, secret, parameter = ways(counts)
    assert sum(per_cluster(secret).values()) <= LIMIT_SECRET
    assert sum(per_cluster(parameter).values()) <= LIMIT_PARAMETER
    assert sum(per_deployment(secret).values()) <= LIMIT_DEPLOYMENT


def test_docs_cost_no_change_raises_the_cost(counts: Counts) -> None:
    sums = [sum(per_cluster(way).values()) for way in ways(counts)]
    assert sums == sorted(sums, reverse=True)


def test_docs_cost_quiet_minute_writes_five_units_and_no_series(counts: Counts) -> None:
    assert counts.writes <= 5
    assert counts.series == 0
    assert counts.secret_reads == 1
    assert counts.calls == {"tick": 1, "reconcile": 1}
