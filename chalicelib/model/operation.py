"""The unit of action: idempotent, and named after what it does, so that the same thing cannot be planned twice.

    planned ──claim──► running ──Pending──► waiting ──claim──► running … ──► succeeded | failed | abandoned

Each arrow is one conditional write (store/operations.py). A message only carries the id; whoever finds the claim taken
stops. After a crash the claim runs out and the next attempt first asks the provider what happened.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

import msgspec


class OperationKind(StrEnum):
    """What an operation does."""

    SCALE_UP = "grow"  # from_size -> to_size
    DELETE_NODES = "remove"  # the named nodes, drained where needed
    DECREASE_TARGET = "shrink"  # from_size -> to_size, only what never came
    DELETE_INSTANCES = "discard"  # the named instances, which never became nodes: no drain


class OperationState(StrEnum):
    """Where an operation stands."""

    PLANNED = "planned"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABANDONED = "abandoned"


OPERATION_ANNOTATION = "outscaler.dev/operation"
"""On a node with the hard taint: the id of the operation that set it."""
CORDONED_ANNOTATION = "outscaler.dev/cordoned"
"""Beside it, "true" where the same write cordoned the node, so that the cordon is to be lifted with the taint."""

UID = "own.uid"
"""The key in a removal's data: the uid of its one Node object as planned. Execute keeps what begins with `own.`."""

NEVER = 0.0
"""The default of instants. msgspec omits a default by its identity, so the flat document shares this object."""

OPEN_STATES = frozenset({OperationState.PLANNED, OperationState.RUNNING, OperationState.WAITING})


class RemovalTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node (or an instance that never became one) that an operation removes. uid: of the Node object, where a
    provider is to know it; plans keep it in the operation's data."""

    node: str
    instance: str
    handle: str = ""
    evict: tuple[str, ...] = ()
    uid: str = ""


class OperationSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an operation is to do, fixed by the reconcile that planned it. Instants are epoch seconds."""

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
    pods: tuple[str, ...] = ()  # the pods it was planned for, for events and the journal (first 50)
    token: int = 0  # fencing token of the reconcile that planned it
    deadline: float = NEVER  # give up and roll back after
    pool: str = ""  # the id of the pool that the group shares with others, if it does


class OperationStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far an operation has come. Every executor changes it. Instants are epoch seconds."""

    state: OperationState = OperationState.PLANNED
    step: str = ""
    data: dict[str, str] = {}
    attempt: int = 0
    due_at: float = NEVER  # not before
    claimed_by: str = ""
    claimed_until: float = NEVER
    sent_at: float = NEVER  # last time a message was sent for it; 0.0: never
    updated_at: float = NEVER
    outcome: str = ""  # one line, for people, once it is over
    error_class: str = ""
    error_code: str = ""


class Operation(msgspec.Struct, frozen=True):
    """One action: its spec, and its status apart. Documents hold both as one flat object (operation_document.py)."""

    spec: OperationSpec
    status: OperationStatus = OperationStatus()

    @property
    def is_open(self) -> bool:
        """Planned, running or waiting: it counts as upcoming or leaving capacity."""
        return self.status.state in OPEN_STATES

    def uid_of(self, target: RemovalTarget) -> str:
        """The uid that a target's Node object had when it was planned; "" where it is not known."""
        return target.uid or (self.status.data.get(UID, "") if len(self.spec.targets) == 1 else "")

    def with_spec(self, **changes: object) -> Operation:
        """A copy with these fields of the spec: the reconcile signs it, execute narrows it for a provider."""
        return Operation(msgspec.structs.replace(self.spec, **changes), self.status)

    def with_status(self, **changes: object) -> Operation:
        """A copy with these fields of the status."""
        return Operation(self.spec, msgspec.structs.replace(self.status, **changes))


def operation_id(
    cluster: str, group: str, kind: OperationKind, from_size: int, to_size: int, nodes: tuple[str, ...], plan: str
) -> str:
    """Same intent, same id: 20 hexadecimal digits over what it does and the plan that wanted it."""
    text = msgspec.json.encode([cluster, group, kind, from_size, to_size, sorted(nodes), plan])
    return f"{kind.value}-{hashlib.sha256(text).hexdigest()[:20]}"
