"""The scheduler's view of a random cluster and a plan for it: nodes in its order, and pods on them.

It is derived again from the plain objects, by the rules of docs/reference/scale-up.md and without
the planner's code, so that a planner error in readiness, upcoming nodes or templates is detected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from chalicelib.model.timestamps import parse_time
from infra.emulators.controllers.scheduler.cluster_view import ClusterView, Surroundings, assume
from infra.emulators.controllers.scheduler.pod_and_node_info import (
    NodeView,
    PodView,
    read_node,
    read_pod,
)
from infra.emulators.controllers.scheduler.predicates import matches_node_affinity
from infra.emulators.controllers.scheduler.selectors import Toleration, untolerated
from tests.property.clusters import RandomCluster
from tests.property.objects import CORDONED, HOST, LEAVING, NOW, READY, STARTING, UNREADY, Json

_STARTUP_TIME, _SETTLED, _CUTOFF = 900.0, 60.0, -10
# above both thresholds of unready nodes the cluster is unhealthy, and no pod gets a node
_BAD_NODES, _BAD_PERCENT = 3, 45
_STARTUP_PREFIX = "startup-taint.cluster-autoscaler.kubernetes.io/"
_CONDITIONS = tuple(
    f"node.kubernetes.io/{word}"
    for word in (
        "not-ready",
        "unreachable",
        "unschedulable",
        "memory-pressure",
        "disk-pressure",
        "pid-pressure",
        "network-unavailable",
    )
)
_DAEMONS_TOLERATE = tuple(
    Toleration(f"node.kubernetes.io/{word}", "Exists", "", effect)
    for word, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)


class ViewedGroup(msgspec.Struct, frozen=True):
    """A node group. cores and memory (bytes) are one node's capacity, for the cluster's limits."""

    name: str
    target: int
    most: int
    upcoming: int
    model: Json
    daemons: tuple[Json, ...]
    limits: Json | None  # the CSINode of the template's node, or of another node of the group
    cores: int
    memory: int


class Newcomer(msgspec.Struct, frozen=True):
    """A node that does not exist yet, with its initial pods."""

    node: NodeView
    daemons: tuple[PodView, ...]
    limits: tuple[Json, ...]


def state_of(node: Json) -> str:
    """The state of a random node, read from the object."""
    spec, keys = node["spec"], [taint["key"] for taint in node["spec"].get("taints", ())]
    if "ToBeDeletedByClusterAutoscaler" in keys:
        return LEAVING
    ready = (
        next(c for c in node["status"]["conditions"] if c["type"] == "Ready")["status"] == "True"
    )
    if not ready or any(key == _CONDITIONS[0] or key.startswith(_STARTUP_PREFIX) for key in keys):
        young = parse_time(node["metadata"]["creationTimestamp"]) + _STARTUP_TIME > NOW
        return STARTING if young else UNREADY
    return CORDONED if spec.get("unschedulable") else READY


def group_of(node: Json) -> str:
    """The group named by its provider id."""
    return str(node["spec"]["providerID"].split("/")[2])


class SchedulerView:
    """One cluster, from which the checks can build any number of worlds."""

    def __init__(self, cluster: RandomCluster) -> None:
        lists = cluster.lists
        self.cluster = cluster
        self.raws = dict(sorted((node["metadata"]["name"], node) for node in lists["nodes"]))
        self.states = {name: state_of(node) for name, node in self.raws.items()}
        self.nodes = [
            read_node(node) for name, node in self.raws.items() if self.states[name] != STARTING
        ]
        self.open = [node.name for node in self.nodes if self.states[node.name] == READY]
        self._csi = {each["metadata"]["name"]: each for each in lists.get("csinodes", ())}
        self._lists = lists
        self.groups = {
            entry["id"]: self._group(entry)
            for entry in sorted(cluster.manifest["nodeGroups"], key=lambda entry: entry["id"])
        }
        everyone = [read_pod(pod) for pod in sorted(lists["pods"], key=_key)]
        self.wanted = {
            f"{pod.namespace}/{pod.name}": pod
            for pod in map(self._wants, everyone)
            if pod is not None and not self._unhealthy()
        }
        self.standing = [pod for pod in map(_standing, everyone) if pod is not None]
        self.upcoming = [
            self.newcomer(group, f"upcoming-{at}-for-{group.name}")
            for group in self.groups.values()
            for at in range(group.upcoming)
        ]

    def _unhealthy(self) -> bool:
        """Whether so many nodes of groups are unready that no group scales up."""
        states = [
            self.states[name] for name, node in self.raws.items() if group_of(node) in self.groups
        ]
        bad = states.count(UNREADY)
        return bad > _BAD_NODES and bad * 100 > _BAD_PERCENT * len(states)

    def _wants(self, pod: PodView) -> PodView | None:
        """The pod to be placed, if it can trigger a scale-up
        (docs/reference/scale-up.md "Pending pods")."""
        daemon = any(
            owner["kind"] == "DaemonSet" for owner in pod.raw["metadata"].get("ownerReferences", ())
        )
        if pod.terminating or pod.finished or daemon:
            return None
        if pod.node:
            return (
                msgspec.structs.replace(pod, node="")
                if self.states.get(pod.node) == LEAVING
                else None
            )
        said: Json = next(
            (c for c in pod.raw["status"]["conditions"] if c["type"] == "PodScheduled"), {}
        )
        refused = said.get("reason") == "Unschedulable" and not pod.raw["status"].get(
            "nominatedNodeName"
        )
        return pod if refused and pod.priority >= _CUTOFF else None

    def _group(self, entry: Json) -> ViewedGroup:
        mine = [node for node in self.raws.values() if group_of(node) == entry["id"]]
        states = [self.states[node["metadata"]["name"]] for node in mine]
        here = sum(state != STARTING for state in states)
        settled = [
            node
            for node, state in zip(mine, states, strict=True)
            if state == READY and _ready_for(node) > _SETTLED
        ]
        model = settled[0] if settled else entry["template"]
        offer = read_node(
            {**model, "status": {"allocatable": model["status"]["capacity"]}}
        ).allocatable
        asked = self.cluster.requested.get(entry["id"], 0)
        return ViewedGroup(
            name=entry["id"],
            target=entry["size"],
            most=entry["max"],
            upcoming=max(0, entry["size"] - here) if asked else 0,
            model=_cleaned(model),
            daemons=tuple(self._daemons(model, real=bool(settled))),
            limits=next(
                (
                    self._csi[name]
                    for each in (model, *mine)
                    if (name := each["metadata"]["name"]) in self._csi
                ),
                None,
            ),
            cores=math.ceil(offer.get("cpu", 0) / 1000),
            memory=offer.get("memory", 0),
        )

    def _daemons(self, model: Json, *, real: bool) -> Iterable[Json]:
        """Raw pods: those of the copied node that will run again, or one of
        every matching DaemonSet."""
        for pod in self._lists["pods"]:
            owners = pod["metadata"].get("ownerReferences", ())
            daemon = any(owner["kind"] == "DaemonSet" for owner in owners)
            if (
                real
                and daemon
                and pod["spec"].get("nodeName") == model["metadata"]["name"]
                and ("deletionTimestamp" not in pod["metadata"])
            ):
                yield pod
        node = read_node(_cleaned(model))
        for each in () if real else self._lists["workloads"]:
            if each["kind"] == "DaemonSet":
                meta, inner = each["metadata"], each["spec"]["template"]
                pod = {
                    "metadata": {
                        **inner["metadata"],
                        "name": meta["name"],
                        "namespace": meta["namespace"],
                    },
                    "spec": inner["spec"],
                }
                view = read_pod(pod)
                if matches_node_affinity(view, node) and not untolerated(
                    node.taints, (*view.tolerations, *_DAEMONS_TOLERATE)
                ):
                    yield pod

    def newcomer(self, group: ViewedGroup, name: str) -> Newcomer:
        """A new node of a group under this name."""
        meta = group.model["metadata"]
        raw = {
            **group.model,
            "metadata": {**meta, "name": name, "labels": {**meta["labels"], HOST: name}},
        }
        daemons = tuple(
            msgspec.structs.replace(
                read_pod(pod), name=f"{pod['metadata']['name']}-{name}", node=name
            )
            for pod in group.daemons
        )
        limits = () if group.limits is None else ({**group.limits, "metadata": {"name": name}},)
        return Newcomer(read_node(raw), daemons, limits)

    def world(
        self, new: Iterable[Newcomer] = (), placed: Mapping[str, str] | None = None
    ) -> ClusterView:
        """The cluster with its upcoming nodes, these new nodes, and pods
        placed on nodes (by name)."""
        coming = [*self.upcoming, *new]
        pods = [*self.standing, *(pod for each in coming for pod in each.daemons)]
        lists = self._lists
        around = Surroundings(
            claims=tuple(lists.get("claims", ())),
            volumes=tuple(lists.get("volumes", ())),
            storage_classes=tuple(lists.get("classes", ())),
            namespaces=tuple(lists["namespaces"]),
            csi_drivers=tuple(lists.get("csidrivers", ())),
            capacities=tuple(lists.get("capacities", ())),
            csi_nodes=(
                *lists.get("csinodes", ()),
                *(limit for each in coming for limit in each.limits),
            ),
        )
        world = ClusterView([*self.nodes, *(each.node for each in coming)], pods, around)
        for pod in self.standing:
            if "nodeName" not in pod.raw["spec"] and pod.node in world.nodes:
                # nominated: its volumes are not available to other pods either
                assume(pod, world.nodes[pod.node], world)
        # in this order: earlier pods choose among free volumes first
        for name, on in (placed or {}).items():
            world.place(self.wanted[name], on)
        return world

    @staticmethod
    def join(world: ClusterView, new: Iterable[Newcomer]) -> None:
        """Adds new nodes with their initial pods."""
        for each in new:
            world.join(each.node)
            for limit in each.limits:
                world.csi_nodes[each.node.name] = limit
            for pod in each.daemons:
                world.place(pod, each.node.name)

    def order(self, new: Iterable[Newcomer] = ()) -> list[str]:
        """Names of nodes that accept pods: existing, upcoming, new."""
        return [
            *self.open,
            *(each.node.name for each in (*self.upcoming, *new) if not each.node.unschedulable),
        ]

    def queue(self, names: Iterable[str]) -> list[PodView]:
        """Pods in the scheduler's order: priority, age, name."""
        return sorted(
            (self.wanted[name] for name in names),
            key=lambda pod: (-pod.priority, pod.created, pod.namespace, pod.name),
        )


def _key(pod: Json) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _standing(pod: PodView) -> PodView | None:
    """The pod on the node where it takes room: bound, or nominated. Expendable
    and gated pods take none."""
    on = pod.node or ("" if pod.terminating else pod.raw["status"].get("nominatedNodeName", ""))
    cheap = pod.raw["spec"].get("priority") is not None and pod.priority < _CUTOFF
    waits = not pod.node and pod.gated
    return msgspec.structs.replace(pod, node=on) if on and not cheap and not waits else None


def _ready_for(node: Json) -> float:
    said = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
    return NOW - parse_time(said["lastTransitionTime"])


def _cleaned(node: Json) -> Json:
    """The node without temporary taints."""
    taints = [
        taint
        for taint in node["spec"].get("taints", ())
        if taint["key"] not in _CONDITIONS
        and not taint["key"].startswith(_STARTUP_PREFIX)
        and taint["key"] != "ToBeDeletedByClusterAutoscaler"
    ]
    return {**node, "spec": {**node["spec"], "taints": taints}}
