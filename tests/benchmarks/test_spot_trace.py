"""The replay on a spot market, on a small trace of one's own: four equal kinds, of which
two are often taken back.
"""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from tests.benchmarks.consolidation_trace import HOUR, START_UP, Trace, TracedPod
from tests.benchmarks.consolidation_world import MINUTE
from tests.benchmarks.openb import NOW
from tests.benchmarks.spot_trace import (
    NOTICE,
    NOTICE_TIME,
    OF_ON_DEMAND,
    ON_DEMAND,
    STRATEGIES,
    KindMarket,
    SpotMarket,
    SpotOutcome,
    SpotWorld,
    drawn_market,
    spot_prices,
    spot_replay,
    with_spot_groups,
)
from tests.builders import ClusterBuilder, node

HOURS = 3
CALM, HOT = 0, 2
KINDS = {"a": HOT, "b": HOT, "c": CALM, "d": CALM}
HAZARDS = {CALM: 1 / 720, HOT: 4.0}


def four_kinds(pods: int = 18) -> Trace:
    """A pod every ten minutes, each too large for a second one on its node."""
    builder = ClusterBuilder()
    for kind in KINDS:
        template = node(
            f"template-{kind}", "4", "16Gi", labels={"node.kubernetes.io/instance-type": kind}
        )
        builder.group(kind, template=template)
    builder.pending(pods, "3", "8Gi", owner="web")
    snapshot = msgspec.structs.replace(builder.snapshot(), taken_at=NOW)
    traced = tuple(TracedPod(pod, at * 600.0, float("inf")) for at, pod in enumerate(snapshot.pods))
    return Trace(msgspec.structs.replace(snapshot, pods=()), traced, HOURS * HOUR, 0.0)


def market(sold_out: dict[str, frozenset[int]] | None = None) -> SpotMarket:
    """Two hot kinds and two calm ones."""
    return SpotMarket(
        {
            kind: KindMarket(
                (HAZARDS[temper],) * HOURS, (sold_out or {}).get(kind, frozenset()), temper
            )
            for kind, temper in KINDS.items()
        }
    )


@cache
def outcome(rules: str) -> SpotOutcome:
    return spot_replay(four_kinds(), market(), STRATEGIES[rules], spot=rules != ON_DEMAND)[0]


def world(snapshot_of: SpotMarket) -> SpotWorld:
    cluster = four_kinds().cluster
    return SpotWorld(with_spot_groups(cluster), snapshot_of, prices=spot_prices(cluster))


def test_learning_buys_hot_kinds_less_often_than_calm_ones() -> None:
    bought, without = outcome("spot").bought, outcome("spot without learning").bought
    assert bought[HOT] < bought[CALM]
    assert bought[HOT] < without[HOT]


def test_learning_has_fewer_interruptions_and_less_waiting() -> None:
    learning, without = outcome("spot"), outcome("spot without learning")
    assert learning.interruptions < without.interruptions
    assert learning.waited < without.waited


@pytest.mark.parametrize("rules", [rules for rules in STRATEGIES if rules != ON_DEMAND])
def test_spot_costs_less_than_on_demand(rules: str) -> None:
    assert outcome(rules).spot > 0.5
    assert outcome(rules).of_trace.price < 0.6 * outcome(ON_DEMAND).of_trace.price


def test_no_interrupted_pod_waits_longer_than_a_new_node_takes_and_three_passes() -> None:
    assert outcome("spot").struck > 0
    assert outcome("spot").longest <= START_UP + 3 * MINUTE


def test_spot_price_is_the_listed_one() -> None:
    spot = world(market())
    spot.grow("a", 1)
    on_demand = spot.price
    spot.grow("a-spot", 1)
    assert spot.price - on_demand == pytest.approx(OF_ON_DEMAND * on_demand)


def test_kind_that_is_sold_out_is_not_bought_as_spot() -> None:
    spot = world(market({"a": frozenset({0})}))
    assert spot.grow("a-spot", 1) == []
    assert len(spot.grow("b-spot", 1)) == len(spot.grow("a", 1)) == 1
    spot.advance(HOUR)
    assert len(spot.grow("a-spot", 1)) == 1


def test_node_has_the_taint_until_it_goes_and_on_demand_nodes_stay() -> None:
    spot = world(SpotMarket({kind: KindMarket((30.0,)) for kind in KINDS}))
    (name,), (other,) = spot.grow("a-spot", 1), spot.grow("a", 1)
    spot.advance(START_UP)
    spot.join_started()
    while not spot.notices:
        spot.advance(1.0)
    announced = spot.now
    tainted = [node.name for node in spot.snapshot().nodes if NOTICE in node.taints]
    assert tainted == [name]
    spot.advance(NOTICE_TIME - 2.0)
    assert spot.exists(name)
    spot.advance(2.0)
    assert not spot.exists(name)
    assert spot.exists(other)
    assert [interruption.node for interruption in spot.interruptions] == [name]
    assert spot.removed[name] == pytest.approx(announced + NOTICE_TIME, abs=1.0)


def test_market_of_a_seed_is_the_same_and_half_of_its_kinds_are_calm() -> None:
    kinds = [f"kind-{number:02d}" for number in range(20)]
    first, again, other = (drawn_market(kinds, 74, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert sum(kind.temper == CALM for kind in first.kinds.values()) == 10
    assert all(len(kind.hazards) == 74 for kind in first.kinds.values())


def test_mean_life_of_machines_follows_the_hazard() -> None:
    steady = SpotMarket({"a": KindMarket((0.1, 0.1))})
    lives = [steady.notice_at("a", number, 1800.0) - 1800.0 for number in range(2000)]
    assert sum(lives) / len(lives) == pytest.approx(10 * HOUR, rel=0.06)
