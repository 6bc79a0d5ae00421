"""Changes of a group's size that name no Machine: increases, and decreases where only Machines that never joined are
lost. Absolute sizes are written, and only over the size that the operation was planned for.

GET scale ── to_size ──► done         (an earlier attempt succeeded)
    │ └───── other  ──► conflict     (another writer's size stays)
 from_size
    └─ check bounds ─► PATCH scale with the resourceVersion just read ── 409 ──► again, at most three times
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Outcome, Succeeded
from chalicelib.providers.clusterapi.api import MACHINE, POOL
from chalicelib.providers.clusterapi.capi_state import gives_way, rolling_out
from chalicelib.providers.clusterapi.context import (
    TRIES,
    CapiContext,
    ScalableResourceState,
    Subject,
    machine_sets,
    machines_of,
    nodes_of,
    remove_forgotten,
    standing,
)
from chalicelib.providers.clusterapi.instances import Nodes, without_machine
from chalicelib.providers.clusterapi.models import CapiMachine
from chalicelib.providers.errors import Conflict, InvalidRequest, ProviderError


def scale_up(context: CapiContext, operation: Operation) -> Outcome:
    """Scale from from_size to to_size; raises ProviderError."""
    if operation.spec.to_size <= operation.spec.from_size:
        raise InvalidRequest(f"from {operation.spec.from_size} to {operation.spec.to_size} does not increase the size")
    return _resize(context, operation, _check_increase)


def has_requested(context: CapiContext, operation: Operation) -> bool:
    """Return whether the size is to_size; raises ProviderError."""
    subject = context.subject(operation.spec.group)
    scale = context.api.scale(subject.kind, subject.namespace, subject.name)
    return scale.spec.replicas == operation.spec.to_size


def decrease_target(context: CapiContext, operation: Operation) -> Outcome:
    """from_size -> to_size where only Machines that never joined are lost; raises ProviderError."""
    if not 0 <= operation.spec.to_size < operation.spec.from_size:
        raise InvalidRequest(f"from {operation.spec.from_size} to {operation.spec.to_size} does not decrease the size")
    return _resize(context, operation, _check_decrease)


def _resize(
    context: CapiContext, operation: Operation, check: Callable[[CapiContext, Subject, Operation], None]
) -> Outcome:
    """Write to_size over from_size after the check; raises ProviderError."""
    conflict = Conflict("")
    for _ in range(TRIES):
        subject = context.subject(operation.spec.group)
        scale = context.api.scale(subject.kind, subject.namespace, subject.name)
        size, to_size = scale.spec.replicas, operation.spec.to_size
        if size == to_size:
            return Succeeded({"from": operation.spec.from_size, "to": size})
        if size != operation.spec.from_size:
            planned = f"from {operation.spec.from_size} to {to_size}"
            raise ScalableResourceState(f"{operation.spec.group} has size {size}, but {planned} was planned")
        check(context, subject, operation)
        version = scale.metadata.resource_version
        try:
            context.api.set_scale(subject.kind, subject.namespace, subject.name, to_size, version)
        except Conflict as error:
            conflict = error
            continue
        return Succeeded({"from": size, "to": to_size})
    raise conflict


def _check_increase(context: CapiContext, subject: Subject, operation: Operation) -> None:
    """Raise above the maximum, and temporarily while MachineSets have yet to delete annotated Machines. A size raised
    now would keep those Machines alive, and their removal would lower it again."""
    subject.check_maximum(operation.spec.to_size)
    machines, _ = machines_of(context.api, subject, machine_sets(context.api, subject))
    state = standing(operation.spec.from_size, machines, (), context.settings.keys)
    if state.others and state.excess > 0:
        raise Conflict(f"{subject.group}: the deletion of marked machines has not begun")
    with suppress(ProviderError):  # opportunistic cleanup: the scale-up does not depend on it
        remove_forgotten(context, state.others)


def _check_decrease(context: CapiContext, subject: Subject, operation: Operation) -> None:
    """Raise unless a MachineSet that shrinks to this size takes Machines that never joined: it takes marked ones first,
    then those without a Node or with an unhealthy one, by name, and only then the rest. A pool promises no order, so
    there every instance counts."""
    to_size, keys = operation.spec.to_size, context.settings.keys
    subject.check_minimum(to_size)
    sets = machine_sets(context.api, subject)
    if reason := rolling_out(subject.resource, sets):
        raise ScalableResourceState(f"{subject.group}: {reason}")
    machines, _ = machines_of(context.api, subject, sets)
    state = standing(operation.spec.from_size, machines, (), keys)
    if subject.kind == POOL:
        unclaimed = without_machine(subject.resource, machines)
        _check_remaining(subject, operation, len(state.living) + len(unclaimed), "there")
        return
    if not state.others_settled:
        remove_forgotten(context, state.others)
        raise Conflict(f"{subject.group}: machines of another removal are marked and would be taken first")
    unjoined = any(machine.status.node_ref is None for machine in machines)
    nodes = Nodes(nodes_of(context.api) if unjoined else (), keys, machines)
    # Who has a Node stays, whatever else is said of it; whose Node we know may be news to Cluster API (D26).
    running = [machine for machine in state.living if machine.status.node_ref or _may_have_joined(machine, nodes)]
    _check_remaining(subject, operation, len(running), "running")
    if running and gives_way(subject.kind, subject.resource, sets) is None:
        raise ScalableResourceState(
            f"{subject.group}: several of its MachineSets have machines, so one that is running might go"
        )
    ailing = next((machine for machine in running if machine.ailing), None)
    if ailing is not None and to_size < len(state.living):
        raise ScalableResourceState(
            f"{MACHINE} {ailing.handle} has joined and is not healthy: it might go in the place of another"
        )


def _may_have_joined(machine: CapiMachine, nodes: Nodes) -> bool:
    match = nodes.match(machine)
    return match.node is not None or bool(match.doubt)


def _check_remaining(subject: Subject, operation: Operation, count: int, state: str) -> None:
    if operation.spec.to_size < count:
        raise InvalidRequest(
            f"{subject.group}: from {operation.spec.from_size} to {operation.spec.to_size} would delete "
            f"existing machines, {count} of which are {state}"
        )
