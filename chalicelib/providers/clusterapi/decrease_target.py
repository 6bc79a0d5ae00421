"""Decrease of a node group's size where only Machines that never joined are lost; resize.py writes the size."""

from __future__ import annotations

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Outcome
from chalicelib.providers.clusterapi.api import MACHINE, POOL
from chalicelib.providers.clusterapi.context import (
    CapiContext,
    check_minimum,
    machines_of,
    nodes_of,
)
from chalicelib.providers.clusterapi.delete_marks import standing
from chalicelib.providers.clusterapi.machinepools import without_machine
from chalicelib.providers.clusterapi.models import CapiMachine
from chalicelib.providers.clusterapi.provider_ids import Nodes
from chalicelib.providers.clusterapi.resize import resize, take_off_forgotten
from chalicelib.providers.clusterapi.rollout import gives_way, rolling_out
from chalicelib.providers.clusterapi.scalable_resource import ScalableResourceState, Subject, machine_sets
from chalicelib.providers.errors import Conflict, InvalidRequest


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
