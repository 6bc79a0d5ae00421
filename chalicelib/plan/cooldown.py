"""Whether removals may begin at all just now (scale-down.md §1). Bookkeeping is never skipped for a cooldown."""

from __future__ import annotations

from chalicelib.model.memory import Memory
from chalicelib.model.policy import Options
from chalicelib.model.reason import Code, Reason


def cooldown(memory: Memory, options: Options, now: float) -> Reason | None:
    """The cooldown that ends last, None if there is none. 0.0 in memory means it never happened."""
    ends = (
        ("scaleDownDelayAfterAdd", memory.last_scale_up, options.scale_down_delay_after_add),
        ("scaleDownDelayAfterDelete", memory.last_scale_down, options.scale_down_delay_after_delete),
        ("scaleDownDelayAfterFailure", memory.last_scale_down_failure, options.scale_down_delay_after_failure),
    )
    running = [(at + delay, which) for which, at, delay in ends if at and at + delay > now]
    if not running:
        return None
    until, which = max(running)
    return Reason.of(Code.IN_COOLDOWN, which=which, until=until)
