"""TODO"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.timestamps import parse_time
from chalicelib.net.json_repair import read_json
from chalicelib.providers.errors import Transient, Unknown
from chalicelib.providers.http import VendorResponse
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
)
from chalicelib.providers.huaweicloud.provider_ids import is_id

MOST = 2**31 - 1
"""The largest number that can be one of nodes, minutes or cores."""

_WHOLE = re.compile(r"-?[0-9]{1,10}\Z", re.ASCII)
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))? \+0000(?: UTC)?\Z", re.ASCII)


class DecodeError(ValueError):
    """A field with an invalid value; its text names the field."""


def part(thing: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object; empty if it is missing. Raises Odd."""
    value = thing.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DecodeError(f"{name} is not an object")
    return value


def parts(thing: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of objects; empty if it is missing. Raises Odd."""
    value = thing.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise DecodeError(f"{name} is not a list of objects")
    return value


def text(thing: dict[str, Any], name: str) -> str:
    """Return a text; "" if it is missing. Raises Odd."""
    value = thing.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DecodeError(f"{name} is not a string")
    return value


def number(thing: dict[str, Any], name: str, default: int = 0) -> int:
    """Return an integer from 0 up; the default if it is missing. Raises Odd."""
    found = whole(thing, name)
    if found is None:
        return default
    if found < 0:
        raise DecodeError(f"{name} is negative")
    return found


def whole(thing: dict[str, Any], name: str) -> int | None:
    """Return an integer, which may be text; None if it is missing. Raises Odd."""
    value = thing.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, str) and _WHOLE.match(value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MOST:
        raise DecodeError(f"{name} is not an integer")
    return value


def truth(thing: dict[str, Any], name: str) -> bool:
    """Return a boolean; false if it is missing. Raises Odd."""
    value = thing.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise DecodeError(f"{name} is neither true nor false")
    return value


def texts(thing: dict[str, Any], name: str) -> dict[str, str]:
    """Return an object of texts; empty if it is missing. Raises Odd."""
    found = part(thing, name)
    if not all(isinstance(value, str) for value in found.values()):
        raise DecodeError(f"{name} has a value that is not a string")
    return found


def instant(value: object) -> float:
    """Return a time in the vendor's format in epoch seconds; 0.0 for anything else.

    The format is `2020-02-01 08:20:49.944664515 +0000 UTC` or RFC 3339."""
    if not isinstance(value, str):
        return 0.0
    try:
        if match := _STAMP.match(value):
            whole_seconds = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
            return whole_seconds + (float(f"0.{match[2]}") if match[2] else 0.0)
        return parse_time(value)
    except (ValueError, BadInput):
        return 0.0


_LONGEST_NAME = 128


def is_default_pool(said: Any) -> bool:
    """Whether this is the virtual pool of nodes that belong to no pool."""
    meta = said.get("metadata") if isinstance(said, dict) else None
    return isinstance(meta, dict) and DEFAULT_POOL in (meta.get("uid"), meta.get("name"))


def read_pool(said: Any) -> NodePool:
    """Return the pool, or one with an `error` and the readable part of its identity. Never raises."""
    meta = said.get("metadata") if isinstance(said, dict) else None
    meta = meta if isinstance(meta, dict) else {}
    id_, name = (value if isinstance(value := meta.get(key), str) else "" for key in ("uid", "name"))
    if not is_id(id_):
        return NodePool("", name[:_LONGEST_NAME], error="it has no uid")
    try:
        return _pool(said, id_.lower(), name)
    except DecodeError as odd:
        return NodePool(id_.lower(), name[:_LONGEST_NAME], error=str(odd))


def _pool(said: dict[str, Any], id_: str, name: str) -> NodePool:
    spec, status = part(said, "spec"), part(said, "status")
    autoscaling, template = _autoscaling(part(spec, "autoscaling")), _template(part(spec, "nodeTemplate"))
    wanted = None if spec.get("initialNodeCount") is None else number(spec, "initialNodeCount")
    pool = NodePool(
        id_,
        name,
        text(spec, "type"),
        autoscaling=autoscaling,
        template=template,
        current=number(status, "currentNode"),
        creating=number(status, "creatingNode"),
        deleting=number(status, "deletingNode"),
        active=number(status, "activeNode"),
        phase=text(status, "phase"),
        conditions=_conditions(status),
    )
    groups = [
        ScaleGroup(DEFAULT_GROUP, "", template.flavor, template.az, autoscaling.enable),
        *map(_group, parts(spec, "extensionScaleGroups")),
    ]
    if len({each.name for each in groups}) < len(groups):
        raise DecodeError("two of its scale groups have one name")
    sized = _sized(groups, parts(status, "scaleGroupStatuses"), wanted, pool)
    # If the two disagree, both are kept: one of them is outdated, and no total may be computed from it
    # (size_bounds.py).
    desired = wanted if wanted is not None else sum(each.desired for each in sized)
    return msgspec.structs.replace(pool, desired=desired, groups=tuple(sized))


def _sized(
    groups: list[ScaleGroup], said: list[dict[str, Any]], wanted: int | None, pool: NodePool
) -> list[ScaleGroup]:
    """Return the groups with their sizes.

    A missing size is 0, unless the pool has more nodes than its groups report. One group without a size then has the
    difference (a pool with one group may omit it); with several, their sizes are unknown."""
    statuses = {text(each, "name"): each for each in said}
    if len(statuses) < len(said):
        raise DecodeError("two of its scaleGroupStatuses have one name")
    known = [_with_status(each, statuses[each.name]) if each.name in statuses else each for each in groups]
    silent = [each.name for each in groups if whole(statuses.get(each.name, {}), "desiredNodeCount") is None]
    if wanted is None and silent and (pool.current or pool.creating):
        raise DecodeError("initialNodeCount is missing, and it has nodes")
    left = (wanted or 0) - sum(each.desired for each in known)
    existing = pool.current - sum(each.existing for each in known)
    upcoming = pool.creating - sum(each.upcoming for each in known)
    if len(silent) == 1:
        rest = {"desired": max(0, left), "existing": max(0, existing), "upcoming": max(0, upcoming)}
        rest = {field: value for field, value in rest.items() if value}
        return [msgspec.structs.replace(each, **rest) if each.name in silent else each for each in known]
    why = "its size is not said in scaleGroupStatuses" if left > 0 or existing > 0 else ""
    return [msgspec.structs.replace(each, error=why) if each.name in silent else each for each in known]


def _with_status(group: ScaleGroup, said: dict[str, Any]) -> ScaleGroup:
    return msgspec.structs.replace(
        group,
        uid=group.uid or text(said, "uid"),
        desired=number(said, "desiredNodeCount"),
        existing=number(part(said, "existingNodeCount"), "total"),
        upcoming=number(part(said, "upcomingNodeCount"), "total"),
        held=number(said, "scaleDownDisabledNodeCount"),
        conditions=_conditions(said),
    )


def _group(said: dict[str, Any]) -> ScaleGroup:
    meta, spec = part(said, "metadata"), part(said, "spec")
    scaling, name = part(spec, "autoscaling"), text(meta, "name")
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise DecodeError("one of its extensionScaleGroups has no usable name")
    return ScaleGroup(
        name,
        text(meta, "uid"),
        text(spec, "flavor"),
        text(spec, "az"),
        truth(scaling, "enable"),
        _bound(scaling, "minNodeCount"),
        _bound(scaling, "maxNodeCount"),
        whole(scaling, "extensionPriority") or 0,
    )


def _autoscaling(said: dict[str, Any]) -> Autoscaling:
    share = said.get("scaleDownUtilizationThreshold")
    if isinstance(share, bool) or not isinstance(share, int | float | None):
        raise DecodeError("scaleDownUtilizationThreshold is not a number")
    return Autoscaling(
        enable=truth(said, "enable"),
        min=_bound(said, "minNodeCount"),
        max=_bound(said, "maxNodeCount"),
        cooldown_minutes=max(0, whole(said, "scaleDownCooldownTime") or 0),
        priority=whole(said, "priority") or 0,
        unneeded_minutes=_bound(said, "scaleDownUnneededTime"),
        utilization=float(share) if share is not None and 0.0 <= share <= 1.0 else None,
    )


def _template(said: dict[str, Any]) -> NodeTemplate:
    taints = tuple(
        CceTaint(text(each, "key"), text(each, "value"), text(each, "effect")) for each in parts(said, "taints")
    )
    extend, runtime = said.get("extendParam"), said.get("runtime")
    runtime = runtime.get("name") if isinstance(runtime, dict) else runtime
    return NodeTemplate(
        text(said, "flavor"),
        text(said, "az"),
        tuple(each for each in taints if each.key),
        texts(said, "k8sTags"),
        extend if isinstance(extend, dict) else {},
        runtime if isinstance(runtime, str) else "",
        text(said, "os"),
        whole(said, "billingMode") or 0,
    )


def _bound(said: dict[str, Any], name: str) -> int | None:
    """Return a number, None if it is not set: missing or negative (the vendor's -1)."""
    found = whole(said, name)
    return found if found is not None and found >= 0 else None


def _conditions(said: dict[str, Any]) -> tuple[CceCondition, ...]:
    """Return the readable conditions; malformed ones are ignored."""
    found = said.get("conditions")
    texts_of = [
        {key: value for key in ("type", "status", "reason", "message") if isinstance(value := each.get(key), str)}
        for each in (found if isinstance(found, list) else [])
        if isinstance(each, dict)
    ]
    return tuple(CceCondition(**each) for each in texts_of if each.get("type"))


T = TypeVar("T")

_LONGEST = 300
_LONGEST_TEXT = 1000  # maximum characters of a node's name, flavour or address
_POOL_ANNOTATION = "kubernetes.io/node-pool.id"
_STATE = re.compile(r"\s*([^\s(),]+)\(([^()]*)\)\s*\Z")
_ALIAS = re.compile(r"\s*([A-Za-z0-9._-]+):([0-9]{1,3})\s*\Z", re.ASCII)
_ASCEND = "ascend"


def pools_of(response: VendorResponse) -> tuple[NodePool, ...]:
    """Return all pools except the default one; one that cannot be decoded has an `error`. Raises Unknown, Transient."""
    found = [read_pool(each) for each in _items(response, body_of(response)) if not is_default_pool(each)]
    times = Counter(each.id for each in found)
    twice = {
        each.id: NodePool(each.id, each.name, error="the vendor describes its uid more than once")
        for each in found
        if each.id and times[each.id] > 1
    }
    return (*(each for each in found if each.id not in twice), *twice.values())


def pool_of(response: VendorResponse, wanted: str) -> NodePool:
    """Return one pool. wanted: the requested id. Raises Unknown for one that cannot be decoded, or a different one."""
    pool = read_pool(body_of(response))
    if pool.error:
        raise _odd(response, pool.error)
    return _same(response, pool, pool.id, wanted)


def nodes_of(response: VendorResponse) -> tuple[tuple[CceNode, ...], str]:
    """Return a page of nodes and the marker of the next, "" on the last (old regions have no paging).

    Raises Unknown for a page of which nothing can be decoded."""
    body = body_of(response)
    try:
        items = _items(response, body)
        found = tuple(map(_node_of_many, items))
        if items and all(each.error for each in found):
            raise DecodeError(found[0].error)
        return found, text(part(body, "pageInfo"), "nextMarker")
    except DecodeError as odd:
        raise _odd(response, str(odd)) from None


def node_of(response: VendorResponse, wanted: str) -> CceNode:
    """Return one node. Raises as pool_of."""
    node = _read(response, _node, body_of(response))
    return _same(response, node, node.id, wanted)


def job_of(response: VendorResponse, wanted: str) -> CceJob:
    """Return one job. Raises as pool_of."""
    body = body_of(response)
    return _read(
        response,
        lambda said: CceJob(
            wanted,
            text(part(said, "status"), "phase"),
            text(part(said, "status"), "reason"),
            text(part(said, "spec"), "type"),
        ),
        body,
    )


def phase_of(response: VendorResponse) -> str:
    """Return a cluster's phase. Raises Unknown if there is none."""
    phase = _read(response, lambda said: text(part(said, "status"), "phase"), body_of(response))
    if not phase:
        raise _odd(response, "status.phase is missing")
    return phase


def addons_of(response: VendorResponse) -> tuple[Addon, ...]:
    """Return the add-ons that have a name."""
    found = []
    for each in _items(response, body_of(response)):
        try:
            spec = part(each, "spec")
            custom = part(spec, "values").get("custom")
            addon = Addon(
                text(spec, "addonTemplateName"),
                text(part(each, "status"), "status"),
                custom if isinstance(custom, dict) else {},
            )
        except (DecodeError, AttributeError):
            continue
        if addon.template:
            found.append(addon)
    return tuple(found)


def flavors_of(response: VendorResponse) -> tuple[tuple[Flavor, ...], int, str]:
    """Return a page of flavours, their number on the page, and the last one's id.

    A flavour without cores or memory is left out."""
    body = body_of(response)
    said = body.get("flavors")
    if not isinstance(said, list):
        raise _odd(response, "it has no list of flavors")
    last = said[-1].get("id") if said and isinstance(said[-1], dict) else ""
    return tuple(filter(None, map(_flavor, said))), len(said), last if isinstance(last, str) else ""


def job_id_of(response: VendorResponse) -> str:
    """Return the job of an accepted deletion; "" if the body names none (the body may even be an error's)."""
    try:
        found = body_of(response)["status"]["jobID"]
    except (Transient, Unknown, KeyError, TypeError):
        return ""
    return found if isinstance(found, str) and is_id(found) else ""


def body_of(response: VendorResponse) -> dict[str, Any]:
    """Return the JSON object of a response. Raises Transient if it is not JSON, Unknown for another JSON type."""
    try:
        body = read_json(response.body)
    except msgspec.DecodeError:
        raise Transient(f"{response.call}: the answer is not complete JSON") from None
    if not isinstance(body, dict):
        raise _odd(response, "it is not an object")
    return body


def _items(response: VendorResponse, body: dict[str, Any]) -> list[Any]:
    """Return the items of a list; an empty list may omit them."""
    items = body.get("items")
    if items is None and str(body.get("kind", "")).lower().endswith("list"):
        return []
    if not isinstance(items, list):
        raise _odd(response, "it has no list of items")
    return items


def _node(said: Any) -> CceNode:
    if not isinstance(said, dict):
        raise DecodeError("a node in it is not an object")
    meta, spec, status = part(said, "metadata"), part(said, "spec"), part(said, "status")
    id_ = text(meta, "uid")
    if not is_id(id_):
        raise DecodeError("a node in it has no uid")
    owner, annotations = _home(meta)
    return CceNode(
        id_.lower(),
        _loose(meta, "name"),
        _pool_of_node(owner, annotations),
        _loose(owner, "nodepoolName"),
        _loose(spec, "flavor"),
        _loose(spec, "az"),
        _loose(status, "phase"),
        _loose(status, "serverId"),
        _loose(status, "privateIP"),
        whole(spec, "billingMode") or 0,
        annotations,
        instant(meta.get("creationTimestamp")),
    )


def _node_of_many(said: Any) -> CceNode:
    """Return the node, or one without a uid that has an `error` and the pool that it names."""
    try:
        return _node(said)
    except DecodeError as odd:
        meta = said.get("metadata") if isinstance(said, dict) else None
        return CceNode("", pool=_pool_of_node(*_home(meta)) if isinstance(meta, dict) else "", error=str(odd))


def _home(meta: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the owner and the annotations; invalid ones are left out."""
    annotations, owner = meta.get("annotations"), meta.get("ownerReferences")
    owner = owner[0] if isinstance(owner, list) and owner else owner
    annotations = annotations if isinstance(annotations, dict) else {}
    return (
        owner if isinstance(owner, dict) else {},
        {key: value for key, value in annotations.items() if isinstance(value, str)},
    )


def _pool_of_node(owner: dict[str, Any], annotations: dict[str, str]) -> str:
    """Return the owner's pool, and the annotation's only if there is no owner.

    A node that was moved to the default pool keeps its old annotation."""
    said = _loose(owner, "nodepoolID") or annotations.get(_POOL_ANNOTATION, "")
    return said.lower() if is_id(said) else ""


def _flavor(said: Any) -> Flavor | None:
    try:
        extra = part(said, "os_extra_specs")
        vcpus, memory, name = number(said, "vcpus"), number(said, "ram"), text(said, "name") or text(said, "id")
    except (DecodeError, AttributeError):
        return None
    if not (name and vcpus and memory):
        return None
    gpu, others = _accelerators(extra)
    state = _loose(extra, "cond:operation:status").strip().lower()
    matches = filter(None, map(_STATE.match, _loose(extra, "cond:operation:az").split(",")))
    states = {match[1]: match[2].strip().lower() for match in matches}
    arm = "arm" in _loose(extra, "ecs:instance_architecture").lower()
    return Flavor(
        name,
        vcpus,
        memory,
        "arm64" if arm else "amd64",
        gpu,
        others,
        state,
        {az: each for az, each in states.items() if each != state},
    )


def _accelerators(extra: dict[str, Any]) -> tuple[tuple[str, int] | None, tuple[tuple[str, int], ...]]:
    """Return the GPU and the other accelerators, from the JSON description or from the alias `nvidia-p100:1`."""
    found = _described(extra, "info:gpus") + _described(extra, "info:asic_accelerators")
    if not found:
        matches = map(_ALIAS.match, _loose(extra, "pci_passthrough:alias").split(","))
        found = [(match[1], int(match[2])) for match in matches if match and int(match[2])]
    gpus = [each for each in found if not each[0].lower().startswith(_ASCEND)]
    return (gpus[0] if gpus else None), tuple(each for each in found if each not in gpus[:1])


def _described(extra: dict[str, Any], name: str) -> list[tuple[str, int]]:
    try:
        said = msgspec.json.decode(_loose(extra, name) or "[]")
        return [
            (each["name"], count)
            for each in said
            if isinstance(each["name"], str) and (count := number(each, "count", 1))
        ]
    except (msgspec.DecodeError, DecodeError, KeyError, TypeError, RecursionError):
        return []


def _loose(said: dict[str, Any], name: str) -> str:
    """Return a text of valid length; "" for anything else."""
    value = said.get(name)
    return value if isinstance(value, str) and len(value) <= _LONGEST_TEXT else ""


def _read(response: VendorResponse, read: Callable[[dict[str, Any]], T], body: dict[str, Any]) -> T:
    try:
        return read(body)
    except DecodeError as odd:
        raise _odd(response, str(odd)) from None


def _same(response: VendorResponse, thing: T, id_: str, wanted: str) -> T:
    if id_ != wanted:
        raise _odd(response, "it is about another thing than was asked for")
    return thing


def _odd(response: VendorResponse, what: str) -> Unknown:
    return Unknown(f"{response.call}: the answer has another shape than expected: {what}"[:_LONGEST], code="Shape")
