"""What a move needs after its pool's saving has stood for a time: the rule by itself, and played
over hours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import ConsolidationMemory, Memory
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.removal.consolidation.patience import MOST_SPANS, Patience, Spans
from chalicelib.policy.settings.consolidation import Consolidation
from chalicelib.policy.settings.node_limit import NodeLimit
from tests.benchmarks.consolidation_world import MINUTE, Outscaler, World
from tests.builders import NOW
from tests.unit.plan.consolidation_fixture import (
    TYPE,
    Machine,
    P,
    PodCounts,
    Result,
    decide,
    fixture,
    grouped,
    machines,
    pods,
    policy,
    settled,
)

HOUR = 3600.0
POOL = "pool"


def _after(
    scores: dict[str, Spans],
    *,
    scored: float = NOW,
    now: float = NOW,
    k: float = 2.0,
    on: bool = True,
) -> Patience:
    memory = ConsolidationMemory(scores=scores, scored_at=scored)
    return Patience(memory, now, Consolidation(aggressiveness=k, patience=on))


def _seen(*looks: tuple[float, float], k: float = 2.0) -> Patience:
    """The rule after these looks, at the instant of the last one. looks: (hours, best score)."""
    patience = _after({}, scored=0.0, now=NOW, k=k)
    for hours, score in looks:
        now = NOW + hours * HOUR
        patience = _again(patience, now, {POOL: score}, k)
    return patience


def _again(before: Patience, now: float, best: dict[str, float], k: float = 2.0) -> Patience:
    scores, scored = before.next_scores({})
    current = _after(scores, scored=scored, now=now, k=k)
    scores, scored = current.next_scores(best)
    return _after(scores, scored=scored, now=now, k=k)


def _steady(score: float, hours: int) -> list[tuple[float, float]]:
    return [(hour / 2, score) for hour in range(2 * hours + 1)]


def test_a_saving_that_has_just_appeared_needs_the_whole_score() -> None:
    assert _seen((0.0, 0.4)).needed(POOL) == 0.5
    assert _seen((0.0, 0.4)).needed("other") == 0.5


@pytest.mark.parametrize(("hours", "needed"), [(1, 0.5), (2, 0.5 * 2 ** (-2 / 6)), (6, 0.25)])
def test_what_is_needed_halves_in_six_hours_once_it_is_exceeded(hours: int, needed: float) -> None:
    assert _seen(*_steady(0.4, hours)).needed(POOL) == pytest.approx(needed)


def test_a_quarter_of_the_score_is_needed_after_any_time() -> None:
    assert _seen(*_steady(0.13, 48)).needed(POOL) == 0.125
    assert _seen(*_steady(0.12, 48)).needed(POOL) == 0.5
    assert _seen(*_steady(0.2, 48), k=4.0).needed(POOL) == 0.0625


def test_an_instant_says_when_the_score_is_enough() -> None:
    waits = 6 * HOUR * math.log2(0.5 / 0.4)
    assert round(waits / 60, 1) == 115.9
    assert _seen((0.0, 0.4)).enough_at(POOL, 0.4) == pytest.approx(NOW + waits)
    assert _seen(*_steady(0.4, 1)).enough_at(POOL, 0.4) == pytest.approx(NOW + waits)
    assert _seen(*_steady(0.4, 1)).enough_at("other", 0.4) == pytest.approx(NOW + HOUR + waits)
    assert _seen(*_steady(0.4, 3)).enough_at(POOL, 0.4) == NOW + 3 * HOUR
    assert _seen((0.0, 0.4)).enough_at(POOL, 0.125) is None


def test_steer_14_a_saving_of_two_levels_counts_as_the_lower_one_from_its_begin() -> None:
    swings = [(half / 2, 0.35 if half // 2 % 2 == 0 else 0.45) for half in range(1, 7)]
    assert _seen(*swings).needed(POOL) == 0.5, "0.35 is not enough after 2.5 hours"
    later = _seen(*swings, (3.2, 0.45), (3.7, 0.35))
    assert later.needed(POOL) == pytest.approx(0.5 * 2 ** (-3.2 / 6))
    assert later.enough_at(POOL, 0.2) == pytest.approx(NOW + 0.5 * HOUR + 6 * HOUR * math.log2(2.5))


def test_steer_14_a_saving_that_goes_away_begins_anew() -> None:
    hours = [(half / 2, 0.4 if half // 2 % 2 == 0 else 0.0) for half in range(49)]
    assert {_seen(*hours[:end]).needed(POOL) for end in range(1, 50)} == {0.5}


def test_a_higher_score_counts_by_itself_from_the_hour_in_which_it_began() -> None:
    looks = [*_steady(0.2, 3), *((3.5 + half / 2, 0.45) for half in range(4))]
    assert _seen(*looks).needed(POOL) == pytest.approx(0.5 * 2 ** (-1.5 / 6))


def test_a_pool_that_was_not_looked_at_keeps_what_has_stood() -> None:
    before = _seen(*_steady(0.4, 2))
    assert _again(before, NOW + 2.5 * HOUR, {"other": 0.3}).needed(POOL) == pytest.approx(
        0.5 * 2 ** (-2.5 / 6)
    )


@pytest.mark.parametrize("now", [NOW + 3601.0, NOW - 1.0], ids=["a gap", "clock backwards"])
def test_what_nobody_has_seen_for_an_hour_is_forgotten(now: float) -> None:
    scores: dict[str, Spans] = {POOL: ((NOW - 4 * HOUR, 0.4),)}
    assert _after(scores, now=NOW + 3600.0).needed(POOL) < 0.4
    assert _after(scores, now=now).needed(POOL) == 0.5
    assert _after(scores, now=now).next_scores({POOL: 0.4})[0] == {POOL: ((now, 0.4),)}


def test_without_patience_today_s_score_is_needed_and_nothing_is_remembered() -> None:
    patience = _after({POOL: ((NOW - 9 * HOUR, 0.4),)}, on=False)
    assert (patience.needed(POOL), patience.enough_at(POOL, 0.4)) == (0.5, None)
    assert patience.next_scores({POOL: 0.4})[0] == {}


def test_a_pool_has_one_span_an_hour_and_at_most_those_of_a_day() -> None:
    rising = [(minute / 6, 0.2 + minute / 6000) for minute in range(6 * 30)]
    scores, _ = _seen(*rising).next_scores({})
    starts = [since for since, _ in scores[POOL]]
    assert len(starts) == MOST_SPANS
    assert min(later - since for since, later in pairwise(starts)) >= HOUR


# --- played over hours

DEAR, CHEAP = 0.60, 0.36
TEN_NODES: Mapping[str, tuple[str, PodCounts]] = {
    f"n{at}": ("dear", ((14, "520m", "2Gi"),)) for at in range(10)
}
"""Ten equal nodes that are 91% full."""


def _types(cheap: float = CHEAP) -> dict[str, Machine]:
    """The same size twice. The score of a replacement is 1 - cheap / DEAR."""
    return {"dear": ("8", "32Gi", DEAR), "cheap": ("8", "32Gi", cheap)}


def _world(**consolidation: Any) -> tuple[World, Outscaler]:
    document = policy(_types(), **consolidation)
    # The world names machines in its own way.
    snapshot = msgspec.json.encode(fixture(TEN_NODES, _types()).snapshot())
    snapshot = snapshot.replace(b"test://", b"bench://")
    world = World(msgspec.json.decode(snapshot, type=Snapshot), prices=document.prices)
    return world, Outscaler(document)


def _pass(world: World, planner: Outscaler) -> None:
    planner.act(world)
    world.bind()
    world.advance(MINUTE)
    world.join_started()


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"max_surge": NodeLimit(share=0.1), "max_replacements": 3}, 1),
        ({}, 10),
    ],
    ids=["the usual surge of one node", "all at once"],
)
def test_steer_13_a_saving_of_forty_per_cent_is_made_after_two_hours(
    limits: dict[str, Any], most: int
) -> None:
    world, planner = _world(**limits)
    for _ in range(116):
        _pass(world, planner)
    assert (world.bought, world.price) == ([], 6_000_000)
    sizes = []
    for _ in range(90):
        _pass(world, planner)
        sizes.append(world.nodes)
    assert world.bought[0].at == NOW + 116 * MINUTE, "1 h 56 min"
    assert max(sizes) <= 10 + most
    assert (world.price, world.nodes, world.pending) == (3_600_000, 10, 0)
    assert len(world.moves) == 140, "each pod moves once"


def test_without_patience_a_saving_of_forty_per_cent_is_never_made() -> None:
    world, planner = _world(patience=False)
    for _ in range(180):
        _pass(world, planner)
    assert (world.bought, planner.memory.consolidation.scores) == ([], {})


def _first_move(
    price_at: Callable[[float], float], *, hours: int, minutes: int = 15, **settings: Any
) -> float | None:
    """Hours after which the first move is wanted, in passes so many minutes apart; None: never.
    price_at: hours -> price of the cheap node."""
    memory: Memory | None = None
    for at in range(0, hours * 60, minutes):
        types = _types(price_at(at / 60))
        document = policy(types, **settings)
        result = decide(fixture(TEN_NODES, types), document, settled(memory), now=NOW + at * MINUTE)
        if result.report.moves:
            return at / 60
        memory = result.memory
    return None


def test_steer_14_a_saving_that_appears_and_goes_every_hour_moves_nothing() -> None:
    assert _first_move(lambda hours: DEAR if int(hours) % 2 else CHEAP, hours=12) is None
    assert _first_move(lambda _: CHEAP, hours=12) == 2.0


def test_steer_14_a_saving_that_swings_counts_at_its_lower_level() -> None:
    def swing(hours: float) -> float:
        return 0.33 if hours // 2 % 2 else 0.39  # 45% and 35%

    def after(price_at: Callable[[float], float]) -> float | None:
        return _first_move(price_at, hours=9, aggressiveness=1.25)

    assert (after(swing), after(lambda _: 0.39)) == (7.25, 7.25)
    assert after(lambda _: 0.33) == 5.0


def test_steer_14_one_per_cent_for_a_fifth_of_the_pods_moves_nothing_in_a_week() -> None:
    types: dict[str, Machine] = {"tiny": ("4", "16Gi", 0.05), "big": ("8", "32Gi", 1.2375)}
    nodes = {"a": ("tiny", pods(4))} | {f"b{at}": ("big", pods(4)) for at in range(4)}
    build = fixture(nodes, types, grows=(), groups={"big": {"min": 4}})
    memory: Memory | None = None
    results: list[Result] = []
    for at in range(7 * 48):
        results.append(decide(build, policy(types), memory, now=NOW + at * HOUR / 2))
        memory = results[-1].memory
    assert len(results) == 336
    assert not any(result.report.moves for result in results)
    reason = results[-1].reasons["a"]
    assert (reason.code.value, "until" in reason.params) == ("NotWorthDisruption", False)


def test_a_move_that_waits_says_until_when_and_is_searched_again_at_that_instant() -> None:
    build, document = fixture(TEN_NODES, _types()), policy(_types())
    first = decide(build, document)
    until = first.reasons["n0"].params["until"]
    assert until == pytest.approx(NOW + 6 * HOUR * math.log2(1.25))
    late = NOW + 6_900.0
    memory = first.memory
    for now in (NOW + 3_000.0, NOW + 6_000.0, late):
        result = decide(build, document, memory, now=now)
        memory = result.memory
        assert (result.report.moves, result.reasons["n0"].params["until"]) == ((), until)
    assert memory.consolidation.searched_at == late
    repeated = decide(build, document, memory, now=late + 50.0)
    assert (repeated.report.gap, repeated.memory) == (None, memory)
    assert decide(build, document, repeated.memory, now=late + 60.0).goes == sorted(TEN_NODES)


@pytest.mark.parametrize("later", [3_601.0, -100.0], ids=["a gap", "clock backwards"])
def test_a_saving_that_nobody_looked_at_begins_anew(later: float) -> None:
    build, document = fixture(TEN_NODES, _types()), policy(_types())
    spans: dict[str, Spans] = {"pool": ((NOW - 9 * HOUR, 0.4),)}
    before = Memory(consolidation=ConsolidationMemory(scores=spans, scored_at=NOW))
    assert decide(build, document, before, now=NOW + 3_600.0).goes == sorted(TEN_NODES)
    result = decide(build, document, before, now=NOW + later)
    assert (result.goes, result.reasons["n0"].params["needs"]) == ([], 0.5)
    [(since, lowest)] = result.memory.consolidation.scores["pool"]
    assert since == NOW + later
    assert lowest == pytest.approx(0.4)


def test_moves_that_need_no_patience_do_not_make_others_worth_it() -> None:
    """A pool in which something good goes all day: what is poorer waits for itself."""
    nodes = {"half": ("dear", ((1, "520m", "2Gi"),)), **TEN_NODES}
    spans: dict[str, Spans] = {}
    document = policy(_types())
    memory: Memory | None = None
    for at in range(12):
        result = decide(fixture(nodes, _types()), document, memory, now=NOW + at * 300.0)
        assert result.goes == ["half"]
        spans = result.memory.consolidation.scores
        memory = msgspec.structs.replace(result.memory, replacements={}, operations=())
    assert list(spans) == ["pool"]
    assert max(lowest for _, lowest in spans["pool"]) < 0.5


def test_a_removal_that_saves_too_little_goes_after_its_time() -> None:
    """Node y scores 0.42; x is worth it in every pass."""
    types: dict[str, Machine] = {
        "x": ("4", "16Gi", 7.26),
        "y": ("4", "16Gi", 2.42),
        "z": ("80", "320Gi", 48.40),
    }
    nodes = {
        "x": ("x", ((2, "500m", "2Gi"),)),
        "y": ("y", ((7, "500m", "2Gi"),)),
        "z": ("z", ((68, "1", "1Gi"),)),
    }
    build, document = fixture(nodes, types, grows=()), policy(types)
    goes = []
    memory: Memory | None = None
    for at in range(8):
        result = decide(build, document, memory, now=NOW + at * 900.0)
        goes.append(result.goes)
        memory = msgspec.structs.replace(result.memory, nodes={})
    assert goes == [["x"]] * 7 + [["x", "y"]], "0.4167 is enough after 1 h 35 min"


def test_a_replacement_under_way_stands_for_its_pool() -> None:
    """While nodes at 0.60 are replaced, those at 0.50 are the best that waits; what is under way
    is still judged by the score with which it began."""
    types = {**_types(), "mid": ("8", "32Gi", 0.50)}
    nodes = {**TEN_NODES, **{f"n{at}": ("mid", TEN_NODES["n0"][1]) for at in range(5)}}
    build, document = fixture(nodes, types, grows=["cheap"]), policy(types, confirm_after=60.0)
    spans: dict[str, Spans] = {"pool": ((NOW - 2 * HOUR, 0.43),)}
    before = Memory(consolidation=ConsolidationMemory(scores=spans, scored_at=NOW - 300.0))
    proposed = decide(build, document, before)
    assert (proposed.goes, proposed.grown) == ([f"n{at}" for at in range(5, 10)], {})
    later = decide(build, document, proposed.memory, now=NOW + 310.0)
    assert later.grown == {"cheap": 5}
    assert later.reasons["n0"].params["score"] == pytest.approx(0.2545)
    assert later.memory.consolidation.scores["pool"][0] == spans["pool"][0]


# --- deletion costs of one tenant


def _tenants(costs: tuple[str, str], *, room: int) -> Result:
    """Nodes a and b of one tenant, c and d of others, which take so many pods of the others
    together beside a full node."""
    build = machines({})
    for name, cost in zip("ab", costs, strict=True):
        build.node(name, "4", "16Gi", group="m", labels={TYPE: "m"})
        build.running(name, 2, *P, namespace="tenant", deletion_cost=cost)
    machines({"c": ("m", pods(2)), "d": ("m", pods(2)), "e": ("l", pods(16 - room))}, build=build)
    return decide(grouped(build, grows=(), groups={"l": {"min": 1}}))


_HIGH, _LOW = "2147483647", "-2147483648"


@pytest.mark.parametrize(
    ("costs", "room"),
    [
        *(((cost, cost), room) for cost in (_HIGH, _LOW) for room in range(2, 10)),
        *((costs, room) for costs in ((_HIGH, _LOW), (_LOW, _HIGH)) for room in (8, 9)),
    ],
)
def test_steer_17_deletion_costs_of_a_tenant_change_no_verdict_on_other_nodes(
    costs: tuple[str, str], room: int
) -> None:
    """All costs alike: also where there is no room for all. Costs that differ choose between the
    tenant's own nodes, so there must be room for whichever of them goes."""
    usual, result = _tenants(("", ""), room=room), _tenants(costs, room=room)
    assert {"c", "d", "e"} <= {*usual.goes, *usual.codes}
    for name in "cde":
        assert (name in result.goes) is (name in usual.goes)
        assert result.codes.get(name) == usual.codes.get(name)


def test_deletion_costs_choose_between_the_nodes_of_one_tenant() -> None:
    def first_to_go(*costs: str) -> list[str]:
        return _tenants((costs[0], costs[1]), room=2).goes[:1]

    assert (first_to_go(_HIGH, _LOW), first_to_go(_LOW, _HIGH)) == (["b"], ["a"])
