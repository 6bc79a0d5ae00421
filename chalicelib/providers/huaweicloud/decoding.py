"""Decodes the vendor's responses: missing values are accepted, but a malformed response must
not look like an empty one.

Machines that are not in a list count as gone. Therefore a response without its list is an error,
and a failed page fails the whole list. A node that cannot be decoded, or has no uid, stays in its
list with an `error` and, if readable, its pool; so does a pool, because a wrong number would delete
its nodes or buy new ones. If two descriptions have one id, neither is accepted. Less important
parts (a condition, a reservation) are left out if malformed; the inputs of sizes and templates are
never guessed.

The vendor writes some numbers as text and omits empty values. A struct would therefore refuse too
much or, with every field optional, too little, so single fields are read: a missing value or null
has a default, a wrong type is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.timestamps import parse_time
from chalicelib.providers.huaweicloud.models import (
    DEFAULT_GROUP,
    DEFAULT_POOL,
    Addon,
    Autoscaling,
    CceCondition,
    CceJob,
    CceNode,
    CceTaint,
    Flavor,
    NodePool,
    NodeTemplate,
    ScaleGroup,
    is_spot,
)
from chalicelib.providers.huaweicloud.provider_ids import is_id, is_job
from chalicelib.providers.kit.errors import Transient, Unknown
from chalicelib.providers.kit.http import VendorResponse
from chalicelib.providers.kit.price_reader import currency_code, price_of

T = TypeVar("T")
Object = dict[str, Any]

_MOST = 2**31 - 1  # the largest number that can be one of nodes, minutes or cores
_LONGEST = 300
_MONEY = 1  # the measure_id of amounts in units of the currency
_LONGEST_NAME = 128
_LONGEST_TEXT = 1000  # maximum characters of a node's name, flavour or address
_POOL_ANNOTATION = "kubernetes.io/node-pool.id"
_WHOLE = re.compile(r"-?[0-9]{1,10}\Z", re.ASCII)
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))? \+0000(?: UTC)?\Z", re.ASCII)
_AZ_STATE = re.compile(r"\s*([^\s(),]+)\(([^()]*)\)\s*\Z")
_ALIAS = re.compile(r"\s*([A-Za-z0-9._-]+):([0-9]{1,3})\s*\Z", re.ASCII)

# -- fields


class DecodeError(ValueError):
    """A field with an invalid value; its text names the field."""


def _value(thing: Object, name: str, kind: type[T], default: T, problem: str) -> T:
    value = thing.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise DecodeError(f"{name} is {problem}")
    return value


def _part(thing: Object, name: str) -> Object:
    """Return an object; empty if it is missing. Raises DecodeError, as all readers of fields."""
    return _value(thing, name, dict, {}, "not an object")


def _parts(thing: Object, name: str) -> list[Object]:
    """Return a list of objects; empty if it is missing."""
    parts: list[Any] = _value(thing, name, list, [], "not a list of objects")
    if not all(isinstance(part, dict) for part in parts):
        raise DecodeError(f"{name} is not a list of objects")
    return parts


def _text(thing: Object, name: str) -> str:
    """Return a text; "" if it is missing."""
    return _value(thing, name, str, "", "not a string")


def _truth(thing: Object, name: str) -> bool:
    """Return a boolean; false if it is missing."""
    return _value(thing, name, bool, False, "neither true nor false")  # noqa: FBT003


def _whole(thing: Object, name: str) -> int | None:
    """Return an integer, which may be text; None if it is missing."""
    value = thing.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, str) and _WHOLE.match(value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MOST:
        raise DecodeError(f"{name} is not an integer")
    return value


def _number(thing: Object, name: str, default: int = 0) -> int:
    """Return an integer from 0 up; the default if it is missing."""
    number = _whole(thing, name)
    if number is None:
        return default
    if number < 0:
        raise DecodeError(f"{name} is negative")
    return number


def _bound(thing: Object, name: str) -> int | None:
    """Return a number, None if it is not set: missing or negative (the vendor's -1)."""
    number = _whole(thing, name)
    return number if number is not None and number >= 0 else None


def _short_text(thing: Object, name: str) -> str:
    """Return a text of valid length; "" for anything else."""
    value = thing.get(name)
    return value if isinstance(value, str) and len(value) <= _LONGEST_TEXT else ""


def instant(value: object) -> float:
    """Return a time in the vendor's format in epoch seconds; 0.0 for anything else. The format is
    `2020-02-01 08:20:49.944664515 +0000 UTC` or RFC 3339."""
    if not isinstance(value, str):
        return 0.0
    try:
        if match := _STAMP.match(value):
            seconds = (
                datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
            )
            return seconds + (float(f"0.{match[2]}") if match[2] else 0.0)
        return parse_time(value)
    except (ValueError, BadInput):
        return 0.0


def price_in(response: VendorResponse, product: str, currency: str) -> tuple[float, str] | None:
    """Return price and currency of a product in BSS's answer: after the account's discounts,
    otherwise the list price. None if either is missing, or if the amount is in another unit than
    the currency. currency: where the answer does not say it."""
    body = response.read_object()
    rows = body.get("product_rating_results")
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    row = next((row for row in rows if row.get("id") == product), {} if rows else body)
    price = price_of(row.get("amount")) or price_of(row.get("official_website_amount"))
    code = currency_code(body.get("currency") or currency)
    in_money = row.get("measure_id") in (None, _MONEY)
    return (price, code) if price and code and in_money else None


# -- responses


@contextmanager
def _shape_errors(response: VendorResponse) -> Iterator[None]:
    """Raise Unknown in place of DecodeError."""
    try:
        yield
    except DecodeError as error:
        raise response.shape_error(str(error)) from None


def _items(response: VendorResponse, body: Object) -> list[Any]:
    """Return the items of a list; an empty list may omit them."""
    items = body.get("items")
    if items is None and str(body.get("kind", "")).lower().endswith("list"):
        return []
    if not isinstance(items, list):
        raise response.shape_error("it has no list of items")
    return items


def pools_of(response: VendorResponse) -> tuple[NodePool, ...]:
    """Return all pools except the default one; one that cannot be decoded has an `error`.
    Raises Unknown, Transient."""
    pools = [
        read_pool(item)
        for item in _items(response, response.read_object())
        if not _is_default_pool(item)
    ]
    times = Counter(pool.id for pool in pools)
    twice = {
        pool.id: NodePool(pool.id, pool.name, error="the vendor describes its uid more than once")
        for pool in pools
        if pool.id and times[pool.id] > 1
    }
    return (*(pool for pool in pools if pool.id not in twice), *twice.values())


def pool_of(response: VendorResponse, uid: str) -> NodePool:
    """Return one pool. uid: the requested one. Raises Unknown for one that cannot be
    decoded, or a different one."""
    pool = read_pool(response.read_object())
    if pool.error:
        raise response.shape_error(pool.error)
    _check_uid(response, pool.id, uid)
    return pool


def _check_uid(response: VendorResponse, uid: str, requested: str) -> None:
    if uid != requested:
        raise response.shape_error("it is about another thing than was asked for")


def nodes_of(response: VendorResponse) -> tuple[tuple[CceNode, ...], str]:
    """Return a page of nodes and the marker of the next, "" on the last (old regions have no
    paging). Raises Unknown for a page of which nothing can be decoded."""
    body = response.read_object()
    with _shape_errors(response):
        nodes = tuple(_node_or_error(item) for item in _items(response, body))
        if nodes and all(node.error for node in nodes):
            raise DecodeError(nodes[0].error)
        return nodes, _text(_part(body, "pageInfo"), "nextMarker")


def node_of(response: VendorResponse, uid: str) -> CceNode:
    """Return one node. Raises as pool_of."""
    with _shape_errors(response):
        node = _node(response.read_object())
    _check_uid(response, node.id, uid)
    return node


def job_of(response: VendorResponse, uid: str) -> CceJob:
    """Return one job. Raises as pool_of."""
    body = response.read_object()
    with _shape_errors(response):
        status = _part(body, "status")
        return CceJob(
            uid, _text(status, "phase"), _text(status, "reason"), _text(_part(body, "spec"), "type")
        )


def server_job_of(response: VendorResponse, uid: str) -> CceJob:
    """Return one job of ECS. Raises Unknown for one that cannot be decoded."""
    body = response.read_object()
    with _shape_errors(response):
        reason = ": ".join(
            filter(None, (_short_text(body, "error_code"), _short_text(body, "fail_reason")))
        )
        return CceJob(uid, _text(body, "status"), reason[:_LONGEST], _short_text(body, "job_type"))


def phase_of(response: VendorResponse) -> str:
    """Return a cluster's phase. Raises Unknown if there is none."""
    with _shape_errors(response):
        phase = _text(_part(response.read_object(), "status"), "phase")
        if not phase:
            raise DecodeError("status.phase is missing")
        return phase


def addons_of(response: VendorResponse) -> tuple[Addon, ...]:
    """Return the add-ons that have a name."""
    addons = []
    for item in _items(response, response.read_object()):
        try:
            spec = _part(item, "spec")
            custom = _part(spec, "values").get("custom")
            status = _text(_part(item, "status"), "status")
            addon = Addon(
                _text(spec, "addonTemplateName"), status, custom if isinstance(custom, dict) else {}
            )
        except (DecodeError, AttributeError):
            continue
        if addon.template:
            addons.append(addon)
    return tuple(addons)


def flavors_of(response: VendorResponse) -> tuple[tuple[Flavor, ...], int, str]:
    """Return a page of flavours, their number on the page, and the last one's id. A flavour without
    cores or memory is left out."""
    items = response.read_object().get("flavors")
    if not isinstance(items, list):
        raise response.shape_error("it has no list of flavors")
    last = items[-1].get("id") if items and isinstance(items[-1], dict) else ""
    return (
        tuple(filter(None, map(_flavor, items))),
        len(items),
        last if isinstance(last, str) else "",
    )


def job_id_of(response: VendorResponse) -> str:
    """Return the job of an accepted deletion; "" if the body names none (the body
    may even be an error's)."""
    try:
        job = response.read_object()["status"]["jobID"]
    except (Transient, Unknown, KeyError, TypeError):
        return ""
    return job if isinstance(job, str) and is_id(job) else ""


def server_job_id_of(response: VendorResponse) -> str:
    """Return the job of an accepted action on a server; "" if the body names none."""
    try:
        job = response.read_object()["job_id"]
    except (Transient, Unknown, KeyError, TypeError):
        return ""
    return job if isinstance(job, str) and is_job(job) else ""


# -- nodes


def _node(item: Any) -> CceNode:
    if not isinstance(item, dict):
        raise DecodeError("a node in it is not an object")
    meta, spec, status = _part(item, "metadata"), _part(item, "spec"), _part(item, "status")
    uid = _text(meta, "uid")
    if not is_id(uid):
        raise DecodeError("a node in it has no uid")
    owner, annotations = _owner_and_annotations(meta)
    return CceNode(
        uid.lower(),
        _short_text(meta, "name"),
        _pool_of_node(owner, annotations),
        _short_text(owner, "nodepoolName"),
        _short_text(spec, "flavor"),
        _short_text(spec, "az"),
        _short_text(status, "phase"),
        _short_text(status, "serverId"),
        _short_text(status, "privateIP"),
        _whole(spec, "billingMode") or 0,
        annotations,
        instant(meta.get("creationTimestamp")),
        _short_text(spec, "os"),
        _runtime(spec),
        is_spot(extend) if isinstance(extend := spec.get("extendParam"), dict) else False,
    )


def _runtime(item: Object) -> str:
    """Return the name of the container runtime of a node or of a template; "" if it is not
    stated."""
    runtime = item.get("runtime")
    name = runtime.get("name") if isinstance(runtime, dict) else runtime
    return name if isinstance(name, str) and len(name) <= _LONGEST_TEXT else ""


def _node_or_error(item: Any) -> CceNode:
    """Return the node, or one without a uid that has an `error` and the pool that it names."""
    try:
        return _node(item)
    except DecodeError as error:
        meta = item.get("metadata") if isinstance(item, dict) else None
        pool = _pool_of_node(*_owner_and_annotations(meta)) if isinstance(meta, dict) else ""
        return CceNode("", pool=pool, error=str(error))


def _owner_and_annotations(meta: Object) -> tuple[Object, dict[str, str]]:
    """Return the owner and the annotations; invalid ones are left out."""
    annotations, owner = meta.get("annotations"), meta.get("ownerReferences")
    owner = owner[0] if isinstance(owner, list) and owner else owner
    annotations = annotations if isinstance(annotations, dict) else {}
    return (
        owner if isinstance(owner, dict) else {},
        {key: value for key, value in annotations.items() if isinstance(value, str)},
    )


def _pool_of_node(owner: Object, annotations: dict[str, str]) -> str:
    """Return the owner's pool, and the annotation's only if there is no owner. A node that was
    moved to the default pool keeps its old annotation."""
    uid = _short_text(owner, "nodepoolID") or annotations.get(_POOL_ANNOTATION, "")
    return uid.lower() if is_id(uid) else ""


# -- flavours


def _flavor(item: Any) -> Flavor | None:
    try:
        extra = _part(item, "os_extra_specs")
        vcpus, memory, name = (
            _number(item, "vcpus"),
            _number(item, "ram"),
            _text(item, "name") or _text(item, "id"),
        )
    except (DecodeError, AttributeError):
        return None
    if not (name and vcpus and memory):
        return None
    gpu, others = _accelerators(extra)
    state = _short_text(extra, "cond:operation:status").strip().lower()
    matches = filter(None, map(_AZ_STATE.match, _short_text(extra, "cond:operation:az").split(",")))
    states = {match[1]: match[2].strip().lower() for match in matches}
    arch = "arm64" if "arm" in _short_text(extra, "ecs:instance_architecture").lower() else "amd64"
    differing = {az: az_state for az, az_state in states.items() if az_state != state}
    return Flavor(name, vcpus, memory, arch, gpu, others, state, differing)


def _accelerators(extra: Object) -> tuple[tuple[str, int] | None, tuple[tuple[str, int], ...]]:
    """Return the GPU and the other accelerators, from the JSON description or from
    the alias `nvidia-p100:1`."""
    devices = _described(extra, "info:gpus") + _described(extra, "info:asic_accelerators")
    if not devices:
        matches = map(_ALIAS.match, _short_text(extra, "pci_passthrough:alias").split(","))
        devices = [(match[1], int(match[2])) for match in matches if match and int(match[2])]
    gpus = [device for device in devices if not device[0].lower().startswith("ascend")]
    return (gpus[0] if gpus else None), tuple(
        device for device in devices if device not in gpus[:1]
    )


def _described(extra: Object, name: str) -> list[tuple[str, int]]:
    try:
        return [
            (item["name"], count)
            for item in msgspec.json.decode(_short_text(extra, name) or "[]")
            if isinstance(item["name"], str) and (count := _number(item, "count", 1))
        ]
    except (msgspec.DecodeError, DecodeError, KeyError, TypeError, RecursionError):
        return []


# -- pools


def _is_default_pool(item: Any) -> bool:
    """Whether this is the virtual pool of nodes that belong to no pool."""
    meta = item.get("metadata") if isinstance(item, dict) else None
    return isinstance(meta, dict) and DEFAULT_POOL in (meta.get("uid"), meta.get("name"))


def read_pool(item: Any) -> NodePool:
    """Return the pool, or one with an `error` and the readable part of its identity. Never
    raises."""
    meta = item.get("metadata") if isinstance(item, dict) else None
    meta = meta if isinstance(meta, dict) else {}
    uid, name = (
        value if isinstance(value := meta.get(key), str) else "" for key in ("uid", "name")
    )
    if not is_id(uid):
        return NodePool("", name[:_LONGEST_NAME], error="it has no uid")
    try:
        return _pool(item, uid.lower(), name)
    except DecodeError as error:
        return NodePool(uid.lower(), name[:_LONGEST_NAME], error=str(error))


def _pool(item: Object, uid: str, name: str) -> NodePool:
    spec, status = _part(item, "spec"), _part(item, "status")
    autoscaling, template = (
        _autoscaling(_part(spec, "autoscaling")),
        _template(_part(spec, "nodeTemplate")),
    )
    desired = None if spec.get("initialNodeCount") is None else _number(spec, "initialNodeCount")
    pool = NodePool(
        uid,
        name,
        _text(spec, "type"),
        autoscaling=autoscaling,
        template=template,
        current=_number(status, "currentNode"),
        creating=_number(status, "creatingNode"),
        deleting=_number(status, "deletingNode"),
        active=_number(status, "activeNode"),
        phase=_text(status, "phase"),
        conditions=_conditions(status),
    )
    groups = [
        ScaleGroup(DEFAULT_GROUP, "", template.flavor, template.az, autoscaling.enable),
        *map(_scale_group, _parts(spec, "extensionScaleGroups")),
    ]
    if len({group.name for group in groups}) < len(groups):
        raise DecodeError("two of its scale groups have one name")
    groups = _with_sizes(groups, _parts(status, "scaleGroupStatuses"), desired, pool)
    # If the two disagree, both are kept: one of them is outdated, and no total may be computed from
    # it (node_groups.py, is_settled).
    total = desired if desired is not None else sum(group.desired for group in groups)
    return msgspec.structs.replace(pool, desired=total, groups=tuple(groups))


def _with_sizes(
    groups: list[ScaleGroup], items: list[Object], desired: int | None, pool: NodePool
) -> list[ScaleGroup]:
    """Return the groups with their sizes. items: their statuses; desired: the pool's size, if it is
    given. A missing size is 0, unless the pool has more nodes than its groups report. One group
    without a size then has the difference (a pool with one group may omit it); with several, their
    sizes are unknown."""
    statuses = {_text(item, "name"): item for item in items}
    if len(statuses) < len(items):
        raise DecodeError("two of its scaleGroupStatuses have one name")
    sized = [
        msgspec.structs.replace(
            group,
            uid=group.uid or _text(item, "uid"),
            desired=_number(item, "desiredNodeCount"),
            existing=_number(_part(item, "existingNodeCount"), "total"),
            upcoming=_number(_part(item, "upcomingNodeCount"), "total"),
            held=_number(item, "scaleDownDisabledNodeCount"),
            conditions=_conditions(item),
        )
        if (item := statuses.get(group.name)) is not None
        else group
        for group in groups
    ]
    silent = [
        group.name
        for group in groups
        if _whole(statuses.get(group.name, {}), "desiredNodeCount") is None
    ]
    if desired is None and silent and (pool.current or pool.creating):
        raise DecodeError("initialNodeCount is missing, and it has nodes")
    rest = {
        "desired": (desired or 0) - sum(group.desired for group in sized),
        "existing": pool.current - sum(group.existing for group in sized),
        "upcoming": pool.creating - sum(group.upcoming for group in sized),
    }
    changes: dict[str, Any] = {field: value for field, value in rest.items() if value > 0}
    if len(silent) > 1:
        unknown = rest["desired"] > 0 or rest["existing"] > 0
        changes = {"error": "its size is not said in scaleGroupStatuses"} if unknown else {}
    return [
        msgspec.structs.replace(group, **changes) if group.name in silent else group
        for group in sized
    ]


def _scale_group(item: Object) -> ScaleGroup:
    meta, spec = _part(item, "metadata"), _part(item, "spec")
    scaling, name = _part(spec, "autoscaling"), _text(meta, "name")
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise DecodeError("one of its extensionScaleGroups has no usable name")
    return ScaleGroup(
        name,
        _text(meta, "uid"),
        _text(spec, "flavor"),
        _text(spec, "az"),
        _truth(scaling, "enable"),
        _bound(scaling, "minNodeCount"),
        _bound(scaling, "maxNodeCount"),
        _whole(scaling, "extensionPriority") or 0,
    )


def _autoscaling(item: Object) -> Autoscaling:
    share = item.get("scaleDownUtilizationThreshold")
    if isinstance(share, bool) or not isinstance(share, int | float | None):
        raise DecodeError("scaleDownUtilizationThreshold is not a number")
    return Autoscaling(
        enable=_truth(item, "enable"),
        min=_bound(item, "minNodeCount"),
        max=_bound(item, "maxNodeCount"),
        cooldown_minutes=max(0, _whole(item, "scaleDownCooldownTime") or 0),
        priority=_whole(item, "priority") or 0,
        unneeded_minutes=_bound(item, "scaleDownUnneededTime"),
        utilization=float(share) if share is not None and 0.0 <= share <= 1.0 else None,
    )


def _template(item: Object) -> NodeTemplate:
    taints = [
        CceTaint(_text(taint, "key"), _text(taint, "value"), _text(taint, "effect"))
        for taint in _parts(item, "taints")
    ]
    tags = _part(item, "k8sTags")
    if not all(isinstance(value, str) for value in tags.values()):
        raise DecodeError("k8sTags has a value that is not a string")
    extend = item.get("extendParam")
    return NodeTemplate(
        _text(item, "flavor"),
        _text(item, "az"),
        tuple(taint for taint in taints if taint.key),
        tags,
        extend if isinstance(extend, dict) else {},
        _runtime(item),
        _text(item, "os"),
        _whole(item, "billingMode") or 0,
    )


def _conditions(item: Object) -> tuple[CceCondition, ...]:
    """Return the readable conditions; malformed ones are ignored."""
    conditions = item.get("conditions")
    texts = [
        {
            key: text
            for key in ("type", "status", "reason", "message")
            if isinstance(text := condition.get(key), str)
        }
        for condition in (conditions if isinstance(conditions, list) else [])
        if isinstance(condition, dict)
    ]
    return tuple(CceCondition(**fields) for fields in texts if fields.get("type"))
