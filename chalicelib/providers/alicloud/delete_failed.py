"""Machines that never became nodes: what was never made costs a number only, and what has joined meanwhile stays.

A creation that failed leaves the desired capacity where it was, and ESS would try again for ever. Discarding the
placeholders lowers it to what exists (alicloud.md §5; demands of the core in scale-down.md §11).
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
        """To everybody else a Conflict."""
        return Conflict.__name__


def spare_the_joined(context: AlicloudContext, instances: Iterable[str]) -> None:
    """Raises Joined if one of the instances is a node by now; where there is no way to the cluster nobody can say, and
    the caller has looked by name (execute/discard.py)."""
    if context.joined is None:
        return
    identity = identify(context.joined(), context.settings.region)
    if joined := sorted(each for each in instances if identity.node_of(each) or identity.claimants(each)):
        raise AlicloudInstanceJoinedError(f"{', '.join(joined)} has joined the cluster meanwhile")


def check_nodes(context: AlicloudContext, operation: Operation, instances: Collection[str]) -> None:
    """Raises Joined if one of the instances is not, or not for certain, the node that was planned any more. Where there
    is no way to the cluster nobody can say."""
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
    """Lower the desired capacity by what was never made. From the planned size, so that it may be repeated; a size that
    is lower already is ours or a removal's beside us, and the next pass sees what is left. Failed if it has grown."""
    desired = group.desired_capacity
    if not group.enable_desired_capacity:
        return None  # what could not be made is not part of the size of such a group
    if desired > operation.spec.from_size:
        return other_size(operation, desired)
    least = max(occupied(group, listed.values()), group.min_size)
    goal = max(least, operation.spec.from_size - len(targets.placeholders))
    if goal < desired:
        lower(context, operation, group, goal)
    return None
