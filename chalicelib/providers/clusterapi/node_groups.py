"""Builds the cluster's node groups from everything that was read. Pure functions.

A resource becomes a group if it passes all checks: selected by discovery, of this cluster, not paused, not owned by a
MachineDeployment, not sized by another scaler, with bounds, and with a size. A rejection that its owner should know of
leaves a gap, and no resource affects another.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.errors import MALFORMED, BadInput
from chalicelib.model.group import GroupOptions, Instance, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.policy import GroupPolicy
from chalicelib.model.quantity import parse_duration
from chalicelib.model.snapshot import ALL_CAPI_GROUPS, MissingData
from chalicelib.providers.clusterapi.annotations import PAUSED, CapiAnnotations
from chalicelib.providers.clusterapi.api import DEPLOYMENT, MACHINE, POOL, SET
from chalicelib.providers.clusterapi.capi_state import (
    CapiState,
    Restraint,
    by_deployment,
    by_group,
    controller,
    has_deployment,
    restraint,
)
from chalicelib.providers.clusterapi.cluster_ownership import Doubt, OwnCluster, own_cluster
from chalicelib.providers.clusterapi.discovery import any_matches
from chalicelib.providers.clusterapi.infrastructure import Infra, no_infrastructure
from chalicelib.providers.clusterapi.instances import (
    Match,
    Nodes,
    Patience,
    classify,
    listed_instances,
    managed_by,
    pool_held,
    pool_stuck,
)
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource, resource_gap
from chalicelib.providers.clusterapi.node_template import make_template
from chalicelib.providers.clusterapi.settings import CapiSettings

PROVIDER = "clusterapi"
_SHOWN = 120  # maximum characters of a machine's name in a gap
# The label with the entry of a Cluster's topology from which a resource was created.
_TOPOLOGY = {
    DEPLOYMENT: "topology.cluster.x-k8s.io/deployment-name",
    POOL: "topology.cluster.x-k8s.io/pool-name",
}


class Observed(msgspec.Struct, frozen=True):
    """The groups, sorted by id, and the gaps of resources that could not become one."""

    groups: tuple[NodeGroup, ...]
    gaps: tuple[MissingData, ...] = ()


def group_id(kind: str, resource: CapiResource) -> str:
    """Return `MachineDeployment/namespace/name`."""
    return f"{kind}/{resource.metadata.namespace}/{resource.metadata.name}"


def is_meant(resource: CapiResource, settings: CapiSettings) -> bool:
    """Whether discovery selects this resource."""
    cluster = resource.cluster(settings.keys)
    return any_matches(settings.specs, resource.metadata.namespace, cluster, resource.labels)


def is_paused(resource: CapiResource) -> bool:
    """Whether the resource is paused by its owner, or by its Cluster, which newer versions of CAPI record as a
    condition."""
    return PAUSED in resource.annotations or resource.is_true("Paused")


def make_groups(
    state: CapiState,
    nodes: Sequence[Node],
    settings: CapiSettings,
    policies: Sequence[GroupPolicy],
    infra: Infra = no_infrastructure,
    now: float = 0.0,
    identity: str = "",
) -> Observed:
    """Return all node groups of the cluster of these Nodes. infra: reads what a new machine offers; now: epoch seconds,
    against which `stuckAfter` is measured; identity: which management cluster holds the objects."""
    meant = [
        (kind, resource)
        for kind in (SET, DEPLOYMENT, POOL)
        for resource in state.resources.get(kind, ())
        if is_meant(resource, settings)
    ]
    clusters = (OwnCluster(each.metadata.namespace, each.cluster(settings.keys)) for _, each in meant)
    found = own_cluster(nodes, settings.specs, clusters, settings.keys, state)
    own = found.cluster
    if isinstance(own, Doubt):
        doubt = MissingData(f"provider/{PROVIDER}", own.problem, affected_decisions=(ALL_CAPI_GROUPS,))
        return Observed((), (doubt, *state.gaps))
    free, doubtful = _by_name(
        (kind, each)
        for kind, each in meant
        if _belongs(each, own, settings) and not (kind == SET and has_deployment(each))
    )
    resting = {(n.metadata.namespace, n.cluster(settings.keys)) for _, n in free.values()} & state.paused_clusters
    paused = {
        name
        for name, (_, each) in free.items()
        if is_paused(each) or (each.metadata.namespace, each.cluster(settings.keys)) in resting
    }
    candidates = {name: pair for name, pair in free.items() if name not in paused}
    overrides = resolve(policies, candidates, paused)
    maker = _CapiGroupBuilder(state, nodes, settings, overrides, own, infra, now)
    made = [group for name, (kind, each) in sorted(candidates.items()) if (group := maker.read(name, kind, each))]
    uids = {name: each.metadata.uid for name, (_, each) in candidates.items()}
    groups = [msgspec.structs.replace(each, claim=_claim(identity, uids[each.id])) for each in made]
    gaps = [
        MissingData("Cluster", "it is paused, so none of its node groups is changed", name=f"{space}/{cluster}")
        for space, cluster in sorted(resting)
    ]
    gaps += [
        MissingData("NodeGroup", "two objects have its name and differ, so neither is believed", name=name)
        for name in sorted(doubtful)
    ]
    return Observed(tuple(groups), (*gaps, *found.gaps, *overrides.gaps, *maker.gaps, *state.gaps))


def _by_name(found: Iterable[tuple[str, CapiResource]]) -> tuple[dict[str, tuple[str, CapiResource]], frozenset[str]]:
    """Return the resources by their group's id, and the ids of two different resources, which are left out."""
    free: dict[str, tuple[str, CapiResource]] = {}
    doubtful = {
        name for kind, each in found if free.setdefault(name := group_id(kind, each), (kind, each)) != (kind, each)
    }
    return {name: pair for name, pair in free.items() if name not in doubtful}, frozenset(doubtful)


def _claim(identity: str, uid: str) -> str:
    """Return the group's globally unique identity: its uid and the identity of the management cluster. The API server
    assigns the uid, so it does not depend on the address or account through which the group is reached."""
    return hashlib.sha256(f"{identity}/{uid}".encode()).hexdigest()[:32] if identity and uid else ""


def _belongs(resource: CapiResource, own: OwnCluster, settings: CapiSettings) -> bool:
    # Very old versions wrote a Node annotation without the namespace, which leaves the namespace unknown.
    return resource.cluster(settings.keys) == own.name and own.namespace in {"", resource.metadata.namespace}


class _CapiGroupBuilder:
    """Builds one group after another and collects the warnings about them."""

    def __init__(
        self,
        state: CapiState,
        nodes: Sequence[Node],
        settings: CapiSettings,
        overrides: Overrides,
        own: OwnCluster,
        infra: Infra,
        now: float,
    ) -> None:
        self._state, self._settings, self._overrides = state, settings, overrides
        self._infra, self._patience = infra, Patience(now, settings.stuck_after)
        sets, machines = state.resources.get(SET, ()), _of_cluster(state.machines, own)
        self._sets = by_deployment(sets)
        self._nodes = Nodes(nodes, settings.keys, machines)
        self._machines = by_group(machines, sets, state.resources.get(POOL, ()))
        self.gaps: list[MissingData] = []

    def read(self, name: str, kind: str, resource: CapiResource) -> NodeGroup | None:
        """Build the group as `make` does; a resource with contents that no check expects becomes a gap."""
        try:
            return self.make(name, kind, resource)
        except MALFORMED as error:
            self._warn(kind, resource, f"not a node group: it cannot be understood: {str(error)[:200]}")
            return None

    def make(self, name: str, kind: str, resource: CapiResource) -> NodeGroup | None:
        """Build the group of a resource; None if it is not meant to be one, or cannot be one (then with a gap)."""
        entry = self._overrides.by_group.get(name)
        try:
            bounds = read_bounds(resource.annotations, self._settings.keys, entry, name)
        except BadInput as bad:
            self._warn(kind, resource, f"not a node group: {bad.problem}; {bad.remedy}")
            return None
        if bounds is None:
            if entry is not None:
                self._warn(kind, resource, "not a node group: neither the policy nor an annotation gives a maximum")
            return None
        if other := managed_by(resource) if kind == POOL else "":
            self._warn(kind, resource, f"not a node group: its size is managed by {other} (replicas-managed-by)")
            return None
        if resource.spec.replicas is None:
            self._warn(kind, resource, "not a node group: spec.replicas is not set; set it once to the size it has")
            return None
        return self._group(name, kind, resource, bounds, entry)

    def _group(
        self, name: str, kind: str, resource: CapiResource, bounds: CapiBounds, group_policy: GroupPolicy | None
    ) -> NodeGroup:
        machines = self._machines.get(resource.metadata.uid, [])
        found = [(each, self._nodes.match(each)) for each in machines]
        restrained = self._restraint(kind, resource, machines)
        listed = listed_instances(resource, machines, self._nodes) if kind == POOL else ()
        real = next((match.node for _, match in found if match.node is not None), None) or self._nodes.first(listed)
        template = make_template(name, kind, resource, self._settings, real, self._infra)
        options, warnings = read_options(resource.annotations, self._settings.keys)
        lacks = kind == POOL and len(machines) + len(listed) < (resource.spec.replicas or 0)
        stuck = pool_stuck(resource, self._patience) if lacks else ""
        for warning in filter(None, (*template.warnings, *warnings, stuck)):
            self._warn(kind, resource, warning)
        instances = self._instances(found, restrained) + listed
        self._warn_of_doubts(
            kind,
            resource,
            [(each.handle, match.doubt) for each, match in found if not each.leaving]
            + [(each.id, each.held) for each in listed],
        )
        return NodeGroup(
            id=name,
            provider=PROVIDER,
            min=bounds.min,
            max=bounds.max,
            target=resource.spec.replicas or 0,
            instances=instances,
            template=template.node,
            template_error=template.problem,
            template_volumes=template.volumes,
            template_devices=template.devices,
            error=self._error(name, kind, resource),
            options=options,
            priority=group_policy.priority if group_policy else 0,
            scale_down_held=restrained.group,
        )

    def _instances(self, found: Sequence[tuple[CapiMachine, Match]], restrained: Restraint) -> tuple[Instance, ...]:
        made: list[Instance] = []
        for machine, match in found:
            instance = classify(machine, match, self._patience)
            stays = not instance.held and restrained.only and controller(machine.metadata, SET) != restrained.only
            made.append(msgspec.structs.replace(instance, held=restrained.others) if stays else instance)
        return tuple(made)

    def _warn_of_doubts(self, kind: str, resource: CapiResource, doubts: Sequence[tuple[str, str]]) -> None:
        """Add one gap per group, regardless of the number of its Machines with an uncertain Node."""
        held = [(name, doubt) for name, doubt in doubts if doubt]
        if not held:
            return
        more = f"; {len(held) - 1} more of its machines are held" if len(held) > 1 else ""
        self._warn(kind, resource, f"{held[0][0][:_SHOWN]} is neither removed nor discarded: {held[0][1]}{more}")

    def _error(self, name: str, kind: str, resource: CapiResource) -> str:
        """Return why the group must not be changed."""
        return (
            self._overrides.contested.get(name, "")
            or self._unknown(kind, resource.metadata.namespace)
            or self._fought_over(kind, resource)
        )

    def _unknown(self, kind: str, namespace: str) -> str:
        """Return why the group's instances are unknown."""
        sets = self._state.missing(SET, namespace) if kind == DEPLOYMENT else ""
        return self._state.missing(MACHINE, namespace) or sets

    def _fought_over(self, kind: str, resource: CapiResource) -> str:
        """Return why the topology controller would undo every change of the size."""
        entry, cluster = resource.labels.get(_TOPOLOGY.get(kind, ""), ""), resource.cluster(self._settings.keys)
        if not entry or (resource.metadata.namespace, cluster, entry) not in self._state.topology_replicas:
            return ""
        problem = (
            f"Cluster {resource.metadata.namespace}/{cluster} sets replicas of {entry} in spec.topology.workers "
            "and would undo every change of its size: take replicas out of that entry"
        )
        self._warn(kind, resource, problem)
        return problem

    def _restraint(self, kind: str, resource: CapiResource, machines: Sequence[CapiMachine]) -> Restraint:
        if kind == POOL:
            return Restraint(pool_held(resource, machines, self._settings))
        return restraint(resource, self._sets.get(resource.metadata.uid, ())) if kind == DEPLOYMENT else Restraint()

    def _warn(self, kind: str, resource: CapiResource, detail: str) -> None:
        self.gaps.append(resource_gap(kind, resource, detail))


def _of_cluster(machines: Iterable[CapiMachine], own: OwnCluster) -> list[CapiMachine]:
    return [
        each
        for each in machines
        if each.spec.cluster_name in {"", own.name} and own.namespace in {"", each.metadata.namespace}
    ]


_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?\Z")


def _threshold(text: str) -> float:
    value = float(text) if _FLOAT.match(text) else math.nan
    if not math.isfinite(value):
        raise BadInput("option", f"{text!r} is not a number", "write a share such as 0.5")
    return value


def _duration(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < 0 or not math.isfinite(seconds):
        raise BadInput("option", f"{text[:40]!r} is not a duration", "write a duration such as 10m")
    return seconds


def _flag(text: str) -> bool:
    if text not in {"true", "false"}:
        raise BadInput("option", f"{text!r} is neither true nor false", "write true or false")
    return text == "true"


# Annotation suffix -> (field of GroupOptions, reader of the lower-cased value).
_OPTIONS: dict[str, tuple[str, Callable[[str], float | bool]]] = {
    "scaledownutilizationthreshold": ("scale_down_utilization_threshold", _threshold),
    "scaledowngpuutilizationthreshold": ("scale_down_gpu_utilization_threshold", _threshold),
    "scaledownunneededtime": ("scale_down_unneeded_time", _duration),
    "scaledownunreadytime": ("scale_down_unready_time", _duration),
    "maxnodeprovisiontime": ("max_node_provision_time", _duration),
    "maxnodestartuptime": ("max_node_startup_time", _duration),
    # an extension of Outscaler, as is the next one
    "ignoredaemonsetsutilization": ("ignore_daemonsets_utilization", _flag),
    "zeroormaxnodescaling": ("zero_or_max", _flag),
}


def read_options(annotations: Mapping[str, str], keys: CapiAnnotations) -> tuple[GroupOptions, tuple[str, ...]]:
    """Return the options, and one sentence per annotation that was skipped as unreadable."""
    fields: dict[str, float | bool] = {}
    warnings = []
    for suffix, (field, reader) in _OPTIONS.items():
        text = annotations.get(keys.options + suffix, "").lower()
        if not text:
            continue
        try:
            fields[field] = reader(text)
        except BadInput as bad:
            warnings.append(f"annotation {keys.options}{suffix}: {bad.problem}; {bad.remedy}")
    return msgspec.convert(fields, GroupOptions), tuple(warnings)


_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_LONGEST, _SHOWN_TEXT = (
    19,
    40,
)  # digits that Go's parser accepts; characters shown


class CapiBounds(msgspec.Struct, frozen=True):
    """min <= size <= max, max at least 1."""

    min: int
    max: int


def read_bounds(
    annotations: Mapping[str, str], keys: CapiAnnotations, policy: GroupPolicy | None, place: str
) -> CapiBounds | None:
    """Return the bounds, None if the resource is not meant to be a group; raises BadInput for invalid bounds. A bound
    in the policy replaces the annotation, which is then not read. place: the resource."""
    low = policy.min if policy and policy.min is not None else _annotation(annotations, keys.min_size, place)
    high = policy.max if policy and policy.max is not None else _annotation(annotations, keys.max_size, place)
    if not low and not high:
        return None
    low, high = low or 0, high or 0
    if low < 0:
        raise BadInput(place, f"the minimum {low} is negative", "write 0 or more")
    if high < low:
        raise BadInput(place, f"the maximum {high} is below the minimum {low}", f"set {keys.max_size} to {low} or more")
    return CapiBounds(low, high)


def _annotation(annotations: Mapping[str, str], key: str, place: str) -> int | None:
    text = annotations.get(key)
    if text is None:
        return None
    # int() also accepts spaces, underscores and digits of other scripts, which Go's parser refuses. The length is
    # limited so that a text of a million digits does not affect the other groups.
    if not _INTEGER.match(text) or len(text) > _LONGEST:
        raise BadInput(place, f"annotation {key} is {text[:_SHOWN_TEXT]!r}", "write a whole number in digits")
    return int(text)


_SHOWN_GROUPS = 5


class Overrides(msgspec.Struct, frozen=True):
    """by_group: group id -> its entry. contested: group id -> why it must not be changed."""

    by_group: dict[str, GroupPolicy]
    contested: dict[str, str] = {}
    gaps: tuple[MissingData, ...] = ()


def speaks_of(group_policy: GroupPolicy, group: str) -> bool:
    """Whether an entry's id may refer to this group (`Kind/namespace/name`)."""
    return group_policy.id == group or group.endswith(f"/{group_policy.id}")


def resolve(entries: Sequence[GroupPolicy], groups: Iterable[str], paused: Iterable[str] = ()) -> Overrides:
    """Match the entries to the ids of discovered resources; paused ones are included, although they are not groups."""
    known, resting = sorted(groups), sorted(paused)
    by_group: dict[str, GroupPolicy] = {}
    contested: dict[str, str] = {}
    gaps = []
    for entry in entries:
        fits = [group for group in known if speaks_of(entry, group)]
        if len(fits) > 1:
            problem = f"nodeGroups entry {entry.id!r} fits {', '.join(fits)}; write one of these in full"
            contested.update(dict.fromkeys(fits, problem))
            gaps.append(_gap(entry, problem))
        elif not fits:
            gaps.append(_gap(entry, _not_found(entry, known, resting)))
        elif fits[0] in by_group:
            gaps.append(_gap(entry, f"{fits[0]} already has the entry {by_group[fits[0]].id!r}; remove one of the two"))
        else:
            by_group[fits[0]] = entry
    return Overrides(by_group, contested, tuple(gaps))


def _not_found(group_policy: GroupPolicy, known: Sequence[str], resting: Sequence[str]) -> str:
    paused = [group for group in resting if speaks_of(group_policy, group)]
    if paused:
        return f"{paused[0]} is paused, so it is left alone"
    shown = ", ".join(known[:_SHOWN_GROUPS]) + (", …" if len(known) > _SHOWN_GROUPS else "")
    return f"no such MachineDeployment, MachineSet or MachinePool in this cluster; there are: {shown or 'none'}"


def _gap(group_policy: GroupPolicy, detail: str) -> MissingData:
    return MissingData(
        "NodeGroup", detail, name=group_policy.id, place=f"spec.nodeGroups[provider=clusterapi, id={group_policy.id}]"
    )
