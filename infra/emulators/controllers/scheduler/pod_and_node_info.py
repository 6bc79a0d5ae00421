"""Parsed forms of pods and nodes for a scheduler.

The raw objects are deep, mostly irrelevant, and each pod is checked against every node. A `Reader`
caches by uid and resourceVersion, so an unchanged object is never parsed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from chalicelib.model.quantity import parse_amount
from infra.emulators.controllers.scheduler.score_formulas import UNASKED
from infra.emulators.controllers.scheduler.selectors import (
    Expression,
    NodeTerm,
    Selector,
    SelectorTaint,
    Toleration,
    pairs,
    read_node_term,
    read_node_terms,
    read_selector,
    read_tolerations,
)

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

Json = Mapping[str, Any]
Amounts = dict[str, int]


def read_amounts(raw: Json | None) -> Amounts:
    """Read a resource list in integers: millicores for cpu, otherwise bytes or counts."""
    return {name: parse_amount(name, str(amount)) for name, amount in (raw or {}).items()}


def _larger(amounts: Amounts, other_amounts: Amounts) -> Amounts:
    return {
        name: max(amounts.get(name, 0), other_amounts.get(name, 0))
        for name in amounts | other_amounts
    }


def _sum(amounts: Amounts, other_amounts: Amounts) -> Amounts:
    return {
        name: amounts.get(name, 0) + other_amounts.get(name, 0) for name in amounts | other_amounts
    }


def _resize_infeasible(status: Json) -> bool:
    return any(
        c.get("type") == "PodResizePending" and c.get("reason") == "Infeasible"
        for c in status.get("conditions") or ()
    )


def _container_requests(
    container: Json, status: Json, granted: Mapping[str, Json], unasked: Amounts
) -> Amounts:
    """Return the container's requests; unasked: of resources that it does not request. During a
    resize, this is the larger of requested and allocated."""
    asked = _own_requests(container, status, granted)
    return {**unasked, **asked}


def _own_requests(container: Json, status: Json, granted: Mapping[str, Json]) -> Amounts:
    asked = read_amounts((container.get("resources") or {}).get("requests"))
    held = granted.get(container.get("name", ""))
    if held is None or not (held.get("allocatedResources") or held.get("resources")):
        return asked
    holding = _larger(
        read_amounts(held.get("allocatedResources")),
        read_amounts((held.get("resources") or {}).get("requests")),
    )
    return holding if _resize_infeasible(status) else _larger(asked, holding)


def is_sidecar(container: Json) -> bool:
    return container.get("restartPolicy") == "Always"


def pod_requests(pod: Json, unasked: Mapping[str, int] | None = None) -> Amounts:
    """Return max(containers + side-cars, peak of each init container with the side-cars declared
    before it), replaced by pod-level values, plus overhead. unasked: what a container counts as
    that does not request a resource."""
    missing = dict(unasked or {})
    spec, status = pod["spec"], pod.get("status") or {}
    granted = {
        s["name"]: s
        for kind in ("containerStatuses", "initContainerStatuses")
        for s in status.get(kind) or ()
    }
    steady: Amounts = {}
    for container in spec.get("containers") or ():
        steady = _sum(steady, _container_requests(container, status, granted, missing))
    beside: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        asked = _container_requests(container, status, granted, missing)
        if is_sidecar(container):
            steady, beside = _sum(steady, asked), _sum(beside, asked)
            peak = _larger(peak, beside)
        else:
            peak = _larger(peak, _sum(asked, beside))
    total = _larger(steady, peak)
    for name, amount in read_amounts((spec.get("resources") or {}).get("requests")).items():
        if name in {"cpu", "memory"} or name.startswith("hugepages-"):
            total[name] = amount
    return _sum(total, read_amounts(spec.get("overhead")))


class HostPort(msgspec.Struct, frozen=True):
    """A port on the node itself; ip is `0.0.0.0` for all addresses."""

    protocol: str
    ip: str
    port: int


class PodTerm(msgspec.Struct, frozen=True):
    """One required (anti-)affinity term. It applies to the named namespaces and those
    that its selector matches."""

    topology_key: str
    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector


class WeightedTerm(msgspec.Struct, frozen=True):
    """One preferred (anti-)affinity term. weight: negative for anti-affinity."""

    weight: int
    term: PodTerm


class WeightedNodeTerm(msgspec.Struct, frozen=True):
    """One preferred term of node affinity."""

    weight: int
    term: NodeTerm


class Spread(msgspec.Struct, frozen=True):
    """One topology spread constraint."""

    topology_key: str
    max_skew: int
    min_domains: int
    selector: Selector
    honor_affinity: bool
    honor_taints: bool


class PodView(msgspec.Struct, frozen=True):
    """A pod as the scheduler sees it. `node` is empty while it is unbound; `claims` are names in
    its namespace. counted_requests: requests for the score of NodeResourcesFit. spread: the
    constraints that must hold, soft_spread the others; defaults_spread: it has none of either.
    owner: kind and name of its controller. images: of its containers, init containers too."""

    name: str
    namespace: str
    uid: str
    labels: Mapping[str, str]
    node: str
    priority: int
    created: str
    scheduler: str
    gated: bool
    terminating: bool
    finished: bool
    requests: Amounts
    counted_requests: Amounts
    ports: tuple[HostPort, ...]
    tolerations: tuple[Toleration, ...]
    node_selector: tuple[Expression, ...]
    node_terms: tuple[NodeTerm, ...] | None
    affinity: tuple[PodTerm, ...]
    anti_affinity: tuple[PodTerm, ...]
    preferred_nodes: tuple[WeightedNodeTerm, ...]
    preferred_pods: tuple[WeightedTerm, ...]
    spread: tuple[Spread, ...]
    soft_spread: tuple[Spread, ...]
    defaults_spread: bool
    owner: tuple[str, str] | None
    images: tuple[str, ...]
    claims: tuple[str, ...]
    asks_devices: bool
    raw: Json


class NodeView(msgspec.Struct, frozen=True):
    """A node as the scheduler sees it. images: name -> bytes."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[SelectorTaint, ...]
    unschedulable: bool
    allocatable: Amounts
    images: Mapping[str, int]


def read_node(raw: Json) -> NodeView:
    """Read a core/v1 Node. A node without status has no capacity."""
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    return NodeView(
        name=meta["name"],
        labels=meta.get("labels") or {},
        unschedulable=bool(spec.get("unschedulable")),
        taints=tuple(
            SelectorTaint(t["key"], t.get("value") or "", t.get("effect") or "")
            for t in spec.get("taints") or ()
        ),
        allocatable=read_amounts(status.get("allocatable")),
        images={
            name: image.get("sizeBytes") or 0
            for image in status.get("images") or ()
            for name in image.get("names") or ()
        },
    )


def _ports(spec: Json) -> tuple[HostPort, ...]:
    """Return host ports. With host networking every container port is one, as
    the API server defaults it."""
    host = bool(spec.get("hostNetwork"))
    holders = [
        *(spec.get("containers") or ()),
        *(c for c in spec.get("initContainers") or () if is_sidecar(c)),
    ]
    taken = [
        (p, p.get("hostPort") or (p.get("containerPort") if host else 0))
        for c in holders
        for p in c.get("ports") or ()
    ]
    return tuple(
        HostPort(p.get("protocol") or "TCP", p.get("hostIP") or "0.0.0.0", port)
        for p, port in taken
        if port
    )


def _with_keys(selector: Selector, raw: Json, labels: Mapping[str, str]) -> Selector:
    """Merge matchLabelKeys and mismatchLabelKeys as the API server does. Keys that
    the pod lacks are ignored."""
    if selector is None:
        return None
    same = (
        Expression(k, "In", (labels[k],)) for k in raw.get("matchLabelKeys") or () if k in labels
    )
    other = (
        Expression(k, "NotIn", (labels[k],))
        for k in raw.get("mismatchLabelKeys") or ()
        if k in labels
    )
    return (*selector, *same, *other)


def _pod_term(term: Json, namespace: str, labels: Mapping[str, str]) -> PodTerm:
    named, chosen = term.get("namespaces") or (), term.get("namespaceSelector")
    own = not named and chosen is None
    return PodTerm(
        term.get("topologyKey") or "",
        _with_keys(read_selector(term.get("labelSelector")), term, labels),
        frozenset({namespace}) if own else frozenset(named),
        read_selector(chosen),
    )


def _pod_terms(raw: Json | None, namespace: str, labels: Mapping[str, str]) -> tuple[PodTerm, ...]:
    return tuple(_pod_term(term, namespace, labels) for term in (raw or {}).get(_REQUIRED) or ())


def _preferred_pods(
    affinity: Json, namespace: str, labels: Mapping[str, str]
) -> tuple[WeightedTerm, ...]:
    terms = []
    for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        for wish in (affinity.get(kind) or {}).get(_PREFERRED) or ():
            term = _pod_term(wish["podAffinityTerm"], namespace, labels)
            terms.append(WeightedTerm(sign * wish["weight"], term))
    return tuple(terms)


def _preferred_nodes(affinity: Json) -> tuple[WeightedNodeTerm, ...]:
    wishes = (affinity.get("nodeAffinity") or {}).get(_PREFERRED) or ()
    return tuple(
        WeightedNodeTerm(wish["weight"], read_node_term(wish["preference"])) for wish in wishes
    )


def _owner(meta: Json) -> tuple[str, str] | None:
    """Return kind and name of the controller."""
    owners = meta.get("ownerReferences") or ()
    return next(
        ((owner["kind"], owner["name"]) for owner in owners if owner.get("controller")), None
    )


def _images(spec: Json) -> tuple[str, ...]:
    """Return the images as nodes list them: with the tag `latest` if they name none."""
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    names = [container.get("image") or "" for container in containers]
    return tuple(name if name.rfind(":") > name.rfind("/") else f"{name}:latest" for name in names)


def _spread(spec: Json, labels: Mapping[str, str], *, soft: bool = False) -> tuple[Spread, ...]:
    return tuple(
        Spread(
            c["topologyKey"],
            c.get("maxSkew") or 1,
            c.get("minDomains") or 1,
            _with_keys(
                read_selector(c.get("labelSelector")),
                {"matchLabelKeys": c.get("matchLabelKeys")},
                labels,
            ),
            honor_affinity=c.get("nodeAffinityPolicy", "Honor") == "Honor",
            honor_taints=c.get("nodeTaintsPolicy", "Ignore") == "Honor",
        )
        for c in spec.get("topologySpreadConstraints") or ()
        if (c.get("whenUnsatisfiable") == "ScheduleAnyway") is soft
    )


def _claims(pod_name: str, spec: Json) -> tuple[str, ...]:
    """Return claim names. The claim of a generic ephemeral volume is named
    after the pod and the volume."""
    names = []
    for volume in spec.get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            names.append(volume["persistentVolumeClaim"]["claimName"])
        elif "ephemeral" in volume:
            names.append(f"{pod_name}-{volume['name']}")
    return tuple(names)


def read_pod(raw: Json) -> PodView:
    """Read a core/v1 Pod. Raises BadInput for a quantity that the API
    server would have rejected."""
    meta, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
    labels, namespace = meta.get("labels") or {}, meta.get("namespace") or "default"
    affinity = spec.get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get(_REQUIRED)
    return PodView(
        name=meta["name"],
        namespace=namespace,
        uid=meta.get("uid") or f"{namespace}/{meta['name']}",
        labels=labels,
        node=spec.get("nodeName") or "",
        priority=spec.get("priority") or 0,
        created=meta.get("creationTimestamp") or "",
        scheduler=spec.get("schedulerName") or "default-scheduler",
        gated=bool(spec.get("schedulingGates")),
        terminating=bool(meta.get("deletionTimestamp")),
        finished=status.get("phase") in {"Succeeded", "Failed"},
        requests=pod_requests(raw),
        counted_requests=pod_requests(raw, UNASKED),
        ports=_ports(spec),
        tolerations=read_tolerations(spec.get("tolerations")),
        node_selector=pairs(spec.get("nodeSelector")),
        node_terms=read_node_terms(required),
        affinity=_pod_terms(affinity.get("podAffinity"), namespace, labels),
        anti_affinity=_pod_terms(affinity.get("podAntiAffinity"), namespace, labels),
        preferred_nodes=_preferred_nodes(affinity),
        preferred_pods=_preferred_pods(affinity, namespace, labels),
        spread=_spread(spec, labels),
        soft_spread=_spread(spec, labels, soft=True),
        defaults_spread=not spec.get("topologySpreadConstraints"),
        owner=_owner(meta),
        images=_images(spec),
        claims=_claims(meta["name"], spec),
        asks_devices=bool(spec.get("resourceClaims")),
        raw=raw,
    )


View = TypeVar("View", PodView, NodeView)


class InfoReader(Generic[View]):
    """Parses objects of one kind and caches the results until the objects
    change. Not thread-safe."""

    def __init__(self, read: Callable[[Json], View]) -> None:
        self._read: Callable[[Json], View] = read
        self._known: dict[tuple[str, str], View] = {}

    def views(self, raws: Iterable[Json]) -> list[View]:
        """Return all of them, in order. Cached entries of objects that are no
        longer present are dropped."""
        known: dict[tuple[str, str], View] = {}
        views = []
        for raw in raws:
            meta = raw["metadata"]
            key = (meta["uid"], meta["resourceVersion"])
            view = self._known.get(key) or self._read(raw)
            known[key] = view
            views.append(view)
        self._known = known
        return views
