"""Which option to take (scale-up.md §8): a chain of expanders, each of which keeps the best of what it is given.

`random` and `least-cost` are words of the chain and not in the table. `random` is how the last draw is made.
`least-cost` weighs all groups and pods at once, which no choice among single options can: grow.py asks it first, and
whoever gets here with it in the chain wants to know what comes after it.
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
    options: Sequence[Option], chain: Sequence[str], situation: ExpanderContext
) -> tuple[Option | None, tuple[Reason, ...]]:
    """The option to take, None if none is left; and notes for Plan.notes (the same again on every call of a pass).

    As upstream, the chain ends as soon as one option is left, a single option is asked about too, and an expander that
    keeps nothing leaves nothing. Before it, the flavours of a pool are ranked (flavours.py). Among equals the one that
    meets most soft preferences is taken (demands.md 26); among those, `random` draws by the seed if the chain ends in
    it, else the lowest group id is taken, so that a plan can be foretold. Upstream draws lots there in any case.
    A name that nobody answers to is passed over with EXPANDER_SKIPPED.
    """
    left = preferred(sorted(options, key=lambda option: option.group), situation)
    notes = [
        Reason.of(ReasonCode.EXPANDER_SKIPPED, expander=name, detail="not available in this version")
        for name in chain
        if name not in EXPANDERS and name not in (RANDOM, LEAST_COST)
    ]
    for name in _filters(chain):
        if not left:
            break
        left, told = EXPANDERS[name](left, situation)
        notes += told
        if len(left) == 1:
            break
    if not left:
        return None, tuple(notes)
    most = max(option.preference for option in left)
    equal = [option for option in left if option.preference == most]
    return (random_choice.random_option(equal, situation.seed) if RANDOM in chain else equal[0]), tuple(notes)


def _filters(chain: Sequence[str]) -> list[str]:
    """The expanders to ask, in order; least-waste, upstream's default, where the chain has nobody to decide."""
    names = [name for name in chain if name in EXPANDERS]
    if (not names and RANDOM not in chain) or (chain and chain[-1] == LEAST_COST):
        names.append("least-waste")
    return names
