"""The cluster of the recorded run: old nodes that lose their big pod and keep small
ones, and bigger new nodes.

Sizes are chosen so that every small pod fits on the nodes that stay and no removal requires new
nodes. The disruption budgets limit the speed of the drains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import msgspec

from infra.emulators.controllers import objects
from infra.emulators.controllers.kubelet import KubeletTimes
from infra.emulators.controllers.manager import Pace
from infra.emulators.controllers.scheduler.cluster_view import ClusterView
from infra.emulators.controllers.scheduler.pod_and_node_info import NodeView, PodView
from infra.emulators.controllers.scheduler.scheduler import least_used
from infra.emulators.invocation import Invocation
from infra.emulators.kube.objects import KubeObject, clone
from infra.emulators.lambda_events import Json
from infra.emulators.local_world import LocalWorld
from infra.emulators.virtual_sqs import Message

CLUSTER, OLD, NEW = "shop", "old", "new"
STAY = 10
"""Nodes of group `new`, which is at its minimum and runs all pods at the end."""
PARALLEL = 5
BIG, AGENT = "forecast", "node-agent"


class App(msgspec.Struct, frozen=True):
    """A Deployment of small pods. grace: seconds they take to terminate. may_miss: how many of them
    may be unavailable at once."""

    name: str
    replicas: int
    cpu: str
    grace: int
    may_miss: int


def apps(nodes: int) -> tuple[App, ...]:
    return App("web", nodes + 4, "300m", 45, 8), App("cart", nodes, "250m", 90, 6)


def soft_taints_last(pod: PodView, nodes: Sequence[NodeView], world: ClusterView) -> NodeView:
    """Return the emptiest of the nodes without a soft taint, as the real
    scheduler's taint score prefers."""

    def against(node: NodeView) -> int:
        return sum(taint.effect == "PreferNoSchedule" for taint in node.taints)

    least = min(map(against, nodes))
    return least_used(pod, [node for node in nodes if against(node) == least], world)


# Pods use their whole grace period.
PACE = Pace(kubelets=KubeletTimes(stop=600.0), pick=soft_taints_last)

POLICY = f"""
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {{name: {CLUSTER}}}
spec:
  mode: active
  scanInterval: 60s
  kubernetes: {{kubeconfigSecret: outscaler/{CLUSTER}/kubeconfig}}
  providers: {{clusterapi: {{}}}}
  options:
    scaleDownUnneededTime: 2m
    scaleDownDelayAfterAdd: 2m
    unremovableNodeRecheckTimeout: 1m
    maxDrainParallelism: {PARALLEL}
"""


def old_nodes(nodes: int) -> KubeObject:
    return objects.machine_deployment(OLD, nodes, 0, 2 * nodes, cpu="4", memory="16Gi")


def workloads(nodes: int) -> list[KubeObject]:
    """Return a big pod for each old node, small pods, their budgets, and a DaemonSet."""
    small = [
        made
        for app in apps(nodes)
        for made in (
            objects.deployment(
                app.name,
                replicas=app.replicas,
                cpu=app.cpu,
                memory="128Mi",
                terminationGracePeriodSeconds=app.grace,
            ),
            objects.pdb(app.name, max_unavailable=app.may_miss),
        )
    ]
    return [
        objects.daemonset(AGENT, cpu="50m", memory="64Mi"),
        objects.deployment(BIG, replicas=nodes, cpu="2200m", memory="1Gi"),
        *small,
    ]


def new_nodes() -> KubeObject:
    """Return the group that stays. It is added after the pods run on the old group."""
    return objects.machine_deployment(NEW, STAY, STAY, STAY, cpu="8", memory="32Gi")


DEADLY = 0.05
"""The probability of a crash at a checkpoint: after an action and before its record, or after a
write and before its message."""
TWICE = 0.15
"""The probability that a message is delivered twice, the second time up to LATE
seconds after the first."""
LATE = 40.0
GRAIN = 10.0


class RoughWorld(LocalWorld):
    """rough: whether faults are active. seen: called whenever something may have happened. twice:
    messages delivered twice. longest: virtual seconds of the longest invocation."""

    def __init__(self, dice: Random) -> None:
        self._dice, self.rough = dice, False
        self.seen: Callable[[], None] = lambda: None
        self.told: Callable[[Invocation], None] = lambda _: None
        self.twice = 0
        self.longest = 0.0
        super().__init__(quick=True, name=CLUSTER, pace=PACE, grain=GRAIN)
        self.queues.tamper = self._tamper

    def settle(self) -> None:
        super().settle()
        self.seen()

    def invoke(self, function: str, event: Json) -> Invocation:
        began = self.clock()
        made = super().invoke(function, event)
        self.longest = max(self.longest, self.clock() - began)
        self.told(made)
        return made

    def scale(self, name: str, replicas: int) -> None:
        found = self.kube.get("deployments", name, "default", "apps")
        if found is None:
            raise KeyError(name)
        self.kube.update(
            "deployments", {**clone(found), "spec": {**found["spec"], "replicas": replicas}}, "apps"
        )
        self.settle()

    def _dies_at(self, place: str) -> bool:
        del place
        return self.rough and self._dice.random() < DEADLY

    def _tamper(self, message: Message) -> Sequence[Message]:
        if not self.rough or self._dice.random() >= TWICE:
            return (message,)
        self.twice += 1
        again = message.visible_at + round(self._dice.random() * LATE)
        return message, msgspec.structs.replace(message, visible_at=again)
