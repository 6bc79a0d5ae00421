"""The one flat object that every document holds for an operation: its spec and
its status side by side.

Rows of the table and memory files had this form before spec and status were separated, and older
releases read them. The order of the fields is the order in which they are encoded.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.managed_group import MachineChoice
from chalicelib.model.operation import (
    NEVER,
    AwaitedPods,
    Operation,
    OperationKind,
    OperationSpec,
    OperationState,
    OperationStatus,
    RemovalTarget,
)


class OperationDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of OperationSpec and OperationStatus. Instants are epoch seconds."""

    id: str
    cluster: str
    provider: str
    group: str
    kind: OperationKind
    plan: str
    created_at: float
    from_size: int = 0
    to_size: int = 0
    targets: tuple[RemovalTarget, ...] = ()
    pods: tuple[str, ...] = ()
    state: OperationState = OperationState.PLANNED
    step: str = ""
    data: dict[str, str] = {}
    attempt: int = 0
    token: int = 0
    due_at: float = NEVER
    deadline: float = NEVER
    claimed_by: str = ""
    claimed_until: float = NEVER
    sent_at: float = NEVER
    updated_at: float = NEVER
    pool: str = ""
    outcome: str = ""
    error_class: str = ""
    error_code: str = ""
    after: tuple[str, ...] = ()
    replacement: str = ""
    reason: str = ""
    price: int = 0
    currency: str = ""
    leaves_at: float = NEVER
    awaited: tuple[AwaitedPods, ...] = ()
    more_awaited: int = 0
    schedule: str = ""
    scheduled_at: float = NEVER
    choice: MachineChoice | None = None


def to_document(operation: Operation) -> OperationDocument:
    """The flat form of an operation."""
    spec, status = operation.spec, operation.status
    return OperationDocument(
        spec.id,
        spec.cluster,
        spec.provider,
        spec.group,
        spec.kind,
        spec.plan,
        spec.created_at,
        spec.from_size,
        spec.to_size,
        spec.targets,
        spec.pods,
        status.state,
        status.step,
        status.data,
        status.attempt,
        spec.token,
        status.due_at,
        spec.deadline,
        status.claimed_by,
        status.claimed_until,
        status.sent_at,
        status.updated_at,
        spec.pool,
        status.outcome,
        status.error_class,
        status.error_code,
        spec.after,
        spec.replacement,
        spec.reason,
        spec.price,
        spec.currency,
        spec.leaves_at,
        spec.awaited,
        spec.more_awaited,
        spec.schedule,
        spec.scheduled_at,
        spec.choice,
    )


def from_document(document: OperationDocument) -> Operation:
    """The operation that a flat form describes."""
    return Operation(
        OperationSpec(
            document.id,
            document.cluster,
            document.provider,
            document.group,
            document.kind,
            document.plan,
            document.created_at,
            document.from_size,
            document.to_size,
            document.targets,
            document.pods,
            document.token,
            document.deadline,
            document.pool,
            document.after,
            document.replacement,
            document.reason,
            document.price,
            document.currency,
            document.leaves_at,
            document.awaited,
            document.more_awaited,
            document.schedule,
            document.scheduled_at,
            document.choice,
        ),
        OperationStatus(
            document.state,
            document.step,
            document.data,
            document.attempt,
            document.due_at,
            document.claimed_by,
            document.claimed_until,
            document.sent_at,
            document.updated_at,
            document.outcome,
            document.error_class,
            document.error_code,
        ),
    )
