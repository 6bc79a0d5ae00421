"""Types of Exoscale's API v2 and their lenient decoding; a malformed response must
not look like an empty one.

The vendor omits empty lists, so an unrelated response would look like an empty list, and machines
that are not listed count as gone. Therefore a response that lacks the list but contains anything
else is an error. A null value counts as omitted. An item whose less important fields cannot be
decoded keeps the important ones.

One malformed item of a list does not affect the others. A pool without a size stays in the list
(NO_SIZE), and so does a pool whose id occurs twice. A pool or a cluster without an id is left out,
and so are clusters that share an id. A machine without an id, or with another's id, stays in the
list without an id, so that its pool is known.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Annotated, Any, TypeVar

import msgspec

from chalicelib.providers.exoscale.provider_ids import is_id
from chalicelib.providers.kit.errors import ProviderError, Transient, Unknown
from chalicelib.providers.kit.http import VendorResponse

# -- types

Count = Annotated[int, msgspec.Meta(ge=0, le=2**20)]  # maximum of a disk's GiB or a node's pods
Name = Annotated[str, msgspec.Meta(max_length=300)]
NO_SIZE = -1
"""Stands for the size of a pool whose description in a list cannot be understood."""


class Ref(msgspec.Struct, frozen=True):
    """A reference to another object by id."""

    id: Name = ""


class Manager(msgspec.Struct, frozen=True):
    """The owner of an object: type `instance-pool` of an instance, `sks-nodepool` of a pool."""

    id: Name = ""
    type: Name = ""


class ExoscaleInstance(msgspec.Struct, frozen=True, rename="kebab"):
    """A machine. created_at: ISO 8601; disk_size: GiB, 0 in a list, which does not have it."""

    id: str
    name: Name = ""
    state: Name = ""
    created_at: str = ""
    instance_type: Ref = Ref()
    disk_size: Count = 0
    manager: Manager | None = None
    template: Ref = Ref()


class InstancePool(msgspec.Struct, frozen=True, rename="kebab"):
    """A pool of machines; those of SKS have a manager and are changed only through their
    Nodepool."""

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


Refs = Annotated[tuple[Ref, ...], msgspec.Meta(max_length=100)]  # documented: at most 16


class Nodepool(msgspec.Struct, frozen=True, rename="kebab"):
    """A Nodepool of an SKS cluster. kubelet_max_pods 0: the default. disk_size: GiB. created_at:
    ISO 8601. is_partial: a field could not be decoded and is empty, so a copy of the pool would
    differ from it."""

    id: str
    name: Name = ""
    state: Name = ""
    size: int = 0
    instance_pool: Ref = Ref()
    instance_type: Ref = Ref()
    template: Ref = Ref()
    disk_size: Count = 0
    kubelet_max_pods: Count = 0
    labels: dict[str, str] | None = None
    taints: dict[str, ExoscaleTaint] | None = None
    created_at: Name = ""
    description: Name = ""
    instance_prefix: Name = ""
    public_ip_assignment: Name = ""
    security_groups: Refs = ()
    private_networks: Refs = ()
    anti_affinity_groups: Refs = ()
    is_partial: bool = False


class NewNodepool(msgspec.Struct, frozen=True, omit_defaults=True, rename="kebab"):
    """A Nodepool to create; its JSON is the body of the request, without empty fields. size: at
    least 1. disk_size: GiB. kubelet_max_pods 0: the default."""

    name: str
    size: int
    disk_size: int
    instance_type: Ref
    description: str = ""
    instance_prefix: str = ""
    public_ip_assignment: str = ""
    kubelet_max_pods: int = 0
    labels: dict[str, str] = {}
    taints: dict[str, ExoscaleTaint] = {}
    security_groups: tuple[Ref, ...] = ()
    private_networks: tuple[Ref, ...] = ()
    anti_affinity_groups: tuple[Ref, ...] = ()

    @property
    def references(self) -> tuple[Ref, ...]:
        """Return all other objects that it names."""
        networks = self.security_groups + self.private_networks
        return (self.instance_type, *networks, *self.anti_affinity_groups)


class SksCluster(msgspec.Struct, frozen=True):
    """A managed cluster with its Nodepools. addons: as received; no pass needs them, so no value of
    theirs may make the cluster unreadable."""

    id: str
    name: Name = ""
    state: Name = ""
    nodepools: tuple[Nodepool, ...] = ()
    addons: Any = None

    @property
    def addon_names(self) -> frozenset[str]:
        """The programs that the vendor runs in it, as far as they are readable."""
        listed = self.addons if isinstance(self.addons, list) else []
        return frozenset(addon for addon in listed if isinstance(addon, str))


class Quota(msgspec.Struct, frozen=True):
    """The quota of the whole organisation. limit -1: unlimited."""

    resource: str = ""
    usage: int = 0
    limit: int = -1

    @property
    def left(self) -> int | None:
        """How many instances the account may still create, negative if it has too
        many; None without a limit."""
        return None if self.limit == -1 else self.limit - self.usage


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
    """The vendor's asynchronous operation, called work to distinguish it from Outscaler's
    operations. state: pending, success, failure, timeout."""

    id: str = ""
    state: str = ""
    reason: str = ""
    message: str = ""
    reference: Reference | None = None


# -- responses

T = TypeVar("T", bound=msgspec.Struct)
S = TypeVar("S", InstancePool, Nodepool)

_MOST_MACHINES = 2**31 - 1  # a larger size is invalid
_LARGEST = 2**53  # for all other numbers; larger ones are not portable in JSON

# The fields kept of an item whose other fields have an unexpected structure.
_ESSENTIAL: dict[type[Any], tuple[str, ...]] = {
    ExoscaleInstance: ("id", "state", "manager"),
    InstancePool: (
        "id",
        "name",
        "state",
        "size",
        "instances",
        "manager",
        "instance-type",
        "disk-size",
    ),
    Nodepool: ("id", "name", "state", "size", "instance-pool", "instance-type", "disk-size"),
}
_IDENTIFYING = ("labels",)  # the mark of a group that Outscaler has made is among them
# The fields that only a copy of a Nodepool needs: one that cannot be decoded must not cost the
# labels and taints.
_ONLY_COPIED = frozenset(
    {
        "created-at",
        "description",
        "instance-prefix",
        "public-ip-assignment",
        "security-groups",
        "private-networks",
        "anti-affinity-groups",
        "is-partial",
    }
)


def read_instances(response: VendorResponse) -> tuple[ExoscaleInstance, ...]:
    """Return the machines; empty for `{}`. Raises Unknown if the list is malformed,
    Transient if it is not JSON."""
    machines, items = [], _list(response, "instances")
    for item in items:
        try:
            machines.append(_decode(response, item, ExoscaleInstance))
        except Unknown:
            manager = item.get("manager") if isinstance(item, dict) else None
            known = isinstance(manager, dict) and is_id(str(manager.get("id", "")))
            machines.append(
                ExoscaleInstance("", manager=Manager(manager["id"]) if manager and known else None)
            )
    times = _count_ids(machines)
    _check_not_empty(response, items, [machine for machine in machines if machine.id])
    return tuple(
        machine if times[machine.id.lower()] == 1 else ExoscaleInstance("", manager=machine.manager)
        for machine in machines
    )


def read_pools(response: VendorResponse) -> tuple[InstancePool, ...]:
    """Return the pools. Raises as read_instances."""
    return _pools(response, _list(response, "instance-pools"), InstancePool)


def read_types(response: VendorResponse) -> tuple[InstanceType, ...]:
    """Return the instance types that can be decoded. Raises as read_instances."""
    types, items = [], _list(response, "instance-types")
    for item in items:
        with contextlib.suppress(Unknown):
            types.append(_decode(response, item, InstanceType))
    _check_not_empty(response, items, types)
    return tuple(types)


def read_clusters(response: VendorResponse) -> tuple[SksCluster, ...]:
    """Return SKS clusters with their Nodepools, each decoded separately.
    Raises as read_instances."""
    clusters, items = [], _list(response, "sks-clusters")
    for item in items:
        pools = item.pop("nodepools", []) if isinstance(item, dict) else []
        with contextlib.suppress(Unknown):
            if not isinstance(pools, list):
                raise response.shape_error("nodepools is not a list")
            nodepools = _pools(response, pools, Nodepool)
            clusters.append(
                msgspec.structs.replace(_decode(response, item, SksCluster), nodepools=nodepools)
            )
    times = _count_ids(clusters)
    clusters = [cluster for cluster in clusters if times[cluster.id.lower()] == 1]
    _check_not_empty(response, items, clusters)
    return tuple(clusters)


def _pools(response: VendorResponse, items: list[Any], kind: type[S]) -> tuple[S, ...]:
    """Return the pools of a list, each id once. An unreadable pool, and one whose id
    occurs twice, has no size."""
    pools = []
    for item in items:
        try:
            pools.append(_decode(response, item, kind))
        except Unknown:
            if isinstance(item, dict) and is_id(str(item.get("id", ""))):
                pools.append(_without_size(item, kind))
    times = _count_ids(pools)
    once = {
        pool.id.lower(): pool
        if times[pool.id.lower()] == 1
        else msgspec.structs.replace(pool, size=NO_SIZE)
        for pool in pools
    }
    _check_not_empty(response, items, once)
    return tuple(once.values())


def _without_size(item: dict[str, Any], kind: type[S]) -> S:
    """Return a pool with its readable fields and the size NO_SIZE."""
    readable = {"id": item["id"]}
    for field in (*_ESSENTIAL[kind], *_IDENTIFYING):
        try:
            msgspec.convert(readable | {field: item[field]}, kind)
        except (KeyError, msgspec.ValidationError):
            continue
        readable[field] = item[field]
    return _marked(msgspec.convert(readable | {"size": NO_SIZE}, kind))


def _count_ids(
    items: Iterable[ExoscaleInstance | InstancePool | Nodepool | SksCluster],
) -> Counter[str]:
    return Counter(item.id.lower() for item in items)


def _check_not_empty(
    response: VendorResponse, items: list[Any], decoded: Collection[object]
) -> None:
    """Raise Unknown for a list of which nothing can be decoded."""
    if items and not decoded:
        raise response.shape_error("nothing in it has an id of its own")


def read_one(response: VendorResponse, kind: type[T], id_: str) -> T:
    """Return one item. id_: the requested one, in lower case. Raises Unknown for a malformed or a
    different item, Transient if it is not JSON."""
    body = response.read_object(_without_nulls)
    item = _decode(response, body, kind)
    if body["id"].lower() != id_:
        raise response.shape_error("it is about another thing than was asked for")
    return item


def read_quota(response: VendorResponse) -> Quota:
    """Return the account's quota. Both numbers are required, because a missing one means
    neither 0 nor "unlimited"."""
    body = response.read_object(_without_nulls)
    if not {"usage", "limit"} <= body.keys():
        raise response.shape_error(f"it has no usage and limit, but {_names(body)}")
    quota = _convert(response, body, Quota)
    if not (0 <= quota.usage <= _LARGEST and -1 <= quota.limit <= _LARGEST):
        raise response.shape_error(
            f"a usage of {quota.usage} and a limit of {quota.limit} cannot be"
        )
    return quota


def read_change(response: VendorResponse) -> Work:
    """Return the operation that a change has started. Raises Transient otherwise, because the
    change may have been made."""
    try:
        body = response.read_object(_without_nulls)
        if not isinstance(body.get("state"), str) or not is_id(str(body.get("id", ""))):
            raise response.shape_error("it is not an operation")
        return _convert(response, body, Work)
    except ProviderError as error:
        raise Transient(
            f"{error.message}; whether the change is being made is not known", code=error.code
        ) from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    return [_without_nulls(member) for member in value] if isinstance(value, list) else value


def _list(response: VendorResponse, field: str) -> list[Any]:
    body = response.read_object(_without_nulls)
    # a pool has `instances` too, but is not a list of machines
    if body and (field not in body or "id" in body):
        raise response.shape_error(f"it is not a list of {field}, it has {_names(body)}")
    items = body.get(field, [])
    if not isinstance(items, list):
        raise response.shape_error(f"{field} is not a list")
    return items


def _decode(response: VendorResponse, item: Any, kind: type[T]) -> T:
    """Decode one item, which must have an id and a valid size."""
    if not isinstance(item, dict) or not is_id(str(item.get("id", ""))):
        raise response.shape_error("a thing in it has no id")
    try:
        thing = _convert(response, item, kind)
    except Unknown:
        if kind not in _ESSENTIAL:
            raise
        thing = _convert_partly(response, item, kind)
    if isinstance(thing, InstancePool | Nodepool) and not 0 <= thing.size <= _MOST_MACHINES:
        raise response.shape_error(f"{item['id']} has a size that cannot be")
    if isinstance(thing, InstanceType) and not all(
        0 <= number <= _LARGEST for number in (thing.cpus, thing.memory, thing.gpus)
    ):
        raise response.shape_error(f"{item['id']} has resources that cannot be")
    return thing


def _convert_partly(response: VendorResponse, item: dict[str, Any], kind: type[T]) -> T:
    """Decode an item of which some fields have an unexpected structure. Raises Unknown if an
    essential one has."""
    if kind is Nodepool:
        needed = {key: value for key, value in item.items() if key not in _ONLY_COPIED}
        with contextlib.suppress(Unknown):
            return _marked(_convert(response, needed, kind))
    essential = {key: item[key] for key in _ESSENTIAL[kind] if key in item}
    return _marked(_convert(response, essential, kind))


def _marked(thing: T) -> T:
    """Return a Nodepool that is marked as partial, anything else as it is."""
    return msgspec.structs.replace(thing, is_partial=True) if isinstance(thing, Nodepool) else thing


def _convert(response: VendorResponse, item: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        raise response.shape_error(str(error)) from None


def _names(body: dict[str, Any]) -> str:
    return ", ".join(sorted(body)[:5])
