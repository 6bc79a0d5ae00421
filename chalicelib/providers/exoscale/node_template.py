"""Builds the template of the node that a pool would add, so that a Nodepool of size 0 can be scaled up.

It does not use a running node; the planner prefers one if there is one. There is no label for the GPU type: this
vendor's nodes carry only their instance type, `gpu3.large`, and a label that only the template had would promise pods
something that no node has.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY, PODS
from chalicelib.providers.exoscale.models import InstanceType
from chalicelib.providers.exoscale.pools import ExoscalePool
from chalicelib.providers.exoscale.provider_ids import NODEPOOL_LABEL
from chalicelib.providers.exoscale.template_labels import Marks, of_nodepool, of_pool

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
