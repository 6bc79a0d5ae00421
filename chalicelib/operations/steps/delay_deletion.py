"""Waits between drain and deletion until no delay-deletion annotation is left on the node (docs/reference/drain.md
"Deletion delay").

A storage driver that detaches volumes, or a backup that finishes, sets an annotation on the node and removes it when it
is done. The final recheck follows the wait, because this is the last moment at which the removal can be rolled back
completely.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Outcome
from chalicelib.operations.removal_progress import next_step, read, stay_in_step
from chalicelib.operations.step_context import StepContext
from chalicelib.operations.steps.recheck import last_look

POLL = 5.0
LONGEST_POLL = 15.0
LOOK_HOLDS = 20.0
"""Seconds for which the last check is valid; a later deletion checks the machine again."""


def delay(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Wait for the annotations to be removed, at most node-deletion-delay-timeout; then do the final recheck."""
    progress = read(operation)
    limit = context.options.node_deletion_delay_timeout
    if progress.wait.elapsed(now) < limit:
        nodes = [context.cluster.node(name) for name in progress.live]
        held = [f"{node.name} by {node.delays[0]}" for node in nodes if node and node.delays]
        if held:
            pause = progress.wait.delay(now, first=POLL, most=LONGEST_POLL, limit=limit)
            later = msgspec.structs.replace(progress, wait=progress.wait.next(now, pause))
            return stay_in_step(operation, later, "delay", pause, f"deletion delayed: {', '.join(held)}")
    return next_step(operation, last_look(operation, progress, context, now), "delete")
