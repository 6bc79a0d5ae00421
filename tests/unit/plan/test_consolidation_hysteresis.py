"""What keeps consolidation calm: settled prices, age, quiet time, protection, moves of the day,
confirmation (fixture F)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import msgspec
import pytest

from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import ConsolidationMemory, Memory
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.removal.consolidation.costs import PriceHistory
from chalicelib.policy.settings.consolidation import ConsolidationMode
from chalicelib.policy.settings.node_limit import NodeLimit
from tests.builders import NOW, OLD, ClusterBuilder
from tests.unit.plan.consolidation_fixture import (
    TYPE,
    TYPES,
    Machine,
    P,
    PodCounts,
    Result,
    decide,
    fixture,
    grouped,
    machines,
    one_beside_a_full_one,
    pods,
    policy,
    settled,
    three_halves,
)


def test_cons_15_price_must_settle_before_it_counts() -> None:
    build = fixture(one_beside_a_full_one())
    prices: dict[str, PriceHistory] = {"s": ((NOW - 4000.0, 200_000), (NOW - 1740.0, 100_000))}
    before = decide(build, policy(), Memory(consolidation=ConsolidationMemory(prices=prices)))
    assert (before.report.moves, before.codes["a"]) == ((), "PriceUnsettled")
    assert before.reasons["a"].params == {"group": "s", "until": NOW + 60.0}
    assert before.memory.consolidation.prices["s"] == prices["s"]
    after = decide(build, policy(), before.memory, now=NOW + 60.0)
    assert (after.goes, after.bought, after.sums) == (["a"], {"s": 1}, (0.10, 3.0, 0.05, 1.0))


def test_cons_15_node_counts_at_the_lowest_price_of_the_settle_time() -> None:
    prices: dict[str, PriceHistory] = {"m": ((NOW - 4000.0, 50_000), (NOW - 1740.0, 200_000))}
    memory = Memory(consolidation=ConsolidationMemory(prices=prices))
    before = decide(fixture(one_beside_a_full_one()), policy(), memory)
    assert (before.report.moves, before.report.pools[0].price) == ((), 0.10)


@pytest.mark.parametrize(("age", "until"), [(1799.0, NOW + 1.0), (1800.0, None)])
def test_cons_16_young_node_stays_and_takes_pods(age: float, until: float | None) -> None:
    nodes = three_halves()
    build = machines({"a": nodes["a"]}, created=NOW - age)
    result = decide(grouped(machines({name: nodes[name] for name in "bc"}, build=build)))
    if until is None:
        assert result.goes == ["a", "b"]
        return
    assert (result.goes, result.codes) == (["b", "c"], {"a": "NodeTooYoung"})
    assert result.reasons["a"].params == {"until": until}
    assert {
        place for removal in result.plan.removals for place in removal.destinations.values()
    } == {"a"}


@pytest.mark.parametrize(
    ("born", "until"),
    [
        (NOW - 1800.0, None),
        (NOW - 1799.0, NOW + 1.0),
        (NOW - 60.0, NOW + 1740.0),
        (NOW + 60.0, NOW + 1740.0),
    ],
)
def test_young_node_object_of_an_old_machine_is_consolidated(
    born: float, until: float | None
) -> None:
    nodes = three_halves()
    build = machines({"a": nodes["a"]}, created=NOW - 60.0)
    build = grouped(machines({name: nodes[name] for name in "bc"}, build=build))
    build.groups = [_born(group, "a", born) for group in build.groups]
    result = decide(build)
    assert ("a" in result.goes) is (until is None)
    assert until is None or result.reasons["a"].params == {"until": until}


def _born(group: NodeGroup, node: str, born: float) -> NodeGroup:
    """The group with that birth of the machine of one node."""
    instances = (
        msgspec.structs.replace(machine, born=born) if machine.node == node else machine
        for machine in group.instances
    )
    return msgspec.structs.replace(group, instances=tuple(instances))


def _halves(*, newest: Mapping[str, float], **more: Any) -> ClusterBuilder:
    """CONS_1 with one pod P on each node created at these instants."""
    build = machines({name: ("m", pods(1)) for name in "abc"})
    for name in "abc":
        build.running(name, 1, *P, created=newest.get(name, OLD), **more)
    return build


def test_cons_17_node_is_quiet_if_no_pod_has_come_for_the_quiet_time() -> None:
    build = _halves(newest={"a": NOW - 599.0})
    build.running(
        "b",
        1,
        "100m",
        "10Mi",
        owner="agent",
        kind="DaemonSet",
        namespace="kube-system",
        created=NOW - 60.0,
    )
    result = decide(grouped(build))
    assert (result.codes, result.reasons["a"].params) == ({"a": "NotQuiet"}, {"until": NOW + 1.0})
    assert result.goes == ["b", "c"]


@pytest.mark.parametrize("change", ["comes", "leaves"])
def test_cons_17_old_pod_that_comes_or_goes_ends_the_quiet(change: str) -> None:
    """The pod has been pending for long, so only what the last pass saw tells when
    the node's pods changed."""
    with_it, without = _halves(newest={}), _halves(newest={})
    without.pods = [pod for at, pod in enumerate(without.pods) if at != 3]
    first, second = (without, with_it) if change == "comes" else (with_it, without)
    document = policy(mode=ConsolidationMode.SHADOW)
    before = decide(grouped(first), document, now=NOW - 700.0)
    seen = decide(grouped(second), document, before.memory, now=NOW - 599.0)
    assert seen.memory.nodes["a"].pods_since == NOW - 599.0
    result = decide(second, document, seen.memory)
    assert (result.codes["a"], result.reasons["a"].params) == ("NotQuiet", {"until": NOW + 1.0})
    assert result.goes == ["b", "c"]


def test_cons_18_node_that_is_not_quiet_takes_the_pods_of_others() -> None:
    result = decide(grouped(_halves(newest={"b": NOW - 60.0, "c": NOW - 60.0})))
    assert (result.removed, result.codes) == (["a"], {"b": "NotQuiet", "c": "NotQuiet"})
    assert {
        place for removal in result.plan.removals for place in removal.destinations.values()
    } <= {"b", "c"}


@pytest.mark.parametrize(
    ("value", "age", "params"),
    [
        ("2h", 7140.0, {"until": NOW + 60.0}),
        ("2h", 7200.0, None),
        ("true", 7200.0, {}),
        ("abc", 7140.0, None),
        ("false", 7140.0, None),
        ("2h", 0.0, {}),
    ],
)
def test_cons_19_pod_protects_its_node_for_as_long_as_it_says(
    value: str, age: float, params: dict[str, Any] | None
) -> None:
    build = machines({"a": ("m", pods(1)), "b": ("m", pods(2)), "c": ("m", pods(2))})
    build.running("a", 1, *P, do_not_disrupt=value, pod={"started": NOW - age if age else 0.0})
    result = decide(grouped(build))
    if params is None:
        assert result.goes == ["a", "b"]
        return
    assert (result.goes, result.codes) == (["b", "c"], {"a": "DoNotDisrupt"})
    assert result.reasons["a"].params == {"pod": "default/r-00005", **params}


@pytest.mark.parametrize(
    ("value", "warned"),
    [
        ("abc", "abc"),
        ("2 hours", "2 hours"),
        ("x" * 99, "x" * 40),
        ("true", ""),
        ("2h", ""),
        ("false", ""),
    ],
)
def test_cons_19_annotation_of_a_pod_that_is_ignored_is_a_warning(value: str, warned: str) -> None:
    build = machines({"a": ("m", pods(1)), "b": ("m", pods(2))})
    build.running("a", 1, *P, do_not_disrupt=value, pod={"started": NOW - 7140.0})
    notes = [
        note.params
        for note in decide(grouped(build)).plan.notes
        if note.code is ReasonCode.BAD_PROTECTION
    ]
    assert notes == ([{"pod": "default/r-00003", "value": warned}] if warned else [])


def test_cons_19_nobody_is_warned_while_consolidation_is_off() -> None:
    build = machines({"a": ("m", pods(1)), "b": ("m", pods(2))})
    build.running("a", 1, *P, do_not_disrupt="abc")
    notes = decide(grouped(build), policy(mode=ConsolidationMode.OFF)).plan.notes
    assert ReasonCode.BAD_PROTECTION not in {note.code for note in notes}


@pytest.mark.parametrize(
    ("value", "goes"), [("true", ["b", "c"]), ("2h", ["a", "b"]), ("True", ["a", "b"])]
)
def test_cons_19_only_the_word_true_protects_a_node(value: str, goes: list[str]) -> None:
    nodes = three_halves()
    build = machines({})
    build.node(
        "a",
        "4",
        "16Gi",
        group="m",
        labels={TYPE: "m"},
        annotations={"karpenter.sh/do-not-disrupt": value},
    )
    build.running("a", 2, *P)
    result = decide(grouped(machines({name: nodes[name] for name in "bc"}, build=build)))
    assert (result.goes, result.codes.get("a")) == (goes, None if "a" in goes else "DoNotDisrupt")


def test_cons_40_move_that_needs_a_lucky_order_is_not_made() -> None:
    types: dict[str, Machine] = {
        "x": ("4", "8Gi", 0.20),
        "y": ("8", "8Gi", 0.30),
        "z": ("8", "8Gi", 0.30),
    }
    nodes: dict[str, tuple[str, PodCounts]] = {
        "a": ("x", ((1, "2", "1Gi"), (1, "1", "1Gi"))),
        "y": ("y", ((12, "500m", "100Mi"),)),
        "z": ("z", ((14, "500m", "100Mi"),)),
    }
    result = decide(fixture(nodes, types, grows=()), policy(types))
    assert (result.report.moves, result.codes["a"]) == ((), "NotRobust")
    assert str(result.reasons["a"].params["order"]).endswith("into the emptiest nodes")
    assert result.reasons["a"].params["pod"] == "default/r-00000"


def _moved(*, times: int, oldest: float) -> Memory:
    moves = ((NOW - oldest, 1), *((NOW - 3600.0 - at, 1) for at in range(times - 1)))
    return Memory(
        consolidation=ConsolidationMemory(moves={"default/ReplicaSet/web": tuple(sorted(moves))})
    )


@pytest.mark.parametrize(
    ("times", "oldest", "most", "goes"),
    [
        (12, 82_800.0, 4, ["b", "c"]),
        (11, 82_800.0, 4, ["a", "b"]),
        (12, 86_400.0, 4, ["a", "b"]),
        (12, 82_800.0, 0, ["a", "b"]),
    ],
)
def test_cons_41_pods_of_an_owner_are_moved_a_limited_number_of_times_a_day(
    times: int, oldest: float, most: int, goes: list[str]
) -> None:
    build = machines(
        {"a": ("m", pods(1)), "b": ("m", pods(2)), "c": ("m", pods(2)), "full": ("m", pods(6))}
    )
    build.running("a", 1, *P, owner="web").running("full", 2, *P, owner="web")
    result = decide(
        grouped(build), policy(moves_per_pod_per_day=most), _moved(times=times, oldest=oldest)
    )
    assert result.goes == goes
    if "a" not in goes:
        assert result.codes["a"] == "PodMovedRecently"
        assert result.reasons["a"].params == {
            "owner": "default/ReplicaSet/web",
            "until": NOW + 3600.0,
        }


def test_cons_41_moves_of_a_pass_count_in_the_next_ones() -> None:
    result = decide(fixture(three_halves()))
    assert result.memory.consolidation.moves == {"default/ReplicaSet/rs": ((NOW, 4),)}


def _at(seconds: float, price: float, memory: Memory | None) -> Result:
    """CONS_3 with a price of s that gives the score (0.20 - price) / 0.10, so many seconds
    later."""
    types: dict[str, Machine] = {"s": ("2", "8Gi", price), "m": ("4", "16Gi", 0.20)}
    document = policy(types, confirm_after=60.0)
    build = fixture(one_beside_a_full_one(), types)
    return decide(build, document, settled(memory), now=NOW + seconds)


@pytest.mark.parametrize(
    ("second", "third", "begun"),
    [(0.159, 0.148, 60.0), (0.161, 0.148, 120.0), (0.159, 0.161, None)],
    ids=["0.41 is enough to go on", "0.39 begins anew", "0.39 at the end"],
)
def test_cons_42_replacement_begins_if_a_later_pass_still_wants_it(
    second: float, third: float, begun: float | None
) -> None:
    first = _at(0.0, 0.10, None)
    assert (first.goes, first.grown, first.codes["a"]) == (["a"], {}, "NotConfirmedYet")
    assert first.reasons["a"].params == {"since": NOW, "needs": 60.0}
    [row] = first.memory.replacements.values()
    assert (row.state.value, row.nodes) == ("proposed", ("a",))
    assert [(mark.node, mark.action) for mark in first.plan.marks] == [("a", "soften")]
    result, bought = first, None
    for seconds, price in ((30.0, second), (60.0, third), (90.0, third), (120.0, third)):
        result = _at(seconds, price, result.memory)
        if result.grown and bought is None:
            bought = seconds
    assert bought == begun


def test_replacement_that_saves_too_little_by_now_says_its_share_to_six_digits() -> None:
    def at(seconds: float, price: float, memory: Memory | None) -> Result:
        types: dict[str, Machine] = {"s": ("2", "8Gi", price), "m": ("4", "16Gi", 0.30)}
        document = policy(types, confirm_after=60.0)
        build = fixture(one_beside_a_full_one(), types)
        return decide(build, document, settled(memory), now=NOW + seconds)

    first = at(0.0, 0.10, None)
    second = at(60.0, 0.28, first.memory)
    assert (first.codes["a"], second.codes["a"]) == ("NotConfirmedYet", "SavingsTooSmall")
    assert second.reasons["a"].params == {"saves": 0.066667, "needs": 0.1}


def test_proposed_purchase_does_not_use_up_the_surge_of_its_own_pool() -> None:
    build = fixture(one_beside_a_full_one(), pool=None)
    document = policy(confirm_after=60.0, max_surge=NodeLimit(share=0.1))
    first = decide(build, document)
    assert (first.codes["a"], first.grown) == ("NotConfirmedYet", {})
    assert decide(build, document, first.memory, now=NOW + 60.0).grown == {"s": 1}


def _removal(seconds: float, dear: float, memory: Memory | None) -> Result:
    """A node m whose pods fit into a node of this price, so that its score is 0.20 *
    16 / (3 * (0.20 + dear))."""
    types: dict[str, Machine] = {"m": ("4", "16Gi", 0.20), "d": ("8", "32Gi", dear)}
    nodes: dict[str, tuple[str, PodCounts]] = {"a": ("m", pods(2)), "d": ("d", pods(12))}
    document = policy(types, confirm_after=60.0, mode=ConsolidationMode.REMOVE)
    return decide(fixture(nodes, types), document, settled(memory), now=NOW + seconds)


@pytest.mark.parametrize(
    ("second", "begun"),
    [(2.40, 60.0), (2.53, 120.0)],
    ids=["0.41 is enough to go on", "0.39 begins anew"],
)
def test_cons_42_removal_begins_if_a_later_pass_still_wants_it(second: float, begun: float) -> None:
    first = _removal(0.0, 0.50, None)
    assert (first.goes, first.removed, first.codes["a"]) == (["a"], [], "NotConfirmedYet")
    assert first.memory.nodes["a"].wanted_since == NOW
    result, removed = first, None
    for seconds, price in ((30.0, second), (60.0, 1.50), (90.0, 1.50), (120.0, 1.50)):
        result = _removal(seconds, price, result.memory)
        if result.removed and removed is None:
            removed = seconds
    assert removed == begun


def _billed(unit: float, k: float) -> Result:
    """A node of 0.24, billed by this unit and created so that 50 minutes of an hour are
    left, and a group t at 0.216."""
    types: dict[str, Machine] = {"h": ("4", "16Gi", 0.24), "t": ("2", "8Gi", 0.216)}
    build = machines({"a": ("h", pods(1))}, types, created=NOW - 7200.0 - 600.0)
    machines({"b": ("h", ((35, "110m", "100Mi"),))}, types, build=build)
    groups = {"h": {"billed_per": unit}}
    return decide(
        grouped(build, types, grows=["t"], groups=groups), policy(types, aggressiveness=k)
    )


@pytest.mark.parametrize(
    ("unit", "k", "gain"), [(3600.0, 2.0, 0.003035), (1.0, 2.0, 0.011368), (1.0, 1.5, 0.007157)]
)
def test_cons_44_unused_paid_time_is_taken_off_what_a_move_brings(
    unit: float, k: float, gain: float
) -> None:
    result = _billed(unit, k)
    assert (result.goes, result.sums[:3]) == (["a"], (0.024, 2.0, gain))


def test_cons_44_move_that_does_not_bring_back_the_unused_paid_time_is_not_made() -> None:
    result = _billed(3600.0, 1.5)
    assert (result.report.moves, result.codes["a"]) == ((), "NotWorthDisruption")
    params = result.reasons["a"].params
    assert (params["saves"], params["score"], params["needs"]) == (0.015667, 0.6202, 0.6667)


def _no_room() -> ClusterBuilder:
    """Nodes that are all needed: the search finds nothing."""
    return fixture({"a": ("m", pods(8)), "b": ("m", pods(8))})


def test_cons_60_search_that_found_nothing_is_not_repeated_for_five_minutes() -> None:
    first = decide(_no_room())
    assert (first.report.moves, first.memory.consolidation.searched_at) == ((), NOW)
    assert first.report.gap is not None
    result = first
    for seconds in (60.0, 120.0, 180.0, 240.0, 299.0):
        result = decide(_no_room(), None, result.memory, now=NOW + seconds)
        assert (result.report.gap, result.memory.consolidation.searched_at) == (None, NOW)
        assert result.reasons == first.reasons
    again = decide(_no_room(), None, result.memory, now=NOW + 300.0)
    assert (again.report.gap, again.memory.consolidation.searched_at) == (
        first.report.gap,
        NOW + 300.0,
    )


def _cheaper() -> Result:
    types: dict[str, Machine] = {**TYPES, "l": ("8", "32Gi", 0.19)}
    memory = decide(_no_room()).memory
    return decide(_no_room(), policy(types), settled(memory), now=NOW + 60.0)


def test_cons_60_new_price_is_searched_at_once() -> None:
    result = _cheaper()
    assert (result.goes, result.bought) == (["a", "b"], {"l": 1})


@pytest.mark.parametrize(
    "change",
    [
        lambda build: build.running("a", 1, "1m", "1Mi", created=OLD),
        lambda build: build.node("c", "4", "16Gi", labels={TYPE: "m"}),
        lambda build: setattr(build, "pods", build.pods[1:]),
    ],
    ids=["pod", "node", "pod that has gone"],
)
def test_cons_60_change_of_pods_or_nodes_is_searched_at_once(
    change: Callable[[ClusterBuilder], object],
) -> None:
    document = policy(quiet_time=0.0)
    memory = decide(_no_room(), document).memory
    build = _no_room()
    change(build)
    result = decide(build, document, memory, now=NOW + 60.0)
    assert result.memory.consolidation.searched_at == (0.0 if result.report.moves else NOW + 60.0)


def test_cons_60_new_policy_is_searched_at_once() -> None:
    memory = decide(_no_room()).memory
    result = decide(_no_room(), policy(aggressiveness=3.0), memory, now=NOW + 60.0)
    assert result.memory.consolidation.searched_at == NOW + 60.0


def test_search_that_was_cut_off_is_not_taken_for_one_that_found_nothing() -> None:
    build, ticks = fixture({"a": ("m", pods(8)), "b": ("m", pods(8))}), count(0.0, 100.0)
    document = policy()
    _, cut_off = plan_cluster(
        build.snapshot(), document, Memory(), NOW, 0, clock=lambda: next(ticks)
    )
    _, complete = plan_cluster(build.snapshot(), document, Memory(), NOW, 0)
    assert (cut_off.consolidation.digest, bool(complete.consolidation.digest)) == ("", True)
