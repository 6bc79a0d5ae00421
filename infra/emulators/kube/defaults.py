"""Additions of the real API server to a created object: defaults of built-in kinds, and the
admission plugins that are always on (service account, default tolerations, priority).

Only fields are added that other programs read or that recorded responses contain. Nothing is
refused here (see validation.py).
"""

from __future__ import annotations

from collections.abc import Callable

from infra.emulators.kube.objects import KubeObject, clone, dig
from infra.emulators.kube.resources import ServedResource

Lookup = Callable[..., KubeObject | None]
_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def _pod_spec(spec: KubeObject) -> None:
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        image = str(container.get("image", ""))
        latest = ":" not in image.rsplit("/", 1)[-1] or image.endswith(":latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        amounts = container["resources"]
        if amounts.get("limits"):
            amounts["requests"] = {**amounts["limits"], **amounts.get("requests", {})}
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")


def _qos(spec: KubeObject) -> str:
    containers = [*spec.get("initContainers", ()), *spec.get("containers", ())]
    amounts = [each.get("resources", {}) for each in containers]
    if not any(each.get("requests") or each.get("limits") for each in amounts):
        return "BestEffort"
    for each in amounts:
        limits, requests = each.get("limits", {}), each.get("requests", {})
        if any(
            name not in limits or requests.get(name) != limits[name] for name in ("cpu", "memory")
        ):
            return "Burstable"
    return "Guaranteed"


def _pod(lookup: Lookup, pod: KubeObject) -> None:
    spec = pod.setdefault("spec", {})
    _pod_spec(spec)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.setdefault("enableServiceLinks", True)
    chosen = (
        lookup("priorityclasses", spec.get("priorityClassName", ""), "", "scheduling.k8s.io") or {}
    )
    spec.setdefault("priority", chosen.get("value", 0))
    spec.setdefault("preemptionPolicy", chosen.get("preemptionPolicy", "PreemptLowerPriority"))
    tolerations = list(spec.get("tolerations", ()))
    for key in _NOT_READY:
        if not any(
            t.get("key", key) == key and t.get("effect", "NoExecute") == "NoExecute"
            for t in tolerations
        ):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )
    spec["tolerations"] = tolerations
    state = pod.setdefault("status", {})
    state.setdefault("phase", "Pending")
    state.setdefault("qosClass", _qos(spec))


def _node(_: Lookup, node: KubeObject) -> None:
    node.setdefault("spec", {})
    state = node.setdefault("status", {})
    if "capacity" in state:
        state.setdefault("allocatable", clone(state["capacity"]))
    for each in state.get("conditions", ()):
        each.setdefault("lastHeartbeatTime", None)
        each.setdefault("lastTransitionTime", None)
    state.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    info = state.setdefault("nodeInfo", {})
    for field in _INFO:
        info.setdefault(field, "")


def _workload(obj: KubeObject) -> KubeObject:
    spec: KubeObject = obj.setdefault("spec", {})
    template = dig(spec, "template", "spec")
    if template is not None:
        _pod_spec(template)
    obj.setdefault("status", {})
    return spec


def _deployment(_: Lookup, obj: KubeObject) -> None:
    spec = _workload(obj)
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def _replica_set(_: Lookup, obj: KubeObject) -> None:
    _workload(obj).setdefault("replicas", 1)
    obj["status"].setdefault("replicas", 0)


def _stateful_set(_: Lookup, obj: KubeObject) -> None:
    spec = _workload(obj)
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    spec.setdefault("revisionHistoryLimit", 10)
    for field in ("replicas", "availableReplicas"):
        obj["status"].setdefault(field, 0)


def _daemon_set(_: Lookup, obj: KubeObject) -> None:
    spec = _workload(obj)
    spec.setdefault(
        "updateStrategy",
        {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
    )
    spec.setdefault("revisionHistoryLimit", 10)
    for field in (
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
    ):
        obj["status"].setdefault(field, 0)


def _job(_: Lookup, obj: KubeObject) -> None:
    spec = _workload(obj)
    for field, value in (("parallelism", 1), ("completions", 1), ("backoffLimit", 6)):
        spec.setdefault(field, value)


def _budget(_: Lookup, obj: KubeObject) -> None:
    state = obj.setdefault("status", {})
    for field in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        state.setdefault(field, 0)


def _volume(_: Lookup, obj: KubeObject) -> None:
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _event(_: Lookup, obj: KubeObject) -> None:
    obj.setdefault("source", {})
    obj.setdefault("firstTimestamp", None)
    obj.setdefault("lastTimestamp", None)
    obj.setdefault("eventTime", None)
    obj.setdefault("reportingComponent", "")
    obj.setdefault("reportingInstance", "")


def _namespace(_: Lookup, obj: KubeObject) -> None:
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"][
        "name"
    ]
    obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    obj.setdefault("status", {}).setdefault("phase", "Active")


_FILL: dict[tuple[str, str], Callable[[Lookup, KubeObject], None]] = {
    ("", "pods"): _pod,
    ("", "nodes"): _node,
    ("", "events"): _event,
    ("", "namespaces"): _namespace,
    ("", "persistentvolumes"): _volume,
    ("", "persistentvolumeclaims"): _volume,
    ("apps", "deployments"): _deployment,
    ("apps", "replicasets"): _replica_set,
    ("apps", "statefulsets"): _stateful_set,
    ("apps", "daemonsets"): _daemon_set,
    ("batch", "jobs"): _job,
    ("policy", "poddisruptionbudgets"): _budget,
}


def fill(lookup: Lookup, resource: ServedResource, obj: KubeObject) -> None:
    """Add what the server adds to a new object of a built-in kind, in place.

    lookup(plural, name, namespace, group): finds another object, like
    ObjectStore.peek (priority classes).
    """
    rule = _FILL.get((resource.group, resource.plural))
    if rule is not None:
        rule(lookup, obj)
