"""DaemonSets: one pod for every eligible node, assigned to it by node affinity and bound by the scheduler."""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.model.timestamps import parse_time
from infra.emulators.controllers.object_writes import (
    by_controller,
    condition,
    controller_of,
    erase,
    is_true,
    listed,
    with_conditions,
    write_status,
)
from infra.emulators.controllers.scheduler.node_local import matches_node_affinity
from infra.emulators.controllers.scheduler.pod_and_node_info import InfoReader, NodeView, PodView, read_node, read_pod
from infra.emulators.controllers.scheduler.selectors import untolerated
from infra.emulators.controllers.workloads.deployments import is_active, new_pod
from infra.emulators.kube.objects import KubeObject, dig
from infra.emulators.kube.status import ApiError
from infra.emulators.kube.store import ObjectStore, Subscription

# Tolerations that the real controller adds to every daemon pod, in its order.
_TOLERATED = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
_HOST_NETWORK = (("network-unavailable", "NoSchedule"),)


def daemon_pod(owner: KubeObject, node: str) -> KubeObject:
    """Return the set's pod for one node: with required affinity to its name instead of any other, and with the
    tolerations."""
    pod = new_pod(owner, owner["spec"]["template"])
    spec = pod["spec"]
    affinity = spec.setdefault("affinity", {})
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity.setdefault("nodeAffinity", {})["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": [{"matchFields": [field]}]
    }
    tolerations = spec.setdefault("tolerations", [])
    for name, effect in _TOLERATED + (_HOST_NETWORK if spec.get("hostNetwork") else ()):
        wanted = {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}
        if wanted not in tolerations:
            tolerations.append(wanted)
    return pod


def node_of(pod: KubeObject) -> str:
    """Return the node that a daemon pod is for, bound or not."""
    terms = (
        dig(
            pod,
            "spec",
            "affinity",
            "nodeAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution",
            "nodeSelectorTerms",
        )
        or ()
    )
    named = (field["values"][0] for term in terms for field in term.get("matchFields") or ())
    return pod["spec"].get("nodeName") or next(named, "")


def _wants(sample: PodView, node: NodeView) -> bool:
    """Return whether the set's template may run there. Resources are the scheduler's concern."""
    return matches_node_affinity(sample, node) and not untolerated(node.taints, sample.tolerations)


class DaemonSets:
    """The DaemonSet controller of one store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._nodes = InfoReader(read_node)

    def step(self) -> None:
        """Create missing pods, delete superfluous ones, and update counters."""
        sets = self._store.list("daemonsets", None, "apps")
        if not sets:
            return
        pods = by_controller(self._store.list("pods"))
        nodes = self._nodes.views(self._store.list("nodes"))
        for owner in sets:
            if "deletionTimestamp" not in owner["metadata"]:
                self._match(owner, nodes, [p for p in pods.get(owner["metadata"]["uid"], ()) if is_active(p)])

    def _match(self, owner: KubeObject, nodes: list[NodeView], active: list[KubeObject]) -> None:
        raw = daemon_pod(owner, "")
        own = dig(owner, "spec", "template", "spec", "affinity")
        raw["spec"]["affinity"] = own or {}
        sample = read_pod({**raw, "metadata": {**raw["metadata"], "name": owner["metadata"]["name"]}})
        wanted = {node.name for node in nodes if _wants(sample, node)}
        there: dict[str, KubeObject] = {}
        for pod in active:
            node = node_of(pod)
            if node in there or node not in wanted:
                erase(self._store, "pods", pod)
            else:
                there[node] = pod
        for node in sorted(wanted - there.keys()):
            self._store.create("pods", daemon_pod(owner, node))
        ready = sum(is_true(pod, "Ready") for pod in there.values())
        scheduled = sum(bool(pod["spec"].get("nodeName")) for pod in there.values())
        write_status(
            self._store,
            "daemonsets",
            owner,
            {
                "desiredNumberScheduled": len(wanted),
                "currentNumberScheduled": scheduled,
                "numberReady": ready,
                "numberAvailable": ready,
                "numberMisscheduled": 0,
                "updatedNumberScheduled": scheduled,
                "observedGeneration": owner["metadata"].get("generation", 1),
            },
            "apps",
        )


class Jobs:
    """The Job controller of one store. Its pods terminate by the kubelet's run-seconds annotation."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock

    def step(self) -> None:
        """Start missing pods and count completed ones."""
        jobs = self._store.list("jobs", None, "batch")
        if not jobs:
            return
        pods = by_controller(self._store.list("pods"))
        for job in jobs:
            if "deletionTimestamp" not in job["metadata"] and not is_true(job, "Complete"):
                self._run(job, pods.get(job["metadata"]["uid"], []))

    def _run(self, job: KubeObject, pods: list[KubeObject]) -> None:
        active = sum(is_active(pod) for pod in pods)
        done = sum(dig(pod, "status", "phase") == "Succeeded" for pod in pods)
        left = job["spec"]["completions"] - done
        for _ in range(min(job["spec"]["parallelism"], left) - active):
            self._store.create("pods", new_pod(job, job["spec"]["template"]))
            active += 1
        status: KubeObject = {"active": active, "succeeded": done}
        if left <= 0:
            complete = condition("Complete", value=True, reason="CompletionsReached")
            status["conditions"] = with_conditions(job, self._clock(), complete)
        write_status(self._store, "jobs", job, status, "batch")


CLUSTER_API = "cluster.x-k8s.io"
# Owner kind -> the kind that it controls; both as (plural, group).
_CHILDREN = (
    (("deployments", "apps"), ("replicasets", "apps")),
    (("replicasets", "apps"), ("pods", "")),
    (("daemonsets", "apps"), ("pods", "")),
    (("statefulsets", "apps"), ("pods", "")),
    (("jobs", "batch"), ("pods", "")),
    (("machinedeployments", CLUSTER_API), ("machinesets", CLUSTER_API)),
    (("machinesets", CLUSTER_API), ("machines", CLUSTER_API)),
)


class Garbage:
    """The garbage collector of one store. event_seconds: retention of an event after its last occurrence."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float], event_seconds: float = 3600.0) -> None:
        self._store, self._clock, self._keep = store, clock, event_seconds
        self._cursors: dict[tuple[str, str], Subscription] = {}
        self._swept = clock()
        self._seen = -1

    def step(self) -> None:
        """Follow the deletions since the last step."""
        if self._store.version != self._seen:
            self._seen = self._store.version
            self._follow()
        self._forget_events()

    def _follow(self) -> None:
        for owner, (plural, group) in _CHILDREN:
            gone = self._removed(*owner)
            if not gone:
                continue
            for child in listed(self._store, plural, group):
                if (controller_of(child) or {}).get("uid") in gone and "deletionTimestamp" not in child["metadata"]:
                    erase(self._store, plural, child, group)

    def _removed(self, plural: str, group: str) -> set[str]:
        if self._store.resources.find(plural, group) is None:
            return set()
        cursor = self._cursors.get((plural, group))
        try:
            if cursor is not None:
                if self._store.latest(plural, group) <= cursor.version:
                    return set()
                return {e.object["metadata"]["uid"] for e in cursor.poll() if e.type == "DELETED"}
        except ApiError:  # more deletions than the log keeps: continue from now
            pass
        self._cursors[(plural, group)] = self._store.subscribe(plural, group)
        return set()

    def _forget_events(self) -> None:
        now = self._clock()
        if now - self._swept < self._keep / 10:
            return
        self._swept = now
        for event in self._store.list("events"):
            last = event.get("lastTimestamp")
            if last and now - parse_time(last) > self._keep:
                self._store.remove("events", event["metadata"]["name"], event["metadata"]["namespace"])
