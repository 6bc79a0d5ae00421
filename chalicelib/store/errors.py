"""Errors of the store. Every refusal carries what was found, so that
callers need not read it again.

LeaseLost and StaleWrite guarantee that nothing of the refused write is visible, now or later.
"""

from __future__ import annotations

from chalicelib.model.errors import OutscalerError


class StoreError(OutscalerError):
    """The store did not carry out the request."""


class LeaseHeld(StoreError):
    """Another pass of this cluster has the lease; retry after `until` (epoch seconds)."""

    def __init__(self, owner: str, until: float) -> None:
        super().__init__(f"the lease is held by {owner} until {until:.3f}")
        self.owner, self.until = owner, until


class LeaseLost(StoreError):
    """The token is not the newest one: the lease was taken over or released. Stop."""

    published_name = "Fenced"

    def __init__(self, cluster: str, token: int) -> None:
        super().__init__(f"{cluster}: the lease with token {token} is not in force any more")
        self.cluster, self.token = cluster, token


class StaleWrite(StoreError):
    """Rows changed between reading and writing; plan again. items: the rows, where known."""

    published_name = "Stale"

    def __init__(self, cluster: str, items: tuple[str, ...] = ()) -> None:
        super().__init__(f"{cluster}: changed since it was read: {', '.join(items) or 'a row'}")
        self.cluster, self.items = cluster, items


class OperationClaimed(StoreError):
    """Another executor holds the claim until that instant (epoch seconds). Stop."""

    published_name = "Taken"

    def __init__(self, holder: str, until: float) -> None:
        super().__init__(f"claimed by {holder} until {until:.3f}")
        self.holder, self.until = holder, until


class OperationNotDue(StoreError):
    """The operation waits on purpose; retry at due_at (epoch seconds)."""

    published_name = "NotDue"

    def __init__(self, due_at: float) -> None:
        super().__init__(f"not due before {due_at:.3f}")
        self.due_at = due_at


class OperationFinished(StoreError):
    """The operation has ended. state: succeeded, failed, abandoned, or
    `unknown` where no row is left."""

    published_name = "Over"

    def __init__(self, state: str) -> None:
        super().__init__(f"the operation is over: {state}")
        self.state = state


class IllegalTransition(StoreError):
    """The state machine of model/operation.py has no such transition; a bug of the caller."""

    published_name = "IllegalStep"

    def __init__(self, before: str, after: str, why: str = "no such arrow") -> None:
        super().__init__(f"an operation cannot go from {before} to {after}: {why}")
        self.before, self.after, self.why = before, after, why


class PolicyChanged(StoreError):
    """Another version was stored in the meantime. expected, actual: version numbers;
    None: there was no policy."""

    def __init__(self, expected: int | None, actual: int | None) -> None:
        expected_words = "no policy" if expected is None else f"version {expected}"
        actual_words = "there is none" if actual is None else f"version {actual} is in force"
        super().__init__(f"expected {expected_words}, but {actual_words}")
        self.expected, self.actual = expected, actual


class NotMoved(StoreError):
    """The cluster's policy is stored where it is not used (policies.py). Its operations wait: an
    unfinished upgrade must not cancel them."""

    def __init__(self, cluster: str) -> None:
        super().__init__(
            f"{cluster}: its policy lies in the state table, where it is not used; run outscaler "
            "migrate"
        )
        self.cluster = cluster


class NewerSchema(StoreError):
    """The table has a schema that this code does not know. schema, release: as the table says;
    known: the schema that this code knows."""

    def __init__(self, schema: int, release: str, known: int) -> None:
        super().__init__(
            f"the table was written by a newer release (schema {schema}, release {release}); this "
            "code "
            f"knows schema {known}; deploy that release again"
        )
        self.schema, self.release, self.known = schema, release, known


class RowUnreadable(StoreError):
    """Rows of one cluster cannot be read, whereas the table answers: what concerns
    other clusters continues."""

    published_name = "StoreError"


class StoreThrottled(StoreError):
    """DynamoDB kept refusing because of load or conflicting transactions."""


class StoreUnavailable(StoreError):
    """DynamoDB gave no usable response; the message contains the network's or the service's
    error."""
