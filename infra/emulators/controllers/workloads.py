"""Controllers of workloads: Deployments with their ReplicaSets, DaemonSets, Jobs,
and the garbage collector.

The arithmetic of rollouts is shared with MachineDeployments.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from chalicelib.model.timestamps import parse_time
from infra.emulators.controllers.object_writes import (
    by_controller,
    condition,
    controller_of,
    erase,
    is_true,
    listed,
    owned_by,
    with_conditions,
    write,
    write_status,
)
from infra.emulators.controllers.scheduler.pod_and_node_info import (
    InfoReader,
    NodeView,
    PodView,
    read_node,
    read_pod,
)
from infra.emulators.controllers.scheduler.predicates import matches_node_affinity
from infra.emulators.controllers.scheduler.selectors import untolerated
from infra.emulators.kube.objects import KubeObject, clone, dig
from infra.emulators.kube.status import ApiError
from infra.emulators.kube.store import ObjectStore, Subscription


class SetSize(msgspec.Struct, frozen=True):
    """The size of a set of one template: requested replicas and ready replicas."""

    name: str
    asked: int
    available: int


def share(value: int | str, of: int, *, up: bool) -> int:
    """Return maxSurge or maxUnavailable: an absolute number, or a percentage of the
    replicas, rounded up or down."""
    if isinstance(value, int):
        return value
    part = int(value.rstrip("%")) * of / 100
    return math.ceil(part) if up else math.floor(part)


def exchange(
    size: int, surge: int, unavailable: int, new: SetSize, old: Sequence[SetSize]
) -> dict[str, int]:
    """Return the sizes to set now, by name: the new set grows as far as surge allows, old sets
    shrink as far as availability allows. Unavailable old replicas can always be removed."""
    if not old:
        return {new.name: size}
    asked = new.asked + sum(each.asked for each in old)
    sizes = {new.name: max(new.asked, min(size, new.asked + size + surge - asked))}
    spare = asked - (size - unavailable) - (new.asked - min(new.asked, new.available))
    for each in sorted(old, key=lambda s: s.name):
        fewer = min(each.asked, max(0, spare))
        spare -= fewer
        sizes[each.name] = each.asked - fewer
    return sizes


_HASH = "pod-template-hash"
_REVISION = "deployment.kubernetes.io/revision"
_DIGITS = "bcdfghjklmnpqrstvwxz2456789"


def template_hash(template: KubeObject) -> str:
    """Return a short name for a template, the same in every run."""
    number = zlib.crc32(msgspec.json.encode(template, order="sorted"))
    return "".join(_DIGITS[number // len(_DIGITS) ** place % len(_DIGITS)] for place in range(7))


def without_label(template: KubeObject, label: str) -> KubeObject:
    meta = dict(template.get("metadata") or {})
    meta["labels"] = {
        key: value for key, value in (meta.get("labels") or {}).items() if key != label
    }
    return {**template, "metadata": meta}


def _size(one: KubeObject) -> SetSize:
    return SetSize(
        one["metadata"]["name"],
        one["spec"]["replicas"],
        dig(one, "status", "availableReplicas") or 0,
    )


def _sum(sets: list[KubeObject], field: str) -> int:
    return sum((dig(each, "status", field) or 0) for each in sets)


class Deployments:
    """The Deployment controller of one store."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock

    def step(self) -> None:
        sets = by_controller(self._store.list("replicasets", None, "apps"))
        for deployment in self._store.list("deployments", None, "apps"):
            meta = deployment["metadata"]
            mine = sets.get(meta["uid"], [])
            if "deletionTimestamp" not in meta and not deployment["spec"].get("paused"):
                self._roll(deployment, mine)
            self._count(deployment, mine)

    def _roll(self, deployment: KubeObject, sets: list[KubeObject]) -> None:
        wanted = without_label(deployment["spec"]["template"], _HASH)
        current = next(
            (s for s in sets if without_label(s["spec"]["template"], _HASH) == wanted), None
        )
        if current is None:
            self._store.create("replicasets", self._new_set(deployment, sets), "apps")
            return
        old = [s for s in sets if s is not current and s["spec"]["replicas"]]
        size = deployment["spec"]["replicas"]
        if not old:
            self._resize(current, size)
        elif deployment["spec"]["strategy"]["type"] == "Recreate":
            for each in old:
                self._resize(each, 0)
        else:
            self._exchange(deployment, current, old)

    def _exchange(self, deployment: KubeObject, current: KubeObject, old: list[KubeObject]) -> None:
        size, rolling = (
            deployment["spec"]["replicas"],
            deployment["spec"]["strategy"].get("rollingUpdate") or {},
        )
        surge = share(rolling.get("maxSurge", "25%"), size, up=True)
        unavailable = share(rolling.get("maxUnavailable", "25%"), size, up=False)
        sizes = exchange(
            size,
            surge,
            unavailable if surge or unavailable else 1,
            _size(current),
            list(map(_size, old)),
        )
        for each in (current, *old):
            self._resize(each, sizes[each["metadata"]["name"]])

    def _resize(self, one: KubeObject, replicas: int) -> None:
        if one["spec"]["replicas"] != replicas:
            write(
                self._store,
                "replicasets",
                {**one, "spec": {**one["spec"], "replicas": replicas}},
                "apps",
            )

    def _new_set(self, deployment: KubeObject, sets: list[KubeObject]) -> KubeObject:
        meta, spec = deployment["metadata"], deployment["spec"]
        short = template_hash(spec["template"])
        template = clone(spec["template"])
        template.setdefault("metadata", {}).setdefault("labels", {})[_HASH] = short
        selector = clone(spec["selector"])
        selector.setdefault("matchLabels", {})[_HASH] = short
        revision = 1 + max(
            (int((s["metadata"].get("annotations") or {}).get(_REVISION, 0)) for s in sets),
            default=0,
        )
        first = spec["replicas"] if not sets else 0
        return {
            "metadata": {
                "name": f"{meta['name']}-{short}",
                "namespace": meta["namespace"],
                "labels": dict(template["metadata"]["labels"]),
                "annotations": {_REVISION: str(revision)},
                "ownerReferences": owned_by(deployment),
            },
            "spec": {"replicas": first, "selector": selector, "template": template},
        }

    def _count(self, deployment: KubeObject, sets: list[KubeObject]) -> None:
        spec = deployment["spec"]
        wanted = without_label(spec["template"], _HASH)
        newest = [s for s in sets if without_label(s["spec"]["template"], _HASH) == wanted]
        available, rolling = (
            _sum(sets, "availableReplicas"),
            spec["strategy"].get("rollingUpdate") or {},
        )
        enough = available >= spec["replicas"] - share(
            rolling.get("maxUnavailable", 0), spec["replicas"], up=False
        )
        word, text = ("Available", "has") if enough else ("Unavailable", "does not have")
        state = condition(
            "Available",
            value=enough,
            reason=f"MinimumReplicas{word}",
            message=f"Deployment {text} minimum availability.",
        )
        write_status(
            self._store,
            "deployments",
            deployment,
            {
                "replicas": _sum(sets, "replicas"),
                "updatedReplicas": _sum(newest, "replicas"),
                "readyReplicas": _sum(sets, "readyReplicas"),
                "availableReplicas": available,
                "unavailableReplicas": max(0, spec["replicas"] - available),
                "observedGeneration": deployment["metadata"].get("generation", 1),
                "conditions": with_conditions(deployment, self._clock(), state),
            },
            "apps",
        )


_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_COST = "controller.kubernetes.io/pod-deletion-cost"


def is_active(pod: KubeObject) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and dig(pod, "status", "phase") not in {
        "Succeeded",
        "Failed",
    }


def new_pod(owner: KubeObject, template: KubeObject) -> KubeObject:
    """Return a pod of the owner's template; the store generates its name."""
    meta = template.get("metadata") or {}
    made: KubeObject = {
        "metadata": {
            "generateName": owner["metadata"]["name"] + "-",
            "namespace": owner["metadata"]["namespace"],
            "ownerReferences": owned_by(owner),
        },
        "spec": clone(template["spec"]),
    }
    for field in ("labels", "annotations"):
        if meta.get(field):
            made["metadata"][field] = dict(meta[field])
    return made


def least_useful_first(pods: Sequence[KubeObject]) -> list[KubeObject]:
    """Sort pods as the real controller deletes them: unbound, pending, not ready, low deletion
    cost, crowded, newest first."""
    crowd = Counter(pod["spec"].get("nodeName") for pod in pods)

    def rank(pod: KubeObject) -> tuple[bool, int, bool, int, int, float, str]:
        node = pod["spec"].get("nodeName")
        cost = (pod["metadata"].get("annotations") or {}).get(_COST, "0")
        return (
            bool(node),
            _PHASES.get(dig(pod, "status", "phase") or "Pending", 1),
            is_true(pod, "Ready"),
            int(cost),
            -crowd[node],
            -parse_time(pod["metadata"]["creationTimestamp"]),
            pod["metadata"]["name"],
        )

    return sorted(pods, key=rank)


class ReplicaSets:
    """The ReplicaSet controller of one store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def step(self) -> None:
        """Create and delete pods until each set has the requested number, and update counters."""
        pods = by_controller(self._store.list("pods"))
        for owner in self._store.list("replicasets", None, "apps"):
            mine = pods.get(owner["metadata"]["uid"], [])
            active = [pod for pod in mine if is_active(pod)]
            if "deletionTimestamp" not in owner["metadata"]:
                self._match(owner, active)
            self._count(owner, active)

    def _match(self, owner: KubeObject, active: list[KubeObject]) -> None:
        missing = owner["spec"]["replicas"] - len(active)
        for _ in range(missing):
            self._store.create("pods", new_pod(owner, owner["spec"]["template"]))
        if missing < 0:
            for pod in least_useful_first(active)[:-missing]:
                erase(self._store, "pods", pod)

    def _count(self, owner: KubeObject, active: list[KubeObject]) -> None:
        ready = sum(is_true(pod, "Ready") for pod in active)
        write_status(
            self._store,
            "replicasets",
            owner,
            {
                "replicas": len(active),
                "fullyLabeledReplicas": len(active),
                "readyReplicas": ready,
                "availableReplicas": ready,
                "observedGeneration": owner["metadata"].get("generation", 1),
            },
            "apps",
        )


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
    """Return the set's pod for one node: with required affinity to its name instead of any other,
    and with the tolerations."""
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
        sets = self._store.list("daemonsets", None, "apps")
        if not sets:
            return
        pods = by_controller(self._store.list("pods"))
        nodes = self._nodes.views(self._store.list("nodes"))
        for owner in sets:
            if "deletionTimestamp" not in owner["metadata"]:
                self._match(
                    owner,
                    nodes,
                    [p for p in pods.get(owner["metadata"]["uid"], ()) if is_active(p)],
                )

    def _match(self, owner: KubeObject, nodes: list[NodeView], active: list[KubeObject]) -> None:
        raw = daemon_pod(owner, "")
        own = dig(owner, "spec", "template", "spec", "affinity")
        raw["spec"]["affinity"] = own or {}
        sample = read_pod(
            {**raw, "metadata": {**raw["metadata"], "name": owner["metadata"]["name"]}}
        )
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
    """The Job controller of one store. Its pods terminate by the kubelet's run-seconds
    annotation."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock

    def step(self) -> None:
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


_EVENT_SECONDS = 3600.0  # retention of an event after its last occurrence


class Garbage:
    """The garbage collector of one store."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._cursors: dict[tuple[str, str], Subscription] = {}
        self._swept = clock()
        self._seen = -1

    def step(self) -> None:
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
                if (controller_of(child) or {}).get(
                    "uid"
                ) in gone and "deletionTimestamp" not in child["metadata"]:
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
        if now - self._swept < _EVENT_SECONDS / 10:
            return
        self._swept = now
        for event in self._store.list("events"):
            last = event.get("lastTimestamp")
            if last and now - parse_time(last) > _EVENT_SECONDS:
                self._store.remove(
                    "events", event["metadata"]["name"], event["metadata"]["namespace"]
                )
