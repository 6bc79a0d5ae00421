"""Runs the recorded demonstration: a cluster starts, its nodes become unneeded, and functions crash
until the nodes are gone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from chalicelib.model.node import DELETION_CANDIDATE, TO_BE_DELETED
from chalicelib.model.operation import OPERATION_ANNOTATION, OperationKind
from infra.demo.drains import drain_fixture
from infra.demo.drains.drain_fixture import (
    BIG,
    DEADLY,
    NEW,
    OLD,
    PARALLEL,
    STAY,
    TWICE,
    App,
    RoughWorld,
    apps,
)
from infra.demo.expectations import Expectation
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.object_writes import is_true
from infra.emulators.invocation import Invocation
from infra.emulators.kube.objects import KubeObject

Say = Callable[[str, str], None]
"""(who, what)."""


@dataclass
class Notes:
    """lowered, raised: machines by which the group's size went down and up. at_once: largest number
    of nodes tainted at one time. room: smallest number of disruptions that the budgets allowed at
    any time. lost: pods that ended without an eviction. ended: removals by result. sent_again:
    operations that the tick re-sent."""

    lowered: int = 0
    raised: int = 0
    gone: list[str] = field(default_factory=list)
    at_once: int = 0
    room: int = 1_000
    lost: list[str] = field(default_factory=list)
    evicted: set[str] = field(default_factory=set)
    refused: int = 0
    given_up: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    sent_again: int = 0


class Watcher:
    """look() and heard() are passed to a RoughWorld, which calls them."""

    def __init__(self, world: RoughWorld, apps: Sequence[App], say: Say) -> None:
        self._world, self._apps, self._say = world, apps, say
        self.notes = Notes()
        self._nodes = world.kube.subscribe("nodes")
        self._pods = world.kube.subscribe("pods")
        self._groups = world.kube.subscribe("machinedeployments", fields.GROUP)
        self._requests = len(world.server.requests)
        self._marked: set[str] = set()
        self._planned: dict[str, str] = {}
        self._told: set[str] = set()

    def look(self) -> None:
        self._see_requests()
        self._see_nodes()
        self._see_pods()
        self._see_sizes()

    def heard(self, made: Invocation) -> None:
        self.look()
        self._see_operations()
        if made.killed_at:
            self.notes.killed[made.function] += 1
            self._say("killed", f"{made.function} at {made.killed_at}{self._about(made)}")
        if made.error or made.failed_messages:
            self.notes.failed.append(f"{made.function}: {made.error or 'gave its message back'}")
        again = (
            made.answer.get("swept", ())
            if made.function == "tick" and isinstance(made.answer, dict)
            else ()
        )
        for operation in again:
            self.notes.sent_again += 1
            self._say(
                "outscaler",
                "tick: no executor works on the removal of "
                f"{self._planned.get(operation, operation)} "
                "any more; its message is sent again",
            )

    def _about(self, made: Invocation) -> str:
        named = [json.loads(body).get("operation", "") for body in made.bodies]
        return "".join(
            f", removing {self._planned[each]}" for each in named if each in self._planned
        )

    # -- table

    def _see_operations(self) -> None:
        for operation in self._world.operations():
            if (
                operation.spec.id in self._planned
                or operation.spec.kind is not OperationKind.DELETE_NODES
            ):
                continue
            (target,) = operation.spec.targets
            self._planned[operation.spec.id] = target.node
            self._say("outscaler", f"plan: remove {target.node}, evicting {len(target.evict)} pods")
        for entry in reversed(self._world.store.journal.recent(self._world.name, 20)):
            if entry.kind == "operation" and entry.operation not in self._told:
                self._told.add(entry.operation)
                self._say_end(entry.operation, entry.facts)

    def _say_end(self, operation: str, facts: dict[str, str | int | float]) -> None:
        self.notes.ended[str(facts["state"])] += 1
        why = f": {facts['message']}" if "message" in facts else ""
        self._say(
            "outscaler",
            f"removal of {self._planned.get(operation, operation)} {facts['state']} after "
            f"{float(facts['seconds']):.0f} s{why}",
        )

    # -- cluster

    def _see_requests(self) -> None:
        log = self._world.server.requests
        fresh = list(islice(log, self._requests, None))
        self._requests += len(fresh)
        granted = Counter[str]()
        for request in fresh:
            if not request.path.partition("?")[0].endswith("/eviction"):
                continue
            pod = request.path.split("/")[-2]
            if request.status < 300:
                self.notes.evicted.add(pod)
                granted[self._app(pod)] += 1
            elif request.status == 429:
                self.notes.refused += 1
                self._say("cluster", f"{pod} may not be evicted now: its budget allows no more")
        if named := {app: number for app, number in sorted(granted.items()) if app}:
            self._say(
                "cluster",
                "evicted: " + ", ".join(f"{number} of {app}" for app, number in named.items()),
            )

    def _app(self, pod: str) -> str:
        return next((app.name for app in self._apps if pod.startswith(f"{app.name}-")), "")

    def _see_nodes(self) -> None:
        for event in self._nodes.poll():
            name = event.object["metadata"]["name"]
            if event.type == "DELETED":
                self._marked.discard(name)
                self.notes.gone.append(name)
                self._say("cluster", f"node {name} is gone")
            elif taint(event.object, TO_BE_DELETED) and name not in self._marked:
                self._marked.add(name)
                self._say("cluster", f"node {name} is tainted and cordoned")
            elif name in self._marked and not taint(event.object, TO_BE_DELETED):
                self._marked.discard(name)
                self.notes.given_up += 1
                self._say("cluster", f"node {name} is given back: no taint, no cordon")
        self.notes.at_once = max(self.notes.at_once, len(self._marked))

    def _see_pods(self) -> None:
        events = self._pods.poll()
        for event in events:
            name = event.object["metadata"]["name"]
            if event.type == "DELETED" and self._app(name) and name not in self.notes.evicted:
                self.notes.lost.append(name)
        if events:
            for app in self._apps:
                missing = app.replicas - healthy(self._world.kube.list("pods"), app.name)
                self.notes.room = min(self.notes.room, app.may_miss - missing)

    def _see_sizes(self) -> None:
        for event in self._groups.poll():
            if event.previous is None or event.object["metadata"]["name"] != OLD:
                continue
            change = event.object["spec"]["replicas"] - event.previous["spec"]["replicas"]
            self.notes.raised += max(0, change)
            self.notes.lowered += max(0, -change)


def healthy(pods: Sequence[KubeObject], app: str) -> int:
    """Return how many pods of an app a budget counts: ready and not terminating."""
    return sum(
        is_true(pod, "Ready")
        for pod in pods
        if pod["metadata"].get("labels", {}).get("app") == app
        and "deletionTimestamp" not in pod["metadata"]
    )


def taint(node: KubeObject, key: str) -> bool:
    return any(each["key"] == key for each in node["spec"].get("taints") or ())


def leftovers(nodes: Sequence[KubeObject]) -> list[str]:
    return [
        node["metadata"]["name"]
        for node in nodes
        if taint(node, TO_BE_DELETED)
        or taint(node, DELETION_CANDIDATE)
        or node["spec"].get("unschedulable")
        or OPERATION_ANNOTATION in (node["metadata"].get("annotations") or {})
    ]


LONGEST = 60.0
"""Maximum duration of an invocation in seconds (.chalice/config.json)."""


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
        "no disruption budget was overrun",
        notes.room >= 0,
        "never" if notes.room >= 0 else f"by {-notes.room} pods",
    )
    yield _is("no pod ended without having been evicted", notes.lost, [], f"{len(notes.lost)} did")
    run = {app.name: healthy(pods, app.name) for app in apps(nodes)}
    yield _is(
        "every pod runs elsewhere",
        (run, world.pending(), healthy(pods, BIG)),
        ({app.name: app.replicas for app in apps(nodes)}, (), 0),
        ", ".join(f"{number} of {name}" for name, number in run.items())
        + f", {len(world.pending())} pending",
    )
    yield Expectation(
        f"at most {PARALLEL} nodes were drained at once",
        notes.at_once <= PARALLEL,
        f"{notes.at_once}",
    )
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
    """Return (name, amount, description). seconds: virtual ones, from the end of the big pods to
    the end of the last node."""
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


LIMIT = 4 * 3600.0
"""Virtual seconds after which the run is aborted."""
_START_UP, _SETTLE, _QUIET = 100.0, 30.0, 180.0
_WHO, _COUNT = 9, 5

Put = Callable[[str], None]
"""Accepts one line."""


def tell(nodes: int, seed: int, put: Put) -> int:
    """Run it. Returns 0 if all expectations are met, otherwise 1. nodes: how many are to be
    removed. seed: of the random faults."""
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
        (
            f"{nodes} nodes of group {drain_fixture.OLD}, each with one pod of "
            f"{drain_fixture.BIG}; also {small}"
        ),
    )
    world.seed(drain_fixture.new_nodes())
    world.step(_START_UP)
    say(
        "cluster",
        f"{drain_fixture.STAY} nodes of group {drain_fixture.NEW} have joined; "
        f"{len(world.nodes())} nodes, "
        f"{len(world.pending())} pods without one",
    )
    world.apply_policy(drain_fixture.POLICY)
    world.step(2 * _START_UP)


def _end_of_the_big_pods(world: RoughWorld, nodes: int, say: Callable[[str, str], None]) -> float:
    """Scale the big pods to 0, start the random faults and return the time."""
    say("you", f"kubectl scale {drain_fixture.BIG} to 0: {nodes} nodes are hardly used any more")
    say(
        "you",
        (
            f"from here on a function dies at a checkpoint with {DEADLY:.0%}, and a message comes "
            f"twice with {TWICE:.0%}"
        ),
    )
    world.scale(drain_fixture.BIG, 0)
    world.rough = True
    return world.clock()


def _until_quiet(world: RoughWorld) -> None:
    """Run until the nodes are gone and, for a while, no operation is running and no node is
    tainted; or until the time limit."""
    end, quiet = world.clock() + LIMIT, 0.0
    while quiet < _QUIET and world.clock() < end:
        world.step(_QUIET / 3)
        busy = (
            world.size(drain_fixture.OLD) > 0
            or world.operations()
            or leftovers(world.kube.list("nodes"))
        )
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
