"""Checks that all nodes of a plan's unneeded list can be removed together, with the
scheduler of infra/emulators.

The nodes are removed one after the other, as in operation: taint and cordon the node, evict its
pods, let the scheduler place each of them on a node that stays, delete the node. A tainted node
still counts as a topology domain. This module shares no code with the planner.

    python -m tests.differential.scale_down_checker --seeds 0-199     prints one failure per line
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from infra.emulators.controllers.scheduler.cluster_view import ClusterView, Surroundings
from infra.emulators.controllers.scheduler.pod_and_node_info import (
    NodeView,
    PodView,
    read_node,
    read_pod,
)
from infra.emulators.controllers.scheduler.predicates import Nowhere, judge, node_resources_fit
from infra.emulators.controllers.scheduler.selectors import SelectorTaint, read_selector, selects
from tests.differential.compare import NOW, generator, seeds_of
from tests.differential.scale_down_clusters import wild
from tests.property.snapshot_reader import Lists, read

BOOKS = "books: nodes, pods or destinations do not add up"
HOLDS = "holds: a pod that holds its node is to be moved"
BUDGET = "budget: more pods moved than a budget allows"
SENT = "sent: not accepted where the plan puts it"
PLACE = "place: no node takes it, in any order tried"
EXPENDABLE, ORDERS = -10, 20

Json = Any
Found = Iterator[tuple[str, str]]  # kind, detail
# the current destination of a pod among these nodes
Choice = Callable[["RemovalCheck", PodView, Sequence[str]], str | None]
_GONE = SelectorTaint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule")
_PREFIX = "cluster-autoscaler.kubernetes.io/"
ALL = Options(max_scale_down_parallelism=10**6, max_drain_parallelism=10**6)


def removals(snapshot: Snapshot, policy: Policy | None = None) -> Plan:
    """A plan that removes every unneeded node at once, with destinations: groups are above their
    minimums, there are no waiting times, and parallelism is unlimited."""
    groups = tuple(
        msgspec.structs.replace(group, min=0) if group.target > group.min else group
        for group in snapshot.groups
    )
    policy = policy or Policy(name="referee", options=ALL)
    return plan_cluster(
        msgspec.structs.replace(snapshot, groups=groups),
        policy,
        Memory(),
        snapshot.taken_at,
        0,
        assume_unneeded_for=30 * 86_400.0,
    )[0]


class RemovalCheck(ClusterView):
    """A world from which pods and nodes can be removed."""

    def lift(self, pod: PodView, node: str) -> None:
        """Takes a pod off its node."""
        at = next(at for at, each in enumerate(self._pods[node]) if each.uid == pod.uid)
        del self._pods[node][at]
        self._used[node].subtract(pod.requests)
        self.generation += 1

    def mark(self, node: NodeView) -> None:
        """Changes the state of an existing node."""
        self.nodes[node.name] = node
        self.generation += 1

    def drop(self, name: str) -> None:
        """Deletes a node with everything on it."""
        del self.nodes[name], self._pods[name], self._used[name]
        self.generation += 1


class Referee:
    """One cluster and the plan for it."""

    def __init__(self, lists: Lists, plan: Plan, each: int = 1) -> None:
        """each: one of that many pods is checked with all predicates, the others only by resources;
        for large clusters, where each check examines every pod."""
        self._lists, self._plan, self._each, self._turn = lists, plan, each, 0
        self._going = {removal.node: removal for removal in plan.removals}
        self._pods = {f"{pod.namespace}/{pod.name}": pod for pod in map(read_pod, lists["pods"])}
        self._destinations = {
            pod: on for removal in plan.removals for pod, on in removal.destinations.items()
        }
        self._nodes = {node.name: node for node in map(read_node, lists["nodes"])}
        self._around = Surroundings(
            claims=tuple(lists.get("claims", ())),
            volumes=tuple(lists.get("volumes", ())),
            storage_classes=tuple(lists.get("classes", ())),
            namespaces=tuple(lists.get("namespaces", ())),
            csi_nodes=tuple(lists.get("csinodes", ())),
            csi_drivers=tuple(lists.get("csidrivers", ())),
            capacities=tuple(lists.get("capacities", ())),
        )

    def found(self) -> Found:
        """Returns all errors; if the bookkeeping is wrong, nothing further is checked."""
        books = list(self._books())
        yield from books
        if not books:
            yield from self._holds()
            yield from self._budgets()
            yield from self._places()

    # -- the plan alone

    def _books(self) -> Found:
        """Checks that every unneeded node goes, and that every pod to be moved is named once and
        sent to a node that stays."""
        for name in sorted(set(self._plan.unneeded) ^ set(self._going)):
            yield BOOKS, f"{name} is unneeded or removed, and not both"
        for removal in self._plan.removals:
            odd = Counter(removal.evict)
            odd.subtract(
                key for key, pod in self._pods.items() if pod.node == removal.node and _moves(pod)
            )
            wrong = sorted(key for key, count in odd.items() if count)
            if wrong:
                yield BOOKS, f"{removal.node}: pods that move differ: {', '.join(wrong[:4])}"
            if sorted(removal.destinations) != sorted(removal.evict):
                yield BOOKS, f"{removal.node}: not every pod that moves has a destination"
            for pod, on in sorted(removal.destinations.items()):
                if on not in self._nodes or on in self._going:
                    yield BOOKS, f"{pod} is sent to {on}, which goes too or is not there"

    def _holds(self) -> Found:
        """Checks that no pod moves that must not (the drain rules that depend only on the pod;
        docs/reference/drain.md "Drain rules")."""
        for key in sorted(pod for removal in self._plan.removals for pod in removal.evict):
            why = _held(self._pods[key])
            if why:
                yield HOLDS, f"{key}: {why}"

    def _budgets(self) -> Found:
        """Checks that an order exists in which each budget has one disruption left when a node
        with its pods is started. A node may take more than is left of a budget (a risky drain),
        and is last in that case."""
        left: dict[str, int] = {}
        takes: dict[str, Counter[str]] = {name: Counter() for name in self._going}
        asks: dict[str, set[str]] = {name: set() for name in self._going}
        for budget in self._lists.get("pdbs", ()):
            name = f"{budget['metadata']['namespace']}/{budget['metadata']['name']}"
            left[name] = budget["status"]["disruptionsAllowed"]
            for node, removal in self._going.items():
                under = [
                    pod
                    for pod in map(self._pods.__getitem__, removal.evict)
                    if _selected(pod, budget)
                ]
                takes[node][name] += len(under)
                if any(_asks(pod) for pod in under):
                    asks[node].add(name)
        rest = dict(takes)
        # a node that can be last is put last; putting it earlier cannot make
        # it easier for the others
        while rest:
            total = sum(rest.values(), Counter[str]())
            last = next(
                (
                    node
                    for node in rest
                    if all(total[name] - rest[node][name] < left[name] for name in asks[node])
                ),
                None,
            )
            if last is None:
                short = sorted(
                    {name for node in rest for name in asks[node] if total[name] > left[name]}
                )
                yield BUDGET, f"{', '.join(short)}: nodes {', '.join(sorted(rest))}"
                return
            del rest[last]

    # -- simulated scheduling

    def _places(self) -> Found:
        """Tries the plan's destinations first and then any node with room."""
        stuck = self._best(self._sent)
        if not stuck:
            return
        yield SENT, _some(stuck)
        for choice in (_emptiest, _fullest):
            stuck = min(stuck, self._best(choice), key=len)
        if stuck:
            yield PLACE, _some(stuck)

    def _sent(self, yard: RemovalCheck, pod: PodView, staying: Sequence[str]) -> str | None:
        on = self._destinations[_key(pod)]
        self._turn += 1
        if on not in staying:
            return None
        if self._turn % self._each:
            return on if not node_resources_fit(pod, yard)(yard.nodes[on]) else None
        return on if not against(pod, yard, on) else None

    def _best(self, choose: Choice) -> dict[str, str]:
        """The nodes that cannot be removed and the reasons, in the best of several orders."""
        draw, order = (
            random.Random(len(self._pods)),
            [removal.node for removal in self._plan.removals],
        )
        stuck = self._remove(order, choose)
        for _ in range(ORDERS if stuck else 0):
            stuck = min(stuck, self._remove(draw.sample(order, len(order)), choose), key=len)
            if not stuck:
                break
        return stuck

    def _remove(self, order: Sequence[str], choose: Choice) -> dict[str, str]:
        """Removes nodes one after the other and retries the failed ones at the end until no
        further node can be removed."""
        standing = (pod for pod in self._pods.values() if pod.priority >= EXPENDABLE)
        yard = RemovalCheck(self._nodes.values(), standing, self._around)
        staying = [name for name in self._nodes if name not in self._going]
        stuck, before = dict.fromkeys(order, ""), -1
        while stuck and len(stuck) != before:
            before = len(stuck)
            for name in list(stuck):
                moving = [self._pods[key] for key in self._going[name].evict]
                stuck[name] = drain(yard, name, moving, lambda pod: choose(yard, pod, staying))
                if not stuck[name]:
                    del stuck[name]
        return stuck


def drain(
    yard: RemovalCheck,
    name: str,
    moving: Sequence[PodView],
    choose: Callable[[PodView], str | None],
) -> str:
    """Removes one node, or restores everything and returns the pod without a place
    and the reason of its node."""
    whole = yard.nodes[name]
    yard.mark(msgspec.structs.replace(whole, taints=(*whole.taints, _GONE), unschedulable=True))
    for pod in moving:
        yard.lift(pod, name)
    waiting = [msgspec.structs.replace(pod, node="") for pod in sorted(moving, key=_turn)]
    placed: list[tuple[PodView, str]] = []
    for _ in range(len(waiting)):  # in rounds: a pod may have to wait for another pod
        before = len(placed)
        for pod in list(waiting):
            on = choose(pod)
            if on is not None:
                yard.place(pod, on)
                placed.append((pod, on))
                waiting.remove(pod)
        if len(placed) == before:
            break
    if not waiting:
        yard.drop(name)
        return ""
    for pod, on in placed:
        yard.lift(pod, on)
    for pod in moving:
        yard.place(pod, name)
    yard.mark(whole)
    return f"{_key(waiting[0])} has no place"


def against(pod: PodView, world: ClusterView, on: str) -> list[str]:
    """The scheduler's reason; empty if the node accepts the pod."""
    verdict = judge(pod, world)
    return [verdict.reason] if isinstance(verdict, Nowhere) else verdict(world.nodes[on])


def _able(yard: RemovalCheck, pod: PodView, staying: Sequence[str]) -> list[str]:
    verdict = judge(pod, yard)
    return (
        []
        if isinstance(verdict, Nowhere)
        else [name for name in staying if not verdict(yard.nodes[name])]
    )


def _free(yard: RemovalCheck, name: str) -> int:
    return yard.nodes[name].allocatable.get("cpu", 0) - yard.used(name)["cpu"]


def _emptiest(yard: RemovalCheck, pod: PodView, staying: Sequence[str]) -> str | None:
    return max(_able(yard, pod, staying), key=lambda name: _free(yard, name), default=None)


def _fullest(yard: RemovalCheck, pod: PodView, staying: Sequence[str]) -> str | None:
    return min(_able(yard, pod, staying), key=lambda name: _free(yard, name), default=None)


def _turn(pod: PodView) -> tuple[int, int]:
    """Sort key: higher priority first, then larger pods."""
    return -pod.priority, -pod.requests.get("cpu", 0)


def _key(pod: PodView) -> str:
    return f"{pod.namespace}/{pod.name}"


def _some(stuck: Mapping[str, str]) -> str:
    return f"{len(stuck)} nodes, such as " + "; ".join(
        f"{name}: {why}" for name, why in sorted(stuck.items())[:3]
    )


# -- fields of a pod


def _note(pod: PodView, name: str) -> str:
    return str((pod.raw["metadata"].get("annotations") or {}).get(_PREFIX + name, ""))


def _owner(pod: PodView) -> str:
    """The kind of its controller."""
    return next(
        (
            ref["kind"]
            for ref in pod.raw["metadata"].get("ownerReferences") or ()
            if ref.get("controller")
        ),
        "",
    )


def _moves(pod: PodView) -> bool:
    """Whether the pod needs another node if its own is removed."""
    mirror = "kubernetes.io/config.mirror" in (pod.raw["metadata"].get("annotations") or {})
    return not (mirror or pod.finished or _owner(pod) == "DaemonSet" or pod.priority < EXPENDABLE)


def _asks(pod: PodView) -> bool:
    """Whether its budgets are checked before it is moved."""
    return _note(pod, "safe-to-evict") != "true"


def _held(pod: PodView) -> str:
    """The reason why the pod blocks its node; empty if it does not."""
    if _note(pod, "safe-to-evict") == "true":
        return ""
    local = [
        volume["name"]
        for volume in pod.raw["spec"].get("volumes") or ()
        if "hostPath" in volume
        or ("emptyDir" in volume and volume["emptyDir"].get("medium") != "Memory")
    ]
    named = _note(pod, "safe-to-evict-local-volumes").split(",")
    return next(
        (
            why
            for holds, why in (
                (not _owner(pod), "nothing would recreate it"),
                (_note(pod, "safe-to-evict") == "false", "not safe to evict"),
                (not set(local) <= set(named), "local storage"),
            )
            if holds
        ),
        "",
    )


def _selected(pod: PodView, budget: Json) -> bool:
    return bool(
        pod.namespace == budget["metadata"]["namespace"]
        and selects(read_selector(budget["spec"].get("selector")), pod.labels)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints failures; returns 1 if there are any."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.differential.scale_down_checker",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default="0-199", help="N or FIRST-LAST")
    parser.add_argument("--wild", action="store_true", help="clusters of tests/property instead")
    args = parser.parse_args(arguments)
    make, kinds, gone = wild if args.wild else generator().make_down, Counter[str](), 0
    for seed in seeds_of(args.seeds):
        lists, manifest = make(seed)
        plan = removals(read(lists, manifest, NOW))
        gone += len(plan.removals)
        for kind, detail in Referee(lists, plan).found():
            kinds[kind] += 1
            print(f"seed {seed}: {kind}: {detail}", flush=True)
    print(f"{gone} nodes removed, {sum(kinds.values())} failures", dict(kinds))
    return int(bool(kinds))


if __name__ == "__main__":
    raise SystemExit(main())
