"""The last step of a plan: decides which nodes it keeps and what it promises, by the worst order that the scheduler
could use.

A new node that stays empty in one of the rehearsed orders is removed from the plan if, on average over the orders, that
costs at most three pods their places for every two empty nodes saved: those pods wait for the next pass, while an empty
node would exist for ten minutes or more. While pending pods fit existing nodes, it may cost no place at all. The orders
differ most in which pods use those nodes, and the scheduler decides that before the new node arrives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from chalicelib.plan.scale_up.placement_result import FinalPlacement
from chalicelib.plan.scale_up.pod_competition import contests
from chalicelib.plan.scale_up.redundant_nodes import Saved, tidy
from chalicelib.plan.scale_up.scheduling_replay import ReplayOutcome, rehearse

if TYPE_CHECKING:
    from chalicelib.plan.scale_up.final_placement import FinalPlacer

_TRIES = 6  # nodes that one plan tries to save
_WORTH = 1.5  # pods that may wait for the next pass, per new node that would stay empty


def keep_worst_case(placer: FinalPlacer) -> FinalPlacement:
    """Return the place of every pod, and how certain it is."""
    outcomes = _without_idle_nodes(placer, rehearse(placer))
    wanted, placed, uncounted = Counter[int](), Counter[int](), Counter[int]()
    for demand in placer.queue:
        (wanted if demand.counts else uncounted)[demand.cls] += len(demand.pods)
    settled = placer.settled()
    for _, cls, pods in settled.places:
        placed[cls] += len(pods)
    return msgspec.structs.replace(settled, contests=contests(wanted, placed, uncounted, outcomes))


def _without_idle_nodes(placer: FinalPlacer, outcomes: list[ReplayOutcome]) -> list[ReplayOutcome]:
    for _ in range(_TRIES):
        idle = Counter(placer.new[row][0] for each in outcomes for row in each.empty)
        found = next(
            (better for group, _ in idle.most_common() if (better := _one_less(placer, group, outcomes))), None
        )
        if found is None:
            break
        outcomes = found
    return outcomes


def _one_less(placer: FinalPlacer, group: str, outcomes: Sequence[ReplayOutcome]) -> list[ReplayOutcome]:
    """Return outcomes without one node of a group, which is then removed; none if it stays."""
    if placer.spare(group) <= 0 or placer.atomic(group):
        return []
    before, doubtful = Saved(placer), set(placer.doubtful)
    placer.search.undo_scale_up(group, 1)
    placer.in_queue_order()
    while placer.drop_empty():
        placer.in_queue_order()
    tidy(placer)
    found = rehearse(placer)
    spared, cost = _idle(outcomes) - _idle(found), _served(outcomes) - _served(found)
    if found and spared > 0 and cost <= (0.0 if placer.fresh else _WORTH * spared):
        return found
    before.restore()
    placer.doubtful = doubtful
    return []


def _idle(outcomes: Sequence[ReplayOutcome]) -> float:
    """Return the average number of new nodes that stay empty."""
    return sum(len(each.empty) for each in outcomes) / max(1, len(outcomes))


def _served(outcomes: Sequence[ReplayOutcome]) -> float:
    """Return the average number of pods that get a place."""
    return sum(each.served.total() for each in outcomes) / max(1, len(outcomes))
