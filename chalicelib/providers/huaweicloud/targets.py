"""Determines the nodes that an operation targets, and verifies before any write that all belong to the group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.operation import Operation, RemovalTarget
from chalicelib.providers.errors import InvalidRequest, NotFound
from chalicelib.providers.huaweicloud.context import CceContext, Site
from chalicelib.providers.huaweicloud.instance_states import is_leaving
from chalicelib.providers.huaweicloud.models import CceNode
from chalicelib.providers.huaweicloud.provider_ids import (
    CceGroupNames,
    group_of,
    handle_of,
    is_placeholder,
    placeholder_group,
)
from chalicelib.providers.node_identity import joined_of, refuse_changed, refuse_joined

_FEW = 3  # maximum nodes read one by one instead of by the complete list


class CceTargets(msgspec.Struct, frozen=True):
    """The targets of a removal: CCE nodes by uid, and placeholders."""

    nodes: tuple[str, ...]
    placeholders: tuple[str, ...]


def read_targets(operation: Operation) -> CceTargets:
    """Return the targets, each once; raises InvalidRequest for one without a uid, or for another group's
    placeholder."""
    handles: dict[str, None] = {}
    for target in operation.spec.targets:
        handle = handle_of(target)
        if not handle:
            raise InvalidRequest(f"{target.node or target.instance}: no CCE node is known for it")
        if is_placeholder(handle) and placeholder_group(handle) != operation.spec.group:
            raise InvalidRequest(f"{handle} does not belong to {operation.spec.group}")
        handles[handle] = None
    return CceTargets(
        tuple(each for each in handles if not is_placeholder(each)),
        tuple(each for each in handles if is_placeholder(each)),
    )


def living(context: CceContext, names: Sequence[str]) -> dict[str, CceNode]:
    """Return the targets that CCE knows and is not deleting, by uid; raises ProviderError."""
    listed = context.api.nodes() if len(names) > _FEW else ()
    found = {each.id: each for each in listed if each.id in names}
    if len(names) <= _FEW or any(each.error for each in listed):
        for name in (each for each in names if each not in found):
            try:
                found[name] = context.api.node(name)
            except NotFound:
                continue
    return {name: each for name, each in found.items() if not is_leaving(each)}


def check_membership(nodes: Sequence[CceNode], site: Site) -> None:
    """Raise InvalidRequest if one of them belongs to another pool, another group or none."""
    strangers = {}
    for each in nodes:
        if each.pool != site.pool.id:
            strangers[each.id] = f"pool {each.pool}" if each.pool else "no pool"
        elif (group := group_of(each, site.pool)) is not None and group.name != site.group.name:
            strangers[each.id] = f"scale group {group.name}"
    if strangers:
        reported = "; ".join(f"{name} is in {where}" for name, where in sorted(strangers.items()))
        raise InvalidRequest(f"{reported}, and not in {site.title}")


def spare_the_joined(context: CceContext, machines: Iterable[CceNode]) -> None:
    """Raises PermanentConflict if one of the instances is a node by now. Without a connection to the cluster nothing is
    checked: the caller has looked by name."""
    if context.joined is None:
        return
    known = {each.id: each for each in machines}
    identity = CceGroupNames(context.joined(), known.values()).identity
    refuse_joined(known[each].name or each for each in joined_of(known, identity))


def check_nodes(context: CceContext, operation: Operation, machines: Mapping[str, CceNode]) -> None:
    """Raises PermanentConflict if one of the instances (by uid) is not, or not for certain, the node that was planned.
    Without a connection to the cluster nothing is checked."""
    if context.joined is None:
        return
    nodes = context.joined()
    identity = CceGroupNames(nodes, machines.values()).identity

    def among(target: RemovalTarget) -> str | None:
        return name if (name := handle_of(target)) in machines else None

    refuse_changed(operation.spec.targets, among, identity, nodes)
