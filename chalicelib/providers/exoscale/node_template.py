"""Builds the template of the node that a pool would add, so that a Nodepool of
size 0 can be scaled up.

It does not use a running node; the planner prefers one if there is one. There is no label for the
GPU type: this vendor's nodes carry only their instance type, `gpu3.large`, and a label that only
the template had would promise pods something that no node has.

A Nodepool has labels and taints, which its nodes get. Labels of a standalone Instance Pool describe
its future nodes; its other labels belong to the cloud and are not set on nodes:

    k8s.io/cluster-autoscaler/node-template/label/KEY      = VALUE
    k8s.io/cluster-autoscaler/node-template/taint/KEY      = VALUE:EFFECT
    k8s.io/cluster-autoscaler/node-template/resources/NAME = QUANTITY

Invalid Kubernetes labels and taints are skipped with a warning.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.label_syntax import TAINT_EFFECTS, is_label_key, is_label_value
from chalicelib.model.node import Taint
from chalicelib.model.quantity import parse_amount
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY, PODS
from chalicelib.providers.exoscale.decoding import ExoscaleTaint, InstanceType
from chalicelib.providers.exoscale.provider_ids import NODEPOOL_LABEL
from chalicelib.providers.exoscale.zone import ExoscalePool
from chalicelib.providers.kit.node_template import (
    ARCH,
    GPU,
    INSTANCE_TYPE,
    OS,
    REGION,
    USUAL_PODS,
    ZONE,
    GroupTemplate,
    template_name,
    template_node,
)

_GIB = 2**30
_TEMPLATE = "k8s.io/cluster-autoscaler/node-template/"
_LABEL, _TAINT, _RESOURCE = f"{_TEMPLATE}label/", f"{_TEMPLATE}taint/", f"{_TEMPLATE}resources/"


class _Declaration(msgspec.Struct, frozen=True):
    """labels, taints and resources of new nodes; warnings: what was skipped."""

    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    resources: dict[str, int] = {}
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
) -> GroupTemplate:
    """Return the template of a group. types: instance types by id, None for an id that the vendor
    does not know; reserve: subtracted from a node's capacity, cpu in millicores and the rest in
    bytes; unread: why types could not be read. Raises nothing: what is missing is the problem of
    the template."""
    name = type_of(pool)
    if not name:
        return GroupTemplate(None, "it says no instance type")
    instance_type = types.get(name)
    if instance_type is None:
        unknown = f"there is no instance type {name}" if name in types else ""
        return GroupTemplate(None, unknown or unread or f"instance type {name} could not be read")
    if problem := _type_problem(instance_type, zone):
        return GroupTemplate(None, problem)
    nodepool = pool.nodepool
    if nodepool is not None:
        declaration = _nodepool_declaration(nodepool.labels or {}, nodepool.taints or {})
    else:
        declaration = _Declaration() if pool.is_sks else _pool_declaration(pool.pool.labels or {})
    capacity = {
        CPU: 1000 * instance_type.cpus,
        MEMORY: instance_type.memory,
        PODS: (nodepool.kubelet_max_pods if nodepool is not None else 0) or USUAL_PODS,
        EPHEMERAL: _GIB
        * ((nodepool.disk_size if nodepool is not None else 0) or pool.pool.disk_size),
        GPU: instance_type.gpus,
    }
    capacity = {
        resource: amount for resource, amount in capacity.items() if amount > 0
    } | declaration.resources
    labels = {
        **declaration.labels,
        ARCH: "amd64",
        OS: "linux",
        INSTANCE_TYPE: f"{instance_type.family}.{instance_type.size}",
        REGION: zone,
        ZONE: zone,
        **({NODEPOOL_LABEL: pool.owner} if pool.is_sks else {}),
    }
    node = template_node(template_name(pool.id), labels, capacity, reserve, declaration.taints)
    return GroupTemplate(node, "", declaration.warnings)


def _type_problem(instance_type: InstanceType, zone: str) -> str:
    name = f"{instance_type.family}.{instance_type.size}"
    rows = (
        (
            instance_type.cpus <= 0
            or instance_type.memory <= 0
            or not instance_type.family
            or not instance_type.size,
            (
                f"instance type {instance_type.id} is described without its cpus, memory, family "
                "or size"
            ),
        ),
        (
            not instance_type.authorized,
            f"the account may not have instance type {name}; ask the vendor for it",
        ),
        (
            bool(instance_type.zones) and zone not in instance_type.zones,
            f"there is no instance type {name} in {zone}; choose another for the group",
        ),
    )
    return next((text for applies, text in rows if applies), "")


def _nodepool_declaration(
    labels: Mapping[str, str], taints: Mapping[str, ExoscaleTaint]
) -> _Declaration:
    """Return what the Nodepool's nodes get: its labels, and its taints by key."""
    valid_labels = {
        key: value for key, value in labels.items() if is_label_key(key) and is_label_value(value)
    }
    valid_taints = {
        key: taint
        for key, taint in taints.items()
        if is_label_key(key) and is_label_value(taint.value) and taint.effect in TAINT_EFFECTS
    }
    skipped = [f"label {key}" for key in sorted(set(labels) - set(valid_labels))]
    skipped += [f"taint {key}" for key in sorted(set(taints) - set(valid_taints))]
    return _Declaration(
        valid_labels,
        tuple(Taint(key, taint.effect, taint.value) for key, taint in sorted(valid_taints.items())),
        {},
        tuple(
            f"{name} of the Nodepool is none for Kubernetes, so the template is without it"
            for name in skipped
        ),
    )


def _pool_declaration(labels: Mapping[str, str]) -> _Declaration:
    """Return what the labels of a standalone pool define for its nodes."""
    node_labels: dict[str, str] = {}
    taints: list[Taint] = []
    resources: dict[str, int] = {}
    warnings: list[str] = []
    for key, value in sorted(labels.items()):
        if (
            key.startswith(_LABEL)
            and is_label_key(key.removeprefix(_LABEL))
            and is_label_value(value)
        ):
            node_labels[key.removeprefix(_LABEL)] = value
        elif (
            key.startswith(_TAINT)
            and (taint := _taint(key.removeprefix(_TAINT), value)) is not None
        ):
            taints.append(taint)
        elif (
            key.startswith(_RESOURCE)
            and (amount := _amount(key.removeprefix(_RESOURCE), value)) is not None
        ):
            resources[key.removeprefix(_RESOURCE)] = amount
        elif key.startswith(_TEMPLATE):
            warnings.append(
                f"label {key}={value!r} of the pool says nothing that a node can have; correct it"
            )
    return _Declaration(node_labels, tuple(taints), resources, tuple(warnings))


def _taint(key: str, text: str) -> Taint | None:
    value, _, effect = text.strip().rpartition(":")
    return (
        Taint(key, effect, value)
        if is_label_key(key) and is_label_value(value) and effect in TAINT_EFFECTS
        else None
    )


def _amount(name: str, text: str) -> int | None:
    try:
        amount = parse_amount(name, text.strip())
    except BadInput:
        return None
    return amount if is_label_key(name) and amount >= 0 else None
