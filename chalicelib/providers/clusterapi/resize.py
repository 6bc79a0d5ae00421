"""Writes absolute sizes, and only over the size that the operation was planned for.

GET scale ── to_size ──► done         (an earlier attempt succeeded)
    │ └───── other  ──► conflict     (another writer's size stays)
 from_size
    └─ check bounds ─► PATCH scale with the resourceVersion just read ── 409 ──► again, at most three times
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Outcome, Succeeded
from chalicelib.providers.clusterapi.annotations import MARK_PREFIX
from chalicelib.providers.clusterapi.context import (
    TRIES,
    CapiContext,
)
from chalicelib.providers.clusterapi.delete_marks import is_forgotten
from chalicelib.providers.clusterapi.models import CapiMachine
from chalicelib.providers.clusterapi.scalable_resource import ScalableResourceState, Subject
from chalicelib.providers.errors import Conflict

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
