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
    assert page(counts, notified) == PAGE.read_text("utf-8"), (
        "python -m infra.aws.cost > docs/cost.md"
    )


def test_docs_cost_of_a_month_is_within_the_promise(counts: Counts) -> None:
    *_, secret, parameter = ways(counts)
    assert sum(per_cluster(secret).values()) <= LIMIT_SECRET
    assert sum(per_cluster(parameter).values()) <= LIMIT_PARAMETER
    assert sum(per_deployment(secret).values()) <= LIMIT_DEPLOYMENT


def test_docs_cost_leaves_what_every_tick_costs_to_the_deployment(counts: Counts) -> None:
    *_, shared, _, _, _ = all_ways = ways(counts)
    own = all_ways[all_ways.index(shared) - 1]
    assert 0 < counts.tick_reads < counts.reads
    assert 0 < counts.tick_log < counts.log
    added = sum(per_deployment(shared).values()) - sum(per_deployment(own).values())
    saved = sum(per_cluster(own).values()) - sum(per_cluster(shared).values())
    assert 0 < saved < added, "a tick reads a share of the policies for each cluster"


def test_docs_cost_no_change_raises_the_cost(counts: Counts) -> None:
    sums = [sum(per_cluster(way).values()) for way in ways(counts)]
    assert sums == sorted(sums, reverse=True)


def test_docs_cost_quiet_minute_writes_the_lease_twice_and_no_series(counts: Counts) -> None:
    assert counts.written == {"lease": 2}
    assert counts.writes < 2.2
    assert counts.reads <= 12
    assert counts.series == 0
    assert counts.secret_reads == 1
    assert counts.calls == {"tick": 1, "reconcile": 1}
