"""Reads OpenShift's ClusterAutoscaler and MachineAutoscaler objects as the flags that their operator writes.

The operator's command line is not in these objects. Each setting becomes the flag that the operator makes of it, so
that the translation of flags is the only one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chalicelib.command.importers.autoscaler_input import Argument, AutoscalerInput, GroupBounds, Remark, Variable
from chalicelib.command.importers.draft import split_place
from chalicelib.command.importers.input_rows import InputRows, Path, unlisted
from chalicelib.command.importers.placeholders import placeholder_problems
from chalicelib.command.importers.report import Verdict
from chalicelib.policy.diagnostics import closest, quote

CLUSTER, MACHINES = "ClusterAutoscaler", "MachineAutoscaler"
_NAMESPACE = "openshift-machine-api"
_GROUP = "machine.openshift.io"
_SWITCH = {"Enabled": True, "Disabled": False}
_EXPANDERS = {"LeastWaste": "least-waste", "Priority": "priority", "Random": "random"}
_TARGETS = ("MachineSet", "MachineDeployment", "MachinePool")
_BOUNDS = ("minReplicas", "maxReplicas", "scaleTargetRef")

Read = Callable[[InputRows, Path, Any, str], None]


def read_openshift(documents: Sequence[tuple[str, Mapping[str, Any]]]) -> AutoscalerInput:
    """Return the configuration of the objects, given as (place, document).

    Keys that the objects do not have become remarks with the verdict unknown. Raises InputErrors for values that the
    operator refuses, for two ClusterAutoscalers, and for two MachineAutoscalers of one target.
    """
    remarks: list[Remark] = []
    arguments: list[Argument] = []
    found: list[tuple[str, Mapping[str, Any]]] = []
    groups: dict[str, GroupBounds] = {}
    apis: dict[str, str] = {}
    for place, document in documents:
        rows = _rows(place)
        if document.get("kind") == CLUSTER:
            if found:
                rows.problem((), f"is a second {CLUSTER}", "give one of them")
            found.append((place, document))
            _read_cluster(rows, document.get("spec"))
        elif document.get("kind") == MACHINES:
            _read_machines(rows, place, document, groups, apis)
        else:
            kind = str(document.get("kind", ""))[:60]
            rows.remark((), Verdict.NO_EFFECT, "not about scaling", word=kind)
        for problem in placeholder_problems(rows.arguments, ()):
            rows.add(problem)
        rows.check()
        remarks += rows.remarks
        arguments += rows.arguments
    rows = _rows(documents[0][0])
    if not found:
        text = f"without a {CLUSTER} these objects scale nothing in OpenShift"
        rows.remark((), Verdict.TOLD, text, word=f"no {CLUSTER}")
    api = next(iter(apis), _GROUP)
    if len(apis) > 1:
        rows.problem(
            (), f"targets of several API groups: {', '.join(sorted(apis))[:200]}", "import one group at a time"
        )
    text = "not tried: whether machine sets of this API work as those of Cluster API; run in mode shadow first"
    rows.remark((), Verdict.NOT_HERE, text, word=f"API group {api}"[:200])
    rows.check()
    place, document = found[0] if found else documents[0]
    return AutoscalerInput(
        place=place,
        kind=CLUSTER,
        namespace=_NAMESPACE,
        name=_name(document),
        arguments=tuple(arguments),
        variables=(Variable(apis.get(api, place), "CAPI_GROUP", api),),
        remarks=(*remarks, *rows.remarks),
        node_groups=tuple(groups.values()),
    )


def _rows(place: str) -> InputRows:
    source, line = split_place(place)
    return InputRows(source, {(): line} if line else {})


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name", ""))[:253] if isinstance(metadata, Mapping) else ""


# -- ClusterAutoscaler -----------------------------------------------------------------------------------------------


def _read_cluster(rows: InputRows, spec: Any) -> None:
    _walk(rows, ("spec",), spec, _SPEC)
    for flag, value in (("max-bulk-soft-taint-count", "0"), ("record-duplicated-events", "true")):
        rows.argument((), flag, value, word=f"--{flag}={value}", read_as="fixed by the operator")


def _walk(rows: InputRows, path: Path, value: Any, readers: Mapping[str, tuple[Read, str]]) -> None:
    for key, each in rows.entries(path, value).items():
        own = (*path, key)
        if key not in readers:
            near = closest(key, readers)
            rows.remark(own, Verdict.UNKNOWN, f"did you mean {near}?" if near else "")
        elif each is not None:
            read, flag = readers[key]
            read(rows, own, each, flag)


def _scalar(rows: InputRows, path: Path, value: Any, flag: str) -> None:
    text = rows.text(path, value)
    if text is not None:
        rows.argument(path, flag, text)


def _switch(rows: InputRows, path: Path, value: Any, flag: str) -> None:
    switched = value if isinstance(value, bool) else _SWITCH.get(value) if isinstance(value, str) else None
    if switched is None:
        rows.problem(path, f"{quote(str(value)[:99])} is not Enabled, Disabled, true or false")
        return
    rows.argument(path, flag, "true" if switched else "false")


def _span(rows: InputRows, path: Path, value: Any, flag: str) -> None:
    bounds = rows.entries(path, value)
    for key in unlisted(bounds, ("min", "max")):
        rows.remark((*path, key), Verdict.UNKNOWN, "the bounds are min and max")
    low, high = (rows.whole((*path, key), bounds.get(key)) for key in ("min", "max"))
    if high is None:
        rows.problem((*path, "max"), "is not given", "write both min and max")
        return
    rows.argument(path, flag, f"{low or 0}:{high}")


def _gpus(rows: InputRows, path: Path, value: Any, flag: str) -> None:
    for at, each in enumerate(rows.items(path, value)):
        own = (*path, str(at))
        gpu = rows.entries(own, each)
        for key in unlisted(gpu, ("type", "min", "max")):
            rows.remark((*own, key), Verdict.UNKNOWN, "a GPU has type, min and max")
        kind = rows.text((*own, "type"), gpu.get("type"))
        low, high = (rows.whole((*own, key), gpu.get(key)) for key in ("min", "max"))
        if not kind or high is None:
            rows.problem(own, "has not both type and max", "write type, min and max")
            continue
        rows.argument(own, flag, f"{kind}:{low or 0}:{high}")


def _texts(rows: InputRows, path: Path, value: Any, flag: str) -> None:
    for at, each in enumerate(rows.items(path, value)):
        _scalar(rows, (*path, str(at)), each, flag)


def _expanders(rows: InputRows, path: Path, value: Any, flag: str) -> None:
    names: list[str] = []
    for at, each in enumerate(rows.items(path, value)):
        name = _EXPANDERS.get(each) if isinstance(each, str) else None
        if name is None:
            rows.problem((*path, str(at)), f"is not one of {', '.join(_EXPANDERS)}")
        else:
            names.append(name)
    if names:
        rows.argument(path, flag, ",".join(names))


def _section(readers: Mapping[str, tuple[Read, str]]) -> Read:
    def read(rows: InputRows, path: Path, value: Any, flag: str) -> None:
        del flag
        _walk(rows, path, value, readers)

    return read


def _scale_down(rows: InputRows, path: Path, value: Any, flag: str) -> None:
    _walk(rows, path, value, _SCALE_DOWN)
    enabled = value.get("enabled") if isinstance(value, Mapping) else None
    if enabled is None:
        read_as = "scaleDown without enabled: true switches removals off"
        rows.argument(path, flag, "false", word=f"{rows.word(path)} without enabled", read_as=read_as)


def _enabled(rows: InputRows, path: Path, value: Any, flag: str) -> None:
    switched = rows.boolean(path, value)
    if switched is not None:
        rows.argument(path, flag, "true" if switched else "false")


_LIMITS: Mapping[str, tuple[Read, str]] = {
    "maxNodesTotal": (_scalar, "max-nodes-total"),
    "cores": (_span, "cores-total"),
    "memory": (_span, "memory-total"),
    "gpus": (_gpus, "gpu-total"),
}
_SCALE_DOWN: Mapping[str, tuple[Read, str]] = {
    "enabled": (_enabled, "scale-down-enabled"),
    "delayAfterAdd": (_scalar, "scale-down-delay-after-add"),
    "delayAfterDelete": (_scalar, "scale-down-delay-after-delete"),
    "delayAfterFailure": (_scalar, "scale-down-delay-after-failure"),
    "unneededTime": (_scalar, "scale-down-unneeded-time"),
    "utilizationThreshold": (_scalar, "scale-down-utilization-threshold"),
    "cordonNodeBeforeTerminating": (_switch, "cordon-node-before-terminating"),
}
_SCALE_UP: Mapping[str, tuple[Read, str]] = {"newPodScaleUpDelay": (_scalar, "new-pod-scale-up-delay")}
_SPEC: Mapping[str, tuple[Read, str]] = {
    "resourceLimits": (_section(_LIMITS), ""),
    "scaleDown": (_scale_down, "scale-down-enabled"),
    "scaleUp": (_section(_SCALE_UP), ""),
    "podPriorityThreshold": (_scalar, "expendable-pods-priority-cutoff"),
    "maxPodGracePeriod": (_scalar, "max-graceful-termination-sec"),
    "maxNodeProvisionTime": (_scalar, "max-node-provision-time"),
    "skipNodesWithLocalStorage": (_switch, "skip-nodes-with-local-storage"),
    "ignoreDaemonsetsUtilization": (_switch, "ignore-daemonsets-utilization"),
    "balanceSimilarNodeGroups": (_switch, "balance-similar-node-groups"),
    "balancingIgnoredLabels": (_texts, "balancing-ignore-label"),
    "startupTaints": (_texts, "startup-taint"),
    "enforceNodeGroupMinSize": (_switch, "enforce-node-group-min-size"),
    "expanders": (_expanders, "expander"),
    "logVerbosity": (_scalar, "v"),
}


# -- MachineAutoscaler -----------------------------------------------------------------------------------------------


def _read_machines(
    rows: InputRows, place: str, document: Mapping[str, Any], groups: dict[str, GroupBounds], apis: dict[str, str]
) -> None:
    path: Path = ("spec",)
    spec = rows.entries(path, document.get("spec"))
    for key in unlisted(spec, _BOUNDS):
        near = closest(key, _BOUNDS)
        rows.remark((*path, key), Verdict.UNKNOWN, f"did you mean {near}?" if near else "")
    low, high = (rows.whole((*path, key), spec.get(key)) for key in _BOUNDS[:2])
    target = rows.entries((*path, "scaleTargetRef"), spec.get("scaleTargetRef"))
    kind, name, version = (
        rows.text((*path, "scaleTargetRef", key), target.get(key)) or "" for key in ("kind", "name", "apiVersion")
    )
    if high is None or not name or kind not in _TARGETS:
        remedy = f"write minReplicas, maxReplicas and scaleTargetRef with name and a kind of {', '.join(_TARGETS)}"
        rows.problem(path, "does not say which machines it scales, and to what size", remedy)
        return
    metadata = document.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, Mapping) else None
    group = f"{kind}/{namespace if isinstance(namespace, str) and namespace else _NAMESPACE}/{name}"
    if group in groups:
        rows.problem(path, f"{quote(group)} has a {MACHINES} already: {groups[group].place}", "keep one of the two")
        return
    apis.setdefault(version.partition("/")[0] or _GROUP, place)
    groups[group] = GroupBounds(place, "clusterapi", group, low or 0, high)
    rows.remark((), Verdict.TRANSLATED, group, "spec.nodeGroups", word=f"{MACHINES} {_name(document)}".strip())
