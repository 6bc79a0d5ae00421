"""Lower a group's target by what never came. No machine is deleted: the provider refuses where one would be."""

from __future__ import annotations

from chalicelib.execute.grow import poll
from chalicelib.execute.recipe import Recipe
from chalicelib.execute.vendor import ask
from chalicelib.execute.world import World
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Outcome


def lower(operation: Operation, world: World, now: float) -> Outcome:
    """Set the lower target; absolute, so it may be repeated."""
    del now
    outcome = ask(world.provider.shrink_target, operation)
    world.checkpoint("shrink:called")
    return outcome


SHRINK = Recipe(steps=(("lower", lower), ("poll", poll)))
