"""Wraps a provider call and translates its outcome into the operation's own steps and data.

A provider may keep a request id in InProgress.data and a step name of its own in InProgress.step. Both are passed back
unchanged at the next call, and neither collides with the steps and data of operations, which share the operation's row.
"""

from __future__ import annotations

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import InProgress, Outcome

OWN = "own."
"""Prefix of the keys in the operation's data that belong to execute."""
VENDOR_STEP = f"{OWN}vendorStep"
LEAST_WAIT = 1.0


def for_provider(operation: Operation) -> Operation:
    """The operation as its provider sees it: with the provider's own data and step."""
    theirs = {key: value for key, value in operation.status.data.items() if not key.startswith(OWN)}
    return operation.with_status(data=theirs, step=operation.status.data.get(VENDOR_STEP, ""))


def from_provider(operation: Operation, outcome: Outcome) -> Outcome:
    """A provider's outcome as execute records it: a Pending becomes step `poll` and keeps the data of execute."""
    if not isinstance(outcome, InProgress):
        return outcome
    ours = {key: value for key, value in operation.status.data.items() if key.startswith(OWN)}
    data = {**outcome.data, **ours, VENDOR_STEP: outcome.step}
    return InProgress(max(outcome.after, LEAST_WAIT), "poll", data, outcome.note)
