"""Any cluster with any headroom: no limit is passed, and pods get what they got without it (demands.md 17)."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.model.group import GroupOptions
from chalicelib.model.plan import HeadroomVerdict
from chalicelib.model.rules import Headroom
from tests.builders import ZONE, cluster, even, expected, having, node
from tests.unit.plan.spares import GIB, gone, plan

_nodes = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1, 8), st.booleans()), max_size=8)
_pods = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 30)), max_size=12)
_entries = st.lists(st.tuples(st.sampled_from([(), ("a",), ("b",), ("a", "c"), ("nobody",)]), st.integers(0, 6),
                              st.integers(0, 30), st.integers(0, 200)), max_size=3)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(_nodes, _pods, _entries, st.integers(0, 6), st.integers(0, 10))
def test_headroom_never_passes_a_limit_nor_changes_what_pods_get(nodes: Any, pods: Any, entries: Any, most: int,
                                                                 total: int) -> None:
    build = cluster()
    for at, (group, cpu, zoned) in enumerate(nodes):
        build.node(f"n{at}", str(cpu), f"{4 * cpu}Gi", group=group, zone="z" if zoned else "")
    for where, tenths in pods:
        if where < len(nodes):
            build.running(f"n{where}", 1, f"{tenths}00m", "512Mi")
        else:
            build.pending(1 + where % 3, f"{tenths}00m", "512Mi", owner=f"o{where % 2}",
                          spread=(even(ZONE, having(app=f"o{where % 2}")),) if where % 5 == 0 else ())
    for group in "abc":
        build.group(group, max=most, min=1, template=node("t", "4", "16Gi"),
                    options=GroupOptions(zero_or_max=group == "c" and most > 4))
    headroom = tuple(Headroom(f"h{at}", groups=groups, pods=count, cpu=100 * cpu, memory=GIB if count else 0,
                              percent=0 if count else percent)
                     for at, (groups, count, cpu, percent) in enumerate(entries))
    without = plan(build, max_nodes_total=total)
    found = plan(build, *headroom, max_nodes_total=total)
    again = plan(build, *headroom, max_nodes_total=total)
    assert msgspec.json.encode(found) == msgspec.json.encode(again)
    assert expected(found) == expected(without)
    assert {up.group: up.pods for up in found.scale_ups if up.pods} == {up.group: up.pods for up in without.scale_ups}
    sizes = {group.group: group.target for group in found.groups}
    for up in found.scale_ups:
        assert up.to_size <= most
        before = next((each.to_size for each in without.scale_ups if each.group == up.group), up.from_size)
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
