"""Random clusters with random headroom: no limit is exceeded, and pods get the same
nodes as without headroom.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.model.group import GroupOptions
from chalicelib.model.plan import HeadroomVerdict
from chalicelib.policy.settings.headroom import Headroom
from tests.amounts import examples
from tests.builders import ZONE, cluster, even, expected, having, node
from tests.unit.plan.headroom_builder import GIB, gone, plan

_nodes = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1, 8), st.booleans()), max_size=8
)
_pods = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 30)), max_size=12)
_entries = st.lists(
    st.tuples(
        st.sampled_from([(), ("a",), ("b",), ("a", "c"), ("nobody",)]),
        st.integers(0, 6),
        st.integers(0, 30),
        st.integers(0, 200),
    ),
    max_size=3,
)


@pytest.mark.more
@settings(max_examples=examples(15, 40), deadline=None, derandomize=True)
@given(_nodes, _pods, _entries, st.integers(0, 6), st.integers(0, 10))
def test_headroom_never_exceeds_a_limit_nor_changes_what_pods_get(
    nodes: Any, pods: Any, entries: Any, most: int, total: int
) -> None:
    build = cluster()
    for at, (group, cpu, zoned) in enumerate(nodes):
        build.node(f"n{at}", str(cpu), f"{4 * cpu}Gi", group=group, zone="z" if zoned else "")
    for where, tenths in pods:
        if where < len(nodes):
            build.running(f"n{where}", 1, f"{tenths}00m", "512Mi")
        else:
            build.pending(
                1 + where % 3,
                f"{tenths}00m",
                "512Mi",
                owner=f"o{where % 2}",
                spread=(even(ZONE, having(app=f"o{where % 2}")),) if where % 5 == 0 else (),
            )
    for group in "abc":
        build.group(
            group,
            max=most,
            min=1,
            template=node("t", "4", "16Gi"),
            options=GroupOptions(zero_or_max=group == "c" and most > 4),
        )
    headroom = tuple(
        Headroom(
            f"h{at}",
            groups=groups,
            pods=count,
            cpu=100 * cpu,
            memory=GIB if count else 0,
            percent=0 if count else percent,
        )
        for at, (groups, count, cpu, percent) in enumerate(entries)
    )
    without = plan(build, max_nodes_total=total)
    found = plan(build, *headroom, max_nodes_total=total)
    again = plan(build, *headroom, max_nodes_total=total)
    assert msgspec.json.encode(found) == msgspec.json.encode(again)
    assert expected(found) == expected(without)
    assert {up.group: up.pods for up in found.scale_ups if up.pods} == {
        up.group: up.pods for up in without.scale_ups
    }
    sizes = {group.group: group.target for group in found.groups}
    for up in found.scale_ups:
        assert up.to_size <= most
        before = next(
            (each.to_size for each in without.scale_ups if each.group == up.group), up.from_size
        )
        assert up.to_size >= before
        assert up.to_size == before or up.headroom, "what is more is headroom's"
        sizes[up.group] = up.to_size
    if total and found.scale_ups:
        assert sum(sizes.values()) <= max(total, sum(each.target for each in without.groups))
    for one in found.headroom:
        assert isinstance(one, HeadroomVerdict)
        assert 0 <= one.held + one.added <= one.wanted
        assert bool(one.reasons) == (one.held + one.added < one.wanted)
    assert set(gone(found)) <= {each.name for each in build.nodes}


_small = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 8)), min_size=2, max_size=4)
_moving = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 12)), min_size=1, max_size=3)


@pytest.mark.more
@settings(max_examples=examples(15, 60), deadline=None, derandomize=True)
@given(
    _small, _moving, st.integers(1, 6), st.integers(1, 40), st.integers(0, 24), st.integers(1, 3)
)
def test_headroom_is_preserved_wherever_evicted_pods_are_placed(
    nodes: Any, moving: Any, count: int, cpu: int, memory: int, at_once: int
) -> None:
    """Tries all destinations of all evicted pods and counts the virtual pods that then fit."""
    build = cluster()
    free = {f"n{at}": (1000 * cores, 4 * GIB * cores) for at, (cores, _) in enumerate(nodes)}
    for at, (cores, used) in enumerate(nodes):
        build.node(f"n{at}", str(cores), f"{4 * cores}Gi", group="g")
        if used:
            build.running(f"n{at}", 1, f"{50 * used}m", f"{256 * used}Mi")
            free[f"n{at}"] = (1000 * cores - 50 * used, 4 * GIB * cores - 256 * 2**20 * used)
    for at, (tenths, quarters) in enumerate(moving):
        build.node(f"m{at}", "4", "16Gi", group="g").running(
            f"m{at}", 1, f"{tenths}00m", f"{256 * quarters}Mi"
        )
    build.group("g")
    each = 100 * cpu, 256 * 2**20 * memory
    found = plan(
        build,
        Headroom("spare", pods=count, cpu=each[0], memory=each[1]),
        max_drain_parallelism=at_once,
    )
    going = set(gone(found))
    pods = {f"n{at}": (50 * used, 256 * 2**20 * used) for at, (_, used) in enumerate(nodes) if used}
    pods |= {
        f"m{at}": (100 * tenths, 256 * 2**20 * quarters)
        for at, (tenths, quarters) in enumerate(moving)
    }
    rows = {name: left for name, left in free.items() if name not in going}
    rows |= {
        f"m{at}": (4000 - pods[f"m{at}"][0], 16 * GIB - pods[f"m{at}"][1])
        for at in range(len(moving))
        if f"m{at}" not in going
    }
    moved = [pods[name] for name in sorted(going) if name in pods]
    held = found.headroom[0].held
    assert rows or not moved
    for places in product(rows, repeat=len(moved)):
        left = dict(rows)
        for name, (milli, amount) in zip(places, moved, strict=True):
            left[name] = (left[name][0] - milli, left[name][1] - amount)
        if all(min(one) >= 0 for one in left.values()):
            assert (
                sum(
                    min(milli // each[0], amount // each[1] if each[1] else milli)
                    for milli, amount in left.values()
                )
                >= held
            )
