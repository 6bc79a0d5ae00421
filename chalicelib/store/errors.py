"""Errors of the store. Every refusal carries what was found, so that callers need not read it again.

    OutscalerError
    └── StoreError
        ├── LeaseHeld(owner, until)             another pass of this cluster is running; retry after `until`
        ├── LeaseLost(cluster, token)           a newer pass holds the lease; nothing was written, stop
        ├── StaleWrite(cluster, items)          rows changed since they were read; nothing was written, plan again
        ├── OperationClaimed(holder, until)     another executor has claimed the operation; stop
        ├── OperationNotDue(due_at)             the operation waits on purpose; retry then
        ├── OperationFinished(state)            the operation has ended (or is not known any more); stop
        ├── IllegalTransition(before, after)    not a transition of the state machine; a bug of the caller
        ├── PolicyChanged(expected, actual)     another version was stored in the meantime; read it first
        ├── NotMoved(cluster)                   its policy is only in the old place; an operator has to migrate it
        ├── NewerSchema(schema, release)        a newer release wrote the table; this code must not use it
        ├── RowUnreadable                       rows of one cluster have another form; only it is affected
        ├── StoreThrottled                      too busy after all retries; nothing is known to be wrong, retry later
        └── StoreUnavailable                    no response, no table or no permission; a write may have happened

LeaseLost and StaleWrite guarantee that nothing of the refused write is visible, now or later.
"""

from __future__ import annotations

from chalicelib.model.errors import OutscalerError


class StoreError(OutscalerError):
    """The store did not carry out the request."""


class LeaseHeld(StoreError):
    """Another owner has the lease until that instant (epoch seconds)."""

    def __init__(self, owner: str, until: float) -> None:
        super().__init__(owner, until)
        self.owner, self.until = owner, until

    def __str__(self) -> str:
        return f"the lease is held by {self.owner} until {self.until:.3f}"


class LeaseLost(StoreError):
    """The token is not the newest one: the lease was taken over or released."""

    published_name = "Fenced"

    def __init__(self, cluster: str, token: int) -> None:
        super().__init__(cluster, token)
        self.cluster, self.token = cluster, token

    def __str__(self) -> str:
        return f"{self.cluster}: the lease with token {self.token} is not in force any more"


class StaleWrite(StoreError):
    """Rows changed between reading and writing. items: the rows, where known."""

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
    """The operation must not be processed before that instant (epoch seconds)."""

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
    """The state machine of model/operation.py has no such transition."""

    published_name = "IllegalStep"

    def __init__(self, before: str, after: str, why: str = "no such arrow") -> None:
        super().__init__(before, after, why)
        self.before, self.after, self.why = before, after, why

    def __str__(self) -> str:
        return f"an operation cannot go from {self.before} to {self.after}: {self.why}"


class PolicyChanged(StoreError):
    """expected, actual: version numbers; None: there was no policy."""

    def __init__(self, expected: int | None, actual: int | None) -> None:
        super().__init__(expected, actual)
        self.expected, self.actual = expected, actual

    def __str__(self) -> str:
        expected = "no policy" if self.expected is None else f"version {self.expected}"
        actual = "there is none" if self.actual is None else f"version {self.actual} is in force"
        return f"expected {expected}, but {actual}"


class NotMoved(StoreError):
    """The cluster's policy is stored where it is not used (policy_migration.py). Its operations wait: an unfinished
    upgrade must not cancel them."""

    def __init__(self, cluster: str) -> None:
        super().__init__(cluster)
        self.cluster = cluster

    def __str__(self) -> str:
        return f"{self.cluster}: its policy lies in the state table, where it is not used; run outscaler migrate"


class NewerSchema(StoreError):
    """The table has a schema that this code does not know. schema, release: as the table says; known: the schema that
    this code knows."""

    def __init__(self, schema: int, release: str, known: int) -> None:
        super().__init__(schema, release, known)
        self.schema, self.release, self.known = schema, release, known

    def __str__(self) -> str:
        return (
            f"the table was written by a newer release (schema {self.schema}, release {self.release}); this code "
            f"knows schema {self.known}; deploy that release again"
        )


class RowUnreadable(StoreError):
    """Rows of one cluster cannot be read, whereas the table answers: what concerns other clusters continues."""

    published_name = "StoreError"


class StoreThrottled(StoreError):
    """DynamoDB kept refusing because of load or conflicting transactions."""


class StoreUnavailable(StoreError):
    """DynamoDB gave no usable response; the message contains the network's or the service's error."""
