"""Case E15 and what is said when time runs out. The clock is a parameter: without one no time passes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders import ClusterBuilder, cluster, growth, node, words


def _three() -> ClusterBuilder:
    """The best group comes last; the first is good for two pods in all."""
    build = cluster().group("a", max=1, template=node("t", "2", "64Gi")).group("b", template=node("t", "2", "32Gi"))
    return build.group("c", template=node("t", "2", "4Gi")).pending(6, "1", "1Mi")


def _after(seconds: float) -> Callable[[], float]:
    """A clock that is first asked at the start, and later finds so many seconds gone."""
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
def test_groups_are_looked_at_while_there_is_time(
    seconds: float, limit: float, found: dict[str, tuple[int, int]]
) -> None:
    assert growth(_three().plan(clock=_after(seconds), max_binpacking_time=limit)) == found


def test_what_was_not_looked_at_says_so() -> None:
    plan = _three().plan(clock=_after(99.0), max_binpacking_time=10.0)
    late = "not looked at: time budget used up"
    assert words(plan) == {"a": ["max node group size reached"], "b": [late], "c": [late]}
    assert [len(each.pods) for each in plan.unschedulable] == [4]


def test_without_a_clock_no_time_passes() -> None:
    assert growth(_three().plan(max_binpacking_time=0.001)) == {"c": (3, 6)}


def test_a_clock_that_stands_still_changes_nothing() -> None:
    assert _three().plan(clock=lambda: 5.0) == _three().plan()


def test_E12_counting_one_group_ends_with_its_time() -> None:
    """A limit of 5 s, and ten seconds go by between two looks at the clock: the rest is left, and told why."""
    ticks = iter(range(0, 10_000, 10))
    build = cluster().group("g", template=node("t"))
    for at in range(9):
        build.pending(1, "1", name=f"p{at}", owner=f"rs{at}")
    plan = build.plan(clock=lambda: float(next(ticks)), max_nodegroup_binpacking_duration=5.0)
    assert words(plan) == {"g": ["not looked at: time budget used up"]}
