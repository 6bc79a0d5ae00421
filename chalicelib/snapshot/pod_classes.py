"""Converts pods to classes, once per distinct spec and not once per pod.

Two pods are of one class if the scheduler and the drain rules cannot tell them apart. Meaningless differences between
siblings are removed before the bytes are compared: the node to which a pod is bound, and the random suffix of its
service-account volume. DaemonSet pods also carry their node's name in an affinity; it is replaced, because otherwise a
cluster of 5,000 nodes would have 5,000 classes per DaemonSet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from chalicelib.model.pod import (
    ANY_ADDRESS,
    HostPort,
    Owner,
    PodAffinityTerm,
    PodClass,
    PreferredTerm,
    SpreadConstraint,
    Toleration,
)
from chalicelib.model.quantity import parse_amount, quantity_text
from chalicelib.model.resources import add, largest
from chalicelib.snapshot import api_types
from chalicelib.snapshot.input_limits import within
from chalicelib.snapshot.selectors import node_term, node_terms, selector
from chalicelib.snapshot.storage import pod_volume

_SPEC = msgspec.json.Decoder(api_types.PodSpec)
_LABELS = msgspec.json.Decoder(dict[str, str] | None)
_OWNERS = msgspec.json.Decoder(list[api_types.OwnerReference] | None)
_NO_ANNOTATIONS = api_types.Annotations()
_TOKEN_VOLUME = b"kube-api-access-"
_NAME = b'"nodeName"'
_BOUND_TO = msgspec.json.Decoder(api_types.BoundTo)
_POD_LEVEL = ("cpu", "memory")
_TPU = "cloud-tpus.google.com/"  # requested from a cloud, not from a node


class _Sibling(msgspec.Struct, frozen=True, gc=False):
    """The pattern by which siblings of a bound pod are recognised. pieces: its spec without the node's name, the first
    of them `starts` bytes long; fixed: names of nodes that may not be inserted between them."""

    cls: int
    namespace: str
    labels: msgspec.Raw
    annotations: api_types.Annotations | None
    pieces: tuple[bytes, ...]
    starts: int
    fixed: frozenset[bytes]


class ClassTable:
    """Interns pod classes. Not safe for several threads."""

    def __init__(self) -> None:
        self.classes: list[PodClass] = []
        self._by_bytes: dict[tuple[object, ...], int] = {}
        self._by_value: dict[bytes, int] = {}
        self._last: dict[bytes, _Sibling] = {}  # by the owners' raw JSON
        self._nodes: dict[bytes, str] = {}

    def bound(
        self, namespace: str, spec: bytes, labels: msgspec.Raw, owners: bytes, annotations: api_types.Annotations | None
    ) -> tuple[int, str]:
        """Return the class of a pod with this spec (raw JSON), and the name of the node to which it is bound, or "".

        Nearly every pod is a sibling of an earlier one, and their specs have the same bytes except for the node's name.
        Such specs are neither decoded nor searched again. Raises the errors of intern.
        """
        text = _without_token(spec) if _TOKEN_VOLUME in spec else spec
        last = self._last.get(owners)
        if (
            last is not None
            and last.namespace == namespace
            and last.labels == labels
            and last.annotations == annotations
        ):
            raw = text[last.starts : text.find(b'"', last.starts)]
            node = self._nodes.get(raw)
            if node is not None and raw not in last.fixed and raw.join(last.pieces) == text:
                return last.cls, node
        if _NAME not in spec:
            return self.intern(namespace, spec, bytes(labels), owners, annotations, b""), ""
        node = _BOUND_TO.decode(spec).node_name or ""
        raw = node.encode()
        cls = self.intern(namespace, spec, bytes(labels), owners, annotations, raw)
        if raw:
            node = self._nodes.setdefault(raw, node)
            if cut := _pieces(text, raw, daemon=b'"DaemonSet"' in owners):
                pieces, fixed = cut
                self._last[owners] = _Sibling(cls, namespace, labels.copy(), annotations, pieces, len(pieces[0]), fixed)
        return cls, node

    def intern(
        self,
        namespace: str,
        spec: bytes,
        labels: bytes,
        owners: bytes,
        annotations: api_types.Annotations | None,
        node: bytes,
    ) -> int:
        """Return the index of the class of a pod with this spec (raw JSON). node: the raw name of its node, or "".

        Raises msgspec.ValidationError or BadInput for an invalid spec.
        """
        if node:
            spec = _without_node(spec, node, daemon=b'"DaemonSet"' in owners)
        spec = _without_token(spec)
        notes = annotations or _NO_ANNOTATIONS
        key = (
            namespace,
            spec,
            labels,
            owners,
            notes.safe_to_evict,
            notes.safe_local_volumes,
            notes.daemonset_pod,
            notes.enable_ds_eviction,
            notes.scale_up_delay,
            notes.mirror,
        )
        found = self._by_bytes.get(key)
        if found is None:
            decoded = _SPEC.decode(spec)
            containers = len(decoded.containers) + len(decoded.init_containers or ())
            found = self.add(within(make_class(namespace, decoded, _labels(labels), owners, notes), containers))
            self._by_bytes[key] = found
        return found

    def add(self, cls: PodClass) -> int:
        """Return the index of an equal class, or of this one after adding it."""
        value = msgspec.msgpack.encode(cls, order="deterministic")
        found = self._by_value.get(value)
        if found is None:
            found = self._by_value[value] = len(self.classes)
            self.classes.append(cls)
        return found

    def at_least(self, cls: int, amounts: Mapping[str, int]) -> int:
        """Return a class that differs from another only by requesting at least this much."""
        was = self.classes[cls]
        return self.add(msgspec.structs.replace(was, requests=largest(was.requests, dict(amounts))))


def _pieces(spec: bytes, node: bytes, *, daemon: bool) -> tuple[tuple[bytes, ...], frozenset[bytes]] | None:
    """Return the parts of a spec around the node's name, and the names for which the same text would have another
    meaning.

    None if the name occurs outside nodeName and a daemon's affinity: `_without_node` would leave some of it in.
    """
    values = [match.group(1) for match in _PINNED.finditer(spec)] if daemon else []
    parts = spec.split(b'"' + node + b'"')
    if spec.count(_NAME) != 1 or values.count(node) > 1 or len(parts) != 2 + values.count(node):
        return None
    last = len(parts) - 1
    pieces = tuple((b'"' if at else b"") + part + (b'"' if at < last else b"") for at, part in enumerate(parts))
    return pieces, frozenset(values) - {node}


def _without_token(spec: bytes) -> bytes:
    """Return the spec without the random suffix of its service-account volume."""
    at = spec.find(_TOKEN_VOLUME)
    return spec if at < 0 else spec.replace(spec[at : at + len(_TOKEN_VOLUME) + 5], _TOKEN_VOLUME)


def _without_node(spec: bytes, node: bytes, *, daemon: bool) -> bytes:
    """Return the spec without its node: without the single nodeName, and without a daemon's single list that contains
    just that name.

    A spec in which these words occur more than once is not changed: it becomes a class of its own, which is only
    slower.
    """
    spec = _without(_BOUND, node, spec)
    return _without(_PINNED, node, spec) if daemon else spec


_BOUND, _PINNED = re.compile(rb'"nodeName":\s*"([^"\\]*)"'), re.compile(rb'"values":\s*\[\s*"([^"\\]*)"\s*\]')


def _without(pattern: re.Pattern[bytes], node: bytes, spec: bytes) -> bytes:
    """Return the spec with the single match of the node's name emptied."""
    found = [match.span(1) for match in pattern.finditer(spec) if match.group(1) == node]
    if len(found) != 1:
        return spec
    start, end = found[0]
    return spec[:start] + spec[end:]


def _labels(raw: bytes) -> dict[str, str]:
    return (_LABELS.decode(raw) or {}) if raw else {}


def make_class(
    namespace: str, spec: api_types.PodSpec, labels: dict[str, str], owners: bytes, notes: api_types.Annotations
) -> PodClass:
    """Return a PodClass from a decoded spec; raises BadInput for a malformed quantity."""
    affinity = spec.affinity or api_types.Affinity()
    nodes = affinity.node_affinity or api_types.NodeAffinity()
    grace = spec.termination_grace_period_seconds
    return PodClass(
        namespace=namespace,
        labels=labels,
        requests=pod_requests(spec),
        owner=_controller(owners),
        node_selector=spec.node_selector or {},
        required_affinity=node_terms(nodes.required_during_scheduling_ignored_during_execution),
        tolerations=tuple(Toleration(t.key, t.operator or "Equal", t.value, t.effect) for t in spec.tolerations or ()),
        ports=_ports(spec),
        pod_affinity=_pod_terms(affinity.pod_affinity),
        pod_anti_affinity=_pod_terms(affinity.pod_anti_affinity),
        spread=_spread(spec.topology_spread_constraints or (), "DoNotSchedule"),
        preferred_nodes=_preferred(nodes),
        preferred_spread=_spread(spec.topology_spread_constraints or (), "ScheduleAnyway"),
        volumes=tuple(pod_volume(volume) for volume in spec.volumes or () if "projected" not in volume),
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
    )


def pod_requests(spec: api_types.PodSpec) -> dict[str, int]:
    """Return the requests as the scheduler computes them: containers and sidecars, the peak of the init containers,
    pod-level values, overhead."""
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
    total = add(total, _amounts(spec.overhead))
    return {name: amount for name, amount in total.items() if amount and not name.startswith(_TPU)}


def _add_to(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Add in place: a pod may have thousands of containers with a different resource name each."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _requests(resources: api_types.Requirements | None) -> dict[str, int]:
    """Return requests with the API server's default: a limit without a request is a request."""
    if resources is None:
        return {}
    amounts = _amounts(resources.limits)
    amounts.update(_amounts(resources.requests))
    return amounts


def _amounts(raw: Mapping[str, api_types.Quantity] | None) -> dict[str, int]:
    """Parse amounts. Raises BadInput naming the resource."""
    return {name: parse_amount(name, quantity_text(value)) for name, value in (raw or {}).items()}


def _controller(raw: bytes) -> Owner | None:
    references = (_OWNERS.decode(raw) or []) if raw else []
    return next((Owner(r.kind, r.name, r.uid, r.api_version) for r in references if r.controller), None)


def _preferred(raw: api_types.NodeAffinity) -> tuple[PreferredTerm, ...]:
    terms = raw.preferred_during_scheduling_ignored_during_execution or ()
    return tuple(PreferredTerm(t.weight, node_term(t.preference)) for t in terms)


def _pod_terms(raw: api_types.PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
    terms = (raw.required_during_scheduling_ignored_during_execution if raw else None) or ()
    return tuple(
        PodAffinityTerm(
            t.topology_key, selector(t.label_selector), tuple(t.namespaces or ()), selector(t.namespace_selector)
        )
        for t in terms
    )


def _spread(raw: Iterable[api_types.ApiSpreadConstraint], when: str) -> tuple[SpreadConstraint, ...]:
    return tuple(
        SpreadConstraint(
            c.topology_key,
            c.max_skew,
            selector(c.label_selector),
            c.min_domains or 1,
            tuple(c.match_label_keys or ()),
            c.node_affinity_policy or "Honor",
            c.node_taints_policy or "Ignore",
        )
        for c in raw
        if c.when_unsatisfiable == when
    )


def _ports(spec: api_types.PodSpec) -> tuple[HostPort, ...]:
    sidecars = [c for c in spec.init_containers or () if c.restart_policy == "Always"]
    return tuple(
        HostPort(p.host_port, p.protocol or "TCP", p.host_ip or ANY_ADDRESS)
        for container in [*spec.containers, *sidecars]
        for p in container.ports or ()
        if p.host_port > 0
    )
