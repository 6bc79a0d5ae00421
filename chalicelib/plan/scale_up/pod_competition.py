"""Distinguishes pods with a guaranteed place in a plan from pods that compete for one.

A limit, or the order in which the scheduler takes pods, can leave room for only some of several pods. The scheduler
chooses among them, so no single pod is promised a place; the number of places is promised to all of them together. Pods
of one class are equal, so a class competes as a whole; classes that take places from each other compete together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from chalicelib.plan.scale_up.placement_result import Contest
from chalicelib.plan.scale_up.scheduling_replay import ReplayOutcome


def contests(
    pods: Mapping[int, int], placed: Mapping[int, int], uncounted: Mapping[int, int], outcomes: Sequence[ReplayOutcome]
) -> tuple[Contest, ...]:
    """Return the contests of a plan. pods: class -> pods that need a place; placed: how many of these the plan has
    placed; uncounted: further pods of the class, which take a place but are promised none. Without outcomes (a large
    plan) a class competes if the plan places only some of its pods."""
    if not outcomes:
        return tuple(Contest(placed[cls], (cls,)) for cls in sorted(placed) if placed[cls] < pods[cls])
    least = {cls: min(each.served[cls] for each in outcomes) for cls in pods}
    short = [cls for cls in sorted(pods) if least[cls] < pods[cls] + uncounted.get(cls, 0)]
    leader = {cls: cls for cls in short}
    for one, other in combinations(short, 2):
        if min(each.served[one] + each.served[other] for each in outcomes) > least[one] + least[other]:
            first, second = sorted((leader[one], leader[other]))
            leader = {cls: first if head == second else head for cls, head in leader.items()}
    sets = [tuple(cls for cls in short if leader[cls] == head) for head in dict.fromkeys(leader.values())]
    return tuple(
        Contest(
            max(
                0,
                min(sum(each.served[cls] for cls in classes) for each in outcomes)
                - sum(uncounted.get(cls, 0) for cls in classes),
            ),
            classes,
        )
        for classes in sets
        if any(placed.get(cls) for cls in classes)
    )
