"""Determines whether removals may start now: cooldowns of the cluster, a group and a node.

A cooldown only blocks removals. Unneeded timers continue, so that a node is removed as soon as the last cooldown ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.model.group import GroupOptions
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.node import Node
from chalicelib.model.policy import Options
from chalicelib.model.reason import Reason, ReasonCode


def cooldown(memory: Memory, options: Options, now: float) -> Reason | None:
    """Return the cluster's cooldown that ends last, None if there is none. 0.0 in memory means that the event never
    happened.

    With scale_down_delay_type_local the cluster has no cooldown; see `group_cooldown`.
    """
    if options.scale_down_delay_type_local:
        return None
    return _last((memory.last_scale_up, memory.last_scale_down, memory.last_scale_down_failure), options, now)


def group_cooldown(memory: GroupMemory, options: Options, now: float) -> Reason | None:
    """Return the cooldown of one group; groups have their own cooldowns only with scale_down_delay_type_local."""
    if not options.scale_down_delay_type_local:
        return None
    return _last((memory.last_add, memory.last_delete, memory.last_failure), options, now)


def young(node: Node, options: GroupOptions, now: float) -> Reason | None:
    """Return a reason while a node is younger than its group's cooldown, which applies in addition to the cluster's."""
    protected = options.scale_down_cooldown
    # unset: a node "from the future" comes from an API server's skewed clock
    if not protected or node.created + protected <= now:
        return None
    return Reason.of(ReasonCode.NODE_COOLDOWN, until=node.created + protected)


def _last(happened: Iterable[float], options: Options, now: float) -> Reason | None:
    """happened: the last scale-up, removal and failure. A cooldown is over at its exact end."""
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
