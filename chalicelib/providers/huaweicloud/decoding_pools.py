"""Decodes node pools. A wrong number here would delete a pool's nodes or buy new ones.

A pool that cannot be decoded stays in its list with an `error`. Less important parts (a condition, a reservation) are
left out if malformed; the inputs of sizes and templates are never guessed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.providers.huaweicloud.json_fields import DecodeError, number, part, parts, text, texts, truth, whole
from chalicelib.providers.huaweicloud.models import (
    DEFAULT_GROUP,
    DEFAULT_POOL,
    Autoscaling,
    CceCondition,
    CceTaint,
    NodePool,
    NodeTemplate,
    ScaleGroup,
)
from chalicelib.providers.huaweicloud.provider_ids import is_id

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
