"""The used types of Exoscale's API v2, which omits empty lists."""

from __future__ import annotations

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=2**20)]  # maximum of a disk's GiB or a node's pods
Name = Annotated[str, msgspec.Meta(max_length=300)]
NO_SIZE = -1
"""Stands for the size of a pool whose description in a list cannot be understood (decoding.py)."""


class Ref(msgspec.Struct, frozen=True):
    """A reference to another object by id."""

    id: Name = ""


class Manager(msgspec.Struct, frozen=True):
    """The owner of an object: type `instance-pool` of an instance, `sks-nodepool` of a pool."""

    id: Name = ""
    type: Name = ""


class ExoscaleInstance(msgspec.Struct, frozen=True, rename="kebab"):
    """A machine. created_at: ISO 8601; disk_size: GiB."""

    id: str
    name: Name = ""
    state: Name = ""
    created_at: str = ""
    instance_type: Ref = Ref()
    disk_size: Count = 0
    manager: Manager | None = None


class InstancePool(msgspec.Struct, frozen=True, rename="kebab"):
    """A pool of machines; those of SKS have a manager and are changed only through their Nodepool."""

    id: str
    name: Name = ""
    state: Name = ""
    size: int = 0
    min_available: Count = 0
    disk_size: Count = 0
    instance_prefix: Name = ""
    instance_type: Ref = Ref()
    template: Ref = Ref()
    instances: tuple[Ref, ...] = ()
    manager: Manager | None = None
    labels: dict[str, str] | None = None


class ExoscaleTaint(msgspec.Struct, frozen=True):
    """A taint of a Nodepool, stored under its key."""

    value: str = ""
    effect: str = ""


class Nodepool(msgspec.Struct, frozen=True, rename="kebab"):
    """A Nodepool of an SKS cluster. kubelet_max_pods 0: the default."""

    id: str
    name: Name = ""
    state: Name = ""
    size: int = 0
    instance_pool: Ref = Ref()
    instance_type: Ref = Ref()
    disk_size: Count = 0
    kubelet_max_pods: Count = 0
    labels: dict[str, str] | None = None
    taints: dict[str, ExoscaleTaint] | None = None


class SksCluster(msgspec.Struct, frozen=True):
    """A managed cluster with its Nodepools."""

    id: str
    name: Name = ""
    state: Name = ""
    nodepools: tuple[Nodepool, ...] = ()


class Quota(msgspec.Struct, frozen=True):
    """The quota of the whole organisation. limit -1: unlimited."""

    resource: str = ""
    usage: int = 0
    limit: int = -1


class InstanceType(msgspec.Struct, frozen=True):
    """memory: bytes; gpus: omitted if there are none."""

    id: str
    family: Name = ""
    size: Name = ""
    cpus: int = 0
    memory: int = 0
    gpus: int = 0
    authorized: bool = True
    zones: tuple[str, ...] = ()


class Reference(msgspec.Struct, frozen=True):
    """The subject of an operation."""

    id: str = ""
    link: str = ""
    command: str = ""


class Work(msgspec.Struct, frozen=True):
    """The vendor's asynchronous operation, called work to distinguish it from Outscaler's operations.

    state: pending, success, failure, timeout."""

    id: str = ""
    state: str = ""
    reason: str = ""
    message: str = ""
    reference: Reference | None = None
