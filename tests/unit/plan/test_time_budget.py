"""Time limits and their reasons. The clock is a parameter: without one no time passes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders import ClusterBuilder, cluster, growth, node, words


def _three() -> ClusterBuilder:
    """The best group comes last; the first has room for two pods in total."""
    build = (
        cluster()
        .group("a", max=1, template=node("t", "2", "64Gi"))
        .group("b", template=node("t", "2", "32Gi"))
    )
    return build.group("c", template=node("t", "2", "4Gi")).pending(6, "1", "1Mi")


def _after(seconds: float) -> Callable[[], float]:
    """A clock that starts at zero and then reads that many seconds later."""
    asked: list[float] = []

    def clock() -> float:
        asked.append(1000.0)
        return 1000.0 if len(asked) == 1 else 1000.0 + seconds

    return clock


@pytest.mark.parametrize(
    ("seconds", "limit", "found"),
    [
        pytest.param(10.0, 10.0, {"c": (3, 6)}, id="E15-exactly-the-limit-goes-on"),
        pytest.param(10.001, 10.0, {"a": (1, 2)}, id="E15-after-it-only-the-first-is-looked-at"),
        pytest.param(0.0, 0.0, {"a": (1, 2)}, id="E15-nought-stops-after-the-first"),
    ],
)
def test_groups_are_evaluated_while_there_is_time(
    seconds: float, limit: float, found: dict[str, tuple[int, int]]
) -> None:
    assert growth(_three().plan(clock=_after(seconds), max_binpacking_time=limit)) == found


def test_groups_not_evaluated_for_lack_of_time_report_it() -> None:
    plan = _three().plan(clock=_after(99.0), max_binpacking_time=10.0)
    late = "not looked at: time budget used up"
    assert words(plan) == {"a": ["max node group size reached"], "b": [late], "c": [late]}
    assert [len(each.pods) for each in plan.unschedulable] == [4]


def test_planner_without_a_clock_has_no_time_limit() -> None:
    assert growth(_three().plan(max_binpacking_time=0.001)) == {"c": (3, 6)}


def test_clock_that_stands_still_does_not_change_the_plan() -> None:
    assert _three().plan(clock=lambda: 5.0) == _three().plan()


def test_estimate_of_one_group_ends_at_its_time_limit() -> None:
    """The limit is 5 s, and ten seconds pass between two clock readings: the rest
    is skipped, with a reason."""
    ticks = iter(range(0, 10_000, 10))
    build = cluster().group("g", template=node("t"))
    for at in range(9):
        build.pending(1, "1", name=f"p{at}", owner=f"rs{at}")
    plan = build.plan(clock=lambda: float(next(ticks)), max_nodegroup_binpacking_duration=5.0)
    assert words(plan) == {"g": ["not looked at: time budget used up"]}
