"""Whether removals may begin just now, for the cluster, a group, a node (scale-down.md §1, state.md §8).

A cooldown holds removals back and nothing else: timers run on, so that a node goes the moment the last cooldown ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.model.group import GroupOptions
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.node import Node
from chalicelib.model.policy import Options
from chalicelib.model.reason import Reason, ReasonCode


def cooldown(memory: Memory, options: Options, now: float) -> Reason | None:
    """The cluster's cooldown that ends last, None if there is none. 0.0 in memory means it never happened.

    With scale_down_delay_type_local no cooldown is the cluster's; see `group_cooldown`.
    """
    if options.scale_down_delay_type_local:
        return None
    return _last((memory.last_scale_up, memory.last_scale_down, memory.last_scale_down_failure), options, now)


def group_cooldown(memory: GroupMemory, options: Options, now: float) -> Reason | None:
    """The same for one group, which has cooldowns of its own only with scale_down_delay_type_local."""
    if not options.scale_down_delay_type_local:
        return None
    return _last((memory.last_add, memory.last_delete, memory.last_failure), options, now)


def young(node: Node, options: GroupOptions, now: float) -> Reason | None:
    """A node stays until it is as old as its group's cooldown (huaweicloud-cce.md A8.8), beside the cluster's."""
    protected = options.scale_down_cooldown
    if not protected or node.created + protected <= now:  # unset: a node "from the future" is an API's skewed clock
        return None
    return Reason.of(ReasonCode.NODE_COOLDOWN, until=node.created + protected)


def _last(happened: Iterable[float], options: Options, now: float) -> Reason | None:
    """happened: the last growth, removal and failure. A cooldown is over at its very end (cases.md S19)."""
    delays = (
        ("scaleDownDelayAfterAdd", options.scale_down_delay_after_add),
        ("scaleDownDelayAfterDelete", options.scale_down_delay_after_delete),
        ("scaleDownDelayAfterFailure", options.scale_down_delay_after_failure),
    )
    running = [
        (at + delay, which) for at, (which, delay) in zip(happened, delays, strict=True) if at and at + delay > now
    ]
    if not running:
        return None
    until, which = max(running)
    return Reason.of(ReasonCode.IN_COOLDOWN, which=which, until=until)
