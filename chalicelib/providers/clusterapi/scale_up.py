"""Increase of a node group's size; resize.py writes the size."""

from __future__ import annotations

from contextlib import suppress

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Outcome
from chalicelib.providers.clusterapi.context import (
    CapiContext,
    check_maximum,
    machines_of,
)
from chalicelib.providers.clusterapi.delete_marks import standing
from chalicelib.providers.clusterapi.resize import resize, take_off_forgotten
from chalicelib.providers.clusterapi.scalable_resource import Subject, machine_sets
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
