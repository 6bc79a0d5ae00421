"""TODO"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.node import HOSTNAME_LABEL, Node, Taint
from chalicelib.model.quantity import parse_amount
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY, PODS
from chalicelib.providers.exoscale.decoding import ExoscaleTaint as Given
from chalicelib.providers.exoscale.decoding import InstanceType
from chalicelib.providers.exoscale.provider_ids import NODEPOOL_LABEL
from chalicelib.providers.exoscale.zone import ExoscalePool

_TEMPLATE = "k8s.io/cluster-autoscaler/node-template/"
_LABEL, _TAINT, _RESOURCE = f"{_TEMPLATE}label/", f"{_TEMPLATE}taint/", f"{_TEMPLATE}resources/"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z", re.ASCII)
_DOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\Z", re.ASCII)
_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})


class Marks(msgspec.Struct, frozen=True):
    """labels, taints and resources of new nodes; warnings: what was skipped."""

    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    resources: dict[str, int] = {}
    warnings: tuple[str, ...] = ()


def of_nodepool(labels: Mapping[str, str] | None, taints: Mapping[str, Given] | None) -> Marks:
    """Return what the Nodepool's nodes get: its labels, and its taints by key."""
    good = {key: value for key, value in (labels or {}).items() if _is_key(key) and _is_value(value)}
    bad = sorted(set(labels or {}) - set(good))
    effective = {
        key: given
        for key, given in (taints or {}).items()
        if _is_key(key) and _is_value(given.value) and given.effect in _EFFECTS
    }
    odd = sorted(set(taints or {}) - set(effective))
    warnings = (
        *(f"label {key} of the Nodepool is none for Kubernetes, so the template is without it" for key in bad),
        *(f"taint {key} of the Nodepool is none for Kubernetes, so the template is without it" for key in odd),
    )
    return Marks(
        good, tuple(Taint(key, each.effect, each.value) for key, each in sorted(effective.items())), {}, warnings
    )


def of_pool(labels: Mapping[str, str] | None) -> Marks:
    """Return what the labels of a standalone pool define for its nodes."""
    found: dict[str, str] = {}
    taints: list[Taint] = []
    resources: dict[str, int] = {}
    warnings: list[str] = []
    for key, value in sorted((labels or {}).items()):
        if key.startswith(_LABEL) and _is_key(key.removeprefix(_LABEL)) and _is_value(value):
            found[key.removeprefix(_LABEL)] = value
        elif key.startswith(_TAINT) and (taint := _taint(key.removeprefix(_TAINT), value)) is not None:
            taints.append(taint)
        elif key.startswith(_RESOURCE) and (amount := _amount(key.removeprefix(_RESOURCE), value)) is not None:
            resources[key.removeprefix(_RESOURCE)] = amount
        elif key.startswith(_TEMPLATE):
            warnings.append(f"label {key}={value!r} of the pool says nothing that a node can have; correct it")
    return Marks(found, tuple(taints), resources, tuple(warnings))


def _taint(key: str, text: str) -> Taint | None:
    value, _, effect = text.strip().rpartition(":")
    return Taint(key, effect, value) if _is_key(key) and _is_value(value) and effect in _EFFECTS else None


def _amount(name: str, text: str) -> int | None:
    try:
        amount = parse_amount(name, text.strip())
    except BadInput:
        return None
    return amount if _is_key(name) and amount >= 0 else None


def _is_key(text: str) -> bool:
    domain, slash, name = text.rpartition("/")
    return (not slash or _DOMAIN.match(domain) is not None) and _NAME.match(name) is not None


def _is_value(text: str) -> bool:
    return not text or _NAME.match(text) is not None


GPU = "nvidia.com/gpu"
_ARCH, _OS, _TYPE = "kubernetes.io/arch", "kubernetes.io/os", "node.kubernetes.io/instance-type"
_REGION, _ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
_PODS, _GIB = 110, 2**30


class ExoscaleTemplate(msgspec.Struct, frozen=True):
    """node None: the group cannot be scaled up from zero, and problem is the reason."""

    node: Node | None
    problem: str = ""
    warnings: tuple[str, ...] = ()


def type_of(pool: ExoscalePool) -> str:
    """Return the id of the instance type that the pool creates."""
    own = pool.nodepool.instance_type.id if pool.nodepool is not None else ""
    return own or pool.pool.instance_type.id


def make_template(
    pool: ExoscalePool,
    types: Mapping[str, InstanceType | None],
    zone: str,
    reserve: Mapping[str, int],
    unread: str = "",
) -> ExoscaleTemplate:
    """Return the template of a group.

    types: instance types by id; reserve: subtracted from a node's capacity; unread: why types could not be read."""
    name = type_of(pool)
    kind = types.get(name)
    problem = _problem(name, kind, known=name in types, zone=zone, unread=unread)
    if kind is None or problem:
        return ExoscaleTemplate(None, problem)
    marks = _marks(pool)
    capacity = {**_capacity(pool, kind), **marks.resources}
    host = f"template-node-for-{pool.id}"
    labels = {
        **marks.labels,
        _ARCH: "amd64",
        _OS: "linux",
        _TYPE: f"{kind.family}.{kind.size}",
        _REGION: zone,
        _ZONE: zone,
        **({NODEPOOL_LABEL: pool.owner} if pool.is_sks else {}),
        HOSTNAME_LABEL: host,
    }
    return ExoscaleTemplate(
        Node(
            name=host,
            labels=labels,
            capacity=capacity,
            taints=marks.taints,
            allocatable={resource: max(0, amount - reserve.get(resource, 0)) for resource, amount in capacity.items()},
        ),
        "",
        marks.warnings,
    )


def _problem(name: str, instance_type: InstanceType | None, *, known: bool, zone: str, unread: str) -> str:
    if not name:
        return "it says no instance type"
    if instance_type is None:
        if known:
            return f"there is no instance type {name}"
        return unread or f"instance type {name} could not be read"
    rows = (
        (
            instance_type.cpus <= 0 or instance_type.memory <= 0 or not instance_type.family or not instance_type.size,
            f"instance type {name} is described without its cpus, memory, family or size",
        ),
        (
            not instance_type.authorized,
            (
                f"the account may not have instance type {instance_type.family}.{instance_type.size}; "
                "ask the vendor for it"
            ),
        ),
        (
            bool(instance_type.zones) and zone not in instance_type.zones,
            (
                f"there is no instance type {instance_type.family}.{instance_type.size} in {zone}; "
                "choose another for the group"
            ),
        ),
    )
    return next((text for applies, text in rows if applies), "")


def _marks(pool: ExoscalePool) -> Marks:
    if pool.nodepool is not None:
        return of_nodepool(pool.nodepool.labels, pool.nodepool.taints)
    return Marks() if pool.is_sks else of_pool(pool.pool.labels)


def _capacity(pool: ExoscalePool, instance_type: InstanceType) -> dict[str, int]:
    pods, disk = (pool.nodepool.kubelet_max_pods, pool.nodepool.disk_size) if pool.nodepool is not None else (0, 0)
    capacity = {
        CPU: 1000 * instance_type.cpus,
        MEMORY: instance_type.memory,
        PODS: pods or _PODS,
        EPHEMERAL: _GIB * (disk or pool.pool.disk_size),
        GPU: instance_type.gpus,
    }
    return {resource: amount for resource, amount in capacity.items() if amount > 0}
