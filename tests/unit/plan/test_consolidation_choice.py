"""Which nodes consolidation chooses, what it buys for their pods, and what
that is worth (fixture F).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

import msgspec
import pytest

from chalicelib.model.group import Pool
from chalicelib.model.pod import Volume
from chalicelib.model.storage import Claim, PersistentVolume, Storage
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import ConsolidationMode
from chalicelib.policy.settings.node_limit import NodeLimit
from tests.builders import NOW, ZONE, even, having, near, node
from tests.unit.plan.consolidation_fixture import (
    TYPE,
    TYPES,
    Machine,
    P,
    PodCounts,
    decide,
    fixture,
    grouped,
    machines,
    one_beside_a_full_one,
    pods,
    policy,
    three_halves,
)

H: dict[str, Machine] = {"h": ("4", "8Gi", 0.20), "s": ("2", "8Gi", 0.10)}
H_CHEAP: dict[str, Machine] = {**H, "s": ("2", "8Gi", 0.0999)}
TEN_NODES: dict[str, tuple[str, PodCounts]] = {
    f"n{at}": ("h", ((8, "250m", "1Gi"),)) for at in range(10)
}


def test_cons_01_half_empty_nodes_go_together_into_the_third() -> None:
    result = decide(fixture(three_halves()))
    assert result.rate == 0.033333
    assert (result.goes, result.removed, result.bought) == (["a", "b"], ["a", "b"], {})
    assert result.sums == (0.40, 6.0, 0.20, 1.0)
    assert {move.state for move in result.report.moves} == {"begins"}
    assert result.codes == {"c": "OtherMoveBetter"}


def test_cons_03_cheaper_node_is_bought_for_the_pods_of_a_half_empty_one() -> None:
    result = decide(fixture(one_beside_a_full_one()))
    assert result.rate == 0.016667
    assert (result.goes, result.bought, result.grown, result.removed) == (
        ["a"],
        {"s": 1},
        {"s": 1},
        [],
    )
    assert result.sums == (0.10, 3.0, 0.05, 1.0)
    [move] = result.report.moves
    assert (move.nodes, move.price, move.state) == (("a",), 0.20, "buying")
    assert result.codes == {"a": "InReplacement", "b": "NotWorthDisruption"}
    assert result.reasons["b"].params == {
        "saves": 0.1,
        "disruption": 9.0,
        "score": 0.3333,
        "needs": 0.5,
        "until": pytest.approx(NOW + 6 * 3600.0 * math.log2(0.5 / (0.1 / 0.3))),
    }


def test_cons_04_move_that_brings_exactly_what_its_disruption_costs_is_not_made() -> None:
    result = decide(fixture(TEN_NODES, H, grows=["s"]), policy(H))
    assert result.rate == 0.011111
    assert (result.report.moves, result.plan.operations) == ((), ())
    assert result.codes == dict.fromkeys(TEN_NODES, "NotWorthDisruption")
    assert [reason.params["score"] for reason in result.reasons.values()] == [0.5] * 10


def test_cons_05_surge_limits_the_replacements_of_a_pool() -> None:
    document = policy(H_CHEAP, max_surge=NodeLimit(share=0.1))
    result = decide(fixture(TEN_NODES, H_CHEAP, grows=["s"]), document)
    assert (result.goes, result.bought, result.sums[3]) == (["n0"], {"s": 1}, 0.5005)
    assert result.codes == {**dict.fromkeys(TEN_NODES, "SurgeLimit"), "n0": "InReplacement"}
    assert [result.reasons[name].params["limit"] for name in sorted(TEN_NODES)[1:]] == [1] * 9


@pytest.mark.parametrize(
    ("k", "goes", "codes"), [(2, ["x"], {"y": "NotWorthDisruption"}), (3, ["x", "y"], {})]
)
def test_cons_06_aggressiveness_decides_how_much_a_disruption_must_bring(
    k: float, goes: list[str], codes: dict[str, str]
) -> None:
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
    result = decide(fixture(nodes, types, grows=()), policy(types, aggressiveness=k))
    [pool] = result.report.pools
    assert (round(pool.price, 6), pool.disruption) == (58.08, 80.0)
    assert result.goes == goes
    scores = {move.nodes[0]: move.score for move in result.report.moves}
    assert scores["x"] == 3.3333
    assert {name: code for name, code in result.codes.items() if name != "z"} == codes
    if k == 2:
        params = {"saves": 2.42, "disruption": 8.0, "score": 0.4167, "needs": 0.5}
        assert result.reasons["y"].params == params
    else:
        assert scores["y"] == 0.4167


def test_cons_07_the_best_set_is_taken_where_greedy_choice_takes_a_worse_one() -> None:
    types: dict[str, Machine] = {
        "x": ("8", "32Gi", 0.40),
        "a": ("2", "8Gi", 0.30),
        "b": ("2", "4Gi", 0.22),
    }
    nodes = {
        "x": ("x", ((6, "1", "4Gi"),)),
        "a": ("a", ((2, "1", "4Gi"),)),
        "b": ("b", ((1, "2", "4Gi"),)),
    }
    result = decide(fixture(nodes, types, grows=()), policy(types))
    assert (result.rate, result.goes, result.sums) == (0.038333, ["a"], (0.30, 3.0, 0.185, 1.3043))
    assert result.codes["b"] == "OtherMoveBetter"
    assert result.reasons["b"].params == {"move": "a", "gain": 0.185}


SPLIT: dict[str, Machine] = {
    "big": ("8", "32Gi", 0.80),
    "c": ("4", "4Gi", 0.15),
    "r": ("1", "16Gi", 0.15),
}
TO_SPLIT: dict[str, tuple[str, PodCounts]] = {
    "a": ("big", ((1, "3500m", "2Gi"), (1, "500m", "14Gi")))
}


def test_cons_08_one_node_becomes_two_that_are_cheaper_together() -> None:
    # A pool of one node has a surge of one node at 100 %.
    result = decide(
        fixture(TO_SPLIT, SPLIT, grows=["c", "r"]), policy(SPLIT, max_surge=NodeLimit(nodes=2))
    )
    assert (result.goes, result.bought, result.grown) == (["a"], {"c": 1, "r": 1}, {"c": 1, "r": 1})
    assert result.sums == (0.50, 3.0, 0.10, 0.625)


def test_cons_09_no_node_is_split_without_split_nodes() -> None:
    document = policy(SPLIT, max_surge=NodeLimit(nodes=2), split_nodes=False)
    result = decide(fixture(TO_SPLIT, SPLIT, grows=["c", "r"]), document)
    assert (result.report.moves, result.codes) == ((), {"a": "NoCheaperPlace"})
    assert result.reasons["a"].params["price"] == 0.80


IN_USE: dict[str, tuple[str, PodCounts]] = {
    "a": ("l", pods(11)),
    "b": ("l", pods(11)),
    "c": ("m", ((8, "300m", "1Gi"),)),
}


def test_cons_10_node_in_use_goes_into_room_that_exists_if_that_is_worth_it() -> None:
    result = decide(fixture(IN_USE), mode=ConsolidationMode.REMOVE)
    assert (result.goes, result.removed, result.bought) == (["c"], ["c"], {})
    assert (result.rate, result.sums) == (0.015152, (0.20, 9.0, 0.063636, 0.7333))
    assert set(result.codes) == {"a", "b"}


def test_cons_10_node_in_use_stays_where_consolidation_is_off() -> None:
    plan = decide(fixture(IN_USE), mode=ConsolidationMode.OFF).plan
    [verdict] = [verdict for verdict in plan.unremovable if verdict.node == "c"]
    assert (plan.consolidation, plan.removals, verdict.reason.code.value) == (
        None,
        (),
        "NotUnderutilized",
    )
    params = verdict.reason.params
    assert (params["resource"], round(float(params["utilization"]), 2), params["threshold"]) == (
        "cpu",
        0.60,
        0.50,
    )


def test_cons_11_of_two_equal_gains_the_one_with_less_disruption_is_taken() -> None:
    result = decide(fixture({name: ("m", pods(1)) for name in "abc"}))
    assert (result.rate, result.goes, result.bought) == (0.05, ["a", "b"], {})
    assert result.sums == (0.40, 4.0, 0.20, 1.0)


def test_cons_12_nothing_is_bought_in_mode_remove() -> None:
    result = decide(fixture(one_beside_a_full_one()), mode=ConsolidationMode.REMOVE)
    assert (result.report.moves, result.plan.operations) == ((), ())
    assert result.codes["a"] == "NoCheaperPlace"
    assert result.reasons["a"].params == {"price": 0.20, "detail": "buys nothing"}


@pytest.mark.parametrize(
    "nodes", [one_beside_a_full_one(), three_halves()], ids=["replacement", "removal"]
)
def test_cons_13_mode_shadow_shows_moves_and_touches_nothing(
    nodes: Mapping[str, tuple[str, PodCounts]],
) -> None:
    full = decide(fixture(nodes))
    result = decide(fixture(nodes), mode=ConsolidationMode.SHADOW)
    assert (result.goes, result.bought, result.sums) == (full.goes, full.bought, full.sums)
    assert {move.state for move in result.report.moves} == {"shadow"}
    assert (result.plan.operations, result.plan.removals, result.plan.scale_ups) == ((), (), ())
    assert result.memory.replacements == {}
    assert {mark.node for mark in result.plan.marks} <= set(result.plan.unneeded)
    assert not any(known.wanted_since for known in result.memory.nodes.values())


def test_cons_14_node_without_price_only_takes_the_pods_of_others() -> None:
    types: dict[str, Machine] = {**TYPES, "unknown": ("4", "16Gi", 0.0)}
    nodes = {**three_halves(), "c": ("unknown", pods(2))}
    document = policy(TYPES)
    result = decide(fixture(nodes, types, grows=TYPES), document)
    [pool] = result.report.pools
    assert (pool.price, pool.disruption, pool.unpriced, result.rate) == (0.40, 6.0, 1, 0.033333)
    assert (result.removed, result.sums) == (["a", "b"], (0.40, 6.0, 0.20, 1.0))
    assert result.codes == {"c": "NoPrice"}
    assert result.reasons["c"].params["group"] == "unknown"
    assert {
        place for removal in result.plan.removals for place in removal.destinations.values()
    } == {"c"}


def _same_shape(*, spot: bool) -> Any:
    build = machines({"a": ("m", pods(7))})
    twin = node("new-m2", "4", "16Gi", labels={TYPE: "m"})
    prices: dict[str, dict[str, Any]] = {
        kind: {"price": price} for kind, (_, _, price) in TYPES.items()
    }
    build = grouped(build, groups=prices)
    build.group("m2", max=10, pool=Pool("pool"), template=twin, price=0.05, spot=spot)
    return decide(build, policy(more={"prices": None}))


def test_cons_37_node_is_not_replaced_by_one_of_the_same_shape() -> None:
    result = _same_shape(spot=False)
    assert (result.report.moves, result.codes) == ((), {"a": "SameShape"})
    assert result.reasons["a"].params == {"group": "m2"}


def test_cons_37_spot_node_is_not_of_the_same_shape() -> None:
    result = _same_shape(spot=True)
    assert (result.goes, result.bought, result.sums) == (["a"], {"m2": 1}, (0.15, 8.0, 0.05, 0.75))


def _apart(price: float) -> Any:
    types: dict[str, Machine] = {**TYPES, "s": ("2", "8Gi", price)}
    build = machines(dict.fromkeys("abc", ("m", ())), types)
    for name in "abc":
        build.running(
            name,
            1,
            *("500m", "2Gi"),
            pod_anti_affinity=(near("kubernetes.io/hostname", having(app="rs")),),
        )
    return decide(grouped(build, types), policy(types))


def test_cons_38_pods_that_must_stay_apart_get_a_cheaper_node_each() -> None:
    result = _apart(0.09)
    assert (result.rate, result.goes, result.bought) == (0.05, ["a", "b", "c"], {"s": 3})
    assert result.sums == (0.33, 6.0, 0.03, 0.55)


def test_cons_38_pods_that_must_stay_apart_keep_nodes_if_nothing_is_gained() -> None:
    result = _apart(0.10)
    assert (result.report.moves, result.codes) == ((), dict.fromkeys("abc", "NotWorthDisruption"))
    assert [reason.params["score"] for reason in result.reasons.values()] == [0.5] * 3


def _spread(*, sizes: Mapping[str, float]) -> Any:
    """Two nodes m in two zones with a pod each that must be spread. sizes: price
    of a node s in each zone."""
    types: dict[str, Machine] = {"m": TYPES["m"]}
    build = machines({}, types)
    for name, zone in (("a", "z1"), ("b", "z2")):
        build.node(name, "4", "16Gi", group="m", labels={TYPE: "m"}, zone=zone)
        build.running(
            name, 1, "500m", "2Gi", spread=(even(ZONE, having(app="rs"), 1, min_domains=2),)
        )
    build = grouped(build, types, grows=())
    for zone, price in sizes.items():
        template = node(f"new-{zone}", "2", "8Gi", labels={TYPE: "s"}, zone=zone)
        build.group(f"s-{zone}", max=10, pool=Pool("pool"), template=template, price=price)
    return decide(build, policy(types))


def test_cons_39_pods_that_must_be_spread_keep_their_nodes_where_nothing_is_bought() -> None:
    result = _spread(sizes={})
    assert (result.report.moves, result.codes) == ((), dict.fromkeys("ab", "NoPlaceToMovePods"))
    texts = [str(reason.params["what"]) for reason in result.reasons.values()]
    assert [text for text in texts if "topology spread constraints" in text] == texts


def test_pod_that_is_the_only_user_of_its_claim_moves_with_it() -> None:
    once = ("ReadWriteOncePod",)
    build = machines({"a": ("m", ()), "b": ("m", pods(5))})
    build.running("a", 1, *P, owner="db", volumes=(Volume("v", "persistentVolumeClaim", "data"),))
    storage = Storage(
        claims=(Claim("default", "data", volume="pv", access_modes=once),),
        volumes=(PersistentVolume("pv", claim="default/data", access_modes=once),),
    )
    snapshot = msgspec.structs.replace(grouped(build).snapshot(), storage=storage)
    assert decide(snapshot).goes == ["a"]


def test_cons_39_spread_pods_get_a_cheaper_node_in_each_zone() -> None:
    result = _spread(sizes={"z1": 0.09, "z2": 0.09})
    assert (result.rate, result.goes, result.bought) == (0.05, ["a", "b"], {"s-z1": 1, "s-z2": 1})
    assert result.sums == (0.22, 4.0, 0.02, 0.55)


@pytest.mark.parametrize(("price", "goes"), [(0.181, []), (0.18, ["a"])])
def test_cons_43_replacement_saves_a_tenth_of_what_it_replaces(
    price: float, goes: list[str]
) -> None:
    types: dict[str, Machine] = {"m": TYPES["m"], "t": ("2", "8Gi", price)}
    nodes = {"a": ("m", pods(1)), "b": ("m", ((35, "110m", "100Mi"),))}
    result = decide(fixture(nodes, types, grows=["t"]), policy(types))
    assert result.goes == goes
    if goes:
        assert result.sums == (0.02, 2.0, 0.009473, 0.95)
    else:
        assert result.codes["a"] == "SavingsTooSmall"
        assert result.reasons["a"].params == {"saves": 0.095, "needs": 0.1}


def _files_entered(document: Policy) -> set[str]:
    """The files of chalicelib/plan/removal whose functions a pass calls."""
    entered: set[str] = set()

    def record(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "/plan/removal/" in frame.f_code.co_filename:
            entered.add(frame.f_code.co_filename.rpartition("/plan/removal/")[2])

    build = fixture(three_halves())
    sys.setprofile(record)
    try:
        decide(build, document)
    finally:
        sys.setprofile(None)
    return entered


def test_pass_without_consolidation_calls_nothing_of_it() -> None:
    names = {"methods/consolidation.py", "replacements.py"}
    on, off = (
        _files_entered(policy(mode=mode))
        for mode in (ConsolidationMode.FULL, ConsolidationMode.OFF)
    )
    assert names < on
    assert {name for name in off if name in names or name.startswith("consolidation/")} == set()
    assert "methods/unneeded.py" in off


def test_moves_that_save_most_for_their_disruption_begin_first() -> None:
    nodes = {"a": ("m", pods(3)), "b": ("m", pods(1)), "c": ("m", pods(2)), "d": ("l", pods(8))}
    result = decide(fixture(nodes, grows=()), policy(options={"max_drain_parallelism": 1}))
    assert result.goes == ["a", "b", "c"]
    assert result.removed == ["b"]
    assert [move.nodes for move in result.report.moves] == [("b",), ("c",), ("a",)]


@pytest.mark.parametrize(
    ("mix", "surge", "least"),
    [
        (((1, "2500m", "8Gi"), (3, "380m", "2Gi")), NodeLimit(share=1.0), 1),
        (((1, "2500m", "8Gi"), (3, "380m", "2Gi")), NodeLimit(nodes=3), 1),
        (
            ((1, "2", "4Gi"), (1, "1", "4Gi"), (1, "500m", "4Gi"), (1, "140m", "2Gi")),
            NodeLimit(share=1.0),
            5,
        ),
    ],
)
def test_moves_that_pass_alone_and_fail_together_are_made_as_far_as_they_pass(
    mix: PodCounts, surge: NodeLimit, least: int
) -> None:
    """Ten full nodes, and the same size is offered for less: the scheduler may mix the
    pods of several on new ones."""
    types: dict[str, Machine] = {"old": ("4", "16Gi", 0.60), "new": ("4", "16Gi", 0.36)}
    nodes: dict[str, tuple[str, PodCounts]] = {f"n{at}": ("old", mix) for at in range(10)}
    result = decide(
        fixture(nodes, types, grows=["new"]), policy(types, max_surge=surge, aggressiveness=3.0)
    )
    assert len(result.goes) == result.bought["new"] >= least
    assert "SearchLimit" not in result.codes.values()
