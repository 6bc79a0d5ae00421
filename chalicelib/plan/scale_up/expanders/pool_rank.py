"""Within one pool the user's ranking of its flavours comes before any expander (huaweicloud-cce.md A6.3, A6.5).

Expanders weigh pods, waste and money among pools. Which machine a pool is made of is not theirs to weigh: the user put
the flavours in an order, and meant it. So of one pool's options those of a lower rank are passed over if a preferred
one takes pods of the same kinds. It need not take as many: what it has no room for is asked for again in the same pass,
and then the next flavour has its turn, as it has at once where the preferred one is sold out or backed off.

Between pools ranks say nothing but to the expander `priority`. `least-cost`, which weighs all groups at once and only
money, has looked before this and knows no ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.plan.scale_up.expanders.context import ExpanderContext
from chalicelib.plan.scale_up.option import Option


def preferred(options: Sequence[Option], situation: ExpanderContext) -> list[Option]:
    """The options without those that a higher-ranked one of the same pool makes needless, in the order given."""
    ranks, pools = situation.group_ranks, situation.group_pools
    if not ranks or not pools:
        return list(options)
    by_pool: dict[str, list[Option]] = {}
    for option in options:
        by_pool.setdefault(pools.get(option.group, ""), []).append(option)

    def rank(option: Option) -> int:
        return ranks.get(option.group, 0)

    def needless(option: Option) -> bool:
        pool = pools.get(option.group, "")
        return bool(pool) and any(
            rank(other) > rank(option) and option.pods.keys() <= other.pods.keys() for other in by_pool[pool]
        )

    return [option for option in options if not needless(option)]
