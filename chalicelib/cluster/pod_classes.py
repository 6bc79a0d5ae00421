"""Converts a decoded pod spec to a class: what the scheduler and the drain rules see of a pod.

It runs once per distinct spec; class_table.py recognises equal ones by their bytes. During an
in-place resize, the kubelet's allocation to a pod may be larger than its spec's requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from chalicelib.cluster import api_types
from chalicelib.cluster.api_types import amounts, node_term, node_terms, selector
from chalicelib.cluster.storage import pod_volume
from chalicelib.model.pod import (
    ANY_ADDRESS,
    HostPort,
    Owner,
    PodAffinityTerm,
    PodClass,
    PreferredTerm,
    SpreadConstraint,
    Toleration,
    Volume,
)
from chalicelib.model.resources import add, largest

_LABELS = msgspec.json.Decoder(dict[str, str] | None)
_STATUSES = msgspec.json.Decoder(list[api_types.ContainerStatus] | None)
_SPEC = msgspec.json.Decoder(api_types.PodSpec)
_OWNERS = msgspec.json.Decoder(list[api_types.OwnerReference] | None)
_POD_LEVEL = ("cpu", "memory")
_TPU = "cloud-tpus.google.com/"  # requested from a cloud, not from a node


def labels_of(raw: bytes) -> dict[str, str]:
    """Decode labels; {} for none."""
    return (_LABELS.decode(raw) or {}) if raw else {}


def make_class(
    namespace: str,
    spec: api_types.PodSpec,
    labels: dict[str, str],
    owners: bytes,
    notes: api_types.Annotations,
) -> PodClass:
    """Return a PodClass from a decoded spec; raises BadInput for a malformed quantity."""
    controller = _controller(owners)
    affinity = spec.affinity or api_types.Affinity()
    nodes = affinity.node_affinity or api_types.NodeAffinity()
    preferred = nodes.preferred_during_scheduling_ignored_during_execution or ()
    constraints = spec.topology_spread_constraints or ()
    grace = spec.termination_grace_period_seconds
    return PodClass(
        namespace=namespace,
        labels=labels,
        requests=pod_requests(spec),
        owner=controller,
        node_selector=spec.node_selector or {},
        required_affinity=node_terms(nodes.required_during_scheduling_ignored_during_execution),
        tolerations=_tolerations(spec),
        ports=_ports(spec),
        pod_affinity=_pod_terms(affinity.pod_affinity),
        pod_anti_affinity=_pod_terms(affinity.pod_anti_affinity),
        spread=_spread(constraints, "DoNotSchedule"),
        preferred_nodes=tuple(PreferredTerm(t.weight, node_term(t.preference)) for t in preferred),
        preferred_spread=_spread(constraints, "ScheduleAnyway"),
        volumes=_volumes(spec),
        resource_claims=tuple(claim.name for claim in spec.resource_claims or ()),
        gates=tuple(gate.name for gate in spec.scheduling_gates or ()),
        priority=spec.priority,
        priority_class=spec.priority_class_name,
        preemption_policy=spec.preemption_policy,
        scheduler=spec.scheduler_name,
        restart_policy=spec.restart_policy,
        grace_seconds=30.0 if grace is None else float(grace),
        host_network=spec.host_network,
        mirror=notes.mirror is not None,
        safe_to_evict=notes.safe_to_evict,
        safe_local_volumes=notes.safe_local_volumes,
        daemonset_annotation=notes.daemonset_pod,
        enable_ds_eviction=notes.enable_ds_eviction,
        scale_up_delay=notes.scale_up_delay,
        do_not_disrupt=notes.do_not_disrupt,
        deletion_cost=notes.deletion_cost,
    )


def _controller(owners: bytes) -> Owner | None:
    references = _OWNERS.decode(owners) if owners else None
    for reference in references or ():
        if reference.controller:
            return Owner(reference.kind, reference.name, reference.uid, reference.api_version)
    return None


def pod_requests(spec: api_types.PodSpec) -> dict[str, int]:
    """Return the requests as the scheduler computes them: containers and sidecars, the peak of the
    init containers, pod-level values, overhead."""
    steady: dict[str, int] = {}
    for container in spec.containers:
        _add_to(steady, _requests(container.resources))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers or ():
        own = _requests(container.resources)
        if container.restart_policy == "Always":
            _add_to(sidecars, own)
            own = dict.fromkeys(own, 0)
        for name, amount in own.items():
            peak[name] = max(peak.get(name, 0), amount + sidecars.get(name, 0))
    total = largest(add(steady, sidecars), peak)
    for name, amount in _requests(spec.resources).items():
        if name in _POD_LEVEL or name.startswith("hugepages-"):
            total[name] = amount
    total = add(total, amounts(spec.overhead))
    return {name: amount for name, amount in total.items() if amount and not name.startswith(_TPU)}


def resized_requests(spec: bytes, statuses: msgspec.Raw) -> dict[str, int]:
    """Return the requests of a running pod during an in-place resize, with each container at the
    largest of its spec, what was allocated to it and what is in force. Sidecars among the init
    containers count by their spec. Raises BadInput for a malformed quantity."""
    in_force: dict[str, dict[str, int]] = {}
    decoded_statuses = _STATUSES.decode(statuses) if statuses else None
    for status in decoded_statuses or ():
        allocated = amounts(status.allocated_resources)
        running = amounts(status.resources.requests if status.resources else None)
        in_force[status.name] = largest(allocated, running)

    def resized(container: api_types.Container) -> api_types.Container:
        needs = largest(_requests(container.resources), in_force.get(container.name, {}))
        requests: dict[str, api_types.Quantity] = {
            name: f"{amount}m" if name == "cpu" else amount for name, amount in needs.items()
        }
        resources = api_types.Requirements(requests=requests)
        return msgspec.structs.replace(container, resources=resources)

    decoded = _SPEC.decode(spec)
    containers = [resized(container) for container in decoded.containers]
    return pod_requests(msgspec.structs.replace(decoded, containers=containers))


def _add_to(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Add in place: a pod may have thousands of containers with a different resource name each."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _requests(resources: api_types.Requirements | None) -> dict[str, int]:
    """Return requests with the API server's default: a limit without a request is a request."""
    if resources is None:
        return {}
    return amounts(resources.limits) | amounts(resources.requests)


def _tolerations(spec: api_types.PodSpec) -> tuple[Toleration, ...]:
    tolerations = spec.tolerations or ()
    return tuple(Toleration(t.key, t.operator or "Equal", t.value, t.effect) for t in tolerations)


def _volumes(spec: api_types.PodSpec) -> tuple[Volume, ...]:
    volumes = spec.volumes or ()
    return tuple(pod_volume(volume) for volume in volumes if "projected" not in volume)


def _pod_terms(raw: api_types.PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
    terms: list[PodAffinityTerm] = []
    required = raw.required_during_scheduling_ignored_during_execution if raw else None
    for term in required or ():
        pods = selector(term.label_selector)
        names = tuple(term.namespaces or ())
        namespaces = selector(term.namespace_selector)
        terms.append(PodAffinityTerm(term.topology_key, pods, names, namespaces))
    return tuple(terms)


def _spread(
    raw: Iterable[api_types.ApiSpreadConstraint], when: str
) -> tuple[SpreadConstraint, ...]:
    constraints = [constraint for constraint in raw if constraint.when_unsatisfiable == when]
    return tuple(
        SpreadConstraint(
            constraint.topology_key,
            constraint.max_skew,
            selector(constraint.label_selector),
            constraint.min_domains or 1,
            tuple(constraint.match_label_keys or ()),
            constraint.node_affinity_policy or "Honor",
            constraint.node_taints_policy or "Ignore",
        )
        for constraint in constraints
    )


def _ports(spec: api_types.PodSpec) -> tuple[HostPort, ...]:
    init_containers = spec.init_containers or ()
    sidecars = [one for one in init_containers if one.restart_policy == "Always"]
    ports: list[HostPort] = []
    for container in [*spec.containers, *sidecars]:
        for port in container.ports or ():
            if port.host_port > 0:
                protocol = port.protocol or "TCP"
                address = port.host_ip or ANY_ADDRESS
                ports.append(HostPort(port.host_port, protocol, address))
    return tuple(ports)
