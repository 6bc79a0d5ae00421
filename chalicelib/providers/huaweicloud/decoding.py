"""Decodes the vendor's responses: missing values are accepted, but a malformed response must not look like an empty
one.

Machines that are not in a list count as gone. Therefore a response without its list is an error, and a failed page
fails the whole list. A node that cannot be decoded, or has no uid, stays in its list with an `error` and, if readable,
its pool. If two descriptions have one id, neither is accepted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from chalicelib.net.json_repair import read_json
from chalicelib.providers.errors import Transient, Unknown
from chalicelib.providers.http import VendorResponse
from chalicelib.providers.huaweicloud.decoding_pools import is_default_pool, read_pool
from chalicelib.providers.huaweicloud.json_fields import DecodeError, instant, number, part, text, whole
from chalicelib.providers.huaweicloud.models import Addon, CceJob, CceNode, Flavor, NodePool
from chalicelib.providers.huaweicloud.provider_ids import is_id

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
