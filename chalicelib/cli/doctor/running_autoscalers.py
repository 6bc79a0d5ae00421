"""Reads what other autoscalers run in a cluster, by their Leases and workloads, and judges whether
they act on the same groups as the policy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from shlex import quote

import msgspec

from chalicelib.cli.doctor.finding import DoctorContext, Finding, Severity, finding
from chalicelib.cli.migrate.autoscaler_input import Argument
from chalicelib.cli.migrate.command_line import Word, read_command_line
from chalicelib.cli.migrate.scripts import invocations_of_words, is_autoscaler
from chalicelib.cli.migrate.startup_taints import CLUSTER_API
from chalicelib.cluster.client import KubeClient, path_segment
from chalicelib.cluster.errors import ClusterError, NotFound
from chalicelib.model.errors import MALFORMED, BadInput, InputErrors
from chalicelib.model.timestamps import parse_time
from chalicelib.runtime.mode_guard import permitted

FRESH_LEASE = 60.0
"""Seconds after which a lease says that its holder has stopped."""
LEASE_NAME = "--leader-elect-resource-name="
KARPENTER_LEASE = "karpenter-leader-election"
_STOP = "kubectl -n kube-system scale deploy cluster-autoscaler --replicas=0"
_IMAGE = re.compile(r"/(cluster-autoscaler|autoscaler|escalator)(-[a-z0-9]+)?([:@]|\Z)")
_PROVIDER = re.compile(r"--cloud-provider(?![= ]external\b)")
# Other programs with that flag: parts of Kubernetes, and the controllers of a cloud.
_NO_AUTOSCALER = re.compile(r"outscaler|controller-manager|kube-apiserver|kubelet|node-manager")
_MOST = 200
_MOST_LEASES = 50  # of one name
_KIND = re.compile(r"[A-Za-z]{1,63}", re.ASCII)
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII)


class _ObjectName(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Owner(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""


class _WorkloadMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    owner_references: tuple[_Owner, ...] | None = None


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    renew_time: str | None = None


class _LeaseObject(msgspec.Struct, frozen=True):
    metadata: _ObjectName = _ObjectName()
    spec: _LeaseSpec = _LeaseSpec()


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

    metadata: _WorkloadMeta
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _WorkloadStatus = _WorkloadStatus()


class RawObjects(msgspec.Struct, frozen=True):
    """A List, of which each item is decoded separately."""

    items: tuple[msgspec.Raw, ...] | None = None


class HeldLease(msgspec.Struct, frozen=True):
    """A Lease that was renewed lately. text: by whom, and how long ago."""

    namespace: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"Lease {self.namespace}/{self.name} was renewed {self.text}"


class RunningAutoscaler(msgspec.Struct, frozen=True):
    """A workload of another autoscaler. place: kind namespace/name. image, words: its image and its
    command line. owner: kind and name of the object that has made it, "" for none."""

    place: str
    image: str
    words: tuple[str, ...]
    owner: str = ""

    @property
    def namespace(self) -> str:
        """The namespace of the workload."""
        return self.place.partition(" ")[2].partition("/")[0]

    @property
    def is_karpenter(self) -> bool:
        """Return whether its image is one of Karpenter's."""
        return _is_karpenter(self.image)


# -- leases


def held_lease(client: KubeClient, namespace: str, name: str, now: float) -> HeldLease | None:
    """Return a Lease with a holder; None where it is free, old or not
    there. Raises ClusterError."""
    path = (
        f"/apis/coordination.k8s.io/v1/namespaces/{path_segment(namespace)}/leases/"
        f"{path_segment(name)}"
    )
    try:
        lease = client.read(path, _LeaseObject)
    except NotFound:
        return None
    return _held(lease, namespace, name, now)


def held_leases(client: KubeClient, name: str, now: float) -> tuple[HeldLease, ...]:
    """Return the Leases of that name that have a holder, of all namespaces. Raises ClusterError."""
    held: list[HeldLease] = []
    query = {"fieldSelector": f"metadata.name={name}"}
    for page in client.list_pages("/apis/coordination.k8s.io/v1/leases", query=query):
        for raw in msgspec.json.decode(page.body, type=RawObjects).items or ():
            try:
                lease = msgspec.json.decode(raw, type=_LeaseObject)
            except MALFORMED:
                continue
            if lease.metadata.name != name:
                continue
            held_lease = _held(lease, lease.metadata.namespace[:63], name, now)
            if held_lease is not None:
                held.append(held_lease)
    return tuple(held[:_MOST_LEASES])


def _held(lease: _LeaseObject, namespace: str, name: str, now: float) -> HeldLease | None:
    try:
        renewed = parse_time(lease.spec.renew_time or "")
    except BadInput:
        return None
    if not lease.spec.holder_identity or not -FRESH_LEASE <= now - renewed <= FRESH_LEASE:
        return None
    text = f"{max(0.0, now - renewed):.0f} s ago by {lease.spec.holder_identity[:120]}"
    return HeldLease(namespace, name, text)


def named_leases(autoscaler: RunningAutoscaler) -> tuple[str, ...]:
    """Return the names of the Leases that its command line gives."""
    names = (
        word.removeprefix(LEASE_NAME) for word in autoscaler.words if word.startswith(LEASE_NAME)
    )
    return tuple(name for name in names if _NAME.fullmatch(name))


# -- workloads


def running_workloads(client: KubeClient) -> tuple[tuple[RunningAutoscaler, ...], tuple[str, ...]]:
    """Return workloads of other autoscalers with ready replicas, and one text per
    list that could not be read."""
    # a Deployment before its pods
    by_program: dict[tuple[str, tuple[str, ...]], RunningAutoscaler] = {}
    gaps: list[str] = []
    for kind, path in (
        ("Deployment", "/apis/apps/v1/deployments"),
        ("StatefulSet", "/apis/apps/v1/statefulsets"),
        ("Pod", "/api/v1/namespaces/kube-system/pods"),
    ):
        try:
            for autoscaler in list(_autoscalers(kind, client, path)):
                by_program.setdefault((autoscaler.image, autoscaler.words), autoscaler)
        except NotFound:
            continue
        except ClusterError as error:
            gaps.append(f"{path} could not be read: {error.message}")
    return tuple(by_program.values())[:_MOST], tuple(gaps)


def _autoscalers(kind: str, client: KubeClient, path: str) -> Iterator[RunningAutoscaler]:
    for page in client.list_pages(path):
        for raw in msgspec.json.decode(page.body, type=RawObjects).items or ():
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
                if _is_autoscaler(container.image, words):
                    place, owner = (
                        f"{kind} {meta.namespace}/{meta.name}",
                        _owner(meta.owner_references or ()),
                    )
                    yield RunningAutoscaler(place, container.image, words, owner)


def _owner(references: Sequence[_Owner]) -> str:
    """Return kind and name of the first owner; "" for none, and for one that is not named
    as Kubernetes names are."""
    for owner in references[:1]:
        if _KIND.fullmatch(owner.kind) and _NAME.fullmatch(owner.name):
            return f"{owner.kind} {owner.name}"
    return ""


def _is_autoscaler(image: str, words: Sequence[str]) -> bool:
    program = words[0] if words else ""
    if _NO_AUTOSCALER.search(f"{image} {program}"):
        return False
    return bool(_PROVIDER.search(" ".join(words)) or _IMAGE.search(image)) or _is_karpenter(image)


def _is_karpenter(image: str) -> bool:
    """Return whether a part of the image's path has the word. The registry's address before it and
    the tag after it are names that anybody chooses."""
    first, _, rest = image.partition("@")[0].partition("/")
    has_registry = rest and ("." in first or ":" in first or first == "localhost")
    path = rest if has_registry else image.partition("@")[0]
    return "karpenter" in path.rpartition(":")[0] if ":" in path else "karpenter" in path


def cluster_autoscaler_arguments(autoscaler: RunningAutoscaler) -> tuple[Argument, ...] | None:
    """Return the flags of a Cluster Autoscaler, None where it is another program or
    its words cannot be read."""
    words = tuple(Word(autoscaler.place, word) for word in autoscaler.words)
    try:
        runs = invocations_of_words(words, autoscaler.place, {})
    except (BadInput, InputErrors):
        return None
    # Without a program among the words, the image's entry point is the program.
    line = read_command_line(runs[0].words if runs else words)
    if len(runs) > 1 or line.problems:
        return None
    providers = {argument.value for argument in line.arguments if argument.flag == "cloud-provider"}
    # A script in the image may add flags, so words without a flag say nothing.
    by_image = bool(line.arguments) and is_autoscaler(autoscaler.image)
    return line.arguments if runs or by_image or CLUSTER_API in providers else None


# -- what it means for the policy


def active(
    context: DoctorContext,
    what: str,
    how: str,
    workloads: Sequence[RunningAutoscaler],
    stop: str = _STOP,
) -> Finding:
    """Return DR07: an error only if it acts on the same groups, and this policy acts, too.
    workloads: those that may be meant. stop: how it is stopped, where no workload is known."""
    same = not workloads or any(has_same_groups(context, workload) for workload in workloads)
    severity = Severity.ERROR if same and permitted(context.policy).act else Severity.INFO
    text = (
        f"{what}: another autoscaler is at work "
        f"{'on the same groups' if same else 'on other groups'}"
    )
    fix = _how_to_stop(workloads[0]) if workloads else stop
    fix = fix if same else "nothing to do"
    return finding(
        "DR07",
        text,
        severity=severity,
        fix=fix,
        by=how,
        workloads=[workload.place for workload in workloads],
    )


_SCALED = {"Deployment": "deploy", "StatefulSet": "sts"}


def _how_to_stop(autoscaler: RunningAutoscaler) -> str:
    """Return how an autoscaler is stopped. A Pod has no size: what has made it
    must go, or it comes again."""
    kind, _, place = autoscaler.place.partition(" ")
    namespace, _, name = place.partition("/")
    if kind in _SCALED:
        return f"kubectl -n {quote(namespace)} scale {_SCALED[kind]} {quote(name)} --replicas=0"
    owner_kind, _, owner = autoscaler.owner.partition(" ")
    if owner_kind == "Node":
        return f"remove the manifest of the static Pod {place} from node {owner}"
    if owner_kind:
        return f"stop {owner_kind} {namespace}/{owner}, which runs Pod {place}"
    return f"kubectl -n {quote(namespace)} delete pod {quote(name)}"


def has_same_groups(context: DoctorContext, running: RunningAutoscaler) -> bool:
    """Return whether its command line names one of this policy's groups, or none,
    so that it may act on all."""
    named = re.findall(r"--nodes[= ](?:\d+:\d+:)(\S+)", " ".join(running.words))
    if not named or context.snapshot is None:
        return True
    own = {name for group in context.snapshot.groups for name in (group.id, *group.aliases)}
    return not own or not own.isdisjoint(named)
