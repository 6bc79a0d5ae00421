"""Checks for another autoscaler in the cluster. Two that act on the same groups remove each other's nodes.

It is found by its Lease, its workload, its status ConfigMap, its taints, and the labels of its nodes. One that acts on
other groups is told and is no error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

import msgspec

from chalicelib.command.doctor.context import DoctorContext
from chalicelib.command.doctor.finding import Finding, Severity
from chalicelib.dispatch.mode_guard import permitted
from chalicelib.kube import objects
from chalicelib.kube.client import KubeClient, path_segment
from chalicelib.kube.errors import ClusterError, Forbidden, NotFound
from chalicelib.model.errors import MALFORMED, BadInput
from chalicelib.model.node import DELETION_CANDIDATE, TO_BE_DELETED
from chalicelib.model.operation import OPERATION_ANNOTATION
from chalicelib.model.timestamps import parse_time
from chalicelib.record.status_configmap import ANNOTATION, KEY

FRESH_LEASE, FRESH_STATUS = 60.0, 120.0
"""Seconds after which a lease, or a status, says that its writer has stopped."""
LEASES = ("cluster-autoscaler", "karpenter-leader-election")
_IMAGE = re.compile(r"/(cluster-autoscaler|autoscaler|karpenter|escalator)(-[a-z0-9]+)?([:@]|\Z)")
_PROVIDER = re.compile(r"--cloud-provider(?![= ]external\b)")
# Other programs with that flag: parts of Kubernetes, and the controllers of a cloud.
_NO_AUTOSCALER = re.compile(r"outscaler|controller-manager|kube-apiserver|kubelet|node-manager")
_LEASE_NAME = "--leader-elect-resource-name="
_KARPENTER = "karpenter.sh/nodepool"
_KARPENTER_NODE = ("karpenter.sh/registered", "karpenter.sh/initialized")
"""Labels that Karpenter sets on the nodes that it has made, besides the label that workloads select by."""
_FOREIGN_TAINTS = ("karpenter.sh/disrupted", "karpenter.sh/unregistered", "atlassian.com/escalator")
_MOST = 200


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    renew_time: str | None = None


class _LeaseObject(msgspec.Struct, frozen=True):
    spec: _LeaseSpec = _LeaseSpec()


class _WatchedMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""


class _WatchedContainer(msgspec.Struct, frozen=True):
    image: str = ""
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None


class _WatchedPodSpec(msgspec.Struct, frozen=True):
    containers: tuple[_WatchedContainer, ...] = ()


class _WatchedTemplate(msgspec.Struct, frozen=True):
    spec: _WatchedPodSpec = _WatchedPodSpec()


class _WorkloadSpec(msgspec.Struct, frozen=True):
    template: _WatchedTemplate = _WatchedTemplate()


class _WorkloadStatus(msgspec.Struct, frozen=True, rename="camel"):
    ready_replicas: int = 0
    phase: str = ""


class _Workload(msgspec.Struct, frozen=True):
    metadata: _WatchedMeta
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _WorkloadStatus = _WorkloadStatus()


class _StaticPod(msgspec.Struct, frozen=True):
    metadata: _WatchedMeta
    spec: _WatchedPodSpec = _WatchedPodSpec()
    status: _WorkloadStatus = _WorkloadStatus()


class _RawObjects(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] | None = None


class RunningAutoscaler(msgspec.Struct, frozen=True):
    """A workload of another autoscaler. place: kind namespace/name. words: its command line."""

    place: str
    words: tuple[str, ...]


def at_work(context: DoctorContext) -> Sequence[Finding]:
    """DR07: another autoscaler that acts at present. Raises ClusterError where nothing can be asked."""
    client, now = context.observer, context.clock()
    found: list[Finding] = []
    workloads, gaps = running_workloads(client)
    names = dict.fromkeys((*LEASES, *(name for each in workloads for name in _lease_names(each.words))))
    namespaces = dict.fromkeys(("kube-system", context.policy.options.namespace))
    for namespace, name in [(namespace, name) for namespace in namespaces for name in names]:
        try:
            by = lease_held(client, namespace, name, now)
        except Forbidden:
            gaps = (*gaps, f"leases in {namespace} may not be read")
            break
        if by:
            found.append(_dr07(context, f"Lease {namespace}/{name} was renewed {by}", "lease", workloads))
    if not found:
        found.extend(_dr07(context, f"{each.place} has ready replicas", "workload", [each]) for each in workloads)
    found.extend(_unasked(gap) for gap in gaps)
    return found


def lease_held(client: KubeClient, namespace: str, name: str, now: float) -> str:
    """Return who renewed a Lease how long ago, as text; "" where it is free, old or not there. Raises ClusterError."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{path_segment(namespace)}/leases/{path_segment(name)}"
    try:
        spec = client.read(path, _LeaseObject).spec
    except NotFound:
        return ""
    try:
        renewed = parse_time(spec.renew_time or "")
    except BadInput:
        return ""
    if not spec.holder_identity or not -FRESH_LEASE <= now - renewed <= FRESH_LEASE:
        return ""
    return f"{max(0.0, now - renewed):.0f} s ago by {spec.holder_identity[:120]}"


def running_workloads(client: KubeClient) -> tuple[tuple[RunningAutoscaler, ...], tuple[str, ...]]:
    """Return workloads of other autoscalers with ready replicas, and one text per list that could not be read."""
    found: list[RunningAutoscaler] = []
    gaps: list[str] = []
    lists = (
        ("Deployment", "/apis/apps/v1/deployments"),
        ("StatefulSet", "/apis/apps/v1/statefulsets"),
        ("Pod", "/api/v1/namespaces/kube-system/pods"),
    )
    for kind, path in lists:
        try:
            found.extend(_autoscalers(kind, client, path))
        except NotFound:
            continue
        except ClusterError as error:
            gaps.append(f"{path} could not be read: {error.message}")
    seen: dict[tuple[str, ...], RunningAutoscaler] = {}
    for each in found:  # a Deployment before its pods
        seen.setdefault(each.words, each)
    return tuple(seen.values())[:_MOST], tuple(gaps)


def _autoscalers(kind: str, client: KubeClient, path: str) -> Iterator[RunningAutoscaler]:
    for page in client.list_pages(path):
        for raw in msgspec.json.decode(page.body, type=_RawObjects).items or ():
            try:
                meta, containers, runs = _decoded(kind, raw)
            except MALFORMED:
                continue
            for container in containers if runs else ():
                words = (*(container.command or ()), *(container.args or ()))
                text = " ".join(words)
                if not _NO_AUTOSCALER.search(f"{container.image} {words[0] if words else ''}") and (
                    _PROVIDER.search(text) or _IMAGE.search(container.image)
                ):
                    yield RunningAutoscaler(f"{kind} {meta.namespace}/{meta.name}", words)


def _decoded(kind: str, raw: msgspec.Raw) -> tuple[_WatchedMeta, tuple[_WatchedContainer, ...], bool]:
    if kind == "Pod":
        pod = msgspec.json.decode(raw, type=_StaticPod)
        return pod.metadata, pod.spec.containers, pod.status.phase == "Running"
    workload = msgspec.json.decode(raw, type=_Workload)
    return workload.metadata, workload.spec.template.spec.containers, workload.status.ready_replicas > 0


def _lease_names(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        if word.startswith(_LEASE_NAME):
            yield word.removeprefix(_LEASE_NAME)[:253]


def _dr07(context: DoctorContext, what: str, how: str, workloads: Sequence[RunningAutoscaler]) -> Finding:
    same = not workloads or any(_same_groups(context, each) for each in workloads)
    acts = permitted(context.policy).act
    severity = Severity.ERROR if same and acts else Severity.INFO
    groups = "on the same groups" if same else "on other groups"
    place = workloads[0].place.partition(" ")[2] if workloads else "kube-system/cluster-autoscaler"
    namespace, _, name = place.partition("/")
    return Finding(
        id="DR07",
        severity=severity,
        subject="autoscaler",
        message=f"{what}: another autoscaler is at work {groups}",
        fix=f"kubectl -n {quote(namespace)} scale deploy {quote(name)} --replicas=0" if same else "nothing to do",
        evidence={"by": how, "workloads": [each.place for each in workloads]},
    )


def _same_groups(context: DoctorContext, running: RunningAutoscaler) -> bool:
    """Whether its command line names one of this policy's groups, or none, so that it may act on all."""
    text = " ".join(running.words)
    named = re.findall(r"--nodes[= ](?:\d+:\d+:)(\S+)", text)
    if not named or context.snapshot is None:
        return True
    ours = {name for group in context.snapshot.groups for name in (group.id, *group.aliases)}
    return not ours or bool(ours & set(named))


def check_status(context: DoctorContext) -> Sequence[Finding]:
    """DR08: a status ConfigMap that another program writes as well. DR07 where that program alone writes it now."""
    options = context.policy.options
    try:
        found = objects.get_config_map(context.observer, options.namespace, options.status_config_map_name)
    except NotFound:
        return ()
    managers = found.writers(KEY)
    others = sorted(each for each in managers if each != objects.OWN_MANAGER and "kubectl" not in each)
    updated = _go_time(found.annotation(ANNOTATION))
    if not others or updated is None or context.clock() - updated > FRESH_STATUS:
        return ()
    name = f"{options.namespace}/{options.status_config_map_name}"
    if objects.OWN_MANAGER not in managers:
        return (_dr07(context, f"ConfigMap {name} is written by {others[0][:60]}", "status", ()),)
    return (
        Finding(
            id="DR08",
            severity=Severity.WARNING,
            subject="autoscaler",
            message=f"ConfigMap {name} is written by {', '.join(others)[:200]} as well",
            fix="set options.statusConfigMapName, or stop the other program",
            evidence={"managers": sorted(managers)},
        ),
    )


def _go_time(text: str) -> float | None:
    """Parse Go's `2026-11-23 05:22:01.123456789 +0000 UTC`."""
    match = re.match(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.\d{1,9})? \+0000 UTC", text)
    if match is None:
        return None
    try:
        return parse_time(f"{match[1]}T{match[2]}Z")
    except BadInput:
        return None


def check_traces(context: DoctorContext) -> Sequence[Finding]:
    """DR09: nodes of Karpenter. DR07: taints of removals in progress. INFO: soft taints that were left behind."""
    found: list[Finding] = []
    nodes = context.seen.nodes
    ours = {instance.node for group in context.seen.groups for instance in group.instances}
    karpenter = [
        node.name
        for node in nodes
        if _KARPENTER in node.labels and any(label in node.labels for label in _KARPENTER_NODE)
    ]
    if karpenter:
        shared = [name for name in karpenter if name in ours]
        if shared:
            found.append(_dr07(context, f"Karpenter manages {len(shared)} nodes of these groups", "nodes", ()))
        else:
            text = f"Karpenter manages {len(karpenter)} nodes ({_KARPENTER}); they are in none of these groups"
            found.append(_told("DR09", Severity.WARNING, text, "nothing to do, or remove Karpenter", karpenter))
    hard = [n.name for n in nodes if n.taint(TO_BE_DELETED) and OPERATION_ANNOTATION not in n.annotations]
    if hard:
        text = f"{len(hard)} nodes have {TO_BE_DELETED} that Outscaler has not set: {_some(hard)}"
        fix = "wait until the other autoscaler has removed them; outscaler uninstall NAME --foreign removes left ones"
        found.append(_told("DR07", Severity.WARNING, text, fix, hard))
    foreign = [n.name for n in nodes if any(n.taint(key) for key in _FOREIGN_TAINTS)]
    if foreign:
        text = f"{len(foreign)} nodes have taints of another autoscaler: {_some(foreign)}"
        found.append(_told("DR07", Severity.WARNING, text, "stop the other autoscaler, and remove the taints", foreign))
    soft = [n.name for n in nodes if n.taint(DELETION_CANDIDATE)]
    if soft and not permitted(context.policy).act:
        text = f"{len(soft)} nodes have soft taints ({DELETION_CANDIDATE}) of an autoscaler"
        fix = "Outscaler continues their times; outscaler uninstall removes those of an autoscaler that is gone"
        found.append(_told("DR07", Severity.INFO, text, fix, soft))
    return found


def _told(id_: str, severity: Severity, text: str, fix: str, names: Sequence[str]) -> Finding:
    evidence: Mapping[str, object] = {"nodes": list(names[:_MOST])}
    return Finding(id=id_, severity=severity, subject="autoscaler", message=text, fix=fix, evidence=evidence)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _unasked(text: str) -> Finding:
    fix = "--as-person KUBECONFIG reads them with wider rights"
    return Finding(id="DR07", severity=Severity.UNASKED, subject="autoscaler", message=text, fix=fix)
