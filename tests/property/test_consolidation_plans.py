"""What holds for every plan of consolidation, on random clusters of up to eight nodes.

Never worse than greedy choice or than doing nothing, within the bound, the same for the same
input; every pod gets a place from an independent scheduler; and plans that are carried out one
after the other come to an end.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.removal.consolidation.move_search import ConsolidationSearch
from chalicelib.plan.removal.consolidation.splitting import moves_of
from chalicelib.plan.removal.consolidation.verdicts import Explanation
from chalicelib.policy.settings.node_limit import NodeLimit
from tests.amounts import examples
from tests.builders import NOW
from tests.property.consolidation_clusters import Case, enumerated, random_case, search_of
from tests.property.consolidation_referee import carried_out, planned_draws, random_draws
from tests.property.consolidation_rounds import Rounds, uniform
from tests.unit.plan.consolidation_fixture import fixture, policy

MICRO = 1_000_000
SEEDS = examples(60, 1000)
# of random orders may leave a pod without a place: the planner tries four orders, not all of them
DRAWN = 0.01
CHANCE = 3  # more in a small sample; seeds 20,000 to 20,339 miss 18 of 2,712
DRAWN_SEEDS = examples(120, 1000)  # of fewer clusters a single one decides


def planned(case: Case, snapshot: Snapshot | None = None) -> tuple[Plan, Memory]:
    """The plan of the first pass."""
    return plan_cluster(snapshot or case.snapshot, case.policy, case.memory, NOW, 0)


def gain_of(plan: Plan) -> int:
    """What all moves of a plan bring, in millionths."""
    assert plan.consolidation is not None
    return round(sum(move.gain for move in plan.consolidation.moves) * MICRO)


def best_gain(search: ConsolidationSearch) -> int:
    """What the search finds."""
    best = search.best(lambda proposed: moves_of(search, proposed)[1])
    return best.gain if best is not None else 0


def greedy_gain(search: ConsolidationSearch) -> int:
    """What greedy choice alone brings."""
    settled = (moves_of(search, solution)[1] for solution in search.greedy())
    return max((solution.gain for solution in settled if solution is not None), default=0)


@pytest.mark.more
def test_cons_47_plan_is_never_worse_than_greedy_choice_and_within_the_bound() -> None:
    better = gained = 0
    for seed in range(SEEDS):
        case = random_case(seed)
        plan, search = planned(case)[0], search_of(case)
        greedy, gain = greedy_gain(search), gain_of(plan)
        assert gain == best_gain(search), seed
        assert gain >= greedy >= 0, seed
        assert gain <= search.bound + 1, seed
        better += gain > greedy
        gained += gain > 0
    assert gained > SEEDS / 2
    assert better > SEEDS / 100


@pytest.mark.more
@pytest.mark.parametrize(("plain", "share"), [(True, 1.0), (False, 0.95)])
def test_cons_47_plan_is_the_best_one_of_all(plain: bool, share: float) -> None:
    """Rules between pods are not in the programme. Where they exclude more sets than the search has
    rounds, a better one may be missed."""
    equal = total = 0
    for seed in range(10_000, 10_000 + SEEDS):
        case = random_case(seed, nodes=6, plain=plain)
        gain, best = gain_of(planned(case)[0]), enumerated(search_of(case))
        assert gain <= best, seed
        equal += gain == best
        total += 1
    assert total == SEEDS
    assert equal >= share * total


@pytest.mark.more
def test_every_pod_gets_a_place_from_another_scheduler() -> None:
    carried = drawn = missed = 0
    for seed in range(20_000, 20_000 + DRAWN_SEEDS):
        case = random_case(seed)
        plan, _ = planned(case)
        assert plan.consolidation is not None
        if not plan.consolidation.moves:
            continue
        for draw in planned_draws(case.snapshot):
            outcome = carried_out(case.snapshot, plan, draw)
            assert (outcome.homeless, outcome.late) == ((), ()), (seed, draw.name)
            carried += 1
        for draw in random_draws(random.Random(seed), 12):
            missed += bool(carried_out(case.snapshot, plan, draw).homeless)
            drawn += 1
    assert carried > DRAWN_SEEDS
    assert missed <= DRAWN * drawn + CHANCE


def shuffled(case: Case, seed: int) -> Snapshot:
    """The snapshot with its lists in another order, but for pods, which every reader sorts."""
    chance, snapshot = random.Random(seed), case.snapshot
    lists = {name: getattr(snapshot, name) for name in ("nodes", "groups", "budgets")}
    mixed = {name: tuple(chance.sample(items, len(items))) for name, items in lists.items()}
    return msgspec.structs.replace(snapshot, **mixed)


class TickingClock:
    """A clock that goes on by so much whenever it is read."""

    def __init__(self, step: float) -> None:
        self.step, self.at = step, 0.0

    def __call__(self) -> float:
        """The next instant."""
        self.at += self.step
        return self.at


@pytest.mark.more
def test_cons_45_order_of_the_input_and_speed_of_the_machine_change_nothing() -> None:
    acting = 0
    for seed in range(30_000, 30_000 + SEEDS):
        case = random_case(seed)
        plan, memory = planned(case)
        first = msgspec.json.encode((plan, memory.replacements, memory.nodes, memory.consolidation))
        mixed, mixed_memory = planned(case, shuffled(case, seed))
        again = (mixed, mixed_memory.replacements, mixed_memory.nodes, mixed_memory.consolidation)
        assert msgspec.json.encode(again) == first, seed
        for step in (1e-6, 1e-5):
            slow, _ = plan_cluster(
                case.snapshot, case.policy, case.memory, NOW, 0, clock=TickingClock(step)
            )
            assert msgspec.json.encode(slow) == msgspec.json.encode(plan), seed
        acting += bool(plan.operations)
    assert acting > SEEDS / 3


@pytest.mark.more
def test_cons_46_search_with_one_branch_is_never_worse_than_greedy_choice() -> None:
    limited = 0
    for seed in range(40_000, 40_000 + SEEDS):
        case = random_case(seed)
        search, full = search_of(case), search_of(case)
        greedy = greedy_gain(search_of(case))
        search.rounds, search.branches = 1, 1
        gain, most = best_gain(search), best_gain(full)
        assert greedy <= gain <= search.bound + 1, seed
        if gain < most:
            assert search.gap is not None
            assert search.gap > 0, seed
            limited += 1
    assert limited < SEEDS / 5


def test_cons_46_node_that_is_not_reached_says_how_far_from_the_best_the_plan_is() -> None:
    types = {"big": ("8", "32Gi", 0.80), "c": ("4", "4Gi", 0.15), "r": ("1", "16Gi", 0.15)}
    build = fixture(
        {"a": ("big", ((1, "3500m", "2Gi"), (1, "500m", "14Gi")))}, types, grows=["c", "r"]
    )
    search = search_of(Case(0, build.snapshot(), policy(types, max_surge=NodeLimit(nodes=2))))
    search.rounds = 0
    assert best_gain(search) == 0
    assert Explanation(search, None).reasons() == {"a": Reason.of(ReasonCode.SEARCH_LIMIT, gap=1.0)}


@pytest.mark.more
def test_cons_48_plans_that_are_carried_out_save_in_every_round_and_end() -> None:
    rounds = 0
    for seed in range(50_000, 50_000 + examples(20, 200)):
        case = random_case(seed)
        story = Rounds(case.snapshot, case.policy)
        prices = [story.price()]
        while story.advance():
            prices.append(story.price())
            assert prices[-1] < prices[-2], seed
            assert len(prices) < 30, seed
        rounds += len(prices) - 1
    assert rounds > 20


@pytest.mark.more
@pytest.mark.parametrize(("k", "most"), [(1.0, 0), (2.0, 4), (4.0, 9)])
def test_cons_48_no_node_of_a_uniform_pool_is_replaced_too_often(k: float, most: int) -> None:
    """Each replacement must save more than 1/k of an average node, and no type
    costs less than a sixteenth."""
    longest = [0]
    for seed in range(60_000, 60_000 + examples(3, 200)):
        story = uniform(seed, k)
        while story.advance():
            assert story.longest_chain() <= most, seed
        longest.append(story.longest_chain())
    assert max(longest) > most / 2 or most == 0
