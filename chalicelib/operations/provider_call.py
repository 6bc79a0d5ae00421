"""A call to the provider whose answer goes on in our own words.

A provider may keep a request id in Pending.data and a name of its own in Pending.step. Both come back to it unchanged
at the next call, and neither collides with the steps and data of execute, which share the operation's row.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Outcome, Pending

OWN = "own."
"""Prefix of the keys in the operation's data that belong to execute."""
VENDOR_STEP = f"{OWN}vendorStep"
LEAST_WAIT = 1.0


def ask(call: Callable[[Operation], Outcome], operation: Operation) -> Outcome:
    """Call with the provider's own data and step; a Pending answer is translated to step `poll`."""
    theirs = {key: value for key, value in operation.data.items() if not key.startswith(OWN)}
    outcome = call(msgspec.structs.replace(operation, data=theirs, step=operation.data.get(VENDOR_STEP, "")))
    if not isinstance(outcome, Pending):
        return outcome
    ours = {key: value for key, value in operation.data.items() if key.startswith(OWN)}
    data = {**outcome.data, **ours, VENDOR_STEP: outcome.step}
    return Pending(max(outcome.after, LEAST_WAIT), "poll", data, outcome.note)
