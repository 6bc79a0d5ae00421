"""priority: the groups of the highest priority that a person gave them (scale-up.md §8).

Said in the cluster's ConfigMap `cluster-autoscaler-priority-expander`, or, where there is none, by the priorities of
the policy's nodeGroups; among groups of the highest the rank decides, which a vendor's pools give their flavours
(huaweicloud-cce.md A6.5). A ConfigMap that is there and wrong filters nothing: a half-understood wish is worse than
none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from chalicelib.model.reason import Code, Reason
from chalicelib.model.snapshot import PriorityConfig
from chalicelib.plan.choose.regex import pattern
from chalicelib.plan.choose.situation import Kept, Situation
from chalicelib.plan.option import Option

Rules = tuple[tuple[int, tuple[str, ...]], ...]
_LOWEST = -1        # upstream's search begins here: what lies below never wins


def keep(options: Sequence[Option], situation: Situation) -> Kept:
    """The options of the highest priority, all of them where nothing says otherwise."""
    if situation.priorities is not None:
        return _by_config(options, situation.priorities, situation.group_aliases)
    highest = max(_given(option, situation) for option in options)
    return [option for option in options if _given(option, situation) == highest], ()


def _given(option: Option, situation: Situation) -> tuple[int, int]:
    return situation.group_priorities.get(option.group, 0), situation.group_ranks.get(option.group, 0)


def _by_config(options: Sequence[Option], config: PriorityConfig, aliases: Mapping[str, tuple[str, ...]]) -> Kept:
    if config.problem:
        return list(options), (Reason.of(Code.PRIORITY_CONFIG_INVALID, detail=config.problem),)
    found = [_highest(config.rules, (option.group, *aliases.get(option.group, ()))) for option in options]
    highest = max((priority for priority in found if priority is not None), default=_LOWEST - 1)
    if highest < _LOWEST:
        return list(options), (Reason.of(Code.PRIORITY_NO_MATCH),)
    notes = tuple(Reason.of(Code.PRIORITY_NOT_MATCHED, group=option.group)
                  for option, priority in zip(options, found, strict=True) if priority is None)
    return [option for option, priority in zip(options, found, strict=True) if priority == highest], notes


def _highest(rules: Rules, names: Sequence[str]) -> int | None:
    """Of a group by all its names: people write the one that they see (exoscale.md §2)."""
    return max((found for name in names if (found := priority_of(rules, name)) is not None), default=None)


@lru_cache(maxsize=4096)
def priority_of(rules: Rules, group: str) -> int | None:
    """The highest priority of which a pattern is found anywhere in the group's id; None if none is.

    Raises BadInput for a pattern that is none; policy/priorities.py lets no such rules through.
    """
    return max((priority for priority, patterns in rules if any(pattern(text).found_in(group) for text in patterns)),
               default=None)
