"""Builds the cluster's node groups from everything that was read. Pure functions.

A resource becomes a group if it passes all checks: selected by discovery, of this cluster, not
paused, not owned by a MachineDeployment, not sized by another scaler, with bounds, and with a size.
A rejection that its owner should know of leaves a gap, and no resource affects another. A resource
without bounds is not a node group; upstream lists no group at all if one has wrong bounds. An
unreadable option is reported, and the cluster's own value applies.

An entry of the policy's nodeGroups names `MachineDeployment/ns/name`, `ns/name` or just `name`; the
last two must match one resource only. An entry that matches several is refused for all of them,
because a guess could give a group another group's maximum.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.errors import MALFORMED, BadInput
from chalicelib.model.group import GroupOptions, Instance, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.snapshot import ALL_CAPI_GROUPS, MissingData
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers.clusterapi.api import DEPLOYMENT, MACHINE, POOL, SET
from chalicelib.providers.clusterapi.capi_state import (
    CapiState,
    Doubt,
    OwnCluster,
    Restraint,
    by_deployment,
    by_group,
    controller,
    has_deployment,
    own_cluster,
    restraint,
)
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
from chalicelib.providers.clusterapi.machine_life import (
    Repairers,
    Revisions,
    born,
    is_interruptible,
    rollout,
    work_on,
)
from chalicelib.providers.clusterapi.models import (
    PAUSED,
    CapiAnnotations,
    CapiMachine,
    CapiResource,
    is_forgotten,
)
from chalicelib.providers.clusterapi.node_template import (
    Infra,
    make_template,
    no_infrastructure,
    possible_zones,
)
from chalicelib.providers.clusterapi.settings import CapiSettings, any_matches
from chalicelib.providers.clusterapi.size_writer import size_writer
from chalicelib.providers.kit.base import Observation
from chalicelib.providers.kit.group_builder import OPTION_READERS, read_flag

PROVIDER = "clusterapi"
_SHOWN = 120  # maximum characters of a machine's name in a gap
# The label with the entry of a Cluster's topology from which a resource was created.
_TOPOLOGY = {
    DEPLOYMENT: "topology.cluster.x-k8s.io/deployment-name",
    POOL: "topology.cluster.x-k8s.io/pool-name",
}


class _Candidate(msgspec.Struct, frozen=True):
    """A resource that may become a group. name: the group's id, `MachineDeployment/namespace/name`.
    cluster: (namespace, name) of its Cluster."""

    name: str
    kind: str
    resource: CapiResource
    cluster: tuple[str, str]


def is_meant(resource: CapiResource, settings: CapiSettings) -> bool:
    """Whether discovery selects this resource."""
    cluster = resource.cluster(settings.keys)
    return any_matches(settings.specs, resource.metadata.namespace, cluster, resource.labels)


def is_paused(resource: CapiResource) -> bool:
    """Whether the resource is paused by its owner, or by its Cluster, which newer versions of
    CAPI record as a condition."""
    return PAUSED in resource.annotations or resource.is_true("Paused")


def make_groups(
    state: CapiState,
    nodes: Sequence[Node],
    settings: CapiSettings,
    policies: Sequence[GroupPolicy],
    infra: Infra = no_infrastructure,
    now: float = 0.0,
    identity: str = "",
) -> Observation:
    """Return all node groups of the cluster of these Nodes, sorted by id, and gaps about resources
    that could not become one. infra: reads what a new machine offers; now: epoch seconds, against
    which `stuckAfter` is measured; identity: which management cluster holds the objects."""
    meant = _selected(state, settings)
    clusters = (OwnCluster(*candidate.cluster) for candidate in meant)
    ownership = own_cluster(nodes, settings.specs, clusters, settings.keys, state)
    own = ownership.cluster
    if isinstance(own, Doubt):
        doubt = MissingData(
            f"provider/{PROVIDER}", own.problem, affected_decisions=(ALL_CAPI_GROUPS,)
        )
        return Observation((), (doubt, *state.gaps))
    by_name: dict[str, _Candidate] = {}
    ambiguous: set[str] = set()
    for candidate in meant:
        if _is_owned(candidate, own):
            namesake = by_name.setdefault(candidate.name, candidate)
            if namesake != candidate:
                ambiguous.add(candidate.name)
    unique = [candidate for name, candidate in sorted(by_name.items()) if name not in ambiguous]
    paused_clusters = {candidate.cluster for candidate in unique} & state.paused_clusters
    paused: set[str] = set()
    candidates: list[_Candidate] = []
    for candidate in unique:
        if is_paused(candidate.resource) or candidate.cluster in paused_clusters:
            paused.add(candidate.name)
        else:
            candidates.append(candidate)
    overrides = resolve(policies, [candidate.name for candidate in candidates], paused)
    builder = _CapiGroupBuilder(state, nodes, settings, overrides, own, infra, now, identity)
    built = [builder.build(candidate) for candidate in candidates]
    groups = tuple(group for group in built if group)
    pause = "it is paused, so none of its node groups is changed"
    doubled = "two objects have its name and differ, so neither is believed"
    gaps = [
        MissingData("Cluster", pause, name="/".join(cluster)) for cluster in sorted(paused_clusters)
    ]
    gaps += [MissingData("NodeGroup", doubled, name=name) for name in sorted(ambiguous)]
    return Observation(
        groups, (*gaps, *ownership.gaps, *overrides.gaps, *builder.gaps, *state.gaps)
    )


def _selected(state: CapiState, settings: CapiSettings) -> list[_Candidate]:
    """Return the resources that discovery selects."""
    candidates: list[_Candidate] = []
    for kind in (SET, DEPLOYMENT, POOL):
        for resource in state.resources.get(kind, ()):
            if is_meant(resource, settings):
                namespace = resource.metadata.namespace
                name = f"{kind}/{namespace}/{resource.metadata.name}"
                cluster = (namespace, resource.cluster(settings.keys))
                candidates.append(_Candidate(name, kind, resource, cluster))
    return candidates


def _is_owned(candidate: _Candidate, own: OwnCluster) -> bool:
    """Return whether a resource belongs to a cluster and is not part of a MachineDeployment."""
    namespace, cluster = candidate.cluster
    # Very old versions wrote a Node annotation without the namespace, which
    # leaves the namespace unknown.
    if cluster != own.name or own.namespace not in {"", namespace}:
        return False
    return candidate.kind != SET or not has_deployment(candidate.resource)


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
        identity: str,
    ) -> None:
        self._state = state
        self._settings = settings
        self._overrides = overrides
        self._infra = infra
        self._patience = Patience(now, settings.stuck_after or 0.0)
        self._identity = identity

        def is_own(machine: CapiMachine) -> bool:
            is_of_cluster = machine.spec.cluster_name in {"", own.name}
            return is_of_cluster and own.namespace in {"", machine.metadata.namespace}

        sets = state.resources.get(SET, ())
        machines = [machine for machine in state.machines if is_own(machine)]
        self._sets = by_deployment(sets)
        self._nodes = Nodes(nodes, settings.keys, machines)
        self._machines = by_group(machines, sets, state.resources.get(POOL, ()))
        self._repairers = Repairers(state, settings.keys)
        self.gaps: list[MissingData] = []

    def build(self, candidate: _Candidate) -> NodeGroup | None:
        """Build the group of a resource; None if it is not meant to be one, or cannot be one (then
        with a gap), such as a resource with contents that no check expects."""
        try:
            return self._build(candidate)
        except MALFORMED as error:
            self._warn(candidate, f"not a node group: it cannot be understood: {str(error)[:200]}")
            return None

    def _build(self, candidate: _Candidate) -> NodeGroup | None:
        entry = self._overrides.by_group.get(candidate.name)
        resource = candidate.resource
        try:
            bounds = read_bounds(resource.annotations, self._settings.keys, entry, candidate.name)
        except BadInput as bad:
            self._warn(candidate, f"not a node group: {bad.problem}; {bad.remedy}")
            return None
        if bounds is None:
            if entry is not None:
                problem = "neither the policy nor an annotation gives a maximum"
                self._warn(candidate, f"not a node group: {problem}")
            return None
        manager = managed_by(resource) if candidate.kind == POOL else ""
        problem = ""
        if manager:
            problem = f"its size is managed by {manager} (replicas-managed-by)"
        elif resource.spec.replicas is None:
            problem = "spec.replicas is not set; set it once to the size it has"
        if problem:
            self._warn(candidate, f"not a node group: {problem}")
            return None
        return self._group(candidate, bounds, entry)

    def _group(
        self, candidate: _Candidate, bounds: CapiBounds, group_policy: GroupPolicy | None
    ) -> NodeGroup:
        resource = candidate.resource
        is_pool = candidate.kind == POOL
        size = resource.spec.replicas or 0
        machines = self._machines.get(resource.metadata.uid, [])
        sets = self._sets.get(resource.metadata.uid, ())
        matches = [(machine, self._nodes.match(machine)) for machine in machines]
        restrained = Restraint()
        if is_pool:
            restrained = Restraint(pool_held(resource, machines, self._settings))
        elif candidate.kind == DEPLOYMENT:
            restrained = restraint(resource, sets)
        listed = listed_instances(resource, machines, self._nodes) if is_pool else ()
        nodes = [match.node for _, match in matches]
        first_node = next((node for node in nodes if node is not None), None)
        example_node = first_node or self._nodes.first(listed)
        template = make_template(
            candidate.name, candidate.kind, resource, self._settings, example_node, self._infra
        )
        options, warnings = read_options(resource.annotations, self._settings.keys)
        is_incomplete = is_pool and len(machines) + len(listed) < size
        stuck = pool_stuck(resource, self._patience) if is_incomplete else ""
        for warning in filter(None, (*template.warnings, *warnings, stuck)):
            self._warn(candidate, warning)
        revisions = Revisions(candidate.kind, resource, sets)
        instances = [
            self._instance(machine, match, restrained, revisions) for machine, match in matches
        ]
        self._warn_of_doubts(candidate, matches, listed)
        nodes += [self._nodes.named(instance.node) for instance in listed]
        node_labels = [node.labels for node in (template.node, *nodes) if node is not None]
        failure_domains = self._state.failure_domains.get(candidate.cluster, ())
        return NodeGroup(
            id=candidate.name,
            provider=PROVIDER,
            min=bounds.min,
            max=bounds.max,
            target=size,
            instances=(*instances, *listed),
            template=template.node,
            template_error=template.problem,
            template_volumes=template.volumes,
            template_devices=template.devices,
            error=self._error(candidate),
            options=options,
            priority=group_policy.priority if group_policy else 0,
            scale_down_held=restrained.group,
            claim=self._claim(resource),
            name=resource.metadata.name,
            spot=is_interruptible(resource, machines, node_labels),
            busy=rollout(candidate.kind, resource, sets),
            zones=possible_zones(candidate.kind, resource, failure_domains, self._settings),
            size_writer=size_writer(resource),
        )

    def _warn_of_doubts(
        self,
        candidate: _Candidate,
        matches: Sequence[tuple[CapiMachine, Match]],
        listed: Sequence[Instance],
    ) -> None:
        """Add one gap, regardless of the number of Machines with an uncertain Node."""
        staying = [(machine, match) for machine, match in matches if not machine.leaving]
        doubts = [(machine.handle, match.doubt) for machine, match in staying if match.doubt]
        doubts += [(instance.id, instance.held) for instance in listed if instance.held]
        if not doubts:
            return
        name, doubt = doubts[0]
        others = len(doubts) - 1
        more = f"; {others} more of its machines are held" if others else ""
        self._warn(candidate, f"{name[:_SHOWN]} is neither removed nor discarded: {doubt}{more}")

    def _claim(self, resource: CapiResource) -> str:
        """Return what identifies the group globally. The API server assigns the uid, so it does not
        depend on the address or account through which the group is reached."""
        uid = resource.metadata.uid
        if not self._identity or not uid:
            return ""
        global_uid = f"{self._identity}/{uid}"
        return hashlib.sha256(global_uid.encode()).hexdigest()[:32]

    def _instance(
        self, machine: CapiMachine, match: Match, restrained: Restraint, revisions: Revisions
    ) -> Instance:
        instance = classify(machine, match, self._patience)
        held = instance.held
        if not held and restrained.only:
            is_other = controller(machine.metadata, SET) != restrained.only
            held = restrained.others if is_other else held
        now = self._patience.now
        mark = machine.mark(self._settings.keys) or ""
        return msgspec.structs.replace(
            instance,
            held=held,
            outdated=revisions.difference(machine, match.node),
            busy=work_on(machine),
            repaired_by=self._repairers.of(machine),
            left_mark=is_forgotten(mark, now) and not machine.leaving,
            born=born(machine, now),
        )

    def _error(self, candidate: _Candidate) -> str:
        """Return why the group must not be changed: its entry is ambiguous, its instances are
        unknown, or the topology controller would undo every change of the size."""
        namespace, cluster = candidate.cluster
        unread = self._state.missing(MACHINE, namespace)
        if not unread and candidate.kind == DEPLOYMENT:
            unread = self._state.missing(SET, namespace)
        problem = self._overrides.contested.get(candidate.name, "") or unread
        if problem:
            return problem
        entry = candidate.resource.labels.get(_TOPOLOGY.get(candidate.kind, ""), "")
        if not entry or (namespace, cluster, entry) not in self._state.topology_replicas:
            return ""
        problem = (
            f"Cluster {namespace}/{cluster} sets replicas of {entry} in spec.topology.workers "
            "and would undo every change of its size: take replicas out of that entry"
        )
        self._warn(candidate, problem)
        return problem

    def _warn(self, candidate: _Candidate, detail: str) -> None:
        metadata = candidate.resource.metadata
        name = f"{metadata.namespace}/{metadata.name}"
        self.gaps.append(MissingData(candidate.kind, detail, name=name))


# -- options in annotations

_OPTIONS = {**OPTION_READERS, "zeroormaxnodescaling": ("zero_or_max", read_flag)}


def read_options(
    annotations: Mapping[str, str], keys: CapiAnnotations
) -> tuple[GroupOptions, tuple[str, ...]]:
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


# -- bounds

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}\Z")  # Go's parser accepts no longer text


class CapiBounds(msgspec.Struct, frozen=True):
    """min <= size <= max, max at least 1."""

    min: int
    max: int


def read_bounds(
    annotations: Mapping[str, str], keys: CapiAnnotations, policy: GroupPolicy | None, place: str
) -> CapiBounds | None:
    """Return the bounds, None if the resource is not meant to be a group; raises BadInput
    for invalid bounds. A bound in the policy replaces the annotation, which is then not
    read. place: the resource."""
    least = policy.min if policy else None
    if least is None:
        least = _annotation(annotations, keys.min_size, place)
    most = policy.max if policy else None
    if most is None:
        most = _annotation(annotations, keys.max_size, place)
    if not least and not most:
        return None
    least = least or 0
    most = most or 0
    if least < 0:
        raise BadInput(place, f"the minimum {least} is negative", "write 0 or more")
    if most < least:
        problem = f"the maximum {most} is below the minimum {least}"
        raise BadInput(place, problem, f"set {keys.max_size} to {least} or more")
    return CapiBounds(least, most)


def _annotation(annotations: Mapping[str, str], key: str, place: str) -> int | None:
    text = annotations.get(key)
    if text is None:
        return None
    # int() also accepts spaces, underscores and digits of other scripts, which Go's parser refuses.
    # The length is limited so that a text of a million digits does not affect the other groups.
    if not _INTEGER.match(text) or len(text) > 19:
        raise BadInput(
            place, f"annotation {key} is {text[:40]!r}", "write a whole number in digits"
        )
    return int(text)


# -- entries of the policy


class Overrides(msgspec.Struct, frozen=True):
    """by_group: group id -> its entry. contested: group id -> why it must not be changed."""

    by_group: dict[str, GroupPolicy]
    contested: dict[str, str] = {}
    gaps: tuple[MissingData, ...] = ()


def speaks_of(group_policy: GroupPolicy, group: str) -> bool:
    """Whether an entry's id may refer to this group (`Kind/namespace/name`)."""
    return group_policy.id == group or group.endswith(f"/{group_policy.id}")


def resolve(
    entries: Sequence[GroupPolicy], groups: Iterable[str], paused: Iterable[str] = ()
) -> Overrides:
    """Match the entries to the ids of discovered resources; paused ones are included,
    although they are not groups."""
    names = sorted(groups)
    by_group: dict[str, GroupPolicy] = {}
    contested: dict[str, str] = {}
    gaps = []
    for entry in entries:
        fits = [name for name in names if speaks_of(entry, name)]
        if len(fits) > 1:
            problem = (
                f"nodeGroups entry {entry.id!r} fits {', '.join(fits)}; write one of these in full"
            )
            contested.update(dict.fromkeys(fits, problem))
            gaps.append(_gap(entry, problem))
        elif not fits:
            gaps.append(_gap(entry, _not_found(entry, names, sorted(paused))))
        elif fits[0] in by_group:
            other = by_group[fits[0]].id
            problem = f"{fits[0]} already has the entry {other!r}; remove one of the two"
            gaps.append(_gap(entry, problem))
        else:
            by_group[fits[0]] = entry
    return Overrides(by_group, contested, tuple(gaps))


def _not_found(group_policy: GroupPolicy, groups: Sequence[str], paused: Sequence[str]) -> str:
    paused_name = next((group for group in paused if speaks_of(group_policy, group)), "")
    if paused_name:
        return f"{paused_name} is paused, so it is left alone"
    shown = ", ".join(groups[:5]) or "none"
    if len(groups) > 5:
        shown += ", …"
    return (
        f"no such MachineDeployment, MachineSet or MachinePool in this cluster; there are: {shown}"
    )


def _gap(group_policy: GroupPolicy, detail: str) -> MissingData:
    return MissingData(
        "NodeGroup",
        detail,
        name=group_policy.id,
        place=f"spec.nodeGroups[provider=clusterapi, id={group_policy.id}]",
    )
