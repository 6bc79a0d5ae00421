"""Random removal candidates: the selection never exceeds a minimum, a disruption budget or the
circuit breaker, and takes zero-or-max groups whole."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.model.group import GroupOptions
from chalicelib.model.memory import BreakerState, Memory
from chalicelib.policy.settings.max_disruption import MaxDisruption
from tests.amounts import examples
from tests.builders import NOW
from tests.unit.plan.selection_builder import SelectionBuilderPool, goes

GROUPS = st.lists(
    st.fixed_dictionaries(
        {
            "empty": st.integers(0, 6),
            "drain": st.integers(0, 4),
            "others": st.integers(0, 3),
            "pods": st.integers(1, 9),
            "min": st.integers(0, 4),
            "extra": st.integers(-2, 3),
            "atomic": st.booleans(),
            "cpu": st.integers(1, 3),
            "going": st.integers(0, 2),
            "gone": st.integers(0, 2),
            "risky": st.booleans(),
            "error": st.booleans(),
        }
    ),
    min_size=1,
    max_size=4,
)
TAKEN = st.lists(
    st.tuples(
        st.integers(-4000, 10).map(lambda age: NOW + age), st.integers(0, 4), st.integers(0, 9)
    ),
    max_size=3,
).map(tuple)
LIMITS = st.fixed_dictionaries(
    {
        "nodes": st.integers(0, 8),
        "pods": st.integers(0, 20),
        "share": st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        "most": st.integers(1, 8),
        "drains": st.integers(1, 4),
        "cores": st.integers(0, 30),
        "memory": st.integers(0, 80),
        "released": st.booleans(),
    }
)


def build(groups: list[dict[str, Any]]) -> SelectionBuilderPool:
    pool = SelectionBuilderPool()
    for at, each in enumerate(groups):
        name = f"g{at}"
        size = each["empty"] + each["drain"] + each["others"]
        pool.group(
            name,
            each["empty"],
            each["drain"],
            others=each["others"],
            pods=each["pods"],
            cpu=str(each["cpu"]),
            risky=each["risky"],
            min=each["min"],
            target=max(0, size + each["extra"]),
            options=GroupOptions(zero_or_max=each["atomic"]),
            error="403" if each["error"] else "",
        )
        going = [f"{name}-o{number:02d}" for number in range(min(each["going"], each["others"]))]
        pool.going(
            name,
            *going,
            *(f"{name}-x{number}" for number in range(each["gone"])),
            drained=each["risky"],
        )
    return pool


@pytest.mark.more
@settings(max_examples=examples(100, 400), deadline=None)
@given(GROUPS, LIMITS, TAKEN)
def test_removal_selection_never_exceeds_a_limit(
    groups: list[dict[str, Any]], limits: dict[str, Any], taken: tuple[tuple[float, int, int], ...]
) -> None:
    pool = build(groups)
    allowed = MaxDisruption(limits["nodes"], limits["pods"], limits["share"])
    memory = Memory(
        breaker=BreakerState(taken), released_until=NOW + 60 if limits["released"] else 0.0
    )
    options: dict[str, Any] = {
        "max_scale_down_parallelism": limits["most"],
        "max_drain_parallelism": limits["drains"],
        "cores_total": (limits["cores"], 10**6),
        "memory_total": (limits["memory"] * 2**30, 2**60),
    }
    picked = pool.pick(memory, max_disruption=allowed, **options)
    world = pool.world(memory, max_disruption=allowed, **options)

    assert sorted([*goes(picked), *picked.refused]) == sorted(
        each.node.name for each in pool.candidates
    ), "all are told"
    assert picked == pool.pick(memory, max_disruption=allowed, **options)
    per_group = Counter(each.group for each in picked.chosen)
    atomic = {group for group in per_group if world.groups[group].group.options.zero_or_max}
    for group, count in per_group.items():
        facts = world.groups[group]
        assert facts.target - facts.leaving - count >= facts.group.min
        if group in atomic:
            staying = [node for node in facts.nodes if node.name not in world.leaving]
            assert count == len(staying) or (count == facts.target and not facts.leaving), (
                "whole or not at all"
            )

    single = [each for each in picked.chosen if each.group not in atomic]
    running = [target for operation in pool.operations for target in operation.spec.targets]
    drains = sum(bool(each.evict) for each in picked.chosen)
    draining = sum(bool(target.evict) for target in running)
    if len(atomic) <= 1 and single:
        assert len(picked.chosen) + len(running) <= limits["most"], (
            "only an atomic group may overflow, alone"
        )
    if not atomic and drains:
        assert drains + draining <= limits["drains"]
    if len(running) >= limits["most"]:
        assert picked.chosen == ()

    left = [
        node
        for node in pool.build.nodes
        if node.name not in world.leaving and node.name not in goes(picked)
    ]
    if picked.chosen:
        assert sum(node.capacity["cpu"] for node in left) >= limits["cores"] * 1000
        assert sum(node.capacity["memory"] for node in left) >= limits["memory"] * 2**30

    if not limits["released"]:
        _within_max_disruption(picked.chosen, allowed, taken, picked.breaker, atomic)
    if picked.breaker.tripped_at:
        assert picked.chosen == ()
        assert picked.paused is not None


def _within_max_disruption(
    chosen: tuple[Any, ...],
    allowed: MaxDisruption,
    taken: tuple[tuple[float, int, int], ...],
    after: BreakerState,
    atomic: set[str],
) -> None:
    hour = [one for one in taken if abs(NOW - one[0]) < 3600]
    nodes, pods = len(chosen), sum(len(each.evict) for each in chosen)
    units = len(atomic) + sum(each.group not in atomic for each in chosen)
    for limit, before, now in (
        (allowed.nodes_per_hour, sum(one[1] for one in hour), nodes),
        (allowed.pods_per_hour, sum(one[2] for one in hour), pods),
    ):
        if limit and now and before + now > limit:
            assert before == 0, (
                "only what is larger than the limit by itself, and only into an empty hour"
            )
            assert units >= 1
            assert sum(bool(each.evict) for each in chosen) == 1 or atomic
    if chosen and allowed != MaxDisruption():
        assert after.removals[-1] == (NOW, nodes, pods)
