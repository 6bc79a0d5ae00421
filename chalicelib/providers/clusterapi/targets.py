"""Verifies the Machines that an operation targets, and sets and removes their delete-machine annotations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.providers.clusterapi.annotations import MARK_PREFIX
from chalicelib.providers.clusterapi.api import MACHINE
from chalicelib.providers.clusterapi.context import CapiContext, nodes_of
from chalicelib.providers.clusterapi.delete_marks import is_forgotten, mark_value
from chalicelib.providers.clusterapi.models import CapiMachine
from chalicelib.providers.clusterapi.provider_ids import Match, Nodes, normalise
from chalicelib.providers.clusterapi.scalable_resource import ScalableResourceState, Subject
from chalicelib.providers.errors import InvalidRequest, ProviderError


def check_membership(
    subject: Subject, targets: Mapping[str, str], mine: Sequence[CapiMachine], foreign: Iterable[CapiMachine]
) -> None:
    """Raise InvalidRequest if a handle is another group's Machine, or a new Machine with the name of the planned one.

    targets: handle -> instance id."""
    elsewhere = {each.handle for each in foreign}
    for handle in sorted(targets):
        if handle.partition("/")[0] != subject.namespace or handle in elsewhere:
            raise InvalidRequest(f"{MACHINE} {handle} does not belong to {subject.group}")
    for machine in mine:
        if _is_another(machine, targets.get(machine.handle, "")):
            raise InvalidRequest(f"{MACHINE} {machine.handle} is another machine by now than {targets[machine.handle]}")


def _is_another(machine: CapiMachine, instance: str) -> bool:
    """Whether a machine with another id than the planned one now has the name."""
    if "/" not in instance or not machine.spec.provider_id:
        return False
    return normalise(machine.spec.provider_id) != normalise(instance)


def check_identity(
    context: CapiContext, operation: Operation, machines: Collection[CapiMachine], known: Iterable[CapiMachine]
) -> Nodes:
    """Return the cluster's current Nodes.

    Removes our annotations and raises Held unless each Machine is still what was planned: an unregistered one must not
    be a Node, and one to be removed must belong to the drained Node. It is called immediately before the change,
    because a Node may take another one's providerID at any time. known: all Machines of the namespace, of which those
    of the same cluster count.
    """
    clusters = {each.cluster(context.settings.keys) for each in machines}
    near = [each for each in known if each.cluster(context.settings.keys) in clusters]
    nodes = Nodes(nodes_of(context.api), context.settings.keys, near)
    drained = {target.handle: target.node for target in operation.spec.targets}
    for machine in machines:
        match = nodes.match(machine)
        problem = (
            _joined(match)
            if operation.spec.kind is OperationKind.DELETE_INSTANCES
            else _another_node(nodes, match, machine, drained.get(machine.handle, ""))
        )
        if problem:
            unmark(context, operation, machines)
            raise ScalableResourceState(f"{MACHINE} {machine.handle} {problem}")
    return nodes


def _joined(match: Match) -> str:
    return (
        f"has joined as node {match.node.name} meanwhile"
        if match.node is not None
        else (match.doubt and f"stays: {match.doubt}")
    )


def _another_node(nodes: Nodes, match: Match, machine: CapiMachine, drained: str) -> str:
    """Return why it is not the Machine of the drained Node. A Node that is gone by now is not a contradiction."""
    if match.doubt and not match.gone:
        return f"stays: {match.doubt}"
    name = match.node.name if match.node is not None else machine.node_name
    if not drained or name == drained or (not name and nodes.named(drained) is None):
        return ""
    return f"is node {name or 'none'} by now, and {drained} was drained"


def without_forgotten(context: CapiContext, marked: Iterable[CapiMachine]) -> tuple[CapiMachine, ...]:
    """Return the Machines with a valid annotation, and remove expired ones set by Outscaler.

    Raises Held for an annotation that is not ours, because another party's Machine would be deleted instead of a
    target."""
    kept = []
    for machine in marked:
        mark = machine.mark(context.settings.keys) or ""
        if not mark.startswith(MARK_PREFIX):
            raise ScalableResourceState(
                f"{MACHINE} {machine.handle} carries a {context.settings.keys.delete_machine} mark that is not ours, "
                "so it would be deleted in the place of another: take the mark off or delete that Machine"
            )
        if is_forgotten(mark, context.now()):
            context.api.mark(machine, None)
        else:
            kept.append(machine)
    return tuple(kept)


def set_marks(context: CapiContext, operation: Operation, machines: Iterable[CapiMachine]) -> None:
    """Annotate the Machines.

    An annotation set by a user has the same effect and is kept; an expired one set by Outscaler is renewed. Raises
    NotFound if a Machine has disappeared since it was listed: the next call counts it as removed."""
    value = mark_value(operation.spec.id, context.now())
    for machine in machines:
        mark = machine.mark(context.settings.keys)
        if mark is None or (mark.startswith(MARK_PREFIX) and is_forgotten(mark, context.now())):
            context.api.mark(machine, value)


def unmark(context: CapiContext, operation: Operation, machines: Iterable[CapiMachine]) -> None:
    """Remove this operation's annotations as far as possible; a remaining one is removed after it has expired."""
    own = f"{MARK_PREFIX}{operation.spec.id}/"
    for machine in machines:
        try:
            fresh = context.api.machine(machine.metadata.namespace, machine.metadata.name)
            if (fresh.mark(context.settings.keys) or "").startswith(own):
                context.api.mark(machine, None)
        except ProviderError:
            continue


def release_marks(context: CapiContext, operation: Operation, machines: Iterable[CapiMachine]) -> None:
    """Remove this operation's annotations; raises ProviderError if that fails."""
    own = f"{MARK_PREFIX}{operation.spec.id}/"
    for machine in machines:
        if (machine.mark(context.settings.keys) or "").startswith(own):
            context.api.mark(machine, None)
