"""Determines the machines that an operation targets, and verifies before any write that all belong to the pool.

Upstream's DeleteNodes makes neither check.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from chalicelib.model.operation import Operation, RemovalTarget
from chalicelib.providers.errors import InvalidRequest, NotFound, ProviderError
from chalicelib.providers.exoscale.context import ExoscaleContext
from chalicelib.providers.exoscale.error_mapping import is_forbidden
from chalicelib.providers.exoscale.instance_states import is_leaving
from chalicelib.providers.exoscale.models import ExoscaleInstance
from chalicelib.providers.exoscale.pools import ExoscalePool
from chalicelib.providers.exoscale.provider_ids import handle_of, identify, is_id, is_placeholder, placeholder_pool
from chalicelib.providers.node_identity import joined_of, refuse_changed, refuse_joined

_FEW = 3  # maximum machines read one by one instead of by the complete list


class ExoscaleTargets(msgspec.Struct, frozen=True):
    """The targets of a removal: machines and placeholders."""

    instances: tuple[str, ...]
    placeholders: tuple[str, ...]


def read_targets(operation: Operation) -> ExoscaleTargets:
    """Return the targets, each once; raises InvalidRequest for one without an id, or for another pool's placeholder."""
    handles: dict[str, None] = {}
    for target in operation.spec.targets:
        handle = handle_of(target)
        if not is_id(handle) and not is_placeholder(handle):
            raise InvalidRequest(f"{target.node or target.instance}: no machine at Exoscale is known for it")
        if is_placeholder(handle) and placeholder_pool(handle) != operation.spec.group:
            raise InvalidRequest(f"{handle} does not belong to {operation.spec.group}")
        handles[handle] = None
    return ExoscaleTargets(
        tuple(each for each in handles if not is_placeholder(each)),
        tuple(each for each in handles if is_placeholder(each)),
    )


def machines(context: ExoscaleContext, ids: Sequence[str]) -> dict[str, ExoscaleInstance]:
    """Return the current data of these machines; an absent one is gone. Raises ProviderError."""
    found: dict[str, ExoscaleInstance] = {}
    if len(ids) > _FEW:
        try:
            found = {each.id.lower(): each for each in context.api.instances() if each.id.lower() in ids}
        except ProviderError as error:
            if not is_forbidden(error):
                raise
    for name in ids:  # the list contains only machines in pools
        if name not in found:
            try:
                found[name] = context.api.instance(name)
            except NotFound:
                continue
    return found


def members(
    context: ExoscaleContext, operation: Operation, targets: ExoscaleTargets, pool: ExoscalePool
) -> tuple[str, ...]:
    """Return the targets that are members of the pool and not leaving.

    Raises InvalidRequest for a machine that exists and belongs to another pool or to none. One unknown to the vendor is
    gone."""
    inside = [each for each in targets.instances if each in pool.members]
    outside = [each for each in targets.instances if each not in pool.members]
    found = machines(context, outside)
    strangers = {
        name: _pool_of(each) for name, each in found.items() if _pool_of(each) not in {"", operation.spec.group}
    }
    strangers |= {name: "no pool" for name, each in found.items() if not _pool_of(each) and not is_leaving(each.state)}
    if strangers:
        reported = "; ".join(f"{name} is in {where}" for name, where in sorted(strangers.items()))
        raise InvalidRequest(f"{reported}, and not in {pool.title}")
    late = [name for name, each in found.items() if not is_leaving(each.state)]
    return (*inside, *late)


def lives(context: ExoscaleContext, pool: ExoscalePool, names: Sequence[str]) -> tuple[str, ...]:
    """Return the machines that the pool still has and that are not leaving; raises ProviderError."""
    return remaining(context, [each for each in names if each in pool.members])


def remaining(context: ExoscaleContext, names: Sequence[str]) -> tuple[str, ...]:
    """Return the machines that the vendor knows and that are not leaving; raises ProviderError."""
    found = machines(context, names)
    return tuple(name for name in names if name in found and not is_leaving(found[name].state))


def _pool_of(instance: ExoscaleInstance) -> str:
    return instance.manager.id.lower() if instance.manager is not None else ""


def spare_the_joined(context: ExoscaleContext, instances: Iterable[str]) -> None:
    """Raises PermanentConflict if one of the instances is a node by now. Without a connection to the cluster nothing is
    checked: the caller has looked by name."""
    if context.joined is None:
        return
    refuse_joined(joined_of(instances, identify(context.joined())))


def check_nodes(context: ExoscaleContext, operation: Operation, instances: Collection[str]) -> None:
    """Raises PermanentConflict if one of the instances is not, or not for certain, the node that was planned.
    Without a connection to the cluster nothing is checked."""
    if context.joined is None:
        return
    nodes = context.joined()
    identity = identify(nodes)

    def among(target: RemovalTarget) -> str | None:
        return name if (name := handle_of(target)) in instances else None

    refuse_changed(operation.spec.targets, among, identity, nodes)
