"""Observes the simulated cluster, prints its changes and counts them.

It sees what a person with kubectl would see: the objects, and the requests to the API server. It
does not know the functions' decisions (decision_narrator.py reports those).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

from chalicelib.reasons.words import counted
from infra.demo.console import Ledger, Say, names
from infra.demo.fixture import AGENT, group_name
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.object_writes import (
    changed,
    condition,
    is_true,
    with_conditions,
    write,
)
from infra.emulators.kube.objects import KubeObject, dig
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore

TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"

Elapsed = Callable[[], tuple[float, float]]


class Side(Protocol):
    """An observer of another cloud's machines."""

    def look(self) -> None:
        """Report what is new since the last call."""

    def sizes(self) -> dict[str, int]:
        """Return group -> desired machines."""


class Watcher:
    """look() reports what is new since the last call. first: called before a provider call is
    reported, so that its causes are reported before. sides: observers of the other clouds.
    counting: count machines and nodes. guarding: check budgets."""

    def __init__(
        self,
        kube: ObjectStore,
        server: ApiServer,
        ledger: Ledger,
        say: Say,
        elapsed: Elapsed,
        first: Callable[[], None],
    ) -> None:
        self._kube, self._server, self._ledger, self._say, self._elapsed = (
            kube,
            server,
            ledger,
            say,
            elapsed,
        )
        self._first = first
        self.sides: Sequence[Side] = ()
        self.counting = self.guarding = False
        self._events = kube.subscribe("events")
        self._nodes = kube.subscribe("nodes")
        self._machines = kube.subscribe("machines", fields.GROUP)
        self._groups = kube.subscribe("machinedeployments", fields.GROUP)
        self._requests, self._refused, self._told = 0, Counter[str](), set[str]()

    def look(self) -> None:
        self._see_groups()
        self._see_scheduling()
        self._see_machines()
        for side in self.sides:
            side.look()
        self._see_nodes()
        self._see_requests()
        self._see_budgets()

    def _see_groups(self) -> None:
        for event in self._groups.poll():
            if event.previous is None:
                continue
            name = event.object["metadata"]["name"]
            before, after = event.previous["spec"]["replicas"], event.object["spec"]["replicas"]
            if before != after:
                self._ledger.asked.append((name, before, after))
                if after > before:
                    self._ledger.steps.append(f"asked {name}")
                    self.answered()
                self._first()
                self._say(
                    "provider",
                    f"Cluster API was asked for another size of {name}: {before} ► {after}",
                )

    def answered(self) -> None:
        if self._ledger.pending_at and not self._ledger.answered_at:
            self._ledger.answered_at = self._elapsed()

    def _see_scheduling(self) -> None:
        refused: defaultdict[str, set[str]] = defaultdict(set)
        for event in self._events.poll():
            if event.object.get("reason") == "FailedScheduling" and event.type == "ADDED":
                refused[event.object["message"]].add(event.object["involvedObject"]["name"])
        if refused and self._ledger.pending_at is None:
            self._ledger.pending_at = self._elapsed()
        for message, pods in refused.items():
            short = message.split(" no new claims")[0].split(". preemption")[0]
            owners = Counter(pod.rsplit("-", 2)[0] for pod in pods)
            who = ", ".join(f"{number} {owner}" for owner, number in sorted(owners.items()))
            self._say("cluster", f"scheduler refuses {who}: {short}")

    def _see_machines(self) -> None:
        made = Counter(
            _group(event.object) for event in self._machines.poll() if event.type == "ADDED"
        )
        for group, number in made.items():
            self._say("provider", f"Cluster API creates {counted(number, 'machine')} for {group}")
            if self.counting:
                self._ledger.bought[group] += number

    def _see_nodes(self) -> None:
        joined, ready, marked, gone = (
            Counter[str](),
            Counter[str](),
            list[str](),
            list[KubeObject](),
        )
        for event in self._nodes.poll():
            name, pool = (
                event.object["metadata"]["name"],
                group_name(event.object["metadata"]["labels"]),
            )
            if event.type == "DELETED":
                gone.append(event.object)
                continue
            joined[pool] += event.previous is None
            was = event.previous is not None and is_true(event.previous, "Ready")
            if is_true(event.object, "Ready") and not was:
                ready[pool] += 1
                self._ledger.steps.append(f"ready {pool}")
            if _marked(event.object) and not (event.previous and _marked(event.previous)):
                marked.append(name)
                self._ledger.steps.append(f"drained {pool}")
        for pool, number in (+joined).items():
            self._say(
                "cluster", f"{counted(number, 'machine')} of {pool} joined as a node, not ready yet"
            )
        for pool, number in (+ready).items():
            self._say("cluster", f"{counted(number, 'node')} of {pool} ready")
            if self.counting:
                self._ledger.joined[pool] += number
        if marked:
            self._say(
                "cluster", f"{names(marked)}: tainted and cordoned, nothing new is placed there"
            )
        for node in gone:
            pool = group_name(node["metadata"]["labels"])
            self._ledger.gone[pool] += 1
            self._say("cluster", f"node {node['metadata']['name']} is gone")

    def _see_requests(self) -> None:
        log = self._server.api.requests
        fresh = list(islice(log, self._requests, None))
        self._requests += len(fresh)
        for request in fresh:
            if "watch=1" in request.path or request.path.startswith("/api/v1/events?"):
                continue  # of the event exporter
            self._ledger.kube_requests["reads" if request.method == "GET" else "writes"] += 1
            if request.path.partition("?")[0].endswith("/eviction"):
                self._evicted(request.path.split("/")[-2], request.status)

    def _evicted(self, pod: str, status: int) -> None:
        if pod.startswith(AGENT):  # a DaemonSet's pod is deleted with its node
            return
        if status < 300:
            self._ledger.evicted += 1
            self._say("cluster", f"{pod} evicted; its controller makes another one elsewhere")
        elif status == 429:
            self._ledger.refused_evictions += 1
            if pod not in self._told:
                self._told.add(pod)
                self._say(
                    "cluster",
                    f"{pod} may not be evicted now, its disruption budget allows no more: it waits",
                )

    def _see_budgets(self) -> None:
        """Check that there are never fewer healthy pods than the budget requires while
        nodes are being drained."""
        if not self.guarding:
            return
        for budget in self._kube.list("poddisruptionbudgets", group="policy"):
            healthy, wanted = (
                dig(budget, "status", "currentHealthy"),
                dig(budget, "status", "desiredHealthy"),
            )
            if healthy is not None and wanted is not None:
                self._ledger.least_room = min(self._ledger.least_room, healthy - wanted)

    # -- status

    def pods(self) -> tuple[int, int, int]:
        """Return (running, starting or ending, without a node) of all pods except DaemonSet
        pods."""
        running = other = pending = 0
        for pod in self._kube.list("pods"):
            owners = pod["metadata"].get("ownerReferences") or ()
            if any(owner["kind"] == "DaemonSet" for owner in owners):
                continue
            if not pod["spec"].get("nodeName"):
                pending += 1
            elif is_true(pod, "Ready") and "deletionTimestamp" not in pod["metadata"]:
                running += 1
            else:
                other += 1
        return running, other, pending

    def nodes(self, group: str) -> list[str]:
        """Return the names of a group's Nodes."""
        return [
            node["metadata"]["name"]
            for node in self._kube.list("nodes")
            if group_name(node["metadata"]["labels"]) == group
        ]

    def hosts(self, deployment: str) -> list[str]:
        """Return the nodes of a Deployment's pods, one for each; none unless all of them run."""
        pods = [
            pod
            for pod in self._kube.list("pods")
            if pod["metadata"]["name"].startswith(f"{deployment}-")
        ]
        ready = all(
            is_true(pod, "Ready") and "deletionTimestamp" not in pod["metadata"] for pod in pods
        )
        return [pod["spec"]["nodeName"] for pod in pods] if ready else []

    def sicken(self, node: str, condition_type: str) -> None:
        """Give a node a condition, as node-problem-detector does."""
        with self._kube.transaction():
            held = self._kube.peek("nodes", node)
            if held is None:
                raise KeyError(node)
            fault = condition(
                condition_type, value=True, reason="DockerHung", message="task docker:20744 blocked"
            )
            conditions = with_conditions(held, self._kube.clock(), fault)
            write(self._kube, "nodes", changed(held, "status", conditions=conditions))

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Return group -> (desired size, ready nodes) of all providers."""
        ready = Counter(
            group_name(node["metadata"]["labels"])
            for node in self._kube.list("nodes")
            if is_true(node, "Ready")
        )
        asked = {
            group["metadata"]["name"]: group["spec"]["replicas"]
            for group in self._kube.list("machinedeployments", group=fields.GROUP)
        }
        for side in self.sides:
            asked |= side.sizes()
        return {name: (size, ready[name]) for name, size in asked.items()}


def _group(machine: KubeObject) -> str:
    return str(machine["metadata"].get("labels", {}).get(fields.DEPLOYMENT_NAME, "?"))


def _marked(node: KubeObject) -> bool:
    return any(taint["key"] == TO_BE_DELETED for taint in node["spec"].get("taints") or ())
