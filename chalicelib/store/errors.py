"""What the store can answer instead of a result. Every refusal carries what was found, so that nobody reads twice.

    OutscalerError
    └── StoreError
        ├── LeaseHeld(owner, until)         another pass of this cluster is at work; come back after `until`
        ├── Fenced(cluster, token)          a newer pass holds the lease; nothing was written, stop
        ├── Stale(cluster, items)           rows changed since they were read; nothing was written, plan again
        ├── Taken(holder, until)            another executor has the operation; stop
        ├── NotDue(due_at)                  the operation waits on purpose; come back then
        ├── Over(state)                     the operation has ended (or is not known any more); stop
        ├── IllegalStep(before, after)      an arrow that the state machine does not have; a bug of the caller
        ├── PolicyChanged(expected, actual) somebody stored another version meanwhile; read it first
        ├── NotMoved(cluster)               its policy lies in the old place only; a person has to move it
        ├── NewerSchema(schema, release)    a newer release wrote the table; this code must not work on it
        ├── StoreThrottled                  too busy after all retries; nothing is known to be wrong, come back later
        └── StoreUnavailable                no answer, no table or no permission; whether a write happened is not known

Fenced and Stale promise that nothing of the refused write is visible, now or later.
"""

from __future__ import annotations

from chalicelib.model.errors import OutscalerError


class StoreError(OutscalerError):
    """The store did not do as asked."""


class LeaseHeld(StoreError):
    """Another owner has the lease until that instant (epoch seconds)."""

    def __init__(self, owner: str, until: float) -> None:
        super().__init__(owner, until)
        self.owner, self.until = owner, until

    def __str__(self) -> str:
        return f"the lease is held by {self.owner} until {self.until:.3f}"


class LeaseLost(StoreError):
    """The token is not the newest one: somebody took the lease over, or it was given back."""

    published_name = "Fenced"

    def __init__(self, cluster: str, token: int) -> None:
        super().__init__(cluster, token)
        self.cluster, self.token = cluster, token

    def __str__(self) -> str:
        return f"{self.cluster}: the lease with token {self.token} is not in force any more"


class StaleWrite(StoreError):
    """Something changed between reading and writing. items: the rows, where known."""

    published_name = "Stale"

    def __init__(self, cluster: str, items: tuple[str, ...] = ()) -> None:
        super().__init__(cluster, items)
        self.cluster, self.items = cluster, items

    def __str__(self) -> str:
        return f"{self.cluster}: changed since it was read: {', '.join(self.items) or 'a row'}"


class OperationClaimed(StoreError):
    """Another executor holds the claim until that instant (epoch seconds)."""

    published_name = "Taken"

    def __init__(self, holder: str, until: float) -> None:
        super().__init__(holder, until)
        self.holder, self.until = holder, until

    def __str__(self) -> str:
        return f"claimed by {self.holder} until {self.until:.3f}"


class OperationNotDue(StoreError):
    """The operation is not to be touched before that instant (epoch seconds)."""

    published_name = "NotDue"

    def __init__(self, due_at: float) -> None:
        super().__init__(due_at)
        self.due_at = due_at

    def __str__(self) -> str:
        return f"not due before {self.due_at:.3f}"


class OperationFinished(StoreError):
    """The operation has ended. state: succeeded, failed, abandoned, or `unknown` where no row is left."""

    published_name = "Over"

    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.state = state

    def __str__(self) -> str:
        return f"the operation is over: {self.state}"


class IllegalTransition(StoreError):
    """The state machine of model/operation.py has no such arrow."""

    published_name = "IllegalStep"

    def __init__(self, before: str, after: str, why: str = "no such arrow") -> None:
        super().__init__(before, after, why)
        self.before, self.after, self.why = before, after, why

    def __str__(self) -> str:
        return f"an operation cannot go from {self.before} to {self.after}: {self.why}"


class PolicyChanged(StoreError):
    """expected, actual: version numbers; None: there was none."""

    def __init__(self, expected: int | None, actual: int | None) -> None:
        super().__init__(expected, actual)
        self.expected, self.actual = expected, actual

    def __str__(self) -> str:
        expected = "no policy" if self.expected is None else f"version {self.expected}"
        actual = "there is none" if self.actual is None else f"version {self.actual} is in force"
        return f"expected {expected}, but {actual}"


class NotMoved(StoreError):
    """The cluster's policy lies where it is not used (moving.py). Its operations wait: they are not to be called off
    because an upgrade is half done."""

    def __init__(self, cluster: str) -> None:
        super().__init__(cluster)
        self.cluster = cluster

    def __str__(self) -> str:
        return f"{self.cluster}: its policy lies in the state table, where it is not used; run outscaler migrate"


class NewerSchema(StoreError):
    """The table has a form that this code does not know. schema, release: what the table says; known: what this code
    knows."""

    def __init__(self, schema: int, release: str, known: int) -> None:
        super().__init__(schema, release, known)
        self.schema, self.release, self.known = schema, release, known

    def __str__(self) -> str:
        return (
            f"the table was written by a newer release (schema {self.schema}, release {self.release}); this code "
            f"knows schema {self.known}; deploy that release again"
        )


class StoreThrottled(StoreError):
    """DynamoDB kept refusing for load or for conflicting transactions."""


class StoreUnavailable(StoreError):
    """DynamoDB gave no usable answer; the message says what the network or the service said."""
