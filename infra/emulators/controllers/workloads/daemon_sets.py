"""DaemonSets: one pod for every eligible node, assigned to it by node affinity and bound by the scheduler."""

from __future__ import annotations

from infra.emulators.controllers.object_writes import by_controller, erase, is_true, write_status
from infra.emulators.controllers.scheduler.node_local import matches_node_affinity
from infra.emulators.controllers.scheduler.pod_and_node_info import InfoReader, NodeView, PodView, read_node, read_pod
from infra.emulators.controllers.scheduler.selectors import untolerated
from infra.emulators.controllers.workloads.replica_sets import is_active, new_pod
from infra.emulators.kube.objects import KubeObject, dig
from infra.emulators.kube.store import ObjectStore

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
