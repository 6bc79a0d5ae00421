"""The scheduler as a controller: binds waiting pods in the store, or records why it could not.

Outscaler depends on these records: PodScheduled=False with reason Unschedulable and the
message, and a FailedScheduling event whose count grows with every attempt. Nodes are chosen by a
`Pick`: a simple one, or scoring.DefaultProfile with the real scores. There is no preemption.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.model.timestamps import format_time
from infra.emulators.controllers.object_writes import (
    Changes,
    changed,
    condition,
    is_true,
    listed,
    with_conditions,
    write,
)
from infra.emulators.controllers.scheduler.cluster_view import ClusterView, Surroundings
from infra.emulators.controllers.scheduler.pod_and_node_info import (
    InfoReader,
    NodeView,
    PodView,
    read_node,
    read_pod,
)
from infra.emulators.controllers.scheduler.predicates import Nowhere, judge
from infra.emulators.kube.objects import KubeObject, clone, conditions_of, dig
from infra.emulators.kube.objects import condition as held_condition
from infra.emulators.kube.store import ObjectStore

GATED = "Scheduling is blocked due to non-empty scheduling gates"
_TOPOLOGY = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
_STORAGE = "storage.k8s.io"
_NAME = "default-scheduler"
# A change to any of these triggers another attempt at unschedulable pods.
_WATCHED = (
    ("nodes", ""),
    ("pods", ""),
    ("namespaces", ""),
    ("persistentvolumeclaims", ""),
    ("persistentvolumes", ""),
    ("storageclasses", _STORAGE),
    ("csinodes", _STORAGE),
    ("csidrivers", _STORAGE),
    ("csistoragecapacities", _STORAGE),
)


Json = Mapping[str, Any]
Pick = Callable[[PodView, Sequence[NodeView], ClusterView], NodeView]
"""(pod, nodes that it fits, cluster) -> the node for the pod."""

NO_NODES = "no nodes available to schedule pods"


class Decision(msgspec.Struct, frozen=True):
    """The result for a pod: its node, or None and the message that the real scheduler would write.
    volumes: its claims that got a free volume in this decision, each with the volume's name."""

    pod: PodView
    node: str | None
    message: str = ""
    volumes: tuple[tuple[str, str], ...] = ()


def first(_pod: PodView, nodes: Sequence[NodeView], _world: ClusterView) -> NodeView:
    """Select the first node in the given order, which fills nodes in turn."""
    return nodes[0]


def least_used(_pod: PodView, nodes: Sequence[NodeView], world: ClusterView) -> NodeView:
    """Select the node with the least used share of cpu and memory, as the scheduler's default score
    prefers; the first of equals."""

    def share(node: NodeView) -> float:
        used = world.used(node.name)
        return sum(used[name] / max(1, node.allocatable.get(name, 0)) for name in ("cpu", "memory"))

    return min(nodes, key=share)


def refusal(reasons: Iterable[Sequence[str]]) -> str:
    """Format `0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu.`
    from each node's reasons.

    The parts are sorted as text, as in the real scheduler: `11 …` comes before `2 …`.
    """
    per_node = list(reasons)
    if not per_node:
        return NO_NODES
    counted = Counter(reason for each in per_node for reason in set(each))
    parts = sorted(f"{count} {reason}" for reason, count in counted.items())
    return f"0/{len(per_node)} nodes are available: {', '.join(parts)}."


def place(pod: PodView, world: ClusterView, pick: Pick = least_used) -> Decision:
    """Place one pod in the current cluster view. A decision with a node has already
    taken its resources there."""
    verdict = judge(pod, world)
    if isinstance(verdict, Nowhere):
        return Decision(pod, None, f"0/{len(world.nodes)} nodes are available: {verdict.reason}.")
    against = [(node, verdict(node)) for node in world.nodes.values()]
    possible = [node for node, reasons in against if not reasons]
    if not possible:
        return Decision(pod, None, refusal(reasons for _, reasons in against))
    chosen = pick(pod, possible, world)
    return Decision(pod, chosen.name, volumes=tuple(world.place(pod, chosen.name)))


def _queue_order(pod: PodView) -> tuple[int, str]:
    return -pod.priority, pod.created


def _look(pod: PodView) -> bytes:
    return msgspec.json.encode(
        (pod.namespace, pod.labels, pod.claims, pod.raw["spec"]), order="sorted"
    )


def place_all(
    pods: Iterable[PodView], world: ClusterView, pick: Pick = least_used
) -> list[Decision]:
    """Schedule every pod in queue order: higher priority first, then older, then as given.

    A pod that is equal to a rejected one is rejected with the same message, unless
    something was placed since.
    """
    decisions = []
    refused: dict[bytes, tuple[int, str]] = {}
    for pod in sorted(pods, key=_queue_order):
        look = _look(pod)
        generation, message = refused.get(look, (-1, ""))
        if generation == world.generation:
            decisions.append(Decision(pod, None, message))
            continue
        decision = place(pod, world, pick)
        if decision.node is None:
            refused[look] = (world.generation, decision.message)
        decisions.append(decision)
    return decisions


def waits(pod: PodView) -> bool:
    return not (pod.node or pod.terminating or pod.finished or pod.gated) and pod.scheduler == _NAME


def schedule_once(
    nodes: Iterable[Json],
    pods: Iterable[Json],
    around: Surroundings | None = None,
    *,
    pick: Pick = least_used,
) -> list[Decision]:
    """Run one round over plain API objects. Returns a decision for every waiting pod,
    in the order of attempts."""
    views = [read_pod(pod) for pod in pods]
    world = ClusterView((read_node(node) for node in nodes), views, around)
    return place_all((pod for pod in views if waits(pod)), world, pick)


def _was_looked_at(pod: PodView) -> bool:
    return any(held.get("type") == "PodScheduled" for held in conditions_of(pod.raw))


class FirstLooks:
    """The queue of a scheduler that looks at so many new pods a second.
    waits: whether pods are left."""

    def __init__(self, pods_per_second: float) -> None:
        self._rate = pods_per_second
        self._since, self._taken = 0.0, 0
        self.waits = False

    def take(self, pods: Sequence[PodView], now: float) -> list[PodView]:
        """Return the pods that it looks at now: those that it has seen
        before, and the next new ones."""
        new = [pod for pod in pods if not _was_looked_at(pod)]
        if self._rate == math.inf or not new:
            self.waits = False
            return list(pods)
        if not self.waits:
            self._since, self._taken = now, 0
        count = int((now - self._since) * self._rate) + 1 - self._taken
        new.sort(key=_queue_order)
        left = {pod.uid for pod in new[count:]}
        self._taken += min(count, len(new))
        self.waits = bool(left)
        return [pod for pod in pods if pod.uid not in left]


class SchedulerLoop:
    """Binds pods of the default scheduler in a store; step() does all that can be done now.

    retry_seconds: an unschedulable pod is retried at least this often, which increments its event's
    count (5 min in the real scheduler). pods_per_second: how many pods it looks at for the first
    time; the others have no condition yet.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Callable[[], float],
        *,
        pick: Pick = least_used,
        retry_seconds: float = 300.0,
        pods_per_second: float = math.inf,
    ) -> None:
        self._store, self._clock, self._pick = store, clock, pick
        self._retry = retry_seconds
        self._queue = FirstLooks(pods_per_second)
        self._pods, self._nodes = InfoReader(read_pod), InfoReader(read_node)
        self._changes = Changes(store, _WATCHED)
        self._tried = -retry_seconds

    def step(self) -> None:
        """Attempt to schedule every waiting pod, if something relevant changed or
        the retry time has come."""
        changed = self._changes.any()
        now = self._clock()
        due = now - self._tried >= self._retry
        if not (due or changed or self._queue.waits):
            return
        if due:
            self._tried = now
        pods = self._pods.views(self._store.list("pods"))
        for pod in pods:
            if pod.gated and not pod.node:
                self._mark(pod, "SchedulingGated", GATED)
        waiting = self._queue.take([pod for pod in pods if waits(pod)], now)
        if not waiting:
            return
        world = ClusterView(self._nodes.views(self._store.list("nodes")), pods, self._around())
        for decision in place_all(waiting, world, self._pick):
            self._carry_out(decision, again=due)

    def _around(self) -> Surroundings:
        return Surroundings(
            claims=tuple(self._store.list("persistentvolumeclaims")),
            volumes=tuple(self._store.list("persistentvolumes")),
            storage_classes=tuple(listed(self._store, "storageclasses", _STORAGE)),
            csi_nodes=tuple(listed(self._store, "csinodes", _STORAGE)),
            namespaces=tuple(self._store.list("namespaces")),
            csi_drivers=tuple(listed(self._store, "csidrivers", _STORAGE)),
            capacities=tuple(listed(self._store, "csistoragecapacities", _STORAGE)),
            services=tuple(listed(self._store, "services")),
            replica_sets=tuple(listed(self._store, "replicasets", "apps")),
        )

    def _carry_out(self, decision: Decision, *, again: bool) -> None:
        if decision.node is not None:
            self._bind_volumes(decision)
            if self._bind(decision.pod, decision.node):
                text = (
                    f"Successfully assigned {decision.pod.namespace}/{decision.pod.name} to "
                    f"{decision.node}"
                )
                self._emit(decision.pod, "Normal", "Scheduled", text)
        elif self._mark(decision.pod, "Unschedulable", decision.message) or again:
            self._emit(decision.pod, "Warning", "FailedScheduling", decision.message)

    def _current(self, pod: PodView) -> KubeObject | None:
        found = self._store.peek("pods", pod.name, pod.namespace)
        return found if found is not None and found["metadata"]["uid"] == pod.uid else None

    def _bind(self, pod: PodView, node: str) -> bool:
        """Set spec.nodeName, PodScheduled, and the node's zone and region as labels, as
        the real API server does."""
        raw, target = self._current(pod), self._store.peek("nodes", node)
        if (
            raw is None
            or target is None
            or dig(raw, "spec", "nodeName")
            or "deletionTimestamp" in raw["metadata"]
        ):
            return False
        bound = clone(raw)
        bound["spec"]["nodeName"] = node
        there = dig(target, "metadata", "labels") or {}
        bound["metadata"]["labels"] = {
            **(bound["metadata"].get("labels") or {}),
            **{key: there[key] for key in _TOPOLOGY if key in there},
        }
        bound.setdefault("status", {})["conditions"] = with_conditions(
            raw, self._clock(), condition("PodScheduled", value=True)
        )
        return write(self._store, "pods", bound)

    def _bind_volumes(self, decision: Decision) -> None:
        """Bind claims and volumes as the volume controller does, before the pod is bound."""
        for name, chosen in decision.volumes:
            claim = self._store.peek("persistentvolumeclaims", name, decision.pod.namespace)
            volume = self._store.peek("persistentvolumes", chosen)
            if claim is None or volume is None:
                continue
            meta = claim["metadata"]
            notes = {**(meta.get("annotations") or {}), "pv.kubernetes.io/bind-completed": "yes"}
            ref = {"name": name, "namespace": decision.pod.namespace, "uid": meta["uid"]}
            volume = changed(volume, "spec", claimRef={"kind": "PersistentVolumeClaim", **ref})
            write(self._store, "persistentvolumes", changed(volume, "status", phase="Bound"))
            claim = changed(
                changed(claim, "metadata", annotations=notes), "spec", volumeName=chosen
            )
            write(self._store, "persistentvolumeclaims", changed(claim, "status", phase="Bound"))

    def _mark(self, pod: PodView, reason: str, message: str) -> bool:
        """Set PodScheduled=False with this reason and message. Returns False if the pod
        has this condition already."""
        raw = self._current(pod)
        if raw is None or is_true(raw, "PodScheduled"):
            return False
        said = held_condition(raw, "PodScheduled") or {}
        if said.get("reason") == reason and str(said.get("message", "")).startswith(message):
            return False  # the real message continues with preemption
        wanted = condition("PodScheduled", value=False, reason=reason, message=message)
        conditions = with_conditions(raw, self._clock(), wanted)
        return write(self._store, "pods", changed(raw, "status", conditions=conditions))

    def _emit(self, pod: PodView, type_: str, reason: str, message: str) -> None:
        """Create an event, or increment the count of the event with the same pod and message."""
        now = format_time(self._clock())
        name = f"{pod.name}.{zlib.crc32(f'{pod.uid} {reason} {message}'.encode()):08x}"
        before = self._store.get("events", name, pod.namespace)
        if before is not None:
            write(
                self._store,
                "events",
                {**before, "count": before.get("count", 1) + 1, "lastTimestamp": now},
            )
            return
        self._store.create(
            "events",
            {
                "metadata": {"name": name, "namespace": pod.namespace},
                "involvedObject": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": pod.name,
                    "namespace": pod.namespace,
                    "uid": pod.uid,
                    "resourceVersion": pod.raw["metadata"].get("resourceVersion", ""),
                },
                "reason": reason,
                "message": message,
                "type": type_,
                "count": 1,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "source": {"component": _NAME},
                "reportingComponent": _NAME,
            },
        )
