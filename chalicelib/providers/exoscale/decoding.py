"""TODO"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

import msgspec

from chalicelib.providers.errors import ProviderError, Transient, Unknown
from chalicelib.providers.exoscale.provider_ids import is_id
from chalicelib.providers.http import VendorResponse

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


T = TypeVar("T", bound=msgspec.Struct)
S = TypeVar("S", InstancePool, Nodepool)

_MOST = 2**31 - 1  # machines; a larger size is invalid
_LARGEST = 2**53  # for all other numbers; larger ones are not portable in JSON
_LONGEST = 300

# The fields kept of an item whose other fields have an unexpected structure.
_ESSENTIAL: dict[type[Any], tuple[str, ...]] = {
    ExoscaleInstance: ("id", "state", "manager"),
    InstancePool: ("id", "name", "state", "size", "instances", "manager", "instance-type", "disk-size"),
    Nodepool: ("id", "name", "state", "size", "instance-pool", "instance-type", "disk-size"),
}
_SIZED = frozenset({InstancePool, Nodepool})


def read_instances(response: VendorResponse) -> tuple[ExoscaleInstance, ...]:
    """Return the machines; empty for `{}`. Raises Unknown if the list is malformed, Transient if it is not JSON."""
    found, items = [], _listed(response, _object(response), "instances")
    for each in items:
        try:
            found.append(_thing(response, each, ExoscaleInstance))
        except Unknown:
            manager = each.get("manager") if isinstance(each, dict) else None
            found.append(ExoscaleInstance("", manager=_manager(manager)))
    times = _times(found)
    _some(response, items, tuple(each for each in found if each.id))
    return tuple(each if times[each.id.lower()] == 1 else ExoscaleInstance("", manager=each.manager) for each in found)


def read_pools(response: VendorResponse) -> tuple[InstancePool, ...]:
    """Return the pools. Raises as read_instances."""
    items = _listed(response, _object(response), "instance-pools")
    return _some(response, items, _sized(response, items, InstancePool))


def read_clusters(response: VendorResponse) -> tuple[SksCluster, ...]:
    """Return SKS clusters with their Nodepools, each decoded separately. Raises as read_list."""
    found, items = [], _listed(response, _object(response), "sks-clusters")
    for each in items:
        pools = each.pop("nodepools", []) if isinstance(each, dict) else []
        with contextlib.suppress(Unknown):
            if not isinstance(pools, list):
                raise _odd(response, "nodepools is not a list")
            nodepools = _some(response, pools, _sized(response, pools, Nodepool))
            found.append(msgspec.structs.replace(_thing(response, each, SksCluster), nodepools=nodepools))
    times = _times(found)
    return _some(response, items, tuple(each for each in found if times[each.id.lower()] == 1))


def _some(response: VendorResponse, items: list[Any], found: tuple[T, ...]) -> tuple[T, ...]:
    """Return the items; raises Unknown for a list of which nothing can be decoded."""
    if items and not found:
        raise _odd(response, "nothing in it has an id of its own")
    return found


def _sized(response: VendorResponse, items: list[Any], kind: type[S]) -> tuple[S, ...]:
    """Return the pools of a list, each id once."""
    found = []
    for each in items:
        with contextlib.suppress(Unknown):
            found.append(_one_of_many(response, each, kind))
    times = _times(found)
    once = {
        each.id.lower(): each if times[each.id.lower()] == 1 else msgspec.structs.replace(each, size=NO_SIZE)
        for each in found
    }
    return tuple(once.values())


def _times(things: Iterable[ExoscaleInstance | InstancePool | Nodepool | SksCluster]) -> Counter[str]:
    return Counter(each.id.lower() for each in things)


def _manager(said: Any) -> Manager | None:
    """Return the owner of a machine that is otherwise unreadable, if the owner can be decoded."""
    if isinstance(said, dict) and isinstance(said.get("id"), str) and is_id(said["id"]):
        return Manager(said["id"])
    return None


def read_one(response: VendorResponse, kind: type[T], wanted: str) -> T:
    """Return one item. wanted: the requested id, in lower case.

    Raises Unknown for a malformed or a different item, Transient if it is not JSON."""
    body = _object(response)
    thing = _thing(response, body, kind)
    if body["id"].lower() != wanted:
        raise _odd(response, "it is about another thing than was asked for")
    return thing


def read_quota(response: VendorResponse) -> Quota:
    """Return the account's quota. Both numbers are required, because a missing one means neither 0 nor "unlimited"."""
    body = _object(response)
    if not {"usage", "limit"} <= body.keys():
        raise _odd(response, f"it has no usage and limit, but {_names(body)}")
    quota = _converted(response, body, Quota)
    if not (0 <= quota.usage <= _LARGEST and -1 <= quota.limit <= _LARGEST):
        raise _odd(response, f"a usage of {quota.usage} and a limit of {quota.limit} cannot be")
    return quota


def read_change(response: VendorResponse) -> Work:
    """Return the operation that a change has started. Raises Transient otherwise, because the change may have been
    made."""
    try:
        body = _object(response)
        if not isinstance(body.get("state"), str) or not is_id(str(body.get("id", ""))):
            raise _odd(response, "it is not an operation")
        return _converted(response, body, Work)
    except ProviderError as error:
        raise Transient(f"{error.message}; whether the change is being made is not known", code=error.code) from None


def _object(response: VendorResponse) -> dict[str, Any]:
    """Return the body without null values."""
    body = response.read(object, _without_nulls)
    if not isinstance(body, dict):
        raise _odd(response, "it is not an object")
    return body


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _listed(response: VendorResponse, body: dict[str, Any], field: str) -> list[Any]:
    if body and (field not in body or "id" in body):  # a pool has `instances` too, but is not a list of machines
        raise _odd(response, f"it is not a list of {field}, it has {_names(body)}")
    items = body.get(field, [])
    if not isinstance(items, list):
        raise _odd(response, f"{field} is not a list")
    return items


def _thing(response: VendorResponse, said: Any, kind: type[T]) -> T:
    """Decode one item, which must have an id and a valid size."""
    if not isinstance(said, dict) or not is_id(str(said.get("id", ""))):
        raise _odd(response, "a thing in it has no id")
    try:
        thing = _converted(response, said, kind)
    except Unknown:
        essential = _ESSENTIAL.get(kind)
        if essential is None:
            raise
        thing = _converted(response, {key: said[key] for key in essential if key in said}, kind)
    if isinstance(thing, InstancePool | Nodepool) and not 0 <= thing.size <= _MOST:
        raise _odd(response, f"{said['id']} has a size that cannot be")
    if isinstance(thing, InstanceType) and not all(
        0 <= number <= _LARGEST for number in (thing.cpus, thing.memory, thing.gpus)
    ):
        raise _odd(response, f"{said['id']} has resources that cannot be")
    return thing


def _one_of_many(response: VendorResponse, said: Any, kind: type[T]) -> T:
    """Decode one item of a list. An unreadable pool keeps its readable fields and has the size NO_SIZE."""
    try:
        return _thing(response, said, kind)
    except Unknown:
        if kind not in _SIZED or not isinstance(said, dict) or not is_id(str(said.get("id", ""))):
            raise
    good = {"id": said["id"]}
    for field in _ESSENTIAL[kind]:
        try:
            msgspec.convert(good | {field: said[field]}, kind)
        except (KeyError, msgspec.ValidationError):
            continue
        good[field] = said[field]
    return msgspec.convert(good | {"size": NO_SIZE}, kind)


def _converted(response: VendorResponse, said: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(said, kind)
    except msgspec.ValidationError as error:
        raise _odd(response, str(error)) from None


def _odd(response: VendorResponse, what: str) -> Unknown:
    return Unknown(f"{response.call}: the answer has another shape than expected: {what}"[:_LONGEST], code="Shape")


def _names(body: dict[str, Any]) -> str:
    return ", ".join(sorted(body)[:5])
