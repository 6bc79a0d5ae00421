"""priority: keeps the groups with the highest configured priority.

Priorities come from the cluster's ConfigMap `cluster-autoscaler-priority-expander` or, if there is none, from the
policy's nodeGroups. Among groups of the highest priority, the rank that a vendor's pool gives its flavours decides. An
invalid ConfigMap filters nothing, because a partially understood ranking is worse than none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import PriorityConfig
from chalicelib.plan.scale_up.expanders.context import ExpanderContext, Kept
from chalicelib.plan.scale_up.option import Option
from chalicelib.policy.go_patterns import pattern

Rules = tuple[tuple[int, tuple[str, ...]], ...]
MOST_STEPS = 1_000_000_000
"""Instructions of all patterns times bytes of all names of a pass: two seconds at worst, where ordinary patterns take
milliseconds."""
_LOWEST = -1  # start value of Cluster Autoscaler's search: lower priorities never win


def keep(options: Sequence[Option], context: ExpanderContext) -> Kept:
    """Return the options of the highest priority, all of them if no priority is configured."""
    if context.priorities is not None:
        return _by_config(options, context.priorities, context)
    highest = max(_given(option, context) for option in options)
    return [option for option in options if _given(option, context) == highest], ()


def _given(option: Option, context: ExpanderContext) -> tuple[int, int]:
    return context.group_priorities.get(option.group, 0), context.group_ranks.get(option.group, 0)


def _by_config(options: Sequence[Option], config: PriorityConfig, context: ExpanderContext) -> Kept:
    if config.problem:
        return list(options), (Reason.of(ReasonCode.PRIORITY_CONFIG_INVALID, detail=config.problem),)
    known = _priorities(config.rules, _names(options, context))
    if known is None:
        return list(options), (
            Reason.of(
                ReasonCode.PRIORITY_CONFIG_INVALID,
                detail=(
                    "its patterns take too long to be looked for in the names of the node groups: write simpler ones"
                ),
            ),
        )
    found = [known.get(option.group) for option in options]
    highest = max((priority for priority in found if priority is not None), default=_LOWEST - 1)
    if highest < _LOWEST:
        return list(options), (Reason.of(ReasonCode.PRIORITY_NO_MATCH),)
    notes = tuple(
        Reason.of(ReasonCode.PRIORITY_NOT_MATCHED, group=option.group)
        for option, priority in zip(options, found, strict=True)
        if priority is None
    )
    return [option for option, priority in zip(options, found, strict=True) if priority == highest], notes


def _names(options: Sequence[Option], context: ExpanderContext) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return all names of every group, sorted so that all calls of a pass are equal. Users write the name that they
    see, which need not be the id."""
    groups = {*context.group_priorities, *(option.group for option in options)}
    return tuple((group, (group, *context.group_aliases.get(group, ()))) for group in sorted(groups))


@lru_cache(maxsize=16)
def _priorities(rules: Rules, groups: tuple[tuple[str, tuple[str, ...]], ...]) -> dict[str, int] | None:
    """Return group -> the highest priority with a pattern found anywhere in one of its names (READ ONLY); groups
    without a match are missing. None: matching would take too long.

    Raises BadInput for an invalid pattern; policy/priority_configmap.py rejects such rules earlier.
    """
    patterns = [(priority, [pattern(text) for text in texts]) for priority, texts in sorted(rules, reverse=True)]
    instructions = sum(each.size for _, several in patterns for each in several)
    if instructions * sum(len(name.encode(errors="replace")) for _, names in groups for name in names) > MOST_STEPS:
        return None
    found = {}
    for group, names in groups:
        for priority, several in patterns:
            if any(each.found_in(name) for each in several for name in names):
                found[group] = priority
                break
    return found
