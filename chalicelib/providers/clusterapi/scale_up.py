"""Increase of a node group's size; resize.py writes the size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Outcome, Succeeded
from chalicelib.providers.clusterapi.annotations import MARK_PREFIX
from chalicelib.providers.clusterapi.api import MACHINE, POOL
from chalicelib.providers.clusterapi.capi_state import gives_way, rolling_out
from chalicelib.providers.clusterapi.context import (
    TRIES,
    CapiContext,
    ScalableResourceState,
    Subject,
    check_maximum,
    check_minimum,
    is_forgotten,
    machine_sets,
    machines_of,
    nodes_of,
    standing,
)
from chalicelib.providers.clusterapi.instances import Nodes, without_machine
from chalicelib.providers.clusterapi.models import CapiMachine
from chalicelib.providers.errors import Conflict, InvalidRequest, ProviderError


def scale_up(context: CapiContext, operation: Operation) -> Outcome:
    """Scale from from_size to to_size; raises ProviderError."""
    if operation.spec.to_size <= operation.spec.from_size:
        raise InvalidRequest(f"from {operation.spec.from_size} to {operation.spec.to_size} does not increase the size")
    return resize(context, operation, _may_grow)


def has_requested(context: CapiContext, operation: Operation) -> bool:
    """Return whether the size is to_size; raises ProviderError."""
    subject = context.subject(operation.spec.group)
    scale = context.api.scale(subject.kind, subject.namespace, subject.name)
    return scale.spec.replicas == operation.spec.to_size


def _may_grow(context: CapiContext, subject: Subject, operation: Operation) -> None:
    """Raise above the maximum, and temporarily while MachineSets have yet to delete annotated Machines.

    A size raised now would keep those Machines alive, and their removal would lower it again."""
    check_maximum(subject, operation.spec.to_size)
    machines, _ = machines_of(context.api, subject, machine_sets(context.api, subject))
    stands = standing(operation.spec.from_size, machines, (), context.settings.keys)
    if stands.others and stands.excess > 0:
        raise Conflict(f"{subject.group}: the deletion of marked machines has not begun")
    with suppress(ProviderError):  # opportunistic cleanup: the scale-up does not depend on it
        take_off_forgotten(context, stands.others)


Check = Callable[[CapiContext, Subject, Operation], None]


def resize(context: CapiContext, operation: Operation, check: Check) -> Outcome:
    """Write to_size over from_size after the check; raises ProviderError."""
    conflict = Conflict("")
    for _ in range(TRIES):
        subject = context.subject(operation.spec.group)
        scale = context.api.scale(subject.kind, subject.namespace, subject.name)
        size, wanted = scale.spec.replicas, operation.spec.to_size
        if size == wanted:
            return Succeeded({"from": operation.spec.from_size, "to": size})
        if size != operation.spec.from_size:
            planned = f"from {operation.spec.from_size} to {wanted}"
            raise ScalableResourceState(f"{operation.spec.group} has size {size}, but {planned} was planned")
        check(context, subject, operation)
        version = scale.metadata.resource_version
        try:
            context.api.set_scale(subject.kind, subject.namespace, subject.name, wanted, version)
        except Conflict as error:
            conflict = error
            continue
        return Succeeded({"from": size, "to": wanted})
    raise conflict


def take_off_forgotten(context: CapiContext, marked: Sequence[CapiMachine]) -> None:
    """Remove our delete annotations of removals that ended long ago.

    Nothing else removes them, and the next manual decrease of the group would delete these machines.
    """
    for machine in marked:
        mark = machine.mark(context.settings.keys) or ""
        if mark.startswith(MARK_PREFIX) and is_forgotten(mark, context.now()):
            context.api.mark(machine, None)


def decrease_target(context: CapiContext, operation: Operation) -> Outcome:
    """from_size -> to_size where only Machines that never joined are lost; raises ProviderError."""
    if not 0 <= operation.spec.to_size < operation.spec.from_size:
        raise InvalidRequest(f"from {operation.spec.from_size} to {operation.spec.to_size} does not decrease the size")
    return resize(context, operation, _spares_the_running)


def _spares_the_running(context: CapiContext, subject: Subject, operation: Operation) -> None:
    """Raises unless a MachineSet that shrinks to this size takes Machines that never joined: it takes marked ones
    first, then those without a Node or with an unhealthy one, by name, and only then the rest. A pool promises no
    order, so there every instance counts."""
    check_minimum(subject, operation.spec.to_size)
    sets = machine_sets(context.api, subject)
    if reason := rolling_out(subject.resource, sets):
        raise ScalableResourceState(f"{subject.group}: {reason}")
    machines, _ = machines_of(context.api, subject, sets)
    if subject.kind == POOL:
        unclaimed = without_machine(subject.resource, machines)
        _leaves(subject, operation, sum(1 for each in machines if not each.leaving) + len(unclaimed), "there")
        return
    stands = standing(operation.spec.from_size, machines, (), context.settings.keys)
    if not stands.others_settled:
        take_off_forgotten(context, stands.others)
        raise Conflict(f"{subject.group}: machines of another removal are marked and would be taken first")
    unjoined = any(each.status.node_ref is None for each in machines)
    nodes = Nodes(nodes_of(context.api) if unjoined else (), context.settings.keys, machines)
    # Who has a Node stays, whatever else is said of it; whose Node we know may be news to Cluster API (D26).
    running = [
        each for each in machines if not each.leaving and (each.status.node_ref or _may_have_joined(each, nodes))
    ]
    _leaves(subject, operation, len(running), "running")
    if running and gives_way(subject.kind, subject.resource, sets) is None:
        raise ScalableResourceState(
            f"{subject.group}: several of its MachineSets have machines, so one that is running might go"
        )
    if operation.spec.to_size < len(stands.living) and (
        ailing := next((each for each in running if each.ailing), None)
    ):
        raise ScalableResourceState(
            f"{MACHINE} {ailing.handle} has joined and is not healthy: it might go in the place of another"
        )


def _may_have_joined(machine: CapiMachine, nodes: Nodes) -> bool:
    match = nodes.match(machine)
    return match.node is not None or bool(match.doubt)


def _leaves(subject: Subject, operation: Operation, count: int, state: str) -> None:
    if operation.spec.to_size < count:
        raise InvalidRequest(
            f"{subject.group}: from {operation.spec.from_size} to {operation.spec.to_size} would delete "
            f"existing machines, {count} of which are {state}"
        )
