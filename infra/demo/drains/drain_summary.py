"""Summary of the recorded run: expectations, observations and figures.

Expectations are the same for every seed, while figures are random. Therefore a test compares the document's first table
exactly and the second one approximately (tests/functional/test_recorded_drain.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from infra.demo.drains.chaos_world import RoughWorld
from infra.demo.drains.drain_fixture import BIG, NEW, OLD, PARALLEL, STAY, apps
from infra.demo.drains.drain_observer import Notes, healthy, leftovers

LONGEST = 60.0
"""Maximum duration of an invocation in seconds (.chalice/config.json)."""


class Expectation(msgspec.Struct, frozen=True):
    """words: the expectation. seen: the observation."""

    words: str
    met: bool
    seen: str


def expectations(world: RoughWorld, notes: Notes, nodes: int) -> Iterator[Expectation]:
    """Return all expectations. nodes: how many should have been removed."""
    pods, kube = world.kube.list("pods"), world.kube
    here = [node["metadata"]["name"] for node in kube.list("nodes")]
    old = sum(name.startswith(f"{OLD}-") for name in here)
    yield _is(
        f"{nodes} nodes are gone, and no other",
        (len(notes.gone), len(here) - old),
        (nodes, STAY),
        f"{len(notes.gone)} gone, {len(here)} left",
    )
    yield _is(
        "each machine was deleted once",
        (notes.lowered, notes.raised, world.size(OLD), world.size(NEW)),
        (nodes, 0, 0, STAY),
        f"size lowered by {notes.lowered}, raised by {notes.raised}",
    )
    yield Expectation(
        "no disruption budget was overrun", notes.room >= 0, "never" if notes.room >= 0 else f"by {-notes.room} pods"
    )
    yield _is("no pod ended without having been evicted", notes.lost, [], f"{len(notes.lost)} did")
    run = {app.name: healthy(pods, app.name) for app in apps(nodes)}
    yield _is(
        "every pod runs elsewhere",
        (run, world.pending(), healthy(pods, BIG)),
        ({app.name: app.replicas for app in apps(nodes)}, (), 0),
        ", ".join(f"{number} of {name}" for name, number in run.items()) + f", {len(world.pending())} pending",
    )
    yield Expectation(f"at most {PARALLEL} nodes were drained at once", notes.at_once <= PARALLEL, f"{notes.at_once}")
    left = leftovers(kube.list("nodes"))
    yield _is("no taint, cordon or annotation is left", left, [], f"{len(left)} nodes")
    yield _is("no operation is open", world.operations(), (), f"{len(world.operations())}")
    yield _is("no function failed by itself", notes.failed, [], (notes.failed or ["none"])[0])
    killed = sum(notes.killed.values())
    yield Expectation(
        f"functions were killed at least {nodes // 2} times",
        killed >= nodes // 2,
        "they were" if killed >= nodes // 2 else f"{killed} times",
    )
    yield Expectation(
        f"no invocation took more than {LONGEST:.0f} virtual seconds",
        world.longest <= LONGEST,
        f"none over {max(1.0, world.longest):.0f}",
    )


def _is(words: str, found: object, right: object, seen: str) -> Expectation:
    return Expectation(words, found == right, seen)


def figures(world: RoughWorld, notes: Notes, seconds: float) -> Iterator[tuple[str, int, str]]:
    """Return (name, amount, description). seconds: virtual ones, from the end of the big pods to the end of the last
    node."""
    yield "minutes of virtual time", round(seconds / 60.0), ""
    yield (
        "functions killed",
        sum(notes.killed.values()),
        ", ".join(f"{name} {number}" for name, number in sorted(notes.killed.items())),
    )
    yield "messages that came twice", world.twice, ""
    yield "operations sent again by the tick", notes.sent_again, ""
    yield "invocations", len(world.invocations), ""
    yield (
        "removals whose end is in the journal",
        sum(notes.ended.values()),
        ", ".join(f"{number} {state}" for state, number in sorted(notes.ended.items())),
    )
    yield "nodes given back on the way", notes.given_up, ""
    yield "pods evicted", len(notes.evicted), ""
    yield "evictions refused for the moment", notes.refused, ""
