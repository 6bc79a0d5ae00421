"""Deletes instances that never became nodes; instances that have joined meanwhile are kept.

A failed creation leaves the desired capacity unchanged, and ESS would retry it forever. Deleting the placeholders
lowers the desired capacity to the number of existing instances (docs/reference/node-groups.md "Unregistered
instances").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed
from chalicelib.providers.alicloud.context import AlicloudContext
from chalicelib.providers.alicloud.models import ScalingGroup, ScalingInstance
from chalicelib.providers.alicloud.provider_ids import handle_of, identify
from chalicelib.providers.alicloud.scale_up import lower, other_size
from chalicelib.providers.alicloud.size_bounds import occupied
from chalicelib.providers.alicloud.targets import AlicloudTargets
from chalicelib.providers.errors import Conflict
from chalicelib.providers.node_identity import changed


class AlicloudInstanceJoinedError(Conflict):
    """A target has become a node, or is another node than was planned: it stays, and so do the others of the
    operation."""

    @property
    def cls(self) -> str:
        """The class reported to callers: Conflict."""
        return Conflict.__name__


def spare_the_joined(context: AlicloudContext, instances: Iterable[str]) -> None:
    """Raise Joined if one of the instances is a node by now.

    Without access to the cluster this cannot be checked; the caller has already checked by name
    (operations/steps/delete_instances.py)."""
    if context.joined is None:
        return
    identity = identify(context.joined(), context.settings.region)
    if joined := sorted(each for each in instances if identity.node_of(each) or identity.claimants(each)):
        raise AlicloudInstanceJoinedError(f"{', '.join(joined)} has joined the cluster meanwhile")


def check_nodes(context: AlicloudContext, operation: Operation, instances: Collection[str]) -> None:
    """Raise Joined unless every instance is still, without doubt, the node that was planned.

    Without access to the cluster this cannot be checked."""
    if context.joined is None:
        return
    nodes = context.joined()
    identity = identify(nodes, context.settings.region)
    for target in operation.spec.targets:
        if (name := handle_of(target)) in instances and (why := changed(target, name, identity, nodes)):
            raise AlicloudInstanceJoinedError(why)


def take_back(
    context: AlicloudContext,
    operation: Operation,
    group: ScalingGroup,
    listed: Mapping[str, ScalingInstance],
    targets: AlicloudTargets,
) -> Failed | None:
    """Lower the desired capacity by the number of instances that were never created. Failed if it has increased.

    The new size is computed from the planned size, so the call may be repeated. If the capacity is lower already, this
    operation or a concurrent removal has lowered it, and the next pass sees the remainder."""
    desired = group.desired_capacity
    if not group.enable_desired_capacity:
        return None  # instances that were not created are not part of such a group's size
    if desired > operation.spec.from_size:
        return other_size(operation, desired)
    least = max(occupied(group, listed.values()), group.min_size)
    goal = max(least, operation.spec.from_size - len(targets.placeholders))
    if goal < desired:
        lower(context, operation, group, goal)
    return None
