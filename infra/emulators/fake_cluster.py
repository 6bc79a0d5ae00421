"""A cluster in a dictionary with the interface of the operations' NodeApi: nodes, pods, and
evictions that respect budgets and grace periods.

It is for tests of the steps; infra/emulators/kube simulates the complete Kubernetes API. Time is
the caller's clock: an evicted pod is gone after its grace period, and a refused one stays until its
budget allows the eviction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from chalicelib.cluster.errors import ClusterError, NotFound
from chalicelib.model.node import Taint
from chalicelib.operations.step_context import Eviction, NodeState, PodState


@dataclass(slots=True)
class PodBudget:
    """A PodDisruptionBudget for individually named pods. room: allowed disruptions."""

    name: str
    pods: frozenset[str]
    room: int


class InMemoryCluster:
    """Nodes, pods, budgets and claims (namespace/name -> selected node), which tests may change.
    calls: every verb with its object, in order."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.nodes: dict[str, NodeState] = {}
        self.budgets: list[PodBudget] = []
        self.nominated: dict[str, str] = {}
        self.claims: dict[str, str] = {}
        self.stuck: set[str] = set()
        self.calls: list[tuple[str, str]] = []
        self._pods: dict[str, PodState] = {}
        self._cordoned: set[str] = set()
        self._faults: dict[str, list[ClusterError]] = {}

    # -- for tests

    def add_node(
        self, name: str, instance: str = "", *, cordoned: bool = False, delays: Iterable[str] = ()
    ) -> None:
        provider_id = instance or f"memory://{name}"
        self.nodes[name] = NodeState(
            name,
            f"uid-{name}",
            provider_id,
            cordoned,
            delays=tuple(delays),
            ready=True,
            boot=f"boot of {name}",
        )

    def reboot_node(self, name: str, boot: str = "next boot") -> None:
        """Let the node's machine start again: it is Ready, and its stuck pods are gone."""
        change = {"ready": True, "ready_since": self._clock(), "boot": boot}
        self.nodes[name] = msgspec.structs.replace(self.nodes[name], **change)
        self.stuck -= {pod.key for pod in self._pods.values() if pod.node == name}

    def add_pod(self, key: str, node: str, **fields: object) -> PodState:
        """Add a running pod `namespace/name`; fields of PodState override."""
        namespace, _, name = key.partition("/")
        pod = PodState(namespace, name, uid=f"uid-{key}", node=node, phase="Running")
        self._pods[key] = msgspec.structs.replace(pod, **fields)
        return self._pods[key]

    def add_budget(self, name: str, pods: Iterable[str], *, room: int) -> PodBudget:
        """Add and return a disruption budget. Its room may be changed later."""
        self.budgets.append(PodBudget(name, frozenset(pods), room))
        return self.budgets[-1]

    def remove_node(self, name: str) -> None:
        """Remove the node and all its pods, as the deletion of a machine does."""
        self.nodes.pop(name, None)
        self._pods = {key: pod for key, pod in self._pods.items() if pod.node != name}

    def nominate(self, key: str, node: str, **fields: object) -> None:
        """Add a pending pod that the scheduler has nominated to the node;
        fields of PodState override."""
        self.add_pod(key, "", **{"phase": "Pending", **fields})
        self.nominated[key] = node

    def fail_next(self, verb: str, error: ClusterError, times: int = 1) -> None:
        """Let the next calls of `verb` raise this."""
        self._faults.setdefault(verb, []).extend([error] * times)

    def pods(self) -> tuple[PodState, ...]:
        """Return all existing pods. An evicted pod disappears after its grace period,
        unless it is in `stuck`."""
        now = self._clock()
        over = [
            key
            for key, pod in self._pods.items()
            if pod.deleted and pod.deleted <= now and key not in self.stuck
        ]
        for key in over:
            del self._pods[key]
        return tuple(self._pods.values())

    # -- NodeApi

    def node(self, name: str) -> NodeState | None:
        self._call("node", name)
        return self.nodes.get(name)

    def taint(self, name: str, taint: Taint, *, operation: str, cordon: bool) -> None:
        self._call("taint", name)
        node = self.nodes.get(name)
        if node is None:
            raise NotFound(f'nodes "{name}" not found', status=404, reason="NotFound")
        if cordon and not node.unschedulable:
            self._cordoned.add(name)
        taints = node.taints if node.taint(taint.key) else (*node.taints, taint)
        self.nodes[name] = msgspec.structs.replace(
            node, taints=taints, operation=operation, unschedulable=node.unschedulable or cordon
        )

    def untaint(self, name: str, key: str, *, operation: str, uncordon: bool) -> None:
        self._call("untaint", name)
        node = self.nodes.get(name)
        if (
            node is None
            or node.operation not in ("", operation)
            or not (node.operation or node.taint(key))
        ):
            return
        kept = tuple(taint for taint in node.taints if taint.key != key)
        ours = name in self._cordoned if node.operation else uncordon
        self._cordoned.discard(name)
        self.nodes[name] = msgspec.structs.replace(
            node, taints=kept, operation="", unschedulable=node.unschedulable and not ours
        )

    def pod(self, namespace: str, name: str) -> PodState | None:
        self._call("pod", f"{namespace}/{name}")
        return next((pod for pod in self.pods() if pod.key == f"{namespace}/{name}"), None)

    def pods_on(self, node: str) -> tuple[PodState, ...]:
        self._call("pods_on", node)
        return tuple(pod for pod in self.pods() if pod.node == node)

    def pods_nominated(self, node: str) -> tuple[PodState, ...]:
        self._call("pods_nominated", node)
        return tuple(pod for pod in self.pods() if self.nominated.get(pod.key) == node)

    def claims_awaiting(self, node: str) -> tuple[str, ...]:
        self._call("claims_awaiting", node)
        return tuple(sorted(claim for claim, chosen in self.claims.items() if chosen == node))

    def evict(self, pod: PodState, grace: float) -> Eviction:
        self._call("evict", pod.key)
        here = next((each for each in self.pods() if each.key == pod.key), None)
        if here is None or here.uid != pod.uid:
            return Eviction(accepted=True, gone=True)
        if here.deleted:
            hurried = min(here.deleted, self._clock() + grace)
            self._pods[pod.key] = msgspec.structs.replace(here, deleted=hurried)
            return Eviction(accepted=True)
        for budget in self.budgets:
            if pod.key in budget.pods and budget.room < 1:
                return Eviction(
                    accepted=False,
                    why_not=f"The disruption budget {budget.name} needs all its pods",
                )
        for budget in self.budgets:
            budget.room -= pod.key in budget.pods
        self._pods[pod.key] = msgspec.structs.replace(
            here, deleted=self._clock() + grace, deletion_grace=grace
        )
        return Eviction(accepted=True)

    def _call(self, verb: str, name: str) -> None:
        self.calls.append((verb, name))
        if due := self._faults.get(verb):
            raise due.pop(0)
