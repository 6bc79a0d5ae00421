"""Ranks the flavours within one pool by the user's order before any expander runs.

Expanders compare pods, waste and cost between pools. Within a pool the user has ordered the flavours, and expanders
must not override that order. Of one pool's options, those of a lower rank are dropped if a preferred one takes pods of
the same classes. The preferred option need not take as many pods: the rest is searched again in the same pass, and then
the next flavour is used. The next flavour is used at once where the preferred one is out of stock or backed off.

Between pools, ranks matter only to the expander `priority`. `least-cost`, which optimises the cost over all groups,
runs earlier and ignores ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.plan.scale_up.expanders.context import ExpanderContext
from chalicelib.plan.scale_up.option import Option


def preferred(options: Sequence[Option], context: ExpanderContext) -> list[Option]:
    """Return the options, in the given order, without those that a higher-ranked option of the same pool makes
    unnecessary."""
    ranks, pools = context.group_ranks, context.group_pools
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
