"""The expanders: filters that choose one of several options, in a chain.

Here: the table of expanders and the chain. `random` is the last choice of every chain. Not here: `least-cost`, which
weighs all groups and pods at once (least_cost); the planner asks it first.
"""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_up.expanders import least_nodes, least_waste, most_pods, price, priority, random_choice
from chalicelib.plan.scale_up.expanders.context import Expander, ExpanderContext
from chalicelib.plan.scale_up.expanders.pool_rank import preferred
from chalicelib.plan.scale_up.option import Option

__all__ = ["EXPANDERS", "LEAST_COST", "RANDOM", "Expander", "ExpanderContext", "choose_option"]

RANDOM, LEAST_COST = "random", "least-cost"

EXPANDERS: dict[str, Expander] = {
    "most-pods": most_pods.keep,
    "least-waste": least_waste.keep,
    "least-nodes": least_nodes.keep,
    "price": price.keep,
    "priority": priority.keep,
}


def choose_option(
    options: Sequence[Option], chain: Sequence[str], context: ExpanderContext
) -> tuple[Option | None, tuple[Reason, ...]]:
    """Return the option to take, None if none is left, and notes for Plan.notes (the same notes on every call of a
    pass).

    As in Cluster Autoscaler, the chain ends as soon as one option is left, a single option is also passed to the
    expanders, and an expander that rejects all options leaves none. Before the chain, the flavours of a pool are ranked
    (pool_rank.py). Among equal options, the one that meets most soft preferences is taken. Remaining ties are drawn by
    the seed if the chain ends in `random`; otherwise the lowest group id wins, so that a plan is predictable. Cluster
    Autoscaler always draws at random there. An unknown expander name is skipped with EXPANDER_SKIPPED.
    """
    left = preferred(sorted(options, key=lambda option: option.group), context)
    notes = [
        Reason.of(ReasonCode.EXPANDER_SKIPPED, expander=name, detail="not available in this version")
        for name in chain
        if name not in EXPANDERS and name not in (RANDOM, LEAST_COST)
    ]
    for name in _filters(chain):
        if not left:
            break
        left, reported = EXPANDERS[name](left, context)
        notes += reported
        if len(left) == 1:
            break
    if not left:
        return None, tuple(notes)
    most = max(option.preference for option in left)
    equal = [option for option in left if option.preference == most]
    return (random_choice.random_option(equal, context.seed) if RANDOM in chain else equal[0]), tuple(notes)


def _filters(chain: Sequence[str]) -> list[str]:
    """Return the expanders in order; least-waste, Cluster Autoscaler's default, if the chain has no deciding
    expander."""
    names = [name for name in chain if name in EXPANDERS]
    if (not names and RANDOM not in chain) or (chain and chain[-1] == LEAST_COST):
        names.append("least-waste")
    return names
