"""Runs the recorded demonstration: a cluster starts, its nodes become unneeded, and functions crash until the nodes are
gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from infra.demo.drains import drain_fixture
from infra.demo.drains.drain_fixture import DEADLY, TWICE, RoughWorld
from infra.demo.drains.drain_observer import Expectation, Watcher, expectations, figures, leftovers

LIMIT = 4 * 3600.0
"""Virtual seconds after which the run is aborted."""
_START_UP, _SETTLE, _QUIET = 100.0, 30.0, 180.0
_WHO, _COUNT = 9, 5

Put = Callable[[str], None]
"""Accepts one line."""


def tell(nodes: int, seed: int, put: Put) -> int:
    """Run it. Returns 0 if all expectations are met, otherwise 1. nodes: how many are to be removed. seed: of the
    random faults."""
    with RoughWorld(Random(seed)) as world:
        began = world.clock()

        def say(who: str, what: str) -> None:
            seconds = int(world.clock() - began)
            put(f"{seconds // 60:3d}:{seconds % 60:02d}  {who:<{_WHO + 2}}{what}")

        _begin(world, nodes, say)
        watcher = Watcher(world, drain_fixture.apps(nodes), say)
        world.seen, world.told = watcher.look, watcher.heard
        since = _end_of_the_big_pods(world, nodes, say)
        _until_quiet(world)
        met = tuple(expectations(world, watcher.notes, nodes))
        over = world.clock() - since - _QUIET
        for line in _closing(met, figures(world, watcher.notes, over)):
            put(line)
    return 0 if all(each.met for each in met) else 1


def _begin(world: RoughWorld, nodes: int, say: Callable[[str, str], None]) -> None:
    """Create the old nodes first, so that the pods are placed on them."""
    world.seed(drain_fixture.old_nodes(nodes))
    world.step(_START_UP)
    world.seed(*drain_fixture.workloads(nodes))
    world.step(_SETTLE)
    small = ", ".join(
        f"{app.replicas} of {app.name} ({app.grace} s to end, at most {app.may_miss} missing)"
        for app in drain_fixture.apps(nodes)
    )
    say(
        "cluster",
        f"{nodes} nodes of group {drain_fixture.OLD}, each with one pod of {drain_fixture.BIG}; also {small}",
    )
    world.seed(drain_fixture.new_nodes())
    world.step(_START_UP)
    say(
        "cluster",
        f"{drain_fixture.STAY} nodes of group {drain_fixture.NEW} have joined; {len(world.nodes())} nodes, "
        f"{len(world.pending())} pods without one",
    )
    world.apply_policy(drain_fixture.POLICY)
    world.step(2 * _START_UP)


def _end_of_the_big_pods(world: RoughWorld, nodes: int, say: Callable[[str, str], None]) -> float:
    """Scale the big pods to 0, start the random faults and return the time."""
    say("you", f"kubectl scale {drain_fixture.BIG} to 0: {nodes} nodes are hardly used any more")
    say(
        "you",
        f"from here on a function dies at a checkpoint with {DEADLY:.0%}, and a message comes twice with {TWICE:.0%}",
    )
    world.scale(drain_fixture.BIG, 0)
    world.rough = True
    return world.clock()


def _until_quiet(world: RoughWorld) -> None:
    """Run until the nodes are gone and, for a while, no operation is running and no node is tainted; or until the time
    limit."""
    end, quiet = world.clock() + LIMIT, 0.0
    while quiet < _QUIET and world.clock() < end:
        world.step(_QUIET / 3)
        busy = world.size(drain_fixture.OLD) > 0 or world.operations() or leftovers(world.kube.list("nodes"))
        quiet = 0.0 if busy else quiet + _QUIET / 3


def _closing(met: tuple[Expectation, ...], found: Iterable[tuple[str, int, str]]) -> Iterable[str]:
    width = max(len(each.words) for each in met)
    yield ""
    yield "Expected"
    for each in met:
        yield f"  {'yes' if each.met else 'NO ':<3}  {each.words:<{width}}  {each.seen}"
    yield ""
    yield "Figures"
    for what, number, words in found:
        yield f"  {number:{_COUNT}d}  {what}" + (f": {words}" if words else "")
