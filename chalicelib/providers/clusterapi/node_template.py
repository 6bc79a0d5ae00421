"""Builds the template of the node that a group would add, before it has any node.

Its sources are the resource's annotations, the labels and taints that Cluster API copies to the
Node and, if these are insufficient, the infrastructure object. The planner prefers a real node of
the group (docs/providers/clusterapi.md "Scale-up from zero").
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

import msgspec

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.label_syntax import TAINT_EFFECTS, is_domain, is_label_key, is_label_value
from chalicelib.model.node import HOSTNAME_LABEL, Node, Taint
from chalicelib.model.quantity import parse_amount, parse_quantity, quantity_text
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY, PODS
from chalicelib.policy.go_patterns import pattern
from chalicelib.policy.vendors.clusterapi import ARCHITECTURES
from chalicelib.providers.clusterapi.api import POOL, VERSION, ApiGroup, ServedList
from chalicelib.providers.clusterapi.models import (
    CAPACITY,
    MOST_DOMAINS,
    CapiResource,
    InfrastructureReference,
)
from chalicelib.providers.clusterapi.settings import CapiSettings
from chalicelib.providers.kit.node_template import (
    ARCH,
    BETA_INSTANCE_TYPE,
    BETA_REGION,
    BETA_ZONE,
    INSTANCE_TYPE,
    OS,
    REGION,
    ZONE,
    GroupTemplate,
    template_name,
    without_reserve,
)
from chalicelib.providers.kit.services import KubeApi

# Domains whose labels CAPI copies from the template to the Node, also of
# subdomains for those in _MANAGED.
_MANAGED_EXACT = "node-role.kubernetes.io"
_MANAGED = ("node-restriction.kubernetes.io", "node.cluster.x-k8s.io")
# Labels for which a real node of the group takes precedence over annotations.
_COPIED = (
    ARCH,
    OS,
    INSTANCE_TYPE,
    BETA_INSTANCE_TYPE,
    REGION,
    ZONE,
    BETA_REGION,
    BETA_ZONE,
)
# maximum labels of a template; maximum characters of a qualified name
_MOST_LABELS, _LONGEST_KEY = 1_000, 317
_SHOWN = 80  # characters of an invalid entry that a warning repeats


class Infrastructure(msgspec.Struct, frozen=True):
    """The data of one infrastructure object about its machines. capacity: cpu in millicores, memory
    and storage in bytes, the rest in pieces, without zeros. architecture, system: empty if missing
    or invalid. problem: why there is no capacity, empty if none was expected."""

    capacity: dict[str, int] = {}
    architecture: str = ""
    system: str = ""
    problem: str = ""
    warnings: tuple[str, ...] = ()


Infra = Callable[[CapiResource], Infrastructure]


def no_infrastructure(_: CapiResource) -> Infrastructure:
    """An `infra` without any data, for use if no infrastructure object can be read."""
    return Infrastructure()


class CapiTemplate(GroupTemplate, frozen=True):
    """volumes: CSI driver -> maximum volumes of a new node, 0 for unlimited; devices: DRA driver ->
    devices that a new node publishes."""

    volumes: dict[str, int] = msgspec.field(default_factory=dict)
    devices: dict[str, int] = msgspec.field(default_factory=dict)


def make_template(
    name: str,
    kind: str,
    resource: CapiResource,
    settings: CapiSettings,
    real_node: Node | None,
    infra: Infra = no_infrastructure,
) -> CapiTemplate:
    """Return the template of a group. name: the group's id; kind: the resource's. real_node: a Node
    of the group, if it has one, whose labels are the most reliable. The infrastructure object is
    read only if the annotations lack cpu or memory, and no ready Node shows what the next one will
    be like."""
    annotated = read_capacity(resource.annotations)
    ready = real_node.condition("Ready") if real_node is not None else None
    suffices = annotated.problem or all(
        resource_name in annotated.amounts for _, resource_name in _NEEDED
    )
    skips_infrastructure = suffices or (ready is not None and ready.status == "True")
    reported = Infrastructure() if skips_infrastructure else infra(resource)
    capacity = merged(annotated, reported.capacity, reported.problem)
    volumes, odd_volumes = read_volumes(resource.annotations)
    devices, odd_devices = read_devices(resource.annotations, annotated.devices)
    taints, odd_taints = template_taints(resource)
    odd_labels = _annotated_labels(resource)[1]
    warnings = (
        capacity.warnings + reported.warnings + odd_volumes + odd_devices + odd_labels + odd_taints
    )
    if capacity.problem:
        return CapiTemplate(None, capacity.problem, warnings, volumes, devices)
    node_name = template_name(name)
    labels = template_labels(node_name, kind, resource, settings, real_node, reported)
    node = Node(
        name=node_name,
        labels=labels,
        capacity=capacity.amounts,
        allocatable=without_reserve(capacity.amounts, settings.reserve),
        taints=taints,
    )
    return CapiTemplate(node, "", warnings, volumes, devices)


def template_labels(
    name: str,
    kind: str,
    resource: CapiResource,
    settings: CapiSettings,
    real_node: Node | None,
    infrastructure: Infrastructure,
) -> dict[str, str]:
    """Return the labels; later sources take precedence. The sources are defaults and the zone of a
    single failure domain, the infrastructure object, the labels that CAPI copies, the `labels`
    annotation, and a real node."""
    labels = {ARCH: settings.scale_zero_default_arch, OS: "linux", HOSTNAME_LABEL: name}
    if settings.zone_from_failure_domain and (zone := failure_domain(kind, resource)):
        labels[ZONE] = zone
    labels.update(
        {
            key: value
            for key, value in ((ARCH, infrastructure.architecture), (OS, infrastructure.system))
            if value
        }
    )
    labels.update(_propagated_labels(resource, settings.sync_machine_labels))
    labels.update(_annotated_labels(resource)[0])
    if real_node is not None:
        labels.update({key: real_node.labels[key] for key in _COPIED if real_node.labels.get(key)})
    return labels


def _annotated_labels(resource: CapiResource) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the labels of the annotation `labels`, and a warning about each entry that
    cannot be a Node's label."""
    labels: dict[str, str] = {}
    warnings = []
    for text in _entries(resource.annotations.get(CAPACITY + "labels", "")):
        key, equals, value = (part.strip() for part in text.partition("="))
        if equals and is_label_key(key) and is_label_value(value):
            labels[key] = value
        else:
            warnings.append(
                f"annotation {CAPACITY}labels: {text[:_SHOWN]!r} is not a label; write key=value"
            )
    return labels, tuple(warnings)


def failure_domain(kind: str, resource: CapiResource) -> str:
    """Return the failure domain of all new Machines of a resource, empty if there are several or
    none. Infrastructure providers of clouds with zones name a failure domain after its zone; if one
    does not, the setting that enables this must be turned off."""
    template = resource.spec.template
    if kind == POOL:
        domains = resource.spec.failure_domains or []
        only = domains[0] if len(domains) == 1 else ""
    else:
        only = (template.spec.failure_domain if template and template.spec else "") or ""
    return only if is_label_value(only) else ""


def possible_zones(
    kind: str, resource: CapiResource, cluster_domains: Sequence[str], settings: CapiSettings
) -> tuple[str, ...]:
    """Return the zones in which a new Machine of a resource may be, if there are several: those of
    its own failure domains, otherwise those of its Cluster. cluster_domains: of the Cluster. ""
    stands for zones whose names are unknown, because they are not those of the failure domains."""
    if failure_domain(kind, resource):
        return ()
    own = (resource.spec.failure_domains or []) if kind == POOL else []
    template = resource.spec.template
    if (
        kind != POOL
        and template is not None
        and template.spec is not None
        and template.spec.failure_domain
    ):
        return ()
    domains = sorted(
        name for name in dict.fromkeys(own or cluster_domains) if is_label_value(name)
    )[:MOST_DOMAINS]
    if len(domains) < 2:
        return ()
    return tuple(domains) if settings.zone_from_failure_domain else ("",)


def _propagated_labels(resource: CapiResource, patterns: tuple[str, ...]) -> dict[str, str]:
    template = resource.spec.template
    labels: Mapping[str, str] = (
        (template.metadata.labels or {}) if template and template.metadata else {}
    )
    if len(labels) > _MOST_LABELS:
        raise BadInput(
            "spec.template.metadata.labels",
            f"has {len(labels)} labels",
            f"keep it under {_MOST_LABELS}",
        )
    return {
        key: value
        for key, value in labels.items()
        if _is_managed(key)
        or (len(key) <= _LONGEST_KEY and any(pattern(each).found_in(key) for each in patterns))
    }


def _is_managed(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    managed = (
        domain == _MANAGED_EXACT
        or domain in _MANAGED
        or domain.endswith(tuple(f".{each}" for each in _MANAGED))
    )
    return bool(slash) and managed


def template_taints(resource: CapiResource) -> tuple[tuple[Taint, ...], tuple[str, ...]]:
    """Return taints of the template's spec, then of the `taints` annotation, which replace those of
    the same key and effect. A taint that is set only while a node starts is left out, because it is
    gone when pods arrive. The taints come with warnings about invalid entries of the annotation."""
    taints: dict[tuple[str, str], Taint] = {}
    warnings = []
    template = resource.spec.template
    for taint in (template.spec.taints or ()) if template and template.spec else ():
        if taint.propagation != "OnInitialization" and taint.effect in TAINT_EFFECTS:
            taints[taint.key, taint.effect] = Taint(taint.key, taint.effect, taint.value or "")
    for text in _entries(resource.annotations.get(CAPACITY + "taints", "")):
        if parsed := parse_taint(text):
            taints[parsed.key, parsed.effect] = parsed
        else:
            form = "is not a taint; write key=value:NoSchedule"
            warnings.append(f"annotation {CAPACITY}taints: {text[:_SHOWN]!r} {form}")
    return tuple(taints.values()), tuple(warnings)


def _entries(text: str) -> Iterator[str]:
    """Return the entries of a list that is separated by commas, without blanks around them."""
    return (entry for part in text.split(",") if (entry := part.strip()))


def parse_taint(text: str) -> Taint | None:
    """Parse `key=value:Effect`, `key=:Effect` or `key:Effect`; None for anything else,
    including an unknown effect."""
    body, _, effect = (part.strip() for part in text.partition(":"))
    key, _, value = (part.strip() for part in body.partition("="))
    if ":" in effect or "=" in value or effect not in TAINT_EFFECTS:
        return None
    return Taint(key, effect, value) if is_label_key(key) and is_label_value(value) else None


# -- capacity One unreadable annotation makes the whole capacity unusable, as in upstream, because a
# plan must not use an incomplete machine. An invalid value in the infrastructure object affects
# only its own entry, because the user cannot correct it.

DEFAULT_PODS = 110
_QUANTITIES = {"cpu": CPU, "memory": MEMORY, "ephemeral-disk": EPHEMERAL}
_NEEDED = (("cpu", CPU), ("memory", MEMORY))
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}\Z")


class Capacity(msgspec.Struct, frozen=True):
    """amounts: cpu in millicores, memory and storage in bytes, the rest in pieces. devices: the
    gpu-count, 0 for none. problem: why no template can be built."""

    amounts: dict[str, int]
    devices: int = 0
    problem: str = ""
    warnings: tuple[str, ...] = ()


def read_capacity(annotations: Mapping[str, str]) -> Capacity:
    """Return the capacity in the annotations, with a problem if one of them cannot be read.
    Absent, empty and zero all mean "not given"; a negative amount is skipped with a warning.
    Blanks around a value do not count."""
    amounts: dict[str, int] = {}
    warnings: list[str] = []
    try:
        for name, resource in _QUANTITIES.items():
            amounts[resource] = _amount(annotations, name, warnings, resource)
        devices = _amount(annotations, "gpu-count", warnings)
        if kind := annotations.get(CAPACITY + "gpu-type", "").strip():
            if kind in {CPU, MEMORY, EPHEMERAL, PODS}:
                remedy = "name the resource that pods ask for, such as nvidia.com/gpu"
                raise BadInput(
                    f"annotation {CAPACITY}gpu-type", f"{kind!r} is not a device", remedy
                )
            amounts[kind] = devices
        amounts[PODS] = _amount(annotations, "maxPods", warnings)
    except BadInput as bad:
        return Capacity({}, 0, str(bad), tuple(warnings))
    return Capacity(
        {name: amount for name, amount in amounts.items() if amount}, devices, "", tuple(warnings)
    )


def merged(
    annotated_capacity: Capacity, infrastructure: Mapping[str, int], hint: str = ""
) -> Capacity:
    """Return the complete capacity, per resource from the annotation before the infrastructure
    object; 110 pods by default. It has a problem if cpu or memory is missing. hint: why the
    infrastructure object gave nothing."""
    if annotated_capacity.problem:
        return annotated_capacity
    amounts = {PODS: DEFAULT_PODS, **infrastructure, **annotated_capacity.amounts}
    missing = [CAPACITY + name for name, resource in _NEEDED if not amounts.get(resource)]
    problem = (
        f"nothing says what a new node would offer; set {' and '.join(missing)}" if missing else ""
    )
    if missing and hint:
        problem = f"{problem} ({hint})"
    return msgspec.structs.replace(annotated_capacity, amounts=amounts, problem=problem)


def _amount(
    annotations: Mapping[str, str], name: str, warnings: list[str], resource: str = ""
) -> int:
    """Return the amount in an annotation: a quantity of the resource, or a whole
    number. A negative one is 0."""
    text, place = annotations.get(CAPACITY + name, "").strip(), f"annotation {CAPACITY}{name}"
    if not text:
        return 0
    if resource:
        try:
            amount = parse_quantity(text, milli=resource == CPU)
        except BadInput as bad:
            raise BadInput(place, bad.problem, bad.remedy) from None
    elif _INTEGER.match(text):
        amount = int(text)
    else:
        raise BadInput(place, f"{text[:40]!r} is not a whole number", "write it in digits")
    if amount < 0:
        warnings.append(f"{place} is negative and was left out")
    return max(0, amount)


# -- volumes and devices, which are annotations because a Node that does not exist has no
# CSINode and no ResourceSlices

_LIMIT = re.compile(r"\+?[0-9]{1,10}\Z")
_LARGEST = 2**31 - 1


def read_volumes(annotations: Mapping[str, str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return CSI driver -> maximum volumes, 0 for unlimited, and a sentence about each
    invalid entry of `csi-driver`. Entries and their halves are trimmed; of two entries for
    one driver the last applies."""
    limits: dict[str, int] = {}
    warnings = []
    for entry in annotations.get(CAPACITY + "csi-driver", "").split(","):
        driver, _, limit = (part.strip() for part in entry.partition("="))
        if driver and _LIMIT.match(limit) and int(limit) <= _LARGEST:
            limits[driver] = int(limit)
        elif entry.strip():
            warnings.append(
                f"annotation {CAPACITY}csi-driver: {entry[:80]!r} was left out; write driver=limit"
            )
    return limits, tuple(warnings)


def read_devices(
    annotations: Mapping[str, str], count: int
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return DRA driver -> devices that a new node publishes; empty without a driver or a
    count. count: gpu-count. They are in one ResourceSlice of the node's own pool, which is
    complete from the start."""
    driver = annotations.get(CAPACITY + "dra-driver", "").strip()
    if not driver or count <= 0:
        return {}, ()
    if not is_domain(driver):
        return {}, (
            f"annotation {CAPACITY}dra-driver: {driver[:80]!r} is not the name of a driver",
        )
    twice = annotations.get(CAPACITY + "gpu-type", "")
    note = (
        f"annotations {CAPACITY}gpu-type and dra-driver both count the devices; keep the one that "
        "pods ask for"
    )
    return {driver: count}, (note,) if twice else ()


# Seconds of waiting that one pass may spend here. A prompt response does not count, otherwise a
# large fleet would use up the time.
_PATIENCE, _PROMPT = 2.0, 0.1
_LONGEST_ANSWER = 1.0
_SYSTEM = re.compile(r"[a-z0-9]{1,63}\Z")
_MOST_WARNINGS = 5  # per object; further ones would add no information

T = TypeVar("T")


# -- infrastructure objects A machine template may carry the capacity of its machines in its status
# (Cluster API provider contract). It is read only if no other source has the same information, one
# object at a time. Any failure means "no capacity from there": a missing permission or a slow API
# server must neither delay a pass nor hide a group. The object belongs to another project and its
# fields are optional, so all of them are validated: an invalid entry does not affect the others.


class _TimedClient(Protocol):
    """The cluster's client with a time limit per call."""

    def request(
        self, method: str, path: str, *, timeout: tuple[float, float], attempts: int
    ) -> bytes:
        """Send one request and return the response body; timeout: (connect, read)
        in seconds, per attempt."""


class _NoAnswer(OutscalerError):
    """A request without a usable response; its text names request and reason. status:
    HTTP's, 0 without a response."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class InfrastructureReader:
    """Reads infrastructure objects for one pass; data of a whole group, version or kind is
    requested once. kube: the management cluster's client, with `timeout=(connect, read)`. now:
    seconds, of which only differences count. After two seconds of waiting in total no further
    request is sent."""

    def __init__(self, kube: KubeApi, now: Callable[[], float] = time.monotonic) -> None:
        self._kube, self._now = cast(_TimedClient, kube), now
        self._left = _PATIENCE
        self._answers: dict[str, bytes | _NoAnswer] = {}
        self._refused: dict[str, _NoAnswer] = {}

    def of(self, resource: CapiResource) -> Infrastructure:
        """Return the data of the object behind spec.template.spec.infrastructureRef, in
        the resource's own namespace. Machine templates and infrastructure pools have the
        same contract. Never raises."""
        template = resource.spec.template
        reference = template.spec.infrastructure_ref if template and template.spec else None
        if reference is None:
            return Infrastructure()
        try:
            where, path = self._place(reference, resource.metadata.namespace)
            return read_status(self._answer(path), where)
        except _NoAnswer as problem:
            return Infrastructure(problem=str(problem))

    def _place(self, reference: InfrastructureReference, namespace: str) -> tuple[str, str]:
        """Return the object's name for messages, and its path. References of v1beta1 name a
        version, those of v1beta2 a group."""
        group, _, version = reference.api_version.rpartition("/")
        group = group or reference.api_group
        for field, value, usable in (
            ("kind", reference.kind, reference.kind.isalnum()),
            ("name", reference.name, is_domain(reference.name)),
            ("apiGroup", group, is_domain(group)),
        ):
            if not usable:
                raise _NoAnswer(
                    f"spec.template.spec.infrastructureRef has no usable {field}: {value!r}"
                )
        where, versions = f"{reference.kind} {namespace}/{reference.name}", [version]
        if not reference.api_version:
            versions = [
                each.version for each in self._decoded(f"/apis/{group}", ApiGroup).versions or ()
            ]
        for candidate in filter(VERSION.match, versions):
            # the plural name under which a version serves a kind, according to the server
            for served in self._decoded(f"/apis/{group}/{candidate}", ServedList).resources or ():
                if served.kind == reference.kind and is_domain(served.name):
                    return (
                        where,
                        (
                            f"/apis/{group}/{candidate}/namespaces/{namespace}/{served.name}/"
                            f"{reference.name}"
                        ),
                    )
        raise _NoAnswer(
            f"{where}: the cluster serves no such kind in {reference.api_version or group}"
        )

    def _decoded(self, path: str, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(self._answer(path), type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise _NoAnswer(f"{path}: the API server's answer cannot be read") from None

    def _answer(self, path: str) -> bytes:
        """Return a response, or raise why there is none, requested once per pass. A refusal applies
        to all objects of the same kind."""
        folder = path.rpartition("/")[0]
        answer = self._refused.get(folder) or self._answers.get(path)
        if answer is None:
            answer = self._answers[path] = self._request(path)
            if isinstance(answer, _NoAnswer) and answer.status == 403:
                self._refused[folder] = answer
        if isinstance(answer, _NoAnswer):
            raise answer
        return answer

    def _request(self, path: str) -> bytes | _NoAnswer:
        if self._left <= 0:
            return _NoAnswer(f"{path} was not asked for: the API server was too slow before")
        started, limit = self._now(), min(_LONGEST_ANSWER, self._left)
        try:
            return self._kube.request("GET", path, timeout=(limit, limit), attempts=1)
        except OutscalerError as error:
            return _NoAnswer(f"GET {path}: {error}", int(getattr(error, "status", 0) or 0))
        finally:
            self._left -= max(0.0, self._now() - started - _PROMPT)


def read_status(body: bytes, where: str) -> Infrastructure:
    """Read status.capacity and status.nodeInfo of an object as the API sent it; never raises.
    where: its name in texts."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Infrastructure(
            problem=f"{where} cannot be read: the answer is not the JSON of an object"
        )
    status = _part(document, "status")
    amounts: dict[str, int] = {}
    warnings = []
    for name, raw in _part(status, "capacity").items():
        try:
            amounts[name] = _reported_amount(name, raw)
        except BadInput as bad:
            warnings.append(
                f"{where}: status.capacity {name[:80]!r} was left out: {bad.problem[:80]}"
            )
    capacity = {name: amount for name, amount in amounts.items() if amount}
    node_info = _part(status, "nodeInfo")
    architecture, system = node_info.get("architecture"), node_info.get("operatingSystem")
    return Infrastructure(
        capacity=capacity,
        architecture=architecture if architecture in ARCHITECTURES else "",
        system=system if isinstance(system, str) and _SYSTEM.match(system) else "",
        problem="" if capacity else f"{where} has no status.capacity",
        warnings=tuple(warnings[:_MOST_WARNINGS]),
    )


def _part(document: Any, key: str) -> dict[str, Any]:
    """Return a nested object; empty if it is missing or of another type."""
    part = document.get(key) if isinstance(document, dict) else None
    return part if isinstance(part, dict) else {}


def _reported_amount(name: str, raw: object) -> int:
    if not is_label_key(name):
        raise BadInput(name, "that is not the name of a resource")
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        raise BadInput(name, "it is neither a whole number nor a quantity")
    return parse_amount(name, quantity_text(raw))
