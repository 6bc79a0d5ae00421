"""Determines the machines that an operation targets, and verifies before any write that all belong to the group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.operation import Operation, RemovalTarget
from chalicelib.providers.alicloud.context import AlicloudContext
from chalicelib.providers.alicloud.models import ScalingInstance
from chalicelib.providers.alicloud.provider_ids import handle_of, identify, is_placeholder, placeholder_group
from chalicelib.providers.alicloud.size_bounds import LEAVING
from chalicelib.providers.errors import InvalidRequest, NotFound
from chalicelib.providers.node_identity import joined_of, refuse_changed, refuse_joined


class AlicloudTargets(msgspec.Struct, frozen=True):
    """The targets of a removal: instance ids and placeholders."""

    instances: tuple[str, ...]
    placeholders: tuple[str, ...]


def read_targets(operation: Operation) -> AlicloudTargets:
    """Return the targets, each once; raises InvalidRequest for one without an id, or for another group's
    placeholder."""
    handles: dict[str, None] = {}
    for target in operation.spec.targets:
        handle = handle_of(target)
        if not handle:
            raise InvalidRequest(f"{target.node or target.instance}: no ECS instance is known for it")
        handles[handle] = None
    for handle in handles:
        if is_placeholder(handle) and placeholder_group(handle) != operation.spec.group:
            raise InvalidRequest(f"{handle} does not belong to {operation.spec.group}")
    return AlicloudTargets(
        tuple(each for each in handles if not is_placeholder(each)),
        tuple(each for each in handles if is_placeholder(each)),
    )


def listed_in(context: AlicloudContext, group: str, ids: Sequence[str] = ()) -> dict[str, ScalingInstance]:
    """Return the group's instances by id, or only those named; raises ProviderError."""
    try:
        return {each.instance_id: each for each in context.api.instances(group, ids)}
    except NotFound:
        return {}  # a deleted group has no instances


def lives(name: str, listed: Mapping[str, ScalingInstance]) -> bool:
    """Whether the instance exists and is not being removed."""
    return name in listed and listed[name].lifecycle_state not in LEAVING


def check_membership(
    context: AlicloudContext, operation: Operation, targets: AlicloudTargets, listed: Mapping[str, ScalingInstance]
) -> None:
    """Raise InvalidRequest if an instance that the group lacks is in another group, of this policy or not.

    An instance unknown to ESS counts as gone."""
    context.bounds(operation.spec.group)
    absent = [each for each in targets.instances if each not in listed]
    if not absent:
        return
    elsewhere = {
        each.instance_id: each.scaling_group_id
        for each in context.api.instances("", absent)
        if each.scaling_group_id not in {"", operation.spec.group}
    }
    if elsewhere:
        groups = ", ".join(sorted(set(elsewhere.values())))
        raise InvalidRequest(f"{', '.join(sorted(elsewhere))} is in {groups} and not in {operation.spec.group}")


def spare_the_joined(context: AlicloudContext, instances: Iterable[str]) -> None:
    """Raises PermanentConflict if one of the instances is a node by now. Without a connection to the cluster nothing is
    checked: the caller has looked by name."""
    if context.joined is None:
        return
    refuse_joined(joined_of(instances, identify(context.joined(), context.settings.region)))


def check_nodes(context: AlicloudContext, operation: Operation, instances: Collection[str]) -> None:
    """Raises PermanentConflict if one of the instances is not, or not for certain, the node that was planned.
    Without a connection to the cluster nothing is checked."""
    if context.joined is None:
        return
    nodes = context.joined()
    identity = identify(nodes, context.settings.region)

    def among(target: RemovalTarget) -> str | None:
        return name if (name := handle_of(target)) in instances else None

    refuse_changed(operation.spec.targets, among, identity, nodes)
