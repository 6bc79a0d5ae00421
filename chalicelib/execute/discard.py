"""Remove machines that never became nodes (scale-down.md §11): there is nothing to drain and nothing to roll back.

A machine may have joined since it was planned. Then it is no longer what was meant, and it stays, with all the others
of the operation: the next pass knows which of them are still meant. Nodes are looked for by the names that the plan
knew none under: the one the provider gave, and the last part of the handle, which is the machine's own name at most
vendors. A provider that can find a machine's node by other means looks again itself (providers/base.py, remove).
"""

from __future__ import annotations

from chalicelib.execute.grow import poll
from chalicelib.execute.recipe import Recipe
from chalicelib.execute.vendor import ask
from chalicelib.execute.world import World
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, Outcome


def delete(operation: Operation, world: World, now: float) -> Outcome:
    """Delete by instance, after one look whether a node has taken the place. A node under the name of another machine
    stops it too: names that mean two things are no ground to delete on."""
    del now
    for target in operation.targets:
        for name in sorted({target.node, target.handle.rpartition("/")[2]} - {""}):
            if world.cluster.node(name) is not None:
                return Failed("Conflict", f"instance {target.instance} has joined as node {name} meanwhile")
    outcome = ask(world.provider.remove, operation)
    world.checkpoint("discard:called")
    return outcome


DISCARD = Recipe(steps=(("delete", delete), ("poll", poll)))
