"""An operation's steps and its end, told: the log, and through chalicelib/record the journal, events and metrics.

It comes after the operation's row is written. What cannot be told is said in the log; what happened is in the row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from chalicelib.handlers.log import logger
from chalicelib.handlers.runtime import Runtime
from chalicelib.model.operation import Kind, Operation
from chalicelib.model.outcome import Done, Failed, Outcome, Pending
from chalicelib.model.policy import Policy
from chalicelib.record.board import Board
from chalicelib.record.record import Recorder, record_marked, record_outcome
from chalicelib.store.errors import StoreError

if TYPE_CHECKING:
    from chalicelib.kube.client import Cluster


def tell(before: Operation, after: Operation, outcome: Outcome, policy: Policy | None,
         connect: Callable[[], Cluster] | None, rt: Runtime) -> None:
    """before, after: the step. connect: to the cluster for events; None: this cluster is not to be written to."""
    recorder = Recorder(
        journal=rt.store.journal, events=Board(connect) if connect else None, emit=rt.emit,
        first_use=lambda key, ttl: rt.store.debounce.first_use(after.cluster, key, ttl),
    )
    try:
        if isinstance(outcome, Pending):
            trouble = _tell_step(before, after, outcome, recorder, rt)
        else:
            trouble = _tell_end(after, outcome, policy, recorder, rt)
    except StoreError as error:
        trouble = f"{type(error).__name__}: {error}"
    if trouble:
        logger.warning("not told everywhere", cluster=after.cluster, operation=after.id, detail=trouble)


def _tell_step(before: Operation, after: Operation, outcome: Pending, recorder: Recorder, rt: Runtime) -> str:
    logger.info("step", cluster=after.cluster, operation=after.id, group=after.group, step=before.step,
                next=outcome.step, after=outcome.after, note=outcome.note)
    if before.kind is Kind.REMOVE and before.step == "taint" and outcome.step == "recheck":
        return record_marked(after, recorder, rt.clock())
    return ""


def _tell_end(after: Operation, outcome: Done | Failed, policy: Policy | None, recorder: Recorder, rt: Runtime) -> str:
    logger.info("operation ended", cluster=after.cluster, operation=after.id, group=after.group,
                state=after.state.value, outcome=after.outcome)
    return record_outcome(after, outcome, recorder, rt.clock(), largest=_largest(after, policy))


def _largest(operation: Operation, policy: Policy | None) -> int | None:
    """The group's maximum as the policy has it."""
    groups = policy.node_groups if policy else ()
    return next((group.max for group in groups
                 if (group.provider, group.id) == (operation.provider, operation.group)), None)
