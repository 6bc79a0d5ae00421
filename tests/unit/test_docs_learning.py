"""The page on what groups teach: its figures equal the code, and its example is right."""

from __future__ import annotations

import re

import msgspec
import pytest

from chalicelib.model.join_summary import (
    ASSUMED,
    ENOUGH,
    HALF_LIFE,
    SHORTEST,
    join_summary,
    learnt_timeout,
)
from chalicelib.model.memory import GroupMemory, JoinStatistics, Memory
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.prices import MICRO
from chalicelib.plan.scale_up.expected_prices import HORIZON, WORST, weighed
from chalicelib.plan.state.join_statistics import LONGEST, MOST_STARTING, MOST_TIMES
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.scale_up import ScaleUp
from tests.builders import NOW, cluster, growth, node
from tests.source_trees import ROOT
from tests.unit.test_docs import rows

PAGE = ROOT / "docs/reference/learning.md"
TIMES = "\N{MULTIPLICATION SIGN}"
TYPE = "node.kubernetes.io/instance-type"


def taught(row: list[str]) -> JoinStatistics:
    """Return the statistics of a group of the example."""
    times: list[int] = []
    for part in row[2].split(","):
        count, _, seconds = part.rpartition(TIMES)
        times += [int(seconds)] * int(count or 1)
    joined, failed = float(row[3]), float(row[4])
    return JoinStatistics(
        ready=tuple(times),
        joined=joined,
        failed=failed,
        counted_at=NOW,
        since_timeout=len(times),
        seen_until=NOW,
    )


@pytest.mark.parametrize("row", [0, 1])
def test_docs_learning_example_follows_its_own_rules(row: int) -> None:
    cells = rows(PAGE, "Example")[row]
    statistics = taught(cells)
    assert statistics.joined == len(statistics.ready)
    figures = join_summary(statistics, NOW)
    assert [figures.median, figures.p95, figures.p99] == [int(cell) for cell in cells[5:8]]
    assert figures.failure_rate is not None
    assert f"{figures.failure_rate:.1%}" == cells[8]
    expected = weighed(round(float(cells[1]) * MICRO), figures.median or 0, figures.failure_rate)
    assert expected == round(float(cells[9]) * MICRO)
    assert learnt_timeout(statistics, Options().max_node_provision_time) == float(cells[10])


@pytest.mark.parametrize(("expected_cost", "group"), [(True, "web"), (False, "metal")])
def test_docs_learning_example_is_what_the_planner_chooses(expected_cost: bool, group: str) -> None:
    examples = {cells[0].strip("*"): cells for cells in rows(PAGE, "Example")}
    build = cluster()
    for name in examples:
        build.group(name, template=node(f"t-{name}", "4", labels={TYPE: name}))
    memory = Memory(
        groups={name: GroupMemory(joins=taught(cells)) for name, cells in examples.items()}
    )
    policy = Policy(
        name="test",
        options=msgspec.structs.replace(Options(), expander=("price",)),
        prices=NodePrices(
            instance_types={name: float(cells[1]) for name, cells in examples.items()}
        ),
        scale_up=ScaleUp(expected_cost=expected_cost),
    )
    plan, _ = plan_cluster(build.pending(1, "2").snapshot(), policy, memory, NOW, 0)
    assert growth(plan) == {group: (1, 1)}


def test_docs_learning_numbers_equal_the_code() -> None:
    text = " ".join(PAGE.read_text("utf-8").split())
    assert (HALF_LIFE, ASSUMED, ENOUGH, SHORTEST) == (7 * 86400, 2, 20, 120)
    assert (HORIZON, WORST, LONGEST) == (86_400, 900_000, 86_400)
    for sentence in (
        "halved every 7 days",
        "`failed / (joined + failed + 2)`",
        "once 20 nodes have joined",
        "at least 2 minutes",
        f"price {TIMES} (1 + median / 24 h) / (1 - min(failure rate, 0.9))",
        "below 0 or above a day",
    ):
        assert sentence in text
    assert text.count("halved every 7 days") == 1
    bounds = [int(value.replace(",", "")) for _, value in rows(PAGE, "Bounds")]
    assert bounds == [MOST_TIMES, MOST_STARTING, MOST_STARTING]
    assert join_summary(
        JoinStatistics(failed=1, counted_at=NOW), NOW
    ).failure_rate == pytest.approx(1 / 3, abs=1e-6)
    assert re.search(r"without a history is 33 %", text)
