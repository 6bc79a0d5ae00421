"""Remove machines that never became nodes (scale-down.md §11): there is nothing to drain and nothing to roll back.

A machine may have joined since it was planned. Then it is no longer what was meant, and it stays.
"""

from __future__ import annotations

from chalicelib.execute.grow import poll
from chalicelib.execute.recipe import Recipe
from chalicelib.execute.vendor import ask
from chalicelib.execute.world import World
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, Outcome


def delete(operation: Operation, world: World, now: float) -> Outcome:
    """Delete by instance, after one look whether a node has taken the place."""
    del now
    for target in operation.targets:
        if target.node and (node := world.cluster.node(target.node)) and node.provider_id in ("", target.instance):
            return Failed("Conflict", f"instance {target.instance} has joined as node {target.node} meanwhile")
    outcome = ask(world.provider.remove, operation)
    world.checkpoint("discard:called")
    return outcome


DISCARD = Recipe(steps=(("delete", delete), ("poll", poll)))
