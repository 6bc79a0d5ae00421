"""Checks for another autoscaler in the cluster. Two that act on the same groups remove each other's nodes.

It is found by its Lease, its workload, its status ConfigMap, its taints, and the labels of its nodes. One that acts on
other groups is told and is no error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from shlex import quote

import msgspec

from chalicelib.command.doctor.finding import DoctorContext, Finding, Severity, finding, first_names
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
    containers: tuple[_WatchedContainer, ...] = ()  # of a Pod


class _WorkloadStatus(msgspec.Struct, frozen=True, rename="camel"):
    ready_replicas: int = 0
    phase: str = ""


class _Workload(msgspec.Struct, frozen=True):
    """A Deployment, StatefulSet or Pod."""

    metadata: _WatchedMeta
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _WorkloadStatus = _WorkloadStatus()


class _RawObjects(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] | None = None


class RunningAutoscaler(msgspec.Struct, frozen=True):
    """A workload of another autoscaler. place: kind namespace/name. words: its command line."""

    place: str
    words: tuple[str, ...]


def check_activity(context: DoctorContext) -> Iterator[Finding]:
    """DR07: another autoscaler that acts at present. Raises ClusterError where nothing can be asked."""
    client, now = context.observer, context.clock()
    held_by: list[str] = []
    workloads, gaps = running_workloads(client)
    own_names = (
        word.removeprefix(_LEASE_NAME)[:253]
        for workload in workloads
        for word in workload.words
        if word.startswith(_LEASE_NAME)
    )
    names = dict.fromkeys((*LEASES, *own_names))
    namespaces = dict.fromkeys(("kube-system", context.policy.options.namespace))
    for namespace, name in [(namespace, name) for namespace in namespaces for name in names]:
        try:
            holder = lease_holder(client, namespace, name, now)
        except Forbidden:
            gaps = (*gaps, f"leases in {namespace} may not be read")
            break
        if holder:
            held_by.append(f"Lease {namespace}/{name} was renewed {holder}")
    for text in held_by:
        yield _active(context, text, "lease", workloads)
    for workload in workloads if not held_by else ():
        yield _active(context, f"{workload.place} has ready replicas", "workload", [workload])
    for gap in gaps:
        yield finding("DR07", gap, severity=Severity.UNASKED)


def lease_holder(client: KubeClient, namespace: str, name: str, now: float) -> str:
    """Return who renewed a Lease how long ago, as text; "" where it is free, old or not there. Raises ClusterError."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{path_segment(namespace)}/leases/{path_segment(name)}"
    try:
        spec = client.read(path, _LeaseObject).spec
        renewed = parse_time(spec.renew_time or "")
    except (NotFound, BadInput):
        return ""
    if not spec.holder_identity or not -FRESH_LEASE <= now - renewed <= FRESH_LEASE:
        return ""
    return f"{max(0.0, now - renewed):.0f} s ago by {spec.holder_identity[:120]}"


def running_workloads(client: KubeClient) -> tuple[tuple[RunningAutoscaler, ...], tuple[str, ...]]:
    """Return workloads of other autoscalers with ready replicas, and one text per list that could not be read."""
    by_words: dict[tuple[str, ...], RunningAutoscaler] = {}  # a Deployment before its pods
    gaps: list[str] = []
    for kind, path in (
        ("Deployment", "/apis/apps/v1/deployments"),
        ("StatefulSet", "/apis/apps/v1/statefulsets"),
        ("Pod", "/api/v1/namespaces/kube-system/pods"),
    ):
        try:
            for autoscaler in list(_autoscalers(kind, client, path)):
                by_words.setdefault(autoscaler.words, autoscaler)
        except NotFound:
            continue
        except ClusterError as error:
            gaps.append(f"{path} could not be read: {error.message}")
    return tuple(by_words.values())[:_MOST], tuple(gaps)


def _autoscalers(kind: str, client: KubeClient, path: str) -> Iterator[RunningAutoscaler]:
    for page in client.list_pages(path):
        for raw in msgspec.json.decode(page.body, type=_RawObjects).items or ():
            try:
                workload = msgspec.json.decode(raw, type=_Workload)
            except MALFORMED:
                continue
            spec, status, meta = workload.spec, workload.status, workload.metadata
            runs, containers = status.ready_replicas > 0, spec.template.spec.containers
            if kind == "Pod":
                runs, containers = status.phase == "Running", spec.containers
            for container in containers if runs else ():
                words = (*(container.command or ()), *(container.args or ()))
                if not _NO_AUTOSCALER.search(f"{container.image} {words[0] if words else ''}") and (
                    _PROVIDER.search(" ".join(words)) or _IMAGE.search(container.image)
                ):
                    yield RunningAutoscaler(f"{kind} {meta.namespace}/{meta.name}", words)


def _active(context: DoctorContext, what: str, how: str, workloads: Sequence[RunningAutoscaler]) -> Finding:
    """DR07: an error only if it acts on the same groups, and this policy acts, too."""
    same = not workloads or any(_has_same_groups(context, workload) for workload in workloads)
    severity = Severity.ERROR if same and permitted(context.policy).act else Severity.INFO
    text = f"{what}: another autoscaler is at work {'on the same groups' if same else 'on other groups'}"
    place = workloads[0].place.partition(" ")[2] if workloads else "kube-system/cluster-autoscaler"
    namespace, _, name = place.partition("/")
    fix = f"kubectl -n {quote(namespace)} scale deploy {quote(name)} --replicas=0" if same else "nothing to do"
    return finding(
        "DR07", text, severity=severity, fix=fix, by=how, workloads=[workload.place for workload in workloads]
    )


def _has_same_groups(context: DoctorContext, running: RunningAutoscaler) -> bool:
    """Whether its command line names one of this policy's groups, or none, so that it may act on all."""
    named = re.findall(r"--nodes[= ](?:\d+:\d+:)(\S+)", " ".join(running.words))
    if not named or context.snapshot is None:
        return True
    own = {name for group in context.snapshot.groups for name in (group.id, *group.aliases)}
    return not own or not own.isdisjoint(named)


def check_status(context: DoctorContext) -> Iterator[Finding]:
    """DR08: a status ConfigMap that another program writes as well. DR07 where that program alone writes it now."""
    options = context.policy.options
    try:
        config_map = objects.get_config_map(context.observer, options.namespace, options.status_config_map_name)
    except NotFound:
        return
    managers = config_map.writers(KEY)
    others = sorted(manager for manager in managers if manager != objects.OWN_MANAGER and "kubectl" not in manager)
    updated = _go_time(config_map.annotation(ANNOTATION))
    if not others or updated is None or context.clock() - updated > FRESH_STATUS:
        return
    name = f"{options.namespace}/{options.status_config_map_name}"
    if objects.OWN_MANAGER not in managers:
        yield _active(context, f"ConfigMap {name} is written by {others[0][:60]}", "status", ())
    else:
        text = f"ConfigMap {name} is written by {', '.join(others)[:200]} as well"
        yield finding("DR08", text, managers=sorted(managers))


def _go_time(text: str) -> float | None:
    """Parse Go's `2026-11-23 05:22:01.123456789 +0000 UTC`."""
    match = re.match(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.\d{1,9})? \+0000 UTC", text)
    if match is None:
        return None
    try:
        return parse_time(f"{match[1]}T{match[2]}Z")
    except BadInput:
        return None


def check_traces(context: DoctorContext) -> Iterator[Finding]:
    """DR09: nodes of Karpenter. DR07: taints of removals in progress. INFO: soft taints that were left behind."""
    nodes = context.required_snapshot.nodes
    grouped = {instance.node for group in context.required_snapshot.groups for instance in group.instances}
    karpenter = [
        node.name
        for node in nodes
        if _KARPENTER in node.labels and any(label in node.labels for label in _KARPENTER_NODE)
    ]
    shared = [name for name in karpenter if name in grouped]
    if shared:
        yield _active(context, f"Karpenter manages {len(shared)} nodes of these groups", "nodes", ())
    elif karpenter:
        text = f"Karpenter manages {len(karpenter)} nodes ({_KARPENTER}); they are in none of these groups"
        yield finding("DR09", text, nodes=karpenter[:_MOST])
    hard = [node.name for node in nodes if node.taint(TO_BE_DELETED) and OPERATION_ANNOTATION not in node.annotations]
    if hard:
        text = f"{len(hard)} nodes have {TO_BE_DELETED} that Outscaler has not set: {first_names(hard)}"
        fix = "wait until the other autoscaler has removed them; outscaler uninstall NAME --foreign removes left ones"
        yield finding("DR07", text, fix=fix, nodes=hard[:_MOST])
    foreign = [node.name for node in nodes if any(node.taint(key) for key in _FOREIGN_TAINTS)]
    if foreign:
        text = f"{len(foreign)} nodes have taints of another autoscaler: {first_names(foreign)}"
        fix = "stop the other autoscaler, and remove the taints"
        yield finding("DR07", text, fix=fix, nodes=foreign[:_MOST])
    soft = [node.name for node in nodes if node.taint(DELETION_CANDIDATE)]
    if soft and not permitted(context.policy).act:
        text = f"{len(soft)} nodes have soft taints ({DELETION_CANDIDATE}) of an autoscaler"
        fix = "Outscaler continues their times; outscaler uninstall removes those of an autoscaler that is gone"
        yield finding("DR07", text, severity=Severity.INFO, fix=fix, nodes=soft[:_MOST])
