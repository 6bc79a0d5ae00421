"""Operations: idempotent units of action, with ids derived from their content, so that the same
action cannot be planned twice.

    planned ──claim──► running ──Pending──► waiting ──claim──► running … ──►
    succeeded | failed | abandoned

Each arrow is one conditional write (store/operations.py). A message carries only the id; a function
that finds the operation claimed stops. After a crash the claim expires, and the next attempt first
asks the provider what happened.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.managed_group import MachineChoice


class OperationKind(StrEnum):
    """The action of an operation."""

    SCALE_UP = "grow"  # from_size -> to_size
    DELETE_NODES = "remove"  # the named nodes, drained if needed
    DECREASE_TARGET = "shrink"  # from_size -> to_size, only instances that never arrived
    DELETE_INSTANCES = "discard"  # the named instances, which never became nodes: no drain
    RESTART_NODE = "restart"  # the named node: drained, restarted by its provider, given back
    REMOVE_GROUP = "close"  # an empty group that Outscaler has made


class OperationState(StrEnum):
    """The state of an operation."""

    PLANNED = "planned"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABANDONED = "abandoned"


ANNOTATION_PREFIX = "outscaler.dev/"
OPERATION_ANNOTATION = "outscaler.dev/operation"
"""Annotation of a node with the hard taint: the id of the operation that set the taint."""
CORDONED_ANNOTATION = "outscaler.dev/cordoned"
"""Second annotation: "true" if the same write cordoned the node, so that it is uncordoned
when the taint is removed."""

UID = "own.uid"
"""The key in a removal's data for the uid of its Node object when it was planned. The executor
keeps keys that begin with `own.`."""

REPLACES, REPLACED_BY, SAVES = "own.replaces", "own.replacedBy", "own.saves"
"""Keys in the data of an operation of a replacement, for the journal and the page: the old nodes of
a purchase, the new ones of a removal (comma-separated, the first MOST_NAMES), and what the whole
replacement saves, per hour in millionths."""

MOST_NAMES = 10
"""Nodes that REPLACES and REPLACED_BY name."""

SIGNAL = "own.signal"
"""The key in the data of an `interrupted` removal: the signal by which its
node was announced to go."""

OPENS = "own.opens"
"""The key in a scale-up's data that says that its vendor did not have the group when it was
planned: the machine that was chosen, see MachineChoice.machine."""

BROKEN = "own.broken"
"""The key in an operation's data that says that an executor of it has died: the
attempt that has taken over."""

NEVER = 0.0
"""The default of instants. msgspec omits a default by its identity, so the flat
document shares this object."""

MOST_PODS = 50
"""Pods that an operation names; one that was planned for more names the first of them."""

OPEN_STATES = frozenset({OperationState.PLANNED, OperationState.RUNNING, OperationState.WAITING})


class RemovalTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node (or an instance that never became one) that an operation removes. uid: of the Node
    object, if a provider needs it; plans store it in the operation's data."""

    node: str
    instance: str
    handle: str = ""
    evict: tuple[str, ...] = ()
    uid: str = ""


class AwaitedPods(msgspec.Struct, frozen=True, omit_defaults=True):
    """Pods of one owner and class for which nodes were bought. owner: namespace/kind/name; digest:
    of the class (model/purchases.py)."""

    owner: str
    digest: str
    count: int


class OperationSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an operation is to do, fixed by the reconcile that planned it. Instants are epoch
    seconds. after: ids of operations of the cluster that must have succeeded before it starts
    (operations/ordering.py)."""

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
    # the pods it was planned for, for events and the journal (first MOST_PODS)
    pods: tuple[str, ...] = ()
    token: int = 0  # fencing token of the pass that planned it
    deadline: float = NEVER  # stopped and rolled back after
    pool: str = ""  # id of the pool that the group shares with others, if any
    after: tuple[str, ...] = ()
    replacement: str = ""  # id of the replacement that it is part of
    # DisruptionReason of a removal that is not for being unneeded, or of what a purchase replaces
    reason: str = ""
    price: int = 0  # of one of its nodes, per hour in millionths; 0: unknown
    currency: str = ""  # of price
    # when the vendor takes the target back, for a removal that is `interrupted`
    leaves_at: float = NEVER
    awaited: tuple[AwaitedPods, ...] = ()  # for whom a scale-up buys; remembered with its nodes
    more_awaited: int = 0  # pods that are only counted
    # name of the schedule without which a node of a removal would have stayed, and since when that
    # schedule has been closed, or open
    schedule: str = ""
    scheduled_at: float = NEVER
    # of a group of its own: what is bought; the provider opens the group if it does not exist
    choice: MachineChoice | None = None

    @property
    def interrupted(self) -> bool:
        """Return whether the vendor takes its target back."""
        return (
            self.kind is OperationKind.DELETE_NODES
            and self.reason == DisruptionReason.INTERRUPTED.value
        )


class OperationStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far an operation has come. Every executor changes it. Instants are epoch seconds."""

    state: OperationState = OperationState.PLANNED
    step: str = ""
    data: dict[str, str] = {}
    attempt: int = 0
    due_at: float = NEVER  # not run before
    claimed_by: str = ""
    claimed_until: float = NEVER
    sent_at: float = NEVER  # when a message was last sent for it; 0.0: never
    updated_at: float = NEVER
    outcome: str = ""  # one line for display, once it is over
    error_class: str = ""
    error_code: str = ""


class Operation(msgspec.Struct, frozen=True):
    """One action: its spec, and its status apart. Documents hold both as one flat object
    (operation_document.py)."""

    spec: OperationSpec
    status: OperationStatus = OperationStatus()

    @property
    def is_open(self) -> bool:
        """Return whether it is planned, running or waiting: its nodes count as upcoming or
        leaving."""
        return self.status.state in OPEN_STATES

    def uid_of(self, target: RemovalTarget) -> str:
        """Return the uid that a target's Node object had when the operation
        was planned; "" if unknown."""
        return target.uid or (self.status.data.get(UID, "") if len(self.spec.targets) == 1 else "")

    def with_spec(self, **changes: object) -> Operation:
        """A copy with these fields of the spec: the reconcile signs it, execute
        narrows it for a provider."""
        return Operation(msgspec.structs.replace(self.spec, **changes), self.status)

    def with_status(self, **changes: object) -> Operation:
        """A copy with these fields of the status."""
        return Operation(self.spec, msgspec.structs.replace(self.status, **changes))


def operation_id(
    cluster: str,
    group: str,
    kind: OperationKind,
    from_size: int,
    to_size: int,
    nodes: tuple[str, ...],
    plan: str,
) -> str:
    """Return an id that is equal for equal intent: 20 hexadecimal digits of a hash over
    the action and its plan."""
    text = msgspec.json.encode([cluster, group, kind, from_size, to_size, sorted(nodes), plan])
    return f"{kind.value}-{hashlib.sha256(text).hexdigest()[:20]}"
