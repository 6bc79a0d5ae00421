"""Grow a group: one request at the provider, then polled until the vendor has taken it.

The provider asks before it buys (providers/base.py, grow), so this step may be repeated after any crash. Whether the
machines join is not waited for here: that is the scale-up request's business (state.md §5).
"""

from __future__ import annotations

from chalicelib.execute.recipe import Recipe
from chalicelib.execute.vendor import ask
from chalicelib.execute.world import World
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Outcome


def request(operation: Operation, world: World, now: float) -> Outcome:
    """Ask for the new size."""
    del now
    outcome = ask(world.provider.grow, operation)
    world.checkpoint("grow:called")
    return outcome


def poll(operation: Operation, world: World, now: float) -> Outcome:
    """Where the request stands."""
    del now
    outcome = ask(world.provider.poll, operation)
    world.checkpoint("grow:polled")
    return outcome


GROW = Recipe(steps=(("request", request), ("poll", poll)))
