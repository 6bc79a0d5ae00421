"""Test harness for the act function: the real store on emulated DynamoDB, the real client on
the simulated API server, an in-memory provider, and a queue that delivers by due time and
redelivers when the function died.

Nothing waits in real time: the clock jumps to the next due message.
"""

from __future__ import annotations

import dataclasses
import heapq
import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from functools import partial
from typing import Any

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.connect import connect
from chalicelib.model.group import Instance
from chalicelib.model.memory import Memory
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.operations.runner import handle
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.providers.kit.base import Provider
from chalicelib.runtime.runtime import Runtime, build
from chalicelib.store import Store
from infra.aws.resources import QUEUES
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.controllers.objects import apply_shipped
from infra.emulators.fake_provider import InMemoryProvider
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from tests.operations import new_operation

START = 1_795_245_654.0
VISIBILITY = float(QUEUES["act_clusterapi"].visibility)
POLICY = """
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {{name: {name}}}
spec:
  mode: {mode}
  metrics: full
  kubernetes: {{kubeconfigSecret: outscaler/{name}/kubeconfig}}
  providers:
    clusterapi: {{}}
  nodeGroups:
    - {{provider: clusterapi, id: g, min: 0, max: 10}}
"""


class HarnessCrash(BaseException):
    """The function dies: no handler catches this, and nothing after it runs."""


class OperationHarness:
    """sent: queued messages by due time; watches: those that look after an executor
    (operations/executor.py). invocations: seconds of each, watches aside. at_checkpoint: an
    additional action at a checkpoint. new_store: creates another store on the same table, with
    faults for example."""

    def __init__(self, new_store: Callable[..., Store]) -> None:
        self.name = f"cluster-{uuid.uuid4().hex[:12]}"
        self.clock = ManualClock(START)
        self.kube = ObjectStore(self.clock)
        apply_shipped(self.kube)
        self.server = ApiServer(self.kube)
        self.provider = InMemoryProvider(on_delete=self._machine_gone)
        self.providers: Callable[[], Sequence[Provider]] = lambda: [self.provider]
        self.new_store = partial(new_store, clock=self.clock, sleep=self.clock.advance)
        self.store = self.new_store()
        self.sent: list[tuple[float, int, str, bytes]] = []
        self.watches: list[tuple[float, int, str, bytes]] = []
        self.wakes: list[dict[str, Any]] = []
        #: Scheduled messages: those that look after a pass (passes/pass_messages.py).
        self.pass_watches: list[dict[str, Any]] = []
        self.lines: list[dict[str, Any]] = []
        self.checkpoints: list[str] = []
        self.at_checkpoint: dict[str, Callable[[], None]] = {}
        self.invocations: list[float] = []
        self.runtime = self._runtime()

    def _runtime(self) -> Runtime:
        def connected(policy: Policy) -> KubeClient:
            return connect(
                policy.kubernetes,
                lambda name: self.server.kubeconfig(),
                clock=self.clock,
                sleep=self.clock.advance,
                jitter=lambda: 0.5,
            )

        made = build(
            clock=self.clock,
            store=self.store,
            sender=self,
            read_secret=lambda name: "",
            connect=connected,
            providers=lambda policy, cluster, secret: self.providers(),
            sleep=self.clock.advance,
        )
        return dataclasses.replace(
            made,
            checkpoint=self._checkpoint,
            emit=self._emit,
            batch_failures_reported=True,
            repeat=self.clock.repeat,
        )

    def _emit(self, line: str) -> None:
        self.lines.append(json.loads(line))

    def client(self) -> KubeClient:
        """A client of the cluster, as the functions have."""
        policy = self.runtime.policy(self.name)
        assert policy is not None
        return self.runtime.kube_client(policy)

    def replace(self, **parts: Any) -> None:
        """Replaces parts of the runtime from now on."""
        self.runtime = dataclasses.replace(self.runtime, **parts)

    def die_at(self, place: str) -> None:
        """Kills the function once, at that checkpoint."""

        def die() -> None:
            del self.at_checkpoint[place]
            raise HarnessCrash(place)

        self.at_checkpoint[place] = die

    # -- fixtures

    def policy(self, mode: str = "active") -> None:
        """Sets the policy in force."""
        current = self.store.policies.current(self.name)
        self.store.policies.put(
            self.name,
            POLICY.format(name=self.name, mode=mode),
            mode,
            current.version if current else None,
        )

    def group(self, size: int, *, least: int = 0) -> None:
        """Group `g`: g-1 … g-<size>, all of them registered nodes."""
        pool = self.provider.add_pool("g", size=size, least=least)
        for name, machine in pool.machines.items():
            self.kube.create(
                "nodes", {"metadata": {"name": name}, "spec": {"providerID": machine.id}}
            )

    def pod(
        self, name: str, node: str = "", owner: Mapping[str, str] | None = None, **spec: Any
    ) -> None:
        """A running pod of ReplicaSet `rs` in `default`; owner: changed fields
        of that owner reference."""
        if self.kube.peek("replicasets", "rs", "default", "apps") is None:
            self.kube.create(
                "replicasets",
                {"metadata": {"name": "rs", "namespace": "default"}, "spec": {"replicas": 9}},
                "apps",
            )
        mine = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "rs",
            "uid": "uid-rs",
            "controller": True,
            **(owner or {}),
        }
        self.kube.create(
            "pods",
            {
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "ownerReferences": [mine],
                    "labels": {"app": name},
                },
                "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}], **spec}
                if node
                else {"containers": [{"name": "c", "image": "i"}], **spec},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                if node
                else {"phase": "Pending"},
            },
        )

    def budget(self, name: str, app: str, allowed: int) -> None:
        """Creates a PodDisruptionBudget over pods labelled app=<app>."""
        self.kube.create(
            "poddisruptionbudgets",
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
                "status": {
                    "disruptionsAllowed": allowed,
                    "desiredHealthy": 1,
                    "currentHealthy": 1 + allowed,
                    "expectedPods": 2,
                    "observedGeneration": 1,
                },
            },
            "policy",
        )

    def set_room(self, name: str, allowed: int) -> None:
        """Sets the disruptions that a budget allows from now on."""
        found = self.kube.get("poddisruptionbudgets", name, "default", "policy")
        assert found is not None
        found["status"] |= {"disruptionsAllowed": allowed, "currentHealthy": 1 + allowed}
        self.kube.update("poddisruptionbudgets", found, "policy")

    def _machine_gone(self, machine: Instance) -> None:
        for pod in self.kube.pods_on(machine.node):
            self.kube.remove("pods", pod["metadata"]["name"], pod["metadata"]["namespace"])
        self.kube.remove("nodes", machine.node)

    def _kubelets(self) -> None:
        for pod in self.kube.list("pods"):
            meta = pod["metadata"]
            if "deletionTimestamp" in meta:
                self.kube.remove("pods", meta["name"], meta["namespace"])

    # -- operations

    def planned(self, kind: OperationKind, **values: Any) -> Operation:
        """Saves an operation as a pass does, with its first message queued."""
        given: dict[str, Any] = {
            "id": f"{kind}-1",
            "cluster": self.name,
            "provider": "clusterapi",
            "group": "g",
            "kind": kind,
            "plan": "plan-1",
            "created_at": self.clock(),
            "due_at": self.clock(),
        }
        operation = new_operation(**given | values)
        memory = self.memory()
        lease = self.store.leases.acquire(self.name, uuid.uuid4().hex, 60.0)
        self.store.memory.save(self.name, memory, memory, (operation,), lease)
        self.store.leases.release(lease)
        self.deliver_later(operation.spec.id)
        return operation

    def remove(
        self, *nodes: str, evict: dict[str, tuple[str, ...]] | None = None, **values: Any
    ) -> Operation:
        """Saves a planned removal of these nodes."""
        targets = tuple(
            RemovalTarget(node, f"memory://{node}", node, (evict or {}).get(node, ()))
            for node in nodes
        )
        return self.planned(OperationKind.DELETE_NODES, targets=targets, **values)

    def memory(self) -> Memory:
        """The memory as the next pass reads it."""
        return self.store.memory.load(self.name)

    def now(self, operation: Operation) -> Operation:
        """The stored operation."""
        found = self.store.operations.get(self.name, operation.spec.id)
        assert found is not None
        return found

    # -- queues

    def send(self, queue: str, body: bytes, delay: int) -> None:
        """Queues a message."""
        if queue == "reconcile":
            message = json.loads(body)
            if "reason" in message:
                self.wakes.append(message)
            else:
                self.pass_watches.append({**message, "due": self.clock() + delay})
            return
        queued = self.watches if "watch" in json.loads(body) else self.sent
        heapq.heappush(queued, (self.clock() + delay, len(self.checkpoints), queue, body))

    def deliver_later(self, operation: str, delay: float = 0.0) -> None:
        """Queues a message of another origin: the dispatcher, the sweeper, or an SQS redelivery."""
        body = json.dumps({"cluster": self.name, "operation": operation}).encode()
        heapq.heappush(self.sent, (self.clock() + delay, -1, "act_clusterapi", body))

    def deliver(self) -> None:
        """Delivers the next message when it is due. If the function dies, the
        message is delivered again."""
        queued = min(
            (self.sent, self.watches), key=lambda messages: messages[0] if messages else (math.inf,)
        )
        due, order, queue, body = heapq.heappop(queued)
        self.clock.advance(max(0.0, due - self.clock()))
        self._kubelets()
        begun = self.clock()
        try:
            Context().run(handle, body, self.runtime)
        except HarnessCrash:
            heapq.heappush(queued, (self.clock() + VISIBILITY, order, queue, body))
        if queued is self.sent:
            self.invocations.append(self.clock() - begun)

    def play(self, most: int = 200) -> None:
        """Delivers messages until none is left, watches only while an operation is open."""
        while self.sent or (self.watches and self.store.operations.list_open(self.name)):
            assert len(self.invocations) < most, "no end"
            self.deliver()

    def _checkpoint(self, place: str) -> None:
        self.checkpoints.append(place)
        if place in self.at_checkpoint:
            self.at_checkpoint[place]()

    # -- observations

    def events(self, reason: str) -> list[tuple[str, str]]:
        """(object, message) of the events with this reason."""
        return [
            (event["involvedObject"]["name"], event["message"])
            for event in self.kube.list("events")
            if event["reason"] == reason
        ]

    def untouched(self, node: str) -> bool:
        """Whether the node exists without taint or cordon."""
        found = self.kube.peek("nodes", node)
        return (
            found is not None
            and not found["spec"].get("taints")
            and not found["spec"].get("unschedulable")
        )
